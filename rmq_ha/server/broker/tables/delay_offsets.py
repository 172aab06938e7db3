"""A slave's copy of its master's `delayOffset.json`, kept as text.

Spec: remoting.md, chapter 8; store.md, sections 10.4 and 12.6.
"""

from collections.abc import Mapping

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import decode_delay_offsets


def delay_offset_body(table: Mapping[int, int]) -> bytes:
    """Return a master's answer to GET_ALL_DELAY_OFFSET (45): the next offset by level."""
    return fastjson.encode({"offsetTable": table})


def check_delay_offsets(text: bytes) -> None:
    """
    Check that a broker could load the text.

    :raises ProtocolViolation: it does not hold a table of delay offsets.
    """
    decode_delay_offsets(text)
    if b"offsetTable" not in text:
        raise ProtocolViolation("it holds no offsetTable")


class DelayOffsetCopy(PersistedTable):
    """
    The unchanged text of the master's delay offsets.

    :ivar text: also this slave's answer to GET_ALL_DELAY_OFFSET; empty before the first copy.
    """

    text = b""

    def keep(self, text: bytes) -> None:
        """Keep the master's text; `persist_if_dirty` writes it."""
        if text != self.text:
            self.text = text
            self.is_dirty = True

    def take(self, text: bytes) -> "Deferred[bool]":
        """
        Keep the master's text, and write it if it changed.

        :returns: see `persist`.
        """
        self.keep(text)
        return self.persist_if_dirty()

    def encode(self) -> bytes:
        return self.text

    def decode(self, data: bytes) -> None:
        """
        Take a file's text.

        :raises ProtocolViolation: no broker could load it.
        """
        check_delay_offsets(data)
        self.text = data
