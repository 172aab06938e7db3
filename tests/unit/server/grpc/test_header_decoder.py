"""The decoder of header blocks, beside that of the package hpack. It follows RFC 7541."""

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.server.grpc.http2.header_decoder import HeaderDecoder

TABLE, LIST = 4096, 65536
NAMES = st.sampled_from(["grpc-timeout", ":path", "x-mq-request-id", "te", "a" * 200])
VALUES = st.one_of(st.sampled_from(["trailers", "", "v" * 3000]), st.text(max_size=40))
BLOCKS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.sampled_from([0, 60, 4096])),  # a new size of the table
        st.booleans(),  # by Huffman
        st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=8),
    ),
    max_size=6,
)


def theirs() -> Decoder:
    decoder = Decoder(max_header_list_size=LIST)
    decoder.max_allowed_table_size = TABLE
    return decoder


def decoded(decoder: Decoder | HeaderDecoder, block: bytes) -> list[tuple[str, str]] | None:
    """The headers of a block; None for a wrong one."""
    try:
        if isinstance(decoder, HeaderDecoder):
            return decoder.decode(block)
        found = decoder.decode(block, raw=True)
    except HPACKError:
        return None
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in found]


@given(BLOCKS)
@settings(max_examples=150)
def test_blocks_are_read_as_by_hpack(blocks) -> None:
    encoder, reference, ours = Encoder(), theirs(), HeaderDecoder(TABLE, LIST)
    for size, huffman, headers in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(headers, huffman=huffman)
        wanted = decoded(reference, block)
        assert wanted is not None
        assert decoded(ours, block) == wanted


@given(st.lists(st.binary(max_size=60), max_size=4))
@settings(max_examples=300)
def test_wrong_blocks_are_refused_as_by_hpack(blocks) -> None:
    reference, ours = theirs(), HeaderDecoder(TABLE, LIST)
    for block in blocks:
        wanted = decoded(reference, block)
        assert decoded(ours, block) == wanted
        if wanted is None:  # the connection ends here
            return


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # number 0
        b"\xbe",  # the first header of an empty table
        b"\x3f\xe2\x1f",  # a table of 4097 bytes
        b"\x82\x20",  # a new size after a header
        b"\xff\x80\x80\x80\x80\x80",  # a number without an end
        b"\xff\xff\xff\xff\xff\x7f",  # a number of 35 bits
        b"\x00\x05ab",  # a name that is longer than the block
        b"\x40",
    ],
)
def test_a_block_that_breaks_a_rule_is_refused(block: bytes) -> None:
    assert decoded(HeaderDecoder(TABLE, LIST), block) is None


def test_a_small_block_may_not_become_a_huge_list() -> None:
    decoder = HeaderDecoder(TABLE, LIST)
    decoder.decode(Encoder().encode([("n", "v" * 3000)]))
    assert len(decoder.decode(b"\xbe" * 21)) == 21
    assert decoded(decoder, b"\xbe" * 22) is None
