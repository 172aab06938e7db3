"""What a client's calls fail with: each says why, and what to do about it.

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
"""In what SYSTEM_ERROR says when the page cache is busy, or a DLedger group does not confirm."""
_NO_ACCESS = "AclException"


class MQClientError(RmqHaError):
    """Base of everything that the client fails with on purpose."""


class NotStarted(MQClientError):
    """Call and wait for `start()` first; after `stop()` nothing can be sent."""


class ForkedClient(NotStarted):
    """A forked process cannot use the connections of its parent's client."""


class IllegalMessage(MQClientError):
    """What was given to send breaks a rule of RocketMQ; no broker was asked."""


class NoNameServer(MQClientError):
    """
    No name server is configured, or none of them answers.

    :ivar retriable: one of them may answer later though nobody changes anything.
    """

    def __init__(self, reason: str, *, retriable: bool = True) -> None:
        super().__init__(reason)
        self.retriable = retriable


class NoRoute(MQClientError):
    """
    No broker serves the topic, as far as the name servers know.

    :ivar topic: with its namespace.
    :ivar retriable: it has brokers; none of them takes messages at the moment.
    """

    def __init__(self, topic: str, reason: str, *, retriable: bool = False) -> None:
        super().__init__(f"no route for the topic {topic}: {reason}")
        self.topic = topic
        self.retriable = retriable


class NoMaster(MQClientError):
    """The name servers know a broker, but no master of it: it is away, or being replaced."""

    retriable = True


class BrokerRefused(MQClientError):
    """
    A peer answered with another code than success.

    :ivar code: the response code.
    :ivar remark: what the peer said.
    :ivar address: who said it.
    :ivar retriable: it is busy, or takes no writes at the moment.
    :ivar is_access: an account lacks rights, or none signed.
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


class SendFailed(MQClientError):
    """
    A message could not be sent, though it was tried; it may be stored nevertheless.

    :ivar code: the last response code; None when no broker answered.
    :ivar brokers: who was asked, in order.
    :ivar retriable: as of the last attempt's error.
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
    """The time allowed for a send and all its retries is over; it may be stored nevertheless."""

    def __init__(self, reason: str, brokers: tuple[str, ...] = (), code: int | None = None) -> None:
        super().__init__(reason, brokers, code, retriable=True)


class BatchFailed(SendFailed):
    """
    A part of a batch that had to be split could not be sent.

    :ivar results: of the parts before it, which are stored.
    :ivar unsent: how many messages at the end of the batch nobody stored for certain.
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

    Nothing was sent there; or, when it says so, nothing was sent again.
    """


class TooManyInFlight(MQClientError):
    """Too many sends wait already: slow down, or raise `max_in_flight` or `max_waiting`."""

    retriable = True


class RequestTimeout(MQClientError):
    """A request was sent, but no reply to it came in time."""

    retriable = True


def code_name(code: int) -> str:
    """A response code for people: `TOPIC_NOT_EXIST (17)`."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return str(code)
