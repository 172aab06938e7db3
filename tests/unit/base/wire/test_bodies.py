"""Bodies. Spec: remoting.md, chapters 7 to 9, appendix B."""

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.numbers import MOST_ITEMS
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire import bodies, route_bodies, stat_bodies
from rmq_ha.base.wire.batch import encode_batch, read_batch
from rmq_ha.base.wire.bodies import (
    CheckClient,
    HeartbeatData,
    LockBatch,
    MessageQueue,
    TopicTable,
)
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.route_bodies import (
    BrokerRoute,
    ClusterInfo,
    RegisterBrokerBody,
    RegistrationLimits,
)

QUEUE = MessageQueue("TopicA", "broker-a", 0)
MQ = '{"brokerName":"broker-a","queueId":0,"topic":"TopicA"}'
SUBSCRIPTION = SubscriptionData.for_tags("TopicA", "TagA")
DECODERS = [
    HeartbeatData.decode,
    LockBatch.decode,
    CheckClient.decode,
    RegisterBrokerBody.decode,
    route_bodies.TopicRoute.decode,
    ClusterInfo.decode,
    bodies.TopicTable.decode,
    bodies.GroupTable.decode,
    bodies.decode_offset_table,
    bodies.decode_delay_offsets,
    bodies.decode_kv_table,
    bodies.decode_queues,
    bodies.decode_queue_table,
    stat_bodies.ProducerConnection.decode,
    lambda body: bodies.decode_string_list(body, "topicList"),
    lambda body: RegisterBrokerBody.decode(body, compressed=True),
    lambda body: RegisterBrokerBody.decode(body, version=36),
]
MEMBERS = st.sampled_from(
    [
        *("clientID", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet"),
        *("mqSet", "topic", "queueId", "topicConfigSerializeWrapper", "topicConfigTable"),
        *("dataVersion", "filterServerList", "queueDatas", "brokerDatas", "brokerAddrs"),
        *("offsetTable", "table", "topicList", "connectionSet", "codeSet"),
    ]
)
SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=4),
    max_leaves=20,
)


def test_lock_batch_b5():
    text = f'{{"clientId":"c1","consumerGroup":"CG","mqSet":[{MQ}]}}'
    batch = LockBatch("CG", "c1", [QUEUE])
    assert LockBatch.decode(text.encode()) == batch
    assert batch.encode().decode() == text
    assert bodies.decode_queues(f'{{"lockOKMQSet":[{MQ}]}}'.encode()) == [QUEUE]


@pytest.mark.parametrize(
    ("decode", "one", "many"),
    [
        (HeartbeatData.decode, '{"consumerDataSet":[%s],"producerDataSet":[{},{}]}', "groups"),
        (HeartbeatData.decode, '{"producerDataSet":[%s],"consumerDataSet":[{},{}]}', "groups"),
        (
            HeartbeatData.decode,
            '{"consumerDataSet":[{"subscriptionDataSet":[%s]},{"subscriptionDataSet":[{},{}]}]}',
            "subscriptions",
        ),
        (LockBatch.decode, '{"mqSet":[{},{},%s]}', "queues"),
    ],
)
def test_items_of_a_request_are_counted_before_they_are_looked_at(decode, one, many):
    assert decode((one % ",".join(["{}"] * (MOST_ITEMS - 2))).encode())
    count = MOST_ITEMS + 1
    # No object can be made of a number: it is not tried.
    text = one % ",".join(["{}"] * (MOST_ITEMS - 2) + ["{}" if many == "subscriptions" else "7"])
    with pytest.raises(ProtocolViolation, match=f"^{count} {many}, more than the {MOST_ITEMS} "):
        decode(text.encode())


def test_a_queue_to_be_locked_is_no_string():
    """It would be read once more, in the dialect, which takes a hundred times as long."""
    with pytest.raises(ProtocolViolation, match="form"):
        LockBatch.decode(b'{"mqSet":["{topic:\'T\'}"]}')


def test_check_client_b6():
    check = CheckClient("c1", "CG", SUBSCRIPTION)
    assert CheckClient.decode(check.encode()) == check


def test_empty_heartbeat_is_accepted():
    assert HeartbeatData.decode(b"{}") == HeartbeatData()


def test_topic_stats_b10():
    table = {QUEUE: stat_bodies.TopicOffset(0, 10, 1700000000000)}
    body = stat_bodies.TopicStatsTable(table).encode()
    assert body.decode() == (
        f'{{"offsetTable":{{{MQ}:{{"lastUpdateTimestamp":1700000000000,"maxOffset":10,'
        '"minOffset":0}}}'
    )
    assert list(bodies.decode_queue_table(body)) == [QUEUE]


def test_consume_stats_b11():
    table = {QUEUE: stat_bodies.ConsumeOffset(10, 4, 1700000000000)}
    assert stat_bodies.ConsumeStats(table, 1.5).encode().decode() == (
        f'{{"consumeTps":1.5,"offsetTable":{{{MQ}:{{"brokerOffset":10,"consumerOffset":4,'
        '"lastTimestamp":1700000000000}}}'
    )


def test_a_queue_as_a_string_key_is_understood():
    body = encode({"offsetTable": {MQ: 5}})
    assert bodies.decode_queue_table(body) == {QUEUE: 5}


def test_a_queue_is_named_in_words():
    """The client's log had `MessageQueue(topic='orders', broker_name='broker-a', queue_id=3)`."""
    queue = bodies.MessageQueue("orders", "broker-a", 3)
    assert f"{queue}" == "queue 3 of orders at broker-a"


def test_connections_b3_and_b4():
    connection = stat_bodies.Connection("c1", "1.2.3.4:5", "JAVA", 407)
    told = stat_bodies.ConsumerConnection(
        [connection],
        {"TopicA": SUBSCRIPTION},
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )
    body = told.encode()
    assert body.startswith(
        b'{"connectionSet":[{"clientAddr":"1.2.3.4:5","clientId":"c1","language":"JAVA",'
        b'"version":407}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        b'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"TopicA":{'
    )
    assert stat_bodies.ConsumerConnection.decode(body) == told
    assert stat_bodies.ProducerConnection.decode(body).connections == [connection]


def test_tables_of_slave_synchronisation():
    topics = bodies.TopicTable(DataVersion(1, 2), {"T": TopicConfig("T", order=True)})
    assert bodies.TopicTable.decode(topics.encode()) == topics
    groups = bodies.GroupTable(DataVersion(1, 2), {"G": SubscriptionGroupConfig("G")})
    assert bodies.GroupTable.decode(groups.encode()) == groups
    offsets = b'{"offsetTable":{"TopicA@CG":{0:5,1:7}}}'
    assert bodies.decode_offset_table(offsets) == {"TopicA@CG": {0: 5, 1: 7}}
    assert bodies.decode_delay_offsets(b'{"offsetTable":{1:3,3:4}}') == {1: 3, 3: 4}
    assert bodies.decode_kv_table(b'{"table":{"k":"v"}}') == {"k": "v"}
    assert bodies.decode_string_list(b'{"topicList":["TopicA"]}', "topicList") == ["TopicA"]


def test_cluster_info_keeps_bare_ids():
    info = ClusterInfo({"broker-a": BrokerRoute("C", "broker-a", {0: "h:1"})}, {"C": ["broker-a"]})
    assert info.encode() == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"h:1"},"brokerName":"broker-a",'
        b'"cluster":"C"}},"clusterAddrTable":{"C":["broker-a"]}}'
    )
    assert ClusterInfo.decode(info.encode()) == info


@pytest.mark.parametrize(
    ("version", "ext", "standard"),
    [
        (401, None, True),
        (400, None, False),
        (317, {"acceptStandardJsonOnly": "true"}, True),
        (317, {"acceptStandardJsonOnly": "false"}, False),
    ],
)
def test_who_gets_standard_json(version, ext, standard):
    assert route_bodies.wants_standard_json(version, ext) is standard


def test_registration_without_body_and_of_old_brokers():
    assert RegisterBrokerBody.decode(None) == RegisterBrokerBody()
    table = bodies.TopicTable(DataVersion(1, 2), {"T": TopicConfig("T")})
    old = RegisterBrokerBody.decode(table.encode(), version=36)
    assert old == RegisterBrokerBody(DataVersion(1, 2), {"T": TopicConfig("T")}, None)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 5) + b"{}",
        struct.pack(">i", -5),
        struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 3) + b"T 8",
        struct.pack(">i", 2) + b"{}" + struct.pack(">i", 2**31 - 1),
        b"",
    ],
)
def test_malformed_compressed_registrations_are_violations(data):
    with pytest.raises(ProtocolViolation):
        RegisterBrokerBody.decode(zlib.compress(data), compressed=True)


def test_a_compressed_bomb_is_refused():
    bomb = zlib.compress(bytes(100_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolViolation, match="maxRegistrationBytes allows, 4194304"):
            RegisterBrokerBody.decode(bomb, compressed=True)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["json", "compressed", "old"])
def test_a_registration_has_so_many_topics(form):
    """115 KiB of them took 8.6 s, 5 MiB took 1.2 GiB."""
    version = 0 if form == "old" else 407
    limits = RegistrationLimits(topics=100)
    for count, is_taken in ((100, True), (101, False)):
        table = {f"T{n}": TopicConfig(f"T{n}", 8, 8) for n in range(count)}
        body = RegisterBrokerBody(DataVersion(1, 1), table)
        data = body.encode(compressed=form == "compressed")
        if form == "old":
            data = TopicTable(body.version, table).encode()
        reading = {"compressed": form == "compressed", "version": version, "limits": limits}
        if is_taken:
            assert len(RegisterBrokerBody.decode(data, **reading).topics) == count
            continue
        with pytest.raises(ProtocolViolation, match="101 topics; maxTopicsOfBroker allows 100"):
            RegisterBrokerBody.decode(data, **reading)


def test_as_many_topics_as_a_name_server_takes_fit_its_bytes():
    """A compressed topic of 50 characters, the largest registration that healthy brokers send."""
    table = {f"{n:050d}": TopicConfig(f"{n:050d}", 8, 8) for n in range(50_000)}
    data = RegisterBrokerBody(DataVersion(1, 1), table).encode(compressed=True)
    assert len(RegisterBrokerBody.decode(data, compressed=True).topics) == 50_000


@given(st.binary(max_size=40) | SHAPES.map(encode))
def test_any_body_gives_a_value_or_a_violation(body):
    for decode in DECODERS:
        try:
            decode(body)
        except ProtocolViolation:
            pass


@given(
    st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=9), st.text(max_size=9)),
        min_size=1,
        max_size=4,
    )
)
def test_batch_round_trip(members):
    assert list(read_batch(encode_batch(members))) == members


@given(st.binary(max_size=80))
def test_any_bytes_give_a_batch_or_a_violation(body):
    try:
        list(read_batch(body))
    except ProtocolViolation:
        pass


@pytest.mark.parametrize(
    "body",
    [
        bytes(21),
        struct.pack(">iiiiih", 0, 0, 0, 0, 0, 0),
        struct.pack(">iiiiih", 23, 0, 0, 0, 0, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, 2**31 - 1, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, -1, 0),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, 5),
        struct.pack(">iiiiih", -22, 0, 0, 0, 0, 0),
    ],
)
def test_malformed_batches_are_violations(body):
    with pytest.raises(ProtocolViolation):
        list(read_batch(body))
