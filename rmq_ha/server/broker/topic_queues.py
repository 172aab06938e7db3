"""Finds the queues of a topic at all brokers, for clients that let brokers share queues out.

Spec: pop.md, section 2.8.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.server.broker.outer_api import BrokerOuterAPI

FRESH_SECONDS = 30.0
MOST_TOPICS = 10_000


class TopicQueues:
    """
    Asks name servers for routes, and remembers each for 30 s.

    While no name server answers, the last answer is used.

    :param seconds: a clock that nobody sets, in seconds.
    :param name_servers: returns the addresses of the name servers.
    :param own: returns the queues of a topic at this broker, for a broker without name servers.
    """

    log = Logger()

    def __init__(
        self,
        seconds: Callable[[], float],
        api: BrokerOuterAPI,
        name_servers: Callable[[], list[str]],
        own: Callable[[str], list[MessageQueue]],
    ) -> None:
        self._seconds = seconds
        self._api = api
        self._name_servers = name_servers
        self._own = own
        self._known: dict[str, tuple[float, list[MessageQueue]]] = {}
        self._asking: dict[str, list[Deferred[list[MessageQueue]]]] = {}

    def find(self, topic: str) -> "Deferred[list[MessageQueue]]":
        """
        Return the queues of a topic that can be read, sorted.

        :returns: fires with an empty list if there is no such topic, or if nobody can tell; never
            fails.
        """
        if not self._name_servers():
            return succeed(self._own(topic))
        known = self._known.get(topic)
        if known is not None and self._seconds() - known[0] < FRESH_SECONDS:
            return succeed(known[1])
        answer: Deferred[list[MessageQueue]] = Deferred()
        waiting = self._asking.setdefault(topic, [])
        waiting.append(answer)
        if len(waiting) == 1:
            Deferred.fromCoroutine(self._ask(topic)).addBoth(self._take_answer, topic)
        return answer

    async def _ask(self, topic: str) -> list[MessageQueue] | None:
        for name_server in self._name_servers():
            try:
                return await self._api.queues_of(name_server, topic)
            except (RemotingError, ProtocolViolation) as error:
                self.log.debug(
                    "{peer} does not tell the route of {topic}: {error}",
                    peer=name_server,
                    topic=topic,
                    error=error,
                )
        return None

    def _take_answer(self, result: list[MessageQueue] | Failure | None, topic: str) -> None:
        if isinstance(result, Failure):
            self.log.failure("the route of {topic} was not found", result, topic=topic)
            result = None
        if result is None:
            queues = self._known.get(topic, (0.0, []))[1]
        else:
            queues = result
            self._known.pop(topic, None)
            self._known[topic] = self._seconds(), queues
            if len(self._known) > MOST_TOPICS:
                del self._known[next(iter(self._known))]
        for answer in self._asking.pop(topic):
            answer.callback(queues)
