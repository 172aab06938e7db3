"""
Our commands as processes that need not import anything: forks of one that has it all imported.

Each is a process of its own with its own reactor, files and limits, which runs what the installed
command runs. A machine spends most of a short command on imports, and CI makes many.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

ENTRIES = {
    "rmqha-broker": "rmq_ha.ops.app.foreground:broker",
    "rmqha-namesrv": "rmq_ha.ops.app.foreground:namesrv",
    "rmqha-controller": "rmq_ha.ops.app.foreground:controller",
    "rmqha-admin": "rmq_ha.ops.admin.main:main",
}
ROOT = Path(__file__).parents[2]


class Forks:
    """The client's side; for one thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mistakes.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def start(self, command: list[str], **given: Any) -> int:
        """
        :param given: `cwd`, `env`, `output`, `input` (files), `files` (their limit, or None).
        :returns: its process id.
        """
        return int(self._ask({"do": "start", "command": command, **given}))

    def poll(self, pid: int) -> int | None:
        """How it ended, as subprocess says it; None: it runs."""
        code: int | None = self._ask({"do": "poll", "pid": pid})
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, what: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def preload() -> None:
    from rmq_ha.ops.admin.main import COMMANDS

    for place in COMMANDS.values():
        import_module(place.where.partition(":")[0])
    for name in ("broker_server", "namesrv_server", "controller_server", "live_check", "make"):
        import_module(f"rmq_ha.ops.app.{name}")
    for name in (
        "twisted.scripts.twistd",
        "twisted.internet.epollreactor",
        "rmq_ha.base.host.real",
    ):
        import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "each process has its own"


def serve() -> None:
    codes: dict[int, int] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "start":
            pid = os.fork()
            if not pid:
                run(asked)
            answer: int | None = pid
        else:
            answer = codes.get(asked["pid"])
            if answer is None:
                done, status = os.waitpid(asked["pid"], os.WNOHANG)
                if done:
                    answer = codes[done] = os.waitstatus_to_exitcode(status)
        print(json.dumps(answer), flush=True)


def run(asked: dict[str, Any]) -> None:
    """In the child: become the command."""
    code = 1
    try:
        os.chdir(asked["cwd"])
        given = os.open(asked["input"], os.O_RDONLY)
        sink = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number, source in ((0, given), (1, sink), (2, sink)):
            os.dup2(source, number)
        os.close(given)
        os.close(sink)
        os.environ.clear()
        os.environ.update(asked["env"])
        if asked["files"] is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (asked["files"], asked["files"]))
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), line_buffering=True)
        name, *arguments = asked["command"]
        sys.argv = [name, *arguments]
        sys.modules["__main__"].__package__ = None  # a usage error names what was typed
        module, _, function = ENTRIES[name].partition(":")
        getattr(import_module(module), function)()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                continue
        os._exit(code)


if __name__ == "__main__":
    preload()
    serve()
