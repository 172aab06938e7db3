"""What strangers send that is little and would become much."""

from __future__ import annotations

import struct
import zlib

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame


def header_bomb() -> bytes:
    """1.4 KB that would become 10^9 values, whatever the request."""
    lists = ",".join(
        f'"a{level}":[{",".join([f"""{{"$ref":"$.a{level - 1}"}}"""] * 10)}]'
        for level in range(1, 10)
    )
    header = f'{{"code":28,"a0":[0],{lists},"extFields":{{"k":{{"$ref":"$.a9"}}}}}}'.encode()
    return struct.pack(">ii", 4 + len(header), len(header)) + header


def registration_bomb() -> bytes:
    """115 KiB for a name server that would become 200,000 topics."""
    body = zlib.compress(
        struct.pack(">i2si", 2, b"{}", 2_000_000)
        + b"".join(struct.pack(">i", 21) + b"%07d 8 8 6 SINGLE" % n for n in range(200_000))
    )
    ext = {"brokerName": "x", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0"}
    ext |= {"haServerAddr": "", "compressed": "true"}
    return encode_frame(RemotingCommand(RequestCode.REGISTER_BROKER, ext, body))
