"""Errors of the client's calls. Each says why the call failed and how to mend that.

Spec: remoting.md, chapter 3 and section 11.1.
"""

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.codes import ResponseCode

_NEXT_STEPS = {
    ResponseCode.SYSTEM_ERROR: "see the broker's log",
    ResponseCode.SYSTEM_BUSY: "the broker is overloaded: send more slowly, or wait and try again",
    ResponseCode.MESSAGE_ILLEGAL: "mend the message as the remark says; where it says nothing, the "
    "message is too large for maxMessageSize of the broker",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker takes no writes: is it a slave, is its disk"
    " full?",
    ResponseCode.NO_PERMISSION: "topic or broker may not be written, or the account lacks rights",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic (rmqha-admin topic create), or allow"
    " autoCreateTopicEnable",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group (rmqha-admin group create)",
}
_PASSING = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
_NO_QUORUM = "broker busy"
"""Part of a SYSTEM_ERROR's remark if the page cache is busy or a DLedger group does not confirm."""
_NO_ACCESS = "AclException"


class MQClientError(RmqHaError):
    """Base class of the errors that the client raises on purpose."""


class NotStarted(MQClientError):
    """A call came before `start()` has ended, or after `stop()`."""


class ForkedClient(NotStarted):
    """A forked process cannot use the connections of its parent's client."""


class IllegalMessage(MQClientError):
    """A message or an argument of a send breaks a rule of RocketMQ; no broker was asked."""


class NoTimers(IllegalMessage):
    """
    A message asks for a timer, and its broker has none: it would deliver the message at once, or
    never. The message was not sent.
    """


class NoNameServer(MQClientError):
    """
    No name server is configured, or none of them answers.

    :ivar retriable: whether a name server may answer later without a change of the configuration.
    """

    def __init__(self, reason: str, *, retriable: bool = True) -> None:
        super().__init__(reason)
        self.retriable = retriable


class NoRoute(MQClientError):
    """
    The name servers know no broker that serves the topic.

    :ivar topic: the topic, with its namespace.
    :ivar retriable: whether the topic has brokers, none of which takes messages at the moment.
    """

    def __init__(self, topic: str, reason: str, *, retriable: bool = False) -> None:
        super().__init__(f"no route for the topic {topic}: {reason}")
        self.topic = topic
        self.retriable = retriable


class NoMaster(MQClientError):
    """The name servers know a broker but not its master, which is away or being replaced."""

    retriable = True


class BrokerRefused(MQClientError):
    """
    A broker or name server answered with an error code.

    :ivar code: the response code.
    :ivar remark: the remark of the answer.
    :ivar address: the server that answered.
    :ivar retriable: whether the server is only busy, or takes no writes at the moment.
    :ivar is_access: whether an account lacks a right, or the request was not signed.
    """

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        step = _NEXT_STEPS.get(code)  # type: ignore[call-overload]
        advice = f"; {step}" if step else ""
        super().__init__(f"{address} answered {code_name(code)}: {remark or ''}{advice}")
        self.code = code
        self.remark = remark or ""
        self.address = address
        is_error = code == ResponseCode.SYSTEM_ERROR
        self.is_access = is_error and _NO_ACCESS in self.remark
        self.retriable = code in _PASSING or (is_error and _NO_QUORUM in self.remark)


class ReceiptExpired(BrokerRefused):
    """
    The lease of a popped message has ended: it was not acknowledged, and no other time was set.

    Somebody may have got the message again already, or it goes to the dead letters, or an earlier
    attempt of the same change has given it another receipt.

    :ivar msg_id: the message's id.
    """

    def __init__(self, msg_id: str, remark: str | None, address: str) -> None:
        MQClientError.__init__(
            self,
            f"{address} knows no current lease of {msg_id} ({remark or 'without a reason'}): expect"
            " the message again, take a longer invisible_duration for receive(), or call"
            " change_invisible_duration() before the time is over",
        )
        self.msg_id = msg_id
        self.code = ResponseCode.NO_MESSAGE
        self.remark = remark or ""
        self.address = address
        self.is_access = self.retriable = False


class SendFailed(MQClientError):
    """
    All attempts to send a message have failed; the message may be stored nevertheless.

    :ivar code: the last response code; None if no broker answered.
    :ivar brokers: the names of the brokers that were asked, in order.
    :ivar retriable: whether the error of the last attempt was retriable.
    """

    def __init__(
        self,
        reason: str,
        brokers: tuple[str, ...] = (),
        code: int | None = None,
        *,
        retriable: bool = False,
    ) -> None:
        super().__init__(reason)
        self.brokers = brokers
        self.code = code
        self.retriable = retriable


class SendTimeout(SendFailed):
    """
    The time allowed for a send and all its retries is over; the message may be stored nevertheless.
    """

    def __init__(self, reason: str, brokers: tuple[str, ...] = (), code: int | None = None) -> None:
        super().__init__(reason, brokers, code, retriable=True)


class BatchFailed(SendFailed):
    """
    A batch was split into several requests, and one of these could not be sent.

    :ivar results: the results of the requests before it, whose messages are stored.
    :ivar unsent: how many messages, at the end of the batch, no broker has confirmed.
    """

    def __init__(self, cause: Exception, results: "tuple[object, ...]", unsent: int) -> None:
        brokers = getattr(cause, "brokers", ())
        super().__init__(
            f"the last {unsent} messages of a batch could not be sent: {cause}",
            brokers,
            getattr(cause, "code", None),
            retriable=getattr(cause, "retriable", False),
        )
        self.results = results
        self.unsent = unsent


class DuplicatesPossible(MQClientError):
    """
    An idempotent producer met a broker that would store a repeated send twice.

    No message was sent to that broker; or, if the error says so, none was sent again.
    """


class TooManyInFlight(MQClientError):
    """Too many sends wait already: slow down, or raise `max_in_flight` or `max_waiting`."""

    retriable = True


class RequestTimeout(MQClientError):
    """A request was sent, but no reply to it came in time."""

    retriable = True


def code_name(code: int) -> str:
    """Return a response code as text for people, like `TOPIC_NOT_EXIST (17)`."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return str(code)
