"""Sends requests to connected clients and waits for their answers, with a limit on waiting
requests.

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
    Sends requests to clients for one purpose, and limits how many of them wait for an answer.

    Each client may use up to a quarter of the allowed requests. So other clients stay reachable if
    one does not answer.

    :param most: how many requests may wait at a time.
    :param purpose: name of the requests in refusals.
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
        Send a request to one client.

        :returns: see `Channel.invoke`.
        :raises RequestRejected: too many requests wait, or the client does not read its connection.
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
        return answer.addBoth(self._free_place, channel)

    def _free_place(self, result: Any, channel: Channel) -> Any:
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
