"""Both ways of consuming, with a listener, offsets and brokers that are written down."""

import asyncio
from typing import Any

import msgspec
import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.consume.consume_concurrently import (
    AGAIN_SECONDS,
    TIMEOUT_LEVEL,
    ConsumeConcurrently,
)
from rmq_ha.client.consume.consume_orderly import (
    FIRST_RENEWAL_SECONDS,
    LOCK_AGAIN_SECONDS,
    RENEW_SECONDS,
    ConsumeOrderly,
)
from rmq_ha.client.consume.consume_service import CALLS_PER_TURN, ConsumeParts
from rmq_ha.client.rules.consume_stats import ConsumeRates
from rmq_ha.client.rules.consumer_settings import MessageModel, PushConsumerConfig
from rmq_ha.client.rules.listening import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    NotTaken,
    as_deferred,
)
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.process_queue import LOCK_EXPIRED_MS, ProcessQueue
from tests.unit.client.scripted import QUEUE, Scripted, message

SUCCESS, LATER = (
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER,
)
DONE, COMMIT = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.COMMIT
ROLLBACK = ConsumeOrderlyStatus.ROLLBACK
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
SECOND = msgspec.structs.replace(QUEUE, queue_id=1)


class Service:
    """
    A consume service; the other parts of a consumer are this object.

    :ivar calls: offsets that the listener got, in the order of its calls, with the context.
    :ivar answers: of the listener, by turns; then `SUCCESS` of the kind; Deferreds are waited for.
    :ivar committed: offsets that were handed to the offset store, by queue.
    :ivar given: what went back: offset, delay level, broker.
    :ivar copied: what went to the dead-letter queue: offset and how often it was consumed.
    """

    max_reconsume_times = 16

    def __init__(self, *, orderly: bool = False, hooks: Any = (), **config: Any) -> None:
        self.client = Scripted(namespace=config.pop("namespace", ""))
        self.clock = self.client.clock
        self.answers: list[Any] = []
        self.calls: list[tuple[list[int], Any]] = []
        self.topics: list[str] = []
        self.committed: dict[MessageQueue, list[int]] = {}
        self.given: list[Any] = []
        self.copied: list[Any] = []
        self.takes_back: Any = True
        self.locks: list[list[MessageQueue]] = []
        self.promised: Any = None
        self.stats = ConsumeRates()
        parts = ConsumeParts(
            self.client.instance,
            "g",
            PushConsumerConfig(**config),
            self.listen,
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.stats,
            hooks,
        )
        self.service: Any = (
            ConsumeOrderly(parts, self) if orderly else ConsumeConcurrently(parts)  # type: ignore[arg-type]
        )

    def listen(self, messages: Any, context: Any) -> Any:
        self.calls.append(([item.queue_offset for item in messages], context))
        self.topics += [item.topic for item in messages]
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer(context) if callable(answer) else answer

    def update_offset(self, queue: MessageQueue, offset: int, increase_only: bool) -> None:
        assert increase_only is not self.service.is_orderly
        self.committed.setdefault(queue, []).append(offset)

    async def give_back(self, item: MessageExt, level: int, broker_name: str | None) -> bool:
        self.given.append((item.queue_offset, level, broker_name))
        if isinstance(self.takes_back, Exception):
            raise self.takes_back
        return self.takes_back(item) if callable(self.takes_back) else self.takes_back

    async def send_copy(self, item: MessageExt) -> bool:
        self.copied.append((item.queue_offset, item.properties["RECONSUME_TIME"]))
        return await self.give_back(item, 0, None)

    async def lock(self, group: str, client_id: str, broker_name: str, queues: Any) -> Any:
        self.locks.append(list(queues))
        if self.promised is not None:
            return [queue for queue in queues if queue in self.promised]
        return list(queues)

    def queue(self, *offsets: int, queue: MessageQueue = QUEUE, locked: bool = True) -> Any:
        """A queue with pulled messages, submitted."""
        cache = ProcessQueue(self.client.instance.host.steady_ms())
        cache.locked = locked
        self.more(cache, *offsets, queue=queue)
        return cache

    def more(self, cache: ProcessQueue, *offsets: int, queue: MessageQueue = QUEUE) -> None:
        self.service.submit(cache, queue, cache.put(map(message, offsets)))

    def shown(self) -> list[list[int]]:
        """What the listener got since."""
        calls, self.calls = self.calls, []
        return [offsets for offsets, _ in calls]

    def run(self, seconds: float) -> None:
        self.clock.run_for(seconds)

    def timers(self) -> list[Any]:
        return self.client.instance.host.clock.getDelayedCalls()


def outcome(later: "Deferred[None]") -> list[None]:
    """Empty until it is over."""
    results: list[None] = []
    later.addCallback(results.append)
    return results


# Concurrently


def test_messages_are_shown_in_batches_and_committed_when_all_below_are_consumed() -> None:
    service = Service(consume_message_batch_max_size=2)
    first, second, third = Deferred[Any](), Deferred[Any](), Deferred[Any]()
    service.answers = [first, second, third]
    cache = service.queue(10, 11, 12, 13, 14)
    assert service.shown() == [[10, 11], [12, 13], [14]]
    second.callback(SUCCESS)
    assert service.committed == {QUEUE: [10]}
    first.callback(None)
    assert service.committed == {QUEUE: [10, 14]}
    third.callback(SUCCESS)
    assert service.committed == {QUEUE: [10, 14, 15]}
    assert cache.count == 0


def test_no_more_calls_run_at_a_time_than_may() -> None:
    service = Service(consume_concurrency=2)
    waiting = [Deferred[Any]() for _ in range(4)]
    service.answers = list(waiting)
    service.queue(0, 1, 2, 3)
    assert service.shown() == [[0], [1]]
    waiting[1].callback(None)
    assert service.shown() == [[2]]
    waiting[0].callback(None)
    assert service.shown() == [[3]]


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_answers_at_once_leaves_the_reactor_to_others(orderly: bool) -> None:
    service = Service(orderly=orderly)
    service.queue(*range(CALLS_PER_TURN + 3))
    assert len(service.shown()) == CALLS_PER_TURN
    service.run(0.001)
    assert len(service.shown()) == 3
    assert service.committed[QUEUE][-1] == CALLS_PER_TURN + 3


@pytest.mark.parametrize("answer", [LATER, RuntimeError("on purpose"), "nonsense"])
def test_what_was_not_consumed_goes_back_and_then_counts_as_consumed(answer: Any) -> None:
    service = Service(consume_message_batch_max_size=2)
    service.answers = [answer]
    service.queue(5, 6)
    assert service.given == [(5, 0, "a"), (6, 0, "a")]
    assert service.committed == {QUEUE: [7]}
    assert service.stats.status("T", 0)["consumeFailedMsgs"] == 2


def test_the_listener_says_how_many_were_consumed_and_how_long_the_rest_waits() -> None:
    def some(context: Any) -> Any:
        context.ack_index = 0
        context.delay_level_when_next_consume = 4
        return SUCCESS

    def none(context: Any) -> Any:
        context.ack_index = -1
        return SUCCESS

    def beyond(context: Any) -> Any:
        context.ack_index = 99
        return SUCCESS

    service = Service(consume_message_batch_max_size=3)
    service.answers = [some, none, beyond]
    service.queue(*range(9))
    assert service.given == [(1, 4, "a"), (2, 4, "a"), (3, 0, "a"), (4, 0, "a"), (5, 0, "a")]
    assert service.committed == {QUEUE: [3, 6, 9]}


def test_what_no_broker_takes_back_is_not_committed_and_comes_again() -> None:
    """Committed, it would be lost when the process ends."""
    service = Service(consume_message_batch_max_size=3)
    service.takes_back = lambda item: item.queue_offset != 1
    service.answers = [LATER, LATER]
    cache = service.queue(0, 1, 2)
    assert service.committed == {QUEUE: [1]}
    assert [item.reconsume_times for item in (cache.first_waiting(),) if item] == [1]
    service.shown()
    service.run(AGAIN_SECONDS - 0.1)
    assert service.shown() == []
    service.run(0.2)
    assert service.shown() == [[1]]
    service.takes_back = True
    service.answers = [LATER]
    service.run(AGAIN_SECONDS)
    assert service.committed == {QUEUE: [1, 1, 3]}
    assert (cache.count, service.timers()) == (0, [])
    assert outcome(service.service.stop(1000))


def test_when_giving_back_breaks_the_next_messages_are_still_shown() -> None:
    service = Service(consume_concurrency=1)
    service.takes_back = RuntimeError("on purpose")
    service.answers = [LATER]
    with capturedLogs() as events:
        service.queue(0, 1)
    assert [event["log_level"] for event in events] == [LogLevel.critical]
    assert service.shown() == [[0], [1]]
    assert service.committed == {QUEUE: [0]}


def test_when_broadcasting_nothing_goes_back() -> None:
    service = Service(message_model=MessageModel.BROADCASTING, consume_message_batch_max_size=2)
    service.answers = [LATER]
    with capturedLogs() as events:
        service.queue(0, 1)
    assert len(events) == 2
    said = [event["id"] for event in events if event["log_level"] is LogLevel.warn]
    assert said == ["id0", "id1"]
    assert (service.given, service.committed) == ([], {QUEUE: [2]})


def test_a_queue_that_was_lost_is_not_shown_committed_or_given_back() -> None:
    """It is another member's, who begins at the offset that was committed."""
    service = Service(consume_concurrency=2)
    waiting = [Deferred[Any](), Deferred[Any]()]
    service.answers = list(waiting)
    cache = service.queue(0, 1, 2)
    service.shown()
    cache.dropped = True
    waiting[0].callback(SUCCESS)
    waiting[1].callback(LATER)
    assert (service.shown(), service.committed, service.given) == ([], {}, [])


def test_a_queue_that_is_lost_while_its_messages_go_back_is_not_committed() -> None:
    service = Service()
    service.answers = [LATER]

    def lose(item: Any) -> bool:
        cache.dropped = True
        return True

    service.takes_back = lose
    cache = ProcessQueue()
    service.more(cache, 0)
    assert (service.given, service.committed) == ([(0, 0, "a")], {})


def test_what_waits_of_a_queue_that_is_left_is_forgotten() -> None:
    service = Service(consume_concurrency=1)
    waiting = Deferred[Any]()
    service.answers = [waiting]
    mine, other = service.queue(0, 1, 2), service.queue(7, queue=SECOND)
    assert service.service.leave(mine, QUEUE) is None
    service.shown()
    waiting.callback(None)
    assert service.shown() == [[7]]
    assert other.count == 0


def test_a_stop_waits_for_what_runs_and_begins_nothing() -> None:
    service = Service(consume_concurrency=1)
    waiting = Deferred[Any]()
    service.answers = [waiting]
    service.queue(0, 1)
    stopped = outcome(service.service.stop(5000))
    service.run(4.9)
    assert not stopped
    waiting.callback(None)
    assert stopped
    assert (service.shown(), service.committed) == ([[0]], {QUEUE: [1]})
    assert service.timers() == []
    assert Service().service.stop(5000).called


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_does_not_end_is_cancelled_and_its_messages_are_not_committed(
    orderly: bool,
) -> None:
    service = Service(orderly=orderly)
    cancelled: list[Any] = []
    service.answers = [Deferred(cancelled.append)]
    cache = service.queue(0)
    stopped = outcome(service.service.stop(5000))
    service.run(4.9)
    assert (stopped, cancelled) == ([], [])
    service.run(0.2)
    assert stopped
    assert len(cancelled) == 1
    assert cache.dropped
    assert (service.committed, service.given, service.timers()) == ({}, [], [])


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_stops_its_consumer_is_called_no_more(orderly: bool) -> None:
    def stop(context: Any) -> None:
        service.service.stop(5000)

    service = Service(orderly=orderly, consume_concurrency=1)
    running = Deferred[Any]()
    service.answers = [running, stop]
    service.queue(0)
    service.queue(7, 8, queue=SECOND)
    service.queue(9, queue=msgspec.structs.replace(QUEUE, queue_id=2))
    running.callback(None)
    service.run(1)
    assert service.shown() == [[0], [7]]
    assert service.committed == {QUEUE: [1], SECOND: [8]}


def test_a_stop_forgets_what_was_to_come_again() -> None:
    service = Service()
    service.takes_back = False
    service.answers = [LATER]
    service.queue(0)
    service.shown()
    assert service.service.stop(1000).called
    assert service.timers() == []
    service.run(2 * AGAIN_SECONDS)
    assert service.shown() == []


def test_what_no_broker_takes_back_during_a_stop_does_not_come_again() -> None:
    service = Service()
    waiting = Deferred[Any]()
    service.answers = [waiting]
    service.takes_back = False
    service.queue(0)
    stopped = outcome(service.service.stop(1000))
    waiting.callback(LATER)
    assert stopped
    assert service.timers() == []


@pytest.mark.parametrize("orderly", [False, True])
def test_a_stop_in_the_middle_of_a_turn_shows_no_more(orderly: bool) -> None:
    service = Service(orderly=orderly)
    service.queue(*range(CALLS_PER_TURN + 3))
    service.shown()
    service.service.stop(1000)
    assert service.timers() == []
    service.run(1)
    assert service.shown() == []


def test_a_listener_that_has_a_message_for_too_long_is_cancelled_and_it_goes_back() -> None:
    service = Service(consume_timeout_ms=60_000)
    cancelled: list[Any] = []
    service.answers = [Deferred(cancelled.append)]
    service.queue(0)
    service.run(60)
    service.service.clean_expired()
    assert cancelled == []
    service.run(0.01)
    service.service.clean_expired()
    assert len(cancelled) == 1
    assert service.given == [(0, TIMEOUT_LEVEL, "a")]
    assert service.committed == {QUEUE: [1]}


def test_what_is_on_its_way_back_is_not_with_the_listener_any_more() -> None:
    """Nobody is told that it takes too long."""
    service = Service(consume_timeout_ms=60_000)

    async def give_back(*_: Any) -> bool:
        return await Deferred[bool]()

    service.give_back = give_back  # type: ignore[method-assign]
    service.answers = [LATER, Deferred()]
    service.answers[1].callback(LATER)
    service.queue(0, 1)
    service.run(61)
    with capturedLogs() as events:
        service.service.clean_expired()
    assert events == []


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_goes_on_though_it_is_cancelled_disturbs_nothing(orderly: bool) -> None:
    service = Service(orderly=orderly)
    end = Deferred[Any]()

    async def stubborn() -> None:
        try:
            await Deferred[None]()
        except CancelledError:
            await end

    service.answers = [stubborn()]
    service.queue(0)
    stopped = outcome(service.service.stop(5000))
    service.run(5.1)
    assert stopped
    with capturedLogs() as events:
        end.callback(None)
    assert [event for event in events if event["log_level"] >= LogLevel.warn] == []
    assert service.committed == {}


@pytest.mark.parametrize("orderly", [False, True])
def test_what_nobody_has_seen_is_not_committed_and_keeps_no_stop_waiting(orderly: bool) -> None:
    service = Service(orderly=orderly)
    service.answers = [NotTaken()]
    service.queue(0)
    assert outcome(service.service.stop(5000))
    assert (service.committed, service.given) == ({}, [])


def test_offsets_that_an_application_s_store_does_not_take_stop_no_queue() -> None:
    service = Service(message_model=MessageModel.BROADCASTING, consume_concurrency=1)

    def broken(*_: Any) -> None:
        raise RuntimeError("on purpose")

    service.update_offset = broken  # type: ignore[method-assign]
    service.queue(0, 1)
    assert service.shown() == [[0], [1]]
    assert outcome(service.service.stop(5000))


def test_a_queue_knows_when_the_listener_last_had_something_of_it() -> None:
    service = Service()
    service.run(3)
    cache = service.queue()
    service.run(4)
    service.more(cache, 0)
    assert cache.last_consume_ms == service.client.instance.host.steady_ms()


@pytest.mark.parametrize("config", [{}, {"message_model": MessageModel.BROADCASTING}])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
def test_whatever_becomes_of_a_call_its_place_is_free_again(
    orderly: bool, is_lost: bool, config: Any
) -> None:
    service = Service(orderly=orderly, consume_concurrency=1, **config)
    waiting = Deferred[Any]()
    service.answers = [waiting]
    cache = service.queue(0)
    service.queue(7, queue=SECOND)
    cache.dropped = is_lost
    waiting.callback(SUSPEND if orderly else LATER)
    assert service.shown() == [[0], [7]]


def test_a_stop_waits_no_longer_for_a_broker_that_is_to_take_something_back() -> None:
    service = Service(consume_concurrency=2)
    silent = Deferred[bool]()

    async def give_back(*_: Any) -> bool:
        return await silent

    service.give_back = give_back  # type: ignore[method-assign]
    service.answers = [LATER, LATER]
    service.queue(0, 1)
    stopped = outcome(service.service.stop(5000))
    service.run(4.9)
    assert not stopped
    service.run(0.2)
    assert stopped
    silent.callback(True)
    assert service.committed == {}


def test_all_listeners_that_do_not_end_are_cancelled() -> None:
    service = Service()
    cancelled: list[Any] = []
    service.answers = [Deferred(cancelled.append) for _ in range(3)]
    service.queue(0, 1, 2)
    stopped = [outcome(service.service.stop(5000)), outcome(service.service.stop(5000))]
    service.run(5.1)
    assert len(cancelled) == 3
    assert all(stopped)


def test_a_stop_forgets_all_that_was_to_come_again() -> None:
    service = Service()
    service.takes_back = False
    service.answers = [LATER, LATER]
    service.queue(0, 1)
    service.run(1)
    assert len(service.timers()) == 2
    outcome(service.service.stop(1000))
    assert service.timers() == []


@pytest.mark.parametrize("orderly", [False, True])
def test_a_line_says_that_all_places_are_held(orderly: bool) -> None:
    """Once a minute, and never while places become free."""
    service = Service(orderly=orderly, consume_concurrency=2)
    service.answers = [Deferred() for _ in range(4)]
    later = list(service.answers)
    for offset, queue in ((0, QUEUE), (1, SECOND), (2, msgspec.structs.replace(QUEUE, queue_id=2))):
        service.queue(offset, queue=queue)
    with capturedLogs() as events:
        service.run(9.9)
        assert events == []
        service.run(0.2)
        (event,) = events
        text = formatEvent(event)
        assert "g shows no further message: all 2 places" in text
        assert "The first of their messages is id0 of" in text
        service.run(59)
        assert len(events) == 1
        service.run(12)
        assert len(events) == 2
        for answer in later[:3]:
            answer.callback(None)
            service.run(6)
        assert len(events) == 2
    outcome(service.service.stop(1000))
    assert service.timers() == []


def test_every_listener_that_is_late_is_cancelled() -> None:
    service = Service(consume_timeout_ms=60_000)
    service.answers = [Deferred(), Deferred()]
    service.queue(0, 1)
    service.run(60.01)
    service.service.clean_expired()
    assert [offset for offset, *_ in service.given] == [0, 1]


def test_queues_are_served_in_the_order_in_which_they_came() -> None:
    service = Service(orderly=True, consume_concurrency=1)
    waiting = Deferred[Any]()
    service.answers = [waiting]
    for number in range(3):
        service.queue(number, queue=msgspec.structs.replace(QUEUE, queue_id=number))
    waiting.callback(None)
    assert service.shown() == [[0], [1], [2]]


@pytest.mark.parametrize("is_stop", [False, True])
def test_a_queue_that_is_lost_while_its_turn_is_to_come_is_not_shown(is_stop: bool) -> None:
    service = Service(orderly=True, consume_concurrency=1)
    waiting = Deferred[Any]()
    service.answers = [waiting]
    service.queue(0)
    cache = service.queue(7, queue=SECOND)
    if is_stop:
        outcome(service.service.stop(1000))
    else:
        cache.dropped = True
    waiting.callback(None)
    assert service.shown() == [[0]]


def test_a_log_says_which_lock_was_lost() -> None:
    service = Service(orderly=True)
    cache = service.queue()
    service.service.owned({QUEUE: cache})
    with capturedLogs() as events:
        for promised in ([QUEUE], [], []):
            service.promised = promised
            service.client.wait(service.service.renew_locks())
    assert [event["log_level"] for event in events] == [LogLevel.warn]


# The listener


def test_a_retried_message_shows_its_first_topic_without_the_namespace() -> None:
    again, plain = message(0, RETRY_TOPIC="N%T"), message(1)
    again.topic, plain.topic = "%RETRY%g", "N%other"
    service = Service(namespace="N", consume_message_batch_max_size=2)
    cache = ProcessQueue()
    service.service.submit(cache, QUEUE, cache.put([again, plain]))
    assert service.topics == ["T", "other"]
    directly = message(2, RETRY_TOPIC="N%T")
    directly.topic = "%RETRY%g"
    service.client.wait(service.service.consume_directly(directly))
    assert service.topics[-1] == "T"


def test_hooks_see_every_call_whatever_they_or_the_listener_do() -> None:
    seen: list[Any] = []

    class Hook:
        def before_consume(self, context: Any) -> None:
            seen.append((context.consumer_group, context.status, len(context.messages)))
            context.properties["kept"] = len(seen)
            raise RuntimeError("on purpose")

        def after_consume(self, context: Any) -> None:
            seen.append((context.properties["kept"], context.status, context.success))
            raise RuntimeError("on purpose")

    service = Service(hooks=[Hook(), Hook()])
    service.answers = [None, LATER, RuntimeError("on purpose")]
    service.queue(0, 1, 2)
    before = ("g", "", 1)
    assert seen[:4] == [before, before, (2, "CONSUME_SUCCESS", True), (2, "CONSUME_SUCCESS", True)]
    assert seen[6:8] == [(6, "RECONSUME_LATER", False)] * 2
    assert seen[10:] == [(10, "EXCEPTION", False)] * 2
    assert service.committed[QUEUE][-1] == 3


def test_statistics_say_how_long_the_listener_took() -> None:
    service = Service()
    waiting = Deferred[Any]()
    service.answers = [waiting]
    service.run(1)
    service.queue(0)
    service.run(0.5)
    waiting.callback(None)
    status = service.stats.status("T", service.client.instance.host.steady_ms())
    assert (status["consumeRT"], status["consumeFailedMsgs"]) == (500.0, 0)


def test_a_cancelled_listener_is_a_warning_and_one_that_breaks_a_fault() -> None:
    def said(answer: Any) -> list[Any]:
        service = Service(consume_message_batch_max_size=2)
        service.answers = [answer]
        with capturedLogs() as events:
            service.queue(0, 1)
            if isinstance(answer, Deferred):
                answer.cancel()
        return [(event["log_level"], event["id"]) for event in events if "id" in event]

    assert said(Deferred()) == [(LogLevel.warn, "id0")]
    assert said(RuntimeError("on purpose")) == [(LogLevel.critical, "id0")]


def test_a_log_says_at_once_where_a_message_goes_that_the_listener_will_not_try_again() -> None:
    """Though it has attempts left: the listener asked for none."""

    def never_again(context: Any) -> Any:
        context.delay_level_when_next_consume = -1
        return LATER

    service = Service()
    service.answers = [never_again]
    with capturedLogs() as events:
        service.queue(0)
    said = [event["fate"] for event in events if "fate" in event]
    assert said == ["it goes to %DLQ%g"]


@pytest.mark.parametrize("orderly", [False, True])
def test_one_message_for_an_operator_touches_no_offset(orderly: bool) -> None:
    service = Service(orderly=orderly)

    def directly(answer: Any) -> Any:
        service.answers = [answer]
        return service.client.wait(service.service.consume_directly(message(3)))

    later = SUSPEND if orderly else LATER
    for answer, result in (
        (None, "CR_SUCCESS"),
        (later, "CR_LATER"),
        ("nonsense", "CR_LATER"),
        (RuntimeError("on purpose"), "CR_THROW_EXCEPTION"),
    ):
        found = directly(answer)
        assert found["consumeResult"] == result
        assert found["order"] is orderly
        assert found["autoCommit"] is True
        assert found["remark"] == ("on purpose" if isinstance(answer, Exception) else None)
    assert (service.committed, service.given) == ({}, [])
    waiting = Deferred[Any]()
    service.answers = [waiting]
    service.run(1)
    later_result: list[Any] = []
    started = Deferred.fromCoroutine(service.service.consume_directly(message(3)))
    started.addCallback(later_result.append)
    service.run(0.25)
    waiting.callback(later)
    assert (later_result[0]["spentTimeMills"], later_result[0]["consumeResult"]) == (
        250,
        "CR_LATER",
    )


def test_whatever_a_listener_returns_is_waited_for_or_is_the_answer() -> None:
    """Coroutines, Deferreds, asyncio's futures and other awaitables."""

    class Awaitable:
        def __await__(self) -> Any:
            return iter(())

    async def coroutine() -> int:
        return 5

    assert as_deferred(SUCCESS) is None
    assert as_deferred("text") is None
    waiting = Deferred[Any]()
    assert as_deferred(waiting) is waiting
    results: list[Any] = []
    for outcome in (coroutine(), Awaitable()):
        later = as_deferred(outcome)
        assert later is not None
        later.addCallback(results.append)
    assert results == [5, None]

    async def with_loop() -> None:
        future = asyncio.get_running_loop().create_future()
        later = as_deferred(future)
        assert later is not None
        later.addCallback(results.append)
        future.set_result(6)
        await asyncio.sleep(0)

    asyncio.run(with_loop())
    assert results == [5, None, 6]


# Orderly


def test_one_queue_is_shown_one_call_at_a_time_and_others_meanwhile() -> None:
    service = Service(orderly=True, consume_message_batch_max_size=2)
    first, second = Deferred[Any](), Deferred[Any]()
    service.answers = [first, second]
    cache = service.queue(0, 1, 2)
    service.queue(7, queue=SECOND)
    assert service.shown() == [[0, 1], [7]]
    service.more(cache, 3)
    assert service.shown() == []
    first.callback(DONE)
    assert service.shown() == [[2, 3]]
    assert service.committed == {QUEUE: [2, 4]}
    second.callback(None)
    assert service.committed == {QUEUE: [2, 4], SECOND: [8]}
    service.more(cache, 4)
    assert service.shown() == [[4]]


def test_no_more_queues_are_shown_at_a_time_than_may() -> None:
    service = Service(orderly=True, consume_concurrency=1)
    first = Deferred[Any]()
    service.answers = [first]
    service.queue(0)
    service.queue(7, queue=SECOND)
    assert service.shown() == [[0]]
    first.callback(None)
    assert service.shown() == [[7]]


def test_without_a_lock_nothing_is_shown_until_the_broker_confirms_one() -> None:
    """Another member may be at the same queue."""
    service = Service(orderly=True)
    service.promised = []
    cache = service.queue(0, locked=False)
    for _ in range(3):
        assert (service.shown(), cache.locked) == ([], False)
        service.run(LOCK_AGAIN_SECONDS)
    assert service.locks == [[QUEUE]] * 3
    service.promised = [QUEUE]
    service.run(LOCK_AGAIN_SECONDS)
    assert (service.shown(), cache.locked) == ([[0]], True)


def test_a_lock_that_was_not_renewed_is_asked_for_before_the_next_call() -> None:
    service = Service(orderly=True)
    service.run(5)
    cache = service.queue(0)
    service.run(LOCK_EXPIRED_MS / 1000)
    service.more(cache, 1)
    assert (service.shown(), service.locks) == ([[0], [1]], [])
    service.run(0.01)
    service.more(cache, 2)
    assert service.shown() == []
    service.run(LOCK_AGAIN_SECONDS)
    assert (service.shown(), service.locks) == ([[2]], [[QUEUE]])
    assert cache.last_lock_ms == service.client.instance.host.steady_ms()


def test_when_broadcasting_no_lock_is_needed() -> None:
    service = Service(orderly=True, message_model=MessageModel.BROADCASTING)
    service.service.start()
    service.queue(0, locked=False)
    service.run(2 * RENEW_SECONDS)
    assert (service.shown(), service.locks) == ([[0]], [])


def test_locks_are_renewed_and_what_is_not_confirmed_rests() -> None:
    service = Service(orderly=True)
    service.service.start()
    caches = {QUEUE: service.queue(), SECOND: service.queue(queue=SECOND)}
    gone = msgspec.structs.replace(QUEUE, queue_id=2)
    lost = service.queue(queue=gone)
    lost.dropped = True
    elsewhere = msgspec.structs.replace(QUEUE, broker_name="b")
    caches[elsewhere] = service.queue(queue=elsewhere)
    service.service.owned({**caches, gone: lost})
    service.promised = [QUEUE, elsewhere]
    service.run(FIRST_RENEWAL_SECONDS + 0.01)
    assert service.locks == [[QUEUE, SECOND], [elsewhere]]
    assert [cache.locked for cache in caches.values()] == [True, False, True]
    now = service.client.instance.host.steady_ms()
    assert caches[QUEUE].last_lock_ms >= now - 10
    service.locks.clear()
    service.run(RENEW_SECONDS)
    assert len(service.locks) == 2
    stopped = outcome(service.service.stop(1000))
    service.run(2 * RENEW_SECONDS)
    assert (len(stopped), len(service.locks)) == (1, 2)


def test_a_queue_that_is_given_up_during_a_renewal_is_not_locked_again() -> None:
    """Its new owner would be refused."""
    service = Service(orderly=True)
    elsewhere = msgspec.structs.replace(QUEUE, broker_name="b")
    queues = {QUEUE: service.queue(), elsewhere: service.queue(queue=elsewhere)}
    service.service.owned(queues)
    answer = Deferred[Any]()

    async def lock(group: Any, client: Any, broker: Any, asked: Any) -> Any:
        service.locks.append(list(asked))
        return await answer

    service.lock = lock  # type: ignore[method-assign]
    renewed = Deferred.fromCoroutine(service.service.renew_locks())
    kept = queues.pop(QUEUE)
    queues.pop(elsewhere)
    kept.locked = False
    answer.callback([QUEUE])
    assert renewed.called
    assert (service.locks, kept.locked) == ([[QUEUE]], False)


def test_a_lock_that_is_lost_is_said_once() -> None:
    service = Service(orderly=True)
    service.service.owned({QUEUE: service.queue()})
    service.promised = []
    with capturedLogs() as events:
        for _ in range(2):
            service.client.wait(service.service.renew_locks())
            assert [event["queue"] for event in events] == [QUEUE]


def test_what_is_suspended_comes_again_in_its_order_after_the_rest() -> None:
    service = Service(
        orderly=True, consume_message_batch_max_size=2, suspend_current_queue_time_ms=500
    )
    service.answers = [SUSPEND]
    cache = service.queue(0, 1, 2)
    assert (service.shown(), service.committed) == ([[0, 1]], {})
    service.more(cache, 3)
    service.run(0.49)
    assert service.shown() == []
    service.run(0.02)
    assert service.shown() == [[0, 1], [2, 3]]
    assert service.committed == {QUEUE: [2, 4]}


@pytest.mark.parametrize(("wanted", "rest"), [(-1, 1.0), (200, 0.2), (0, 0.01), (10**9, 30.0)])
@pytest.mark.parametrize("auto_commit", [True, False])
def test_the_listener_may_say_how_long_its_queue_rests(
    wanted: int, rest: float, auto_commit: bool
) -> None:
    def answer(context: Any) -> Any:
        context.suspend_current_queue_time_ms = wanted
        context.auto_commit = auto_commit
        return SUSPEND if auto_commit else ROLLBACK

    service = Service(orderly=True)
    service.answers = [answer]
    service.queue(0)
    service.shown()
    service.run(rest - 0.005)
    assert service.shown() == []
    service.run(0.01)
    assert service.shown() == [[0]]


def test_after_so_many_times_a_copy_goes_to_the_dead_letter_queue() -> None:
    service = Service(orderly=True, suspend_current_queue_time_ms=100)
    service.max_reconsume_times = 2
    service.answers = [SUSPEND] * 3
    cache = service.queue(0, 1)
    service.run(0.25)
    assert service.shown() == [[0], [0], [0], [1]]
    assert service.copied == [(0, "2")]
    assert service.committed == {QUEUE: [1, 2]}
    assert cache.count == 0


def test_a_copy_that_is_not_stored_leaves_the_message_in_its_place() -> None:
    service = Service(orderly=True, suspend_current_queue_time_ms=100)
    service.max_reconsume_times = 0
    service.takes_back = False
    service.answers = [SUSPEND, SUSPEND]
    service.queue(0, 1)
    assert (service.shown(), service.committed) == ([[0]], {})
    service.takes_back = True
    service.run(0.11)
    assert service.shown() == [[0], [1]]
    assert service.copied == [(0, "0"), (0, "1")]
    assert service.committed == {QUEUE: [1, 2]}


def test_a_batch_of_which_one_waits_comes_again_as_a_whole() -> None:
    service = Service(orderly=True, consume_message_batch_max_size=2)
    service.max_reconsume_times = 1
    old = message(0)
    old.reconsume_times = 1
    service.answers = [SUSPEND]
    cache = ProcessQueue()
    cache.locked = True
    service.service.submit(cache, QUEUE, cache.put([old, message(1)]))
    assert service.committed == {}
    assert service.copied == [(0, "1")]
    service.shown()
    service.run(1.01)
    assert service.shown() == [[0, 1]]


def test_when_suspending_breaks_the_queue_rests_and_goes_on() -> None:
    service = Service(orderly=True)
    service.max_reconsume_times = 0
    service.takes_back = RuntimeError("on purpose")
    service.answers = [SUSPEND]
    service.queue(0, 1)
    assert service.shown() == [[0]]
    service.run(1.01)
    assert service.shown() == [[1]]


def test_without_auto_commit_only_commit_commits() -> None:
    def manual(status: Any) -> Any:
        def answer(context: Any) -> Any:
            context.auto_commit = False
            return status

        return answer

    service = Service(orderly=True)
    service.answers = [manual(DONE), manual(DONE), manual(COMMIT), manual(DONE), manual(ROLLBACK)]
    cache = service.queue(0, 1, 2, 3, 4)
    assert service.shown() == [[0], [1], [2], [3], [4]]
    assert service.committed == {QUEUE: [3]}
    service.answers = [manual(COMMIT)]
    service.run(1.01)
    assert service.shown()[0] == [3]
    assert cache.count == 0


def test_rollback_with_auto_commit_is_success() -> None:
    service = Service(orderly=True)
    service.answers = [ROLLBACK, COMMIT]
    service.queue(0, 1)
    assert service.committed == {QUEUE: [1, 2]}


def test_a_lost_queue_is_handed_over_when_the_listener_is_done_with_it() -> None:
    service = Service(orderly=True)
    waiting = Deferred[Any]()
    service.answers = [waiting]
    cache = service.queue(0, 1)
    cache.dropped = True
    left = service.service.leave(cache, QUEUE)
    assert left is not None
    assert not left.called
    waiting.callback(DONE)
    assert left.called
    assert (service.shown(), service.committed) == ([[0]], {})
    assert service.service.leave(cache, QUEUE) is None


def test_what_comes_while_a_lock_is_asked_for_waits_for_the_answer() -> None:
    """Two calls of one queue would run at a time otherwise."""
    service = Service(orderly=True)
    answer = Deferred[Any]()

    async def lock(group: Any, client: Any, broker: Any, asked: Any) -> Any:
        service.locks.append(list(asked))
        return await answer

    service.lock = lock  # type: ignore[method-assign]
    cache = service.queue(0, locked=False)
    service.more(cache, 1)
    service.run(LOCK_AGAIN_SECONDS)
    service.more(cache, 2)
    service.run(5 * LOCK_AGAIN_SECONDS)
    first = Deferred[Any]()
    service.answers = [first]
    answer.callback([QUEUE])
    service.more(cache, 3)
    service.run(5 * LOCK_AGAIN_SECONDS)
    assert (service.locks, service.shown()) == ([[QUEUE]], [[0]])
    first.callback(DONE)
    assert service.shown() == [[1], [2], [3]]


def test_a_lost_queue_rests_no_more_whatever_the_listener_answers() -> None:
    service = Service(orderly=True)
    waiting = Deferred[Any]()
    service.answers = [waiting]
    cache = service.queue(0)
    cache.dropped = True
    left = service.service.leave(cache, QUEUE)
    assert left is not None
    waiting.callback(SUSPEND)
    assert left.called
    assert (service.timers(), service.service.leave(cache, QUEUE)) == ([], None)


def test_after_an_orderly_stop_nothing_rests_that_was_with_the_listener() -> None:
    service = Service(orderly=True)
    running = [Deferred[Any](), Deferred[Any]()]
    service.answers = [*running, SUSPEND, SUSPEND]
    for number in range(4):
        service.queue(number, queue=msgspec.structs.replace(QUEUE, queue_id=number))
    service.service.stop(5000)
    running[0].callback(SUSPEND)
    running[1].callback(DONE)
    assert service.timers() == []
    service.run(5)
    assert service.shown() == [[0], [1], [2], [3]]


def test_a_lost_queue_of_which_the_listener_has_nothing_is_handed_over_at_once() -> None:
    service = Service(orderly=True)
    service.answers = [SUSPEND]
    cache = service.queue(0)
    service.queue(1, queue=SECOND)
    cache.dropped = True
    assert service.service.leave(cache, QUEUE) is None
    assert service.timers() == []
    service.run(5)
    assert service.shown() == [[0], [1]]


def test_a_queue_that_is_lost_while_a_copy_is_sent_is_not_committed() -> None:
    service = Service(orderly=True)
    service.max_reconsume_times = 0

    def lose(item: Any) -> bool:
        cache.dropped = True
        return True

    service.takes_back = lose
    service.answers = [SUSPEND]
    cache = ProcessQueue()
    cache.locked = True
    service.more(cache, 0)
    assert (service.copied, service.committed) == ([(0, "0")], {})


def test_an_orderly_stop_waits_begins_nothing_and_leaves_no_timer() -> None:
    service = Service(orderly=True)
    service.service.start()
    waiting = Deferred[Any]()
    service.answers = [waiting, SUSPEND]
    service.queue(0, 1)
    resting = service.queue(7, queue=SECOND)
    service.shown()
    stopped = outcome(service.service.stop(5000))
    assert not stopped
    waiting.callback(DONE)
    assert stopped
    assert service.service.leave(resting, SECOND) is None
    assert (service.committed, service.timers()) == ({QUEUE: [1]}, [])
    service.run(40)
    assert service.shown() == []


def test_a_context_of_nonsense_does_not_stop_a_queue() -> None:
    def broken(context: Any) -> Any:
        context.ack_index = "many"
        return SUCCESS

    service = Service(consume_concurrency=1)
    service.answers = [broken]
    service.queue(0, 1)
    assert service.shown() == [[0], [1]]
    assert service.given == [(0, 0, "a")]
    orderly = Service(orderly=True)

    def nonsense(context: Any) -> Any:
        context.suspend_current_queue_time_ms = "long"
        return SUSPEND

    orderly.answers = [nonsense]
    orderly.queue(0)
    assert orderly.shown() == [[0]]
    assert outcome(orderly.service.stop(1000))


# Statistics


def test_statistics_are_of_the_last_minute() -> None:
    stats = ConsumeRates()
    stats.consumed("T", 30, 10, 1000)
    stats.consumed("T", 30, 30, 4000)
    stats.failed("T", 6, 6000)
    stats.pulled("T", 60, 8, 6000)
    stats.pulled("T", 60, 4, 7000)
    assert stats.status("T", 8000) == {
        "consumeFailedMsgs": 6,
        "consumeFailedTPS": 0.1,
        "consumeOKTPS": 1.0,
        "consumeRT": 20.0,
        "pullRT": 6.0,
        "pullTPS": 2.0,
    }
    late = stats.status("T", 61_000)
    assert (late["consumeOKTPS"], late["consumeRT"], late["consumeFailedMsgs"]) == (0.0, 0.0, 6)
    assert stats.status("T", 66_000)["pullRT"] == 0.0
    stats.forget("T")
    stats.forget("T")
    assert stats.status("T", 8000)["consumeFailedMsgs"] == 0
