"""
Tables go to a slave of ours with the log: after a fail-over no group begins where it was long ago.

Spec: controller.md, chapter 11, for what a Java slave does.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, ReplicationError
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.frames import (
    MAX_TABLES_SIZE,
    TABLES_SIZE,
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    TablePiece,
    encode_master_handshake,
    encode_piece,
    encode_slave_handshake,
)
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.replication.epochs.tables import PAUSE_S, TableEntry, TableFeed
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers
from tests.unit.server.broker.test_admin_durable import make_group
from tests.unit.server.replication.record_logs import record_log

LINE_S = 0.02
"""Longer than anything takes from one simulated machine to another."""


def unchecked(configuration: BrokerConfiguration) -> None:
    """Groups commit offsets of messages that nobody has sent."""
    configuration.ours.check_committed_offsets = False


def commit(brokers: ControlledBrokers, node: BrokerNode, offset: int, group: str = "g") -> None:
    """Of a group that has consumed so many messages."""
    while node.broker.store.max_offset_in_queue(TOPIC, 0) < offset:
        assert brokers.send(node, b"consumed") == 0
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    assert brokers.ask(node, request).code == 0


def offset_at(node: BrokerNode, group: str = "g") -> int:
    return int(node.broker.consumer_offsets.query(group, TOPIC, 0))


def test_offsets_are_at_the_next_master() -> None:
    """RocketMQ's slaves have them up to 10 s later."""
    brokers = ControlledBrokers(change=unchecked)
    first = brokers.in_sync()
    second = brokers.other(first)
    for number in range(1, 6):
        assert brokers.send(first, b"%d" % number) == 0
        commit(brokers, first, number)
        brokers.run(PAUSE_S + LINE_S)
        assert offset_at(second) == number
    commit(brokers, first, 2)  # on purpose
    brokers.run(PAUSE_S + LINE_S)
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second)
    assert offset_at(second) == 2
    commit(brokers, second, 4)
    brokers.boot(first)
    brokers.in_sync()
    assert offset_at(first) == 4
    assert not brokers.findings.violations


def test_a_message_never_comes_before_its_topic() -> None:
    brokers = ControlledBrokers(change=unchecked)
    first = brokers.in_sync()
    second = brokers.other(first)
    before = second.store.log.max_offset
    sent = send_request("producers", "New", 0, b"it makes the topic", "", brokers.now_ms())
    brokers.client.invoke(f"{first.host.ip}:{LISTEN_PORT}", sent, 5000)
    while second.store.log.max_offset == before:
        brokers.run(0.001)
    assert second.broker.topics.get("New") is not None
    assert brokers.ask(first, make_group("new")).code == 0
    brokers.run(PAUSE_S + LINE_S)
    assert second.broker.groups.get("new") is not None
    brokers.ask(first, RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "New"}))
    brokers.run(PAUSE_S + LINE_S)
    assert second.broker.topics.get("New") is None
    assert not brokers.findings.violations


def test_tables_put_no_heartbeat_off() -> None:
    """It says what may be read: readers of the slave would wait as long as somebody commits."""
    brokers = ControlledBrokers(change=unchecked)
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"one") == 0
    for number in range(20):
        first.broker.consumer_offsets.commit("g", TOPIC, 0, number)
        brokers.run(0.02)
    assert second.store.log.readable_end == first.store.log.max_offset
    assert offset_at(second) >= 16


def test_a_slave_that_is_in_sync_has_all_tables() -> None:
    """Also one that begins when there is nothing else to send: it may be elected at once."""
    brokers = ControlledBrokers(brokers=3, change=unchecked)
    first = brokers.in_sync(3)
    others = [node for node in brokers.nodes if node is not first]
    for node in others:
        node.crash(power=True)
    brokers.until(lambda: len(brokers.desk.info()[1].members) == 1)
    commit(brokers, first, 7)
    brokers.boot(others[0])
    brokers.until(lambda: len(brokers.desk.info()[1].members) == 2)
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is others[0])
    assert offset_at(others[0]) == 7


def test_delivery_goes_on_where_it_was() -> None:
    brokers = ControlledBrokers(change=unchecked)
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"soon", DELAY="1") == 0
    brokers.holds(first, [b"soon"])
    brokers.run(PAUSE_S + LINE_S)
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second)
    assert second.store.schedule.offset_table == {1: 1}
    brokers.run(3.0)
    brokers.holds(second, [b"soon"])
    assert not brokers.findings.violations


def test_a_learner_copies_every_ten_seconds() -> None:
    def learns(configuration: BrokerConfiguration) -> None:
        unchecked(configuration)
        configuration.controlled.async_learner = bool(made)
        made.append(1)

    made: list[int] = []
    brokers = ControlledBrokers(change=learns)
    first = brokers.leader()
    second = brokers.other(first)
    brokers.run(10.0)
    commit(brokers, first, 3)
    brokers.run(1.0)
    assert offset_at(second) == -1
    brokers.until(lambda: offset_at(second) == 3, 12.0)
    assert not brokers.findings.violations


def test_a_master_that_is_not_of_ours_is_asked(monkeypatch) -> None:
    """It sees asyncLearner 2, which is not 1, and sends no tables: they are copied, as in 4.9."""
    monkeypatch.setattr("rmq_ha.server.replication.epochs.feed.TableFeed", Silent)
    brokers = ControlledBrokers(change=unchecked)
    first = brokers.in_sync()
    brokers.run(10.0)
    commit(brokers, first, 3)
    brokers.until(lambda: offset_at(brokers.other(first)) == 3, 12.0)
    assert not brokers.findings.violations


class Silent:
    """A `TableFeed` of nobody."""

    deadline = None

    def __init__(self, *args: object) -> None:
        pass

    def changed(self, *args: object) -> bool:
        return False

    def next_frame(self, now: float) -> bytes:
        return b""

    def before_log(self) -> bytes:
        return b""


class Taken:
    """Tables of a slave."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.has_ended = False

    def watch(self, changed: object) -> None:
        raise AssertionError

    def all_pieces(self) -> list[bytes]:
        raise AssertionError

    def news(self, entries: object) -> list[bytes]:
        raise AssertionError

    def take(self, piece: bytes) -> None:
        if piece == b"bad":
            raise ProtocolViolation("it is bad")
        self.pieces.append(piece)

    def ended(self) -> None:
        self.has_ended = True


def replica(tables: Taken | None) -> EpochReplica:
    log, _ = record_log([b"one"], start=0)
    epochs = Epochs([Epoch(2, 0)])
    return EpochReplica(2, log, epochs, 0, ReplicationSettings(), 0.0, tables)


SAME = encode_master_handshake(MasterHandshake(1 << 20, 3, Epochs([Epoch(2, 0)])))
"""Of a master that has what `replica` has, and more."""


def pieces(*bodies: bytes, epoch: int = 3) -> bytes:
    return b"".join(
        encode_piece(TablePiece(epoch, number, body)) for number, body in enumerate(bodies, 1)
    )


def test_tables_count_after_the_handshake() -> None:
    """Those of a master that leads no more do not."""
    tables = Taken()
    slave = replica(tables)
    assert slave.connected(0.0)[6:8] == b"\0\2"
    slave.receive_data(pieces(b"one", b"two"), 0.0)
    assert not tables.pieces
    slave.receive_data(SAME, 0.0)
    assert tables.pieces == [b"one", b"two"]
    assert slave._number == 2
    slave.closed()
    assert tables.has_ended


def test_tables_wait_for_a_cut() -> None:
    tables = Taken()
    slave = replica(tables)
    slave.connected(0.0)
    other = encode_master_handshake(MasterHandshake(0, 3, Epochs([Epoch(2, 0)])))
    slave.receive_data(pieces(b"one") + other, 0.0)
    assert isinstance(slave.task, Cut)
    assert not tables.pieces
    del slave._log.data[:]
    slave.done(0.0)
    assert tables.pieces == [b"one"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (pieces(b"one", epoch=1), "piece 1 of its tables in epoch 1"),
        (encode_piece(TablePiece(3, 2, b"second")), "sends piece 2"),
        (pieces(b"one") + pieces(b"one"), "after piece 1"),
        (
            pieces(b"bad") + SAME,
            "it is bad",
        ),
        (b"\0\0\0\x64\x7f\xff\xff\xff" + bytes(12), "begins with 100"),
        (b"\0\0\0\x64\xff\xff\xff\xff" + bytes(12), "begins with 100"),
    ],
)
def test_tables_that_are_refused(said: bytes, why: str) -> None:
    tables = Taken()
    slave = replica(tables)
    slave.connected(0.0)
    with pytest.raises(ReplicationError, match=why):
        slave.receive_data(said, 0.0)


def test_who_did_not_ask_takes_none() -> None:
    slave = replica(None)
    assert slave.connected(0.0)[6:8] == b"\0\0"
    with pytest.raises(ReplicationError, match="begins with 100"):
        slave.receive_data(pieces(b"one"), 0.0)


def test_too_much_for_one_frame() -> None:
    with pytest.raises(ReplicationError, match="16777217 bytes"):
        encode_piece(TablePiece(3, 1, bytes(MAX_TABLES_SIZE + 1)))
    assert (
        len(encode_piece(TablePiece(3, 1, bytes(MAX_TABLES_SIZE)))) == MAX_TABLES_SIZE + TABLES_SIZE
    )


class Held(Taken):
    """Tables of a master, of one entry a piece."""

    def all_pieces(self) -> list[bytes]:
        return [b"all"]

    def news(self, entries: Iterable[TableEntry]) -> list[bytes]:
        return [",".join(sorted(entry.name for entry in entries)).encode()]


def read(frame: bytes) -> bytes:
    reader = MasterReader(takes_tables=True)
    reader.receive_data(frame)
    found = reader.next_frame()
    return found.body if isinstance(found, TablePiece) else b""


def test_changes_are_gathered_for_a_moment() -> None:
    feed = TableFeed(Held(), 3)
    assert feed.next_frame(0.0) == encode_piece(TablePiece(3, 1, b"all"))
    assert not feed.next_frame(0.0)
    assert feed.deadline is None
    assert feed.changed(TableEntry("t", "b"), 1.0)
    assert not feed.changed(TableEntry("t", "a"), 1.02)
    assert not feed.changed(TableEntry("t", "b"), 1.04)
    assert feed.deadline == 1.0 + PAUSE_S
    assert not feed.next_frame(1.04)
    assert not feed.before_log()
    assert read(feed.next_frame(1.05)) == b"a,b"
    assert feed.deadline is None
    assert not feed.next_frame(9.0)


def test_changes_leave_in_the_order_in_which_they_came() -> None:
    class InOrder(Held):
        def news(self, entries: Iterable[TableEntry]) -> list[bytes]:
            return [",".join(entry.table for entry in entries).encode()]

    feed = TableFeed(InOrder(), 3)
    feed.next_frame(0.0)
    tables = [f"t{number}" for number in range(9, 0, -1)]
    for table in [*tables, tables[0]]:
        feed.changed(TableEntry(table, "a"), 1.0)
    assert read(feed.next_frame(1.05)).decode().split(",") == tables


def test_what_precedes_the_log_does_not_wait() -> None:
    feed = TableFeed(Held(), 3)
    feed.next_frame(0.0)
    feed.changed(TableEntry("offsets", "o"), 1.0)
    feed.changed(TableEntry("topics", "t", True), 1.0)
    assert read(feed.before_log()) == b"o,t"
    assert not feed.before_log()
    assert feed.deadline is None


def test_a_slave_that_takes_no_tables_is_sent_none() -> None:
    log, _ = record_log([b"one"], start=0)
    epochs = Epochs([Epoch(3, 0)])
    state = SyncState(1, log, epochs, SyncStateSet((1,), 1), ReplicationSettings(), 0.0)
    for takes in (False, True):
        feed = EpochFeed(log, state, ReplicationSettings(), 0.0, Held())
        feed.receive_data(encode_slave_handshake(SlaveHandshake(2, takes_tables=takes)), 0.0)
        assert feed.table_changed(TableEntry("t", "a"), 0.0) is takes
        assert (read(feed.next_frame(0.0)) == b"all") is takes
        if takes:
            assert not read(feed.next_frame(0.0))


def test_who_crashed_and_is_back_is_not_asked_for_its_tables() -> None:
    """Found by seed 44: what it had written last is older than what it had sent."""
    brokers = ControlledBrokers(change=unchecked)
    first = brokers.in_sync()
    second = brokers.other(first)
    for offset in (3, 7):  # the first one is written at once
        commit(brokers, first, offset, "group")
        brokers.run(0.2)
    copying = second.broker.slave_synchronize
    first.crash(power=False)
    brokers.boot(first)
    brokers.run(1.0)
    assert first.broker.consumer_offsets.query("group", TOPIC, 0) < 7
    assert copying.is_streamed, "it would be asked at the next pass"
    copying.set_master_address(f"{first.host.ip}:{LISTEN_PORT}")
    brokers.until(lambda: brokers.master() is second, 40.0)
    assert second.broker.consumer_offsets.query("group", TOPIC, 0) == 7
