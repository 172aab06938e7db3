"""
The second signature, between ours: over code, names, time and number of a request, too.

A signature of 4.9 covers the values of the header map and the body, not which request it is, what
the values are called, or when it was made. So clients of ours add the field `SignedTime`:

    <ms since the epoch>.<session>.<number>.<signature>

To RocketMQ it is one more header field, which 4.9's signature covers, and which nobody reads.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from rmq_ha.base.acl.signature import KNOWN_ORDERS, SIGNATURE
from rmq_ha.base.wire.text import to_bytes

SIGNED_TIME = "SignedTime"

_FORM = re.compile(r"(([0-9]{1,16})\.([0-9a-f]{16})\.([0-9]{1,16}))\.([A-Za-z0-9+/]{43}=)")
_NOT_SIGNED = frozenset({SIGNATURE, SIGNED_TIME})

Values = Callable[[Mapping[str, str]], tuple[str, ...]]


class Stamp(NamedTuple):
    """
    What tells a request from all others of an account.

    :ivar text: as it is signed.
    :ivar time_ms: since the epoch, by the client's clock.
    :ivar session: of the client's requests to one address; nobody else has it.
    :ivar number: in the session; each is larger than the one before.
    """

    text: str
    time_ms: int
    session: str
    number: int


def stamp_text(time_ms: int, session: int, number: int) -> str:
    """:param session: 64 random bits."""
    return f"{time_ms}.{session:016x}.{number}"


def read_signed_time(value: str) -> tuple[Stamp, str] | None:
    """Stamp and signature of a header field; None if it is none of ours."""
    match = _FORM.fullmatch(value)
    if match is None:
        return None
    text, time_ms, session, number, signature = match.groups()
    return Stamp(text, int(time_ms), session, int(number)), signature


class TimedContent:
    """
    What comes before the body in what is signed.

    With the body behind it, it can be read in one way only: each name has its length before it,
    each value a zero behind it, and if one has a zero in it, their lengths stand before them all.
    """

    def __init__(self) -> None:
        self._order = lru_cache(KNOWN_ORDERS)(_order)

    def bytes_of(self, code: int, stamp: str, ext: Mapping[str, str]) -> bytes:
        """
        Of a request.

        :param stamp: its text.
        """
        names, pick = self._order(tuple(ext))
        values = pick(ext)
        text, lengths = "\0".join(values), ""
        if text.count("\0") >= len(values):
            lengths = ",".join(map(str, map(len, values)))
        return to_bytes(f"rmq-ha request\n{int(code)}\n{stamp}\n{names}\n{lengths}\n{text}\0")


def _order(keys: tuple[str, ...]) -> tuple[str, Values]:
    signed = sorted(key for key in keys if key not in _NOT_SIGNED)
    names = "".join([f"{len(key)}:{key}" for key in signed])
    if len(signed) > 1:
        return names, itemgetter(*signed)
    return names, lambda ext: tuple([ext[key] for key in signed])
