"""Queues of push and lite pull consumers, from assignment to hand-over, with scripted pulls."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogLevel, capturedLogs

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.consume.lite_queues import LiteQueues
from rmq_ha.client.consume.offsets import RemoteBrokerOffsetStore
from rmq_ha.client.consume.pull_api import PullAnswer
from rmq_ha.client.consume.pull_loop import FULL_SECONDS, PAUSED_SECONDS
from rmq_ha.client.consume.push_queues import PULL_TIMEOUT_MS, SUSPEND_MS, PushQueues
from rmq_ha.client.lookup.pulls import Pull
from rmq_ha.client.rules.consume_stats import ConsumeRates
from rmq_ha.client.rules.consumer_settings import (
    LitePullConsumerConfig,
    MessageModel,
    PushConsumerConfig,
)
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError
from rmq_ha.client.rules.messages import MessageExt, PullResult, PullStatus
from rmq_ha.client.rules.process_queue import PULL_EXPIRED_MS, ProcessQueue
from rmq_ha.client.rules.subscriptions import MessageSelector, Subscriptions, subscription
from tests.unit.client.scripted import QUEUE, Scripted, message

SECOND = msgspec.structs.replace(QUEUE, queue_id=1)
ERROR_S = 3.0


class Pulls:
    """In the place of `PullApi`: pulls wait until they are answered."""

    def __init__(self) -> None:
        self.waiting: dict[MessageQueue, tuple[Pull, Deferred[PullAnswer]]] = {}
        self.asked: list[tuple[int, int]] = []

    def pull(self, pull: Pull) -> "Deferred[PullAnswer]":
        self.asked.append((pull.queue.queue_id, pull.offset))
        self.waiting[pull.queue] = pull, Deferred()
        return self.waiting[pull.queue][1]

    def last(self, queue: MessageQueue = QUEUE) -> Pull:
        return self.waiting[queue][0]

    def answer(
        self,
        following: int,
        *offsets: int,
        queue: MessageQueue = QUEUE,
        status: PullStatus = PullStatus.NO_MATCHED_MSG,
    ) -> None:
        _, later = self.waiting.pop(queue)
        found = [message(offset) for offset in offsets]
        status = PullStatus.FOUND if found else status
        later.callback(PullAnswer(PullResult(status, following, 0, 99, found, 0), False))

    def fail(self, error: Exception, queue: MessageQueue = QUEUE) -> None:
        self.waiting.pop(queue)[1].errback(error)


class Base:
    """What both take of a `ConsumerBase`; `first` is where a queue begins, or why nobody knows."""

    group = "g"

    def __init__(self) -> None:
        self.client = Scripted(pull_time_delay_when_exception_ms=round(ERROR_S * 1000))
        self.instance = self.client.instance
        self.beats = 0
        self.instance.heartbeat_now = self.beat  # type: ignore[method-assign]
        self.instance._rounds._send = self.beat
        self.calls: Any = self
        self.choice: Any = SimpleNamespace(forget=lambda queue: self.told.append(("forget", queue)))
        self.offset_store: Any = RemoteBrokerOffsetStore(self, "g")  # type: ignore[arg-type]
        self.first: Any = 5
        self.told: list[Any] = []
        self.may_lock = True

    def beat(self) -> Any:
        self.beats += 1
        return succeed(None)

    async def first_offset(self, queue: MessageQueue) -> int:
        first = self.first
        if isinstance(first, Deferred):
            mine: Deferred[Any] = Deferred()
            first.addCallback(lambda found: (mine.callback(found), found)[1])
            first = await mine
        if isinstance(first, Exception):
            raise first
        return int(first)

    async def commit(self, group: str, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        assert wait  # whoever gets the queue next reads the offset at once
        self.told.append(("commit", queue, offset))

    async def lock(self, group: str, client_id: str, broker: str, queues: Any) -> Any:
        self.told.append(("lock", *queues))
        return queues if self.may_lock else []

    async def unlock(self, group: str, client_id: str, broker: str, queues: Any) -> None:
        self.told.append(("unlock", *queues))

    def of(self, what: str) -> list[Any]:
        return [told[1:] for told in self.told if told[0] == what]


# Push


class Push(Base):
    """`PushQueues` over a service that keeps what it gets."""

    def __init__(self, *, orderly: bool = False, **config: Any) -> None:
        super().__init__()
        self.is_orderly = orderly
        self.pulls = Pulls()
        self.subscriptions = Subscriptions()
        self.subscriptions.add("T", "*", 100)
        self.changes = 0
        self.submitted: list[int] = []
        self.leaving: Any = None
        self.owns: Any = None
        self.stats = ConsumeRates()
        base: Any = self
        self.queues = PushQueues(
            base,
            PushConsumerConfig(**config),
            self.subscriptions,
            self.pulls,  # type: ignore[arg-type]
            self.stats,
            self.changed,
        )
        self.queues.use(base)

    def changed(self) -> None:
        self.changes += 1

    def submit(self, cache: ProcessQueue, queue: MessageQueue, messages: list[MessageExt]) -> None:
        self.submitted += [item.queue_offset for item in messages]

    def leave(self, cache: ProcessQueue, queue: MessageQueue) -> Any:
        return self.leaving

    def owned(self, queues: Any) -> None:
        self.owns = queues

    def take(self, queue: MessageQueue = QUEUE) -> Any:
        return self.client.wait(self.queues.take(queue))

    def give_up(self, queue: MessageQueue = QUEUE) -> None:
        self.client.wait(self.queues.give_up(queue))


def test_a_queue_is_pulled_from_its_beginning_into_the_service() -> None:
    push = Push()
    assert push.take()
    assert list(push.queues.owned()) == [QUEUE]
    pull = push.pulls.last()
    assert (pull.offset, pull.timeout_ms, pull.hold_ms) == (5, PULL_TIMEOUT_MS, SUSPEND_MS)
    assert (pull.commit_offset, pull.send_expression, pull.is_lite) == (None, False, False)
    push.client.clock.run_for(0.5)
    push.pulls.answer(7, 5, 6)
    assert (push.submitted, push.pulls.asked) == ([5, 6], [(0, 5), (0, 7)])
    status = push.stats.status("T", push.instance.host.steady_ms())
    assert (status["pullRT"], status["pullTPS"]) == (500.0, 2 / 60)
    assert push.of("lock") == []
    assert not push.take()


def test_what_is_consumed_is_committed_on_the_way() -> None:
    push = Push()
    push.take()
    push.offset_store.update_offset(QUEUE, 6, True)
    push.pulls.answer(8, 7)
    assert push.pulls.last().commit_offset == 6
    push.offset_store.update_offset(QUEUE, 0, False)
    push.pulls.answer(9, 8)
    assert push.pulls.last().commit_offset is None
    (cache,) = push.queues.process_queues().values()
    cache.remove([message(7), message(8)])
    push.pulls.answer(20)
    assert push.pulls.last().commit_offset == 20  # nothing below it is wanted
    alone = Push(message_model=MessageModel.BROADCASTING)
    alone.take()
    alone.offset_store.update_offset(QUEUE, 6, True)
    alone.pulls.answer(8)
    assert alone.pulls.last().commit_offset is None


def test_brokers_are_told_no_version_that_they_were_not_told_before() -> None:
    push = Push(post_subscription_when_pull=True)
    push.take()
    assert (push.pulls.last().sub_version, push.pulls.last().send_expression) == (0, True)
    push.client.wait(push.queues.tell())
    push.pulls.answer(6)
    assert push.pulls.last().sub_version == 100
    push.queues.versions_told(50)
    push.pulls.answer(7)
    assert push.pulls.last().sub_version == 100
    push.pulls.fail(BrokerRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "no", "m:1"))
    assert push.beats == 2
    for _ in range(9):
        push.queues.unknown_subscription()  # another queue of the same broker notices it, too
    push.client.clock.run_for(5)
    assert push.beats == 3


def test_a_queue_of_which_nobody_knows_where_to_begin_is_not_taken() -> None:
    push = Push(orderly=True)
    push.first = MQClientError("no broker")
    assert not push.take()
    assert (list(push.queues.owned()), push.pulls.asked) == ([], [])


def test_an_orderly_queue_is_locked_before_it_is_read() -> None:
    """An offset that is read sooner may be that of before the other member's last commit."""
    push = Push(orderly=True)
    push.may_lock = False
    assert not push.take()
    push.may_lock, push.first = True, Deferred()
    taken = Deferred.fromCoroutine(push.queues.take(QUEUE))
    assert push.of("lock") == [(QUEUE,), (QUEUE,)]
    push.first.callback(3)
    assert push.client.wait(taken)
    assert push.pulls.asked == [(0, 3)]
    (cache,) = push.queues.process_queues().values()
    assert cache.locked
    cache.locked = False
    push.pulls.answer(4)
    assert push.pulls.asked == [(0, 3)]
    cache.locked = True
    push.client.clock.run_for(ERROR_S)
    assert push.pulls.asked == [(0, 3), (0, 4)]
    alone = Push(orderly=True, message_model=MessageModel.BROADCASTING)
    assert alone.take()
    assert alone.of("lock") == []
    assert len(alone.pulls.asked) == 1


def test_an_offset_of_an_earlier_life_of_a_queue_is_forgotten() -> None:
    push = Push()
    push.offset_store.update_offset(QUEUE, 77, True)
    push.take()
    assert push.offset_store.memory(QUEUE) is None


def test_a_stop_while_a_queue_is_taken_gives_its_lock_back() -> None:
    push = Push(orderly=True)
    push.first = Deferred()
    taken = Deferred.fromCoroutine(push.queues.take(QUEUE))
    push.queues.stop_pulling()
    push.first.callback(3)
    assert push.client.wait(taken) is False
    assert (push.of("unlock"), push.pulls.asked) == ([(QUEUE,)], [])
    plain = Push()
    plain.first = Deferred()
    taken = Deferred.fromCoroutine(plain.queues.take(QUEUE))
    plain.queues.stop_pulling()
    plain.first.callback(3)
    assert plain.client.wait(taken) is False
    assert plain.of("unlock") == []


def test_one_queue_that_is_taken_twice_at_a_time_is_taken_once_and_stays_locked() -> None:
    push = Push(orderly=True)
    push.first = Deferred()
    taken = [Deferred.fromCoroutine(push.queues.take(QUEUE)) for _ in range(2)]
    push.first.callback(3)
    assert sorted(push.client.wait(later) for later in taken) == [False, True]
    assert (push.of("unlock"), push.pulls.asked) == ([], [(0, 3)])


@pytest.mark.parametrize("orderly", [False, True])
def test_a_queue_that_is_given_up_is_committed_then_unlocked_then_forgotten(orderly: bool) -> None:
    """Unlocked first, the next member would begin where we have been already."""
    push = Push(orderly=orderly)
    push.take()
    push.take(SECOND)
    push.offset_store.update_offset(QUEUE, 9, True)
    push.told.clear()
    (cache, _) = push.queues.process_queues().values()
    push.give_up()
    expected: list[Any] = [("commit", QUEUE, 9), ("unlock", QUEUE), ("forget", QUEUE)]
    assert push.told == [told for told in expected if orderly or told[0] != "unlock"]
    assert cache.dropped
    assert (push.offset_store.memory(QUEUE), list(push.queues.owned())) == (None, [SECOND])
    assert list(push.owns) == [SECOND]
    assert push.changes == 0
    push.give_up()
    assert len(push.of("forget")) == 1


def test_a_queue_whose_listener_has_something_stays_ours_until_that_is_over() -> None:
    push = Push(orderly=True)
    push.take()
    push.leaving = Deferred()
    push.told.clear()
    push.give_up()
    push.give_up()
    assert (push.told, list(push.queues.owned())) == ([], [QUEUE])
    assert push.queues.process_queues() == {}
    assert not push.take()
    assert not push.queues.is_stuck(QUEUE)
    push.leaving.callback(None)
    assert (push.of("unlock"), list(push.queues.owned()), push.changes) == ([(QUEUE,)], [], 1)


def test_a_queue_that_was_not_asked_for_long_is_stuck() -> None:
    push = Push()
    assert not push.queues.is_stuck(QUEUE)
    push.take()
    push.client.clock.run_for(PULL_EXPIRED_MS / 1000)
    assert not push.queues.is_stuck(QUEUE)
    push.client.clock.run_for(0.01)
    assert push.queues.is_stuck(QUEUE)
    push.leaving = Deferred()
    push.give_up()
    assert not push.queues.is_stuck(QUEUE)


def test_a_queue_that_has_moved_goes_on_there_after_a_pause() -> None:
    push = Push()
    push.take()
    push.pulls.answer(50, status=PullStatus.OFFSET_ILLEGAL)
    (cache,) = push.queues.process_queues().values()
    assert cache.dropped
    cache.last_pull_ms -= 2 * PULL_EXPIRED_MS
    assert not push.queues.is_stuck(QUEUE)
    push.client.clock.run_for(ERROR_S - 0.1)
    assert list(push.queues.owned()) == [QUEUE]
    push.client.clock.run_for(0.2)
    assert push.of("commit") == [(QUEUE, 50)]
    assert (list(push.queues.owned()), push.changes) == ([], 1)


@pytest.mark.parametrize("is_reset", [False, True])
def test_where_a_queue_was_to_go_on_is_forgotten_with_it(is_reset: bool) -> None:
    """It comes back from another member, who has consumed it further."""
    push = Push()
    push.take()
    push.pulls.answer(50, status=PullStatus.OFFSET_ILLEGAL)
    if is_reset:
        push.queues.reset({QUEUE: 2})
    else:
        push.give_up()
    push.told.clear()
    push.first = 500
    push.take()
    push.client.clock.run_for(2 * ERROR_S)
    assert (push.of("commit"), list(push.queues.owned())) == ([], [QUEUE])
    assert push.pulls.asked[-1] == (0, 500)


def test_a_queue_that_cannot_be_committed_is_shared_out_again_all_the_same() -> None:
    push = Push()
    push.take()

    async def broken(queue: MessageQueue) -> None:
        raise RuntimeError("of an application's own store")

    push.offset_store.persist = broken
    push.queues.reset({QUEUE: 2})
    assert (list(push.queues.owned()), push.changes) == ([], 1)


def test_a_reset_commits_the_lower_offset_and_what_is_cached_counts_no_more() -> None:
    """An operator sets a group back: the next commit must not say the old place."""
    push = Push()
    push.take()
    push.offset_store.update_offset(QUEUE, 40, True)
    push.pulls.answer(60, status=PullStatus.OFFSET_ILLEGAL)
    (cache,) = push.queues.process_queues().values()
    push.queues.reset({QUEUE: 2, SECOND: 3})
    assert push.of("commit") == [(QUEUE, 2)]
    assert (cache.dropped, push.changes, push.offset_store.memory(SECOND)) == (True, 1, None)
    push.client.clock.run_for(2 * ERROR_S)
    assert push.of("commit") == [(QUEUE, 2)]


def test_a_stop_pulls_no_more_keeps_the_queues_and_unlocks_them_at_the_end() -> None:
    push = Push(orderly=True)
    push.take()
    push.take(SECOND)
    push.pulls.answer(50, status=PullStatus.OFFSET_ILLEGAL)
    push.queues.stop_pulling()
    assert push.instance.host.clock.getDelayedCalls() == []
    push.pulls.answer(9, 5, queue=SECOND)
    push.queues.reset({SECOND: 1})
    assert (push.submitted, push.of("commit")) == ([], [])
    assert set(push.queues.owned()) == {QUEUE, SECOND}
    assert not push.queues.process_queues()[SECOND].dropped
    push.client.wait(push.queues.release())
    assert push.of("unlock") == [(QUEUE, SECOND)]
    plain = Push()
    plain.take()
    plain.queues.stop_pulling()
    plain.client.wait(plain.queues.release())
    assert plain.of("unlock") == []


def test_a_share_changes_limits_versions_and_locks() -> None:
    push = Push(pull_threshold_for_topic=100, pull_threshold_for_queue=7)
    assert push.queues.limits(QUEUE).messages == 100
    push.take()
    push.take(SECOND)
    push.queues.share_changed("T", [QUEUE, SECOND], [QUEUE, SECOND])
    assert push.queues.limits(QUEUE).messages == 50
    assert set(push.owns) == {QUEUE, SECOND}
    assert (push.subscriptions.version, push.beats) == (100, 0)
    push.queues.round_changed({"T"})
    assert push.subscriptions.version > 100
    assert push.beats == 1
    assert list(push.queues.topics()) == ["T"]


def test_a_consumer_that_is_suspended_pulls_nothing() -> None:
    push = Push()
    push.queues.is_paused = True
    push.take()
    push.client.clock.run_for(2 * PAUSED_SECONDS)
    assert push.pulls.asked == []
    push.queues.is_paused = False
    push.client.clock.run_for(PAUSED_SECONDS)
    assert push.pulls.asked == [(0, 5)]


def test_a_topic_that_is_subscribed_no_more_is_not_pulled_and_pulls_keep_their_pace() -> None:
    push = Push(pull_interval_ms=250)
    push.take()
    push.pulls.answer(6, 5)
    assert len(push.pulls.asked) == 1
    push.client.clock.run_for(0.26)
    assert push.pulls.asked[1:] == [(0, 6)]
    push.subscriptions.remove("T")
    with capturedLogs() as events:
        push.pulls.answer(7)
        push.client.clock.run_for(2 * ERROR_S)
    assert (len(push.pulls.asked), events) == (2, [])


def test_a_queue_that_is_ours_already_keeps_its_offset() -> None:
    """What is consumed of it would come again, if the process ended now."""
    push = Push()
    push.take()
    push.offset_store.update_offset(QUEUE, 9, True)
    assert not push.take()
    assert push.offset_store.memory(QUEUE) == 9
    push.pulls.answer(7)
    assert push.offset_store.memory(QUEUE) == 9


def test_resets_stops_and_releases_are_of_all_queues() -> None:
    push = Push(orderly=True)
    elsewhere = msgspec.structs.replace(QUEUE, broker_name="b")
    for queue in (QUEUE, SECOND, elsewhere):
        push.take(queue)
    for queue in (QUEUE, SECOND):
        push.pulls.answer(50, queue=queue, status=PullStatus.OFFSET_ILLEGAL)
    push.queues.stop_pulling()
    assert push.instance.host.clock.getDelayedCalls() == []
    push.client.wait(push.queues.release())
    assert push.of("unlock") == [(QUEUE, SECOND), (elsewhere,)]
    again = Push()
    again.take()
    again.take(SECOND)
    again.queues.reset({QUEUE: 1, SECOND: 2})
    assert again.of("commit") == [(QUEUE, 1), (SECOND, 2)]


# Lite pull


class Lite(Base):
    """`LiteQueues` of `T`."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.pulls = Pulls()
        self.wanted: Any = subscription("T", "*", 9)
        base: Any = self
        self.queues = LiteQueues(
            base,
            LitePullConsumerConfig(**config),
            self.pulls,  # type: ignore[arg-type]
            lambda topic: self.wanted,
        )

    def poll(self, timeout_ms: int = 0) -> list[int]:
        found: list[Any] = []
        self.queues.poll(timeout_ms).addCallback(found.append)
        self.client.clock.run_for(timeout_ms / 1000 + 0.001)
        (messages,) = found
        return [item.queue_offset for item in messages]

    def timers(self) -> Any:
        return self.instance.host.clock.getDelayedCalls()


def test_one_pull_s_messages_are_handed_out_at_a_time_and_move_the_position() -> None:
    lite = Lite()
    lite.queues.add(QUEUE)
    assert (lite.queues.positions(), lite.pulls.last().offset) == ({}, 5)
    pull = lite.pulls.last()
    assert (pull.sub_version, pull.send_expression, pull.is_lite) == (0, True, True)
    lite.pulls.answer(8, 5, 7)
    lite.pulls.answer(9, 8)
    assert lite.queues.positions() == {}
    assert lite.poll() == [5, 7]
    assert lite.queues.positions() == {QUEUE: 8}
    assert lite.poll() == [8]
    assert lite.queues.positions() == {QUEUE: 9}
    lite.pulls.answer(20)
    assert lite.queues.positions() == {QUEUE: 20}
    assert lite.poll() == []
    lite.wanted = subscription("T", MessageSelector.by_sql("a > 1"), 9)
    lite.pulls.answer(21)
    assert lite.pulls.last().sub_version is None


def test_what_is_not_wanted_moves_no_position_while_something_waits() -> None:
    """Committed, it would skip what nobody has polled."""
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.pulls.answer(6, 5)
    assert lite.poll() == [5]
    lite.pulls.answer(7, 6)
    lite.pulls.answer(30)
    assert lite.queues.positions() == {QUEUE: 6}


def test_polls_wait_in_their_order_and_not_longer_than_they_want() -> None:
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    found: list[Any] = []
    for number, timeout in enumerate((1000, 3000, 3000)):
        lite.queues.poll(timeout).addCallback(
            lambda got, number=number: found.append((number, len(got)))
        )
    lite.client.clock.run_for(1.5)
    assert found == [(0, 0)]
    lite.pulls.answer(7, 5, 6)
    assert found == [(0, 0), (1, 2)]
    gone = lite.queues.poll(9000)
    gone.addErrback(lambda _: None)
    gone.cancel()
    lite.pulls.answer(8, 7)
    assert found == [(0, 0), (1, 2), (2, 1)]
    lite.pulls.answer(9, 8)
    assert lite.poll() == [8]
    assert lite.timers() == []


def test_a_paused_queue_keeps_what_it_has_and_others_go_on() -> None:
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.queues.add(SECOND, 0)
    lite.pulls.answer(6, 5)
    lite.pulls.answer(1, 0, queue=SECOND)
    lite.queues.pause([QUEUE, msgspec.structs.replace(QUEUE, queue_id=9)], paused=True)
    assert lite.poll() == [0]
    assert lite.poll() == []
    asked = len(lite.pulls.asked)
    lite.pulls.answer(7, 6)
    lite.client.clock.run_for(PAUSED_SECONDS / 2)
    assert len(lite.pulls.asked) == asked
    waiting: list[Any] = []
    lite.queues.poll(5000).addCallback(waiting.append)
    lite.queues.pause([QUEUE], paused=False)
    assert [item.queue_offset for item in waiting[0]] == [5]
    assert lite.poll() == [6]
    lite.client.clock.run_for(0.01)
    assert lite.pulls.asked[-1] == (0, 7)


def test_what_was_pulled_before_a_seek_or_of_a_queue_that_is_gone_is_not_handed_out() -> None:
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.queues.add(SECOND, 0)
    lite.pulls.answer(6, 5)
    lite.pulls.answer(1, 0, queue=SECOND)
    lite.queues.seek(QUEUE, 50)
    assert lite.queues.positions() == {QUEUE: 50}
    assert lite.pulls.asked[-1] == (0, 50)
    lite.queues.remove(SECOND)
    lite.queues.remove(SECOND)
    assert lite.of("forget") == [(SECOND,)]
    assert (lite.queues.assigned(), lite.queues.has_queue(SECOND)) == ([QUEUE], False)
    assert lite.poll() == []
    lite.pulls.answer(51, 50)
    assert lite.poll() == [50]


def test_what_was_pulled_before_a_seek_is_not_handed_out_though_nothing_is_pulled_now() -> None:
    """Its offsets would become the position, and the next commit."""
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.pulls.answer(6, 5)
    lite.pulls.answer(3, status=PullStatus.OFFSET_ILLEGAL)
    lite.queues.seek(QUEUE, 50)
    assert lite.poll() == []
    assert lite.queues.positions() == {QUEUE: 50}


def test_all_queues_are_paused_and_resumed() -> None:
    lite = Lite()
    for queue in (QUEUE, SECOND):
        lite.queues.add(queue, 5)
    lite.queues.pause([QUEUE, SECOND], paused=True)
    for queue in (QUEUE, SECOND):
        lite.pulls.answer(6, 5, queue=queue)
    assert (lite.poll(), len(lite.pulls.asked)) == ([], 2)
    lite.queues.pause([QUEUE, SECOND], paused=False)
    assert [lite.poll(), lite.poll()] == [[5], [5]]
    assert lite.pulls.asked[2:] == [(0, 6), (1, 6)]


def test_a_seek_before_the_beginning_is_known_wins() -> None:
    lite = Lite()
    lite.first = Deferred()
    lite.queues.add(QUEUE)
    lite.queues.seek(QUEUE, 40)
    lite.first.callback(5)
    assert lite.pulls.asked == [(0, 40)]
    moved = Lite()
    moved.queues.add(QUEUE, 5)
    moved.pulls.answer(9, status=PullStatus.OFFSET_ILLEGAL)
    moved.queues.seek(QUEUE, 40)
    assert moved.pulls.asked == [(0, 5), (0, 40)]
    moved.client.clock.run_for(2 * ERROR_S)
    assert moved.pulls.asked == [(0, 5), (0, 40)]


def test_where_to_begin_is_asked_again_until_somebody_knows() -> None:
    lite = Lite()
    lite.first = MQClientError("no broker")
    with capturedLogs() as events:
        lite.queues.add(QUEUE)
        lite.first = RuntimeError("on purpose")
        lite.client.clock.run_for(ERROR_S)
    assert [event["log_level"] for event in events] == [LogLevel.warn, LogLevel.critical]
    lite.first = 5
    lite.client.clock.run_for(ERROR_S - 0.1)
    assert lite.pulls.asked == []
    lite.client.clock.run_for(0.2)
    assert lite.pulls.asked == [(0, 5)]


def test_a_queue_may_go_while_its_beginning_is_asked_for_again() -> None:
    lite = Lite()
    lite.first = MQClientError("no broker")
    lite.queues.add(QUEUE)
    lite.first = Deferred()
    lite.client.clock.run_for(ERROR_S + 0.1)
    lite.queues.remove(QUEUE)
    lite.first.callback(5)
    assert (lite.pulls.asked, lite.queues.assigned(), lite.timers()) == ([], [], [])


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("how", ["remove", "stop"])
def test_a_queue_that_is_gone_before_its_beginning_is_known_is_not_pulled(
    how: str, is_known: bool
) -> None:
    lite = Lite()
    lite.first = Deferred()
    lite.queues.add(QUEUE)
    if how == "remove":
        lite.queues.remove(QUEUE)
    else:
        lite.queues.stop()
    lite.first.callback(5 if is_known else MQClientError("no broker"))
    assert (lite.pulls.asked, lite.timers()) == ([], [])


def test_a_queue_that_goes_on_elsewhere_does_so_after_a_pause_and_loses_nothing() -> None:
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.pulls.answer(6, 5)
    lite.pulls.answer(3, status=PullStatus.OFFSET_ILLEGAL)
    lite.client.clock.run_for(ERROR_S - 0.1)
    assert lite.pulls.asked == [(0, 5), (0, 6)]
    lite.client.clock.run_for(0.2)
    assert lite.pulls.asked == [(0, 5), (0, 6), (0, 3)]
    assert lite.poll() == [5]
    assert lite.queues.positions() == {QUEUE: 3}
    lite.pulls.answer(2, status=PullStatus.OFFSET_ILLEGAL)
    lite.queues.remove(QUEUE)
    assert lite.timers() == []


def test_where_a_queue_is_that_gave_nothing_is_nobody_s_business() -> None:
    """It would be committed, and a queue that is set back lower goes on there."""
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.pulls.answer(20)
    assert lite.queues.positions() == {}
    lite.queues.seek(QUEUE, 50)
    lite.pulls.answer(40)
    assert lite.queues.positions() == {QUEUE: 50}


def test_a_queue_is_paused_resumed_and_removed_whatever_it_waits_for() -> None:
    lite = Lite()
    lite.first = Deferred()
    lite.queues.add(QUEUE)
    for paused in (True, False, True):
        lite.queues.pause([QUEUE], paused=paused)
    lite.first.callback(5)
    assert (lite.pulls.asked, len(lite.timers())) == ([], 1)
    lite.queues.remove(QUEUE)
    assert lite.timers() == []


def test_a_stop_ends_pulls_polls_and_timers() -> None:
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.queues.add(SECOND, 5)
    lite.pulls.answer(3, status=PullStatus.OFFSET_ILLEGAL)
    found: list[Any] = []
    for _ in range(2):
        lite.queues.poll(5000).addCallback(found.append)
    lite.queues.stop()
    assert (found, lite.timers()) == ([[], []], [])
    lite.pulls.answer(6, 5, queue=SECOND)
    lite.queues.add(msgspec.structs.replace(QUEUE, queue_id=2), 0)
    assert len(lite.pulls.asked) == 2
    assert len(lite.queues.assigned()) == 2
    lite.queues.remove(QUEUE)
    assert lite.queues.assigned() == [SECOND]


def test_an_end_that_a_queue_had_before_it_was_given_up_or_all_stopped_is_nobody_s() -> None:
    lite = Lite()
    lite.queues.add(QUEUE, 5)
    lite.queues.add(SECOND, 5)
    lite.queues.remove(QUEUE)
    lite.queues.offset_moved(QUEUE, ProcessQueue(), 3)
    lite.queues.stop()
    lite.queues.offset_moved(SECOND, ProcessQueue(), 3)
    assert lite.timers() == []


def test_a_queue_is_added_once_and_pulls_pause_when_too_many_wait() -> None:
    lite = Lite(pull_threshold_for_all=10, pull_batch_size=10)
    lite.queues.add(QUEUE, 0)
    lite.queues.add(QUEUE, 3)
    assert lite.pulls.asked == [(0, 0)]
    lite.pulls.answer(1, 0)
    lite.pulls.answer(2, 1)
    assert lite.pulls.asked == [(0, 0), (0, 1)]
    assert lite.poll() == [0]
    lite.client.clock.run_for(FULL_SECONDS)
    assert lite.pulls.asked[2:] == [(0, 2)]


def test_a_lite_topic_that_is_subscribed_no_more_is_not_pulled() -> None:
    lite = Lite()
    lite.queues.add(QUEUE, 0)
    lite.wanted = None
    lite.pulls.answer(1)
    lite.client.clock.run_for(ERROR_S)
    assert len(lite.pulls.asked) == 1
    lite.wanted = subscription("T", "*", 9)
    lite.client.clock.run_for(ERROR_S)
    lite.pulls.fail(BrokerRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "no", "m:1"))
    assert lite.beats == 1
