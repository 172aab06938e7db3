"""Tables that are asked for page by page, so that none outgrows a frame, or a turn of its owner.

Not of RocketMQ: whoever does not know the header field that asks for a page answers with the whole
table and without the field that says where the next one begins.

Spec: remoting.md, chapter 8.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeVar

from rmq_ha.base.errors import ProtocolViolation

FIRST = "pageFirst"
"""Asks for a page: how many entries are left out before it."""
NEXT = "pageNext"
"""Of an answer: where the next page begins; absent from the last one."""
PAGE_SIZE = 10_000

_V = TypeVar("_V")


def page_of(
    table: Mapping[str, _V],
    first: int,
    size_of: Callable[[_V], int] = lambda value: 1,
    most: int = PAGE_SIZE,
) -> tuple[dict[str, _V], dict[str, str]]:
    """
    One entry at least, and as many more as have `most` parts together, in the table's own order.

    :param first: entries before it, not negative.
    :param size_of: how many parts an entry has.
    :returns: the entries, and header fields for the answer.
    """
    entries: dict[str, _V] = {}
    room = most
    for name, value in islice(table.items(), first, None):
        room -= size_of(value)
        if entries and room < 0:
            return entries, {NEXT: str(first + len(entries))}
        entries[name] = value
    return entries, {}


def next_page(ext: Mapping[str, str] | None, first: int) -> int | None:
    """
    Where the page behind that one begins; None: there is none.

    :param ext: of the answer with that page.
    :raises ProtocolViolation: it would begin before that one, and so never end.
    """
    text = (ext or {}).get(NEXT)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18 or int(text) <= first:
        raise ProtocolViolation(f"{NEXT} is {text!r} after the page that begins at {first}")
    return int(text)
