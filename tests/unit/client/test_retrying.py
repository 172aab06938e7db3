"""What comes after an attempt: each reason alone decides."""

from typing import Any

import pytest

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    DuplicatesPossible,
    IllegalMessage,
    MQClientError,
    NoNameServer,
    NoRoute,
    SendFailed,
    SendTimeout,
)
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus
from rmq_ha.client.rules.send_frames import Outgoing
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.retrying import (
    Next,
    after_answer,
    after_failure,
    after_no_route,
    final_error,
)
from rmq_ha.client.send.send import PublishTopic, Send

NOW, UNTIL, DEADLINE = 10.0, 13.0, 70.0
QUEUE = MessageQueue("T", "a", 0)
UNSAFE = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "ID", QUEUE, 5, "M")
GONE = RemotingConnectError("refused")
DENIED = BrokerRefused(ResponseCode.SYSTEM_ERROR, "AclException: no", "a:1")


def send_of(**changes: Any) -> Send:
    """Tried once, of three times, in its first round."""
    outgoing, messages = Outgoing(0, 0, "", b"x"), (Message("T", b"x"),)
    known, code = PublishTopic("T", "T", 0), RequestCode.SEND_MESSAGE_V2
    send = Send(known, code, outgoing, "ID", messages, NOW, DEADLINE, 3000.0)
    send.until, send.tries, send.brokers = UNTIL, 1, ("a",)
    for name, value in changes.items():
        setattr(send, name, value)
    return send


@pytest.mark.parametrize(
    ("changes", "now", "has_another"),
    [
        ({}, NOW, True),
        ({"tries": 2}, NOW, True),
        ({"tries": 3}, NOW, False),
        ({"tries": 5, "tried": 3}, NOW, True),
        ({"tries": 6, "tried": 3}, NOW, False),
        ({}, UNTIL - 0.001, True),
        ({}, UNTIL, False),
        ({"fixed_queue": QUEUE}, NOW, False),
        ({"selector": min}, NOW, False),
        ({"given_up": SendFailed("stopped")}, NOW, False),
    ],
)
def test_a_round_has_an_attempt_left(changes: Any, now: float, has_another: bool) -> None:
    config = ProducerConfig(retry_another_broker_when_not_store_ok=True)
    unsafe, failed = send_of(**changes), send_of(**changes)
    is_next = after_answer(unsafe, UNSAFE, now, config) is Next.ATTEMPT
    assert (is_next, unsafe.stored) == (has_another, UNSAFE if has_another else None)
    assert (after_failure(failed, GONE, now, config) is Next.ATTEMPT) is has_another
    assert failed.error is GONE
    assert after_answer(send_of(), UNSAFE, NOW, ProducerConfig()) is Next.OVER


@pytest.mark.parametrize(
    ("error", "is_tried"),
    [
        (GONE, True),
        (RemotingTimeout("slow"), True),
        (MQClientError("away"), True),
        (BrokerRefused(ResponseCode.SYSTEM_ERROR, "", "a:1"), True),
        (BrokerRefused(ResponseCode.NOT_IN_CURRENT_UNIT, "", "a:1"), True),
        (BrokerRefused(ResponseCode.MESSAGE_ILLEGAL, "", "a:1"), False),
        (DENIED, False),
        (IllegalMessage("no"), False),
        (DuplicatesPossible("no"), False),
        (ValueError("of a hook"), False),
    ],
)
def test_another_broker_might_take_it(error: Exception, is_tried: bool) -> None:
    step = after_failure(send_of(), error, NOW, ProducerConfig(delivery_timeout_ms=0))
    assert step is (Next.ATTEMPT if is_tried else Next.OVER)


@pytest.mark.parametrize(
    ("changes", "config", "now", "rests"),
    [
        ({}, {}, NOW, True),
        ({}, {}, DEADLINE - 0.001, True),
        ({}, {}, DEADLINE, False),
        ({}, {"delivery_timeout_ms": 0}, NOW, False),
        ({}, {"delivery_timeout_ms": 1}, NOW, True),
        ({"fixed_queue": QUEUE}, {"retry_chosen_queue": False}, NOW, False),
        ({"selector": min}, {"retry_chosen_queue": False}, NOW, False),
        ({"fixed_queue": QUEUE}, {}, NOW, True),
        ({"selector": min}, {}, NOW, True),
        ({"fixed_queue": QUEUE}, {"idempotent": True, "retry_chosen_queue": False}, NOW, True),
        ({"given_up": SendFailed("stopped")}, {}, NOW, False),
        ({"oneway": True}, {}, NOW, False),
        ({"stored": UNSAFE}, {}, NOW, False),
    ],
)
def test_it_waits_for_better_times(changes: Any, config: Any, now: float, rests: bool) -> None:
    """After a round in vain, or without a route; but not after what will stay as it is."""
    expected = Next.REST if rests else Next.OVER
    settings = ProducerConfig(**config)
    assert after_failure(send_of(tries=3, **changes), GONE, now, settings) is expected
    away, send = NoRoute("T", "away", retriable=True), send_of(**changes)
    assert after_no_route(send, away, now, settings, has_met=False) is expected
    assert send.error is (away if rests else None)
    nowhere = NoRoute("T", "nowhere")
    assert after_no_route(send_of(), nowhere, NOW, settings, has_met=True) is Next.OVER
    assert after_failure(send_of(tries=3), DENIED, NOW, settings) is Next.OVER


@pytest.mark.parametrize(
    ("error", "has_met", "rests"),
    [
        (NoNameServer("nobody"), False, False),
        (NoNameServer("nobody"), True, True),
        (NoRoute("T", "away", retriable=True), False, True),
        (KeyboardInterrupt(), True, False),
    ],
)
def test_no_name_server_is_waited_for_only_by_who_has_met_a_broker(
    error: BaseException, has_met: bool, rests: bool
) -> None:
    step = after_no_route(send_of(), error, NOW, ProducerConfig(), has_met=has_met)
    assert step is (Next.REST if rests else Next.OVER)


def test_only_a_broker_that_was_silent_is_given_more_time_in_the_next_round() -> None:
    for error, tries, timeout_ms in (
        (RemotingTimeout("slow"), 3, 6000.0),
        (RemotingTimeout("slow"), 1, 3000.0),
        (GONE, 3, 3000.0),
    ):
        send = send_of(tries=tries)
        after_failure(send, error, NOW, ProducerConfig())
        assert send.timeout_ms == timeout_ms


BUSY = BrokerRefused(ResponseCode.SYSTEM_BUSY, "full", "a:1")


@pytest.mark.parametrize(
    ("changes", "error", "now", "said"),
    [
        ({}, None, NOW + 2, (SendTimeout, "^1 attempt within 2000 ms .* at a: the time is over")),
        ({"tries": 3}, GONE, NOW, (SendFailed, "^3 attempts within 0 ms .* to T, at a: refused")),
        ({"brokers": ("a", "b", "a")}, GONE, NOW, (SendFailed, "at a, b: refused")),
        ({"brokers": ()}, GONE, NOW, (SendFailed, "at no broker: refused")),
        ({}, RemotingTimeout("slow"), NOW, (SendTimeout, "slow")),
        ({}, GONE, UNTIL - 0.001, (SendFailed, "refused")),
        ({}, GONE, UNTIL, (SendTimeout, "refused")),
        ({"tries": 2}, BUSY, NOW, (SendFailed, "SYSTEM_BUSY")),
    ],
)
def test_the_end_says_how_often_it_was_tried_where_and_why_in_vain(
    changes: Any, error: Any, now: float, said: Any
) -> None:
    kind, words = said
    with pytest.raises(kind, match=words) as failed:
        raise final_error(send_of(**changes), error, now)
    assert type(failed.value) is kind
    assert failed.value.code == (ResponseCode.SYSTEM_BUSY if error is BUSY else None)
    assert failed.value.retriable


def test_what_the_only_attempt_was_told_or_a_hook_raises_is_for_the_caller_as_it_is() -> None:
    hook = ValueError("of a hook")
    stopped = SendFailed("stopped")
    assert final_error(send_of(), BUSY, NOW) is BUSY
    assert final_error(send_of(tries=0), BUSY, UNTIL) is BUSY
    for tries in (1, 3):
        assert final_error(send_of(tries=tries), hook, UNTIL) is hook
        assert final_error(send_of(tries=tries, given_up=stopped), GONE, NOW) is stopped
    assert isinstance(final_error(send_of(tries=2), BUSY, NOW), SendFailed)
    assert not final_error(send_of(tries=2), DENIED, NOW).retriable  # type: ignore[attr-defined]
