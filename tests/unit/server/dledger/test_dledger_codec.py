"""Bodies byte for byte as a Java group sent them, and whatever else a peer may send."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.base.wire.fastjson import BODY_VALUES
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import PushType, VoteResult
from rmq_ha.server.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    GroupMessage,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)

VECTORS = Path(__file__).parents[3] / "vectors" / "ha" / "dledger_frames.json"
KINDS: dict[int, tuple[type[GroupMessage], type[GroupMessage]]] = {
    51001: (VoteRequest, VoteResponse),
    51002: (HeartBeatRequest, HeartBeatResponse),
    51004: (PushEntryRequest, PushEntryResponse),
}
MESSAGES = [
    *(kind for pair in KINDS.values() for kind in pair),
    MetadataRequest,
    MetadataResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    AppendEntryRequest,
    AppendEntryResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
]


def conversations() -> list[Any]:
    """Each recorded body with the kind of message that it is."""
    codes: dict[int, int] = {}
    found = []
    for frame in json.loads(VECTORS.read_text())["frames"]:
        header = json.loads(frame["header"])
        is_response = bool(header["flag"] & 1)
        code = codes[header["opaque"]] if is_response else header["code"]
        codes[header["opaque"]] = code
        found.append(pytest.param(KINDS[code][is_response], frame["body"], id=frame["name"]))
    return found


@pytest.mark.parametrize(("kind", "body"), conversations())
def test_a_recorded_body_is_read_and_written_again(kind: type[GroupMessage], body: str) -> None:
    message = decode_body(kind, body.encode())
    assert encode_body(message) == body.encode()


def test_a_recorded_batch_has_its_entries() -> None:
    body = next(param for param in conversations() if "batch of 3 request" in param.id).values[1]
    push = decode_body(PushEntryRequest, body.encode())
    assert [entry.index for entry in push.batch_entry] == [113, 114, 115]
    assert [entry.size for entry in push.batch_entry] == [160, 160, 160]
    assert (push.entry, push.commit_index, push.type) == (None, 111, PushType.APPEND)


def test_keys_that_nobody_knows_and_computed_ones_are_ignored() -> None:
    body = (
        b'{"batch":true,"count":77,"firstEntryIndex":1,"later":{"a":[1]},"type":"COMMIT","term":4}'
    )
    assert decode_body(PushEntryRequest, body) == PushEntryRequest(type=PushType.COMMIT, term=4)


def test_what_is_missing_has_its_default() -> None:
    assert decode_body(VoteRequest, b"{}") == VoteRequest()
    assert VoteRequest().ledger_end_index == VoteRequest().term == -1
    assert decode_body(HeartBeatResponse, b"{}").code == 200


def test_fastjson_reads_numbers_in_strings_null_and_single_quotes() -> None:
    found = decode_body(VoteRequest, b"{'term':'5',ledgerEndIndex:7.0,\"group\":null}")
    assert found == VoteRequest(term=5, ledger_end_index=7)
    found = decode_body(VoteRequest, b"{'term':'5',ledgerEndIndex:null,7:8,\"group\":'g'}")
    assert found == VoteRequest(term=5, group="g")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('"REJECT_ALREADY__HAS_LEADER"', VoteResult.REJECT_ALREADY_HAS_LEADER),  # dledger 0.1
        ('"REJECT_BY_A_LATER_VERSION"', VoteResult.UNKNOWN),
        ("null", VoteResult.UNKNOWN),
        ("[]", VoteResult.UNKNOWN),
    ],
)
def test_a_vote_result_that_is_spelled_otherwise(text: str, result: VoteResult) -> None:
    assert decode_body(VoteResponse, f'{{"voteResult":{text}}}'.encode()).vote_result is result


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"[]",
        b"\xff",
        b'{"type":"X"}',
        b'{"entry":{"body":"A"}}',
        b'{"entry":{"index":-1}}',
        b'{"entry":{"pos":9223372036854775808}}',
        b'{"entry":{"magic":2147483648}}',
        b'{"batchEntry":[7]}',
        b'{"term":[]}',
        b'{"term":1e400}',
        b'{"entry":' * 3000,
    ],
)
def test_what_is_no_push_is_a_protocol_violation(body: bytes | None) -> None:
    with pytest.raises(ProtocolViolation):
        decode_body(PushEntryRequest, body)


def test_a_push_has_no_more_values_than_one_of_many_entries() -> None:
    most = b",".join([b"0"] * (BODY_VALUES - 2))
    assert decode_body(PushEntryRequest, b'{"x":[%s]}' % most) == PushEntryRequest()
    with pytest.raises(ProtocolViolation, match="values"):
        decode_body(PushEntryRequest, b'{"x":[%s,0]}' % most)


def test_what_is_true_is_written_as_json_says() -> None:
    assert b'"status":true' in encode_body(MetadataRequest(status=True))
    assert b"status" not in encode_body(MetadataRequest(status=False))


def test_what_java_leaves_out_is_left_out() -> None:
    assert encode_body(HeartBeatResponse()) == b'{"code":200,"term":-1}'
    commit = PushEntryResponse(group="g", term=2, begin_index=0, end_index=3)
    assert encode_body(commit) == (
        b'{"beginIndex":0,"code":200,"count":0,"endIndex":3,"group":"g","term":2}'
    )
    assert b"transfer" not in encode_body(VoteRequest())


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NATURAL = st.integers(0, (1 << 63) - 1)
TEXT = st.none() | st.text(max_size=8)
ENTRY = st.builds(
    Entry,
    index=NATURAL,
    term=NATURAL,
    pos=NATURAL,
    body=st.binary(max_size=100),
    magic=st.integers(-(1 << 31), (1 << 31) - 1),
    channel=st.just(0),
)
COMMON: dict[str, Any] = {
    "group": TEXT,
    "remote_id": TEXT,
    "local_id": TEXT,
    "leader_id": TEXT,
    "term": INT64,
    "code": INT64,
}
ENTRIES = st.lists(ENTRY, max_size=4).map(tuple)
ANY_MESSAGE = st.one_of(
    st.builds(
        PushEntryRequest,
        type=st.sampled_from(PushType),
        commit_index=INT64,
        entry=st.none() | ENTRY,
        **COMMON,
    ),
    st.builds(PushEntryRequest, batch_entry=ENTRIES, **COMMON),
    st.builds(PushEntryResponse, index=st.none() | INT64, count=INT64, end_index=INT64, **COMMON),
    st.builds(VoteRequest, ledger_end_index=INT64, transfer=st.booleans(), **COMMON),
    st.builds(VoteResponse, vote_result=st.sampled_from(VoteResult), **COMMON),
    st.builds(MetadataResponse, peers=st.dictionaries(st.text(max_size=4), st.text()), **COMMON),
    st.builds(GetEntriesResponse, entries=ENTRIES, **COMMON),
    st.builds(AppendEntryRequest, body=st.binary(), **COMMON),
    st.builds(LeadershipTransferRequest, transfer_id=TEXT, transferee_id=TEXT, **COMMON),
)


def is_writable(value: Any) -> bool:
    """Half a surrogate pair becomes a question mark, as in Java."""
    return not any("\ud800" <= letter <= "\udfff" for letter in str(value))


@given(ANY_MESSAGE.filter(is_writable))
def test_every_message_comes_back(message: GroupMessage) -> None:
    data = encode_body(message)
    assert decode_body(type(message), data) == message
    keys = list(json.loads(data))
    assert keys == sorted(keys)


@given(st.sampled_from(MESSAGES), st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_message_or_a_protocol_violation(
    kind: type[GroupMessage], data: bytes
) -> None:
    try:
        assert isinstance(decode_body(kind, data), kind)
    except ProtocolViolation:
        pass


COMMON_KEYS = ["group", "term", "code", "type", "voteResult"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["entry", "batchEntry", "entries", "body", "index", "term", "peers"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(MESSAGES),
    st.dictionaries(
        st.sampled_from(
            [
                "group",
                "term",
                "code",
                "type",
                "entry",
                "batchEntry",
                "entries",
                "peers",
                "body",
                "index",
                "voteResult",
            ]
        ),
        JSON,
    ),
)
def test_any_json_is_a_message_or_a_protocol_violation(
    kind: type[GroupMessage], value: dict[str, Any]
) -> None:
    try:
        found = decode_body(kind, json.dumps(value).encode())
    except ProtocolViolation:
        return
    assert decode_body(kind, encode_body(found)) == found
