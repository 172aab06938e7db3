"""Decides what follows an attempt to send: a retry as in RocketMQ, a later round, or the end.

`Sender`, with a reactor, and `SendAsking`, without one, both follow these decisions.

Spec: remoting.md, section 11.1 (sendDefaultImpl).
"""

from enum import Enum, auto

from rmq_ha.base.errors import RemotingError, RemotingTimeout, RmqHaError
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    DuplicatesPossible,
    IllegalMessage,
    MQClientError,
    NoNameServer,
    NotStarted,
    SendFailed,
    SendTimeout,
)
from rmq_ha.client.rules.messages import SendResult
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.send import Send

RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


class Next(Enum):
    """The next step of a send."""

    ATTEMPT = auto()
    """Try again at once, at another broker if the topic has one."""
    REST = auto()
    """Wait for a broker to come back, and then begin a new round of attempts."""
    OVER = auto()
    """End the send and tell its caller."""


def after_answer(send: Send, result: SendResult, now: float, config: ProducerConfig) -> Next:
    """
    Decide what follows when a broker has stored the message, but not yet safely: the end or, with
    `retry_another_broker_when_not_store_ok`, an attempt at another broker.
    """
    if config.retry_another_broker_when_not_store_ok and _has_another(send, now, config):
        send.stored = result
        return Next.ATTEMPT
    return Next.OVER


def after_failure(send: Send, error: Exception, now: float, config: ProducerConfig) -> Next:
    """Decide what follows a failed attempt. If the send ends, its caller gets the `final_error`."""
    send.error = error
    if _may_retry(error) and _has_another(send, now, config):
        return Next.ATTEMPT
    if isinstance(error, RemotingTimeout):
        send.timeout_ms *= 2  # else a broker that is only slow might store many copies
    return Next.REST if _may_rest(send, error, now, config) else Next.OVER


def after_no_route(
    send: Send, error: BaseException, now: float, config: ProducerConfig, *, has_met: bool
) -> Next:
    """
    Decide what follows when no route of the topic could be found; at the end of a send the caller
    gets `error` unchanged.

    :param has_met: whether the client has ever got a route. If not, and no name server answers,
        their addresses may be wrong, and the caller is told at once.
    """
    if not has_met and isinstance(error, NoNameServer):
        return Next.OVER
    if not isinstance(error, Exception) or not _may_rest(send, error, now, config):
        return Next.OVER
    send.error = error
    return Next.REST


def final_error(send: Send, error: Exception | None, now: float) -> Exception:
    """Return the error that the caller gets when all attempts have failed."""
    if send.given_up is not None:
        return send.given_up
    if isinstance(error, NotStarted):
        return error
    is_own = error is not None and not isinstance(error, RemotingError)
    if is_own and (send.tries < 2 or not isinstance(error, MQClientError)):
        assert error is not None
        return error  # an error of a selector or hook, or of the only attempt
    waited = (now - send.since) * 1000
    tries = "1 attempt" if send.tries == 1 else f"{send.tries} attempts"
    text = (
        f"{tries} within {waited:.0f} ms to send to {send.topic.shown}, at "
        f"{', '.join(dict.fromkeys(send.brokers)) or 'no broker'}: {error or 'the time is over'}"
    )
    code = error.code if isinstance(error, BrokerRefused) else None
    if error is None or isinstance(error, RemotingTimeout) or now >= send.until:
        return SendTimeout(text, send.brokers, code)
    return SendFailed(text, send.brokers, code, retriable=is_retriable(error))


def is_retriable(error: BaseException) -> bool:
    """Whether the same send may succeed later without any change."""
    return isinstance(error, RmqHaError) and error.retriable


def _may_rest(send: Send, error: BaseException, now: float, config: ProducerConfig) -> bool:
    """Whether a send waits for a further round after a failed round of attempts."""
    return (
        is_retriable(error)
        and config.delivery_timeout_ms > 0
        and now < send.deadline
        and (config.retry_chosen_queue or config.idempotent or not send.is_fixed)
        and send.given_up is None
        and not (send.oneway or send.stored is not None)
    )


def _may_retry(error: Exception) -> bool:
    """
    Whether another broker might take the message: either no broker has answered, or the code of its
    answer is in RETRY_CODES and is no refusal of the account.
    """
    if isinstance(error, BrokerRefused):
        return error.code in RETRY_CODES and not error.is_access
    return isinstance(error, RemotingError | MQClientError) and not isinstance(
        error, IllegalMessage | DuplicatesPossible | NotStarted
    )


def _has_another(send: Send, now: float, config: ProducerConfig) -> bool:
    """
    Whether this round may make another attempt: the caller has not chosen the queue, and neither
    the number of attempts nor the time is used up.
    """
    return (
        not send.is_fixed
        and send.given_up is None
        and send.tries - send.tried <= config.retry_times_when_send_failed
        and now < send.until
    )
