"""Tables that are asked for page by page, so that none outgrows a frame or a turn of its owner.

RocketMQ has no pages. A peer that does not know the header field answers with the whole table, and
without the field that says where the next page begins.

Spec: remoting.md, chapter 8.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeVar

from rmq_ha.base.errors import ProtocolViolation

FIRST = "pageFirst"
"""Field of a request for a page: how many entries come before it."""
NEXT = "pageNext"
"""Field of an answer: where the next page begins. The last page has no such field."""
PAGE_SIZE = 10_000

_V = TypeVar("_V")


def page_of(
    table: Mapping[str, _V],
    first: int,
    size_of: Callable[[_V], int] = lambda value: 1,
    most: int = PAGE_SIZE,
) -> tuple[dict[str, _V], dict[str, str]]:
    """
    Return a page of a table: as many entries as together have at most `most` parts, but at least
    one entry if any is left.

    :param first: number of entries before the page, not negative.
    :param size_of: returns how many parts an entry has.
    :returns: the entries in the table's own order, and header fields for the answer.
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
    Return where the page after this one begins; None if this is the last page.

    :param ext: header fields of the answer with this page.
    :param first: where this page begins.
    :raises ProtocolViolation: the next page would not begin after this one, so reading would never
        end.
    """
    text = (ext or {}).get(NEXT)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18 or int(text) <= first:
        raise ProtocolViolation(f"{NEXT} is {text!r} after the page that begins at {first}")
    return int(text)
