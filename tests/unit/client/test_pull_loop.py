"""The loop that pulls one queue, between an owner that is written down and a clock that is set."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.base.model.message import Address
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.consume.pull_api import PullAnswer
from rmq_ha.client.consume.pull_loop import (
    FLOW_CONTROL_SECONDS,
    FULL_SECONDS,
    NOT_HELD_MS,
    NOT_HELD_SECONDS,
    PullLoop,
)
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import MessageExt, PullResult, PullStatus
from rmq_ha.client.rules.process_queue import FlowLimits, ProcessQueue

QUEUE = MessageQueue("T", "b", 0)
HERE = Address(b"\x7f\0\0\1", 1)
ERROR_S = 3.0


def message(offset: int, size: int = 1) -> MessageExt:
    body = bytes(size)
    return MessageExt("T", body, {}, "b", 0, offset, "", "", 0, 0, HERE, 0, HERE, 0)


class Owner:
    """A consumer with one queue; `asked` are the offsets that were asked for."""

    def __init__(self, offset: int = 7) -> None:
        self.clock: Any = Clock()
        self.pull_api: Any = self
        self.error_seconds = ERROR_S
        self.rest = 0.0
        self.interval = 0.0
        self.is_subscribed = True
        self.asked: list[int] = []
        self.told: list[Any] = []
        self.waiting: list[Deferred[PullAnswer]] = []
        self.process_queue = ProcessQueue()
        self.loop = PullLoop(self, QUEUE, self.process_queue, offset)

    def steady_ms(self) -> int:
        return round(self.clock.seconds() * 1000)

    def may_pull(self, queue: MessageQueue, process_queue: ProcessQueue) -> float:
        return self.rest

    def limits(self, queue: MessageQueue) -> FlowLimits:
        return FlowLimits(messages=2)

    def next_pull(self, queue: MessageQueue, offset: int) -> Any:
        return offset if self.is_subscribed else None

    def pull(self, offset: Any) -> "Deferred[PullAnswer]":
        self.asked.append(offset)
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def found(self, queue: Any, process_queue: ProcessQueue, messages: list[MessageExt]) -> float:
        process_queue.put(messages)
        self.told.append(("found", [item.queue_offset for item in messages]))
        return self.interval

    def nothing_below(self, queue: Any, process_queue: ProcessQueue, offset: int) -> None:
        self.told.append(("nothing below", offset))

    def offset_moved(self, queue: Any, process_queue: ProcessQueue, offset: int) -> None:
        self.told.append(("moved", offset))

    def unknown_subscription(self) -> None:
        self.told.append("unknown subscription")

    def pulled(self, topic: str, count: int, took_ms: int) -> None:
        self.told.append(("pulled", topic, count, took_ms))

    def answer(
        self,
        following: int,
        *messages: MessageExt,
        status: PullStatus = PullStatus.NO_NEW_MSG,
        after: float = NOT_HELD_MS / 1000,
        from_slave: bool = False,
    ) -> None:
        """The broker's word on the last pull, `after` so many seconds."""
        self.clock.advance(after)
        status = PullStatus.FOUND if messages else status
        result = PullResult(status, following, 0, 99, list(messages), 0)
        self.waiting.pop().callback(PullAnswer(result, from_slave))

    def refuse(self, error: Exception) -> None:
        self.waiting.pop().errback(error)

    def asks_after(self, seconds: float) -> bool:
        """The loop asks again then, and not before."""
        before = len(self.asked)
        self.clock.advance(seconds - 0.001)
        was_early = len(self.asked) > before
        self.clock.advance(0.001)
        return not was_early and len(self.asked) == before + 1


def test_what_was_found_goes_to_the_owner_and_the_next_pull_goes_on_behind_it() -> None:
    owner = Owner()
    owner.clock.advance(10)
    owner.loop.start()
    owner.answer(9, message(7), message(8), after=2.5)
    assert owner.told == [("pulled", "T", 2, 2500), ("found", [7, 8])]
    assert owner.process_queue.max_offset == 99
    assert owner.process_queue.last_pull_ms == 12_500
    assert (owner.asked, owner.loop.offset) == ([7, 9], 9)


def test_the_owner_says_how_long_to_rest_between_pulls() -> None:
    owner = Owner()
    owner.interval = 0.25
    owner.loop.start()
    owner.answer(8, message(7))
    assert owner.asked == [7]
    assert owner.asks_after(0.25)
    owner.rest = 1.5
    owner.answer(9, message(8))
    owner.clock.advance(0.25)
    assert owner.asked == [7, 8]
    owner.rest = 0.0
    owner.process_queue.remove([message(7), message(8)])
    assert owner.asks_after(1.5)


def test_a_full_cache_rests_and_is_counted() -> None:
    owner = Owner()
    owner.process_queue.put([message(1), message(2), message(3)])
    owner.loop.start()
    assert (owner.loop.full, owner.asked) == (1, [])
    owner.clock.advance(FULL_SECONDS)
    assert (owner.loop.full, owner.asked) == (2, [])
    owner.process_queue.remove([message(1), message(2), message(3)])
    assert owner.asks_after(FULL_SECONDS)
    assert owner.loop.full == 2


def test_a_topic_that_is_subscribed_no_more_is_not_asked_for() -> None:
    owner = Owner()
    owner.is_subscribed = False
    owner.loop.start()
    assert owner.asked == []
    owner.is_subscribed = True
    assert owner.asks_after(ERROR_S)


def test_nothing_below_is_said_only_while_nothing_is_cached() -> None:
    """What is cached is not consumed: an offset behind it would skip it after a restart."""
    owner = Owner()
    owner.loop.start()
    owner.answer(8, status=PullStatus.NO_MATCHED_MSG)
    assert owner.told == [("nothing below", 8)]
    owner.process_queue.put([message(8)])
    owner.answer(12, status=PullStatus.NO_MATCHED_MSG)
    assert owner.told == [("nothing below", 8)]
    assert owner.asked == [7, 8, 12]


def test_an_answer_without_progress_that_was_not_held_does_not_spin() -> None:
    owner = Owner()
    owner.loop.start()
    owner.answer(7, after=NOT_HELD_MS / 1000)
    assert owner.asked == [7, 7]
    owner.answer(7, after=NOT_HELD_MS / 1000 - 0.01)
    assert owner.asks_after(NOT_HELD_SECONDS)
    owner.answer(7, after=0, from_slave=True)
    assert owner.asks_after(ERROR_S)
    owner.answer(8, after=0)
    assert owner.asked[-1] == 8


def test_a_slave_that_is_behind_makes_nothing_come_again() -> None:
    owner = Owner()
    owner.loop.start()
    owner.answer(5, from_slave=True, status=PullStatus.OFFSET_ILLEGAL)
    assert (owner.told, owner.loop.offset) == ([], 7)
    assert owner.asks_after(ERROR_S)
    owner.answer(5, status=PullStatus.OFFSET_ILLEGAL)
    assert owner.told == [("moved", 5)]
    owner.clock.advance(99)
    assert owner.asked == [7, 7]


def test_a_slave_that_has_the_same_end_may_be_believed() -> None:
    owner = Owner()
    owner.loop.start()
    owner.answer(7, from_slave=True)
    assert owner.told == [("nothing below", 7)]


@pytest.mark.parametrize("how", ["stop", "halt", "dropped"])
def test_after_its_end_nothing_is_asked_and_no_answer_counts(how: str) -> None:
    def end(owner: Owner) -> None:
        if how == "dropped":
            owner.process_queue.dropped = True
        else:
            getattr(owner.loop, how)()

    owner = Owner()
    owner.loop.start()
    end(owner)
    owner.answer(9, message(7))
    assert (owner.told, owner.process_queue.max_offset) == ([], 0)
    owner = Owner()
    owner.loop.start()
    end(owner)
    owner.refuse(RemotingTimeout("slow"))
    assert owner.clock.getDelayedCalls() == []
    owner = Owner()
    owner.interval = 1.0
    owner.loop.start()
    owner.answer(8, message(7))
    end(owner)
    assert bool(owner.clock.getDelayedCalls()) is (how == "dropped")
    owner.clock.advance(9)
    owner.loop.poke()
    assert owner.asked == [7]
    assert owner.process_queue.dropped is (how != "halt")
    owner.loop.halt()
    assert owner.clock.getDelayedCalls() == []


def test_a_poke_looks_at_once_and_never_asks_twice() -> None:
    owner = Owner()
    owner.rest = 5.0
    owner.loop.start()
    owner.rest = 0.0
    owner.loop.poke()
    owner.clock.advance(0)
    assert owner.asked == [7]
    owner.loop.poke()
    owner.clock.advance(9)
    assert owner.asked == [7]


def refused(code: int) -> BrokerRefused:
    return BrokerRefused(code, "no", "b:1")


def test_errors_wait_and_a_busy_broker_is_asked_again_sooner() -> None:
    owner = Owner()
    owner.loop.start()
    for error in (RemotingTimeout("slow"), refused(1), RuntimeError("on purpose")):
        owner.refuse(error)
        assert owner.asks_after(ERROR_S)
    owner.refuse(refused(ResponseCode.FLOW_CONTROL))
    assert owner.asks_after(FLOW_CONTROL_SECONDS)
    assert owner.told == []
    assert set(owner.asked) == {7}


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    ],
)
def test_a_broker_that_does_not_know_the_subscription_is_told_at_the_first_and_every_tenth(
    code: ResponseCode,
) -> None:
    owner = Owner()
    owner.loop.start()
    for failures in range(1, 12):
        owner.refuse(refused(code))
        assert owner.told == ["unknown subscription"] * (1 + failures // 11)
        assert owner.asks_after(ERROR_S)
    owner.answer(8)
    owner.told.clear()
    owner.refuse(refused(code))
    assert owner.told == ["unknown subscription"]


def test_a_pull_that_fails_at_once_is_as_one_that_fails_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner()
    monkeypatch.setattr(owner, "pull", lambda pull: fail(RemotingTimeout("no connection")))
    owner.loop.start()
    monkeypatch.undo()
    assert owner.asks_after(ERROR_S)


def test_a_log_says_the_first_and_every_tenth_failure_and_where_the_fault_is_ours() -> None:
    def levels(count: int, error: Exception) -> list[int]:
        owner = Owner()
        owner.loop.start()
        said = []
        with capturedLogs() as events:
            for turn in range(1, count + 1):
                owner.refuse(error)
                said += [turn] * len(events)
                seen.update(event["log_level"] for event in events)
                events.clear()
                owner.clock.advance(ERROR_S)
        return said

    seen: set[LogLevel] = set()
    assert levels(12, RemotingTimeout("slow")) == [1, 11]
    assert levels(14, refused(ResponseCode.SUBSCRIPTION_NOT_EXIST)) == [3, 13]
    assert seen == {LogLevel.warn}
    assert levels(2, RuntimeError("on purpose")) == [1, 2]
    assert LogLevel.critical in seen


def test_a_log_says_once_that_a_queue_rests() -> None:
    owner = Owner()
    owner.process_queue.put([message(1), message(2), message(3)])
    with capturedLogs() as events:
        owner.loop.start()
        assert [event["reason"] for event in events] == ["3 messages are cached"]
        owner.clock.advance(FULL_SECONDS)
    assert (owner.loop.full, len(events)) == (2, 1)
