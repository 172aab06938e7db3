"""Finds the Java that Spark runs on."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_VECTOR = "jdk.incubator.vector"
_FIX = (
    f"Spark needs Java {OLDEST} or newer: install a JDK, such as openjdk-{OLDEST}-jre-headless of"
    " Debian, or set RMQ_HA_JAVA_HOME to the directory of one. Small stores are judged without"
    " Java, by the command of the same name in rmqha-admin or rmqha-scan"
)


class NoJava(Exception):
    """No Java was found that Spark can run on; the text says what was tried, and what to do."""


class Java(NamedTuple):
    """
    A Java that can run Spark.

    :ivar version: the feature number: 17, 21.
    :ivar source: how it was found: `RMQ_HA_JAVA_HOME`, `JAVA_HOME`, `PATH`.
    :ivar passed_over: a sentence for each Java that was found before it and cannot be used.
    """

    home: Path
    version: int
    source: str
    passed_over: tuple[str, ...] = ()


class _Unfit(Exception):
    """A Java cannot be used; the text says why."""


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """
    Return the first usable Java of RMQ_HA_JAVA_HOME, JAVA_HOME, and `java` on the PATH.

    :raises NoJava: no Java can be used, or RMQ_HA_JAVA_HOME names one that cannot.
    """
    passed_over: list[str] = []
    for source, home in _candidates(environ):
        try:
            return _check(home, source)._replace(passed_over=tuple(passed_over))
        except _Unfit as unfit:
            if source == "RMQ_HA_JAVA_HOME":
                raise NoJava(f"{unfit}; set it to another directory, or unset it") from None
            passed_over.append(str(unfit))
    seen = "; ".join(passed_over) or "no JAVA_HOME, no `java` on the PATH"
    raise NoJava(f"no Java for Spark ({seen}). {_FIX}")


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the places where Java may be: how each was found, and its directory."""
    for name in ("RMQ_HA_JAVA_HOME", "JAVA_HOME"):
        if environ.get(name):
            yield name, Path(environ[name])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path).resolve().parents[1]


def _check(home: Path, source: str) -> Java:
    """Return the Java of a directory; raise `_Unfit` if Spark cannot run on it."""
    program = home / "bin" / "java"
    if not program.is_file():
        raise _Unfit(f"{source}: {home} has no bin/java")
    text = _release(home) or _release_text(program, source)
    number = re.search(r'JAVA_VERSION="?(?:1\.)?(\d+)', text)
    if number is None:
        raise _Unfit(f"{source}: {program} does not say which Java it is")
    version = int(number[1])
    if version < OLDEST:
        raise _Unfit(f"{source}: {home} is Java {version}, older than {OLDEST}")
    # Some builds of Java leave out the list of modules: they have all of them.
    modules = re.search(r'MODULES="([^"]*)"', text)
    if modules is not None and _VECTOR not in modules[1].split():
        raise _Unfit(
            f"{source}: {home} lacks the module {_VECTOR}, without which Spark cannot start"
        )
    return Java(home, version, source)


def _release(home: Path) -> str:
    """Return the text of Java's file `release`; empty: it cannot be read."""
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _release_text(program: Path, source: str) -> str:
    """Return the text of a `release` file for a Java that has none."""
    try:
        done = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as failed:
        raise _Unfit(f"{source}: {program} does not run: {failed}") from None
    version = re.search(r"java\.version = (\S+)", done.stderr + done.stdout)
    return f'JAVA_VERSION="{version[1]}"' if version else ""
