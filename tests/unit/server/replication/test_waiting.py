"""Puts that wait for a slave: which ones wait, what completes them, and their deadlines."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.replication.waiting import GroupTransfer, status_without_waiting


def config(fallbehind: int = 1000) -> MessageStoreConfig:
    return MessageStoreConfig(ha_slave_fallbehind_max=fallbehind)


def test_without_a_slave_nothing_waits() -> None:
    status = status_without_waiting(config(), 1, None, 0)
    assert status is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_a_slave_counts_while_less_than_the_limit_behind() -> None:
    assert status_without_waiting(config(), 1999, 1000, 0) is None
    status = status_without_waiting(config(), 2000, 1000, 0)
    assert status is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_what_is_acknowledged_already_is_ok() -> None:
    assert status_without_waiting(config(), 1000, 1000, 1000) is PutMessageStatus.PUT_OK
    assert status_without_waiting(config(), 1001, 1000, 1000) is None


def test_an_acknowledgement_one_byte_short_completes_nothing() -> None:
    waiting: GroupTransfer[str] = GroupTransfer()
    waiting.add(100, 3.0, "put")
    assert waiting.reached(99) == []
    assert waiting.reached(100) == ["put"]
    assert waiting.deadline() is None


def test_a_slave_that_came_with_nothing_vouches_only_for_what_it_got() -> None:
    """It was sent the last file only: what was put into the files before is not on it."""
    waiting: GroupTransfer[int] = GroupTransfer()
    puts = [(2000, 3000), (3000, 4200), (4096, 4300), (4300, 5000)]
    for start, end in puts:
        waiting.add(end, 3.0, end, start)
    assert waiting.reached(4500, base=4096) == [4300]
    assert waiting.on_time(2.9) == []
    assert waiting.reached(4500) == [3000, 4200]
    assert waiting.on_time(3.0) == [5000]


def test_each_put_has_its_own_deadline() -> None:
    """Java lets the later ones wait for the earlier ones' second to pass (4.6)."""
    waiting: GroupTransfer[int] = GroupTransfer()
    for number in range(5):
        waiting.add(100 + number, 3.0 + 0.3 * number, number)
    for number in range(5):
        assert waiting.deadline() == 3.0 + 0.3 * number
        assert waiting.on_time(2.99 + 0.3 * number) == []
        assert waiting.on_time(3.0 + 0.3 * number) == [number]


def test_a_lowered_timeout_applies_to_later_puts() -> None:
    waiting: GroupTransfer[str] = GroupTransfer()
    waiting.add(100, 3.0, "early")
    waiting.add(200, 1.0, "late")
    assert waiting.deadline() == 1.0
    assert waiting.on_time(1.0) == ["late"]
    assert waiting.deadline() == 3.0
    assert waiting.reached(100) == ["early"]


def test_who_waits_for_the_same_offset_is_told_in_the_order_of_coming() -> None:
    waiting: GroupTransfer[str] = GroupTransfer()
    for offset, deadline, waiter in ((90, 3.0, "0"), (100, 3.0, "1"), (100, 2.0, "2")):
        waiting.add(offset, deadline, waiter)
    assert waiting.reached(100) == ["0", "1", "2"]


class WaitingMachine(RuleBasedStateMachine):
    """Never done below the watermark, never twice, never later than the deadline."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: GroupTransfer[int] = GroupTransfer()
        self.model: dict[int, tuple[int, float]] = {}
        self.count = 0
        self.now = 0.0
        self.end = 0

    @rule(step=st.integers(-50, 100), patience=st.sampled_from([1.0, 3.0, 3.0, 3.0]))
    def put(self, step: int, patience: float) -> None:
        self.end = max(1, self.end + step)
        self.count += 1
        self.model[self.count] = (self.end, self.now + patience)
        self.waiting.add(self.end, self.now + patience, self.count)

    @rule(offset=st.integers(0, 2000))
    def acknowledge(self, offset: int) -> None:
        done = self.waiting.reached(offset)
        assert sorted(done) == sorted(n for n, (end, _) in self.model.items() if end <= offset)
        ends = [self.model.pop(number)[0] for number in done]
        assert ends == sorted(ends)

    @rule(seconds=st.floats(0, 2))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        expired = self.waiting.on_time(self.now)
        late = sorted(n for n, (_, deadline) in self.model.items() if deadline <= self.now)
        assert sorted(expired) == late
        for number in expired:
            del self.model[number]

    @rule()
    def stop(self) -> None:
        assert sorted(self.waiting.drain()) == sorted(self.model)
        self.model.clear()

    @invariant()
    def knows_its_next_deadline(self) -> None:
        assert len(self.waiting) == len(self.model)
        deadlines = [deadline for _, deadline in self.model.values()]
        assert self.waiting.deadline() == (min(deadlines) if deadlines else None)


TestWaiting = WaitingMachine.TestCase
