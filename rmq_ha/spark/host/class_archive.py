"""
Spark's classes, read and checked once and for all: halves the time until a small job's verdict.

A Java maps such an archive (AppCDS) instead of opening 280 jars. Making one takes half a minute of
processor time, so it is done in the background after the first job, at the lowest priority. An
archive belongs to one Java and one Spark; Java itself refuses one that does not fit.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rmq_ha.spark.host.java import Java

SWITCH = "RMQ_HA_CLASS_ARCHIVE"
"""In the environment: `off`: no archive; `read`: none is made; else one is made when missing."""

_SCHEME = "1"
_KEPT = 2
_ROOM = 1 << 30
_TRY_AGAIN_SECONDS = 7 * 24 * 3600
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


class Archive(NamedTuple):
    """
    The archive for one Java and one Spark.

    :ivar path: it may be there or not.
    """

    path: Path

    @property
    def options(self) -> Sequence[str]:
        """For Java, to use it if it fits."""
        if not self.path.is_file():
            return _QUIET
        return (*_QUIET, "-Xshare:auto", f"-XX:SharedArchiveFile={self.path}")

    @property
    def failed(self) -> Path:
        """This file says that it could not be made."""
        return self.path.with_suffix(".failed")

    def is_worth_making(self) -> bool:
        """There is none, there is room for one, and the last try did not fail this week."""
        if self.path.is_file():
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(self.path.parent).free < _ROOM:
                return False
            return time.time() - self.failed.stat().st_mtime > _TRY_AGAIN_SECONDS
        except FileNotFoundError:
            return os.access(self.path.parent, os.W_OK)
        except OSError:
            return False


def archive_of(java: Java, jars: Sequence[str], cache: Path) -> Archive:
    """
    Where the archive of these is.

    :param jars: the class path, in its order.
    :param cache: our directory for what can be made again.
    """
    digest = hashlib.sha256(f"{_SCHEME}\n{java.home}\n{java.release}\n".encode())
    for jar in jars:
        found = os.stat(jar)
        digest.update(f"{jar} {found.st_size} {found.st_mtime_ns}\n".encode())
    return Archive(cache / "classes" / f"java{java.version}-{digest.hexdigest()[:16]}.jsa")


def may_read(environ: Mapping[str, str] = os.environ) -> bool:
    """An archive that is there is used."""
    return environ.get(SWITCH, "") != "off"


def may_make(environ: Mapping[str, str] = os.environ) -> bool:
    """One that is missing is made."""
    return environ.get(SWITCH, "") not in ("off", "read")


def make_in_background() -> None:
    """Start a process that makes the archive and ends; whoever started it need not wait."""
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "rmq_ha.spark.host.training"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@contextlib.contextmanager
def alone(archive: Archive) -> Iterator[bool]:
    """
    True in the block if nobody else makes this archive now.

    The lock goes with the process, so nobody has to tidy up after one that was killed.
    """
    import fcntl

    archive.path.parent.mkdir(parents=True, exist_ok=True)
    with (archive.path.parent / "making.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def make(
    java: Java, archive: Archive, classes: Path, options: Sequence[str], jars: Sequence[str]
) -> bool:
    """
    Write the archive, whole or not at all, and remove what is too old.

    :param classes: the list that `-XX:DumpLoadedClassList` has written.
    :param options: with which Java will run.
    :returns: whether it was written.
    """
    directory = archive.path.parent
    handle, unfinished = tempfile.mkstemp(dir=directory, prefix=".making-", suffix=".jsa")
    os.close(handle)
    command = [str(java.program), "-Xshare:dump", *_QUIET, "-Xmx512m"]
    command += [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={unfinished}"]
    try:
        done = subprocess.run(
            [*command, *options, "-cp", os.pathsep.join(jars)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=900,
            check=False,
        )
        if done.returncode != 0 or not os.path.getsize(unfinished):
            return False
        os.replace(unfinished, archive.path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
    tidy(directory)
    return True


def tidy(directory: Path) -> None:
    """Keep the newest two archives (about 170 MB each), and nothing unfinished."""
    archives = sorted(directory.glob("java*.jsa"), key=lambda path: path.stat().st_mtime)
    for old in [*archives[:-_KEPT], *directory.glob(".making-*"), *directory.glob("*.failed")]:
        with contextlib.suppress(OSError):
            old.unlink()
