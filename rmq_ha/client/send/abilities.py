"""Abilities of brokers that some sends need and not every broker has, such as timers.

A producer asks a broker whether it has the ability before the first such send goes there.
"""

from typing import Protocol

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.send.send import Send


class Abilities(Protocol):
    """
    An ability that some sends need and not every broker has, and the answers of brokers about it.
    """

    def concerns(self, send: Send) -> bool:
        """Return whether a send needs the ability."""

    def must_ask(self, send: Send, address: str) -> bool:
        """Return whether the broker at an address must be asked before a send goes there."""

    def question(self, send: Send) -> RemotingCommand:
        """Return the request that asks a broker whether it has the ability."""

    def heard(self, response: RemotingCommand, address: str) -> None:
        """Note a broker's answer; raises an error if the broker answered none."""

    def check(self, send: Send, address: str) -> None:
        """Check that a send may go to an address; raises an error if it may not."""

    def failed(self, send: Send) -> None:
        """Note that a send failed."""
