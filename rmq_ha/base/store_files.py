"""Interface to read the files of a store, on a local disk or elsewhere."""

from typing import Any, NamedTuple, Protocol

from rmq_ha.base.errors import CannotDecide

WINDOW = 8 << 20
OVERLAP = 128
"""Bytes by which windows overlap, as many as a record's head, which may begin at a window's end."""


class DirectoryEntry(NamedTuple):
    """
    A file or directory in a directory.

    :ivar size: bytes of a file; 0 for a directory.
    :ivar modified_ms: when it was last modified, in ms since the epoch; 0 if not known.
    """

    name: str
    size: int
    is_directory: bool
    modified_ms: int = 0


class Files(Protocol):
    """Reads files. Paths begin with a path that `files_of` returned. Objects may be pickled."""

    def list(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory, sorted by name; empty if it does not exist."""

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """
        Return a small part of a file, or a whole small file; fewer bytes at its end.

        :raises FileNotFoundError: there is none.
        """

    def window(self, path: str, offset: int, length: int) -> Any:
        """
        Return a part of a large file, mapped instead of copied where that is possible.

        :raises FileNotFoundError: there is none.
        """


def window_of(files: Files, path: str, offset: int, length: int) -> Any:
    """
    Return exactly `length` bytes of a file of the log.

    :raises CannotDecide: the file is gone or shorter than it was, or the disk cannot be read.
    """
    try:
        window = files.window(path, offset, length)
    except FileNotFoundError:
        raise CannotDecide(
            f"{path} vanished while it was read: the broker deletes what is older than "
            "fileReservedTime. Read again, from a higher offset or from a copy"
        ) from None
    except OSError as error:
        raise CannotDecide(f"{path} cannot be read at {offset}: {error}") from None
    if len(window) < length:
        raise CannotDecide(
            f"{path} was cut to {offset + len(window)} bytes while it was read: read a copy, or "
            "read again when nobody changes it"
        )
    return window
