"""TopicConfigManager. Spec: store.md, section 12.2; remoting.md, sections 4.4, 7.7, 9.6."""

from random import Random
from typing import Any

from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import TopicTable
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

PATH = "/store/config/topics.json"


class Ticking:
    """A clock for `now_ms`: later at each call."""

    value = 1000

    def __call__(self) -> int:
        self.value += 1
        return self.value


def make(disk: SimDisk | None = None, **settings: Any) -> TopicConfigManager:
    config = BrokerConfig(broker_name="broker-a", **settings)
    return TopicConfigManager(
        disk or SimDisk(Random(1), lambda: 0), AtOnce(), PATH, config, Ticking()
    )


def test_built_in_topics() -> None:
    """Spec: remoting.md, section 4.4, table."""
    found = {
        name: (item.read_queue_nums, item.write_queue_nums, item.perm)
        for name, item in make().table.items()
    }
    assert found == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
    }


def test_built_in_topics_by_configuration() -> None:
    table = make(
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
    ).table
    assert "TBW102" not in table
    assert table["DefaultCluster"].perm == 1
    assert table["broker-a"].perm == 1
    trace = table["RMQ_SYS_TRACE_TOPIC"]
    assert (trace.read_queue_nums, trace.write_queue_nums) == (1, 1)


def test_a_fresh_broker_starts_at_version_0_and_writes_nothing() -> None:
    disk = SimDisk(Random(1), lambda: 0)
    topics = make(disk)
    assert topics.data_version.counter == 0
    assert topics.data_version.timestamp > 0
    topics.load()
    assert not disk.exists(PATH)


def test_create_in_send() -> None:
    """Queues: the smaller wish; perm: the template's without INHERIT; version, file, callback."""
    disk = SimDisk(Random(1), lambda: 0)
    topics = make(disk)
    seen: list[TopicConfig] = []
    topics.on_creation(lambda config: succeed(seen.append(config)))
    created = topics.create_in_send("T", "TBW102", 4, 1)
    assert created == TopicConfig("T", 4, 4, 6, "SINGLE_TAG", 1, False)
    assert seen == [created]
    assert topics.data_version.counter == 1
    assert b'"T":{' in disk.read_bytes(PATH)
    assert topics.create_in_send("T", "TBW102", 9, 0) is created
    assert topics.data_version.counter == 1
    assert seen == [created]


def test_a_new_topic_is_ordinary_when_it_is_written_and_told() -> None:
    """Until then sends to it are not answered; one that was made again waits for its own news."""
    topics, told, answers = make(), list[Deferred[None]](), list[str]()
    topics.on_creation(lambda config: told.append(Deferred()) or told[-1])
    topics.create_in_send("T", "TBW102", 4, 0)
    topics.delete("T")
    topics.create_in_send("T", "TBW102", 4, 0)
    for news, is_ready in zip(told, (False, True), strict=True):
        held = topics.when_ready("T", "answer")
        assert isinstance(held, Deferred)
        held.addCallback(answers.append)
        assert not topics.is_ready("T")
        news.callback(None)
        assert topics.is_ready("T") is is_ready
        assert topics.ordinary_queues("T") == (4 if is_ready else 0)
    assert answers == ["answer"] * 2
    assert topics.when_ready("T", "at once") == "at once"


def test_create_in_send_limits_queues() -> None:
    topics = make()
    many, few = (
        topics.create_in_send("A", "TBW102", 99, 0),
        topics.create_in_send("B", "TBW102", -3, 0),
    )
    assert many is not None
    assert many.write_queue_nums == 8
    assert few is not None
    assert few.write_queue_nums == 0


def test_create_in_send_refused() -> None:
    """No template, or one that may not be inherited from."""
    topics = make()
    assert topics.create_in_send("T", "nowhere", 4, 0) is None
    assert topics.create_in_send("T", "SELF_TEST_TOPIC", 4, 0) is None
    closed = make(auto_create_topic_enable=False)
    closed.update(TopicConfig("TBW102", 8, 8, 7))
    assert closed.create_in_send("T", "TBW102", 4, 0) is None
    inherited = closed.create_in_send("T", "DefaultCluster", 4, 0)
    assert inherited is not None


def test_a_full_table_creates_nothing_for_a_producer() -> None:
    """What is there already is given all the same."""
    topics = make()
    most = len(topics.table) + 1
    topics._most = lambda: most
    last = topics.create_in_send("T", "TBW102", 4, 0)
    assert last is not None
    assert topics.create_in_send("U", "TBW102", 4, 0) is None
    assert topics.create_in_send("T", "TBW102", 4, 0) is last
    assert topics.not_created == 1


def test_what_brokers_register_is_new_when_their_permission_is() -> None:
    topics = make()
    before = topics.data_version.counter
    topics.permission_changed()
    assert topics.data_version.counter == before + 1


def test_retry_topics_are_always_created() -> None:
    created = make(auto_create_topic_enable=False).create_in_send("%RETRY%CG", "TBW102", 4, 2)
    assert created == TopicConfig("%RETRY%CG", 1, 1, 6, "SINGLE_TAG", 2)


def test_create_in_send_back() -> None:
    topics = make()
    created = topics.create_in_send_back("%DLQ%CG")
    assert created == TopicConfig("%DLQ%CG", 1, 1, 6)
    assert topics.create_in_send_back("%DLQ%CG", 5, 2) is created


def test_the_file_is_the_same_whatever_was_laid_out_before() -> None:
    """Parts that are kept: of topics that changed, went, or came under another name."""
    topics = make()
    topics.update(TopicConfig("T", 2, 2))
    topics.update(TopicConfig("U", 2, 2))
    for change in (
        lambda: topics.update(TopicConfig("T", 3, 4, 4)),
        lambda: topics.delete("U"),
        lambda: topics.update_order({"T"}),
        lambda: topics.replace_all(DataVersion(5, 5), {"V": TopicConfig("V", 1, 1)}),
    ):
        topics.encode()
        change()
        whole = TopicTable(topics.data_version, dict(topics.table))
        assert topics.encode() == fastjson.pretty(whole)


def test_update_and_delete() -> None:
    """Updates replace the whole; both bump the version; neither calls back."""
    topics = make()
    seen: list[TopicConfig] = []
    topics.on_creation(lambda config: succeed(seen.append(config)))
    topics.update(TopicConfig("T", 2, 2))
    topics.update(TopicConfig("T", 3, 4, 4))
    assert topics.get("T") == TopicConfig("T", 3, 4, 4)
    assert topics.data_version.counter == 2
    assert topics.delete("T") is not None
    assert topics.delete("T") is None
    assert topics.data_version.counter == 3
    assert seen == []


def test_update_order() -> None:
    """Listed topics are ordered, all others are not; an equal list changes no version."""
    topics = make()
    topics.update(TopicConfig("A"))
    topics.update(TopicConfig("B", order=True))
    assert topics.update_order({"A": "broker-a:8", "unknown": "x"}) is True
    assert topics.is_order("A")
    assert not topics.is_order("B")
    assert topics.data_version.counter == 3
    assert topics.update_order({"A": "broker-a:9"}) is False
    assert topics.data_version.counter == 3


def test_system_topics() -> None:
    topics = make()
    for name in ("TBW102", "rmq_sys_x", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"):
        assert topics.is_system(name), name
    assert not topics.is_system("T")
    trace = "RMQ_SYS_TRACE_TOPIC"
    for enabled in (False, True):
        named = make(trace_topic_enable=enabled, msg_trace_topic_name="Traces")
        assert (named.is_system("Traces"), named.is_system("T")) == (enabled, False)
        assert named.is_system(trace)  # by its prefix


def test_replace_all_adopts_the_version_and_drops_the_rest() -> None:
    disk = SimDisk(Random(1), lambda: 0)
    topics = make(disk)
    topics.update(TopicConfig("mine"))
    topics.replace_all(DataVersion(77, 5), {"his": TopicConfig("his")})
    assert list(topics.table) == ["his"]
    assert topics.data_version == DataVersion(77, 5)
    again = make(disk)
    again.load()
    assert again.data_version == DataVersion(77, 5)
    assert "his" in again.table


def test_a_file_is_merged_over_the_built_in_topics() -> None:
    """Members of a topic that this version does not know are kept."""
    disk = SimDisk(Random(1), lambda: 0)
    disk.replace(
        PATH,
        b'{"dataVersion":{"counter":9,"timestamp":8},"topicConfigTable":{"T":{"perm":4,'
        b'"future":1},"TBW102":{"writeQueueNums":3}}}',
    )
    topics = make(disk)
    topics.load()
    assert topics.get("T") == TopicConfig("T", 16, 16, 4, foreign={"future": 1})
    assert topics.table["TBW102"].write_queue_nums == 3
    assert "BenchmarkTest" in topics.table
    assert topics.data_version == DataVersion(8, 9)


def test_to_body() -> None:
    """Spec: remoting.md, chapter 8, the body of code 21."""
    topics = make()
    topics.replace_all(DataVersion(1700000000000, 3), {"TopicA": TopicConfig("TopicA", 8, 8)})
    assert topics.to_body() == (
        b'{"dataVersion":{"counter":3,"timestamp":1700000000000},"topicConfigTable":{"TopicA":'
        b'{"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":'
        b'"TopicA","topicSysFlag":0,"writeQueueNums":8}}}'
    )
