"""Makes the bytes of a successful pull response in one join.

Spec: remoting.md, sections 1.2, 1.3 and 6.7, appendix A.4.
"""

from struct import Struct

from rmq_ha.base.wire.command import FLAG_RESPONSE, VERSION

_WORDS = Struct(">ii")
_FOUND = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","maxOffset":"%d",'
    b'"minOffset":"%d"},"flag":'
    + str(FLAG_RESPONSE).encode()
    + b',"language":"JAVA","opaque":%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON",'
    b'"version":' + str(VERSION).encode() + b"}"
)


def found_frame(
    opaque: int,
    suggest_broker_id: int,
    next_begin_offset: int,
    max_offset: int,
    min_offset: int,
    records: list[bytes],
    size: int,
) -> bytes:
    """
    Return a whole frame with a JSON header, as the Java broker sends it.

    :param opaque: opaque of the request.
    :param records: whole records; the store limits their number and size.
    :param size: bytes of all records.
    """
    header = _FOUND % (suggest_broker_id, next_begin_offset, max_offset, min_offset, opaque)
    length = len(header)
    return b"".join((_WORDS.pack(4 + length + size, length), header, *records))
