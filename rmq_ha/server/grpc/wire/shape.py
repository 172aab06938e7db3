"""Looks at the fields of a large request before protobuf makes objects of it.

A request of 16 MiB may have eight million empty fields, each of which becomes an object; or a name
of 16 MiB, in which this side would look for characters that are not allowed. So the fields of large
requests are counted, and their texts measured, before anything else is done with them.

Spec: grpc.md, section 14.1.
"""

from rmq_ha.server.grpc.wire.table import MESSAGES

SMALL = 1 << 16
"""A message of so many bytes or fewer is not looked at."""
MOST_FIELDS = 20_000
MOST_TEXT = 1 << 16
"""Most bytes of a text; bodies of messages are no texts."""

_TEXT = "string"
_NO_FIELDS = "none"
_PAIR = "pair"
_FREE = ("thread_stack_trace",)
"""Texts of any size: a client that is asked for its threads may have thousands."""
_WORD_SIZES = {1: 8, 5: 4}
_MOST_VARINT = 10

Fields = dict[int, str]


def _known_fields() -> dict[str, Fields]:
    known: dict[str, Fields] = {_NO_FIELDS: {}, _PAIR: {1: _TEXT, 2: _TEXT}}
    for name, rows in MESSAGES.items():
        fields = known[name] = {}
        for row in rows:
            number, field, kind = row.split()[:3]
            kind = _PAIR if kind == "map" else kind
            if (kind in MESSAGES or kind in (_TEXT, _PAIR)) and field not in _FREE:
                fields[int(number)] = kind
            elif kind in ("Duration", "Timestamp"):
                fields[int(number)] = _NO_FIELDS
    return known


_KNOWN = _known_fields()


def shape_fault(name: str, payload: bytes) -> str:
    """
    Return why a message is not taken: it has too many fields, or a text that is too long. Empty if
    neither is so, or if protobuf will refuse the message at a place before that.

    :param name: the name of the message, such as `SendMessageRequest`.
    """
    try:
        return _walk(_KNOWN[name], payload)
    except (IndexError, ValueError):
        return ""


def _walk(known: Fields, payload: bytes) -> str:
    at, end, count = 0, len(payload), 0
    outer: list[tuple[int, Fields]] = []
    while True:
        while at >= end:
            if not outer:
                return ""
            end, known = outer.pop()
        count += 1
        if count > MOST_FIELDS:
            return f"a request has more than {MOST_FIELDS} fields"
        tag = payload[at]
        at += 1
        if tag >= 0x80:
            tag, at = _read_varint(payload, at - 1)
        kind = tag & 7
        if kind == 0:
            _, at = _read_varint(payload, at)
            continue
        if kind in _WORD_SIZES:
            at += _WORD_SIZES[kind]
            continue
        if kind != 2:
            return "a request has groups of fields"
        size = payload[at]
        at += 1
        if size >= 0x80:
            size, at = _read_varint(payload, at - 1)
        if size > end - at:
            raise ValueError("a field is longer than its message")
        inner = known.get(tag >> 3)
        if inner is None:
            at += size
        elif inner == _TEXT:
            if size > MOST_TEXT:
                return f"a text of {size} bytes; {MOST_TEXT} are the most"
            at += size
        else:
            outer.append((end, known))
            end, known = at + size, _KNOWN[inner]


def _read_varint(payload: bytes, at: int) -> tuple[int, int]:
    """
    Return a number of variable length, and the place behind it.

    :raises IndexError: the payload ends within the number.
    :raises ValueError: the number is longer than any is.
    """
    number = 0
    for shift in range(_MOST_VARINT):
        byte = payload[at + shift]
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise ValueError("a number has no end")
