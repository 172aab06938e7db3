"""The interface to an object store.

Its methods block, so a broker calls them in the worker.
"""

from typing import Protocol

from rmq_ha.base.errors import StoreError


class TierError(StoreError):
    """The object store refuses, lacks an object, or has one with wrong content."""

    retriable = True


class ObjectStore(Protocol):
    """
    Objects by key. A key is a text with `/` between its parts.

    All methods raise `TierError`; its message names the object and the reason.
    """

    def put(self, key: str, data: bytes) -> None:
        """Write an object; replace it if it exists."""

    def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """
        Read bytes of an object.

        :param size: how many bytes from `start` on; None: all of them. Fewer come at the end only.
        """

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix, sorted."""

    def delete(self, key: str) -> None:
        """Delete an object; do nothing if it does not exist."""

    def begin(self, key: str) -> str:
        """
        Begin an object that is written in parts. It is there when `finish` returns.

        :returns: the id of this upload.
        """

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """
        Write a part of 5 MiB or more, or the last part.

        :param number: 1, 2 and so on.
        :returns: a tag of the part for `finish`.
        """

    def finish(self, key: str, upload: str, tags: list[str]) -> None:
        """
        Make an object of the parts that were put.

        :param tags: of all parts, in order.
        """

    def abandon(self, key: str, upload: str) -> None:
        """Forget an upload and its parts."""
