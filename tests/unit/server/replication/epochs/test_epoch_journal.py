"""What a start in controller mode takes for confirmed: queues and index say no more than that."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.store_format.checkpoint import NOTHING_WHOLE, CheckpointTimes
from rmq_ha.server.replication.epochs.journal import EpochJournal
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.disk import SimDisk
from tests.unit.server.store.conftest import NOW_MS, Machine, make_message
from tests.unit.server.store.test_boot import places_of

COUNT = 8
SMALL = {"max_index_num": 3}


class Broker:
    """
    A machine on which a pair's broker died: its queues lack the end of the log.

    :param dispatched: of its messages; so many are in queues and index.
    :ivar starts: of its records.
    :ivar end: of its log.
    """

    def __init__(self, dispatched: int) -> None:
        self.machine = Machine("/store", SimDisk(Random(1), lambda: NOW_MS))
        self.pair = self.machine.open(**SMALL)
        for number in range(COUNT):
            if number == dispatched:
                self.pair.dispatcher.stop()
            self.machine.now_ms += 5000
            self.pair.put_message(make_message(b"%d" % number, UNIQ_KEY=f"U{number}"))
            self.machine.turn()
        self.end = self.pair.log.max_offset
        size = self.end // COUNT
        assert size * COUNT == self.end
        self.ends = [size * (number + 1) for number in range(COUNT)]

    def place(self, number: int, more: int) -> int:
        """So many bytes behind the end of so many messages."""
        return (self.ends[number - 1] if number else 0) + more

    def dies(self, confirmed: int) -> None:
        """:param confirmed: by its checkpoint."""
        times = CheckpointTimes(confirmed_offset=confirmed)
        self.pair.checkpoint.write(times, NOTHING_WHOLE)
        self.machine.kill(self.pair)

    def load(self) -> Any:
        """As a broker in controller mode."""
        configuration: BrokerConfiguration = self.machine.configuration(**SMALL)
        configuration.controlled.enable_controller_mode = True
        configuration.controlled.controller_addr = "10.9.9.9:9878"
        self.journal = EpochJournal(self.machine.host, configuration)
        store = DefaultMessageStore(self.machine.host, configuration, self.journal)
        store.load()
        return store


@pytest.mark.parametrize("dispatched", [0, 3, COUNT])
@pytest.mark.parametrize(
    ("number", "more", "whole"),
    [(0, 0, 0), (0, 5, 0), (1, 0, 1), (5, -1, 4), (5, 0, 5), (5, 1, 5), (8, 0, 8), (8, 999, 8)],
)
def test_what_was_dispatched_or_is_said_to_be_confirmed_may_be_read_and_no_more(
    dispatched: int, number: int, more: int, whole: int
) -> None:
    broker = Broker(dispatched)
    said = broker.place(number, more)
    broker.dies(said)
    store = broker.load()
    confirmed = min(max(said, broker.place(dispatched, 0)), broker.end)
    whole = max(whole, dispatched)
    log, queues, checkpoint = store.log, store.queues, store.checkpoint
    assert (log.max_offset, log.confirm_offset) == (broker.end, confirmed)
    assert checkpoint.confirmed == log.readable_end == confirmed
    assert max(queues.max_physical_offset, 0) == broker.place(whole, 0)
    assert store.max_offset_in_queue("TopicA", 0) == whole
    known = [bool(places_of(store, "TopicA", f"U{number}")) for number in range(COUNT)]
    assert known == [number < whole for number in range(COUNT)]
    assert not log.is_whole
    last = NOW_MS + 5000 * (COUNT if confirmed == broker.end else whole)
    assert checkpoint.logics == (last if whole else 0), "nothing vouches for what was taken back"
    assert (store.queue_flusher.index_end > 0) is (confirmed == broker.end)
    store.close()


def test_what_is_confirmed_is_dispatched_over_the_ends_of_files() -> None:
    """Also where nothing but a blank follows, or nothing."""
    broker = Broker(COUNT)
    log = broker.pair.log
    while log.max_offset < log.file_size:
        broker.pair.put_message(make_message(b"." * 9000))
    broker.machine.turn()
    end, broker.end = log.max_offset, log.max_offset
    broker.dies(end)
    store = broker.load()
    tail, position, places = store.journal.tail, 0, []
    while position < end:
        run = tail.next_slice(position, False)
        places += [row[2] for row in run.rows]
        position = run.end
    assert position == end
    assert places[COUNT - 1] < log.file_size == places[-1]
    assert tail.next_slice(end, False).rows == []
    store.close()


def test_after_a_clean_stop_the_log_lacks_nothing() -> None:
    broker = Broker(COUNT)
    broker.machine.stop(broker.pair)
    store = broker.load()
    assert store.log.is_whole
    assert store.log.confirm_offset == broker.end
    store.close()


def test_what_is_flushed_is_soon_in_the_checkpoint() -> None:
    broker = Broker(COUNT)
    broker.dies(0)
    store = broker.load()
    before = len(broker.machine.clock.getDelayedCalls())
    broker.journal.log_flushed()
    assert len(broker.machine.clock.getDelayedCalls()) > before
    store.close()
