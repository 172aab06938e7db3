"""When the dispatcher takes its slices."""

from types import SimpleNamespace
from typing import Any

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.server.store.log.dispatch import Dispatcher

CHUNK = 1 << 18


class Turns:
    """A clock whose `callLater(0)` runs once in the next turn, as a reactor's does."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[Any] = []

    def seconds(self) -> float:
        return self.now

    def callLater(self, delay: float, function: Any) -> Any:
        assert delay == 0
        self._calls.append(function)
        return function

    def turn(self, seconds: float) -> None:
        self.now += seconds
        calls, self._calls = self._calls, []
        for function in calls:
            function()


class Counting(Dispatcher):
    """Always has more to do, and counts how often it does it."""

    slices = 0

    def run_slice(self) -> bool:
        self.slices += 1
        return True


def dispatcher(is_slave: bool) -> tuple[Counting, Any, Turns]:
    clock, log = Turns(), SimpleNamespace(max_offset=0)
    config = MessageStoreConfig(
        broker_role=BrokerRole.SLAVE if is_slave else BrokerRole.SYNC_MASTER
    )
    made = Counting(clock, log, config, lambda _: None, lambda *_: None, None)  # type: ignore[arg-type]
    made.start()
    return made, log, clock


def grow(made: Counting, log: Any, clock: Turns, turns: int, seconds: float) -> None:
    for _ in range(turns):
        log.max_offset += CHUNK
        made.run()
        clock.turn(seconds / turns)


def test_a_slave_that_catches_up_takes_the_log_first() -> None:
    """With a chunk in each turn it dispatches every 50 ms, not in every turn."""
    made, log, clock = dispatcher(is_slave=True)
    grow(made, log, clock, turns=1000, seconds=1.0)
    assert 10 <= made.slices <= 25


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
