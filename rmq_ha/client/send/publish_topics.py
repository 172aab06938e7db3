"""PublishTopics: the topics that a producer sends to, and their queues.

Spec: remoting.md, section 11.1.
"""

from collections import OrderedDict

from twisted.internet.defer import Deferred

from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.errors import NoRoute
from rmq_ha.client.rules.namespaces import unwrap, wrap
from rmq_ha.client.rules.routes import borrowed_route, publish_info, why_not_published
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.send import PublishTopic, check_topic

LOOK_AGAIN_S = 0.5
_MOST_TOPICS = 10_000


class PublishTopics:
    """
    Topics by the name that the application uses. Beyond `_MOST_TOPICS` the topic that was added
    first is forgotten.
    """

    def __init__(self, instance: ClientInstance, config: ProducerConfig) -> None:
        self._instance = instance
        self._config = config
        self._topics: OrderedDict[str, PublishTopic] = OrderedDict()

    def start(self) -> None:
        """Begin to follow changes of routes."""
        self._instance.on_route_change(self._route_changed)

    def stop(self) -> None:
        """Stop following changes of routes, and forget all topics."""
        self._instance.forget_route_change(self._route_changed)
        while self._topics:
            self._forget_one()

    def get(self, topic: str) -> PublishTopic:
        """
        Return a topic, whose route may not be known yet.

        :raises IllegalMessage: clients cannot send to this topic.
        """
        known = self._topics.get(topic)
        if known is not None:
            return known
        namespace = self._instance.settings.namespace
        full = wrap(namespace, topic)
        check_topic(full)
        shown = unwrap(namespace, full)
        start = self._instance.host.random.randrange(1 << 30)
        known = self._topics[topic] = PublishTopic(full, shown, start)
        self._instance.watch_topic(full)
        if len(self._topics) > _MOST_TOPICS:
            self._forget_one()
        route = self._instance.routes.cached(full)
        if route is not None:
            self._take(known, route)
        return known

    @property
    def has_met_brokers(self) -> bool:
        """
        Whether the client has ever got a route. If so, silence of the name servers does not come
        from a wrong address in the settings.
        """
        return bool(self._instance.routes.brokers)

    def look_again(self, topic: PublishTopic, now: float) -> None:
        """Fetch the route of a topic again, as its brokers did not answer; at most every 0.5 s."""
        if now < topic.looked + LOOK_AGAIN_S:
            return
        topic.looked = now
        name = self._config.create_topic_key if topic.is_borrowed else topic.name
        self._instance.routes.fetch(name).addErrback(lambda _: None)

    def find(self, topic: PublishTopic) -> "Deferred[None]":
        """
        Ask for the route of a topic that has none.

        :returns: fails with `NoRoute`, `NoNameServer` or `BrokerRefused`.
        """
        return Deferred.fromCoroutine(self._find(topic))

    async def _find(self, topic: PublishTopic) -> None:
        template = self._config.create_topic_key
        try:
            route = await self._instance.routes.fetch(topic.name)
            self._take(topic, route)
        except NoRoute:
            try:
                route = await self._instance.template_route(topic.name, template)
            except NoRoute as error:
                error.retriable = topic.was_there
                raise
            if topic.info is None:
                self._borrow(topic, route)
        if topic.info is None:
            raise NoRoute(topic.name, why_not_published(topic.name, route), retriable=True)

    def _borrow(self, topic: PublishTopic, route: TopicRoute) -> None:
        self._take(topic, borrowed_route(route, self._config.default_topic_queue_nums))
        topic.is_borrowed = True

    def _take(self, topic: PublishTopic, route: TopicRoute) -> None:
        info = publish_info(topic.shown, route)
        topic.info = info if info.queues else None
        topic.was_there |= bool(info.queues)
        topic.is_borrowed = False

    def _route_changed(self, name: str, route: TopicRoute) -> None:
        for known in {name, unwrap(self._instance.settings.namespace, name)}:
            topic = self._topics.get(known)
            if topic is not None and topic.name == name:
                self._take(topic, route)
        if name == self._config.create_topic_key:
            for other in self._topics.values():
                if other.is_borrowed:
                    self._borrow(other, route)

    def _forget_one(self) -> None:
        _, topic = self._topics.popitem(last=False)
        self._instance.unwatch_topic(topic.name)
