"""PullApi: one pull, whom it asks, and what its answer means (PullAPIWrapper).

Spec: remoting.md, chapter 6 and section 11.4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from rmq_ha.client.broker_choice import BrokerChoice
from rmq_ha.client.errors import BrokerRefused, MQClientError
from rmq_ha.client.instance import ClientInstance
from rmq_ha.client.messages import MessageExt, PullResult, PullStatus, decode_pulled
from rmq_ha.client.subscriptions import chosen
from rmq_ha.errors import RemotingError
from rmq_ha.model.broker_identity import MASTER_ID
from rmq_ha.model.flags import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.model.subscription import TAG_TYPES, SubscriptionData
from rmq_ha.wire.bodies import MessageQueue
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import RemotingCommand

MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
FIRST_VERSION_WITH_SQL = 232
"""MQVersion.V4_1_0_SNAPSHOT."""

Filter = Callable[[Sequence[MessageExt]], list[MessageExt]]

_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(slots=True)
class Pull:
    """
    What to ask for.

    :ivar offset: of the first message wanted.
    :ivar commit_offset: to commit on the way; None: none.
    :ivar hold_ms: how long the broker may wait for messages; 0: it answers at once.
    :ivar timeout_ms: for the answer.
    :ivar send_expression: with the request; else the broker takes it from the heartbeat.
    :ivar sub_version: that the broker has for certain; None: that of `wanted`.
    :ivar is_lite: a lite pull consumer asks.
    """

    queue: MessageQueue
    wanted: SubscriptionData
    offset: int
    max_nums: int
    timeout_ms: int
    commit_offset: int | None = None
    hold_ms: int = 0
    send_expression: bool = False
    sub_version: int | None = None
    is_lite: bool = False


class Pulled(NamedTuple):
    """
    An answer.

    :ivar from_slave: who gave it may lack what the master has.
    """

    result: PullResult
    from_slave: bool


class PullApi:
    """
    Pulls for one group.

    :param group: with its namespace.
    :param filters: see each batch of messages before the consumer does (FilterMessageHook).
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

    def pull(self, pull: Pull) -> "Deferred[Pulled]":
        """
        Ask a broker.

        :returns: fails with `RemotingError` when it does not answer, with `BrokerRefused` for
            other codes than those of a `PullStatus`, with `MQClientError` when no address is known,
            and with `CorruptRecord` or `UndecodableBody`.
        """
        addresses = self._instance.routes.brokers.get(pull.queue.broker_name)
        if not addresses:
            fetched = self._instance.routes.fetch(pull.queue.topic)
            return fetched.addCallback(lambda _: self._pull_from(pull))
        return self._ask(pull, addresses)

    def _pull_from(self, pull: Pull) -> "Deferred[Pulled]":
        addresses = self._instance.routes.brokers.get(pull.queue.broker_name)
        if not addresses:
            return fail(MQClientError(f"no address of {pull.queue.broker_name} is known"))
        return self._ask(pull, addresses)

    def _ask(self, pull: Pull, addresses: dict[int, str]) -> "Deferred[Pulled]":
        found = self.choice.address(pull.queue, addresses)
        assert found is not None
        address, broker_id = found
        if pull.wanted.expression_type not in TAG_TYPES:
            version = self._instance.broker_version(address)
            if 0 < version < FIRST_VERSION_WITH_SQL:
                return fail(
                    MQClientError(
                        f"the broker {address} is of version {version}, too old for"
                        f" {pull.wanted.expression_type} expressions"
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
    ) -> Pulled:
        self.choice.answered(address)
        status = _STATUS.get(response.code)  # type: ignore[call-overload]
        if status is None:
            raise BrokerRefused(response.code, response.remark, address)
        try:
            ext = response.ext or {}
            following = int(ext["nextBeginOffset"])
            least, most = int(ext["minOffset"]), int(ext["maxOffset"])
            suggested = int(ext.get("suggestWhichBrokerId") or MASTER_ID)
        except (KeyError, ValueError):
            reason = "the answer to a pull lacks its offsets"
            raise BrokerRefused(response.code, reason, address) from None
        self.choice.suggest(pull.queue, suggested)
        messages: list[MessageExt] = []
        if status is PullStatus.FOUND and response.body:
            messages, left = self._decode(response.body, pull, ext)
            following = following if left is None else left
        result = PullResult(status, following, least, most, messages, suggested)
        return Pulled(result, broker_id != MASTER_ID)

    def _decode(
        self, body: bytes, pull: Pull, ext: dict[str, str]
    ) -> tuple[list[MessageExt], int | None]:
        pulled, left = decode_pulled(body, pull.queue.broker_name)
        messages = chosen(pulled, pull.wanted)
        for keep in self._filters:
            messages = keep(messages)
        least, most = ext["minOffset"], ext["maxOffset"]
        for message in messages:
            message.properties[MIN_OFFSET] = least
            message.properties[MAX_OFFSET] = most
        return messages, left


def pull_request(group: str, pull: Pull, *, is_master: bool) -> RemotingCommand:
    """
    PULL_MESSAGE.

    :param is_master: else an offset to commit is left out: slaves do not take it that way.
    """
    flag = PULL_SUSPEND if pull.hold_ms else 0
    if pull.commit_offset is not None and is_master:
        flag |= PULL_COMMIT_OFFSET
    if pull.send_expression:
        flag |= PULL_SUBSCRIPTION
    if pull.is_lite:
        flag |= PULL_LITE
    version = pull.wanted.sub_version if pull.sub_version is None else pull.sub_version
    ext = {
        "consumerGroup": group,
        "topic": pull.queue.topic,
        "queueId": str(pull.queue.queue_id),
        "queueOffset": str(pull.offset),
        "maxMsgNums": str(pull.max_nums),
        "sysFlag": str(flag),
        "commitOffset": str(pull.commit_offset or 0),
        "suspendTimeoutMillis": str(pull.hold_ms),
        "subVersion": str(version),
        "expressionType": pull.wanted.expression_type or "",
        "bname": pull.queue.broker_name,
    }
    if pull.send_expression:
        ext["subscription"] = pull.wanted.sub_string
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext)
