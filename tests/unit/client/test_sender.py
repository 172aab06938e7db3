"""Sends between places in flight, attempts that are played by the test, and a clock."""

from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    IllegalMessage,
    MQClientError,
    NoMaster,
    NoNameServer,
    NoRoute,
    SendFailed,
    SendTimeout,
    TooManyInFlight,
)
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus
from rmq_ha.client.rules.routes import publish_info
from rmq_ha.client.rules.send_frames import Outgoing
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.send import PublishTopic, Send, check_message, outgoing_of, result_of
from rmq_ha.client.send.send_attempts import Attempts
from rmq_ha.client.send.sender import Sender
from tests.unit.client.scripted import MASTER, OTHER, ROUTE, SLAVE, Scripted

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
    return Send(known, code, outgoing, "ID", messages, now, now + LIMIT_S, LIMIT_S * 1000)


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
        self.has_met_brokers = True
        me: Any = self
        config.setdefault("delivery_timeout_ms", 0)
        self.sender = Sender(self.clock, Random(1), me, me, ProducerConfig(**config))

    def go(self, send: Send, now: float) -> None:
        self.go_oneway(send).addCallbacks(
            send.callback, lambda failure: send.errback(failure.value)
        )

    def go_oneway(self, send: Send) -> "Deferred[Any]":
        send.tries += 1
        send.queue = MessageQueue("T", f"b{send.tries}", 0)
        send.brokers += (f"b{send.tries}",)
        later: Deferred[Any] = Deferred()
        send.current = later
        self.attempts.append((send, later))
        return later

    def has_left(self, send: Send) -> bool:
        return send.tries > 0

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
    better = bench.send()
    bench.answer(2, stored(ResponseCode.FLUSH_DISK_TIMEOUT))
    bench.answer(3, stored())
    assert (better[0].send_status, len(bench.attempts)) == (SendStatus.SEND_OK, 4)


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
    """A send that has left keeps its place until its broker answers; nobody hears the answer."""
    bench = Bench(max_in_flight=1)
    first = bench.send()
    running = bench.later
    second = bench.send()
    bench.later.cancel()
    assert isinstance(second[0], CancelledError)
    third = bench.send()
    running.cancel()
    assert isinstance(first[0], CancelledError)
    bench.clock.advance(0)
    assert (len(bench.attempts), bench.told, bench.sender.in_flight) == (1, [], 1)
    bench.answer(0, stored())
    bench.clock.advance(0)
    assert (len(first), bench.told, len(bench.attempts), third) == (1, ["SEND_OK"], 2, [])
    bench.later.cancel()
    bench.answer(1, RemotingTimeout("slow"))
    assert [type(outcome) for outcome in third] == [CancelledError]
    assert (len(bench.attempts), bench.sender.in_flight) == (2, 0)


def test_a_place_that_a_cancelled_send_leaves_is_given_away_a_turn_later() -> None:
    """Its caller is about to cancel the next one as well."""
    bench = Bench(max_in_flight=1)
    info, bench.topic.info = bench.topic.info, None
    sends = []
    for _ in range(3):
        bench.send()
        sends.append(bench.later)
    bench.topic.info = info
    for later in sends[:2]:
        later.cancel()
    assert bench.attempts == []
    bench.clock.advance(0)
    assert [send.later for send, _ in bench.attempts] == sends[2:]


def test_a_stop_waits_for_no_send_that_was_cancelled() -> None:
    bench = Bench(max_in_flight=1)
    bench.send()
    sends = [bench.later]
    bench.send()
    sends.append(bench.later)
    drained: list[None] = []
    Deferred.fromCoroutine(bench.sender.drain()).addCallback(drained.append)
    for later in sends:
        assert drained == []
        later.cancel()
    assert (drained, bench.clock.getDelayedCalls()) == ([None], [])


def test_many_that_fail_at_once_let_the_next_ones_in_without_recursion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(max_in_flight=1, max_waiting=5000)
    outcomes = [bench.send() for _ in range(3000)]

    def full(send: Send, now: float) -> None:
        send.errback(IllegalMessage("no"))

    bench.go = full  # type: ignore[method-assign]
    bench.answer(0, stored())
    assert all(len(outcome) == 1 for outcome in outcomes)
    assert {type(outcome[0]) for outcome in outcomes[1:]} == {IllegalMessage}


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
    bench = Bench(max_in_flight=1, stop_timeout_ms=10_000)
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
    bench = Bench(max_in_flight=1, stop_timeout_ms=1000)
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
    bench = Bench(stop_timeout_ms=1000)
    outcomes = [bench.send(oneway=True)]
    bench.topic.info = None
    outcomes.append(bench.send())
    Deferred.fromCoroutine(bench.sender.drain())
    bench.clock.advance(1.01)
    assert [type(outcome[0]) for outcome in outcomes] == [SendFailed, SendFailed]
    assert bench.sender.in_flight == 0


def test_time_in_our_own_queue_is_not_the_broker_s() -> None:
    """A thousand sends at once on a busy machine failed though brokers answered in a moment."""
    bench = Bench(max_in_flight=1)
    bench.send(deadline=inf)
    waiting = bench.send(deadline=inf)
    bench.clock.advance(10 * LIMIT_S)
    bench.answer(0, stored())
    (send, _) = bench.attempts[1]
    assert (waiting, send.until) == ([], 11 * LIMIT_S)
    bench.clock.advance(LIMIT_S - 0.1)
    bench.answer(1, RemotingConnectError("gone"))
    assert (len(bench.attempts), send.until) == (3, 11 * LIMIT_S)
    bench.clock.advance(0.2)
    bench.answer(2, RemotingConnectError("gone"))
    assert isinstance(waiting[0], SendTimeout)
    assert "2 attempts within 33100 ms" in str(waiting[0])
    assert bench.clock.getDelayedCalls() == []


def test_time_that_a_route_takes_is_not_the_broker_s() -> None:
    bench = Bench()
    info, bench.topic.info = bench.topic.info, None
    bench.send(deadline=inf)
    bench.clock.advance(LIMIT_S - 1)
    bench.topic.info = info
    bench.finding.callback(None)
    assert bench.attempts[0][0].until == 2 * LIMIT_S - 1


def test_the_caller_s_own_limit_is_for_everything() -> None:
    bench = Bench(max_in_flight=1)
    bench.send(deadline=inf)
    waiting = bench.send(deadline=2.0)
    endless = bench.send(deadline=inf)
    bench.clock.advance(1.5)
    assert waiting == []
    bench.clock.advance(0.6)
    assert isinstance(waiting[0], SendTimeout)
    assert "no place in flight within 2100 ms" in str(waiting[0])
    assert (endless, bench.clock.getDelayedCalls()) == ([], [])


def test_who_waits_for_a_place_is_told_of_one_each() -> None:
    bench = Bench(max_in_flight=2)

    def ready() -> list[None]:
        told: list[None] = []
        later.append(bench.sender.ready())
        later[-1].addCallbacks(told.append, lambda _: None)
        return told

    later: list[Deferred[None]] = []
    assert ready() == [None]
    bench.send()
    bench.send()
    first, cancelled, third, fourth = ready(), ready(), ready(), ready()
    later[2].cancel()
    assert (first, third) == ([], [])
    bench.answer(0, stored())
    assert (first, cancelled, third) == ([None], [], [])
    assert ready() == []
    bench.send()
    bench.answer(1, stored())
    assert (third, fourth) == ([None], [])
    bench.answer(2, stored())
    assert fourth == [None]


def test_a_producer_that_stops_keeps_nobody_waiting_for_a_place() -> None:
    bench = Bench(max_in_flight=1)
    bench.send()
    told: list[None] = []
    bench.sender.ready().addCallback(told.append)
    Deferred.fromCoroutine(bench.sender.drain())
    assert told == [None]


# Rest: a broker that restarts costs latency, no exception


def patient(**config: Any) -> Bench:
    return Bench(**({"delivery_timeout_ms": 60_000, "retry_times_when_send_failed": 0} | config))


GONE = RemotingConnectError("gone")


def test_a_send_goes_on_until_a_broker_is_back_and_those_after_it_wait_for_it() -> None:
    """One attempt every now and then, not one for each of thousands; then all, in their order."""
    bench = patient(max_in_flight=3)
    outcomes = [bench.send(deadline=60.0)]
    bench.answer(0, GONE)
    outcomes += [bench.send(deadline=60.0) for _ in range(50)]
    assert len(bench.attempts) == 1
    for _ in range(12):
        attempted = len(bench.attempts)
        bench.clock.advance(1.001)
        assert len(bench.attempts) == attempted + 1
        bench.answer(-1, GONE)
    assert bench.sender.in_flight == 0
    bench.clock.advance(1.001)
    bench.answer(-1, stored())
    assert bench.sender.in_flight == 3
    number = len(bench.attempts) - 3
    while number < len(bench.attempts):
        bench.answer(number, stored())
        number += 1
    assert {outcome[0].send_status for outcome in outcomes} == {SendStatus.SEND_OK}
    order = [send.since for send, _ in bench.attempts[14:]]
    assert order == sorted(order)
    assert len(bench.attempts) == 14 + 50


def test_sends_that_rest_keep_no_place_from_others() -> None:
    """A topic whose broker is away must not stop one whose broker is there."""
    bench = patient(max_in_flight=1)
    bench.send(deadline=60.0)
    bench.answer(0, GONE)
    gone, bench.topic = bench.topic, topic()
    other = bench.send(deadline=60.0)
    bench.answer(1, stored())
    assert other[0].send_status is SendStatus.SEND_OK
    bench.topic = gone
    assert bench.send(deadline=60.0) == []
    assert len(bench.attempts) == 2


def test_a_send_whose_time_is_over_while_it_rests_says_what_it_met() -> None:
    bench = patient()
    tried = bench.send(deadline=1.0)
    bench.answer(0, GONE)
    late, untried = bench.send(deadline=1.0), bench.send(deadline=1.0)
    bench.clock.advance(0.11)
    bench.answer(-1, GONE)
    bench.clock.advance(0.9)
    assert (len(bench.attempts), late) == (3, [])
    bench.answer(-1, RemotingTimeout("slow"))
    assert isinstance(late[0], SendTimeout)
    assert isinstance(tried[0], SendTimeout)
    assert "gone" in str(tried[0])
    assert "2 attempts within 10" in str(tried[0])
    assert isinstance(untried[0], SendTimeout)
    assert tried[0].retriable
    bench.clock.advance(2)
    assert bench.clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("config", "changes", "answer"),
    [
        ({"delivery_timeout_ms": 0}, {}, GONE),
        ({}, {}, refused(ResponseCode.MESSAGE_ILLEGAL)),
        ({}, {}, refused(ResponseCode.SYSTEM_ERROR)),
        ({}, {}, refused(ResponseCode.TOPIC_NOT_EXIST)),
        ({}, {}, refused(ResponseCode.NO_PERMISSION)),
        ({"retry_chosen_queue": False}, {"fixed_queue": MessageQueue("T", "a", 0)}, GONE),
        ({"retry_chosen_queue": False}, {"selector": min}, GONE),
        ({}, {"oneway": True}, GONE),
    ],
)
def test_what_will_not_change_is_said_at_once(config: Any, changes: Any, answer: Any) -> None:
    """And what RocketMQ tries once: order matters more to whom has chosen a queue."""
    bench = patient(**config)
    outcome = bench.send(deadline=60.0, **changes)
    bench.answer(0, answer)
    assert isinstance(outcome[0], MQClientError)
    assert bench.clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    "answer",
    [
        refused(ResponseCode.SYSTEM_BUSY),
        refused(ResponseCode.SERVICE_NOT_AVAILABLE),
        RemotingCommand(1, {}, remark="[PC_SYNCHRONIZED]broker busy, start flow control"),
        RemotingTimeout("slow"),
        NoMaster("away"),
    ],
)
def test_what_may_pass_is_waited_for(answer: Any) -> None:
    bench = patient()
    outcome = bench.send(deadline=60.0)
    bench.answer(0, answer)
    bench.clock.advance(0.11)
    bench.answer(1, stored())
    assert outcome[0].send_status is SendStatus.SEND_OK


def test_an_account_without_rights_is_told_after_one_attempt() -> None:
    bench = Bench(retry_times_when_send_failed=2)
    outcome = bench.send()
    bench.answer(0, RemotingCommand(1, {}, remark="AclException: accessKey=x needs PUB"))
    assert isinstance(outcome[0], BrokerRefused)
    assert (len(bench.attempts), outcome[0].retriable) == (1, False)


def test_a_chosen_queue_is_waited_for_and_by_nobody_else() -> None:
    bench = patient()
    first, second = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
    resting = bench.send(deadline=60.0, fixed_queue=first)
    bench.answer(0, GONE)
    other = bench.send(deadline=60.0, fixed_queue=second)
    free = bench.send(deadline=60.0)
    for number in (1, 2):
        bench.answer(number, stored())
    assert (len(other), len(free), resting) == (1, 1, [])
    assert bench.send(deadline=60.0, fixed_queue=first) == []
    assert len(bench.attempts) == 3
    bench.clock.advance(0.11)
    bench.answer(3, stored())
    assert (len(resting), len(bench.attempts)) == (1, 5)


def test_a_refusal_of_one_message_shows_that_the_broker_is_back() -> None:
    bench = patient()
    outcomes = [bench.send(deadline=60.0) for _ in range(2)]
    for number in range(2):
        bench.answer(number, GONE)
    bench.clock.advance(0.11)
    bench.answer(2, refused(ResponseCode.MESSAGE_ILLEGAL))
    assert (outcomes[0][0].code, outcomes[0][0].retriable) == (13, False)
    assert len(bench.attempts) == 4


@pytest.mark.parametrize("is_launched", [True, False])
def test_who_tries_for_the_others_and_is_cancelled_leaves_it_to_the_next(is_launched: bool) -> None:
    """In flight, or while it waits for a place: else nobody would try until all time is over."""
    bench = patient(max_in_flight=1 + is_launched)  # the cancelled one keeps its place
    bench.send(deadline=60.0)
    trying = bench.later
    bench.answer(0, GONE)
    waiting = bench.send(deadline=60.0)
    if not is_launched:
        gone, bench.topic = bench.topic, topic()
        bench.send(deadline=60.0)
        bench.topic = gone
    bench.clock.advance(0.11)
    trying.cancel()
    if not is_launched:
        bench.answer(1, stored())
    bench.clock.advance(0.3)
    assert len(bench.attempts) == 3
    bench.answer(2, stored())
    assert waiting[0].send_status is SendStatus.SEND_OK


def test_what_rests_is_bounded_and_may_be_cancelled() -> None:
    bench = patient(max_waiting=2)
    bench.send(deadline=60.0)
    bench.answer(0, GONE)
    second = bench.send(deadline=60.0)
    last = bench.later
    third = bench.send(deadline=60.0)
    assert isinstance(third[0], TooManyInFlight)
    assert "2 for a broker to come back" in str(third[0])
    last.cancel()
    assert isinstance(second[0], CancelledError)
    assert bench.send(deadline=60.0) == []
    assert bench.sender.in_flight == 0


def test_more_than_may_wait_go_on_together_when_a_broker_is_back() -> None:
    """They were let in once: they are not refused now."""
    bench = patient(max_waiting=1, max_in_flight=3)
    outcomes = [bench.send(deadline=60.0) for _ in range(3)]
    for number in range(3):
        bench.answer(number, GONE)
    gone, bench.topic = bench.topic, topic()
    others = [bench.send(deadline=60.0) for _ in range(2)]
    bench.topic = gone
    bench.clock.advance(0.11)
    for number in (5, 3, 4, 6, 7):
        bench.answer(number, stored())
    assert all(outcome[0].queue_offset == 5 for outcome in outcomes + others)


def test_a_stop_gives_a_resting_send_its_time_and_then_fails_it() -> None:
    bench = patient(stop_timeout_ms=1000)
    outcome = bench.send(deadline=60.0)
    bench.answer(0, GONE)
    drained: list[None] = []
    Deferred.fromCoroutine(bench.sender.drain()).addCallback(drained.append)
    bench.clock.advance(0.5)
    bench.answer(-1, GONE)
    assert drained == []
    bench.clock.advance(0.51)
    assert (drained, type(outcome[0])) == ([None], SendFailed)
    assert bench.clock.getDelayedCalls() == []


def test_a_send_that_is_stored_already_waits_for_nothing_better() -> None:
    bench = patient(retry_another_broker_when_not_store_ok=True, retry_times_when_send_failed=1)
    outcome = bench.send(deadline=60.0)
    bench.answer(0, stored(ResponseCode.FLUSH_DISK_TIMEOUT))
    bench.answer(1, GONE)
    assert outcome[0].send_status is SendStatus.FLUSH_DISK_TIMEOUT


def test_a_broker_that_is_only_slow_is_asked_seldom() -> None:
    """It may store each copy: each round waits twice as long for its answer."""
    bench = patient()
    bench.send(deadline=60.0)
    patience = []
    for _ in range(4):
        send, _ = bench.attempts[-1]
        patience.append(send.until - bench.clock.seconds())
        bench.clock.advance(patience[-1])
        bench.answer(-1, RemotingTimeout("slow"))
        bench.clock.advance(1.001)
    assert patience[:3] == pytest.approx([3.0, 6.0, 12.0])


@pytest.mark.parametrize(
    ("error", "has_met", "goes_on"),
    [
        (NoRoute("T", "nowhere"), True, False),
        (NoRoute("T", "away", retriable=True), True, True),
        (NoNameServer("nobody"), True, True),
        (NoNameServer("nobody"), False, False),
    ],
)
def test_a_route_that_is_not_there_is_waited_for_if_it_may_come(
    error: MQClientError, has_met: bool, goes_on: bool
) -> None:
    """A topic that nobody makes, or a wrong address of the name servers, is said at once."""
    bench = patient()
    bench.has_met_brokers = has_met
    info, bench.topic.info = bench.topic.info, None
    outcome = bench.send(deadline=60.0)
    finding, bench.finding = bench.finding, Deferred()
    finding.errback(error)
    if not goes_on:
        assert outcome == [error]
        return
    bench.clock.advance(0.11)
    bench.topic.info = info
    bench.finding.callback(None)
    bench.answer(0, stored())
    assert outcome[0].send_status is SendStatus.SEND_OK
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


class Told:
    """A `Decider` that hands on how an attempt ends."""

    def __init__(self) -> None:
        self.later: Deferred[Any] = Deferred()

    def answered(self, send: Send, response: RemotingCommand) -> None:
        self.later.callback(response)

    def failed(self, send: Send, error: BaseException) -> None:
        self.later.errback(error)


def gone(client: Scripted, tried: Attempts, send: Send) -> "Deferred[Any]":
    """What comes of one attempt."""
    told: Any = Told()
    send.decider = told
    tried.go(send, client.clock.seconds())
    return told.later


def attempts(client: Scripted, *hooks: Any, **config: Any) -> Attempts:
    client.know()
    return Attempts(client.instance, ProducerConfig(**config), "g", hooks)


def test_an_attempt_goes_to_the_master_and_the_next_one_to_another_broker() -> None:
    client = Scripted()
    client.answers[RequestCode.SEND_MESSAGE_V2] = stored()
    tried, send = attempts(client), send_of(topic())
    assert client.wait(gone(client, tried, send)).code == 0
    client.wait(gone(client, tried, send))
    assert {address for address, _ in client.asked} == {MASTER, OTHER}
    assert (send.tries, sorted(send.brokers)) == (2, ["a", "b"])
    assert client.timeouts == [3000, 3000]
    client.clock.run_for(1)
    client.wait(gone(client, tried, send))
    assert (client.timeouts[-1], send.started) == (2000, 1.0)


def test_a_broker_without_a_master_takes_nothing() -> None:
    client = Scripted()
    tried, send = attempts(client), send_of(topic())
    client.instance.routes.brokers.update({"a": {1: SLAVE}, "b": {}})
    for later in (gone(client, tried, send), tried.go_oneway(send)):  # whoever waits is told
        with pytest.raises(MQClientError, match="no master"):
            client.wait(later)
    send.topic.info = None
    with pytest.raises(NoRoute):
        client.wait(gone(client, tried, send))
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
    slow.started = 6.0
    tried.failed(slow, RemotingTimeout("slow"))
    assert closed == [MASTER]
    slow.started = 7.0
    tried.failed(slow, RemotingTimeout("slow"))
    assert closed == [MASTER, MASTER]


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        ({}, (5, "M", 0, None, "DefaultRegion", True)),
        ({"queueId": "3"}, (5, "M", 3, None, "DefaultRegion", True)),
        (
            {"transactionId": "X", "MSG_REGION": "R", "TRACE_ON": "false"},
            (5, "M", 0, "X", "R", False),
        ),
    ],
)
def test_an_answer_says_where_a_message_is(ext: dict[str, str], expected: tuple[Any, ...]) -> None:
    send = send_of(topic())
    send.queue = MessageQueue("T", "a", 0)
    offset, place, number, transaction, region, trace_on = expected
    queue = MessageQueue("T", "a", number)
    for code, status in ((0, SendStatus.SEND_OK), (11, SendStatus.SLAVE_NOT_AVAILABLE)):
        assert result_of(send, RemotingCommand(code, STORED | ext)) == SendResult(
            status, "ID", queue, offset, place, transaction, region, trace_on
        )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (RemotingCommand(1, STORED, remark="no"), "no"),
        (RemotingCommand(0, None, remark="odd"), "odd"),
        (RemotingCommand(0, {"queueId": "0"}), "lacks"),
        (RemotingCommand(0, {"queueId": "x", "queueOffset": "5"}), "lacks"),
    ],
)
def test_an_answer_that_says_no_or_nothing_is_no_stored_message(
    answer: RemotingCommand, text: str
) -> None:
    """Whoever takes it for one deletes what he wanted to send."""
    send = send_of(topic())
    send.queue, send.address = MessageQueue("T", "a", 0), MASTER
    with pytest.raises(BrokerRefused, match=text) as refusal:
        result_of(send, answer)
    assert (refusal.value.code, MASTER in str(refusal.value)) == (answer.code, True)


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
    other = Hook()
    tried, send = attempts(client, hook, other), send_of(topic())
    client.wait(gone(client, tried, send))
    client.clock.run_for(0.25)
    error = MQClientError("no")
    tried.failed(send, error)
    tried.failed(send, error)
    (before, after) = hook.seen
    assert before[1] == "g"
    assert after == (None, "MQClientError", 250.0)
    client.wait(gone(client, tried, send))
    tried.succeeded(send, RESULT)
    assert hook.seen[3] == (RESULT, "NoneType", 0.0)
    client.wait(tried.go_oneway(send))
    assert len(hook.seen) == 5
    assert other.seen == hook.seen


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
    client.instance.open_channel = lambda address: channel  # type: ignore[assignment, return-value]
    handed: list[Any] = []
    tried.go_oneway(send).addCallback(handed.append)
    assert (handed, channel.written) == ([], [])
    channel.is_full = False
    channel.waiting.callback(None)
    assert (handed, len(channel.written), client.asked) == ([None], 1, [])
    (frame,) = FrameReader().receive_data(channel.written[0])
    command = decode_frame(*frame)
    assert (command.is_oneway, command.opaque) == (True, 0)  # nobody looks for an answer to it
    client.instance.open_channel = lambda address: None  # type: ignore[method-assign, assignment]
    client.wait(tried.go_oneway(send))
    assert len(client.asked) == 1
    assert (send.tries, sorted(send.brokers)) == (2, ["a", "b"])  # as an error would say


def test_a_one_way_attempt_waits_for_no_longer_than_its_send_may() -> None:
    client = Scripted()
    client.clock.run_for(100)
    channel: Any = SimpleNamespace(is_full=True, writable=Deferred)
    tried, send = attempts(client), send_of(topic(), client.clock.seconds())
    client.instance.open_channel = lambda address: channel  # type: ignore[method-assign]
    outcome: list[Any] = []
    tried.go_oneway(send).addErrback(outcome.append)
    client.clock.run_for(LIMIT_S - 0.1)
    assert outcome == []
    client.clock.run_for(0.2)
    assert len(outcome) == 1


def test_what_is_sent_to_a_retry_topic_says_how_often_it_was_consumed() -> None:
    """Else it would never come to the dead-letter queue."""
    message, config = Message("%RETRY%g", b"x"), ProducerConfig()
    _, outgoing = outgoing_of(message, config)
    assert (outgoing.reconsume_times, outgoing.max_reconsume_times) == (0, None)
    message.properties.update({"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16"})
    _, outgoing = outgoing_of(message, config)
    assert (outgoing.reconsume_times, outgoing.max_reconsume_times) == (3, 16)
    message.properties["RECONSUME_TIME"] = "often"
    with pytest.raises(IllegalMessage, match="numbers"):
        outgoing_of(message, config)


def test_each_round_has_all_its_attempts() -> None:
    send = send_of(topic())
    send.tries = 3
    send.begin(1.0)
    assert (send.tried, send.until) == (3, LIMIT_S)


def test_a_body_may_be_as_long_as_it_may() -> None:
    config = ProducerConfig(max_message_size=100)
    check_message(Message("T", b"x" * 100), config)
    with pytest.raises(IllegalMessage, match="101 bytes, at most 100"):
        check_message(Message("T", b"x" * 101), config)


@pytest.mark.parametrize(("size", "is_compressed"), [(99, False), (100, True)])
def test_a_body_of_so_many_bytes_is_compressed(size: int, is_compressed: bool) -> None:
    config = ProducerConfig(compress_msg_body_over_howmuch=100)
    _, outgoing = outgoing_of(Message("T", b"x" * size), config)
    assert (len(outgoing.body) < size, outgoing.sys_flag != 0) == (is_compressed, is_compressed)
