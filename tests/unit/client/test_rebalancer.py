"""The rebalancer between scripted brokers and an owner that is written down."""

from collections.abc import Collection
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.consume.rebalancer import AGAIN_SECONDS, Rebalancer
from rmq_ha.client.rebalance.strategies import AllocateAveragely
from tests.unit.client.scripted import ROUTE, Scripted, refused

INTERVAL_S = 20.0
QUEUES = [MessageQueue("T", broker, number) for broker in "ab" for number in range(2)]


class Owner:
    """
    Takes and gives up what it is told, and writes it down.

    :ivar refuses: queues that cannot be taken yet.
    :ivar breaks: queues whose taking raises.
    """

    def __init__(self, *topics: str) -> None:
        self.subscribed = list(topics)
        self.has: set[MessageQueue] = set()
        self.told: list[Any] = []
        self.rounds = 0
        self.refuses: set[MessageQueue] = set()
        self.breaks: set[MessageQueue] = set()
        self.stuck: set[MessageQueue] = set()
        self.taking: Deferred[None] | None = None

    def topics(self) -> Collection[str]:
        return self.subscribed

    def owned(self) -> Collection[MessageQueue]:
        return self.has

    def is_stuck(self, queue: MessageQueue) -> bool:
        return queue in self.stuck

    async def take(self, queue: MessageQueue) -> bool:
        self.told.append(("take", queue))
        if self.taking is not None:
            await self.taking
        if queue in self.breaks:
            raise RuntimeError("on purpose")
        if queue in self.refuses:
            return False
        self.has.add(queue)
        return True

    async def give_up(self, queue: MessageQueue) -> None:
        self.told.append(("give up", queue))
        self.has.discard(queue)
        self.stuck.discard(queue)

    def share_changed(self, topic: str, queues: Collection[Any], share: Collection[Any]) -> None:
        self.told.append(("share", topic, len(queues), len(share)))

    def round_changed(self, topics: Collection[str]) -> None:
        self.rounds += 1


class Group:
    """A member; `members` are the ids that brokers know."""

    def __init__(self, *topics: str, clustering: bool = True, strategy: Any = None) -> None:
        self.client = Scripted()
        self.owner = Owner(*topics)
        self.me = self.client.instance.client_id
        self.members = [self.me]
        instance = self.client.instance
        self.client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda *_: RemotingCommand(
            0, {}, encode({"consumerIdList": self.members})
        )
        self.rebalancer = Rebalancer(
            instance,
            QueueCalls(instance),
            "g",
            strategy or AllocateAveragely(),
            self.owner,
            clustering=clustering,
            interval_ms=round(INTERVAL_S * 1000),
        )

    def told(self) -> list[Any]:
        told, self.owner.told = self.owner.told, []
        return told

    def pause(self) -> float | None:
        """Seconds until it looks again by itself, sooner than in its interval."""
        timer = self.rebalancer._retry
        return None if timer is None else round(timer.getTime() - self.client.clock.seconds(), 3)

    def run(self, seconds: float) -> None:
        self.client.clock.run_for(seconds)


def takes(queues: list[MessageQueue]) -> list[Any]:
    return [("take", queue) for queue in queues]


def test_it_takes_its_share_and_says_so() -> None:
    group = Group("T")
    group.client.wait(group.rebalancer.start())
    assert group.told() == [*takes(QUEUES), ("share", "T", 4, 4)]
    assert group.pause() is None
    group.client.wait(group.rebalancer.rebalance())
    assert group.told() == []


def test_brokers_are_told_once_a_round_however_many_topics_changed() -> None:
    """A heartbeat has all topics in it: one for each of them would be their square."""
    group = Group("T", "U", "V")
    group.client.wait(group.rebalancer.start())
    assert sum(told[0] == "share" for told in group.told()) == 3
    assert group.owner.rounds == 1
    group.client.wait(group.rebalancer.rebalance())
    assert group.owner.rounds == 1  # nothing has changed


def test_members_that_come_and_go_change_the_share_at_the_next_look() -> None:
    group = Group("T")
    group.client.wait(group.rebalancer.start())
    group.told()
    group.members.append("zzz")
    group.run(INTERVAL_S + 1)
    gone = [("give up", queue) for queue in QUEUES[2:]]
    told = group.told()
    assert sorted(told[:2]) == gone
    assert told[2:] == [("share", "T", 4, 2)]
    group.members.pop()
    group.rebalancer.rebalance_soon()
    assert group.told() == [*takes(QUEUES[2:]), ("share", "T", 4, 4)]


def test_when_broadcasting_all_queues_are_everybody_s() -> None:
    group = Group("T", clustering=False)
    group.members.append("zzz")
    group.client.wait(group.rebalancer.start())
    assert group.owner.has == set(QUEUES)
    assert group.client.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []


def test_while_nobody_says_who_is_there_everything_stays() -> None:
    """Brokers that are away for a moment must not make all members give up their queues."""
    group = Group("T")
    group.client.wait(group.rebalancer.start())
    group.told()
    group.client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refused(2)
    group.client.wait(group.rebalancer.rebalance())
    assert (group.told(), group.owner.has, group.pause()) == ([], set(QUEUES), None)


def test_a_topic_whose_queues_are_gone_is_given_up() -> None:
    group = Group("T")
    group.client.wait(group.rebalancer.start())
    group.told()
    group.client.instance.routes.adopt("T", TopicRoute([], ROUTE.brokers))
    group.client.wait(group.rebalancer.rebalance())
    assert group.owner.has == set()
    assert group.told()[-1] == ("share", "T", 0, 0)


def test_a_strategy_that_cannot_share_leaves_all_as_it_is() -> None:
    class Picky(AllocateAveragely):
        name = "PICKY"

        def allocate(self, group: Any, me: Any, queues: Any, clients: Any) -> Any:
            if queues[0].topic == "T":
                raise ValueError("no room")
            return super().allocate(group, me, queues, clients)

    group = Group("T", "U", strategy=Picky())
    group.owner.has = {QUEUES[0]}
    group.client.wait(group.rebalancer.start())
    assert group.told()[-1] == ("share", "U", 4, 4)
    assert {queue for queue in group.owner.has if queue.topic == "T"} == {QUEUES[0]}
    assert group.pause() is None


def test_what_cannot_be_taken_yet_is_tried_again_in_a_second() -> None:
    """Another member still has the lock."""
    group = Group("T")
    group.owner.refuses = {QUEUES[1]}
    group.client.wait(group.rebalancer.start())
    assert group.told()[-1] == ("share", "T", 4, 4)
    for _ in range(3):
        assert group.pause() == AGAIN_SECONDS
        group.run(AGAIN_SECONDS)
        assert group.told() == takes([QUEUES[1]])
    group.owner.refuses.clear()
    group.run(AGAIN_SECONDS)
    assert group.told() == [*takes([QUEUES[1]]), ("share", "T", 4, 4)]
    assert group.pause() is None


def test_a_queue_whose_taking_breaks_keeps_no_other_from_being_taken() -> None:
    group = Group("T")
    group.owner.breaks = {QUEUES[0]}
    with capturedLogs() as events:
        group.client.wait(group.rebalancer.start())
    told = [event for event in events if event["log_level"] is LogLevel.critical]
    assert [event["queue"] for event in told] == [QUEUES[0]]
    assert group.owner.has == set(QUEUES[1:])
    assert group.pause() == AGAIN_SECONDS


def test_a_stuck_queue_is_given_up_and_taken_again() -> None:
    group = Group("T")
    group.client.wait(group.rebalancer.start())
    group.told()
    group.owner.stuck = {QUEUES[2]}
    group.client.wait(group.rebalancer.rebalance())
    assert group.told() == [
        ("give up", QUEUES[2]),
        ("take", QUEUES[2]),
        ("share", "T", 4, 4),
    ]


def test_a_topic_without_a_route_is_asked_for_more_and_more_rarely() -> None:
    group = Group("T")
    route = group.client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    group.client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refused(ResponseCode.TOPIC_NOT_EXIST)
    group.client.wait(group.rebalancer.start())
    pauses = []
    for _ in range(6):
        pause = group.pause()
        assert pause is not None
        pauses.append(pause)
        group.run(pause)
    assert pauses[:5] == [1, 2, 4, 8, 16]
    assert pauses[5] <= 16
    group.client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
    group.run(16)
    assert group.owner.has == set(QUEUES)
    assert group.pause() is None
    group.owner.subscribed.append("other")
    group.client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refused(ResponseCode.TOPIC_NOT_EXIST)
    group.client.wait(group.rebalancer.rebalance())
    assert group.pause() == 1


def test_a_retry_topic_without_a_route_hurries_nobody() -> None:
    """It comes with the first message that is given back."""
    group = Group("%RETRY%g")
    group.client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refused(ResponseCode.TOPIC_NOT_EXIST)
    group.client.wait(group.rebalancer.start())
    assert group.pause() is None


def test_a_name_server_in_trouble_is_asked_again_in_a_second() -> None:
    group = Group("T", "U")
    group.client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refused(1)
    group.client.wait(group.rebalancer.start())
    assert group.pause() == AGAIN_SECONDS
    good = TopicRoute([QueueRoute("a", 1, 1, 6)], [BrokerRoute("C", "a", {0: "m:10"})])
    group.client.instance.routes.adopt("U", good)
    group.run(AGAIN_SECONDS)
    assert group.owner.has == {MessageQueue("U", "a", 0)}
    assert group.pause() == AGAIN_SECONDS


def test_what_is_subscribed_no_more_is_given_up() -> None:
    group = Group("T")
    group.client.wait(group.rebalancer.start())
    group.told()
    group.owner.subscribed.clear()
    group.client.wait(group.rebalancer.rebalance())
    assert sorted(group.told()) == [("give up", queue) for queue in QUEUES]


def test_what_changes_during_a_round_makes_one_more() -> None:
    group = Group("T")
    group.owner.taking = Deferred()
    first = group.rebalancer.start()
    assert not first.called
    later = [group.rebalancer.rebalance() for _ in range(3)]
    group.members.append("zzz")
    taking, group.owner.taking = group.owner.taking, None
    taking.callback(None)
    assert first.called
    assert all(waiting.called for waiting in later)
    told = group.told()
    assert told[4] == ("share", "T", 4, 4)
    assert sorted(told[5:7]) == [("give up", queue) for queue in QUEUES[2:]]
    assert len(told) == 8


def test_a_stop_waits_for_the_round_and_begins_no_other() -> None:
    group = Group("T", "U")
    group.owner.taking = Deferred()
    group.owner.refuses = {QUEUES[0]}
    group.rebalancer.start()
    group.rebalancer.rebalance()
    stopped = Deferred.fromCoroutine(group.rebalancer.stop())
    assert not stopped.called
    group.owner.taking.callback(None)
    assert stopped.called
    told = group.told()
    assert (told[:4], len(told)) == (takes(QUEUES), 5)
    assert group.client.wait(group.rebalancer.rebalance()) is None
    group.run(2 * INTERVAL_S)
    assert (group.told(), group.client.instance.host.clock.getDelayedCalls()) == ([], [])


def test_a_stop_forgets_what_was_to_be_tried_again() -> None:
    group = Group("T")
    group.owner.refuses = {QUEUES[0]}
    group.client.wait(group.rebalancer.start())
    group.told()
    group.client.wait(group.rebalancer.stop())
    assert group.pause() is None
    assert group.client.instance.host.clock.getDelayedCalls() == []
    group.run(2 * INTERVAL_S)
    assert (group.told(), group.client.instance.host.clock.getDelayedCalls()) == ([], [])


def test_a_new_master_that_knows_no_member_yet_costs_no_queue_and_no_error() -> None:
    """It hears of the members by their heartbeats, of which one is sent soon."""
    group = Group("T")
    group.client.wait(group.rebalancer.start())
    group.told()
    group.members.clear()
    with capturedLogs() as events:
        group.run(INTERVAL_S + 1)
    assert group.told() == []
    assert {event["log_level"] for event in events} == {LogLevel.info}
