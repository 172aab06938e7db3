"""
A second signature between rmq-ha's clients and servers. Besides values and body, it covers the code
of a request, the names of its fields, the time, and a number.

A signature of 4.9 covers the values of the header map and the body. It does not cover which request
it is, the names of the values, or the time. So clients of rmq-ha add the field `SignedTime`:

    <ms since the epoch>.<session>.<number>.<signature>

To RocketMQ it is one more header field, which 4.9's signature covers and no Java program reads.
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
    Tells a request from all other requests of an account.

    :ivar text: the stamp as it is signed.
    :ivar time_ms: ms since the epoch, by the client's clock.
    :ivar session: a random text for the client's requests to one address.
    :ivar number: the request's number in the session; each is larger than the one before.
    """

    text: str
    time_ms: int
    session: str
    number: int


def stamp_text(time_ms: int, session: int, number: int) -> str:
    """
    Return the text of a stamp.

    :param session: 64 random bits.
    """
    return f"{time_ms}.{session:016x}.{number}"


def read_signed_time(value: str) -> tuple[Stamp, str] | None:
    """Return stamp and signature of a header field; None if the field has another form."""
    match = _FORM.fullmatch(value)
    if match is None:
        return None
    text, time_ms, session, number, signature = match.groups()
    return Stamp(text, int(time_ms), session, int(number)), signature


class TimedContent:
    """
    Makes the signed bytes of a request, except its body, which comes after them.

    Together with the body it can be read in one way only. Each name has its length before it, and
    each value a zero after it. If a value has a zero in it, the lengths of all values stand before
    them.
    """

    def __init__(self) -> None:
        self._order = lru_cache(KNOWN_ORDERS)(_order)

    def bytes_of(self, code: int, stamp: str, ext: Mapping[str, str]) -> bytes:
        """
        Return the signed bytes of a request, without its body.

        :param stamp: the text of the stamp.
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
