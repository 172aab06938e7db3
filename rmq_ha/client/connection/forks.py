"""OwnConnections: keeps a forked child process from using its parent's connections."""

from twisted.internet.defer import Deferred, fail, succeed

from rmq_ha.base.host.process import process_id
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.errors import ForkedClient


class OwnConnections:
    """
    A `RemotingClient` that works only in the process that made it.

    If parent and child both wrote to one connection and read from it, neither could use it. The
    child has its parent's reactor too, so the child cannot go on with this client at all.
    """

    def __init__(self, remoting: RemotingClient) -> None:
        self._remoting = remoting
        self._pid = process_id()

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """See `RemotingClient`; fails with `ForkedClient` in a child."""
        if process_id() != self._pid:
            return fail(self._refusal())
        return self._remoting.invoke(address, command, timeout_ms)

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]":
        """See `RemotingClient`; fails with `ForkedClient` in a child."""
        if process_id() != self._pid:
            return fail(self._refusal())
        return self._remoting.oneway(address, command)

    def open_channel(self, address: str) -> Channel | None:
        """See `RemotingClient`; a child gets None."""
        return None if process_id() != self._pid else self._remoting.open_channel(address)

    def must_be_ours(self) -> None:
        """
        Refuse a child of the process that made the connections.

        :raises ForkedClient: this process is such a child.
        """
        if process_id() != self._pid:
            raise self._refusal()

    def close(self, address: str) -> None:
        """See `RemotingClient`; does nothing in a child."""
        if process_id() == self._pid:
            self._remoting.close(address)

    def stop(self) -> "Deferred[None]":
        """See `RemotingClient`; does nothing in a child."""
        return succeed(None) if process_id() != self._pid else self._remoting.stop()

    def _refusal(self) -> ForkedClient:
        return ForkedClient(
            f"this client belongs to the process {self._pid}, of which this one is a fork: make a"
            " new client in a new process (subprocess, or multiprocessing with 'spawn'), or use"
            " rmq_ha.client.blocking, which may be forked"
        )
