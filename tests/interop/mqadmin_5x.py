"""mqadmin of RocketMQ 5.x, one command after the other."""

from __future__ import annotations

import subprocess

from tests.interop.rig import REPO, Rig
from tests.interop.test_controller import PEER5


class Mqadmin:
    """5.x's mqadmin in one JVM, signing as an administrator."""

    def __init__(self, rig: Rig) -> None:
        path = subprocess.run(
            [str(PEER5), "classpath"], capture_output=True, text=True, check=True
        ).stdout.strip()
        home = rig.directory / "tools"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "tools.yml").write_text("accessKey: rootroot\nsecretKey: rootsecret\n")
        self._process = subprocess.Popen(
            [
                *("java", f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-cp", path),
                str(REPO / "tests/interop/java/Tools5.java"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
        )

    def __call__(self, *words: str) -> str:
        """What a command printed."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        lines = []
        for line in self._process.stdout:
            if line == "DONE\n":
                break
            lines.append(line)
        return "".join(lines)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(30)
