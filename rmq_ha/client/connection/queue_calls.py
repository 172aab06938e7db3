"""QueueCalls: requests of consumers to brokers about queues, offsets, members and locks.

Spec: remoting.md, chapter 7 and section 11.3.
"""

from collections.abc import Collection, Iterable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, RemotingConnectError, RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.base.wire.bodies import (
    CheckClient,
    LockBatch,
    MessageQueue,
    decode_queues,
    decode_string_list,
)
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.lookup.asking import Asking, drive
from rmq_ha.client.lookup.lookups import commit_command, committed_offset, queue_number
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError

OFFSET_TIMEOUT_MS = 5000
LOCK_TIMEOUT_MS = 1000


class QueueCalls:
    """Requests of one client about its queues, to the master or, if none is known, to a slave."""

    log = Logger()

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def address(self, queue: MessageQueue) -> str:
        """
        Return the address of the queue's master or, if none is known, of a slave.

        :raises MQClientError: no address is known.
        """
        known = self._instance.broker_address(queue.broker_name)
        if known is None:
            await self._instance.routes.fetch(queue.topic)
            known = self._instance.broker_address(queue.broker_name)
        if known is None:
            raise MQClientError(
                f"no address of the broker {queue.broker_name} is known: does it run, and does it"
                " reach its name server?"
            )
        return known[0]

    async def max_offset(self, queue: MessageQueue) -> int:
        """
        Ask for the offset after a queue's last message.

        :raises MQClientError: no broker address is known, or the broker refuses.
        :raises RemotingError: the broker does not answer.
        """
        return await self._number(RequestCode.GET_MAX_OFFSET, queue, "offset")

    async def min_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset of a queue's first message; raises as `max_offset` does."""
        return await self._number(RequestCode.GET_MIN_OFFSET, queue, "offset")

    async def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """
        Ask when a queue's first message was stored, in ms since the epoch; -1 if it is not known.
        Raises as `max_offset` does.
        """
        return await self._number(RequestCode.GET_EARLIEST_MSG_STORETIME, queue, "timestamp")

    async def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """
        Ask for the offset of the first message that was stored at a time or later; raises as
        `max_offset` does. RocketMQ 4.9, and rmq-ha with `timeSearchNearest`, take the message
        stored closest to the time.

        :param timestamp: the time, in ms since the epoch.
        """
        return await self._number(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, "offset", timestamp=str(timestamp)
        )

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """
        Ask the broker for a group's offset; None if it has none. Raises as `max_offset` does.
        """
        addresses = {MASTER_ID: await self.address(queue)}
        offset = await self._run(committed_offset(addresses, group, queue), OFFSET_TIMEOUT_MS)
        return None if offset < 0 else offset

    async def commit(
        self, group: str, queue: MessageQueue, offset: int, *, wait: bool = False
    ) -> None:
        """
        Tell the master a group's offset or, if the master does not answer, a slave.

        Offsets are never read from a slave while the name servers know a master, as the slave's may
        be older.

        :param wait: whether to wait for the broker's answer.
        :raises MQClientError: no address is known, or the broker refuses.
        :raises RemotingError: the broker cannot be reached.
        """
        command = commit_command(group, queue, offset)
        address = await self.address(queue)
        try:
            await self._tell(address, command, wait=wait)
        except RemotingError:
            others = self._instance.routes.brokers.get(queue.broker_name, {}).values()
            slave = next((other for other in others if other != address), None)
            if slave is None:
                raise
            await self._tell(slave, command, wait=wait)

    async def _tell(self, address: str, command: RemotingCommand, *, wait: bool) -> None:
        if wait:
            await self._instance.call(address, command, OFFSET_TIMEOUT_MS)
        else:
            await self._instance.oneway(address, command)

    async def members(self, group: str, address: str, client_id: str) -> list[str] | None:
        """
        Ask one broker for the client ids of all members of a group (request code 38).

        :param client_id: this client's id. If the broker does not know it yet, a heartbeat is sent
            and the broker is asked again.
        :returns: the ids; None if the broker does not answer or refuses.
        """
        try:
            client_ids = await self._members(address, group)
            if client_id not in client_ids:
                await self._instance.heartbeat_now()
                client_ids = await self._members(address, group)
        except (RemotingError, BrokerRefused, ProtocolViolation) as error:
            self.log.debug("who is in {group}: {reason}", group=group, reason=error)
            return None
        return client_ids

    async def addresses(self, topic: str) -> list[str]:
        """
        Return the addresses of a topic's brokers in random order: first one of each broker name,
        its master if known, then all others.

        :raises NoRoute: no broker has the topic.
        """
        return self._candidates(await self._instance.route(topic))

    async def lock(
        self, group: str, client_id: str, broker_name: str, queues: Collection[MessageQueue]
    ) -> list[MessageQueue]:
        """
        Ask the master to lock queues for this client (request code 41).

        :returns: the queues that are locked; none if the master cannot be reached.
        """
        known = self._instance.broker_address(broker_name, MASTER_ID, True)
        if known is None:
            return []
        batch = LockBatch(group, client_id, list(queues))
        command = RemotingCommand(RequestCode.LOCK_BATCH_MQ, None, batch.encode())
        try:
            response = await self._instance.call(known[0], command, LOCK_TIMEOUT_MS)
            locked = decode_queues(response.body or b"{}")
        except (RemotingError, BrokerRefused, ProtocolViolation) as error:
            self.log.warn("{broker} locks no queues: {reason}", broker=broker_name, reason=error)
            return []
        return [queue for queue in locked if queue in queues]

    async def unlock(
        self, group: str, client_id: str, broker_name: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Unlock queues at the master by a one-way request (code 42); never fails."""
        known = self._instance.broker_address(broker_name, MASTER_ID, True)
        batch = LockBatch(group, client_id, list(queues))
        if known is None or not batch.queues:
            return
        command = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, None, batch.encode())
        try:
            await self._instance.oneway(known[0], command)
        except RemotingError as error:
            self.log.warn("{broker} unlocks no queues: {reason}", broker=broker_name, reason=error)

    async def check_subscription(
        self, group: str, client_id: str, subscription: SubscriptionData
    ) -> None:
        """
        Have a broker compile an expression (request code 46); do nothing if no broker answers.

        :raises BrokerRefused: the expression does not compile, or the broker does not allow its
            kind.
        """
        route = await self._instance.route(subscription.topic)
        body = CheckClient(client_id, group, subscription).encode()
        for address in self._candidates(route):
            command = RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, None, body)
            try:
                await self._instance.call(address, command)
            except RemotingConnectError:
                continue
            except RemotingError as error:
                self.log.warn("{reason}", reason=error)
            return

    def next_turn(self) -> "Deferred[None]":
        """Wait for the next turn of the reactor, so that long work is done in slices."""
        return next_turn(self._instance.host.clock)

    def _candidates(self, route: TopicRoute) -> list[str]:
        brokers = [item.addresses for item in route.brokers if item.addresses]
        self._instance.host.random.shuffle(brokers)
        best = [addresses[min(addresses)] for addresses in brokers]
        rest = [address for addresses in brokers for address in addresses.values()]
        return list(dict.fromkeys(best + rest))

    async def _members(self, address: str, group: str) -> list[str]:
        command = RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        response = await self._instance.invoke(
            address, command, self._instance.settings.mq_client_api_timeout_ms
        )
        if response.code == ResponseCode.SYSTEM_ERROR:  # the group has no members
            return []
        if response.code:
            raise BrokerRefused(response.code, response.remark, address)
        return decode_string_list(response.body or b"{}", "consumerIdList")

    async def _number(self, code: RequestCode, queue: MessageQueue, field: str, **more: str) -> int:
        addresses = {MASTER_ID: await self.address(queue)}
        return await self._run(queue_number(code, addresses, queue, field, **more))

    async def _run(self, asking: Asking[int], timeout_ms: float = 0) -> int:
        timeout_ms = timeout_ms or self._instance.settings.mq_client_api_timeout_ms
        return await drive(
            asking, lambda ask: self._instance.invoke(ask.address, ask.command, timeout_ms)
        )


class GroupMembers:
    """
    The members of a group, for a round of rebalancing.

    Each broker is asked once a round, even if it has many topics. So a member sends its brokers a
    few requests every `rebalance_interval_ms`, and not one for each topic.

    :param client_id: this client's id.
    """

    def __init__(self, calls: QueueCalls, group: str, client_id: str) -> None:
        self._calls = calls
        self._group = group
        self._client_id = client_id
        self._answers: dict[str, list[str] | None] = {}

    def begin(self) -> None:
        """Begin a new round: forget the answers of the round before."""
        self._answers.clear()

    async def of_topic(self, topic: str) -> list[str] | None:
        """
        Return the client ids of all members of the group, from a random broker of a topic.

        :returns: the ids; None if no broker of the topic answers.
        :raises NoRoute: no broker has the topic.
        """
        answers = self._answers
        for address in await self._calls.addresses(topic):
            if address not in answers:
                answers[address] = await self._calls.members(self._group, address, self._client_id)
            client_ids = answers[address]
            if client_ids is not None:
                return client_ids
        return None
