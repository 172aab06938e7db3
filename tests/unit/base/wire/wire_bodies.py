"""Values of each body with every kind of member, and documents as other clients write them.

`tests/vectors/remoting/bodies.json` has the bytes of each from before the bodies were declared.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire import bodies, offset_bodies, route_bodies, stat_bodies
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.fastjson import encode, part, pretty

ODD = 'a/"\\\x01\x7f é 中\U0001f600'
"""Text in which fastjson escapes in three ways."""
LONG = (1 << 63) - 1
QUEUES = [MessageQueue("T", "b", 10), MessageQueue("T", "a", 2), MessageQueue(ODD, "a", 2)]
TAGS = SubscriptionData.for_tags("T", "z || a || Tag", LONG)
SQL = SubscriptionData(ODD, "a > 1", set(), set(), -1, "SQL92", True)
NO_TYPE = SubscriptionData("T", "*", expression_type=None)
VERSION = DataVersion(1700000000000, LONG)
EPOCH = DataVersion(1, 2, 3)
TOPICS = {
    "T": TopicConfig("T", 8, 4, 2, "MULTI_TAG", 5, True),
    ODD: TopicConfig(ODD),
    "A": TopicConfig("A"),
}
GROUPS = {
    "G": SubscriptionGroupConfig("G", False, False, False, 3, -1, 7, 8, False),
    "A": SubscriptionGroupConfig(ODD),
}
HEARTBEAT = bodies.HeartbeatData(
    "c@1",
    [
        bodies.ConsumerData(
            "G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [TAGS, SQL], True
        ),
        bodies.ConsumerData("H", subscriptions=[NO_TYPE]),
    ],
    [bodies.ProducerData("P"), bodies.ProducerData(ODD)],
)
ROUTE = route_bodies.TopicRoute(
    [route_bodies.QueueRoute("b", 8, 4, 6, 1), route_bodies.QueueRoute(ODD, 1, 2, 4)],
    [route_bodies.BrokerRoute(ODD, "b", {10: "h:1", 2: "i:2", 0: ODD})],
    {"h:1": ["f:1", "f:2"]},
    "b:8;a:2",
)
CLUSTER = route_bodies.ClusterInfo(
    {"b": route_bodies.BrokerRoute("C", "b", {1: "h:1", 0: "i:2"})}, {"C": ["b", ODD]}
)
REGISTRATION = route_bodies.RegisterBrokerBody(VERSION, TOPICS, ["f:1"])
CONNECTIONS = [
    stat_bodies.Connection("c", "1.2.3.4:5", "JAVA", 407),
    stat_bodies.Connection(ODD, "", None, 0),
]
BARE_UNIT = ExtensionUnit(1, 2, None)
UNIT = ExtensionUnit(7, LONG, bytes(range(1, 10)))


class Growth(NamedTuple):
    total: float
    per_second: float
    per_time: float


WRITTEN: dict[str, Callable[[], bytes]] = {
    "heartbeat": HEARTBEAT.encode,
    "heartbeat of nobody": bodies.HeartbeatData().encode,
    "lock": bodies.LockBatch("G", "c", QUEUES).encode,
    "check client": bodies.CheckClient("c", "G", TAGS).encode,
    "check client without": bodies.CheckClient("c", "G").encode,
    "registration": REGISTRATION.encode,
    "registration without servers": route_bodies.RegisterBrokerBody(EPOCH, {}, None).encode,
    "route": ROUTE.encode,
    "route in standard json": lambda: ROUTE.encode(standard_json=True),
    "route of nothing": route_bodies.TopicRoute().encode,
    "cluster": CLUSTER.encode,
    "reset offsets": offset_bodies.ResetOffsetBody(dict.fromkeys(QUEUES, LONG)).encode,
    "reset offsets as a list": offset_bodies.ResetOffsetBodyForC.from_table(
        dict.fromkeys(QUEUES, -1)
    ).encode,
    "consumer status": offset_bodies.ConsumerStatusBody({"d": {QUEUES[0]: 5}, "c": {}}).encode,
    "correction offsets": offset_bodies.CorrectionOffsets({10: 1, 2: LONG}).encode,
    "consume queue": offset_bodies.ConsumeQueueBody(
        1,
        LONG,
        [
            offset_bodies.QueueEntry(119, 120, -1),
            offset_bodies.QueueEntry(119, 120, -2).add_extension(UNIT, is_wanted=True),
            offset_bodies.QueueEntry(119, 120, -3).add_extension(BARE_UNIT, is_wanted=False),
            offset_bodies.QueueEntry(119, 120, -4, fault=ODD),
        ],
        TAGS,
        "null",
    ).encode,
    "consume queue without": offset_bodies.ConsumeQueueBody(0, 0, []).encode,
    "topic stats": stat_bodies.TopicStatsTable(
        {queue: stat_bodies.TopicOffset(0, LONG, 1) for queue in QUEUES}
    ).encode,
    "consume stats": stat_bodies.ConsumeStats(
        {queue: stat_bodies.ConsumeOffset(LONG, 4, 1) for queue in QUEUES}, 3.0
    ).encode,
    "consumer connection": stat_bodies.ConsumerConnection(
        CONNECTIONS, {"T": TAGS, ODD: SQL}, "CONSUME_ACTIVELY", "CLUSTERING", None
    ).encode,
    "producer connection": stat_bodies.ProducerConnection(CONNECTIONS).encode,
    "stats data": stat_bodies.BrokerStatsData.from_growths(
        [Growth(60, 1, 2), Growth(7, 0.5, 1.25), Growth(0, 0, 0)]
    ).encode,
    "consume stats list": stat_bodies.ConsumeStatsList(
        "h:1",
        [
            {
                "G": [
                    part(stat_bodies.ConsumeStats({QUEUES[0]: stat_bodies.ConsumeOffset(9, 4, 1)}))
                ]
            },
            {"A": []},
        ],
        5,
    ).encode,
    "producer table": stat_bodies.ProducerTable(
        {"P": [stat_bodies.ProducerClient("c", "JAVA", 407, LONG, "/1.2.3.4:5")], "A": []}
    ).encode,
    "topics": bodies.TopicTable(VERSION, TOPICS).encode,
    "topics.json": lambda: pretty(bodies.TopicTable(EPOCH, TOPICS)),
    "groups": bodies.GroupTable(VERSION, GROUPS).encode,
    "subscriptionGroup.json": lambda: pretty(bodies.GroupTable(EPOCH, GROUPS)),
    "version": lambda: encode(VERSION),
    "version with an epoch": lambda: encode(EPOCH),
    "subscription": lambda: encode(TAGS),
    "rivals": lambda: route_bodies.encode_rivals([route_bodies.Rival("b", 0, "h:1", ODD)]).encode(),
}
"""By name, a function that writes one body."""


def _decoded_table(found: Any) -> bytes:
    return repr(sorted(found.items())).encode()


READ: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "heartbeat of Go": (
        '{"clientID":"c","producerDataSet":[{"groupName":"P"},{}],"consumerDataSet":[{"groupName":'
        '"G","consumeType":"CONSUME_PASSIVELY","messageModel":"Clustering","consumeFromWhere":'
        '"CONSUME_FROM_FIRST_OFFSET","unitMode":false,"subscriptionDataSet":[{"classFilterMode":'
        'false,"topic":"T","subString":"a","tagsSet":["a"],"codeSet":["97"],"subVersion":"12",'
        '"expressionType":"TAG"}]}]}',
        lambda body: bodies.HeartbeatData.decode(body).encode(),
    ),
    "heartbeat with nulls and numbers": (
        '{"clientID":7,"producerDataSet":null,"consumerDataSet":[{"groupName":8,"consumeType":null,'
        '"subscriptionDataSet":[{"topic":"T","subString":null,"tagsSet":null,"codeSet":null,'
        '"expressionType":null}]},{"subscriptionDataSet":null,"unknown":{"a":[1]}}]}',
        lambda body: bodies.HeartbeatData.decode(body).encode(),
    ),
    "lock": (
        '{"mqSet":[{"topic":"T"},{"queueId":"3","brokerName":4}],"clientId":null}',
        lambda body: bodies.LockBatch.decode(body).encode(),
    ),
    "check client": (
        '{"subscriptionData":{"topic":"T","codeSet":[1,"2"]},"group":5}',
        lambda body: bodies.CheckClient.decode(body).encode(),
    ),
    "check client without": ("{}", lambda body: bodies.CheckClient.decode(body).encode()),
    "registration": (
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"4"},"U":{"topicName":"V",'
        '"readQueueNums":2.0,"order":true}},"dataVersion":{"counter":"5","timestamp":6,'
        '"stateVersion":7}},"filterServerList":["f",1]}',
        lambda body: route_bodies.RegisterBrokerBody.decode(body).encode(),
    ),
    "registration of nothing": (
        '{"topicConfigSerializeWrapper":null}',
        lambda body: route_bodies.RegisterBrokerBody.decode(body).encode(),
    ),
    "route": (
        '{"brokerDatas":[{"brokerAddrs":{0:"h:1","1":"i:2"},"brokerName":"b"}],"queueDatas":[{},'
        '{"brokerName":"b","perm":6,"readQueueNums":"8","topicSynFlag":3}],"filterServerTable":'
        '{"h:1":["f"],"i:1":[]},"orderTopicConf":5}',
        lambda body: route_bodies.TopicRoute.decode(body).encode(),
    ),
    "route of nulls": (
        '{"brokerDatas":null,"queueDatas":null,"filterServerTable":null,"orderTopicConf":null}',
        lambda body: route_bodies.TopicRoute.decode(body).encode(),
    ),
    "cluster": (
        '{"brokerAddrTable":{"b":{"cluster":"C","brokerName":"b","brokerAddrs":null}},'
        '"clusterAddrTable":{"C":["b",7],"D":[]}}',
        lambda body: route_bodies.ClusterInfo.decode(body).encode(),
    ),
    "connections": (
        '{"connectionSet":[{"clientId":"c","version":"407"},{"language":null,"clientAddr":"a:1"}]}',
        lambda body: stat_bodies.ProducerConnection.decode(body).encode(),
    ),
    "groups": (
        '{"subscriptionGroupTable":{"G":{"brokerId":"3","consumeEnable":false},"H":{"groupName":'
        '"I"}}}',
        lambda body: bodies.GroupTable.decode(body).encode(),
    ),
    "offsets": (
        '{"offsetTable":{"T@G":{0:5,"1":"7"},"U@G":{}}}',
        lambda body: _decoded_table(bodies.decode_offset_table(body)),
    ),
    "delays": (
        '{"offsetTable":{1:3,"2":"4"}}',
        lambda body: _decoded_table(bodies.decode_delay_offsets(body)),
    ),
    "kv": (
        '{"table":{"k":"v","n":7}}',
        lambda body: _decoded_table(bodies.decode_kv_table(body)),
    ),
    "strings": (
        '{"topicList":["T",5]}',
        lambda body: repr(bodies.decode_string_list(body, "topicList")).encode(),
    ),
    "locked": (
        '{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":1}]}',
        lambda body: bodies.LockBatch("", "", bodies.decode_queues(body)).encode(),
    ),
    "queue table": (
        '{"offsetTable":{{"queueId":"1","topic":"T","brokerName":"b"}:5,'
        '"{\\"brokerName\\":\\"b\\",\\"queueId\\":2,\\"topic\\":\\"T\\"}":6}}',
        lambda body: offset_bodies.ResetOffsetBody(bodies.decode_queue_table(body)).encode(),
    ),
}
"""By name, a document as another client writes it, and a function that reads and rewrites it."""
