"""The JSON header of a frame.

Spec: remoting.md, section 1.3.
"""

from typing import Any

import msgspec

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.numbers import Int32
from rmq_ha.base.wire.codes import LANGUAGE_BY_NAME, language_name
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import HEADER_VALUES, encode, parse
from rmq_ha.base.wire.text import quote, quote_all, to_bytes

_LOWEST = -(2**31)
_HIGHEST = 2**31 - 1


class _PlainHeader(msgspec.Struct, gc=False):
    """The header of well-behaved peers. Any other header takes the tolerant way."""

    code: Int32 = 0
    language: str = "JAVA"
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)


_decode = msgspec.json.Decoder(_PlainHeader, strict=False).decode


def decode_plain_header(data: bytes) -> RemotingCommand | None:
    """Read a header in the form of well-behaved peers; return None for any other header."""
    try:
        header = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    language: str | None = header.language
    if language not in LANGUAGE_BY_NAME:
        language = None
    return RemotingCommand(
        header.code,
        header.ext,
        None,
        header.opaque,
        header.flag,
        header.remark,
        language,
        header.version,
    )


def encode_header(command: RemotingCommand) -> bytes:
    """
    Return a header in Java's form: keys in alphabetical order, no blanks, absent values left out.
    """
    ext = command.ext
    parts = [f'{{"code":{int(command.code)}']
    if ext is not None:
        parts.append(f',"extFields":{quote_all(ext)}')
    parts.append(f',"flag":{command.flag}')
    if command.language is not None:
        parts.append(f',"language":{quote(command.language)}')
    parts.append(f',"opaque":{command.opaque}')
    if command.remark is not None:
        parts.append(f',"remark":{quote(command.remark)}')
    parts.append(f',"serializeTypeCurrentRPC":"JSON","version":{command.version}}}')
    return to_bytes("".join(parts))


def decode_odd_header(data: bytes) -> RemotingCommand:
    """
    Read a header that is valid but unusual, such as one with other spellings of numbers.

    A request without `opaque` gets 0, which no call of rmq-ha uses.

    :raises ProtocolViolation: the header is not a JSON object, a number does not fit into 32 bits,
        or the header has more than `HEADER_VALUES` values.
    """
    header = parse(data, HEADER_VALUES)
    if not isinstance(header, dict):
        raise ProtocolViolation("the header is not a JSON object")
    ext = header.get("extFields")
    if ext is not None and not isinstance(ext, dict):
        raise ProtocolViolation("extFields is not a JSON object")
    remark = header.get("remark")
    return RemotingCommand(
        code=_number(header, "code"),
        ext=None if ext is None else _ext(ext),
        opaque=_number(header, "opaque"),
        flag=_number(header, "flag"),
        remark=None if remark is None else _text(remark),
        language=language_name(header.get("language", "JAVA")),
        version=_number(header, "version"),
    )


def _number(header: dict[Any, Any], name: str) -> int:
    value = header.get(name)
    if value is None:
        return 0
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ProtocolViolation(f"header field {name} is not a number") from None
    if not _LOWEST <= number <= _HIGHEST:
        raise ProtocolViolation(f"header field {name} is not a 32-bit integer")
    return number


def _ext(ext: dict[Any, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in ext.items() if value is not None}


def _text(value: Any) -> str:
    """Return a value as the text that Java makes of it."""
    return value if isinstance(value, str) else encode(value).decode()
