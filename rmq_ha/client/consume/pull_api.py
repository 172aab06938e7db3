"""PullApi: sends one pull to the right broker and decodes the answer (RocketMQ's PullAPIWrapper).

Spec: remoting.md, chapter 6 and section 11.4.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.subscription import TAG_TYPES
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.lookup.pulls import Pull, PulledRecords, pull_request, read_pulled
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import MessageExt, PullResult, decode_pulled
from rmq_ha.client.rules.subscriptions import chosen

MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
FIRST_VERSION_WITH_SQL = 232
"""Since this version of RocketMQ (MQVersion.V4_1_0_SNAPSHOT) brokers filter by SQL92."""

Filter = Callable[[Sequence[MessageExt]], list[MessageExt]]


class PullAnswer(NamedTuple):
    """
    The answer to a pull.

    :ivar from_slave: whether a slave gave it, which may lack messages that its master has.
    """

    result: PullResult
    from_slave: bool


class PullApi:
    """
    Pulls messages for one group.

    :param group: the consumer group, with its namespace.
    :param filters: each returns the messages of a batch that the consumer gets (RocketMQ's
        FilterMessageHook).
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        choice: BrokerChoice,
        filters: Sequence[Filter] = (),
    ) -> None:
        self.choice = choice
        self._instance = instance
        self._group = group
        self._filters = filters

    def pull(self, pull: Pull) -> "Deferred[PullAnswer]":
        """
        Ask a broker for messages.

        :returns: fails with `RemotingError` if the broker does not answer, with `BrokerRefused` for
            other codes than those of a `PullStatus`, with `MQClientError` when no address is known,
            and with `CorruptRecord` or `UndecodableBody`.
        """
        addresses = self._instance.routes.brokers.get(pull.queue.broker_name)
        if not addresses:
            fetched = self._instance.routes.fetch(pull.queue.topic)
            return fetched.addCallback(lambda _: self._pull_from(pull))
        return self._ask(pull, addresses)

    def _pull_from(self, pull: Pull) -> "Deferred[PullAnswer]":
        addresses = self._instance.routes.brokers.get(pull.queue.broker_name)
        if not addresses:
            return fail(MQClientError(f"no address of {pull.queue.broker_name} is known"))
        return self._ask(pull, addresses)

    def _ask(self, pull: Pull, addresses: dict[int, str]) -> "Deferred[PullAnswer]":
        chosen_address = self.choice.address(pull.queue, addresses)
        assert chosen_address is not None
        address, broker_id = chosen_address
        if pull.subscription.expression_type not in TAG_TYPES:
            version = self._instance.broker_version(address)
            if 0 < version < FIRST_VERSION_WITH_SQL:
                return fail(
                    MQClientError(
                        f"the broker {address} is of version {version}, too old for"
                        f" {pull.subscription.expression_type} expressions"
                    )
                )
        request = pull_request(self._group, pull, is_master=broker_id == MASTER_ID)
        asked = self._instance.invoke(address, request, pull.timeout_ms)
        return asked.addCallbacks(
            self._answered,
            self._silent,
            callbackArgs=(pull, address, broker_id),
            errbackArgs=(address,),
        )

    def _silent(self, failure: Failure, address: str) -> Failure:
        if isinstance(failure.value, RemotingError):
            self.choice.failed(address)
        return failure

    def _answered(
        self, response: RemotingCommand, pull: Pull, address: str, broker_id: int
    ) -> PullAnswer:
        self.choice.answered(address)
        pulled = read_pulled(response, address, broker_id)
        self.choice.suggest(pull.queue, pulled.suggest_which_broker_id)
        messages, left = self._decode(pulled, pull) if pulled.body else ([], None)
        result = PullResult(
            pulled.status,
            pulled.next_begin_offset if left is None else left,
            pulled.min_offset,
            pulled.max_offset,
            messages,
            pulled.suggest_which_broker_id,
        )
        return PullAnswer(result, broker_id != MASTER_ID)

    def _decode(self, pulled: PulledRecords, pull: Pull) -> tuple[list[MessageExt], int | None]:
        pulled_messages, left = decode_pulled(pulled.body, pull.queue.broker_name)
        messages = chosen(pulled_messages, pull.subscription)
        for keep in self._filters:
            messages = keep(messages)
        least, most = str(pulled.min_offset), str(pulled.max_offset)
        for message in messages:
            message.properties[MIN_OFFSET] = least
            message.properties[MAX_OFFSET] = most
        return messages, left
