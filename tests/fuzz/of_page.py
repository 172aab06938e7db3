"""What the page reads of whoever asks, and of messages."""

import zlib

from rmq_ha.base.model.flags import COMPRESSED, COMPRESSION_LZ4
from rmq_ha.ops.app.page.resources import login_in
from rmq_ha.ops.app.page.search import MOST_BODY, beginning
from tests.fuzz.target import target

LOGIN = b'{"challenge":"00ff","signature":"c2lnbmVk","account":"operator"}'


@target("page.login", [LOGIN, b'{"challenge":"","signature":""}', b"{}"], (ValueError,))
def read_login(data: bytes) -> None:
    """Of POST /api/session."""
    login_in(data)


@target(
    "page.body",
    [b"a text", zlib.compress(b"a text, compressed"), "\u20ac".encode() * 700, b"\0\xff"],
    (),
)
def begin(data: bytes) -> None:
    """Whatever a body is, its beginning is short and can be shown."""
    for flag in (0, COMPRESSED, COMPRESSED | COMPRESSION_LZ4):
        text, kind = beginning(data, flag)
        assert kind in ("text", "hex", "compressed")
        assert len(text) <= MOST_BODY * 6
        text.encode()
