"""ConsumerMember: the group, the topics and the life of a consumer of any kind.

Spec: remoting.md, sections 11.2 and 11.3.
"""

import msgspec
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.topics import RETRY_PREFIX, group_fault
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.rules.errors import NoRoute, NotStarted
from rmq_ha.client.rules.namespaces import unwrap, wrap

_DEFAULT_GROUP = "DEFAULT_CONSUMER"


class ConsumerMember:
    """
    One client's member of a consumer group.

    :ivar consumer_group: the group's name as the application knows it.
    :ivar group: the group's name as brokers know it, with its namespace.
    :ivar instance: the client that the consumer belongs to.
    :ivar state: "new", "starting", "running", "stopping" or "stopped".
    """

    log = Logger()

    def __init__(self, instance: ClientInstance, consumer_group: str) -> None:
        """
        :raises ConfigurationError: the group's name is not valid.
        """
        fault = group_fault(consumer_group)
        if fault is None and consumer_group == _DEFAULT_GROUP:
            fault = f"{_DEFAULT_GROUP} is no name for a group of yours"
        if fault is not None:
            raise ConfigurationError(f"consumer_group: {fault}")
        self.instance = instance
        self.consumer_group = consumer_group
        self.group = self.wrap(consumer_group)
        self.calls = QueueCalls(instance)
        self.state = "new"
        self._watched: set[str] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.consumer_group} {self.state}>"

    @property
    def is_running(self) -> bool:
        """Whether the consumer has started and has not begun to stop."""
        return self.state == "running"

    def wrap(self, name: str) -> str:
        """Return the name of a topic or group as brokers know it, with the namespace."""
        return wrap(self.instance.settings.namespace, name)

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as the application knows it, without namespace."""
        topic = unwrap(self.instance.settings.namespace, queue.topic)
        return msgspec.structs.replace(queue, topic=topic)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as brokers know it, with the namespace."""
        return msgspec.structs.replace(queue, topic=self.wrap(queue.topic))

    async def know_routes(self, topics: list[str]) -> None:
        """
        Ask for the routes of topics, and keep them fresh. A topic without a route is only logged,
        as it may get one later.

        :raises NoNameServer: no name server answers.
        """
        for topic in topics:
            if self.state in ("stopping", "stopped"):
                return
            self.watch(topic)
            try:
                await self.instance.route(topic)
            except NoRoute as error:
                if not topic.startswith(RETRY_PREFIX):
                    self.log.warn("{reason}: waiting for it", reason=error)

    def watch(self, topic: str) -> None:
        """Keep the route of a topic fresh until `unwatch` or `halt`; a second call does nothing."""
        if topic not in self._watched:
            self._watched.add(topic)
            self.instance.watch_topic(topic)

    def unwatch(self, topic: str) -> None:
        """Stop keeping the route of a topic fresh; do nothing if the topic is not watched."""
        if topic in self._watched:
            self._watched.remove(topic)
            self.instance.unwatch_topic(topic)

    def unwatch_all(self) -> None:
        """Stop keeping routes fresh, as the consumer stops."""
        for topic in list(self._watched):
            self.unwatch(topic)

    def begin(self) -> None:
        """
        Note that the consumer is starting.

        :raises NotStarted: it was started before.
        """
        if self.state != "new":
            raise NotStarted(f"{self!r} was started before: make a new one")
        self.state = "starting"

    def must_go_on(self) -> None:
        """
        Check, after each wait during a start, that nobody has stopped the consumer meanwhile.

        :raises NotStarted: the consumer was stopped during the wait.
        """
        if self.state not in ("starting", "running"):
            raise NotStarted(f"{self!r} was stopped before it had started")

    def stops(self) -> bool:
        """
        Note that the consumer is stopping.

        :returns: whether it has anything to stop: False if it never started or is stopping already.
        """
        before = self.state
        if before in ("stopping", "stopped"):
            return False
        self.state = "stopped" if before == "new" else "stopping"
        return before != "new"

    def must_run(self) -> None:
        """
        Check, before each call that needs a running consumer, that this consumer runs.

        :raises NotStarted: the consumer does not run.
        :raises ForkedClient: this process is a fork of the one that started it.
        """
        self.instance.must_be_ours()
        if self.state != "running":
            raise NotStarted(f"{self!r}: call and wait for start() first; nothing after stop()")
