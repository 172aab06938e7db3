"""What a `ClientInstance` wants of the producers and consumers that are registered with it.

Spec: remoting.md, sections 2.4 and 7.1.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.wire.bodies import ConsumerData, MessageQueue
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.messages import MessageExt


class CheckHeader(NamedTuple):
    """
    What a broker says with its question about a half message (code 39).

    :ivar answer_to: the broker's address, for people.
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
        """:param answer: sends END_TRANSACTION, one-way, to the broker that asks."""

    def reply(self, message: MessageExt, correlation_id: str) -> bool:
        """A reply to a request came; False when it is none of ours."""


class ConsumerPart(Protocol):
    """A consumer group of this client."""

    def heartbeat_data(self) -> ConsumerData:
        """What the next heartbeat says of it; names with namespace."""

    def on_group_changed(self) -> None:
        """A member came or left: rebalance soon."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator wants it to go on elsewhere."""

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far it is in its queues of a topic."""

    def running_info(self, want_stack: bool) -> Mapping[str, Any]:
        """ConsumerRunningInfo (B13), as JSON members; the client adds what it knows itself."""

    def consume_directly(self, message: MessageExt) -> Any:
        """
        Consume one message that an operator sends.

        :returns: ConsumeMessageDirectlyResult (B15) as JSON members, or a Deferred of it.
        """
