"""Calls: the interface of clients that send requests, with or without signatures."""

from typing import TYPE_CHECKING, Protocol

from rmq_ha.base.wire.command import RemotingCommand

if TYPE_CHECKING:  # the blocking client imports this without Twisted
    from twisted.internet.defer import Deferred


class Calls(Protocol):
    """The methods of a `rmq_ha.base.remoting.client.RemotingClient` that callers use."""

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """Send a request and wait for the response."""

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]": ...
