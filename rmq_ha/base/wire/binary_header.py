"""The ROCKETMQ (compact binary) header of a frame.

======  ====  ========================================================
offset  size  meaning
======  ====  ========================================================
0       2     code
2       1     language
3       2     version
5       4     opaque
9       4     flag
13      4     length n of the remark
17      n     remark, UTF-8
17+n    4     length m of all entries
21+n    m     entries: int16 length, key, int32 length, value; UTF-8
======  ====  ========================================================

Big-endian. Spec: remoting.md, section 1.4.
"""

from struct import Struct, error

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.codes import LANGUAGE_BY_NAME, LanguageCode, language_name
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.text import to_bytes

_HEAD = Struct(">hBhiii")
_INT = Struct(">i")
_SHORT = Struct(">h")


def decode_header(data: bytes) -> RemotingCommand:
    """
    Read a binary header. Entries with an empty key or value are left out.

    :raises ProtocolViolation: a length points outside the header.
    """
    try:
        code, language, version, opaque, flag, size = _HEAD.unpack_from(data)
        remark, position = _take(data, _HEAD.size, size)
        (size,) = _INT.unpack_from(data, position)
        block, position = _take(data, position + 4, size)
        ext = _decode_entries(block) if size else None
    except error:
        raise ProtocolViolation("the binary header ends too early") from None
    return RemotingCommand(
        code=code,
        ext=ext,
        opaque=opaque,
        flag=flag,
        remark=_text(remark) if remark else None,
        language=language_name(language),
        version=version,
        binary=True,
    )


def encode_header(command: RemotingCommand) -> bytes:
    """
    Write a binary header.

    :raises ProtocolViolation: a number or a key is too large for its field.
    """
    remark = to_bytes(command.remark or "")
    language = LANGUAGE_BY_NAME.get(command.language or "JAVA", LanguageCode.OTHER)
    try:
        head = _HEAD.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
        entries = b"".join([_entry(*item) for item in (command.ext or {}).items()])
    except error as fault:
        raise ProtocolViolation(f"does not fit a binary header: {fault}") from None
    return b"".join((head, remark, _INT.pack(len(entries)), entries))


def _entry(name: str, value: str) -> bytes:
    key = to_bytes(name)
    content = to_bytes(value)
    return b"".join((_SHORT.pack(len(key)), key, _INT.pack(len(content)), content))


def _decode_entries(block: bytes) -> dict[str, str]:
    ext: dict[str, str] = {}
    position = 0
    end = len(block)
    while position < end:
        (size,) = _SHORT.unpack_from(block, position)
        name, position = _take(block, position + 2, size)
        (size,) = _INT.unpack_from(block, position)
        value, position = _take(block, position + 4, size)
        if name and value:
            ext[_text(name)] = _text(value)
    return ext


def _take(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if size < 0 or end > len(data):
        raise ProtocolViolation(f"a length in the binary header is {size}, which is outside of it")
    return data[position:end], end


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
