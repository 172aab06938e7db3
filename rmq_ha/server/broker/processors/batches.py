"""Reads batches of messages, over as many turns as they need.

Spec: remoting.md, sections 4.3 and 5.7.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.model.properties import WRITTEN_BY_POPS
from rmq_ha.base.wire.batch import BatchMember, read_batch
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.server.broker.frame_limits import MESSAGES, FrameLimits
from rmq_ha.server.broker.processors.unserved_requests import UnservedProperties
from rmq_ha.server.door import MessageSender
from rmq_ha.server.store.log.batch import MEMBERS_A_TURN

_OF_POPS = tuple(f"{name}\x01" for name in WRITTEN_BY_POPS)


def hold(sender: MessageSender, size: int, reading: "Deferred[Any]") -> Callable[[object], object]:
    """
    Serve no further request of a client for now.

    :param size: size of the request that takes long, in bytes.
    :param reading: cancelled if the connection is closed before it has fired.
    :returns: a function that ends this. It returns its argument, so it can be a callback.
    """
    held: Deferred[None] = Deferred(lambda _: None if reading.called else reading.cancel())
    sender.hold(size, held)
    held.addErrback(lambda _: None)

    def release(result: object) -> object:
        if not held.called:
            held.callback(None)
        return result

    return release


class BatchReader:
    """Reads the members of a batch, a slice in each step."""

    def __init__(
        self, configuration: BrokerConfiguration, limits: FrameLimits, unserved: UnservedProperties
    ) -> None:
        self._configuration = configuration
        self._limits = limits
        self._unserved = unserved

    def steps(
        self, body: bytes, common: str, take: Callable[[list[BatchMember]], None]
    ) -> Iterator[None]:
        """
        Read all members and call `take` with them. The properties that the batch has for all its
        members are appended to those of each member.

        :param common: the batch's properties, as text.
        :raises RequestRejected: the batch cannot be read, or is too large.
        """
        self._check_size(len(body), "")
        may_be_unserved = self._unserved.may_be_in(body)
        members, count, step = read_batch(body), 0, MEMBERS_A_TURN
        while step == MEMBERS_A_TURN:
            most = self._limits.limit(MESSAGES) + 1 - count
            try:
                some = list(islice(members, max(1, min(step, most))))
            except ProtocolViolation as violation:
                raise _unreadable(str(violation)) from None
            step = len(some)
            if may_be_unserved:
                self._unserved.check_members(some, count)
            count += step
            self._limits.check(MESSAGES, count, ResponseCode.MESSAGE_ILLEGAL)
            size = len(body) + count * len(common)
            self._check_size(size, " with the properties that each member gets")
            take([(flag, data, _join_properties(own, common)) for flag, data, own in some])
            if step == MEMBERS_A_TURN:
                yield
        if not count:
            raise _unreadable("a batch without messages")

    def _check_size(self, size: int, what: str) -> None:
        most = self._configuration.store.max_message_size
        if size > most:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {size} bytes{what}; {most} are allowed (maxMessageSize)",
            )


def _unreadable(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, reason)


def _join_properties(own: str, common: str) -> str:
    """Return the property text of a member, without the properties that only brokers write."""
    if any(mark in own for mark in _OF_POPS):
        pieces = own.split("\x02")
        own = "\x02".join([piece for piece in pieces if not piece.startswith(_OF_POPS)])
    if not own or own.endswith("\x02"):
        return own + common
    return f"{own}\x02{common}"
