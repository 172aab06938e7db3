"""Refusals of the front, and the codes of RocketMQ 5 for refusals of remoting's processors.

Spec: grpc.md, section 9.
"""

from collections.abc import Sized
from typing import Any

from rmq_ha.base.errors import AccessRefused, RequestRejected, RmqHaError
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.server.grpc.front.limits import MOST_OF_A_REQUEST
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AnswerCode

_OF_REMOTING = {
    ResponseCode.SUCCESS: AnswerCode.OK,
    ResponseCode.SYSTEM_BUSY: AnswerCode.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: AnswerCode.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: AnswerCode.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: AnswerCode.HA_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: AnswerCode.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.MESSAGE_ILLEGAL: AnswerCode.BAD_REQUEST,
    ResponseCode.SERVICE_NOT_AVAILABLE: AnswerCode.HA_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION: AnswerCode.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: AnswerCode.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: AnswerCode.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.ILLEGAL_OPERATION: AnswerCode.BAD_REQUEST,
    ResponseCode.FLOW_CONTROL: AnswerCode.TOO_MANY_REQUESTS,
}
OK_TEXT = "OK"


class FrontRefusal(RmqHaError):
    """
    A request that is answered with a code other than OK.

    :param text: the reason and the next step, for the person who reads the client's log.
    """

    def __init__(self, code: AnswerCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def status_of(code: AnswerCode, text: str = OK_TEXT) -> Any:
    """Return the message `Status` of RocketMQ 5's service, with a code and a text for people."""
    return messages.Status(code=code, message=text)


def answer_code(code: int) -> AnswerCode:
    """Return the code of RocketMQ 5's service for a response code of remoting."""
    return _OF_REMOTING.get(ResponseCode(code), AnswerCode.INTERNAL_SERVER_ERROR)


def refusal_of(rejected: RequestRejected) -> FrontRefusal:
    """Return the refusal that the front answers when a processor of remoting refused a request."""
    if isinstance(rejected, AccessRefused):
        return FrontRefusal(AnswerCode.UNAUTHORIZED, rejected.remark)
    return FrontRefusal(answer_code(rejected.code), rejected.remark)


def check_count(items: Sized, kind: str) -> None:
    """
    Check how many messages or receipts a request has.

    :raises FrontRefusal: they are more than a request may have.
    """
    if len(items) > MOST_OF_A_REQUEST:
        text = f"{len(items)} {kind}; {MOST_OF_A_REQUEST} are the most in one request"
        raise FrontRefusal(AnswerCode.BAD_REQUEST, text)
