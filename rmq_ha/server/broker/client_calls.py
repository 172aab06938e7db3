"""Asks connected clients and waits for their answers; what may wait is bounded.

Spec: remoting.md, sections 2.4 and 7.6.
"""

from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand

_SHARE_OF_ONE_CLIENT = 4


class ClientCalls:
    """
    Calls to clients, for one purpose.

    A client that does not answer may hold up a quarter of them, so that the others stay reachable.

    :param most: how many may wait at a time.
    :param purpose: what they are, for refusals.
    """

    def __init__(self, most: int, purpose: str) -> None:
        self._most = most
        self._most_of_one = max(1, most // _SHARE_OF_ONE_CLIENT)
        self._purpose = purpose
        self._waiting: dict[Channel, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def invoke(
        self, channel: Channel, command: RemotingCommand, timeout_ms: float
    ) -> "Deferred[RemotingCommand]":
        """
        Ask one client.

        :returns: as `Channel.invoke`.
        :raises RequestRejected: too many calls wait, or the client does not read what it was sent.
        """
        waiting = self._waiting.get(channel, 0)
        if channel.is_full:
            raise self._busy(f"the client {channel.remote_text} does not read what it is sent")
        if waiting >= self._most_of_one:
            raise self._busy(f"{waiting} {self._purpose} wait for {channel.remote_text} already")
        if self._total >= self._most:
            raise self._busy(f"{self._total} {self._purpose} wait for their clients already")
        self._waiting[channel] = waiting + 1
        self._total += 1
        answer = channel.invoke(command, timeout_ms)
        return answer.addBoth(self._over, channel)

    def _over(self, result: Any, channel: Channel) -> Any:
        self._total -= 1
        left = self._waiting[channel] - 1
        if left:
            self._waiting[channel] = left
        else:
            del self._waiting[channel]
        return result

    @staticmethod
    def _busy(reason: str) -> RequestRejected:
        return RequestRejected(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]system busy, start flow control for a while: {reason}",
        )
