"""When the dispatcher takes its slices."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.server.store.log.dispatch import Dispatcher

CHUNK = 1 << 18


class Turns:
    """A clock whose `callLater(0)` runs once in the next turn, as a reactor's does."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, Any]] = []

    def seconds(self) -> float:
        return self.now

    def callLater(self, delay: float, function: Any) -> Any:
        self._calls.append((self.now + delay, function))
        return function

    def turn(self, seconds: float) -> None:
        self.now += seconds
        due = [call for call in self._calls if call[0] <= self.now]
        self._calls = [call for call in self._calls if call not in due]
        for _, function in due:
            function()


class Counting(Dispatcher):
    """
    Counts its slices.

    :ivar slice_s: how long a slice takes, seconds.
    :ivar chunks: slices of one chunk that may be done; None: there is always more to do.
    """

    slices = 0
    slice_s = 0.0
    chunks: int | None = None

    def run_slice(self) -> bool:
        self.slices += 1
        self._clock.now += self.slice_s  # type: ignore[attr-defined]
        return self.chunks is None or self.slices % self.chunks != 0


def dispatcher(is_slave: bool) -> tuple[Counting, Any, Turns]:
    clock, log = Turns(), SimpleNamespace(max_offset=0, readable_end=0)
    config = MessageStoreConfig(
        broker_role=BrokerRole.SLAVE if is_slave else BrokerRole.SYNC_MASTER
    )
    made = Counting(clock, log, config, lambda _: None, lambda *_: None, None)  # type: ignore[arg-type]
    made.start()
    return made, log, clock


def grow(made: Counting, log: Any, clock: Turns, turns: int, seconds: float) -> None:
    for _ in range(turns):
        log.max_offset += CHUNK
        log.readable_end = log.max_offset
        made.run()
        clock.turn(seconds / turns)


@pytest.mark.parametrize("slice_s", [0.0013, 0.004, 0.02])
def test_a_slave_far_behind_leaves_half_of_its_time_to_the_log(slice_s: float) -> None:
    """Queues make progress all the same, and no turn gets longer than a slice."""
    made, log, clock = dispatcher(is_slave=True)
    made.slice_s = slice_s
    last = began = clock.now
    for turn in range(1, 1001):
        before = made.slices
        grow(made, log, clock, turns=1, seconds=0.001)
        assert made.slices - before <= 1
        assert made.slices * slice_s <= (turn + 1) * 0.001 + slice_s
        if made.slices > before:
            assert clock.now - last <= 2 * slice_s + 0.003
            last = clock.now
    assert made.slices * slice_s > 0.3 * (clock.now - began)


@pytest.mark.parametrize("chunks", [1, 4])
def test_a_slave_that_makes_queues_faster_than_it_gets_the_log_keeps_pace(chunks: int) -> None:
    """Then it takes the records from memory, however many slices they are."""
    made, log, clock = dispatcher(is_slave=True)
    clock.turn(1.0)
    made.slice_s, made.chunks = 0.0009 / chunks, chunks
    grow(made, log, clock, turns=100, seconds=0.1)
    assert made.slices == 100 * chunks


def test_a_slave_that_has_caught_up_dispatches_in_every_turn() -> None:
    """And needs no append to go on."""
    made, log, clock = dispatcher(is_slave=True)
    grow(made, log, clock, turns=10, seconds=0.01)
    before = made.slices
    for _ in range(100):
        clock.turn(0.001)
    assert made.slices - before >= 90


def test_a_master_dispatches_in_every_turn() -> None:
    """Its consumers wait."""
    made, log, clock = dispatcher(is_slave=False)
    grow(made, log, clock, turns=100, seconds=0.1)
    assert made.slices >= 100
