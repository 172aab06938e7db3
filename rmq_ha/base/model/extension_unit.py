"""What the consume queue's extension file has of a message."""

from typing import NamedTuple


class ExtensionUnit(NamedTuple):
    """
    One unit.

    :ivar store_timestamp: ms.
    :ivar bit_map: None when it has none.
    """

    tags_code: int
    store_timestamp: int
    bit_map: bytes | None

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return 20 + len(self.bit_map or b"")
