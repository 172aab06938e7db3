"""BrokerAssignments: asks brokers which queues a member gets, and whether it pulls or pops them.

Spec: pop.md, section 2.8.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import AssignmentQuery, Assignments
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.queue_calls import QueueCalls

_POP = "POP"


class MemberQueues(NamedTuple):
    """
    The queues of one topic that a member gets.

    :ivar pulls: the queues to pull.
    :ivar pops: the places to pop; the queue id -1 stands for all queues of a broker.
    """

    pulls: list[MessageQueue]
    pops: list[MessageQueue]


class BrokerAssignments:
    """
    Asks the brokers of each topic (QUERY_ASSIGNMENT).

    :param strategy: name of the strategy by which brokers share out queues that are pulled.
    :param assign: called in each round as `assign(topic, pulls, pops)`, between the giving up of
        queues and the taking of others.
    :ivar is_unknown: whether the broker that was asked last does not know such questions; members
        share the queues out then.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        calls: QueueCalls,
        group: str,
        strategy: str,
        assign: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object],
    ) -> None:
        self._instance = instance
        self._calls = calls
        self._group = group
        self._strategy = strategy
        self.assign = assign
        self.is_unknown = False

    async def of_topic(self, topic: str) -> MemberQueues | None:
        """
        Ask for this member's queues of a topic.

        :returns: None to keep the present queues.
        :raises NoRoute: no broker has the topic.
        """
        query = AssignmentQuery(
            topic, self._group, self._instance.client_id, self._strategy, "CLUSTERING"
        )
        self.is_unknown = False
        for address in await self._calls.addresses(topic):
            command = RemotingCommand(RequestCode.QUERY_ASSIGNMENT, None, query.encode())
            try:
                response = await self._instance.invoke(
                    address, command, self._instance.settings.mq_client_api_timeout_ms
                )
                if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self.is_unknown = True
                    self.log.info(
                        "{address} shares out no queues of {topic}, as it does not know pops: the"
                        " members of {group} do it",
                        address=address,
                        topic=topic,
                        group=self._group,
                    )
                    return None
                if response.code:
                    continue
                queues = Assignments.decode(response.body or b"{}").queues
            except (RemotingError, ProtocolViolation) as error:
                self.log.debug("the queues of {topic}: {reason}", topic=topic, reason=error)
                continue
            if queues is None:
                return None
            return MemberQueues(
                [item.message_queue for item in queues if item.mode != _POP],
                [item.message_queue for item in queues if item.mode == _POP],
            )
        return None
