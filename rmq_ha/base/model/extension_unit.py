"""The fields of a message in the consume queue's extension file."""

from typing import NamedTuple


class ExtensionUnit(NamedTuple):
    """
    One unit of the extension file.

    :ivar store_timestamp: store time of the message, ms.
    :ivar bit_map: None if the unit has no bit map.
    """

    tags_code: int
    store_timestamp: int
    bit_map: bytes | None

    @property
    def size(self) -> int:
        """The size of the unit in the file, in bytes."""
        return 20 + len(self.bit_map or b"")
