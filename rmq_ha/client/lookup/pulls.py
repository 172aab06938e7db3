"""Pull requests, and their answers with encoded records.

Spec: remoting.md, chapter 6.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.flags import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import number
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import PullStatus

_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(slots=True)
class Pull:
    """
    The arguments of a pull.

    :ivar offset: the offset of the first message wanted.
    :ivar commit_offset: an offset that the broker commits with the pull; None for no commit.
    :ivar hold_ms: how long the broker may wait for messages, in ms; 0 for an answer at once.
    :ivar timeout_ms: how long to wait for the answer, in ms.
    :ivar send_expression: whether the request has the expression; else the broker takes it from the
        heartbeat.
    :ivar sub_version: a version of the subscription that the broker has; None for that of
        `subscription`.
    :ivar is_lite: whether a lite pull consumer asks.
    """

    queue: MessageQueue
    subscription: SubscriptionData
    offset: int
    max_nums: int
    timeout_ms: int
    commit_offset: int | None = None
    hold_ms: int = 0
    send_expression: bool = False
    sub_version: int | None = None
    is_lite: bool = False


class PulledRecords(NamedTuple):
    """
    The answer to a pull.

    :ivar body: encoded records, one after the other.
    :ivar broker_id: the id of the broker that answered.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    suggest_which_broker_id: int
    address: str
    broker_id: int


def pull_request(group: str, pull: Pull, *, is_master: bool) -> RemotingCommand:
    """
    Make a PULL_MESSAGE request.

    :param is_master: whether a master is asked. For a slave the offset to commit is left out, as
        slaves do not commit offsets with pulls.
    """
    flag = PULL_SUSPEND if pull.hold_ms else 0
    if pull.commit_offset is not None and is_master:
        flag |= PULL_COMMIT_OFFSET
    if pull.send_expression:
        flag |= PULL_SUBSCRIPTION
    if pull.is_lite:
        flag |= PULL_LITE
    version = pull.subscription.sub_version if pull.sub_version is None else pull.sub_version
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
        "expressionType": pull.subscription.expression_type or "",
        "bname": pull.queue.broker_name,
    }
    if pull.send_expression:
        ext["subscription"] = pull.subscription.sub_string
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext)


def read_pulled(response: RemotingCommand, address: str, broker_id: int) -> PulledRecords:
    """
    Read a broker's answer to a pull.

    :raises BrokerRefused: the code stands for no `PullStatus`, or the offsets are missing.
    """
    status = _STATUS.get(response.code)  # type: ignore[call-overload]
    if status is None:
        raise BrokerRefused(response.code, response.remark, address)
    suggested = (response.ext or {}).get("suggestWhichBrokerId", "")
    return PulledRecords(
        status,
        number(response, "nextBeginOffset", address),
        number(response, "minOffset", address),
        number(response, "maxOffset", address),
        (response.body or b"") if status is PullStatus.FOUND else b"",
        int(suggested) if suggested.isdecimal() else MASTER_ID,
        address,
        broker_id,
    )
