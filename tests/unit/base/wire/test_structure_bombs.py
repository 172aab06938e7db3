"""
Documents of few bytes that name, nest or repeat much: every reader of what a peer sends.

Work is what `sys.setprofile` counts: calls of functions, ours and C's. What a reader takes apart in
loops of its own, it calls something for each part.
"""

import json
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.wire import bodies, fastjson
from rmq_ha.base.wire.fastjson import BODY_VALUES, HEADER_VALUES, MAX_DIALECT_SIZE, parse
from rmq_ha.base.wire.fastjson_reader import resolve_references
from rmq_ha.base.wire.frame import JSON, ROCKETMQ, decode_frame
from rmq_ha.base.wire.route_bodies import ClusterInfo, RegisterBrokerBody, TopicRoute
from rmq_ha.base.wire.stat_bodies import ProducerConnection
from rmq_ha.server.dledger.codec import decode_body
from rmq_ha.server.dledger.messages import (
    AppendEntryRequest,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)

DLEDGER = [
    AppendEntryRequest,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
]
REQUESTS = {
    "heartbeat": bodies.HeartbeatData.decode,
    "lock": bodies.LockBatch.decode,
    "check client": bodies.CheckClient.decode,
    "registration": RegisterBrokerBody.decode,
    "old registration": lambda body: RegisterBrokerBody.decode(body, version=0),
    "group": lambda body: bodies.read_as(SubscriptionGroupConfig, body),
    "version": lambda body: bodies.read_as(DataVersion, body),
}
for kind in DLEDGER:
    REQUESTS[kind.__name__] = lambda body, kind=kind: decode_body(kind, body)
ANSWERS = {
    "topics": bodies.TopicTable.decode,
    "groups": bodies.GroupTable.decode,
    "offsets": bodies.decode_offset_table,
    "delays": bodies.decode_delay_offsets,
    "kv": bodies.decode_kv_table,
    "strings": lambda body: bodies.decode_string_list(body, "topicList"),
    "queues": bodies.decode_queues,
    "queue table": bodies.decode_queue_table,
    "connections": ProducerConnection.decode,
    "route": TopicRoute.decode,
    "cluster": ClusterInfo.decode,
}
READERS = {"header": lambda body: decode_frame(JSON, body, b""), **REQUESTS, **ANSWERS}
#: Members under which some reader looks for something.
PLACES = [
    "extFields",
    "remark",
    "consumerDataSet",
    "producerDataSet",
    "mqSet",
    "subscriptionData",
    "filterServerList",
    "topicConfigSerializeWrapper",
    "topicConfigTable",
    "subscriptionGroupTable",
    "dataVersion",
    "offsetTable",
    "table",
    "topicList",
    "lockOKMQSet",
    "connectionSet",
    "queueDatas",
    "brokerDatas",
    "filterServerTable",
    "brokerAddrTable",
    "clusterAddrTable",
    "entry",
    "batchEntry",
    "entries",
    "body",
    "peers",
    "voteResult",
    "group",
    "term",
]
#: Calls for a document that is read at all, each value of it taken up some ten times.
MOST_WORK = 1_000_000


class WorkTooLong(Exception):
    pass


def work_of(reader, data, most=MOST_WORK):
    """How many calls it takes, and whether it was read; never more than `most`."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > most:
            raise WorkTooLong(f"{len(data)} bytes: {data[:80]!r}")

    sys.setprofile(count)
    try:
        reader(data)
        was_read = True
    except ProtocolViolation:
        was_read = False
    finally:
        sys.setprofile(None)
    return calls, was_read


def pointing(levels, width, leaf="[0]"):
    """`a0` to `an`, each of them a list of so many references to the one before."""
    lists = [
        f'"a{level}":[{",".join([f"""{{"$ref":"$.a{level - 1}"}}"""] * width)}]'
        for level in range(1, levels + 1)
    ]
    return ",".join([f'"a0":{leaf}', *lists])


def laughs(levels, width, leaf="[0]"):
    """A small document that becomes a large one wherever a reader looks."""
    places = ",".join(f'"{place}":{{"$ref":"$.a{levels}"}}' for place in PLACES)
    ext = f'"extFields":{{"k":{{"$ref":"$.a{levels}"}}}}'
    return f"{{{pointing(levels, width, leaf)},{places},{ext}}}".encode()


def zeros(key, count):
    return f"{{{key}:[{','.join(['0'] * count)}]}}"


def everywhere(value):
    """A value in each place at which some reader looks."""
    return ("{" + ",".join(f'"{place}":{value}' for place in PLACES) + "}").encode()


BOMBS = {
    "laughs": laughs(9, 10),
    "wide laughs": laughs(3, 1000),
    "laughing objects": laughs(5, 20, '{"groupName":"g","subscriptionDataSet":[]}'),
    "laughing text": laughs(3, 9, '["' + "x" * 50_000 + '"]'),
    "laughing keys": laughs(3, 9, '{"' + "x" * 50_000 + '":0}'),
    "laughing queues": laughs(3, 9, '{{"topic":"' + "x" * 50_000 + '"}:0}'),
    "long paths": (
        '{"p":' + '{"a":' * 60 + "0" + "}" * 60 + ',"r":['
        + ",".join(['{"$ref":"$.p' + ".a" * 450 + '"}'] * 2000)
        + "]}"
    ).encode(),
    "long walks": (
        "{" + ",".join(f'"k{i}":{{"$ref":"$.k{i + 1}"}}' for i in range(5000)) + "}"
    ).encode(),
    "stairs": ("{" + ",".join(f'"k{i}":{{"x":{{"$ref":"$.k{i + 1}"}}}}' for i in range(999)) + "}"
    ).encode(),
    "zeros": everywhere("[" + "0," * 60_000 + "0]"),
    "bare zeros": b"{x:[" + b"0," * 200_000 + b"0]}",
    "objects": everywhere("[" + "{}," * 60_000 + "{}]"),
    "bare objects": b"{x:[" + b"{}," * 100_000 + b"{}]}",
    "depth": everywhere("[" * 40_000 + "]" * 40_000),
    "depth of objects": everywhere('{"a":' * 40_000 + "0" + "}" * 40_000),
    "keys of keys": b"{" * 200_000,
    "digits": everywhere("1" * 40_000),
    "a million digits": b'{"code":' + b"1" * 1_000_000 + b"}",
    "digits behind": everywhere("1e" + "9" * 40_000),
    "digits in text": everywhere('"' + "1" * 40_000 + '"'),
    "escapes": b"{x:'" + b"\\u0041" * 15_000 + b"'}",
    "open text": b"{x:'" + b"\\'" * 130_000,
    "blanks": b"{x:" + b" " * 250_000 + b"}",
    "commas": b"{x:[" + b"," * 250_000 + b"]}",
    "alike numbers": everywhere(str([n * (2**61 - 1) for n in range(1, 1500)])),
    "alike keys": (
        "{x:{" + ",".join(f"{n * (2**61 - 1)}:0" for n in range(1, 9000)) + "}}"
    ).encode(),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_or_read_with_little_work(bomb):
    for name in ("header", *REQUESTS):
        work_of(READERS[name], BOMBS[bomb])


@pytest.mark.parametrize("name", ["header", *REQUESTS])
def test_what_its_references_make_large_is_refused_before_any_reader_walks_it(name):
    work, was_read = work_of(READERS[name], laughs(9, 10))
    assert not was_read
    assert work < 10_000


def test_an_answer_may_be_large_but_not_by_its_references():
    for reader in ANSWERS.values():
        _, was_read = work_of(reader, laughs(9, 10))
        assert not was_read
    table = {f"t@g{n}": {str(queue): 7 for queue in range(40)} for n in range(5_000)}
    read = bodies.decode_offset_table(json.dumps({"offsetTable": table}).encode())
    assert sum(map(len, read.values())) == 200_000


def test_a_heartbeat_of_one_consumer_two_thousand_times():
    """97 kB that took 13 s and 1.2 GiB: each of the 2,000 had its own 1,000 subscriptions."""
    one = json.dumps(
        {
            "groupName": "g",
            "subscriptionDataSet": [{"topic": f"t{n}", "subString": "*"} for n in range(1000)],
        }
    )
    consumers = ",".join(['{"$ref":"$.one"}'] * 2000)
    data = f'{{"clientID":"c","one":{one},"consumerDataSet":[{consumers}]}}'
    with pytest.raises(ProtocolViolation, match="20000 values"):
        bodies.HeartbeatData.decode(data.encode())


PATHS = ",".join([f'{{"$ref":"$.p{".a" * 9}.b{n}"}}' for n in range(2000)])
REFERRING = {
    "empty objects": '{"r":{"$ref":"$.x"},"x":[' + ",".join(["{}"] * 40_000) + "]}",
    "references": '{"x":0,"r":[' + ",".join(['{"$ref":"$.x"}'] * 20_000) + "]}",
    "steps": '{"p":' + '{"a":' * 9 + "0" + "}" * 9 + f',"r":[{PATHS}]}}',
}


@pytest.mark.parametrize("what", REFERRING)
def test_what_is_looked_at_one_by_one_has_an_end(what):
    """4 MB of long paths, each of them another one, took 0.7 s; 150 KB of empty objects 75 ms."""
    work, was_read = work_of(bodies.HeartbeatData.decode, REFERRING[what].encode())
    assert not was_read
    assert work < 100_000


def test_paths_may_have_half_as_many_steps_as_there_may_be_values():
    text = '{"r":[{"$ref":"$.a.b.c"},{"$ref":"$.d"}],"a":{"b":{}}}'
    resolve_references(json.loads(text), 9, 8)
    with pytest.raises(ProtocolViolation, match="more than 3 steps"):
        resolve_references(json.loads(text), 9, 7)


def test_the_references_that_java_writes_are_read():
    """fastjson writes one for each object that it meets again."""
    data = b"""{"clientID":"c","consumerDataSet":[
        {"groupName":"g1","subscriptionDataSet":[{"topic":"t","subString":"a"}]},
        {"groupName":"g2","subscriptionDataSet":[
            {"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}]}"""
    first, second = bodies.HeartbeatData.decode(data).consumers
    assert first.subscriptions == second.subscriptions


def test_the_same_path_is_walked_once(monkeypatch):
    walks = []
    step = fastjson.resolve_references.__globals__["_STEP"]
    monkeypatch.setitem(
        fastjson.resolve_references.__globals__,
        "_STEP",
        lambda *arguments: walks.append(arguments) or step(*arguments),
    )
    parse(b'{"a":{"b":{"c":[1]}},"r":[' + b'{"$ref":"$.a.b.c"},' * 1000 + b"0]}")
    assert len(walks) == 3


@pytest.mark.parametrize(
    ("text", "most", "is_read"),
    [
        (zeros('"x"', BODY_VALUES - 2), BODY_VALUES, True),
        (zeros('"x"', BODY_VALUES), BODY_VALUES, False),
        (zeros('"x"', BODY_VALUES), None, True),
        (zeros("x", HEADER_VALUES - 2), HEADER_VALUES, True),
        (zeros("x", HEADER_VALUES), BODY_VALUES, False),
        (zeros("x", HEADER_VALUES), None, True),
        (f"{{x:'{'a' * (MAX_DIALECT_SIZE - 6)}'}}", BODY_VALUES, True),
        (f"{{x:'{'a' * (MAX_DIALECT_SIZE - 5)}'}}", BODY_VALUES, False),
        (f"{{x:'{'a' * (MAX_DIALECT_SIZE - 5)}'}}", None, True),
        (f"{{x:'{'~n' * 79_000}'}}".replace("~", "\\"), BODY_VALUES, True),
        (f"{{x:'{'~n' * 81_000}'}}".replace("~", "\\"), BODY_VALUES, False),
        (f"{{{2**63 - 1}:0}}", BODY_VALUES, True),
        (f"{{-{2**63}:0}}", BODY_VALUES, True),
        (f"{{{2**63}:0}}", None, False),
    ],
)
def test_the_limits(text, most, is_read):
    if is_read:
        parse(text.encode(), most)
        return
    with pytest.raises(ProtocolViolation):
        parse(text.encode(), most)


def test_numbers_that_share_a_hash_are_refused_before_they_meet():
    """20,000 of them in a set take two seconds, 100,000 a minute."""
    codes = [n * (2**61 - 1) for n in range(1, 20_001)]
    subscription = {"topic": "t", "codeSet": codes}
    with pytest.raises(ProtocolViolation, match="Expected `int` <= 2147483647"):
        bodies.CheckClient.decode(json.dumps({"subscriptionData": subscription}).encode())
    subscription = {"topic": "t", "tagsSet": codes}
    with pytest.raises(ProtocolViolation, match="tag"):
        bodies.CheckClient.decode(json.dumps({"subscriptionData": subscription}).encode())
    queues = [{"topic": "t", "brokerName": "b", "queueId": code} for code in codes[:1000]]
    with pytest.raises(ProtocolViolation, match="Expected `int` <= 2147483647"):
        bodies.LockBatch.decode(json.dumps({"mqSet": queues}).encode())


def test_depth_counts_through_what_is_shared():
    """Each level stands but once, and its references make it 60 times as deep."""
    deep = "[" * 30 + '{"$ref":"$.k%d"}' + "]" * 30
    levels = ",".join(f'"k{n}":{deep % (n - 1)}' for n in range(1, 60))
    with pytest.raises(ProtocolViolation, match="deeper"):
        parse(f'{{"k0":[],{levels}}}'.encode())


NAMES = st.sampled_from([*PLACES, "a", "groupName", "topic", "queueId", "subscriptionDataSet"])
LEAVES = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.integers(1, 2000).map(lambda size: '"' + "x" * size + '"'),
    st.integers(1, 5000).map(lambda size: "9" * size),
    st.sampled_from(
        ["null", "true", "{}", "[]", "1e999", "'\\x41'", '""', "{1:2}", '{"$ref":"$"}']
    ),
)
REFERENCES = st.tuples(st.integers(0, 7), st.integers(0, 60)).map(
    lambda place: f'{{"$ref":"$.d{place[0]}' + f"[{place[1]}]" * (place[1] < 40) + '"}'
)


@st.composite
def structures(draw):
    """Definitions that name each other, each of them repeated, wide or deep, in some places."""
    members = []
    for number in range(draw(st.integers(1, 8))):
        content = draw(LEAVES | REFERENCES)
        for _ in range(draw(st.integers(0, 3))):
            shape = draw(st.sampled_from(["wide", "deep", "object"]))
            if shape == "wide":
                content = "[" + ",".join([content] * draw(st.integers(1, 60))) + "]"
            elif shape == "deep":
                depth = draw(st.integers(1, 30))
                content = "[" * depth + content + "]" * depth
            else:
                content = f'{{"{draw(NAMES)}":{content},{draw(NAMES)}:{content}}}'
            content = content[: 1 << 17]
        members.append(f'"d{number}":{content}')
    places = [f'"{draw(NAMES)}":{draw(REFERENCES)}' for _ in range(draw(st.integers(1, 5)))]
    return ("{" + ",".join(members + places) + "}").encode()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(READERS)), structures())
@example("header", laughs(9, 10))
def test_generated_structures_are_refused_or_read_with_little_work(name, data):
    work_of(READERS[name], data)


@given(st.binary(max_size=300))
def test_binary_headers_are_refused_or_read_with_little_work(data):
    work_of(lambda header: decode_frame(ROCKETMQ, header, b""), data, 5_000)
