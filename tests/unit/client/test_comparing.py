"""Who compares ids: what brokers said of it, and the sends of a script that depend on it."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.model.process import Process
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import WINDOW
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client.lookup.asking import Ask, Asking, drive_at_once
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    DuplicatesPossible,
    MQClientError,
    NoNameServer,
    NoRoute,
    SendFailed,
    SendTimeout,
)
from rmq_ha.client.rules.messages import Message, SendStatus
from rmq_ha.client.rules.send_frames import Outgoing
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.send import comparing, send_asking
from rmq_ha.client.send.comparing import ComparingBrokers
from rmq_ha.client.send.send import PublishTopic, Send
from rmq_ha.client.send.send_asking import SendAsking, ThreadTimes

LASTS_S = 30.0
TWICE_MS = 60_000
ROUTE = TopicRoute(
    [QueueRoute("a", 2, 2, 6), QueueRoute("b", 2, 2, 6)],
    [BrokerRoute("C", "a", {0: "a:1"}), BrokerRoute("C", "b", {0: "b:1"})],
)


def send_to(address: str) -> Send:
    known = PublishTopic("T", "T", 0)
    messages = (Message("T", b"x"),)
    outgoing = Outgoing(0, 0, "", b"x")
    send = Send(known, RequestCode.SEND_MESSAGE_V2, outgoing, "ID", messages, 5.0, 35.0, 3000.0)
    send.address = address
    send.queue = MessageQueue("T", "a", 0)
    return send


def window(text: object) -> RemotingCommand:
    return RemotingCommand(0, {WINDOW: str(text)})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (window(TWICE_MS), ""),
        (window(TWICE_MS - 1), "knows for 59999 ms .* may go on for 30000 ms"),
        (window(1), "knows for 1 ms"),
        (window(0), "does not compare ids"),
        (window("-1"), "does not compare ids"),
        (RemotingCommand(0, {"other": "1"}), "does not compare ids"),
        (RemotingCommand(0), "does not compare ids"),
    ],
)
def test_a_send_goes_only_to_who_knows_for_twice_as_long_what_is_stored(
    answer: RemotingCommand, words: str
) -> None:
    brokers, send = ComparingBrokers("me"), send_to("a:1")
    brokers.heard(answer, "a:1")
    if not words:
        brokers.check(send, "a:1")
        return
    for is_out, what in ((False, "was not sent"), (True, "may be stored, and is not repeated")):
        send.is_out = is_out
        with pytest.raises(DuplicatesPossible, match=f"{what}.*{words}"):
            brokers.check(send, "a:1")


def test_an_address_is_asked_once_and_before_each_repetition() -> None:
    """Another broker, or another process, may have taken it."""
    brokers, send = ComparingBrokers("me"), send_to("a:1")
    assert brokers.must_ask(send, "a:1")
    with pytest.raises(DuplicatesPossible, match="does not compare ids"):
        brokers.check(send, "a:1")
    with pytest.raises(BrokerRefused):
        brokers.heard(RemotingCommand(ResponseCode.SYSTEM_BUSY, {WINDOW: "9"}), "a:1")
    assert brokers.must_ask(send, "a:1")
    brokers.heard(window(TWICE_MS), "a:1")
    assert (brokers.must_ask(send, "a:1"), brokers.must_ask(send, "b:1")) == (False, True)
    send.is_out = True
    assert brokers.must_ask(send, "a:1")


def test_what_failed_before_it_was_written_may_go_elsewhere_and_nothing_else() -> None:
    brokers, send = ComparingBrokers("me"), send_to("a:1")
    brokers.heard(window(TWICE_MS), "a:1")
    brokers.failed(send)
    assert (brokers.must_ask(send, "a:1"), send.fixed_queue) == (True, None)
    send.is_out = True
    brokers.failed(send)
    assert send.fixed_queue == send.queue


def test_only_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is asked behind a balancer meets new ones all the time."""
    monkeypatch.setattr(comparing, "_MOST_BROKERS", 3)
    brokers, send = ComparingBrokers("me"), send_to("a:1")
    remembered = []
    for number in range(4):
        brokers.heard(window(TWICE_MS), f"b:{number}")
        remembered.append([n for n in range(4) if not brokers.must_ask(send, f"b:{n}")])
    assert remembered == [[0], [0, 1], [0, 1, 2], [3]]


class Script:
    """
    An idempotent script and its brokers, on a clock that passes as it is told.

    :ivar asked: code, address and time limit of each request, in order.
    """

    def __init__(self, **config: Any) -> None:
        self.now = 100.0
        self.asked: list[tuple[int, str, int]] = []
        self.stale: list[str] = []
        self.no_route: Exception | None = None
        self.made = SendAsking(
            ClientConfig(namesrv_addr="n:1"),
            ProducerConfig(**{"idempotent": True} | config),
            Process(4711, "10.0.0.1"),
            self.route,
            self.stale.append,
            ThreadTimes(lambda: self.now, self.sleep, lambda: 1_700_000_000_000),
            Random(1),
        )

    def route(self, topic: str) -> Asking[TopicRoute]:
        if self.no_route is not None:
            raise self.no_route
        return ROUTE
        yield

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def send(self, answer: Callable[[int, str], RemotingCommand]) -> Any:
        """:param answer: gets code and address."""

        def noted(ask: Ask) -> RemotingCommand:
            self.asked.append((ask.command.code, ask.address, ask.timeout_ms))
            return answer(ask.command.code, ask.address)

        return drive_at_once(self.made.send(Message("T", b"x")), noted)

    def codes(self) -> list[int]:
        return [code for code, _, _ in self.asked]


ASKED, SENT = RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2
STORED = RemotingCommand(0, {"msgId": "M", "queueId": "0", "queueOffset": "1"})


def test_a_broker_is_asked_first_and_what_that_takes_is_not_there_for_the_send() -> None:
    script = Script()

    def answer(code: int, address: str) -> RemotingCommand:
        if code == SENT:
            return STORED
        script.now += 0.4
        return window(600_000)

    assert script.send(answer).send_status is SendStatus.SEND_OK
    assert [(code, left) for code, _, left in script.asked] == [(ASKED, 3000), (SENT, 2600)]
    script.asked.clear()
    script.send(answer)
    script.send(answer)
    assert script.codes() == [ASKED, SENT, SENT]  # each broker once


@pytest.mark.parametrize("took_s", [2.9991, 3.0, 4.0])
def test_a_broker_that_took_all_the_time_to_say_so_gets_a_moment_for_the_send(
    took_s: float,
) -> None:
    """No limit at all, which 0 would be, would be too long."""
    script = Script()

    def answer(code: int, address: str) -> RemotingCommand:
        if code == ASKED:
            script.now += took_s
            return window(600_000)
        return STORED

    script.send(answer)
    assert script.asked[1][2] == 1


def test_what_may_be_stored_is_repeated_in_its_place_and_asked_about_each_time() -> None:
    script = Script()

    def answer(code: int, address: str) -> RemotingCommand:
        if code == ASKED:
            return window(600_000)
        if script.codes().count(SENT) < 3:
            raise RemotingTimeout("no answer")
        return STORED

    assert script.send(answer).send_status is SendStatus.SEND_OK
    assert script.codes() == [ASKED, SENT] * 3
    assert len({address for _, address, _ in script.asked}) == 1


def test_what_was_never_written_goes_to_another_broker() -> None:
    script = Script()

    def answer(code: int, address: str) -> RemotingCommand:
        if address == script.asked[0][1]:
            raise RemotingConnectError("refused")
        return window(600_000) if code == ASKED else STORED

    assert script.send(answer).send_status is SendStatus.SEND_OK
    assert script.codes() == [ASKED, ASKED, SENT]
    assert len({address for _, address, _ in script.asked}) == 2


def test_a_broker_that_forgot_how_to_compare_gets_no_repetition() -> None:
    script = Script()

    def answer(code: int, address: str) -> RemotingCommand:
        if code == ASKED:
            return window(600_000 if len(script.asked) == 1 else 0)
        raise RemotingTimeout("no answer")

    with pytest.raises(SendFailed, match="is not repeated"):
        script.send(answer)
    assert script.codes() == [ASKED, SENT, ASKED]


def test_a_script_that_does_not_compare_asks_nobody() -> None:
    script = Script(idempotent=False)
    script.send(lambda code, address: STORED)
    assert script.codes() == [SENT]


@pytest.mark.parametrize(
    "error", [NoRoute("T", "away", retriable=True), NoNameServer("none answers")]
)
def test_a_route_that_is_gone_for_a_while_is_waited_for_as_long_as_the_send_may_go_on(
    error: MQClientError,
) -> None:
    """Its last pause ends with the send, and not behind it; whoever met a broker has no typo."""
    script = Script(idempotent=False, delivery_timeout_ms=5000)
    script.send(lambda code, address: STORED)
    script.no_route = error
    with pytest.raises(type(error)):
        script.send(lambda code, address: STORED)
    assert script.now == pytest.approx(105.0)
    assert set(script.stale) == {"T"}


def test_the_last_millisecond_is_time() -> None:
    script = Script(idempotent=False, send_msg_timeout_ms=1)
    script.now = 0.0
    script.send(lambda code, address: STORED)
    assert [left for _, _, left in script.asked] == [1]


def test_what_is_stored_safely_is_sent_to_nobody_else() -> None:
    wish = {"retry_another_broker_when_not_store_ok": True}
    script = Script(idempotent=False, **wish)
    assert script.send(lambda code, address: STORED).send_status is SendStatus.SEND_OK
    assert len(script.asked) == 1


def test_only_so_many_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may send to as many as it likes; one that is known keeps its turn."""
    monkeypatch.setattr(send_asking, "_MOST_TOPICS", 3)
    made = Script(idempotent=False).made
    known = [made._topic(f"T{number}") for number in range(3)]
    assert [made._topic(f"T{number}") for number in range(3)] == known
    assert made._topic("T3") is made._topic("T3")
    assert made._topic("T0") is not known[0]
    assert len(made._topics) == 2


def test_a_broker_that_refuses_to_the_end_is_named_by_the_error() -> None:
    """All brokers are away, or all are slow: the last of them is the reason that is given."""
    script = Script(idempotent=False, delivery_timeout_ms=5000)

    def answer(code: int, address: str) -> RemotingCommand:
        script.now += 2.0
        raise RemotingConnectError(f"{address} refused")

    with pytest.raises(SendTimeout, match="refused") as failed:
        script.send(answer)
    assert failed.value.retriable
    assert script.now <= 108.0
