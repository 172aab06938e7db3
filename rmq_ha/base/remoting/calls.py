"""What whoever asks others needs of a client: signed or not, it is the same."""

from typing import TYPE_CHECKING, Protocol

from rmq_ha.base.wire.command import RemotingCommand

if TYPE_CHECKING:  # the blocking client signs too, and wants no Twisted
    from twisted.internet.defer import Deferred


class Calls(Protocol):
    """What is used of a `rmq_ha.base.remoting.client.RemotingClient`."""

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """Ask and wait for the answer."""

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]": ...
