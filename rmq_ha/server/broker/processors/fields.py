"""Reads request header fields by name.

A missing field, or one that is not a number, is answered with a refusal.

Spec: remoting.md, section 1.7.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pages import FIRST

Answer = RemotingCommand | Deferred[RemotingCommand | None] | None
Handler = Callable[[Channel, RemotingCommand], Answer]

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SHORT = 10
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
_NO_FIELDS: Mapping[str, str] = {}


class PagedTable(Protocol):
    def to_body(self) -> bytes: ...

    def page(self, first: int) -> tuple[bytes, dict[str, str]]:
        """Return the body and the header fields of a page."""


def header(request: RemotingCommand) -> Mapping[str, str]:
    """Return the header map; empty if the frame had none."""
    return request.ext or _NO_FIELDS


def text(fields: Mapping[str, str], name: str) -> str:
    """
    Return a field that must exist.

    :raises RequestRejected: it is missing.
    """
    value = fields.get(name)
    if value is None:
        raise missing_field(name)
    return value


def missing_field(name: str) -> RequestRejected:
    """Return the refusal of a request without a field that it must have."""
    return RequestRejected(ResponseCode.SYSTEM_ERROR, f"the header field {name} is missing")


def int32(fields: Mapping[str, str], name: str) -> int:
    """
    Return a mandatory 32-bit number.

    :raises RequestRejected: it is missing, or not such a number.
    """
    return _number(fields, name, INT32_MAX)


def int64(fields: Mapping[str, str], name: str) -> int:
    """
    Return a mandatory 64-bit number.

    :raises RequestRejected: it is missing, or not such a number.
    """
    return _number(fields, name, INT64_MAX)


def optional_int32(fields: Mapping[str, str], name: str) -> int | None:
    """
    Return a 32-bit number; None if it is missing.

    :raises RequestRejected: it is not such a number.
    """
    return None if fields.get(name) is None else _number(fields, name, INT32_MAX)


def optional_int64(fields: Mapping[str, str], name: str) -> int | None:
    """
    Return a 64-bit number; None if it is missing.

    :raises RequestRejected: it is not such a number.
    """
    return None if fields.get(name) is None else _number(fields, name, INT64_MAX)


def flag(fields: Mapping[str, str], name: str) -> bool:
    """
    Return a boolean as Java's Boolean.parseBoolean does: `true` in any case is True, all else is
    False.
    """
    value = fields.get(name)
    return value is not None and value.lower() == "true"


def table_answer(
    request: RemotingCommand, table: PagedTable, ext: dict[str, str] | None = None
) -> RemotingCommand:
    """
    Answer with a whole table, or with the page that the request asks for, see
    `rmq_ha.base.wire.pages`.

    :param ext: header fields of the whole table.
    :raises RequestRejected: the place of the page is not a number.
    """
    given = header(request)
    if FIRST not in given:
        return request.response(ext=ext, body=table.to_body())
    body, ext = table.page(max(0, int64(given, FIRST)))
    return request.response(ext=ext, body=body)


def _number(fields: Mapping[str, str], name: str, maximum: int) -> int:
    value = fields.get(name) or text(fields, name)
    if len(value) < _SHORT and value.isascii() and value.isdigit():
        return int(value)  # nearly all numbers; quicker than the general way
    if _NUMBER.fullmatch(value):
        number = int(value)
        if -maximum - 1 <= number <= maximum:
            return number
    raise RequestRejected(
        ResponseCode.SYSTEM_ERROR,
        f"the header field {name} is {value[:40]!r}, not a {maximum.bit_length() + 1}-bit number",
    )
