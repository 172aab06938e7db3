"""TransactionalMessageCheckService: runs a round over the half queues at every interval.

Spec: store.md, section 11.3.
"""

from itertools import islice, takewhile
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.interfaces import IMessageStore
from rmq_ha.base.model.message import BrokerMessage, PutMessageResult
from rmq_ha.base.model.properties import PGROUP, REAL_TOPIC
from rmq_ha.base.model.status import BrokerRole, PutMessageStatus
from rmq_ha.base.model.topics import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rmq_ha.base.seams import Times
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.transactions.check import check_queue, starts_of
from rmq_ha.server.broker.transactions.context import (
    CheckContext,
    HalfCopies,
    HalfLog,
    RoundPace,
    TransactionAsker,
)
from rmq_ha.server.broker.transactions.fates import Fates
from rmq_ha.server.broker.transactions.lookup import HalfMessages
from rmq_ha.server.broker.transactions.progress import CheckProgress
from rmq_ha.server.broker.transactions.verdict import CheckLimits
from rmq_ha.server.store.delay.redirect import redirect_delayed
from rmq_ha.server.store.message_store import DefaultMessageStore

_SLICES_AT_ONCE = 16
_ILLEGAL = PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)


class OpenTransactions(NamedTuple):
    """
    The half messages that nobody has ended.

    :ivar number: how many they are.
    :ivar born_ms: when the producer made the first of them, ms since the epoch; 0 if there is none.
    :ivar group: the producer group of the first of them.
    :ivar topic: the topic that the first of them is meant for.
    """

    number: int = 0
    born_ms: int = 0
    group: str = ""
    topic: str = ""


class TransactionalMessageCheckService:
    """
    Checks open transactions while a master runs.

    `transactionCheckInterval` counts from the end of a round to the start of the next, and is read
    again for each. The other settings apply to the rounds that begin after a change.

    :param front: stores messages: the store, wrapped by the plugins.
    :ivar rounds: number of rounds that have ended.
    :ivar halves: finds the half message to which an END applies.
    :ivar put: stores messages in order, and none after one that is refused.
    """

    log = Logger()

    def __init__(
        self,
        times: Times,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        front: IMessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        asker: TransactionAsker,
    ) -> None:
        self._clock = times.clock
        self._configuration = configuration
        self._store = store
        self._front: Any = front
        self._topics = topics
        self._timer: IDelayedCall | None = None
        self._is_started = False
        self._running: Deferred[None] | None = None
        self.rounds = self._rounds_before = 0
        self._fates = Fates()
        self._progress = CheckProgress(offsets, self._is_safe)
        self.halves = HalfMessages(
            self._fates, store, store.record_at, self._pause, self._is_dispatched
        )
        # A plugin around the store takes messages one by one, so order is kept by waiting for each.
        self.put = self._put_together if front is store else self._put_in_order
        self._context = CheckContext(
            halves=HalfLog(
                store,
                lambda: store.log.max_offset,
                lambda: store.log.last_store_timestamp,
                self._is_dispatched,
            ),
            copies=HalfCopies(
                self.put, self._is_storable, configuration.store_host, self._make_discard_topic
            ),
            asker=asker,
            progress=self._progress,
            fates=self._fates,
            times=times,
            pace=RoundPace(self._pause, lambda: self._is_started),
        )

    def start(self) -> None:
        """Begin rounds, the first one an interval from now."""
        if not self._is_started:
            self._is_started = True
            self._rounds_before = self.rounds
            self._fates.begin(self._store.log.max_offset)
            self._progress.begin()
            if self._is_dispatched():
                for queue_id in self._queues():
                    starts_of(self._context, queue_id)
            self._arm()

    def stop(self) -> "Deferred[None]":
        """
        Run no more rounds.

        :returns: fires with None when a round under way is over; never fails.
        """
        self._is_started = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._running.chainDeferred(done)
        return done

    @property
    def _knows_open(self) -> bool:
        """Whether this master has ended a round, and so knows which half messages are open."""
        return self._is_started and self.rounds > self._rounds_before

    def open_transactions(self) -> OpenTransactions | None:
        """
        Return the open half messages; the first of each queue is read.

        None before the end of the first round of a master, which learns from the op messages what
        earlier masters settled; and on a broker that checks nothing.
        """
        if not self._knows_open:
            return None
        total, oldest = 0, OpenTransactions()
        for queue_id in self._queues():
            low, high = self._open_part(queue_id)
            count, first = self._fates.open_from(queue_id, low, high)
            total += count
            half = self.halves.half_at(queue_id, first) if count else None
            if half is not None and (not oldest.born_ms or half.born_timestamp < oldest.born_ms):
                named = half.properties
                group, topic = named.get(PGROUP, ""), named.get(REAL_TOPIC, "")
                oldest = OpenTransactions(0, half.born_timestamp, group, topic)
        return oldest._replace(number=total)

    def open_half_offsets(self, most: int) -> dict[int, list[int]] | None:
        """
        Return the queue offsets of open half messages by queue, the first ones of each.

        :param most: how many of each queue at most.
        :returns: None where `open_transactions` does.
        """
        if not self._knows_open:
            return None
        return {
            queue_id: list(
                islice(self._fates.open_offsets(queue_id, *self._open_part(queue_id)), most)
            )
            for queue_id in self._queues()
        }

    def _open_part(self, queue_id: int) -> tuple[int, int]:
        """Return the part of a half queue that rounds have not passed: first offset and end."""
        low = max(
            self._progress.query(HALF_TOPIC, queue_id),
            self._store.min_offset_in_queue(HALF_TOPIC, queue_id),
        )
        return low, self._store.max_offset_in_queue(HALF_TOPIC, queue_id)

    def _arm(self) -> None:
        interval = self._configuration.broker.transaction_check_interval / 1000
        self._timer = self._clock.callLater(interval, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._running = Deferred()
        Deferred.fromCoroutine(self._round()).addErrback(self._failed).addBoth(self._round_ended)

    def _failed(self, failure: Failure) -> None:
        self.log.failure("a transaction check failed; the next one tries again", failure)

    def _round_ended(self, _: object) -> None:
        running, self._running = self._running, None
        self.rounds += 1
        if self._is_started:
            self._arm()
        if running is not None:
            running.callback(None)

    async def _round(self) -> None:
        broker = self._configuration.broker
        limits = CheckLimits(
            broker.transaction_time_out,
            broker.transaction_check_max,
            self._configuration.store.file_reserved_time,
        )
        for queue_id in self._queues():
            await check_queue(self._context, queue_id, limits)

    def _queues(self) -> range:
        topic = self._topics.get(HALF_TOPIC)
        return range(topic.read_queue_nums if topic is not None else 1)

    def _pause(self) -> "Deferred[None]":
        return next_turn(self._clock)

    def _put_together(self, messages: list[BrokerMessage]) -> "Deferred[list[PutMessageResult]]":
        """
        Store messages with one write, so that a crash separates no message from its op message.

        The store would refuse unstorable messages singly, and store those after them. But an op
        message without the commit that it reports would lose this commit. So nothing is stored from
        the first unstorable message on.
        """
        count = len(list(takewhile(self._is_storable, messages)))
        refused = [_ILLEGAL] * (len(messages) - count)
        if not count:
            return succeed(refused)
        done: Deferred[list[PutMessageResult]] = Deferred()
        self._store.put_many(messages[:count], lambda results: done.callback(results + refused))
        return done

    def _put_in_order(self, messages: list[BrokerMessage]) -> "Deferred[list[PutMessageResult]]":
        return Deferred.fromCoroutine(self._one_by_one(messages))

    async def _one_by_one(self, messages: list[BrokerMessage]) -> list[PutMessageResult]:
        results: list[PutMessageResult] = []
        for message in messages:
            results.append(await self._front.put_message(message))
            if not results[-1].status.is_stored:
                break
        return results + results[-1:] * (len(messages) - len(results))

    def _is_storable(self, message: BrokerMessage) -> bool:
        limit = self._configuration.store.max_message_size
        (ready,) = redirect_delayed([message], len(self._store.delay_levels))
        return ready is not None and self._store.log.encoder.fault(ready, limit) is None

    def _is_dispatched(self) -> bool:
        """
        Dispatch some slices of the log. Return whether all of the log is in the queues then, so
        that a reader of the op queue misses no op message.
        """
        dispatcher = self._store.dispatcher
        for _ in range(_SLICES_AT_ONCE):
            if dispatcher.bytes_behind <= 0 or not dispatcher.run_slice():
                break
        return dispatcher.bytes_behind <= 0

    def _is_safe(self, log_end: int) -> bool:
        """
        Return whether the log below an offset is flushed, and replicated if puts wait for a slave:
        neither this machine, nor a slave that takes over, can lose it.
        """
        store = self._store
        if store.log.flushed_offset < log_end:
            return False
        replicated = store.journal.replicated_end
        is_sync = self._configuration.store.broker_role is BrokerRole.SYNC_MASTER
        return replicated >= log_end or (replicated == 0 and not is_sync)

    def _make_discard_topic(self) -> None:
        self._topics.create_in_send_back(TRANS_CHECK_MAX_TIME_TOPIC)
