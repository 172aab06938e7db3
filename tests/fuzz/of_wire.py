"""Frames, headers and bodies: what every port of remoting reads, and every client of ours."""

import json
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from rmq_ha.base.errors import CorruptRecord, ProtocolViolation, RequestRejected
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.base.store_format.popped_record import with_receipt
from rmq_ha.base.wire import bodies
from rmq_ha.base.wire.auth_bodies import UserInfo, decode_list
from rmq_ha.base.wire.batch import encode_batch, read_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.base.wire.fastjson import encode, parse
from rmq_ha.base.wire.frame import JSON, ROCKETMQ, FrameReader, decode_frame, encode_frame
from rmq_ha.base.wire.json_header import decode_plain_header
from rmq_ha.base.wire.pop_bodies import (
    AssignmentQuery,
    Assignments,
    BatchAck,
    RequestMode,
    RequestModeTable,
)
from rmq_ha.base.wire.pop_headers import PopFields
from rmq_ha.base.wire.pop_places import (
    parse_msg_offsets,
    parse_order_counts,
    parse_start_offsets,
)
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.base.wire.pop_reports import InFlightReport
from rmq_ha.base.wire.recall_handle import RecallHandle
from rmq_ha.base.wire.route_bodies import (
    ClusterInfo,
    RegisterBrokerBody,
    TopicRoute,
    decode_controllers,
    decode_rivals,
)
from rmq_ha.base.wire.send_header import (
    UNDECODABLE,
    decode_fast_v1,
    decode_fast_v2,
    decode_send_header,
)
from rmq_ha.base.wire.stat_bodies import REPLICATION_KEY, OldestHalf, ProducerConnection
from rmq_ha.base.wire.timer_bodies import TimerCounts
from rmq_ha.client.consume.offsets import decode_offsets
from rmq_ha.client.lookup.brokers import replication_of
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.client.rules.compression import compression_of
from rmq_ha.client.rules.messages import decode_messages, decode_pulled
from rmq_ha.client.rules.routes import _parse_order
from rmq_ha.client.rules.serializers import JsonSerializer, RegisteredSerializer
from rmq_ha.client.send.trace_lines import _parse_event
from rmq_ha.server.controller import codec, events, messages
from rmq_ha.server.dledger.codec import decode_body, encode_body
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
from rmq_ha.server.store.timer.frontier import decode_frontier, encode_frontier
from rmq_ha.server.store.timer.sources import parse_source
from tests.fuzz.target import target

V1 = {
    "producerGroup": "p", "topic": "TopicA", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
    "flag": "0", "properties": "TAGS\x01a\x02KEYS\x01k", "reconsumeTimes": "0",
}  # fmt: skip
SIGNED = {"AccessKey": "strangers", "Signature": "c2lnbmF0dXJl", "SecurityToken": "t"}


def commands() -> list[RemotingCommand]:
    """Requests and answers of the usual kinds."""
    made = [
        send_request("p", "TopicA", 0, b"body", "TAGS\x01a\x02UNIQ_KEY\x01u", 1),
        RemotingCommand(10, V1 | SIGNED, b"body", 7),
        pull_request("G1", "TopicA", 0, 0, hold_ms=50),
        RemotingCommand(34, None, HEARTBEAT, 9, remark="é\n\x01"),
        RemotingCommand(0, {"queueId": "0", "msgId": "A" * 32}, None, 3, flag=1),
    ]
    for code in (12, 14, 15, 17, 25, 33, 36, 37, 38, 41, 103, 105, 202, 208, 222, 310, 320):
        ext = {"topic": "TopicA", "group": "G1", "consumerGroup": "G1", "queueId": "0"}
        made.append(RemotingCommand(code, ext | {"offset": "0", "commitOffset": "1"}, b"{}", code))
    return made


def frames_of(command: RemotingCommand, *, can_be_binary: bool = True) -> list[bytes]:
    """
    In both serialisations.

    :param can_be_binary: whether the binary one can be used.
    """
    found = []
    for binary in (False, True) if can_be_binary else (False,):
        command.binary = binary
        found.append(encode_frame(command))
    return found


HEARTBEAT = bodies.HeartbeatData(
    "c1",
    [
        bodies.ConsumerData(
            "G1", subscriptions=[SubscriptionData("TopicA", "a || b", sub_version=1)]
        )
    ],
    [bodies.ProducerData("p")],
).encode()
FRAMES = [frame for command in commands() for frame in frames_of(command)]
HEADERS = [FrameReader().receive_data(frame)[0] for frame in FRAMES]


@target("frames", [*FRAMES, b"".join(FRAMES), b"GET / HTTP/1.1\r\n\r\n", bytes(40), b"\xff" * 12])
def read_frames(data: bytes) -> None:
    """A stream in two chunks, cut where its first byte says."""
    reader = FrameReader()
    at = data[0] if data else 0
    for chunk in (data[:at], data[at:]):
        for frame in reader.receive_data(chunk):
            decode_frame(*frame)


@target("header.json", [header for kind, header, _ in HEADERS if kind == JSON])
def read_json_header(data: bytes) -> None:
    """What it says once more is what it said: two readers of ours must not differ."""
    command = decode_frame(JSON, data, b"")
    again = decode_frame(JSON, FrameReader().receive_data(encode_frame(command))[0][1], b"")
    assert (again.code, again.ext, again.flag) == (command.code, command.ext, command.flag)
    plain = decode_plain_header(data)
    if plain is not None:
        assert (plain.code, plain.ext) == (command.code, command.ext)


@target("header.binary", [header for kind, header, _ in HEADERS if kind == ROCKETMQ])
def read_binary_header(data: bytes) -> None:
    decode_frame(ROCKETMQ, data, b"")


@target(
    "header.send",
    [header for kind, header, _ in HEADERS if kind == JSON and b'"b":"TopicA"' in header]
    + [
        header for kind, header, _ in HEADERS if kind == JSON and b"defaultTopicQueueNums" in header
    ],
    (ProtocolViolation, RequestRejected),
)
def read_send_header(data: bytes) -> None:
    """The way of runs reads what the general way reads, or leaves it to that."""
    command = decode_frame(JSON, data, b"")
    fast = decode_fast_v1 if command.code == 10 else decode_fast_v2
    sent = decode_send_header(command)
    try:
        found = fast(data)
    except UNDECODABLE:
        return
    assert (found.opaque, found.ext) == (command.opaque, sent)


def body(name: str, seed: bytes | str, read: Callable[[bytes], Any], *more: bytes) -> None:
    """A body that its reader takes or refuses."""
    data = seed.encode() if isinstance(seed, str) else seed
    target(f"body.{name}", [data, *more])(read)


QUEUE = {"topic": "TopicA", "brokerName": "b", "queueId": 0}
QUEUES = {'{"brokerName":"b","queueId":0,"topic":"TopicA"}': 7}
TABLE = bodies.TopicTable(DataVersion(1, 2), {"TopicA": TopicConfig("TopicA")})
REGISTRATION = RegisterBrokerBody(DataVersion(1, 2), {"TopicA": TopicConfig("TopicA")}, ["f:1"])
CHECK = bodies.CheckClient("c1", "G1", SubscriptionData("TopicA", "a > 1", expression_type="SQL92"))

body("heartbeat", HEARTBEAT, bodies.HeartbeatData.decode)
body(
    "lock",
    bodies.LockBatch("G1", "c1", [bodies.MessageQueue("TopicA", "b", 0)]).encode(),
    bodies.LockBatch.decode,
)
body("check_client", CHECK.encode(), bodies.CheckClient.decode)
body(
    "registration",
    REGISTRATION.encode(),
    RegisterBrokerBody.decode,
    encode({"filterServerList": [], "topicConfigSerializeWrapper": TABLE}),
)
body(
    "registration.deflated",
    REGISTRATION.encode(compressed=True),
    lambda data: RegisterBrokerBody.decode(data, compressed=True),
)
body(
    "registration.inflated",
    zlib.decompress(REGISTRATION.encode(compressed=True)),
    lambda data: RegisterBrokerBody.decode(zlib.compress(data, 1), compressed=True),
)
body(
    "group",
    '{"groupName":"G1","retryQueueNums":1,"consumeEnable":true}',
    lambda data: bodies.read_as(SubscriptionGroupConfig, data),
)
body(
    "version",
    '{"counter":"1","timestamp":2}',
    lambda data: bodies.read_as(DataVersion, data),
)
body("topics", TABLE.encode(), bodies.TopicTable.decode)
body(
    "groups",
    '{"dataVersion":{"counter":1},"subscriptionGroupTable":{"G":{"groupName":"G"}}}',
    bodies.GroupTable.decode,
)
body("offsets", '{"offsetTable":{"TopicA@G1":{0:1,1:"2"}}}', bodies.decode_offset_table)
body("delays", '{"offsetTable":{3:12}}', bodies.decode_delay_offsets)
body("kv", '{"table":{"a":"b"}}', bodies.decode_kv_table)
body("users", '[{"username":"a","userType":"Normal"}]', partial(decode_list, UserInfo))
body(
    "oldest-half",
    '{"number":1,"born_ms":2,"group":"g","topic":"T"}',
    lambda data: OldestHalf.parse(parse(data)),
)
body(
    "replication",
    '{"role":"SLAVE","master":{"address":"a:1"}}',
    lambda data: replication_of({REPLICATION_KEY: data.decode("utf-8", "replace")}),
)
body(
    "strings", '{"topicList":["a","b"]}', lambda data: bodies.decode_string_list(data, "topicList")
)
body("queues", json.dumps({"lockOKMQSet": [QUEUE]}), bodies.decode_queues)
body(
    "queue_table",
    json.dumps({"offsetTable": QUEUES}),
    bodies.decode_queue_table,
    b'{"offsetTable":{{"topic":"T","brokerName":"b","queueId":0}:7}}',
)
body("client_offsets", json.dumps({"offsetTable": QUEUES}), decode_offsets)
body(
    "connections",
    '{"connectionSet":[{"clientId":"c","clientAddr":"a:1","version":407}]}',
    ProducerConnection.decode,
)
body(
    "timer_counts",
    '{"rmqHaDueWithin":{"0":1,"60":2},"timingCount":{"T":{"count":2,"timeStamp":1}}}',
    TimerCounts.decode,
)
body(
    "in_flight",
    '{"rmqHaInFlight":"leading","nowMs":7,"leftOut":0,"moves":[{"topic":"T","again":1}],'
    '"queues":[{"topic":"T","queueId":0,"inFlight":1,"committed":3,"next":4,"end":5}]}',
    InFlightReport.decode,
)
body(
    "route",
    '{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}],'
    '"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":[{"brokerName":"b","perm":6,'
    '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}',
    TopicRoute.decode,
)
body(
    "rivals",
    '{"rivals":[["broker-a",0,"10.0.0.1:10911","10.0.0.2:10911"]]}',
    lambda value: decode_rivals(value.decode("utf-8", "surrogateescape")),
)
body(
    "controllers",
    "10.0.0.1:9878;[::1]:9878",
    lambda value: decode_controllers(value.decode("utf-8", "surrogateescape")),
)
body(
    "cluster",
    '{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b",'
    '"cluster":"c"}},"clusterAddrTable":{"c":["b"]}}',
    ClusterInfo.decode,
)
body(
    "batch_ack",
    '{"brokerName":"b","acks":[{"c":"G","t":"T","r":"1","so":0,"q":0,"rq":1,"pt":9,"it":8,'
    '"b":"Aw=="}]}',
    lambda data: [(item.real_topic, item.offsets()) for item in BatchAck.decode(data).acks],
)
body(
    "assignment_query",
    '{"topic":"T","consumerGroup":"G","clientId":"c","strategyName":"AVG",'
    '"messageModel":"CLUSTERING"}',
    AssignmentQuery.decode,
)
body(
    "assignments",
    json.dumps({"messageQueueAssignments": [{"messageQueue": QUEUE, "mode": "POP"}]}),
    Assignments.decode,
)
body(
    "request_modes",
    '{"messageRequestModeMap":{"T":{"G":{"mode":"POP","popShareQueueNum":1}}}}',
    RequestModeTable.decode,
)
body("request_mode", '{"topic":"T","consumerGroup":"G","mode":"POP"}', RequestMode.decode)
body(
    "batch",
    encode_batch([(0, b"one", "TAGS\x01a"), (1, b"", "")]),
    lambda data: list(read_batch(data)),
)

ENTRY = Entry(3, 2, 96, b"record of a message")
WHO: dict[str, Any] = {
    "group": "g",
    "remote_id": "n1",
    "local_id": "n0",
    "leader_id": "n0",
    "term": 2,
}
DLEDGER: list[GroupMessage] = [
    AppendEntryRequest(**WHO), AppendEntryResponse(**WHO), GetEntriesRequest(**WHO),
    GetEntriesResponse(**WHO, entries=[ENTRY]), HeartBeatRequest(**WHO), HeartBeatResponse(**WHO),
    LeadershipTransferRequest(**WHO), LeadershipTransferResponse(**WHO), MetadataRequest(**WHO),
    MetadataResponse(**WHO, peers={"n0": "a:1"}), PushEntryRequest(**WHO, entry=ENTRY),
    PushEntryResponse(**WHO), VoteRequest(**WHO), VoteResponse(**WHO),
]  # fmt: skip
for message in DLEDGER:
    kind = type(message)
    body(
        f"dledger.{kind.__name__}",
        encode_body(message),
        lambda data, kind=kind: decode_body(kind, data),
        b"{'term':'2','group':null}",
    )


PROPERTIES = "TAGS\x01a\x02DELAY\x012\x02UNIQ_KEY\x01" + "A" * 32


def record(
    body: bytes = b"body", sys_flag: int = 0, host: str = "127.0.0.1", topic: str = "TopicA"
) -> bytes:
    """A record of the log."""
    address = Address.parse(host, 10911)
    return encode_record(
        Record(0, 0, 1, 0, 7, 0, sys_flag, 1, address, 2, address, 0, 0, body, topic, PROPERTIES)
    )


PACKED = zlib.compress(b"body" * 50)
OTHER_WAYS = [compression_of(kind, 5) for kind in ("LZ4", "ZSTD")]
RECORDS = [
    record(),
    record(PACKED, 1),
    record(host="::1", sys_flag=0x30),
    record() + record(PACKED, 1),
    record(topic="SCHEDULE_TOPIC_XXXX"),
    *(record(way.deflate(b"body" * 50), way.sys_flag) for way in OTHER_WAYS),
]


@target("pulled", RECORDS, (CorruptRecord,))
def read_pulled(data: bytes) -> None:
    """What our consumers are given."""
    decode_pulled(data, "b", 1 << 20)
    decode_messages(data, "b")


CONTROLLER_EXT = {
    "clusterName": "c", "brokerName": "b", "brokerAddr": "127.0.0.1:1", "brokerId": "1",
    "brokerAddress": "127.0.0.1:1", "masterBrokerId": "1", "masterEpoch": "1", "epoch": "-1",
    "appliedBrokerId": "1", "registerCheckCode": "127.0.0.1:1;1", "designateElect": "TRUE",
    "group": "g", "isCleanLivingBroker": "no",
}  # fmt: skip


@target(
    "controller.headers",
    [json.dumps(CONTROLLER_EXT).encode(), b'{"brokerName":"b","brokerId":"x"}'],
    (ProtocolViolation, RequestRejected),
)
def read_controller_headers(data: bytes) -> None:
    try:
        ext = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolViolation("no ext fields") from None
    if not isinstance(ext, dict) or not all(isinstance(item, str) for item in ext.values()):
        raise ProtocolViolation("no ext fields")
    for kind in messages.ControllerHeader.__subclasses__():
        ext_fields(codec.decode_header(kind, ext))


_SET = messages.SyncStateSet((1, 2), 3)
_ELECTED = messages.ElectedBody((1,), {1: "127.0.0.1:1"}, "b", "c")
_REPLICA = messages.SetReplica("b", 1, "127.0.0.1:1", True)
_INFO = messages.ReplicasInfo(1, 2, (_REPLICA,), (), 1, "127.0.0.1:1")
for _name, _read, _seed in (
    ("set", codec.decode_set, codec.encode_set(_SET)),
    ("elected", codec.decode_elected, codec.encode_elected(_ELECTED)),
    ("names", codec.decode_names, codec.encode_names(["b", "c"])),
    ("replicas", codec.decode_replicas, codec.encode_replicas({"b": _INFO})),
):
    target(f"controller.{_name}", [_seed])(_read)


@target(
    "controller.event",
    [
        events.encode_event(event)
        for event in (
            events.SyncStateSetAltered("b", (1, 2)),
            events.BrokerIdApplied("c", "b", 1, "127.0.0.1:1", "127.0.0.1:1;1"),
            events.MasterElected("b", None, 7),
            events.BrokerDataCleaned("b", (1,)),
            events.AddressUpdated("b", 1, "127.0.0.1:2"),
        )
    ],
    (CorruptRecord,),
)
def read_controller_event(data: bytes) -> None:
    events.decode_event(data)


POP_EXT = {
    "consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "32", "offset": "0",
    "invisibleTime": "60000", "pollTime": "15000", "bornTime": "1", "initMode": "0",
    "extraInfo": "0 1 2 3 0 b 0 0", "order": "TRUE", "exp": "a", "expType": "TAG",
}  # fmt: skip

TEXTS = JsonSerializer(str)
NUMBERED = RegisteredSerializer(7, TEXTS, lambda number: TEXTS)


@target(
    "client.registered_body",
    [NUMBERED.dumps("an order"), RegisteredSerializer(8, TEXTS, lambda _: TEXTS).dumps("another")],
    (ValueError, msgspec.MsgspecError),
)
def registered_body(data: bytes) -> None:
    NUMBERED.loads(data)


@target(
    "wire.recall_handle",
    [RecallHandle("T", "b", "1795883381001", "7F00", "9-1").encode().encode()],
    (),
)
def read_recall_handle(data: bytes) -> None:
    RecallHandle.parse(data.decode("latin-1"))


@target(
    "wire.pop_receipt",
    [b"0 1795883444356 10000 2 1 broker-p 0 0 16294", b"0 1 10000 999 0 b 1"],
    (RequestRejected,),
)
def read_receipt(data: bytes) -> None:
    """A receipt that is read names the same lease when it is written."""
    receipt = PopReceipt.parse(data.decode("latin-1"))
    assert PopReceipt.parse(receipt.encode())[:6] == receipt[:6]


@target(
    "wire.pop_headers",
    [json.dumps(POP_EXT).encode(), b'{"order":"yes","queueId":""}'],
    (ProtocolViolation, RequestRejected),
)
def read_pop_headers(data: bytes) -> None:
    try:
        ext = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolViolation("no ext fields") from None
    if not isinstance(ext, dict) or not all(isinstance(item, str) for item in ext.values()):
        raise ProtocolViolation("no ext fields")
    for form in PopFields.__subclasses__():
        form.read(ext).ext()


@target("wire.pop_places", [b"0 1 0;0 0 0", b"0 1 0,1,2", b"0 qo0%2 2;0 0 1"])
def read_places(data: bytes) -> None:
    text = data.decode("latin-1")
    for read in (parse_order_counts, parse_start_offsets, parse_msg_offsets):
        read(text)


@target("store.popped_record", RECORDS[:3], (CorruptRecord,))
def read_popped_record(data: bytes) -> None:
    with_receipt(data, b"TopicA", b"0 1 2 3 1 b 0 0")


@target("store.timer_source", [b"104857-7"], ())
def read_timer_source(data: bytes) -> None:
    parse_source(data.decode("latin-1"))


@target("store.timer_frontier", [encode_frontier(1795883382001, 7, 104857, [])], (CorruptRecord,))
def read_timer_frontier(data: bytes) -> None:
    decode_frontier(data, 9)


@target("client.order_of_a_topic", [b"broker-a:4;broker-b:2"], ())
def read_order(data: bytes) -> None:
    _parse_order(data.decode("latin-1"))


@target(
    "client.trace_line", [b"Pub\x011\x01r\x01g\x01T\x01id\x01t\x01k\x01h\x019\x013\x01true"], ()
)
def read_trace_line(data: bytes) -> None:
    _parse_event("id", data.decode("latin-1").split("\x01"), "c")
