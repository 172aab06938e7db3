"""Patterns of peer addresses: single ones, lists, sets, ranges and wildcards, IPv4 and IPv6.

Spec: remoting.md, section 10.3.

Examples: `127.0.0.1`, `10.0.0.1,10.0.0.2`, `10.0.0.{1,2,7}`, `10.0.1-5.*`, `10.0.*.*`, `*`;
`fe80::*`, `1050::5:600:300c:{1,a}`, `1050::5:600:1-ff:*`.

Each part of a pattern is compared with the part of the address in the same place. It is a number, a
set in braces, a range with `-`, or `*` for every number. A comma separates patterns.
"""

import re
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

Parts = tuple[int, ...]
Part = Callable[[int], bool]

_EVERYTHING = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,2}")
_HEX = re.compile(r"[0-9a-fA-F]{1,4}")
_V4_PARTS = 4
_V6_PARTS = 8
_MAX_PATTERNS = 10_000


class AddressPatterns:
    """Addresses that match one of several patterns."""

    __slots__ = ("_everything", "_exact", "_patterns")

    def __init__(self) -> None:
        self._everything = False
        self._exact: set[Parts] = set()
        self._patterns: list[tuple[Part, ...]] = []

    def add(self, text: str | None) -> None:
        """
        Add a pattern, or several with commas between them; an empty text adds nothing.

        :raises ValueError: a part is no pattern, and the message names the part; or there are more
            than 10,000 patterns.
        """
        items = _items(text or "")
        if len(items) + len(self._patterns) > _MAX_PATTERNS:
            raise ValueError(f"more than {_MAX_PATTERNS} patterns")
        for item in filter(None, items):
            if item in _EVERYTHING:
                self._everything = True
            elif (exact := _exact(item)) is not None:
                self._exact.add(exact)
            else:
                self._patterns.append(_pattern(item))

    def __bool__(self) -> bool:
        return self._everything or bool(self._exact) or bool(self._patterns)

    def matches(self, host: str) -> bool:
        """
        Return whether an address matches one of the patterns.

        :param host: an address without its port; a text that is no address matches only `*`.
        """
        if self._everything:
            return True
        if not self._exact and not self._patterns:
            return False
        parts = _exact(host)
        return parts is not None and (
            parts in self._exact
            or any(
                len(pattern) == len(parts)
                and all(part(value) for part, value in zip(pattern, parts, strict=True))
                for pattern in self._patterns
            )
        )


def _items(text: str) -> list[str]:
    """Cut a text at the commas that are outside of `{...}`."""
    items: list[list[str]] = []
    is_open = False
    for piece in text.split(","):
        if is_open:
            items[-1].append(piece)
        else:
            items.append([piece])
        is_open = piece.rfind("{") > piece.rfind("}") or (is_open and "}" not in piece)
    return [",".join(item).strip() for item in items]


def _exact(text: str) -> Parts | None:
    """
    Return the parts of an address; None if the text is no address. An IPv4-mapped IPv6 address
    becomes IPv4.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def _pattern(text: str) -> tuple[Part, ...]:
    if ":" in text:
        return tuple(_part(text, part, _HEX, 16, 0xFFFF) for part in _v6_parts(text))
    parts = text.split(".")
    if len(parts) != _V4_PARTS:
        raise ValueError(f"{text!r} is no address: it needs four parts, as in 10.0.0.*")
    return tuple(_part(text, part, _DECIMAL, 10, 255) for part in parts)


def _v6_parts(text: str) -> list[str]:
    """Return all eight parts; `::` stands for as many zeros as are missing."""
    head, gap, tail = text.partition("::")
    first = head.split(":") if head else []
    last = tail.split(":") if tail else []
    missing = _V6_PARTS - len(first) - len(last)
    if (gap and missing < 1) or (not gap and missing):
        raise ValueError(f"{text!r} is no IPv6 address: it needs eight parts, or `::` for zeros")
    return [*first, *["0"] * missing, *last]


def _part(text: str, part: str, number: re.Pattern[str], base: int, highest: int) -> Part:
    """
    Return a function that says whether a number matches one part of a pattern.

    :param text: the whole pattern, for the error.
    :param number: matches the digits of one number.
    :param base: 10 for IPv4, 16 for IPv6.
    :param highest: the largest number that the part of an address can have.
    :raises ValueError: the part is no number, set, range or `*`.
    """

    def value(digits: str) -> int:
        digits = digits.strip()
        if not number.fullmatch(digits) or int(digits, base) > highest:
            raise ValueError(f"{text!r} is no address: {digits!r} in it is no number up to {limit}")
        return int(digits, base)

    limit = f"{highest:x}" if base == 16 else str(highest)
    if part == "*":
        return lambda _: True
    if part.startswith("{") and part.endswith("}"):
        return frozenset(map(value, part[1:-1].split(","))).__contains__
    low, dash, high = part.partition("-")
    if not dash:
        return value(part).__eq__
    start, end = value(low), value(high)
    if start > end:
        raise ValueError(f"{text!r} is no address: the range {part} ends before it starts")
    return lambda given: start <= given <= end
