"""Rebalancer: finds out which queues a consumer gets, and has it take queues and give them up.

Spec: remoting.md, section 11.3.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.queue_calls import GroupMembers, QueueCalls
from rmq_ha.client.consume.broker_assignments import BrokerAssignments
from rmq_ha.client.rebalance.changes import compare, group_by_topic, share_of
from rmq_ha.client.rebalance.strategies import AllocateStrategy
from rmq_ha.client.rules.errors import NoRoute
from rmq_ha.client.rules.routes import subscribe_queues

AGAIN_SECONDS = 1.0
_MOST_PATIENT_SECONDS = 16.0
_TOPICS_A_TURN = 100


class QueueOwner(Protocol):
    """A consumer that takes and gives up queues when its rebalancer says so."""

    def topics(self) -> Collection[str]:
        """Return the subscribed topics, with namespace; the group's retry topic is among them."""

    def owned(self) -> Collection[MessageQueue]:
        """Return a live view of the queues that the consumer has or is about to give up."""

    def is_stuck(self, queue: MessageQueue) -> bool:
        """
        Whether the consumer has the queue but has stopped pulling it. The rebalancer gives such a
        queue up and takes it again.
        """

    async def take(self, queue: MessageQueue) -> bool:
        """Take a queue that this member gets; return False if it could not be taken yet."""

    async def give_up(self, queue: MessageQueue) -> None:
        """
        Give up a queue.

        Another member gets it, or its topic is not subscribed any more, or it is stuck and will be
        taken again.
        """

    def share_changed(
        self, topic: str, queues: Collection[MessageQueue], share: Collection[MessageQueue]
    ) -> None:
        """
        Called after queues of a topic were taken or given up.

        :param queues: all queues of the topic.
        :param share: the queues that this member gets.
        """

    def round_changed(self, topics: Collection[str]) -> None:
        """
        Called after a round over all topics, for the consumer to tell brokers.

        :param topics: the topics for which `share_changed` was called, at least one.
        """


class Rebalancer:
    """
    Shares queues out at intervals, and as soon as members come or go.

    :param group: the consumer group, with its namespace.
    :param clustering: whether members share the queues; else every member gets all queues.
    :param interval_ms: time between two rebalances, in ms.
    :ivar assignments: has brokers share the queues out; None if members do it.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        calls: QueueCalls,
        group: str,
        strategy: AllocateStrategy,
        owner: QueueOwner,
        *,
        clustering: bool,
        interval_ms: int,
    ) -> None:
        self.strategy = strategy
        self.assignments: BrokerAssignments | None = None
        self._instance = instance
        self._calls = calls
        self._group = group
        self._owner = owner
        self._clustering = clustering
        self._clock = instance.host.clock
        self._periodic = Periodic(
            self._clock, f"rebalancing {group}", self.rebalance, interval_ms / 1000
        )
        self._running: Deferred[None] | None = None
        self._once_more = False
        self._members = GroupMembers(calls, group, instance.client_id)
        self._owned_by_topic: dict[str, list[MessageQueue]] = {}
        self._changed_topics: set[str] = set()
        self._is_unrouted = False
        self._patience = AGAIN_SECONDS
        self._retry: IDelayedCall | None = None
        self._stopped = False

    def start(self) -> "Deferred[None]":
        """
        Rebalance at once, and from then on at intervals.

        :returns: fires after the first rebalance; never fails.
        """
        self._periodic.start()
        return self.rebalance()

    async def stop(self) -> None:
        """Stop rebalancing; returns when a rebalance that is under way has ended."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        await self._periodic.stop()
        if self._running is not None:
            over: Deferred[None] = Deferred()
            self._running.chainDeferred(over)
            await over

    def rebalance_soon(self) -> None:
        """Rebalance because, for example, a member came or went, or a route changed."""
        self.rebalance()

    def rebalance(self) -> "Deferred[None]":
        """
        Start a round over all topics. If a round runs already, another round follows it.

        :returns: fires when the last of these rounds is over; never fails.
        """
        done: Deferred[None] = Deferred()
        if self._running is not None:
            self._once_more = True
            self._running.chainDeferred(done)
            return done
        if self._stopped:
            done.callback(None)
            return done
        running = self._running = Deferred()
        running.chainDeferred(done)
        Deferred.fromCoroutine(self._rounds()).addErrback(
            lambda failure: self.log.failure(
                "rebalancing {group} failed", failure, group=self._group
            )
        ).addBoth(self._end_rounds)
        return done

    async def _rounds(self) -> None:
        complete = True
        while not self._stopped:
            self._once_more = self._is_unrouted = False
            complete = True
            self._members.begin()
            self._owned_by_topic = group_by_topic(self._owner.owned())
            for number, topic in enumerate(self._owner.topics(), 1):
                if self._stopped:
                    return  # stop early, as each topic may wait long for a silent broker
                complete = await self._topic(topic) and complete
                if number % _TOPICS_A_TURN == 0:  # topics with a known route may never wait
                    await next_turn(self._clock)
            await self._not_subscribed()
            if self._changed_topics and not self._stopped:
                changed, self._changed_topics = self._changed_topics, set()
                self._owner.round_changed(changed)
            if not self._once_more:
                break
        pause = self._pause(complete)
        if pause and not self._stopped and self._retry is None:
            self._retry = self._clock.callLater(pause, self._retry_now)

    def _pause(self, complete: bool) -> float:
        """
        Return the seconds until the next try; 0 if the next rebalance at its interval is soon
        enough.

        A topic that was just created gets a route within moments, so the first tries follow soon. A
        topic that nobody creates is asked for more and more rarely.

        :param complete: whether no topic has to be tried again soon, as `_topic` returned it.
        """
        if not self._is_unrouted:
            self._patience = AGAIN_SECONDS
            return 0.0 if complete else AGAIN_SECONDS
        pause, self._patience = self._patience, min(2 * self._patience, _MOST_PATIENT_SECONDS)
        return pause if complete else AGAIN_SECONDS

    def _retry_now(self) -> None:
        self._retry = None
        self.rebalance()

    def _end_rounds(self, _: object) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.callback(None)

    async def _topic(self, topic: str) -> bool:
        """Rebalance one topic; return False if the topic has to be tried again soon."""
        try:
            route = await self._instance.route(topic)
            queues = subscribe_queues(topic, route)
            share, pops = await self._shares(topic, queues)
        except NoRoute as error:
            if not topic.startswith(RETRY_PREFIX):
                self._is_unrouted = True
                self.log.debug("{reason}", reason=error)
            return True
        except RmqHaError as error:
            self.log.warn("{topic} is not rebalanced: {reason}", topic=topic, reason=error)
            return False
        if share is None:
            return True
        owner = self._owner
        all_owned = owner.owned()
        owned = [queue for queue in self._owned_by_topic.get(topic, ()) if queue in all_owned]
        step = compare(owned, share)
        # A stuck queue is in the share before and after, so comparing the two never frees it: it is
        # given up and taken anew.
        stuck = [queue for queue in share if queue not in step.added and owner.is_stuck(queue)]
        # Give up first, so that the queue's next owner waits for as short a time as possible.
        for queue in [*step.removed, *stuck]:
            await owner.give_up(queue)
        if self.assignments is not None:
            self.assignments.assign(topic, share, pops)
        added = [*step.added, *stuck]
        results = await DeferredList(
            [Deferred.fromCoroutine(owner.take(queue)) for queue in added], consumeErrors=True
        )
        taken = 0
        for queue, (_, result) in zip(added, results, strict=True):
            taken += result is True
            if isinstance(result, Failure):
                self.log.failure("taking {queue} failed", result, queue=queue)
        if step.removed or taken:
            self.log.info(
                "{group} has {share} of the {all} queues of {topic} ({strategy})",
                group=self._group,
                share=len(share),
                all=len(queues),
                topic=topic,
                strategy=self.strategy.name,
            )
            owner.share_changed(topic, queues, share)
            self._changed_topics.add(topic)
        return taken == len(added)

    async def _shares(
        self, topic: str, queues: Sequence[MessageQueue]
    ) -> tuple[Sequence[MessageQueue] | None, Sequence[MessageQueue]]:
        """Return what `_share` returns, and the places of the topic that this member pops."""
        if self.assignments is not None:
            assigned = await self.assignments.of_topic(topic)
            if assigned is not None:
                return assigned
            if not self.assignments.is_unknown:
                return None, ()
        return await self._share(topic, queues), ()

    async def _share(
        self, topic: str, queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue] | None:
        """Return the queues of a topic that this member gets; None to keep its present queues."""
        if not self._clustering:
            return queues
        clients = await self._members.of_topic(topic)
        if clients is None:
            self.log.warn("no broker says who is in {group}: queues stay", group=self._group)
            return None
        if not queues:
            return []
        if self._instance.client_id not in clients:
            # A broker that has just become the master, or has just started.
            self._instance.heartbeat_soon()
        if not clients:
            self.log.info(
                "{group} keeps its queues of {topic}: the broker has not heard of its members yet",
                group=self._group,
                topic=topic,
            )
            return None
        try:
            return share_of(self.strategy, self._group, self._instance.client_id, queues, clients)
        except ValueError as error:
            self.log.error(
                "{strategy} does not share out {topic}: {reason}",
                strategy=self.strategy.name,
                topic=topic,
                reason=error,
            )
            return None

    async def _not_subscribed(self) -> None:
        topics = set(self._owner.topics())
        for queue in list(self._owner.owned()):
            if queue.topic not in topics:
                await self._owner.give_up(queue)
