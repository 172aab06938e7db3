"""
Makes a rig of RocketMQ 5.5.1 (or 5.5.0, 5.4.0) from the one of 5.3.3, for tests on demand.

    python -m tests.interop.peer55                 makes it, and prints the variables to export
    python -m tests.interop.peer55 pytest ARGS...  runs pytest with it in the place of 5.3.3
    python -m tests.interop.peer55 --classic pytest ARGS...  in the place of 4.9.7, too

The rig is a copy of `../shared/peer5` with another `pom.xml`, below `$XDG_CACHE_HOME`. Not all jars
of 5.5.1 could be had on 30 November 2026: `MODULES_OF_5_5_1` are of that version, the others of
5.5.0. `docs/clients-5x.md`, "RocketMQ 5.5.1", lists the tests that were run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.interop.rig import PEER, REPO
from tests.interop.test_controller import PEER5

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
MODULES_OF_5_5_1 = ("broker", "store", "controller", "common", "remoting", "tiered-store")
OTHERS = ("auth", "client", "tools", "namesrv", "filter", "srvutil")
ASKED_FOR = ("broker", "controller", "namesrv", "tools", "client")
LIKE_4_9 = (
    "slaveReadEnable=true",
    "inSyncReplicas=2",
    "minInSyncReplicas=1",
    "enableAutoInSyncReplicas=true",
)
"""
What 4.9 does without a key: a slave serves pulls, and a SYNC_MASTER waits for its slave. By default
a SYNC_MASTER of 5.x acknowledges alone.
"""
_SWITCH = """#!/usr/bin/env python3
\"\"\"The commands of `../shared/peer`, with RocketMQ 5.5 and the same load generator.\"\"\"
import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

FIRST, FIVE = {first!r}, {five!r}


def go_binary(*names):
    spec = spec_from_loader("peer", SourceFileLoader("peer", FIRST))
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.go_binary(*names)


if __name__ == "__main__":
    rest = sys.argv[1:]
    if "--gc" in rest:
        del rest[rest.index("--gc") :][:2]
    if rest[:1] == ["broker"]:
        for setting in {like_4_9!r}:
            rest += ["--set", setting]
    program = FIRST if rest[:1] == ["load"] else FIVE
    os.execv(program, [program, *rest])
"""


def version_of(module: str, version: str) -> str:
    """The version of a module in the rig of a version."""
    return "5.5.0" if version == "5.5.1" and module in OTHERS else version


def pom(version: str) -> str:
    """The modules with their versions, and fastjson 1: PeerClient.java needs it, 5.5.1 does not."""

    def dependency(group: str, artifact: str, of: str) -> str:
        inner = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        return f"<dependency>{inner}<version>{of}</version></dependency>"

    def modules(names: tuple[str, ...]) -> str:
        return "\n".join(
            dependency("org.apache.rocketmq", f"rocketmq-{name}", version_of(name, version))
            for name in names
        )

    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>peer5</groupId><artifactId>peer55</artifactId><version>1</version><packaging>pom</packaging>
<dependencyManagement><dependencies>
{modules((*MODULES_OF_5_5_1, *OTHERS))}
</dependencies></dependencyManagement>
<dependencies>
{modules(ASKED_FOR)}
{dependency("com.alibaba", "fastjson", "1.2.83")}
</dependencies>
</project>
"""


def make(version: str) -> Path:
    """Make the rig unless it is there; what RMQ_HA_PEER5 and RMQ_HA_PEER are set to."""
    directory = CACHE / "rmq-ha-peer55" / version
    for source in (PEER, PEER5):
        shutil.copytree(source.parent / "conf", directory / "conf", dirs_exist_ok=True)
    shutil.copytree(PEER5.parent / "java", directory / "java", dirs_exist_ok=True)
    shutil.copy(PEER5, directory / "peer5")
    (directory / "pom.xml").write_text(pom(version))
    switch = directory / "peer"
    switch.write_text(
        _SWITCH.format(first=str(PEER), five=str(directory / "peer5"), like_4_9=LIKE_4_9)
    )
    switch.chmod(0o755)
    subprocess.run([str(directory / "peer5"), "install"], check=True, stdout=sys.stderr)
    return directory


def main() -> int:
    """Make the rig, and run a command with it."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.peer55")
    parser.add_argument("--version", default="5.5.1", help="5.5.1 (the default), 5.5.0 or 5.4.0")
    parser.add_argument(
        "--classic", action="store_true", help="in the place of RocketMQ 4.9.7, too"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="`pytest` and its arguments")
    arguments = parser.parse_args()
    directory = make(arguments.version)
    variables = {"RMQ_HA_PEER5": str(directory)}
    if arguments.classic:
        variables["RMQ_HA_PEER"] = str(directory)
    if not arguments.command:
        print("\n".join(f"export {name}={value}" for name, value in variables.items()))
        return 0
    command = [sys.executable, "-m", *arguments.command]
    return subprocess.run(
        command, cwd=REPO, env={**os.environ, **variables}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
