"""Reads and writes the JSON dialect of fastjson 1.2.69, which RocketMQ's bodies and files have.

Integer keys of a map stand without quotes and become `int`. An object in place of a key becomes an
`ObjectKey`. The reader also takes all of standard JSON.

Spec: remoting.md, section 1.9; store.md, section 12.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.fastjson_reader import NO_LIMIT, ObjectKey, Reader, resolve_references
from rmq_ha.base.wire.members import FOREIGN, members_of, to_members
from rmq_ha.base.wire.text import quote, quote_ascii, to_bytes

__all__ = [
    "BODY_VALUES",
    "HEADER_VALUES",
    "MAX_DEPTH",
    "MAX_DIALECT_SIZE",
    "ObjectKey",
    "RawJson",
    "check_values",
    "encode",
    "encode_browser",
    "parse",
    "part",
    "pretty",
    "pretty_part",
]

MAX_DEPTH = 64
HEADER_VALUES = 10_000
"""Most values of a header. It has one for each ext field, and thirty of these are many."""
BODY_VALUES = 100_000
"""Most values of a request's body. A heartbeat with 2,000 subscriptions has 20,000."""
_LOOK_SIZE = 1 << 18
MAX_DIALECT_SIZE = 1 << 18
"""
Most bytes of a peer's document that is not standard JSON. Reading such a document takes a hundred
times as long.
"""
_DIALECT_VALUES = 10_000
_REFERRING_VALUES = 20_000
"""Most values of a peer's document with a `$ref`. Each of them is looked at."""
_decode = msgspec.json.Decoder().decode
_REFERENCE = re.compile(rb"\$ref").search


class RawJson(NamedTuple):
    """JSON text in place of a value. The writer copies it into the document without a change."""

    text: str


def parse(data: bytes, most: int | None = BODY_VALUES) -> Any:
    """
    Read a body or a file. Each `$ref` is replaced by the value that it points to.

    The cost is known before it is paid. A document of a few bytes may name the same value many
    times, and each reader of the result would walk that value as often.

    :param most: most values of the document. If it has a `$ref`, 20,000 at most, and values that
        one points to count again. None for files of this broker, and for answers to requests of
        this process.
    :raises ProtocolViolation: the document is not in the dialect, nests too deep, or has too many
        values.
    """
    has_references = _REFERENCE(data) is not None
    if most is not None:
        most = min(most, _REFERRING_VALUES) if has_references else most
        check_values(data, most)
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _read_dialect(data, limited=most is not None)
    if has_references:
        # Of a trusted document all that stands there, and as much again as a peer's may have.
        size = len(data) + BODY_VALUES if most is None else most
        return resolve_references(value, MAX_DEPTH, size)
    return value


def check_values(data: bytes, most: int) -> None:
    """
    Check the number of values in a document before it is read.

    Each value is the first one, the first in another value, or comes after a comma, so these
    characters are counted.

    :raises ProtocolViolation: the document may have more than `most` values.
    """
    if len(data) <= most:
        return
    values = 0
    for start in range(0, len(data), _LOOK_SIZE):  # what is far too much is known early
        some = data[start : start + _LOOK_SIZE]
        values += len(some) - len(some.translate(None, b",{["))
        if values >= most:
            raise ProtocolViolation(f"JSON with more than {most} values ({len(data)} bytes)")


def _read_dialect(data: bytes, *, limited: bool) -> Any:
    if not limited:
        return Reader(data.decode("utf-8", "replace"), MAX_DEPTH, NO_LIMIT).read()
    if len(data) > MAX_DIALECT_SIZE:
        raise ProtocolViolation(
            f"not JSON proper, and {len(data)} bytes: more than {MAX_DIALECT_SIZE} are read only "
            "without bare keys and single quotes"
        )
    return Reader(data.decode("utf-8", "replace"), MAX_DEPTH, _DIALECT_VALUES).read()


def encode(value: Any) -> bytes:
    """
    Return a value as compact JSON, with members in alphabetical order and without absent (None)
    ones.

    :param value: may hold declared values (`msgspec.Struct`); sets are written sorted. The keys of
        a map may be `str`, `int` (written without quotes), `ObjectKey` or declared (both written as
        objects).
    :raises ProtocolViolation: the value nests deeper than `MAX_DEPTH`, as a cyclic value does.
    """
    return to_bytes(_Writer(quote, str).text(value))


def part(value: Any) -> RawJson:
    """Return a part of a value as `encode` writes it. It is put into the whole later."""
    return RawJson(_Writer(quote, str).text(value))


def joined(maps: Iterable[RawJson]) -> RawJson:
    """Return one map with the members of several maps, in this order."""
    return RawJson("{" + ",".join(item.text[1:-1] for item in maps if item.text != "{}") + "}")


def encode_browser(value: Any) -> bytes:
    """
    Return what `encode` returns, but with quoted integer keys and only ASCII: strict JSON for newer
    clients.
    """
    return to_bytes(_Writer(quote_ascii, '"{}"'.format).text(value))


def pretty(value: Any) -> bytes:
    """
    Return a value in the form of RocketMQ's files: TABs, one member a line, integer maps and
    integer arrays on one line.

    :raises ProtocolViolation: the value nests deeper than `MAX_DEPTH`.
    """
    return to_bytes(_PrettyWriter(quote, str).text(value))


def pretty_part(value: Any, depth: int) -> RawJson:
    """
    Return a part of a file in the form of `pretty`. It is put into many versions of that file.

    :param depth: how deep in the file the part stands.
    """
    return RawJson(_PrettyWriter(quote, str).text(value, depth))


class _Writer:
    def __init__(self, string: Callable[[str], str], number_key: Callable[[int], str]) -> None:
        self._string = string
        self._number_key = number_key

    def text(self, value: Any, depth: int = 0) -> str:
        kind = type(value)
        if kind is str:
            return self._string(value)
        if kind is int:
            return str(value)
        if kind is RawJson:
            text: str = value.text
            return text
        if value is None:
            return "null"
        if kind is bool:
            return "true" if value else "false"
        if depth >= MAX_DEPTH:
            raise ProtocolViolation(f"JSON nested deeper than {MAX_DEPTH}")
        if isinstance(value, dict):
            return self._map(_members(value), depth)
        if isinstance(value, msgspec.Struct):
            return self._struct(value, depth)
        if isinstance(value, ObjectKey):
            return self._map(value, depth)
        if isinstance(value, list | tuple):
            return self._array(value, depth)
        if isinstance(value, set | frozenset):
            return self._array(sorted(value), depth)
        return self._write_other(value)

    def _map(self, members: Iterable[tuple[Any, Any]], depth: int) -> str:
        return (
            "{"
            + ",".join(
                [f"{self._key(name)}:{self.text(item, depth + 1)}" for name, item in members]
            )
            + "}"
        )

    def _struct(self, value: msgspec.Struct, depth: int) -> str:
        if getattr(value, FOREIGN, None):
            return self._map(to_members(value).items(), depth)
        pieces = [
            f'"{name}":{self.text(item, depth + 1)}'
            for name, attribute, has_zero in members_of(type(value))
            if (item := getattr(value, attribute)) is not None and (item or has_zero)
        ]
        return "{" + ",".join(pieces) + "}"

    def _array(self, items: Iterable[Any], depth: int) -> str:
        return "[" + ",".join([self.text(item, depth + 1) for item in items]) + "]"

    def _key(self, name: Any) -> str:
        if isinstance(name, str):
            return self._string(name)
        if isinstance(name, ObjectKey):
            return _Writer._map(self, name, 0)
        if isinstance(name, msgspec.Struct):
            return _Writer._struct(self, name, 0)
        return self._number_key(name)

    def _write_other(self, value: Any) -> str:
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, float):
            return repr(value) if value - value == 0 else "null"
        raise TypeError(f"cannot be written as JSON: {value!r}")


class _PrettyWriter(_Writer):
    """
    Writes the form of the files. `depth` is the indentation of the line on which a value starts.
    """

    def _map(self, members: Iterable[tuple[Any, Any]], depth: int) -> str:
        members = list(members)
        if not members:
            return "{}"
        end = "\n" + "\t" * depth
        if isinstance(members[0][0], ObjectKey | msgspec.Struct):
            keys = [(self.text(name, depth + 1), item) for name, item in members]
        else:
            keys = [(self._key(name), item) for name, item in members]
        pieces = [f"{name}:{self.text(item, depth + 1)}" for name, item in keys]
        if isinstance(members[0][0], int | ObjectKey | msgspec.Struct):
            return "{" + ",".join(pieces) + end + "}"
        start = end + "\t"
        return "{" + start + ("," + start).join(pieces) + end + "}"

    def _struct(self, value: msgspec.Struct, depth: int) -> str:
        return self._map(to_members(value).items(), depth)

    def _array(self, items: Iterable[Any], depth: int) -> str:
        items = list(items)
        if not items or isinstance(items[0], int):
            return super()._array(items, depth)
        end = "\n" + "\t" * depth
        start = end + "\t"
        return "[" + start + ("," + start).join(self.text(i, depth + 1) for i in items) + end + "]"


def _members(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    members = [item for item in value.items() if item[1] is not None]
    if members and isinstance(members[0][0], msgspec.Struct):
        members.sort(key=_member_values)
        return members
    try:
        members.sort(key=_member_name)
    except TypeError:  # a mixture of keys keeps its order
        pass
    return members


def _member_values(member: tuple[msgspec.Struct, Any]) -> list[Any]:
    key = member[0]
    return [getattr(key, attribute) for _, attribute, _ in members_of(type(key))]


def _member_name(member: tuple[Any, Any]) -> Any:
    return member[0]
