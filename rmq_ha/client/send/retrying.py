"""What comes after an attempt to send: RocketMQ's retries, and our patience on top of them.

`Sender`, in a reactor, and `SendAsking`, without one, both ask here and do as they are told.

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
    """What a send does now."""

    ATTEMPT = auto()
    """It is tried at once, at another broker if there is one."""
    REST = auto()
    """It waits for a broker to come back, and then begins a new round of attempts."""
    OVER = auto()
    """Its caller is told."""


def after_answer(send: Send, result: SendResult, now: float, config: ProducerConfig) -> Next:
    """It is stored, but not as safely as it should be: whether another broker is tried."""
    if config.retry_another_broker_when_not_store_ok and _has_another(send, now, config):
        send.stored = result
        return Next.ATTEMPT
    return Next.OVER


def after_failure(send: Send, error: Exception, now: float, config: ProducerConfig) -> Next:
    """An attempt was in vain. `final_error` says what its caller gets if this is the end."""
    send.error = error
    if _may_retry(error) and _has_another(send, now, config):
        return Next.ATTEMPT
    if isinstance(error, RemotingTimeout):
        send.timeout_ms *= 2  # a broker that is only slow may store each copy
    return Next.REST if _may_rest(send, error, now, config) else Next.OVER


def after_no_route(
    send: Send, error: BaseException, now: float, config: ProducerConfig, *, has_met: bool
) -> Next:
    """
    There is no route of its topic. The error is for its caller as it is, if this is the end.

    :param has_met: a broker was ever heard of. Whoever has never met one may have a wrong address
        of the name servers, and is told at once.
    """
    if not has_met and isinstance(error, NoNameServer):
        return Next.OVER
    if not isinstance(error, Exception) or not _may_rest(send, error, now, config):
        return Next.OVER
    send.error = error
    return Next.REST


def final_error(send: Send, error: Exception | None, now: float) -> Exception:
    """What the caller gets when all attempts were in vain."""
    if send.given_up is not None:
        return send.given_up
    if isinstance(error, NotStarted):
        return error
    is_own = error is not None and not isinstance(error, RemotingError)
    if is_own and (send.tries < 2 or not isinstance(error, MQClientError)):
        assert error is not None
        return error  # of a selector or a hook, or what the only attempt was told
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
    """Whether the same send may succeed later, though nobody changes anything."""
    return isinstance(error, RmqHaError) and error.retriable


def _may_rest(send: Send, error: BaseException, now: float, config: ProducerConfig) -> bool:
    """Whether it waits for better times, after a round of attempts in vain."""
    return (
        is_retriable(error)
        and config.delivery_timeout_ms > 0
        and now < send.deadline
        and (config.retry_chosen_queue or config.idempotent or not send.is_fixed)
        and send.given_up is None
        and not (send.oneway or send.stored is not None)
    )


def _may_retry(error: Exception) -> bool:
    """Whether another broker might take it: no answer, or one of these codes."""
    if isinstance(error, BrokerRefused):
        return error.code in RETRY_CODES and not error.is_access
    return isinstance(error, RemotingError | MQClientError) and not isinstance(
        error, IllegalMessage | DuplicatesPossible | NotStarted
    )


def _has_another(send: Send, now: float, config: ProducerConfig) -> bool:
    """Whether this round of attempts has one left."""
    return (
        not send.is_fixed
        and send.given_up is None
        and send.tries - send.tried <= config.retry_times_when_send_failed
        and now < send.until
    )
