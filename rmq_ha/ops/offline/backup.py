"""
Backs up a store while its broker writes it. A copy is complete up to an offset, and a later run can
continue it from there.

Only the tables and whole records of the log are copied. Queues, index and checkpoint are not,
because a start builds them anew. Offsets are copied before the log, topics after it. So no offset
is beyond the log, and no message has a topic that is missing.

Spec: store.md, sections 1, 2, 5 and 12.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import WINDOW, Files, window_of
from rmq_ha.ops.offline.chain import ChainEnding, Layout, chain, first_record
from rmq_ha.ops.offline.log_files import LogFile, holes_in, log_files, numbered_entries

if TYPE_CHECKING:  # its interfaces need Twisted, which this package does not import
    from rmq_ha.base.seams import Disk, File

MANIFEST = "backup.json"
MOST_TABLE_BYTES = 256 << 20
"""Bytes of the largest table: far more than the largest that a broker loads."""
LATE_TABLES = ("topics.json", "subscriptionGroup.json")
"""
Tables whose entry is made before the first message that needs it, and which are therefore copied
after the log.
"""
_TABLES = ".json"
_FOLDER = re.compile(r"config-[0-9]{1,9}")
_MOST_MANIFEST = 64 << 10
_MOST_RUNS = 10**9
_COMPARED = 64 << 10


class Manifest(msgspec.Struct, rename="camel"):
    """
    The content of a backup. Other files in the directory are leftovers of a run that was
    interrupted.

    :ivar again_from: offset of a record not far below the end. The next run copies from there, as a
        broker may have been writing the bytes after it.
    :ivar file_size: bytes of each file of the log: `mappedFileSizeCommitLog`.
    :ivar tables: name of the directory with the tables.
    """

    begin: int
    end: int
    again_from: int
    file_size: int
    made_ms: int
    tables: str
    runs: int = 1


class CopyResult(NamedTuple):
    """The result of one run, and the bytes of the log that it wrote."""

    manifest: Manifest
    copied: int


class StoreDirectories(NamedTuple):
    """The directories of a store and of its log, and the bytes of each file of the log."""

    root: str
    log: str
    file_size: int


def read_manifest(files: Files, target: str) -> Manifest | None:
    """
    Read the manifest of an earlier run; return None if there was none.

    Whoever can write into the directory can write the manifest. So it is refused if it names a path
    outside of the directory, or holds values that no run could have written.

    :raises CannotDecide: the manifest is damaged.
    """
    try:
        data = files.read(f"{target}/{MANIFEST}", 0, _MOST_MANIFEST)
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise CannotDecide(f"{target}/{MANIFEST} is damaged: {error}") from None
    why = _why_damaged(manifest)
    if why is not None:
        raise CannotDecide(f"{target}/{MANIFEST} is damaged, or not of rmq-ha: {why}")
    return manifest


def _why_damaged(manifest: Manifest) -> str | None:
    begin, middle, end = manifest.begin, manifest.again_from, manifest.end
    if not _FOLDER.fullmatch(manifest.tables):
        return f"tables={manifest.tables!r} is no directory such as config-1"
    if not 0 < manifest.runs < _MOST_RUNS:
        return f"runs={manifest.runs} is not from 1 to {_MOST_RUNS - 1}"
    if manifest.file_size < 1:
        return f"fileSize={manifest.file_size} is no size of a file"
    if not 0 <= begin <= middle <= end < 1 << 63:
        return f"begin={begin}, againFrom={middle} and end={end} are no places of a log in order"
    return None


def back_up(
    files: Files,
    store: StoreDirectories,
    disk: "Disk",
    target: str,
    now_ms: int,
    tell: Callable[[int], None] = lambda count: None,
) -> CopyResult:
    """
    Copy a store, or the part that was added since the last run.

    :param files: reads the store, which is not changed, and the backup.
    :param target: a directory that is empty or holds a backup of this store.
    :param tell: called with the number of bytes of the log that were just copied.
    :raises CannotDecide: the backup cannot be continued, or the store is damaged.
    """
    before = read_manifest(files, target)
    row = log_files(files, store.root, store.log)
    _must_fit(files, row, store, before, target)
    runs = 1 if before is None else before.runs + 1
    tables = f"config-{runs}"
    disk.remove_tree(f"{target}/{tables}")  # left by a run that did not end
    names = [e.name for e in files.list(f"{store.root}/config") if e.name.endswith(_TABLES)]
    early = [name for name in names if name not in LATE_TABLES]
    _copy_tables(files, store, disk, f"{target}/{tables}", early)
    start = row[0].base if before is None else before.again_from
    copy = _LogCopy(files, disk, f"{target}/commitlog", tell)
    for file in row:
        if file.end > start and not copy.run(file, max(start, file.base)):
            break
    late = [name for name in names if name in LATE_TABLES]
    _copy_tables(files, store, disk, f"{target}/{tables}", late)
    begin = row[0].base if before is None else before.begin
    manifest = Manifest(begin, copy.end, copy.again_from, store.file_size, now_ms, tables, runs)
    disk.replace(f"{target}/{MANIFEST}", msgspec.json.encode(manifest))
    if before is not None:
        disk.remove_tree(f"{target}/{before.tables}")
    return CopyResult(manifest, copy.copied)


def restore(
    files: Files, disk: "Disk", target: str, store: StoreDirectories, tell: Callable[[int], None]
) -> Manifest:
    """
    Make a store from a backup. Its first start reads every record, and builds queues and index.

    :param files: reads the backup, which is not changed.
    :param tell: called with the number of bytes of the log that were just copied.
    :raises CannotDecide: there is no backup, it does not fit, or the directories are not empty.
    """
    manifest, tables = what_to_restore(files, disk, target, store)
    size = manifest.file_size
    for base in _bases(manifest):
        made = disk.open(f"{store.log}/{base:020}", size)
        try:
            length = min(size, manifest.end - base)
            _copy_file(files, f"{target}/commitlog/{base:020}", made, length, tell)
            made.sync()
        finally:
            made.close()
    for name in tables:
        data = files.read(f"{target}/{manifest.tables}/{name}")
        disk.replace(f"{store.root}/config/{name}", data)
    # The mark of a crash makes the start read all of the log, and trust no other file.
    disk.replace(f"{store.root}/abort", b"")
    return manifest


def what_to_restore(
    files: Files, disk: "Disk", target: str, store: StoreDirectories
) -> tuple[Manifest, list[str]]:
    """
    Return the manifest of a backup and the names of its tables, if a store can be made from it.

    :raises CannotDecide: there is no backup, it does not fit, or the directories are not empty.
    """
    manifest = read_manifest(files, target)
    if manifest is None:
        raise CannotDecide(
            f"{target} holds no finished backup: give the directory that `backup` was given"
        )
    if manifest.file_size != store.file_size:
        raise CannotDecide(
            f"the backup's log has files of {manifest.file_size} bytes: set "
            f"mappedFileSizeCommitLog={manifest.file_size}"
        )
    must_be_empty(disk, store, "restore")
    sizes = {
        int(entry.name): entry.size for entry in numbered_entries(files.list(f"{target}/commitlog"))
    }
    for base in _bases(manifest):
        if sizes.get(base) != manifest.file_size:
            raise CannotDecide(
                f"{target}/{MANIFEST} says that the log goes from {manifest.begin} to "
                f"{manifest.end}, but {target}/commitlog/{base:020} is no file of "
                f"{manifest.file_size} bytes: copy the whole backup here again"
            )
    must_have_room(disk, store, "backup", manifest.end - manifest.begin)
    return manifest, _tables_of(files, f"{target}/{manifest.tables}")


def must_be_empty(disk: "Disk", store: StoreDirectories, verb: str) -> None:
    """
    :param verb: what is done into the store, for the message.
    :raises CannotDecide: the store's directories have files.
    """
    occupied = [path for path in (store.log, f"{store.root}/config") if disk.list_dir(path)]
    if occupied or disk.exists(f"{store.root}/checkpoint"):
        raise CannotDecide(f"{(occupied or [store.root])[0]} is not empty: {verb} into a new store")


def must_have_room(disk: "Disk", store: StoreDirectories, source: str, size: int) -> None:
    """
    :param source: where the log comes from, for the message.
    :param size: bytes of the log.
    :raises CannotDecide: the disk of the log has less room.
    """
    free = free_bytes(disk, store.log)
    if free is not None and free < size:
        raise CannotDecide(
            f"the {source}'s log has {size} bytes, and there are {free} free for {store.log}"
        )


def _bases(manifest: Manifest) -> range:
    return range(manifest.begin, max(manifest.end, manifest.begin + 1), manifest.file_size)


def _tables_of(files: Files, folder: str) -> list[str]:
    entries = files.list(folder)
    for entry in entries:
        if entry.is_directory or not entry.name.endswith(_TABLES):
            raise CannotDecide(f"{folder}/{entry.name} is no table of a backup")
        if entry.size > MOST_TABLE_BYTES:
            raise CannotDecide(
                f"{folder}/{entry.name} has {entry.size} bytes: a table has {MOST_TABLE_BYTES} "
                "at most"
            )
    return [entry.name for entry in entries]


def free_bytes(disk: "Disk", path: str) -> int | None:
    """Return the free bytes for a directory that may not exist yet; None if they are not known."""
    while path:
        usage = disk.usage(path)
        if usage is not None:
            return usage.usable
        path = path.rpartition("/")[0]
    return None


class _LogCopy:
    """
    Copies whole records from the files of a log into files of the same names.

    :ivar end: physical offset behind the last whole record.
    :ivar again_from: see `Manifest`.
    """

    def __init__(
        self, files: Files, disk: "Disk", folder: str, tell: Callable[[int], None]
    ) -> None:
        self._files = files
        self._disk = disk
        self._folder = folder
        self._tell = tell
        self.copied = 0
        self.end = self.again_from = 0

    def run(self, file: LogFile, start: int) -> bool:
        """
        Copy a file from `start` on, where a record begins.

        :returns: whether the file is full, so that the log continues in the next one.
        :raises CannotDecide: the file is damaged: bytes between its records are no record.
        """
        made = self._disk.open(f"{self._folder}/{file.base:020}", file.size)
        self.end = self.again_from = start
        try:
            for position, data in self._pieces(file, start):
                made.pwrite(data, position - file.base)
                self.copied += len(data)
                self.again_from, self.end = position, position + len(data)
                self._tell(len(data))
            made.sync()
        finally:
            made.close()
        return self.end == file.end

    def _pieces(self, file: LogFile, position: int) -> Iterator[tuple[int, bytes]]:
        want = WINDOW
        while position < file.end:
            length = min(want, file.end - position)
            buffer = window_of(self._files, file.path, position - file.base, length)
            records = chain(buffer, position)
            if records.end:
                yield position, bytes(buffer[: records.end])
                position, want = position + records.end, WINDOW
            if records.tail is ChainEnding.BLANK:
                rest = bytes(window_of(self._files, file.path, position - file.base, 8))
                yield position, rest + bytes(file.end - position - 8)
                return
            if records.tail is ChainEnding.TORN:
                if first_record(buffer, position - records.end, records.end + 1) < 0:
                    return  # the broker is writing this record
                raise CannotDecide(
                    f"{file.path} has no record at {position}: the store is damaged there, and a "
                    "start of the broker says what to do"
                )
            if records.tail is ChainEnding.NOT_WRITTEN:
                return
            if not records.end:
                if length >= file.end - position or records.needed <= length:
                    return
                want = records.needed


def _must_fit(
    files: Files,
    row: list[LogFile],
    store: StoreDirectories,
    previous: Manifest | None,
    target: str,
) -> None:
    """
    Check that the log can be backed up, and that it goes on from the previous backup.

    The bytes just before the place at which copying goes on must be equal in log and backup. A
    backup that is copied anew from its start has no such bytes, so its first record is compared.

    :raises CannotDecide: the log is not whole, or is another log.
    """
    if not row:
        raise CannotDecide(f"{store.log} holds no commit log")
    if any(file.layout is not Layout.CLASSIC for file in row):
        raise CannotDecide("a DLedger member's log is not backed up: the other members have it")
    if any(file.size != store.file_size for file in row) or holes_in(row):
        raise CannotDecide(f"{store.log} is not whole: files are missing, or of another size")
    for folder in (store.root, store.log):
        if f"{target}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{target}/"):
            raise CannotDecide(
                f"{target} lies in the store, or the store in it ({folder}): a backup dies with "
                "the disk of its store; name a directory elsewhere"
            )
    if previous is None:
        if files.list(f"{target}/commitlog"):
            raise CannotDecide(f"{target} holds files, but no backup: name another directory")
        return
    again = "begin a new backup in another directory"
    if previous.file_size != store.file_size:
        raise CannotDecide(f"mappedFileSizeCommitLog was {previous.file_size}: {again}")
    if row[0].base > previous.end:
        raise CannotDecide(
            f"the broker has deleted what came after {previous.end}, where the backup ends: {again}"
        )
    if previous.end == previous.begin:
        return
    is_small = previous.again_from <= previous.begin
    # Offsets alone prove nothing: another broker's log has the same ones. So bytes are compared, in
    # the file that holds the last byte before the place where copying goes on.
    base = max(previous.again_from - 1, previous.begin) // store.file_size * store.file_size
    theirs = next((file for file in row if file.base == base), None)
    if theirs is None:
        return  # what could be compared is deleted
    start = previous.begin if is_small else max(base, previous.again_from - _COMPARED)
    ours = f"{target}/commitlog/{base:020}"
    length = previous.again_from - start
    if is_small:
        length = int.from_bytes(window_of(files, ours, start - base, 4), "big")
        length = min(length, previous.end - start)
    same = bytes(window_of(files, ours, start - base, length))
    if bytes(window_of(files, theirs.path, start - base, length)) != same:
        raise CannotDecide(
            f"the log before {start + length} differs from the log of this backup: {again}"
        )


def _copy_tables(
    files: Files, store: StoreDirectories, disk: "Disk", folder: str, names: list[str]
) -> None:
    for name in names:
        disk.replace(f"{folder}/{name}", files.read(f"{store.root}/config/{name}"))


def _copy_file(
    files: Files, source: str, made: "File", length: int, tell: Callable[[int], Any]
) -> None:
    for position in range(0, length, WINDOW):
        data = bytes(window_of(files, source, position, min(WINDOW, length - position)))
        made.pwrite(data, position)
        tell(len(data))
