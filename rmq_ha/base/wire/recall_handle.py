"""Recall handles: by such a text a producer takes a timer message back before it is due.

Spec: timer.md, sections 6.1 and 13.5.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error
from typing import NamedTuple

RECALL_HANDLE = "recallHandle"
"""The ext field of the handle, in the answer to a send and in the request that recalls."""
TIMED_TRANSACTIONS = "timedTransactions"
"""The ext field by which a broker of rmq-ha says that timers of transactions count from the
commit. RocketMQ 5 never delivers such messages."""
_VERSION = "v1"
_BLANK = " "


class RecallHandle(NamedTuple):
    """
    The content of a handle.

    :ivar time: TIMER_OUT_MS + 1 of the waiting message, decimal; nobody has checked that it is a
        number.
    :ivar source: TIMER_SRC of the waiting message; empty in a handle that a Java broker made.
    """

    topic: str
    broker_name: str
    time: str
    unique_key: str
    source: str = ""

    def encode(self) -> str:
        """Return the text of the handle; empty if an item has a blank, which divides items."""
        items = [_VERSION, *self[:4], *([self.source] if self.source else ())]
        if any(_BLANK in item or not item for item in items):
            return ""
        return urlsafe_b64encode(_BLANK.join(items).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> "RecallHandle | None":
        """
        Read a handle, with or without padding; None if the text is no handle.

        As in RocketMQ, items behind the known ones are ignored.
        """
        try:
            data = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            items = data.decode("utf-8").split(_BLANK)
        except (Error, ValueError):
            return None
        if len(items) < 5 or items[0] != _VERSION:
            return None
        return cls(*items[1:6])
