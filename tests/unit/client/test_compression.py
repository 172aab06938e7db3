"""LZ4, ZSTD and zlib as RocketMQ 5.3.3's classes write and read them."""

import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.rules import compression
from rmq_ha.client.rules.compression import MAX_INFLATED, UndecodableBody, compression_of, inflate
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.send import outgoing_of

lz4_frame = pytest.importorskip("lz4.frame", reason="pip install 'rmq-ha[compression]'")
zstandard = pytest.importorskip("zstandard", reason="pip install 'rmq-ha[compression]'")

BODY = (b"order-4711;" * 500)[:5000]
JAVA = {
    "LZ4": (
        0x101,
        "04224d1860707328000000bf6f726465722d343731313b0b00ffffffffffffffffffffffffffffffffffffff"
        "7850726465722d00000000",
    ),
    "ZSTD": (0x201, "28b52ffd00589c0000586f726465722d343731313b01007ae3be7801010000"),
    "ZLIB": (
        0x301,
        "785eedc6b10900200c00b08b1c0a8243dfd1b9d0ff07afe8964ca9beafd73e1159aaaaaaaaaaaaaaaaaa3ad3"
        "0f64eee43b",
    ),
}
"""What CompressorFactory.getCompressor(...).compress(BODY, 5) of RocketMQ 5.3.3 gave."""


@pytest.mark.parametrize("kind", JAVA)
def test_what_java_compressed_is_read(kind: str) -> None:
    sys_flag, text = JAVA[kind]
    assert inflate(bytes.fromhex(text), sys_flag) == BODY


@pytest.mark.parametrize("kind", JAVA)
def test_a_producer_compresses_as_java_s_does(kind: str) -> None:
    """The same bits; LZ4 with independent blocks, as Java reads no others."""
    config = ProducerConfig(compress_type=kind).checked()
    _, outgoing = outgoing_of(Message("T", BODY), config)
    assert outgoing.sys_flag == JAVA[kind][0]
    assert len(outgoing.body) < 70
    assert inflate(outgoing.body, outgoing.sys_flag) == BODY
    if kind == "LZ4":
        described = lz4_frame.get_frame_info(outgoing.body)
        assert described["block_linked"] is False


@settings(deadline=None)
@given(st.binary(max_size=20_000), st.sampled_from([("ZLIB", 9), ("LZ4", 0), ("ZSTD", 1)]))
def test_what_goes_in_comes_out(body: bytes, how: tuple[str, int]) -> None:
    made = compression_of(*how)
    assert inflate(made.deflate(body), made.sys_flag) == body


@pytest.mark.parametrize("kind", JAVA)
def test_damage_and_bombs(kind: str) -> None:
    """One bad message must not take the process with it."""
    made = compression_of(kind, 1)
    whole = made.deflate(BODY)
    with pytest.raises(UndecodableBody, match="cut short"):
        inflate(whole[:-6], made.sys_flag)
    with pytest.raises(UndecodableBody, match="damaged"):
        inflate(b"nonsense" * 10, made.sys_flag)
    with pytest.raises(UndecodableBody, match="larger than 64 MiB"):
        inflate(made.deflate(bytes(MAX_INFLATED + 1)), made.sys_flag)


def test_bits_that_nobody_knows() -> None:
    with pytest.raises(UndecodableBody, match=r"in the way 5; known are .* 2 \(ZSTD\)"):
        inflate(zlib.compress(b"x"), 0x501)


@pytest.mark.parametrize(
    ("given_settings", "said"),
    [
        ({"compress_type": "SNAPPY"}, "compress_type='SNAPPY': one of ZLIB, LZ4, ZSTD"),
        ({"compress_type": 2}, "compress_type=2: one of"),
        ({"compress_level": 10}, "compress_level=10: ZLIB has 0 to 9"),
        ({"compress_type": "zstd", "compress_level": 0}, "ZSTD has 1 to 22"),
        ({"max_in_flight": 0}, "max_in_flight must be from 1 to .*, not 0"),
        ({"send_msg_timeout_ms": "3000"}, "send_msg_timeout_ms must be from 1 to .*, not '3000'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    given_settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ProducerConfig(**given_settings).checked()  # type: ignore[arg-type]


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    compression._make_compression.cache_clear()
    for kind in ("LZ4", "ZSTD"):
        with pytest.raises(ConfigurationError, match=r"rmq-ha\[compression\]"):
            compression_of(kind, 5)
        with pytest.raises(UndecodableBody, match=r"is missing: .*rmq-ha\[compression\]"):
            inflate(bytes.fromhex(JAVA[kind][1]), JAVA[kind][0])
