"""Topics, groups, offsets and configuration as operators see them. Spec: remoting.md, chapter 7."""

import json
import re
from typing import Any

import pytest

import rmq_ha
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.bodies import (
    GroupTable,
    MessageQueue,
    TopicTable,
    decode_delay_offsets,
    decode_kv_table,
    decode_offset_table,
    decode_queue_table,
)
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.stat_bodies import REPLICATION_KEY
from rmq_ha.base.wire.versions import V5_0_0
from rmq_ha.server.broker.tables.clients import ClientChannelInfo
from tests.kits.channel import FakeChannel
from tests.unit.server.broker.asked_broker import AskedBroker
from tests.unit.server.broker.sim_broker import SimBroker

TOPIC = {
    "topic": "NewT",
    "defaultTopic": "TBW102",
    "readQueueNums": 3,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "true",
}


# ---------------------------------------------------------------- topics


def test_update_topic_is_registered_before_the_answer() -> None:
    kit = AskedBroker()
    before = kit.topics.data_version.counter
    assert kit.registered("NewT") is None
    known = kit.name_server.namesrv
    answers: list[Any] = []
    command = RemotingCommand(17, {name: str(value) for name, value in TOPIC.items()})
    kit.routes[17](kit.channel, command).addCallback(answers.append)
    assert kit.topics.get("NewT") == TopicConfig("NewT", 3, 2, 6)
    while "NewT" not in known.routes.topics():
        assert answers == []
        assert kit.world.clock.step()
    kit.advance(1)
    assert answers[0].code == 0
    assert kit.topics.data_version.counter == before + 1
    assert kit.request(17, {**TOPIC, "readQueueNums": 8}).code == 0
    assert kit.request(17, {**TOPIC, "writeQueueNums": 0}).code == 0  # it is being emptied


def test_update_topic_answers_although_name_servers_fail() -> None:
    kit = AskedBroker()
    kit.name_server.host.crash()
    assert kit.request(17, TOPIC).code == 0


def test_update_topic_keeps_the_order_that_name_servers_told() -> None:
    kit = AskedBroker()
    kit.topics.update(TopicConfig("NewT", order=True))
    kit.request(17, {**TOPIC, "order": "false"})
    assert kit.topics.is_order("NewT")


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "bad topic"},
        {"topic": ""},
        {"topic": "x" * 128},
        {"topic": "TBW102"},
        {"topic": "rmq_sys_x"},
        {"topic": "broker-a"},
        {"topic": "DefaultCluster_REPLY_TOPIC"},
        {"topicFilterType": "X"},
        {"readQueueNums": -1},
        {"writeQueueNums": 2**31 - 1},
        {"perm": "rw"},
        {"topicSysFlag": "x"},
    ],
)
def test_update_topic_refuses(changes: Any) -> None:
    kit = AskedBroker()
    before = dict(kit.topics.table)
    assert kit.request(17, {**TOPIC, **changes}).code == 1
    assert kit.topics.table == before


@pytest.mark.parametrize("name", list(TOPIC))
def test_update_topic_with_a_field_missing(name: str) -> None:
    """What Java can do without, we can."""
    ext = {key: value for key, value in TOPIC.items() if key != name}
    optional = name in ("defaultTopic", "topicSysFlag", "order")
    assert AskedBroker().request(17, ext).code == (0 if optional else 1)


def test_all_topics() -> None:
    kit = AskedBroker()
    answer = kit.request(21)
    assert answer.ext == {}
    assert TopicTable.decode(answer.body) == TopicTable(kit.topics.data_version, kit.topics.table)


@pytest.mark.parametrize("keeps", [False, True])
def test_with_a_topic_its_groups_lose_their_offsets_unless_they_are_kept(keeps: bool) -> None:
    kit = AskedBroker()
    kit.configuration.ours.keep_offsets_of_deleted_topics = keeps
    for topic in ("TopicA", "Other"):
        kit.offsets.commit("G", topic, 0, 7)
        kit.offsets.commit("H", topic, 0, 7)
    assert kit.request(215, {"topic": "TopicA"}).code == 0
    left = {"Other@G", "Other@H"} | ({"TopicA@G", "TopicA@H"} if keeps else set())
    assert set(kit.offsets.table) == left


def test_delete_topic() -> None:
    kit = AskedBroker()
    kit.put("TopicA")
    assert kit.request(215, {"topic": "TopicA"}).code == 0
    assert kit.topics.get("TopicA") is None
    assert kit.store.max_offset_in_queue("TopicA", 0) == 0
    assert kit.request(215, {"topic": "nope"}).code == 0
    for topic in ("TBW102", "a b", ""):
        assert kit.request(215, {"topic": topic}).code == 1
    assert kit.request(215).code == 1


def test_slaves_change_nothing() -> None:
    kit = AskedBroker(BrokerRole.SLAVE)
    group = {"groupName": "G9"}
    assert kit.request(17, TOPIC).code == 1
    assert kit.request(215, {"topic": "TopicA"}).code == 1
    assert kit.request(200, None, group).code == 1
    assert kit.request(207, group).code == 1
    assert kit.topics.get("TopicA") is not None
    assert kit.groups.get("G9") is None


def test_topic_stats() -> None:
    kit = AskedBroker()
    kit.topics.update(TopicConfig("T", 1, 2))
    kit.put("T", 1)
    kit.put("T", 1)
    body = kit.request(202, {"topic": "T"}).body
    assert body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{')
    assert decode_queue_table(body) == {
        MessageQueue("T", "broker-a", 0): {
            "minOffset": 0,
            "maxOffset": 0,
            "lastUpdateTimestamp": 0,
        },
        MessageQueue("T", "broker-a", 1): {
            "minOffset": 0,
            "maxOffset": 2,
            "lastUpdateTimestamp": kit.messages[-1].store_timestamp,
        },
    }
    assert kit.request(202, {"topic": "nope"}).code == 17


def test_who_consumes() -> None:
    kit = AskedBroker()
    kit.heartbeat(kit.channel, "c1", "online", "TopicA")
    kit.offsets.commit("offline", "TopicA", 0, 1)
    assert kit.request(300, {"topic": "TopicA"}).body == b'{"groupList":["offline","online"]}'
    assert kit.request(300, {"topic": "nope"}).body == b'{"groupList":[]}'


def test_system_topics() -> None:
    """The list of a Java 4.9.7."""
    assert set(json.loads(AskedBroker().request(305).body)["topicList"]) == {
        "SCHEDULE_TOPIC_XXXX",
        "DefaultCluster",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "BenchmarkTest",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TBW102",
        "broker-a",
        "DefaultCluster_REPLY_TOPIC",
        "SELF_TEST_TOPIC",
    }


# ---------------------------------------------------------------- groups


def test_update_and_delete_group() -> None:
    """Missing members take the class defaults."""
    kit = AskedBroker()
    assert kit.request(200, None, {"groupName": "G9", "retryMaxTimes": 3}).code == 0
    assert kit.groups.get("G9") == SubscriptionGroupConfig("G9", retry_max_times=3)
    told = GroupTable.decode(kit.request(201).body)
    assert told == GroupTable(kit.groups.data_version, kit.groups.table)
    kit.offsets.commit("G9", "TopicA", 0, 1)
    assert kit.request(207, {"groupName": "G9"}).code == 0
    assert kit.groups.get("G9") is None
    assert kit.offsets.query("G9", "TopicA", 0) == 1
    assert kit.request(207, {"groupName": "G9", "removeOffset": "true"}).code == 0
    assert kit.offsets.query("G9", "TopicA", 0) == -1
    assert kit.request(207).code == 1


def test_the_retry_topic_grows_with_its_group() -> None:
    """It never shrinks, and a group that was never used gets no retry topic by its settings."""
    kit = AskedBroker()
    wanted = {"groupName": "G9", "retryQueueNums": 4}
    assert kit.request(200, None, wanted).code == 0
    assert kit.topics.get("%RETRY%G9") is None
    kit.topics.update(TopicConfig("%RETRY%G9", 1, 6, topic_sys_flag=2))
    assert kit.request(200, None, wanted).code == 0
    wider = TopicConfig("%RETRY%G9", 4, 6, topic_sys_flag=2)
    assert kit.topics.get("%RETRY%G9") == wider
    queues = kit.registered("%RETRY%G9")
    assert queues is not None
    assert (queues["readQueueNums"], queues["writeQueueNums"]) == (4, 6)
    version = kit.topics.data_version.counter
    for fewer in (4, 2):
        assert kit.request(200, None, {**wanted, "retryQueueNums": fewer}).code == 0
    assert kit.topics.get("%RETRY%G9") == wider
    assert kit.topics.data_version.counter == version


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"{",
        b"null",
        {},
        {"groupName": ""},
        {"groupName": [1]},
        {"groupName": "a\nb"},
        {"groupName": "a\x1b[2J"},
        {"groupName": "a\u2028b"},
        {"groupName": "TopicA@G"},
        {"groupName": "G" * 256},
        {"groupName": "G", "retryMaxTimes": "x"},
        {"groupName": "G", "retryQueueNums": 10**9},
        {"groupName": "G", "retryQueueNums": [1]},
    ],
)
def test_update_group_refuses(body: Any) -> None:
    assert AskedBroker().request(200, None, body).code == 1


def test_consumer_connections() -> None:
    kit = AskedBroker()
    kit.heartbeat(FakeChannel(1), "c1", "G1", "TopicA")
    assert json.loads(kit.request(203, {"consumerGroup": "G1"}).body) == {
        "connectionSet": [
            {"clientAddr": "127.0.0.1:1", "clientId": "c1", "language": "JAVA", "version": 407}
        ],
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {
            "TopicA": {
                "classFilterMode": False,
                "codeSet": [42],
                "expressionType": "TAG",
                "subString": "*",
                "subVersion": 1,
                "tagsSet": [],
                "topic": "TopicA",
            }
        },
    }
    answer = kit.request(203, {"consumerGroup": "nope"})
    assert (answer.code, answer.remark) == (206, "the consumer group[nope] not online")


def test_producer_connections() -> None:
    kit = AskedBroker()
    kit.heartbeat(FakeChannel(1), "c1", "G1", "TopicA")
    assert json.loads(kit.request(204, {"producerGroup": "PG"}).body)["connectionSet"] == [
        {"clientAddr": "127.0.0.1:1", "clientId": "c1", "language": "JAVA", "version": 407}
    ]
    assert kit.request(204, {"producerGroup": "nope"}).code == 1


def test_consume_stats() -> None:
    """By read queue of the topics with committed offsets, as Java 4.9.7 tells it."""
    kit = AskedBroker()
    kit.topics.update(TopicConfig("T", 2, 1))
    kit.put("T")
    kit.put("T")
    assert kit.request(208, {"consumerGroup": "G"}).body == b'{"consumeTps":0.0,"offsetTable":{}}'
    kit.offsets.commit("G", "T", 0, 1)
    kit.offsets.commit("G", "gone", 0, 1)
    kit.stats.count_pull("T", 0, "G", 20, 1000)
    kit.advance(10)  # the next sampling
    expected = {
        MessageQueue("T", "broker-a", 0): {
            "brokerOffset": 2,
            "consumerOffset": 1,
            "lastTimestamp": kit.messages[0].store_timestamp,
        },
        MessageQueue("T", "broker-a", 1): {
            "brokerOffset": 0,
            "consumerOffset": 0,
            "lastTimestamp": 0,
        },
    }
    body = kit.request(208, {"consumerGroup": "G"}).body
    assert decode_queue_table(body) == expected
    assert body.startswith(b'{"consumeTps":2.0,')
    by_topic = kit.request(208, {"consumerGroup": "G", "topic": "T"}).body
    assert decode_queue_table(by_topic) == expected
    kit.offsets.commit("G", "T", 0, 9)  # of what nobody can read any more
    told = decode_queue_table(kit.request(208, {"consumerGroup": "G"}).body)
    assert told[MessageQueue("T", "broker-a", 0)] == {
        "brokerOffset": 2,
        "consumerOffset": 9,
        "lastTimestamp": 0,
    }
    # a live group that does not subscribe the topic any more
    kit.heartbeat(kit.channel, "c", "G", "TopicA")
    assert decode_queue_table(kit.request(208, {"consumerGroup": "G"}).body) == {}
    assert kit.request(208).code == 0


def test_stats_data() -> None:
    """VIEW_BROKER_STATS_DATA: as Java encodes it; an unknown name or key is an error."""
    kit = AskedBroker()
    kit.stats.put("T", 0, 20, 1000, 10)
    kit.advance(10)
    header = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
    assert kit.request(315, header).body == (
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":2.0,"sum":20,"tps":2.0}}'
    )
    refused = kit.request(315, {**header, "statsKey": "U"})
    assert (refused.code, refused.remark) == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")
    assert kit.request(315, {"statsName": "TOPIC_PUT_NUMS"}).code == 1
    kit.request(215, {"topic": "T"})
    assert kit.request(315, header).code == 1


def test_consume_stats_of_all_groups() -> None:
    """GET_BROKER_CONSUME_STATS: every known group, over the write queues of its topics."""
    kit = AskedBroker()
    kit.topics.update(TopicConfig("T", 2, 1))
    kit.topics.update(TopicConfig("Ordered", 1, 1, order=True))
    for topic in ("T", "T", "T", "Ordered"):
        kit.put(topic)
    kit.groups.find("G")
    kit.groups.find("idle")
    kit.offsets.commit("G", "T", 0, 1)
    kit.offsets.commit("G", "Ordered", 0, 0)
    body = kit.request(317, {"isOrder": "false"}).body
    assert body.startswith(b'{"brokerAddr":"127.0.0.1:10911","consumeStatsList":[')
    assert body.endswith(b'"totalDiff":3}')
    assert b'{"idle":[]}' in body
    assert b'"queueId":0,"topic":"T"}:{"brokerOffset":3,"consumerOffset":1' in body
    assert b'"queueId":1,"topic":"T"' not in body  # it has one write queue
    ordered = kit.request(317, {"isOrder": "true"}).body
    assert b'"topic":"Ordered"' in ordered
    assert b'"topic":"T"' not in ordered
    assert kit.request(317).code == 1


def test_consume_stats_of_many_groups_take_many_turns() -> None:
    """Each group walked the offsets of all groups, and all of it was one turn."""
    kit = AskedBroker()
    kit.topics.update(TopicConfig("T", 100, 100))
    for number in range(50):
        kit.groups.find(f"G{number}")
        for queue_id in range(100):
            kit.offsets.commit(f"G{number}", "T", queue_id, 1)
    walks: list[object] = []
    split = kit.offsets._split
    kit.offsets._split = lambda: walks.append(0) or split()
    clock: Any = kit.host.clock
    later, turns = clock.callLater, []
    clock.callLater = lambda *call: turns.append(call) or later(*call)
    answers: list[RemotingCommand] = []
    command = RemotingCommand(317, {"isOrder": "false"})
    kit.routes[317](kit.channel, command).addCallback(answers.append)
    assert not answers
    kit.advance(0.01)
    assert [seconds for seconds, *_ in turns].count(0) == 4
    assert len(walks) == 1
    assert answers[0].body is not None
    assert answers[0].body.count(b'"brokerOffset"') == 5000


def test_all_producers() -> None:
    """GET_ALL_PRODUCER_INFO: every connection of every group."""
    kit = AskedBroker()
    assert kit.request(328, {}).body == b'{"data":{}}'
    kit.producers.register("P", ClientChannelInfo(kit.channel, "c1", "JAVA", 407, 4711))
    assert json.loads(kit.request(328).body) == {
        "data": {
            "P": [
                {
                    "clientId": "c1",
                    "language": "JAVA",
                    "lastUpdateTimestamp": 4711,
                    "remoteIP": f"/{kit.channel.remote_text}",
                    "version": 407,
                }
            ]
        }
    }


# ---------------------------------------------------------------- offsets


def test_bounds() -> None:
    kit = AskedBroker()
    for _ in range(3):
        kit.put("TopicA", 1)
        kit.advance(5)
    first, _, last = (message.store_timestamp for message in kit.messages)
    where = {"topic": "TopicA", "queueId": 1}
    assert kit.request(30, where).ext == {"offset": "3"}
    assert kit.request(31, where).ext == {"offset": "0"}
    assert kit.request(32, where).ext == {"timestamp": str(first)}
    assert kit.request(29, {**where, "timestamp": 12}).ext == {"offset": "0"}
    assert kit.request(29, {**where, "timestamp": last}).ext == {"offset": "2"}
    unknown = {"topic": "nope", "queueId": 0}
    assert kit.request(30, unknown).ext == {"offset": "0"}
    assert kit.request(32, unknown).ext == {"timestamp": "-1"}
    for code in (29, 30, 31, 32):
        assert kit.request(code, {"topic": "TopicA", "queueId": "x"}).code == 1
        assert kit.request(code).code == 1


def test_offsets_for_a_slave() -> None:
    kit = AskedBroker()
    assert kit.request(43).body == b'{"offsetTable":{}}'
    kit.offsets.commit("CG", "TopicA", 0, 5)
    kit.offsets.commit("CG", "TopicA", 1, 7)
    body = kit.request(43).body
    assert body == b'{"offsetTable":{"TopicA@CG":{0:5,1:7}}}'
    assert decode_offset_table(body) == kit.offsets.table
    for level in (1, 1, 1, 3, 3, 3, 3):
        kit.put("TopicA", DELAY=str(level))
    kit.advance(15)
    body = kit.request(45).body
    assert body == b'{"offsetTable":{1:3,3:4}}'
    assert decode_delay_offsets(body) == {1: 3, 3: 4}


def test_a_slave_of_5_gets_the_version_of_the_offsets() -> None:
    """Java 5.3.3 takes it over unseen, and fails without it before it has written the offsets."""
    kit = AskedBroker()
    kit.offsets.commit("CG", "TopicA", 0, 5)
    assert kit.request(43, version=V5_0_0).body == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        b'"groupTopicMap":{"CG":["TopicA"]},"offsetTable":{"TopicA@CG":{0:5}}}'
    )


# ---------------------------------------------------------------- configuration

# Of a fresh Java 4.9.7; the directory's own ratio and the delay levels come with use.
RUNTIME_KEYS = [
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
    "bootTimestamp",
    "brokerVersion",
    "brokerVersionDesc",
    "commitLogDirCapacity",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getFoundTps",
    "getMessageEntireTimeMax",
    "getMissTps",
    "getTotalTps",
    "getTransferedTps",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putLatency99",
    "putLatency999",
    "putMessageAverageSize",
    "putMessageDistributeTime",
    "putMessageEntireTimeMax",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "putTps",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainTransientStoreBufferNumbs",
    "runtime",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
]


def test_runtime_info() -> None:
    """The broker's own keys and the store's."""
    table = decode_kv_table(AskedBroker().request(28).body)
    assert (table["brokerVersion"], table["brokerVersionDesc"]) == ("407", "V4_9_7")
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["commitLogMaxOffset"] == "0"


def test_runtime_info_of_a_whole_broker() -> None:
    """Every key of Java's; each message counted once, whichever way it came and went."""
    broker = SimBroker().start()
    broker.world.clock.run_for(2)
    broker.send(b"1")
    broker.send(b"2")
    broker.world.clock.run_for(9.5)
    broker.pull()
    table = decode_kv_table(broker.call(RemotingCommand(28)).body)
    assert set(RUNTIME_KEYS) <= set(table)
    assert REPLICATION_KEY not in table  # mqadmin prints whatever is there
    asked = RemotingCommand(28, {REPLICATION_KEY: "true"})
    told = json.loads(decode_kv_table(broker.call(asked).body)[REPLICATION_KEY])
    assert told == {
        "role": "ASYNC_MASTER",
        "slaves": [],
        "promotions": 0,
        "now_ms": broker.world.hosts["broker"].now_ms(),
        "release": rmq_ha.__version__,
    }
    assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "2"
    assert table["putMessageSizeTotal"] == str(broker.broker.store.log.max_offset)
    assert table["msgGetTotalTodayNow"] == "2"
    assert sum(map(int, re.findall(r":(\d+) ", table["putMessageDistributeTime"]))) == 2
    assert table["putTps"].count(" ") == 2
    assert float(table["putTps"].split()[0]) > 0
    broker.stop()


def test_get_config() -> None:
    kit = AskedBroker()
    answer = kit.request(26)
    version = json.loads(answer.ext["version"])
    assert version["counter"] == 0
    assert 0 <= kit.host.now_ms() - version["timestamp"] < 1000
    lines = answer.body.decode().splitlines()
    assert "brokerName=broker-a" in lines
    assert "slaveReadEnable=false" in lines
    assert "brokerRole=ASYNC_MASTER" in lines
    assert not [line for line in lines if line.endswith("=") or "=" not in line]


@pytest.mark.parametrize("threads", [None, 77])
def test_callback_threads_are_told_though_there_are_none(threads: int | None) -> None:
    """`mqadmin exportMetrics` takes them for the number of processors where nobody set them."""
    kit = AskedBroker()
    kit.configuration.unserved.clientCallbackExecutorThreads = threads
    lines = kit.request(26).body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("clientCallbackExecutorThreads=")]
    assert (line == "clientCallbackExecutorThreads=77") == (threads is not None)


def test_update_config() -> None:
    kit = AskedBroker()
    answer = kit.request(25, None, b"slaveReadEnable=true\nfoo=bar\n# a comment\n")
    assert answer.code == 0
    assert kit.broker_config.slave_read_enable
    assert kit.saved == {"brokerName": "broker-a", "slaveReadEnable": "true"}
    assert json.loads(kit.request(26).ext["version"])["counter"] == 1
    assert kit.request(25).code == 0
    assert kit.request(25, None, b"foo=bar").code == 0
    assert "foo" not in kit.saved


def test_update_of_the_permission_registers_again() -> None:
    kit = AskedBroker()
    before = kit.topics.data_version.counter
    assert kit.request(25, None, b"brokerPermission=4").code == 0
    assert kit.broker_config.broker_permission == 4
    assert kit.topics.data_version.counter == before + 1
    kit.advance(1)
    queues = kit.registered("TopicA")
    assert queues is not None
    assert queues["perm"] == 4


@pytest.mark.parametrize(
    "body",
    [
        b"slaveReadEnable=maybe",
        b"slaveReadEnable=true\nserverSocketBacklog=7",
        b"slaveReadEnable=true\nx=\\u12",
    ],
)
def test_update_config_is_all_or_nothing(body: bytes) -> None:
    kit = AskedBroker()
    assert kit.request(25, None, body).code == 1
    assert not kit.broker_config.slave_read_enable
    assert kit.saved == {"brokerName": "broker-a"}


@pytest.mark.parametrize(
    "key",
    [
        "storePathRootDir",
        "rocketmqHome",
        "brokerConfigPath",
        "listenPort",
        "namesrvAddr",
        "brokerRole",
        "messageStorePlugIn",
        "somebodysPlugIn",
        "tls.server.trustCertPath",
        "audit.path",
        "aclEnable",
        "filterServerNums",
    ],
)
def test_what_is_dangerous_cannot_be_changed_from_afar(key: str) -> None:
    """Where files are, which code runs, who may do what: only in the file, by hand."""
    kit = AskedBroker()
    answer = kit.request(25, None, f"slaveReadEnable=true\n{key}=x".encode())
    assert answer.code == 16
    assert key in answer.remark
    assert not kit.broker_config.slave_read_enable
    assert kit.saved == {"brokerName": "broker-a"}
