"""Sends between places in flight, attempts that are played by the test, and a clock."""

from typing import Any

import pytest
from scripted import MASTER, OTHER, ROUTE, SLAVE, Scripted
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock

from rmq_ha.client.errors import (
    BrokerRefused,
    IllegalMessage,
    MQClientError,
    NoRoute,
    SendFailed,
    SendTimeout,
    TooManyInFlight,
)
from rmq_ha.client.messages import Message, SendResult, SendStatus
from rmq_ha.client.routes import publish_info
from rmq_ha.client.send_attempts import Attempts
from rmq_ha.client.send_frames import Outgoing
from rmq_ha.client.sender import Sender
from rmq_ha.client.sends import PublishTopic, Send
from rmq_ha.client.settings import ProducerConfig
from rmq_ha.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.wire.bodies import MessageQueue
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import RemotingCommand

STORED = {"msgId": "M", "queueId": "0", "queueOffset": "5"}
LIMIT_S = 3.0
RESULT = SendResult(SendStatus.SEND_OK, "ID", MessageQueue("T", "a", 0), 5, "M")


def stored(code: int = 0) -> RemotingCommand:
    return RemotingCommand(code, STORED)


def topic() -> PublishTopic:
    found = PublishTopic("T", "T", 0)
    found.info = publish_info("T", ROUTE)
    return found


def send_of(known: PublishTopic, now: float = 0.0, body: bytes = b"x") -> Send:
    outgoing = Outgoing(0, 0, "", body)
    messages = (Message("T", body),)
    code = RequestCode.SEND_MESSAGE_V2
    return Send(known, code, outgoing, "ID", messages, now + LIMIT_S, LIMIT_S * 1000)


class Bench:
    """
    A `Sender`; its topics and attempts are this object.

    :ivar attempts: what each attempt waits for, in order, with the send.
    :ivar told: what attempts were told of their ends.
    """

    def __init__(self, **config: Any) -> None:
        self.clock: Any = Clock()
        self.topic = topic()
        self.attempts: list[tuple[Send, Deferred[Any]]] = []
        self.told: list[str] = []
        self.finding: Deferred[None] = Deferred()
        me: Any = self
        self.sender = Sender(self.clock, me, me, ProducerConfig(**config))

    def go(self, send: Send) -> "Deferred[Any]":
        send.tries += 1
        send.queue = MessageQueue("T", f"b{send.tries}", 0)
        send.brokers += (f"b{send.tries}",)
        later: Deferred[Any] = Deferred()
        send.current = later
        self.attempts.append((send, later))
        return later

    go_oneway = go

    def find(self, known: PublishTopic) -> "Deferred[None]":
        return self.finding

    def succeeded(self, send: Send, result: SendResult) -> None:
        self.told.append(result.send_status.name)

    def failed(self, send: Send, error: BaseException) -> None:
        self.told.append(type(error).__name__)

    def send(self, *, body: bytes = b"x", **changes: Any) -> list[Any]:
        """Admitted; its outcome, when it is there."""
        send = send_of(self.topic, self.clock.seconds(), body)
        for name, value in changes.items():
            setattr(send, name, value)
        outcome: list[Any] = []
        self.later = self.sender.admit(send)
        self.later.addBoth(lambda found: outcome.append(getattr(found, "value", found)))
        return outcome

    def answer(self, number: int, answer: Any) -> None:
        later = self.attempts[number][1]
        (later.errback if isinstance(answer, Exception) else later.callback)(answer)


def refused(code: int) -> RemotingCommand:
    return RemotingCommand(code, {}, remark="no")


def test_an_answer_ends_a_send_and_frees_its_place() -> None:
    bench = Bench(max_in_flight=1)
    first, second, third = bench.send(), bench.send(), bench.send()
    assert (len(bench.attempts), bench.sender.in_flight) == (1, 1)
    bench.answer(0, stored())
    assert first[0].queue_offset == 5
    assert (len(bench.attempts), second, bench.told) == (2, [], ["SEND_OK"])
    bench.answer(1, stored())
    bench.answer(2, stored())
    assert second[0].send_status is third[0].send_status is SendStatus.SEND_OK
    assert bench.sender.in_flight == 0


@pytest.mark.parametrize(
    "answer",
    [RemotingTimeout("slow"), RemotingConnectError("gone"), refused(ResponseCode.SYSTEM_ERROR)],
)
def test_another_broker_is_tried_as_often_as_configured(answer: Any) -> None:
    bench = Bench(retry_times_when_send_failed=2)
    outcome = bench.send()
    for number in range(3):
        assert (len(bench.attempts), outcome) == (number + 1, [])
        bench.answer(number, answer)
    assert len(bench.attempts) == 3
    assert isinstance(outcome[0], SendTimeout if "slow" in str(answer) else SendFailed)
    assert outcome[0].brokers == ("b1", "b2", "b3")
    assert (len(bench.told), bench.sender.in_flight) == (3, 0)


def test_a_refusal_that_others_would_repeat_is_not_tried_again() -> None:
    bench = Bench()
    outcome = bench.send()
    bench.answer(0, refused(ResponseCode.MESSAGE_ILLEGAL))
    assert isinstance(outcome[0], BrokerRefused)
    own = bench.send()
    bench.answer(1, RuntimeError("of a hook"))
    assert isinstance(own[0], RuntimeError)
    assert len(bench.attempts) == 2


def test_a_queue_that_the_caller_chose_is_tried_once() -> None:
    bench = Bench()
    for chosen in ({"fixed_queue": MessageQueue("T", "a", 0)}, {"selector": min}):
        outcome = bench.send(**chosen)
        bench.answer(-1, RemotingTimeout("slow"))
        assert isinstance(outcome[0], SendTimeout)
    assert len(bench.attempts) == 2


def test_after_the_deadline_nothing_is_tried() -> None:
    bench = Bench()
    outcome = bench.send()
    bench.clock.advance(LIMIT_S)
    bench.answer(0, RemotingConnectError("gone"))
    assert isinstance(outcome[0], SendTimeout)
    assert len(bench.attempts) == 1


def test_what_a_slave_lacks_is_sent_elsewhere_only_if_wanted_and_is_stored_in_any_case() -> None:
    """A second attempt that fails takes nothing back."""
    plain = Bench()
    outcome = plain.send()
    plain.answer(0, stored(ResponseCode.SLAVE_NOT_AVAILABLE))
    assert outcome[0].send_status is SendStatus.SLAVE_NOT_AVAILABLE
    bench = Bench(retry_another_broker_when_not_store_ok=True, retry_times_when_send_failed=1)
    outcome = bench.send()
    bench.answer(0, stored(ResponseCode.FLUSH_DISK_TIMEOUT))
    assert (len(bench.attempts), outcome) == (2, [])
    bench.answer(1, RemotingTimeout("slow"))
    assert outcome[0].send_status is SendStatus.FLUSH_DISK_TIMEOUT
    assert bench.sender.in_flight == 0
    good = bench.send()
    bench.answer(2, stored())
    assert (good[0].send_status, len(bench.attempts)) == (SendStatus.SEND_OK, 3)


def test_a_send_waits_for_its_route_but_not_for_ever() -> None:
    bench = Bench()
    bench.clock.advance(50)
    info, bench.topic.info = bench.topic.info, None
    outcome = bench.send()
    bench.topic.info = info
    bench.finding.callback(None)
    assert len(bench.attempts) == 1
    bench.answer(0, stored())
    assert outcome[0].queue_offset == 5
    for answer, kind in ((NoRoute("T", "nobody"), NoRoute), (None, SendTimeout)):
        bench.topic.info, bench.finding = None, Deferred()
        outcome = bench.send()
        if answer is None:
            bench.clock.advance(LIMIT_S - 0.1)
            assert outcome == []
            bench.clock.advance(0.2)
        else:
            bench.finding.errback(answer)
        assert isinstance(outcome[0], kind)
        assert bench.sender.in_flight == 0
    assert len(bench.attempts) == 1


def test_an_attempt_after_a_route_that_fails_frees_its_place_once() -> None:
    bench = Bench(retry_times_when_send_failed=0)
    info, bench.topic.info = bench.topic.info, None
    outcome = bench.send()
    bench.topic.info = info
    bench.finding.callback(None)
    bench.answer(0, RemotingConnectError("gone"))
    assert isinstance(outcome[0], SendFailed)
    assert bench.sender.in_flight == 0


def test_who_finds_no_place_in_time_is_told_and_the_others_go_on() -> None:
    bench = Bench(max_in_flight=1, max_waiting=2)
    bench.send()
    bench.clock.advance(1)
    early = bench.send()
    bench.clock.advance(1)
    late = bench.send()
    full = bench.send()
    assert isinstance(full[0], TooManyInFlight)
    bench.clock.advance(1.99)
    assert (early, late) == ([], [])
    bench.clock.advance(0.02)
    assert (type(early[0]), late) == (SendTimeout, [])
    bench.clock.advance(1)
    assert isinstance(late[0], SendTimeout)
    assert len(bench.attempts) == 1
    assert bench.clock.getDelayedCalls() == []


def test_places_are_of_bytes_too() -> None:
    bench = Bench(max_in_flight_bytes=10)
    bench.send(body=b"x" * 6)
    bench.send(body=b"x" * 5)
    assert len(bench.attempts) == 1
    bench.answer(0, stored())
    assert len(bench.attempts) == 2


def test_who_cancels_takes_nothing_from_others() -> None:
    bench = Bench(max_in_flight=1)
    first = bench.send()
    running = bench.later
    second = bench.send()
    bench.later.cancel()
    assert isinstance(second[0], CancelledError)
    third = bench.send()
    running.cancel()
    assert isinstance(first[0], CancelledError)
    assert bench.told == ["CancelledError"]
    assert (len(bench.attempts), third) == (2, [])
    waiting = bench.later
    waiting.cancel()
    assert isinstance(third[0], CancelledError)
    assert (len(bench.attempts), bench.sender.in_flight) == (2, 0)


def test_many_that_fail_at_once_let_the_next_ones_in_without_recursion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(max_in_flight=1, max_waiting=5000)
    outcomes = [bench.send() for _ in range(3000)]

    def full(send: Send) -> Any:
        later = Deferred[Any]()
        later.errback(IllegalMessage("no"))
        return later

    bench.go = full  # type: ignore[method-assign]
    bench.answer(0, stored())
    assert all(len(outcome) == 1 for outcome in outcomes)
    assert isinstance(outcomes[-1][0], IllegalMessage)


def test_a_one_way_send_is_over_when_it_is_handed_over() -> None:
    bench = Bench(max_in_flight=1)
    outcome = bench.send(oneway=True)
    following = bench.send(oneway=True)
    bench.answer(0, succeed(None).result)
    assert (outcome, len(bench.attempts)) == ([None], 2)
    bench.answer(1, MQClientError("no master"))
    assert isinstance(following[0], MQClientError)
    slow = bench.send(oneway=True)
    bench.later.cancel()
    assert isinstance(slow[0], CancelledError)
    assert bench.sender.in_flight == 0


def test_a_drain_waits_for_what_runs_and_what_waits() -> None:
    bench = Bench(max_in_flight=1, stop_timeout=10_000)
    first, second = bench.send(), bench.send()
    drained: list[None] = []
    Deferred.fromCoroutine(bench.sender.drain()).addCallback(drained.append)
    bench.answer(0, stored())
    assert (len(first), drained) == (1, [])
    bench.answer(1, stored())
    assert (len(second), drained) == (1, [None])
    assert bench.clock.getDelayedCalls() == []
    nothing: list[None] = []
    Deferred.fromCoroutine(bench.sender.drain()).addCallback(nothing.append)
    assert nothing == [None]


def test_a_drain_that_takes_too_long_fails_all_and_tries_none_again() -> None:
    bench = Bench(max_in_flight=1, stop_timeout=1000)
    outcomes = [bench.send() for _ in range(3)]
    drained: list[None] = []
    Deferred.fromCoroutine(bench.sender.drain()).addCallback(drained.append)
    bench.clock.advance(0.99)
    assert drained == []
    bench.clock.advance(0.02)
    assert drained == [None]
    assert [type(outcome[0]) for outcome in outcomes] == [SendFailed] * 3
    assert len(bench.attempts) == 1
    assert bench.clock.getDelayedCalls() == []


def test_a_drain_gives_up_who_waits_for_a_route_or_is_one_way() -> None:
    bench = Bench(stop_timeout=1000)
    outcomes = [bench.send(oneway=True)]
    bench.topic.info = None
    outcomes.append(bench.send())
    Deferred.fromCoroutine(bench.sender.drain())
    bench.clock.advance(1.01)
    assert [type(outcome[0]) for outcome in outcomes] == [SendFailed, SendFailed]
    assert bench.sender.in_flight == 0


# Attempts


class Hook:
    """Writes down what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def before_send(self, context: Any) -> None:
        self.seen.append((context.queue.broker_name, context.producer_group))

    def after_send(self, context: Any) -> None:
        self.seen.append((context.result, type(context.error).__name__, context.elapsed_ms))
        raise RuntimeError("on purpose")


def attempts(client: Scripted, *hooks: Any, **config: Any) -> Attempts:
    client.know()
    return Attempts(client.instance, ProducerConfig(**config), "g", hooks)


def test_an_attempt_goes_to_the_master_and_the_next_one_to_another_broker() -> None:
    client = Scripted()
    client.answers[RequestCode.SEND_MESSAGE_V2] = stored()
    tried, send = attempts(client), send_of(topic())
    assert client.wait(tried.go(send)).code == 0
    client.wait(tried.go(send))
    assert {address for address, _ in client.asked} == {MASTER, OTHER}
    assert (send.tries, sorted(send.brokers)) == (2, ["a", "b"])
    assert client.timeouts == [3000, 3000]
    client.clock.run_for(1)
    client.wait(tried.go(send))
    assert (client.timeouts[-1], send.started) == (2000, 1.0)


def test_a_broker_without_a_master_takes_nothing() -> None:
    client = Scripted()
    tried, send = attempts(client), send_of(topic())
    client.instance.routes.brokers.update({"a": {1: SLAVE}, "b": {}})
    for go in (tried.go, tried.go_oneway):
        with pytest.raises(MQClientError, match="no master"):
            client.wait(go(send))
    send.topic.info = None
    with pytest.raises(NoRoute):
        client.wait(tried.go(send))
    assert client.asked == []


def test_a_silent_connection_is_closed_unless_it_answered_meanwhile() -> None:
    """It may lead nowhere; but one slow send must not break the others."""
    client = Scripted()
    closed: list[str] = []
    client.instance.close = closed.append  # type: ignore[method-assign, assignment]
    tried, slow, quick = attempts(client), send_of(topic()), send_of(topic())
    client.clock.run_for(5)
    for send in (slow, quick):
        send.address, send.brokers = MASTER, ("a",)
        send.started = 5.0
    tried.failed(slow, RemotingConnectError("gone"))
    tried.failed(slow, BrokerRefused(1, "no", MASTER))
    assert closed == []
    tried.failed(slow, RemotingTimeout("slow"))
    assert closed == [MASTER]
    client.clock.run_for(1)
    tried.succeeded(quick, RESULT)
    tried.failed(slow, RemotingTimeout("slow"))
    assert closed == [MASTER]
    slow.started = 7.0
    tried.failed(slow, RemotingTimeout("slow"))
    assert closed == [MASTER, MASTER]


def test_latencies_are_noted_only_where_they_count() -> None:
    client = Scripted()
    for is_on in (False, True):
        tried = attempts(client, send_latency_fault_enable=is_on)
        send = send_of(topic())
        send.brokers = ("b", "a")
        now_ms = client.clock.seconds() * 1000
        tried.failed(send, MQClientError("no"))
        assert tried.faults.is_available("a", now_ms) is not is_on
        assert tried.faults.is_available("b", now_ms)
        send.brokers, send.started = ("b",), client.clock.seconds() - 0.6
        tried.succeeded(send, RESULT)
        assert tried.faults.is_available("b", now_ms + 29_000) is not is_on
        assert tried.faults.is_available("b", now_ms + 30_001)


def test_hooks_see_each_attempt_once_and_break_nothing() -> None:
    client, hook = Scripted(), Hook()
    client.answers[RequestCode.SEND_MESSAGE_V2] = stored()
    tried, send = attempts(client, hook), send_of(topic())
    client.wait(tried.go(send))
    client.clock.run_for(0.25)
    error = MQClientError("no")
    tried.failed(send, error)
    tried.failed(send, error)
    (before, after) = hook.seen
    assert before[1] == "g"
    assert after == (None, "MQClientError", 250.0)
    client.wait(tried.go(send))
    tried.succeeded(send, RESULT)
    assert hook.seen[3] == (RESULT, "NoneType", 0.0)


def test_a_one_way_attempt_waits_for_a_broker_that_does_not_read() -> None:
    class Full:
        def __init__(self) -> None:
            self.is_full = True
            self.waiting: Deferred[None] = Deferred()
            self.written: list[bytes] = []

        def writable(self) -> Any:
            return self.waiting

        def write(self, frame: bytes) -> None:
            self.written.append(frame)

    client, channel = Scripted(), Full()
    tried, send = attempts(client), send_of(topic())
    client.instance.open_channel = lambda address: channel  # type: ignore[method-assign, assignment, return-value]
    handed: list[Any] = []
    tried.go_oneway(send).addCallback(handed.append)
    assert (handed, channel.written) == ([], [])
    channel.is_full = False
    channel.waiting.callback(None)
    assert (handed, len(channel.written), client.asked) == ([None], 1, [])
    client.instance.open_channel = lambda address: None  # type: ignore[method-assign, assignment]
    client.wait(tried.go_oneway(send))
    assert len(client.asked) == 1
