"""
Lists the files of a commit log.

Spec: store.md, section 1; dledger.md, sections 3 and 15.4.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import DirectoryEntry, Files
from rmq_ha.ops.offline.chain import Layout

NAME_LENGTH = 20


class LogFile(NamedTuple):
    """One file of a log: path, physical offset of its first byte, and size in bytes."""

    path: str
    base: int
    size: int
    layout: Layout = Layout.CLASSIC

    @property
    def end(self) -> int:
        """Physical offset after its last byte."""
        return self.base + self.size


def numbered_entries(entries: Sequence[DirectoryEntry]) -> list[DirectoryEntry]:
    """Return the entries of a directory that are files of a log or queue, by their names."""
    return [
        entry
        for entry in entries
        if not entry.is_directory and len(entry.name) == NAME_LENGTH and is_number(entry.name)
    ]


def is_number(name: str) -> bool:
    """Return whether a name has only digits and fits into a Java long."""
    return name.isascii() and name.isdecimal() and len(name) <= NAME_LENGTH and int(name) < 1 << 63


class Hole(NamedTuple):
    """Bytes of a log, [start, end), that no file between the two named files has."""

    start: int
    end: int
    between: str


def log_files(files: Files, root: str, commit_log: str | None = None) -> list[LogFile]:
    """
    Return the files of a store's log, by ascending offset. Files may be missing; see `holes_in`.

    :param commit_log: directories with commas between them, if the log is not below the root.
    :raises CannotDecide: there are no files, or files of several logs.
    """
    directories = [part.strip() for part in (commit_log or f"{root}/commitlog").split(",")]
    classic = files_in(files, [path for path in directories if path], Layout.CLASSIC)
    ledgers = [
        entry.name
        for entry in files.list(root)
        if entry.is_directory and entry.name.startswith("dledger-")
    ]
    if commit_log is not None:
        ledgers = []
        if classic and directories[0].rstrip("/").endswith("/data"):
            classic = [file._replace(layout=Layout.DLEDGER) for file in classic]
    if len(ledgers) > 1:
        raise CannotDecide(
            f"{root} holds the logs of several DLedger members ({', '.join(ledgers)}): say which "
            f"with the commit log's directory, as {root}/{ledgers[0]}/data"
        )
    row = classic
    for name in ledgers:
        row = classic + files_in(files, [f"{root}/{name}/data"], Layout.DLEDGER)
    if not row:
        raise CannotDecide(
            f"{root} has no commit log: neither commitlog/ nor dledger-<id>/data/ below it holds a "
            "file. Give the directory that storePathRootDir names, and where storePathCommitLog "
            "is set, that one too"
        )
    for file, following in pairwise(row):
        if file.end > following.base:
            raise CannotDecide(
                f"{file.path} with {file.size} bytes reaches into {following.path}: these are "
                "files of different stores or of different mappedFileSizeCommitLog"
            )
    return row


def holes_in(row: Sequence[LogFile]) -> list[Hole]:
    """Return the holes between the files of a log."""
    return [
        Hole(file.end, following.base, f"{file.path} and {following.path}")
        for file, following in pairwise(row)
        if file.end < following.base
    ]


def files_in(files: Files, directories: Sequence[str], layout: Layout) -> list[LogFile]:
    """Return the log files in some directories, by ascending offset."""
    row = [
        LogFile(f"{directory}/{entry.name}", int(entry.name), entry.size, layout)
        for directory in directories
        for entry in numbered_entries(files.list(directory))
    ]
    return sorted(row, key=lambda file: file.base)
