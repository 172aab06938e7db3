"""The interfaces of producers and consumers that a `ClientInstance` calls.

Spec: remoting.md, sections 2.4 and 7.1.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.wire.bodies import ConsumerData, MessageQueue
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.messages import MessageExt


class CheckHeader(NamedTuple):
    """
    The header of a broker's question about a half message (request code 39).

    :ivar answer_to: the broker's address, for log lines.
    """

    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str
    transaction_id: str
    offset_msg_id: str
    answer_to: str


class ProducerPart(Protocol):
    """A producer group of this client."""

    def check_transaction(
        self,
        message: MessageExt,
        header: CheckHeader,
        answer: Callable[[RemotingCommand], object],
    ) -> None:
        """
        Find out how a transaction ended, and tell the broker that asks.

        :param answer: sends a one-way END_TRANSACTION to that broker.
        """

    def reply(self, message: MessageExt, correlation_id: str) -> bool:
        """Take the reply to a request; return False if this producer did not send the request."""


class ConsumerPart(Protocol):
    """A consumer group of this client."""

    def heartbeat_data(self) -> ConsumerData:
        """Return the consumer's part of the next heartbeat, with namespaces in its names."""

    def on_group_changed(self) -> None:
        """Rebalance soon, as a member has joined or left the group."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at the offsets to which an operator resets the group."""

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumer's offsets in its queues of a topic."""

    def running_info(self, want_stack: bool) -> Mapping[str, Any]:
        """
        Return the fields of a ConsumerRunningInfo (spec: B13). The client adds its own properties.
        """

    def consume_directly(self, message: MessageExt) -> Any:
        """
        Consume one message that an operator sends.

        :returns: the fields of a ConsumeMessageDirectlyResult (spec: B15), or a Deferred of them.
        """
