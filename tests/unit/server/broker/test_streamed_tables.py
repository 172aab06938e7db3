"""A broker's tables as pieces: what a master says is what its slave has."""

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pages import PAGE_SIZE
from rmq_ha.server.replication.epochs.tables import TableEntry
from tests.unit.server.broker.slave_tables import MAIN, OFFSETS, TableSet


class Pair:
    """A master that has some of everything, and a slave that got it."""

    def __init__(self) -> None:
        self.master, self.slave = TableSet(), TableSet()
        self.changed: set[TableEntry] = set()
        self.master.tables.watch(self.changed.add)
        self.master.topics.update(TopicConfig("T"))
        self.master.groups.update(SubscriptionGroupConfig("g"))
        self.master.offsets.commit("g", "T", 0, 5)
        self.master.delivery.offset_table[3] = 7
        self.slave.slave.set_master_address(MAIN)
        self.begin()

    def begin(self) -> None:
        self.changed.clear()
        for piece in self.master.tables.all_pieces():
            self.slave.tables.take(piece)

    def send(self) -> None:
        changed = sorted(self.changed)
        self.changed.clear()
        for piece in self.master.tables.news(changed):
            self.slave.tables.take(piece)

    def is_equal(self) -> bool:
        master, slave = self.master, self.slave
        return (
            master.topics.table == slave.topics.table
            and master.topics.data_version == slave.topics.data_version
            and master.groups.table == slave.groups.table
            and master.groups.data_version == slave.groups.data_version
            and master.offsets.table == slave.offsets.table
        )


def test_a_slave_begins_with_everything():
    pair = Pair()
    assert pair.is_equal()
    assert pair.slave.delays.text == b'{"offsetTable":{3:7}}'
    assert pair.slave.offsets.query("g", "T", 0) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.topics.update(TopicConfig("T", 3, 3)),
        lambda it: it.topics.create_in_send("New", "TBW102", 4, 0),
        lambda it: it.topics.delete("T"),
        lambda it: it.topics.update_order({"T"}),
        lambda it: it.groups.find("new"),
        lambda it: it.groups.disable_consume("g"),
        lambda it: it.groups.delete("g"),
        lambda it: it.offsets.commit("g", "T", 0, 6),
        lambda it: it.offsets.commit("g", "T", 0, 2),  # on purpose
        lambda it: it.offsets.commit("new", "T", 1, 1),
        lambda it: it.offsets.clone("g", "new", "T"),
        lambda it: it.offsets.remove_group("g"),
        lambda it: it.offsets.remove_topic("T"),
        lambda it: it.offsets.begin_anew("T", 0, 1),
        lambda it: it.offsets.merge({"T@g": {0: 4, 1: 9}}),
    ],
)
def test_every_change_follows(change):
    pair = Pair()
    change(pair.master)
    assert pair.changed
    assert not pair.is_equal()
    pair.send()
    assert pair.is_equal()


def test_delivery_follows():
    pair = Pair()
    pair.master.delivery.offset_table[3] = 8
    pair.master.delivery.on_progress()
    pair.send()
    assert pair.slave.delays.text == b'{"offsetTable":{3:8}}'


def test_topics_and_groups_go_before_the_log():
    pair = Pair()
    pair.master.topics.update(TopicConfig("T", 3, 3))
    pair.master.groups.find("new")
    pair.master.offsets.commit("g", "T", 0, 6)
    assert {(entry.table, entry.precedes_log) for entry in pair.changed} == {
        ("topics", True),
        ("groups", True),
        ("consumerOffsets", False),
    }


def test_a_master_that_lost_its_offsets_takes_none_along():
    """Nor does it for those whom it copies to every 10 s."""
    pair = Pair()
    pair.master.offsets.table.clear()
    pair.master.offsets.commit("other", "T", 0, 1)
    pair.begin()
    assert pair.slave.offsets.query("g", "T", 0) == 5
    assert pair.slave.offsets.query("other", "T", 0) == 1


def test_what_the_master_deleted_meanwhile_goes():
    pair = Pair()
    pair.slave.topics.update(TopicConfig("Gone"))
    pair.slave.groups.find("gone")
    pair.begin()
    assert pair.is_equal()


def add_topics(pair, count):
    """The master has these, too, without having said so; their names."""
    names = {f"T{number}" for number in range(count)}
    pair.master.topics._table.update({name: TopicConfig(name) for name in names})
    return names


def test_large_tables_come_in_pieces_and_count_when_they_are_whole():
    pair = Pair()
    add_topics(pair, PAGE_SIZE)
    for queue in range(PAGE_SIZE):
        pair.master.offsets.commit("wide", "T", queue, queue)
    pair.master.topics.update(TopicConfig("Last"))
    pieces = list(pair.master.tables.all_pieces())
    assert len(pieces) == 2 + 1 + 2 + 1
    pair.slave.tables.take(pieces[0])
    assert pair.slave.topics.get("T1") is None
    for piece in pieces[1:]:
        pair.slave.tables.take(piece)
    assert pair.is_equal()


def test_one_change_of_more_than_a_page_follows():
    """All of its pieces have one version."""
    pair = Pair()
    names = add_topics(pair, PAGE_SIZE + 5)
    pair.begin()
    pair.master.topics.update_order(names)
    assert len(list(pair.master.tables.news(pair.changed))) == 2
    pair.send()
    assert pair.is_equal()


def test_half_a_table_is_none():
    pair = Pair()
    add_topics(pair, PAGE_SIZE)
    first, *_ = pair.master.tables.all_pieces()
    pair.slave.tables.take(first)
    pair.slave.tables.ended()
    assert pair.slave.topics.get("T1") is None
    assert pair.slave.topics.get("T") is not None
    del pair.master.topics._table["T1"]
    pair.begin()
    assert pair.is_equal(), "nor is it a part of the next one"


def test_nothing_is_asked_while_tables_come():
    pair = Pair()
    slave = pair.slave
    assert slave.slave.statistics().is_streamed is True
    assert not slave.disk.exists("/c/consumerOffset.json")
    slave.slave.synchronize()
    assert not slave.master.asked
    assert slave.disk.read_bytes("/c/consumerOffset.json")
    assert slave.disk.read_bytes("/c/delayOffset.json") == b'{"offsetTable":{3:7}}'
    assert slave.slave.statistics().tables["consumer_offsets"].age_seconds == 0
    slave.tables.ended()
    slave.slave.synchronize()
    assert not slave.master.asked, "who crashed and is back would give older ones"
    slave.tables.absent()
    slave.slave.synchronize()
    assert len(slave.master.asked) == 4


def test_an_answer_from_before_does_not_count():
    """It was asked for before the stream began, and came after: it is older."""
    pair = Pair()
    slave = pair.slave
    slave.tables.absent()
    held: Deferred[RemotingCommand] = Deferred()
    slave.master.held[MAIN, 43] = held
    slave.slave.synchronize()
    assert (MAIN, 43) in slave.master.asked
    pair.master.offsets.commit("g", "TopicA", 0, 99)
    pair.master.offsets.commit("CG", "TopicA", 0, 99)
    pair.begin()
    held.callback(RemotingCommand(43).response(body=OFFSETS))
    assert slave.offsets.query("CG", "TopicA", 0) == 99
    assert slave.slave.statistics().tables["consumer_offsets"].last_error == ""


def test_queues_of_a_deleted_topic_go_a_minute_later():
    pair = Pair()
    pair.master.topics.delete("T")
    pair.send()
    pair.slave.clock.advance(59)
    pair.slave.slave.synchronize()
    assert not pair.slave.dropped
    pair.slave.clock.advance(2)
    pair.slave.slave.synchronize()
    assert pair.slave.dropped == ["T"]


def test_a_table_of_a_newer_broker_is_left_out():
    pair = Pair()
    pair.slave.tables.take(b'{"table":"weather","entries":{"today":1}}')
    assert pair.is_equal()


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"[]",
        b'{"table":"topics"}',
        b'{"table":"topics","entries":{},"isWhole":true}',
        b'{"table":"topics","entries":{"T":7}}',
        b'{"table":"topics","entries":{"T":{"perm":"x"}}}',
        b'{"table":"topics","entries":{"T":{}},"dataVersion":{"counter":"x"}}',
        b'{"table":"groups","entries":{"g":[]}}',
        b'{"table":"consumerOffsets","entries":{"T@g":{"0":"x"}}}',
        b'{"table":"consumerOffsets","entries":{"T@g":[1]}}',
        b'{"table":"delayOffsets","entries":{}}',
        b'{"table":"delayOffsets","entries":{"levels":null}}',
    ],
)
def test_what_no_broker_says(piece):
    pair = Pair()
    with pytest.raises(ProtocolViolation, match=r"a piece of tables|a table came without"):
        pair.slave.tables.take(piece)
    assert pair.is_equal()
