"""What a slave drops when its master has deleted a topic, and what it must not."""

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.bodies import TopicTable
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.vanished_topics import GRACE_S, VanishedTopics


class Slave:
    """A slave's table, the time, and what is dropped."""

    def __init__(self) -> None:
        self.now = 0.0
        self.dropped: list[str] = []
        self.version, self.topics = DataVersion(1000, 5), {"T", "Other"}
        self.vanished = VanishedTopics(lambda: self.now)

    def copy(self, topics: set[str], counter: int, timestamp: int = 2000) -> None:
        """The master's table comes, ten seconds after the last one."""
        self.now += 10
        version = DataVersion(timestamp, counter)
        new = TopicTable(version, {name: TopicConfig(name, 1, 1) for name in topics})
        self.vanished.copied(self.version, self.topics, new)
        self.version, self.topics = version, topics
        self.look()

    def look(self) -> None:
        """Drop what is due."""
        for topic in self.vanished.due():
            self.dropped.append(topic)
            self.vanished.settled(topic)

    def wait(self) -> None:
        """The same table, until the grace is over."""
        for _ in range(int(GRACE_S / 10) + 1):
            self.copy(self.topics, self.version.counter, self.version.timestamp)


def message(topic: str) -> DispatchRequest:
    return DispatchRequest(topic, 0, 0, 100, 0, 1, 0, "", "", 0, 0, "")


def test_a_deleted_topic_is_dropped_after_a_minute() -> None:
    slave = Slave()
    slave.copy({"Other"}, 6)
    for _ in range(5):
        slave.copy({"Other"}, 6)
        assert slave.dropped == []
    slave.wait()
    assert slave.dropped == ["T"]
    slave.wait()
    assert slave.dropped == ["T"]


def test_the_minute_is_whole() -> None:
    slave = Slave()
    slave.copy({"Other"}, 6)
    slave.now += GRACE_S - 0.001
    slave.look()
    assert slave.dropped == []
    slave.now += 0.001
    slave.look()
    assert slave.dropped == ["T"]


def test_all_that_were_deleted_are_dropped() -> None:
    """Also in the ms of the change before it, which the stamp of a version cannot tell apart."""
    slave = Slave()
    slave.copy({"Left"}, 7, timestamp=1000)
    slave.wait()
    assert sorted(slave.dropped) == ["Other", "T"]


def test_messages_of_several_topics_put_off_each() -> None:
    slave = Slave()
    slave.copy({"Left"}, 7)
    for _ in range(12):
        slave.copy({"Left"}, 7)
        slave.vanished.note_messages(["Other", "T"])
    assert slave.dropped == []


def test_an_older_table_proves_nothing() -> None:
    """
    A master that lost its last change, or all of its tables, and starts again; or made another
    change in the place of the one that was lost.
    """
    for counter, timestamp in ((4, 900), (1, 3000), (6, 900), (5, 3000)):
        slave = Slave()
        slave.copy({"Other"}, counter, timestamp)
        slave.wait()
        assert slave.dropped == []


def test_a_topic_that_is_made_again_is_kept() -> None:
    slave = Slave()
    slave.copy({"Other"}, 6)
    slave.copy({"Other", "T"}, 7)
    slave.wait()
    assert slave.dropped == []


def test_messages_that_still_come_put_it_off() -> None:
    """The log lags behind the table, or the table behind the log."""
    slave = Slave()
    slave.copy({"Other"}, 6)
    for _ in range(12):
        slave.copy({"Other"}, 6)
        slave.vanished.note_messages(["T", "Other"])
    assert slave.dropped == []
    slave.wait()
    assert slave.dropped == ["T"]


def test_another_master_says_nothing_of_it() -> None:
    slave = Slave()
    slave.copy({"Other"}, 6)
    slave.vanished.forget()
    slave.wait()
    assert slave.dropped == []


def test_offsets_of_another_life() -> None:
    """A group that kept 40 would skip the first twenty messages of the new topic."""
    offsets = ConsumerOffsetManager(None, None, "")  # type: ignore[arg-type]
    offsets.commit("g", "T", 0, 40)
    offsets.commit("g", "T", 1, 3)
    offsets.commit("h", "T", 0, 2)
    offsets.commit("i", "T", 0, 9)
    offsets.commit("g", "Other", 0, 40)
    offsets.is_dirty = False
    assert offsets.begin_anew("T", 0, 3) == ["g", "i"]
    assert offsets.is_dirty
    assert offsets.table == {"T@g": {1: 3}, "T@h": {0: 2}, "Other@g": {0: 40}}
    offsets.is_dirty = False
    assert offsets.begin_anew("T", 0, 3) == []
    assert not offsets.is_dirty
    assert offsets.remove_topic("T") == 2
    assert offsets.table == {"Other@g": {0: 40}}
    assert offsets.is_dirty


def test_who_misses_messages_that_are_gone() -> None:
    """After files were deleted before their time."""
    offsets = ConsumerOffsetManager(None, None, "")  # type: ignore[arg-type]
    offsets.commit("g", "T", 0, 40)
    offsets.commit("g", "T", 1, 3)
    offsets.commit("h", "T", 0, 90)
    offsets.commit("i", "T", 0, 50)
    offsets.commit("j", "T", 0, 49)
    assert offsets.unread(lambda topic, queue_id: 50) == {"T@g": 57, "T@j": 1}
