"""Files of stores at any place, for code that may wait: on this machine, in a bucket, or copied
here by Spark.

A place is a path, `file://...`, any URI that pyarrow opens (`s3://`, `gs://`, `hdfs://`), or the
name that `rmq_ha.lake.spark.host.staging` gives to a place that only Hadoop can open.
"""

import mmap
import os
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import DirectoryEntry, Files

STAGED = "staged:"
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
_WILL_NEED: int | None = getattr(os, "POSIX_FADV_WILLNEED", None)
_SEQUENTIAL = 1 << 20
"""A window of at least this many bytes is read sequentially: its pages are loaded at once."""


class LocalFiles:
    """Files of this machine; see `rmq_ha.base.store_files.Files`."""

    def __init__(self) -> None:
        self._last: tuple[str, int] = ("", 0)  # what was mapped last: path, and end

    def list(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory, sorted by name; none if it does not exist."""
        listed = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue  # gone since: not there
                    is_directory = entry.is_dir()
                    size = 0 if is_directory else status.st_size
                    modified = status.st_mtime_ns // 1_000_000
                    listed.append(DirectoryEntry(entry.name, size, is_directory, modified))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CannotDecide(f"{path} cannot be read: {error}") from None
        return sorted(listed)

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """Return a part of a file, or all of it; fewer bytes at the end of the file."""
        with self.open(path) as file:
            if length < 0:
                file.seek(offset)
                return file.read()
            return os.pread(file.fileno(), length, offset)

    def window(self, path: str, offset: int, length: int) -> Any:
        """Map a part of a file; it counts as page cache, not as memory of the process."""
        with self.open(path) as file:
            length = min(length, os.fstat(file.fileno()).st_size - offset)
            if length <= 0:
                return memoryview(b"")
            before = offset % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(
                file.fileno(),
                before + length,
                flags=mmap.MAP_SHARED | (_POPULATE if length >= _SEQUENTIAL else 0),
                prot=mmap.PROT_READ,
                offset=offset - before,
            )
            if length >= _SEQUENTIAL:
                self._read_ahead(file.fileno(), path, offset, length)
        return memoryview(mapped)[before:]

    def _read_ahead(self, descriptor: int, path: str, offset: int, length: int) -> None:
        """Let the disk read the next window while the caller reads this one."""
        last_path, last_end = self._last
        self._last = path, offset + length
        if path == last_path and last_end - length < offset <= last_end and _WILL_NEED is not None:
            os.posix_fadvise(descriptor, offset + length, length, _WILL_NEED)


class ArrowFiles:
    """
    Files of a pyarrow file system.

    :param uri: a URI of the file system; None if `filesystem` is given.
    :param filesystem: an open file system; Spark needs one that can be pickled.
    """

    def __init__(self, uri: str | None = None, filesystem: Any = None) -> None:
        self._uri = uri
        self._filesystem = filesystem
        self._open: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return ArrowFiles, (self._uri, None if self._uri else self._filesystem)

    @property
    def filesystem(self) -> Any:
        """The file system, which is opened once in each process."""
        if self._filesystem is None:
            from pyarrow.fs import FileSystem

            self._filesystem = FileSystem.from_uri(self._uri)[0]
        return self._filesystem

    def list(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory, sorted by name; none if it does not exist."""
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(path, allow_not_found=True)
        try:
            infos = self.filesystem.get_file_info(selector)
        except NotADirectoryError:
            return []
        except OSError as error:
            raise CannotDecide(f"{path} cannot be listed: {error}") from None
        listed = [
            DirectoryEntry(
                info.base_name,
                info.size or 0,
                info.type == FileType.Directory,
                (info.mtime_ns or 0) // 1_000_000,
            )
            for info in infos
        ]
        return sorted(listed)

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """Return a part of a file, or all of it; fewer bytes at the end of the file."""
        file = self._file(path)
        part: bytes = file.read_at(file.size() if length < 0 else length, offset)
        return part

    def window(self, path: str, offset: int, length: int) -> Any:
        """Fetch a part of a file into memory."""
        return memoryview(self.read(path, offset, length))

    def _file(self, path: str) -> Any:
        file = self._open.get(path)
        if file is None:
            if len(self._open) >= 16:
                self._open.clear()
            file = self._open[path] = self.filesystem.open_input_file(path)
        return file


def files_of(place: str) -> tuple[Files, str]:
    """
    Return the reader of a place, and the place's path in it.

    :raises CannotDecide: this program cannot open the place; the message says what to do.
    """
    if place.startswith(STAGED):
        from pyspark import SparkFiles

        return LocalFiles(), SparkFiles.get(place[len(STAGED) :])
    scheme = urlsplit(place).scheme if "://" in place else ""
    if not scheme:
        return LocalFiles(), place.rstrip("/") or "/"
    if scheme == "file":
        return LocalFiles(), unquote(urlsplit(place).path).rstrip("/") or "/"
    from pyarrow.fs import FileSystem

    try:
        _, path = FileSystem.from_uri(place)
    except (OSError, ValueError) as error:
        raise CannotDecide(
            f"{place} cannot be opened: {error}. pyarrow opens local paths, s3://, gs://, abfs:// "
            "and, with libhdfs, hdfs://. Copy the store to one of these, or have Spark copy it "
            "(rmq_ha.lake.spark.host.staging.stage; the jobs do so)"
        ) from None
    return ArrowFiles(place), path.rstrip("/")


def is_same_directory(directory: str, other: str) -> bool:
    """
    Return whether two paths lead to the same directory or the same commit log, for example by a
    link or a mount.
    """
    return any(
        _identity(directory + part) == _identity(other + part) for part in ("", "/commitlog")
    )


def _identity(place: str) -> object:
    uri = place.removeprefix("file://")
    if "://" in uri:
        return uri.rstrip("/")
    try:
        status = os.stat(uri)
    except OSError:
        return os.path.normpath(uri)
    return status.st_dev, status.st_ino


def listing(place: str) -> list[DirectoryEntry]:
    """Return the entries of a directory at any place; empty if it does not exist."""
    files, path = files_of(place)
    return files.list(path)


def read_small(place: str) -> bytes:
    """
    Read a small file at any place.

    :raises FileNotFoundError: the file does not exist.
    """
    files, path = files_of(place)
    return files.read(path)


def write_atomic(path: str, data: bytes) -> None:
    """
    Write a local file; readers find either the old content or the new one.

    :raises OSError: the disk refuses.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.tmp{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def put(place: str, data: bytes) -> None:
    """
    Write a file at any place. On this machine the file is written completely or not at all; at
    other places the file system decides.

    :raises OSError: the file could not be written.
    :raises rmq_ha.base.errors.CannotDecide: this program cannot open such a place.
    """
    files, path = files_of(place)
    if not isinstance(files, ArrowFiles):
        write_atomic(path, data)
        return
    filesystem = files.filesystem
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


def remove(place: str) -> None:
    """
    Remove a file at any place; a file that is gone already is no fault.

    :raises OSError: the file could not be removed.
    """
    files, path = files_of(place)
    try:
        if isinstance(files, ArrowFiles):
            files.filesystem.delete_file(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass


def identity_of(place: str) -> str:
    """
    Return a text that is the same for all paths of one directory, by a link or a mount; empty for a
    URI and for a directory that does not exist.
    """
    known = _identity(place)
    return ":".join(map(str, known)) if isinstance(known, tuple) else ""


def absolute(place: str) -> str:
    """Return an absolute path, which is right in any working directory; a URI stays unchanged."""
    return place if ":" in place.partition("/")[0] else os.path.abspath(place)
