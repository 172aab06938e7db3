"""Answers clients that let brokers share queues out, and operators who choose pull or pop.

QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and GET_ALL_MESSAGE_REQUEST_MODE (402).

Spec: pop.md, section 2.8.
"""

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import AssignedQueue, AssignmentQuery, Assignments, RequestMode
from rmq_ha.client.rebalance.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateStrategy,
)
from rmq_ha.server.broker.pop_hold import ALL_QUEUES
from rmq_ha.server.broker.processors.admin_topics import answer_when_written
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.processors.pop import refuse_unless_leading
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.broker.tables.request_modes import POP, PULL, RequestModes
from rmq_ha.server.broker.topic_queues import TopicQueues
from rmq_ha.server.pop.face import Pops

_BROADCASTING, _CLUSTERING = "BROADCASTING", "CLUSTERING"
_STRATEGIES: Sequence[AllocateStrategy] = (AllocateAveragely(), AllocateAveragelyByCircle())


class AssignmentProcessor:
    """
    Shares the queues of all brokers out among the clients of a group, and keeps modes of groups.

    :param queues: finds the queues of a topic at all brokers.
    """

    log = Logger()

    def __init__(
        self,
        config: RmqHaConfig,
        tables: BrokerTables,
        modes: RequestModes,
        queues: TopicQueues,
        pops: Pops,
    ) -> None:
        self._config = config
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = tables.consumers
        self._modes = modes
        self._queues = queues
        self._pops = pops

    def routes(self) -> dict[int, Handler]:
        """Return handlers by request code; none while `popEnable` is false."""
        if not self._pops.is_enabled:
            return {}
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query_assignment,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    # ------------------------------------------------------------ 400

    def query_assignment(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer QUERY_ASSIGNMENT with the queues that a client shall consume.

        For an unknown topic, group or strategy the answer has no queues. Then the client keeps the
        queues that it has.
        """
        query = request.read(AssignmentQuery.decode)
        asked: Deferred[list[MessageQueue]] = self._queues.find(query.topic)
        return asked.addCallback(self._assign, query, request)

    def _assign(
        self, queues: list[MessageQueue], query: AssignmentQuery, request: RemotingCommand
    ) -> RemotingCommand:
        mode = self._mode(query.topic, query.consumer_group)
        shared = self._share(queues, query, mode)
        if shared is None:
            return request.response(body=Assignments().encode())
        items = [AssignedQueue(queue, mode.mode) for queue in shared]
        return request.response(body=Assignments(items).encode())

    def _mode(self, topic: str, group: str) -> RequestMode:
        if topic.startswith(RETRY_PREFIX):
            return RequestMode(topic, group, PULL)
        config = self._config
        return self._modes.get(topic, group) or RequestMode(
            topic,
            group,
            config.default_message_request_mode,
            config.default_pop_share_queue_num,
        )

    def _share(
        self, queues: list[MessageQueue], query: AssignmentQuery, mode: RequestMode
    ) -> list[MessageQueue] | None:
        """Return the queues of the asking client; None if it shall change nothing."""
        if not queues:
            return None
        if query.message_model == _BROADCASTING:
            return queues
        if query.message_model != _CLUSTERING:
            return None
        ids = sorted(set(self._consumers.client_ids(query.consumer_group)))
        if not ids:
            self.log.debug("{group} has no member here", group=query.consumer_group)
            return None
        if not self._config.server_load_balancer_enable:
            return queues
        strategy = next((item for item in _STRATEGIES if item.name == query.strategy_name), None)
        if strategy is None:
            return None
        if mode.mode == POP:
            return _shared_pops(strategy, query, queues, ids, mode.pop_share_queue_num)
        return _share_of(strategy, query, queues, ids, query.client_id)

    # ------------------------------------------------------------ 401, 402

    def set_mode(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer SET_MESSAGE_REQUEST_MODE (401) when the mode is on the disk.

        A group that turns from pop to pull goes on at its offset. So it gets again the messages
        that are out: those that were popped and not acknowledged.
        """
        refuse_unless_leading(self._pops)
        mode = request.read(RequestMode.decode)
        topic, group = mode.topic, mode.consumer_group
        if topic.startswith(RETRY_PREFIX):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if self._topics.get(topic) is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.find(group) is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist; create it with mqadmin "
                "updateSubGroup",
            )
        if mode.mode not in (PULL, POP):
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"mode is {mode.mode[:20]!r}, not {PULL} or {POP}"
            )
        if mode.mode == PULL and self._pops.knows(group, topic):
            self._pops.to_pull(group, topic)
        return answer_when_written(self._modes.set(mode), request)

    def all_modes(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_MESSAGE_REQUEST_MODE (402) with all modes that were set, for slaves."""
        return request.response(body=self._modes.to_body())


def _share_of(
    strategy: AllocateStrategy,
    query: AssignmentQuery,
    queues: Sequence[MessageQueue],
    ids: Sequence[str],
    client_id: str,
) -> list[MessageQueue] | None:
    try:
        return strategy.allocate(query.consumer_group, client_id, queues, ids)
    except ValueError:
        return None


def _shared_pops(
    strategy: AllocateStrategy,
    query: AssignmentQuery,
    queues: list[MessageQueue],
    ids: list[str],
    neighbours: int,
) -> list[MessageQueue] | None:
    """
    Return the queues that a client pops: all queues, or its own share and those of its neighbours.
    None: the client shall change nothing.

    :param neighbours: how many neighbours' shares the client gets besides its own. For 0 or fewer,
        at least all other members, it gets all queues, as one entry for each broker.
    """
    if neighbours <= 0 or neighbours >= len(ids) - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        return [MessageQueue(query.topic, name, ALL_QUEUES) for name in brokers]
    if query.client_id not in ids:
        return []
    own = ids.index(query.client_id)
    if len(ids) > len(queues):
        return [queues[own % len(queues)]]
    shares: dict[MessageQueue, None] = {}
    for step in range(neighbours + 1):
        share = _share_of(strategy, query, queues, ids, ids[(own + step) % len(ids)])
        if share is None:
            return None
        shares |= dict.fromkeys(share)
    return list(shares)
