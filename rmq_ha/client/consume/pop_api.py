"""PopApi: pops messages of one group, and ends and changes their leases, across fail-overs.

Spec: pop.md, sections 2.1 to 2.6 and 13.4.
"""

from collections.abc import Iterable
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.errors import RemotingError, RmqHaError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.lookup.pops import (
    MessageLease,
    Pop,
    PopResult,
    ack_request,
    batch_ack_request,
    change_request,
    changed_receipt,
    pop_request,
    read_popped,
)
from rmq_ha.client.rules.errors import BrokerRefused, NoMaster, ReceiptExpired

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0
_PASSING = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)


class BatchItem(NamedTuple):
    """
    One message of a batch that is acknowledged.

    :ivar topic: the topic that the group subscribed to, with its namespace.
    """

    topic: str
    lease: MessageLease
    msg_id: str


class PopApi:
    """
    Sends the requests of one group to the masters that hold the messages.

    :param group: the consumer group, with its namespace.
    """

    log = Logger()

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._clock = instance.host.clock
        self._timeout_ms = instance.settings.mq_client_api_timeout_ms

    async def pop(self, pop: Pop) -> PopResult:
        """
        Ask a master for messages, once.

        :raises NoMaster: no address of the master is known.
        :raises BrokerRefused: the broker refuses, or is not the master (code 2).
        :raises RemotingError: the broker does not answer; messages that it handed out come again
            when their leases end.
        :raises CorruptRecord: the answer holds no messages.
        """
        address = await self._master(pop.broker_name, pop.topic)
        request = pop_request(self._group, pop, self._instance.host.now_ms())
        response = await self._instance.invoke(address, request, pop.poll_ms + self._timeout_ms)
        return read_popped(response, self._group, pop, address)

    async def ack(self, topic: str, lease: MessageLease, msg_id: str, within_ms: int) -> None:
        """
        Acknowledge a message. A repeated acknowledgement changes nothing at the broker, so one
        without an answer is repeated, and goes to the new master after a fail-over.

        :param topic: the topic that the group subscribed to, with its namespace.
        :param within_ms: how long to try, in ms.
        :raises ReceiptExpired: the lease has ended.
        :raises BrokerRefused: the broker refuses.
        :raises NoMaster: the broker still has no master at the end of the time.
        :raises RemotingError: the broker still does not answer at the end of the time.
        """
        request = ack_request(self._group, lease)
        name = lease.receipt.broker_name
        response, address = await self._until_answered(name, topic, request, within_ms)
        _check(response, address, msg_id)

    async def ack_batch(self, broker_name: str, items: list[BatchItem], within_ms: int) -> None:
        """
        Acknowledge messages of one broker by one request, or one by one if the broker does not
        know such requests. Raises as `ack` does; `ReceiptExpired` says that no lease was current.
        """
        leases: Iterable[tuple[str, PopReceipt]] = [
            (item.topic, item.lease.receipt) for item in items
        ]
        request = batch_ack_request(self._group, broker_name, leases)
        response, address = await self._until_answered(
            broker_name, items[0].topic, request, within_ms
        )
        if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            _check(response, address, f"{len(items)} messages")
            return
        expired: ReceiptExpired | None = None
        for item in items:
            try:
                await self.ack(item.topic, item.lease, item.msg_id, within_ms)
            except ReceiptExpired as error:
                expired = error
        if expired is not None:
            raise expired

    async def change(
        self, topic: str, lease: MessageLease, invisible_ms: int, msg_id: str, within_ms: int
    ) -> PopReceipt:
        """
        Let a lease end at another time, and return the receipt that replaces the old one. Raises
        as `ack` does. `ReceiptExpired` may also say that an earlier attempt, whose answer was
        lost, has changed the lease: the message comes again at the new time.

        :param invisible_ms: when the lease ends, in ms from now.
        """
        request = change_request(self._group, lease, invisible_ms)
        name = lease.receipt.broker_name
        response, address = await self._until_answered(name, topic, request, within_ms)
        _check(response, address, msg_id)
        return changed_receipt(response, lease.receipt)

    async def pause(self, seconds: float) -> None:
        timer: IDelayedCall
        over: Deferred[None] = Deferred(lambda _: timer.cancel())
        timer = self._clock.callLater(seconds, over.callback, None)
        await over

    async def look_for_master(self, topic: str) -> None:
        """Fetch a topic's route anew, after its broker did not serve a request; never fails."""
        try:
            await self._instance.routes.fetch(topic)
        except RmqHaError as error:
            self.log.debug("{reason}", reason=error)

    async def _until_answered(
        self, broker_name: str, topic: str, request: RemotingCommand, within_ms: int
    ) -> tuple[RemotingCommand, str]:
        """Send a request until a master serves it; return the answer and that master's address."""
        steady_ms = self._instance.host.steady_ms
        deadline, pause_s = steady_ms() + within_ms, _FIRST_PAUSE_S
        while True:
            left_ms = max(1, deadline - steady_ms())
            try:
                address = await self._master(broker_name, topic)
                command = RemotingCommand(request.code, dict(request.ext or {}), request.body)
                response = await self._instance.invoke(
                    address, command, min(self._timeout_ms, left_ms)
                )
                if response.code not in _PASSING:
                    return response, address
                error: RmqHaError = BrokerRefused(response.code, response.remark, address)
            except (RemotingError, NoMaster) as failed:
                error = failed
            if steady_ms() + pause_s * 1000 >= deadline:
                raise error
            await self.pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            await self.look_for_master(topic)

    async def _master(self, broker_name: str, topic: str) -> str:
        known = self._instance.broker_address(broker_name, MASTER_ID, True)
        if known is None:
            await self.look_for_master(topic)
            known = self._instance.broker_address(broker_name, MASTER_ID, True)
        if known is None:
            raise NoMaster(
                f"the broker {broker_name}, which holds the messages, has no master at the moment,"
                " as far as the name servers know"
            )
        return known[0]


def _check(response: RemotingCommand, address: str, msg_id: str) -> None:
    if response.code == ResponseCode.NO_MESSAGE:
        raise ReceiptExpired(msg_id, response.remark, address)
    if response.code:
        raise BrokerRefused(response.code, response.remark, address)
