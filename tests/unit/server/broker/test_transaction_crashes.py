"""Crashes in every step of the transaction check: nothing is lost, and nothing is done twice."""

from collections import Counter
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.server.broker.broker import Broker
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.cluster import small_configuration
from tests.unit.server.broker.transaction_kit import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    TransactionBroker,
    started,
)

KEYS = [f"k{number}" for number in range(8)]


def decide(key: str) -> int:
    """The producer knows a fate for each; one it never knows."""
    number = int(key[1:])
    return UNKNOWN if number == 0 else COMMIT if number % 2 else ROLLBACK


def assert_each_has_one_end(broker: TransactionBroker, keys: list[str]) -> None:
    """Committed: visible once. Never known: discarded once. Rolled back: neither."""
    fates = {key: decide(key) for key in keys}
    assert Counter(broker.visible()) == Counter(k for k, fate in fates.items() if fate == COMMIT)
    assert Counter(broker.discarded()) == Counter(k for k, fate in fates.items() if fate == UNKNOWN)
    assert broker.progress() == broker.ends()


def crash_at_put(broker: TransactionBroker, wanted: int, *, stored: bool) -> list[int]:
    """
    The process is killed at the nth put of the checks, before or after it is stored.

    :returns: how many messages each put had so far.
    """
    parts = broker.broker.transaction_checks._context.copies
    really = parts.put
    puts: list[int] = []

    def put(messages: list[BrokerMessage]) -> Any:
        puts.append(len(messages))
        if len(puts) < wanted:
            return really(messages)
        if stored:
            really(messages)
        broker.crash()
        return Deferred()

    object.__setattr__(parts, "put", put)
    return puts


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
def test_killed_at_a_put_of_the_checks(number: int, stored: bool) -> None:
    """
    The first questions, the next ones, the discard: the next life goes on from there, although the
    progress was not written.
    """
    # A question that was lost with the process counts, too.
    broker = started(seed=number, transaction_check_max=3 if number == 4 else 6)
    broker.decide = lambda key: decide(key) if len(broker.asked) > 12 else None
    for key in KEYS:
        broker.half(key)
    puts = crash_at_put(broker, number, stored=stored)
    broker.world.clock.run_while(lambda: broker.host.is_running, 30)
    assert len(puts) == number
    assert not broker.host.is_running
    broker.decide = decide
    broker.restart()
    broker.rounds(12)
    assert set(dict(broker.asked)) == set(KEYS)
    discarded = set(broker.discarded())
    assert not discarded & set(broker.visible())
    if number < 4:
        assert_each_has_one_end(broker, KEYS)
    else:  # by then the producer had been silent for too long
        assert Counter(broker.discarded()) == Counter(discarded)


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_time(seed: int) -> None:
    """Sends, ends, answers and rounds, with a crash every few seconds, some of a whole machine."""
    broker = started(seed)
    broker.decide = decide
    random = broker.world.random("crashes")
    keys: list[str] = []
    for life in range(5):
        for _ in range(6):
            key = f"k{len(keys)}"
            if len(keys) % 7 == 0:
                key = f"k{len(keys) * 2 + 1}"
            if key in keys or key == "k0":
                key = f"k{1000 + len(keys)}"
            keys.append(key)
            place = broker.half(key)
            if random.random() < 0.5:
                broker.end(place, decide(key))
            broker.run(random.random())
        broker.run(random.random() * 6)
        if life % 2:
            broker.stop()
        else:
            broker.crash()
        broker.restart()
    broker.rounds(15)
    assert_each_has_one_end(broker, keys)


class TransactionPair(TransactionBroker):
    """A SYNC_MASTER and its slave, which takes over when the master is gone."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.name_server = NamesrvNode(self.world.add("namesrv"))
        self.name_server.start()
        self.configuration.store.broker_role = BrokerRole.SYNC_MASTER
        self.configuration.broker.namesrv_addr = self.name_server.address
        self.slave_host = self.world.add("slave")
        self.slave_configuration = small_configuration(
            self.slave_host.ip, BrokerRole.SLAVE, FlushDiskType.ASYNC_FLUSH, 1
        )
        broker = self.slave_configuration.broker
        broker.namesrv_addr = self.name_server.address
        for name in ("interval", "max"):
            key = f"transaction_check_{name}"
            setattr(broker, key, getattr(self.configuration.broker, key))
        broker.transaction_time_out = self.configuration.broker.transaction_time_out
        self.slave: Any = None

    def start_both(self) -> None:
        """Until the slave replicates and has copied the tables once."""
        self.start()
        self.slave = Broker(self.slave_host.seams, self.slave_configuration)
        self.wait(self.slave.start())
        self.run(25)
        assert self.send().code == 0
        self.connect()

    def fail_over(self) -> None:
        """The master's machine is gone; its slave is restarted as the master."""
        self.crash(power=True)
        self.run(1)
        self.wait(self.slave.stop())
        self.slave_host.crash()
        self.slave_host.restart()
        self.host, self.configuration = self.slave_host, self.slave_configuration
        self.configuration.store.broker_role = BrokerRole.SYNC_MASTER
        self.configuration.broker.broker_id = 0
        self.client = RemotingClient(self.client_host.seams, NettyClientConfig())
        self.client.routes[RequestCode.CHECK_TRANSACTION_STATE] = self._asked
        self.start()
        self.run(1)
        self.connect()


@pytest.mark.parametrize("seed", range(8))
def test_slave_takes_over_at_any_time(seed: int) -> None:
    """
    What was open stays open, what was ended stays ended, although the slave's copy of the progress
    is up to ten seconds old.
    """
    pair = TransactionPair(seed)
    pair.start_both()
    pair.decide = decide
    random = pair.world.random("fail-over")
    keys = [f"k{number}" for number in range(30)]
    for key in keys:
        place = pair.half(key)
        if random.random() < 0.5 and key != "k0":
            pair.end(place, decide(key))
        pair.run(random.random())
    pair.run(random.random() * 4)
    pair.fail_over()
    pair.rounds(12)
    assert_each_has_one_end(pair, keys)


@pytest.mark.parametrize("seed", range(4))
def test_slave_that_lost_the_end_of_the_log(seed: int) -> None:
    """
    A master of RocketMQ died before its slave had everything, but the slave has the progress: what
    it has is looked at again from the beginning, and no transaction that it knows of is forgotten.
    """
    broker = started(seed)
    broker.decide = decide
    keys = [f"k{number}" for number in range(1, 9)]
    for key in keys:
        broker.half(key)
    end = broker.broker.store.log.max_offset
    broker.decide = lambda key: None
    broker.rounds(3)
    half, op = broker.progress()
    assert half > len(keys)
    for topic, offset in ((HALF_TOPIC, half), (OP_HALF_TOPIC, op)):
        broker.broker.consumer_offsets.commit("CID_RMQ_SYS_TRANS", topic, 0, offset)
    stop_and_lose(broker, end)
    broker.asked.clear()
    broker.decide = decide
    broker.restart()
    broker.rounds(6)
    assert_each_has_one_end(broker, keys)


def stop_and_lose(broker: TransactionBroker, end: int) -> None:
    """The log ends there now, as if it had never been longer; the progress is what it was."""
    broker.stop()
    broker.host.disk.remove(f"{broker.configuration.store.store_path_root_dir}/queueEnds")
    log = broker.configuration.store.store_path_commit_log
    size = broker.configuration.store.mapped_file_size_commit_log
    for name in broker.host.disk.list_dir(log):
        start = int(name)
        file = broker.host.disk.open(f"{log}/{name}", size)
        file.zero(max(0, end - start)) if start < end else broker.host.disk.remove(f"{log}/{name}")


def test_what_comes_before_the_first_round_is_not_taken_for_dealt_with() -> None:
    """The log has lost its end, and is as long as the progress again when the checks begin."""
    broker = started()
    broker.decide = lambda key: None
    broker.half("k1")
    end = broker.broker.store.log.max_offset
    broker.rounds(6)
    half, op = broker.kept_progress()
    assert min(half, op) >= 2
    stop_and_lose(broker, end)
    broker.asked.clear()
    broker.decide = decide
    broker.configuration.broker.transaction_check_interval = 10_000
    broker.restart()
    left = ["k1", "k11", "k13", "k15"]
    for key in left[1:]:
        broker.half(key)
    for number in range(op + 1):
        broker.end(broker.half(f"k{20 + 2 * number}"), ROLLBACK)
    assert min(*broker.ends()) > op
    broker.rounds(4)
    assert {key for key, _ in broker.asked} == set(left)
    assert_each_has_one_end(broker, left)


@pytest.mark.parametrize("lost", ["its machine", "its slave"])
def test_progress_waits_for_what_it_rests_on(lost: str) -> None:
    """
    An op message that is not flushed, or not replicated, may be gone in the next life: the kept
    progress is not behind the half message that it settles.
    """
    broker = started()
    settings = broker.configuration.store
    log = broker.broker.store.log
    if lost == "its machine":
        settings.flush_interval_commit_log = 20_000
        broker.run(2)
    else:
        settings.broker_role = BrokerRole.SYNC_MASTER
    broker.end(broker.half("a"), ROLLBACK)
    broker.rounds(3)
    assert broker.progress() == broker.ends() == (1, 1)
    assert max(broker.kept_progress()) <= 0
    if lost == "its machine":
        assert log.flushed_offset < log.max_offset
        broker.run(30)
    else:
        settings.broker_role = BrokerRole.ASYNC_MASTER
    broker.rounds(2)
    assert broker.kept_progress() == broker.ends()
