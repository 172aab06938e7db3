"""Builds the parts of a broker that serve pops, from its tables, its store and its `Pops`."""

from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.server.broker.assembly import BrokerParts
from rmq_ha.server.broker.pop_hold import PopHold
from rmq_ha.server.broker.processors.assignments import AssignmentProcessor
from rmq_ha.server.broker.processors.pop import PopMessageProcessor, PopParts
from rmq_ha.server.broker.processors.pop_acks import PopAckProcessor
from rmq_ha.server.broker.processors.pop_checks import PopChecks
from rmq_ha.server.broker.processors.pop_looks import PopLookProcessor
from rmq_ha.server.broker.processors.pop_queues import PopQueues
from rmq_ha.server.broker.processors.pull import ConsumeHooks
from rmq_ha.server.broker.topic_queues import TopicQueues
from rmq_ha.server.pop.face import Pops


class PopHolds:
    """
    The requests that wait for messages that can be popped.

    :ivar pops: requests that take messages.
    :ivar questions: requests that only ask whether there are messages (NOTIFICATION).
    """

    def __init__(self, clock: IReactorTime, config: RmqHaConfig) -> None:
        self.pops, self.questions = (
            PopHold(clock, lambda: config.pop_polling_size, lambda: config.max_pop_polling_size)
            for _ in range(2)
        )

    def __len__(self) -> int:
        return len(self.pops) + len(self.questions)

    def follow(self, pops: Pops) -> None:
        """
        Release requests when messages can be popped again (`Pops.on_wake`), or when this broker
        stops to lead.
        """
        pops.on_wake(self.wake)
        pops.on_lead(self._lead_changed)

    def on_arrival(self, rows: Rows) -> None:
        self.pops.on_arrival(rows)
        self.questions.on_arrival(rows)

    def wake(self, group: str, topic: str, queue_id: int, messages: int) -> None:
        self.pops.wake(group, topic, queue_id, messages)
        self.questions.wake(group, topic, queue_id, messages)

    def _lead_changed(self, is_leading: bool) -> None:
        if not is_leading:
            self.pops.release_all()
            self.questions.release_all()

    def stop(self) -> None:
        """Have all requests answered, and hold no more."""
        self.pops.stop()
        self.questions.stop()


class PopProcessors(NamedTuple):
    """The processors of pops, acknowledgements, looks without a lease, and assignments."""

    messages: PopMessageProcessor
    acks: PopAckProcessor
    looks: PopLookProcessor
    assignments: AssignmentProcessor


def pop_processors(broker: BrokerParts, holds: PopHolds, deliveries: ConsumeHooks) -> PopProcessors:
    """Build the processors of all requests of pop consumption."""
    configuration, store, pops = broker.configuration, broker.store, broker.pops
    checks = PopChecks(configuration, broker.tables, broker.request_modes)
    parts = PopParts(
        pops=pops,
        checks=checks,
        queues=PopQueues(configuration.ours, broker.topics.get, broker.host.random),
        hold=holds.pops,
        deliveries=deliveries,
        broker=configuration.broker,
        times=broker.host.times,
        hurry=store.dispatcher.hurry,
    )
    topics, name = broker.topics, broker.identity.broker_name

    def own_queues(topic: str) -> list[MessageQueue]:
        config = topics.get(topic)
        numbers = range(0 if config is None else config.read_queue_nums)
        return [MessageQueue(topic, name, number) for number in numbers]

    def bounds(topic: str, queue_id: int) -> tuple[int, int]:
        return (
            store.min_offset_in_queue(topic, queue_id),
            store.max_offset_in_queue(topic, queue_id),
        )

    registration = broker.registration
    return PopProcessors(
        PopMessageProcessor(parts),
        PopAckProcessor(pops, checks, configuration.ours, bounds),
        PopLookProcessor(parts, broker.front, holds.questions),
        AssignmentProcessor(
            configuration.ours,
            broker.tables,
            broker.request_modes,
            TopicQueues(
                broker.host.clock.seconds,
                broker.outer_api,
                lambda: registration.name_servers,
                own_queues,
            ),
            pops,
        ),
    )
