"""How the files of a store are read, wherever they are."""

from typing import Any, NamedTuple, Protocol

from rmq_ha.base.errors import CannotDecide

WINDOW = 8 << 20
OVERLAP = 128
"""Of a window in which nothing was found: as long as a head."""


class Entry(NamedTuple):
    """
    What a directory holds.

    :ivar size: bytes of a file; 0 of a directory.
    :ivar modified_ms: 0 where nobody knows.
    """

    name: str
    size: int
    is_directory: bool
    modified_ms: int = 0


class Files(Protocol):
    """Reading; paths are those that `files_of` gave, with names behind. May be pickled."""

    def list(self, path: str) -> list[Entry]:
        """Sorted by name; empty when there is no such directory."""

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """
        A small part of a file, or all of a small file; fewer bytes at its end.

        :raises FileNotFoundError: there is none.
        """

    def window(self, path: str, offset: int, length: int) -> Any:
        """
        Bytes of a large file without holding them, where that is possible.

        :raises FileNotFoundError: there is none.
        """


def window_of(files: Files, path: str, offset: int, length: int) -> Any:
    """
    A part of a file of the log, all of it.

    :raises CannotDecide: the file is gone, or shorter than it was, or the disk refuses.
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
