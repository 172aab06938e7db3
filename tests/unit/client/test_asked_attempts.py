"""Attempts of an idempotent producer: who is asked first, and what is written where."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import WINDOW
from rmq_ha.client.rules.errors import DuplicatesPossible, NoMaster
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.routes import publish_info
from rmq_ha.client.rules.send_frames import Outgoing
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.asked_attempts import AskedAttempts
from rmq_ha.client.send.send import PublishTopic, Send
from tests.unit.client.scripted import MASTER, OTHER, ROUTE, Scripted

COMPARES = RemotingCommand(0, {WINDOW: "600000"})


class Bench:
    """
    Attempts; their connections are fakes that are open, until a test closes them.

    :ivar written: addresses, in order.
    """

    def __init__(self) -> None:
        self.client = Scripted()
        self.client.know()
        self.attempts = AskedAttempts(
            self.client.instance, ProducerConfig(idempotent=True), "g", ()
        )
        self._questions: list[Deferred[RemotingCommand]] = []
        self.client.answers[RequestCode.HEART_BEAT] = self._ask
        self.written: list[str] = []
        self.closed: set[str] = set()
        self.client.instance.open_channel = self._open_channel  # type: ignore[method-assign]
        self.known = PublishTopic("T", "T", 0)
        self.known.info = publish_info("T", ROUTE)

    def _ask(self, address: str, _: RemotingCommand) -> "Deferred[RemotingCommand]":
        self._questions.append(Deferred())
        return self._questions[-1]

    def answer(self, answer: RemotingCommand | Exception) -> None:
        """All questions that were not answered yet."""
        questions, self._questions = self._questions, []
        for later in questions:
            (later.errback if isinstance(answer, Exception) else later.callback)(answer)

    def _open_channel(self, address: str) -> Any:
        pending = SimpleNamespace(note=lambda *_: 7)
        channel = SimpleNamespace(pending=pending, write=lambda _: self.written.append(address))
        return None if address in self.closed else channel

    def go(self, broker: str = "a", **changes: Any) -> tuple[Send, list[BaseException]]:
        """A send to a broker, and what it fails with."""
        errors: list[BaseException] = []
        messages, outgoing = (Message("T", b"x"),), Outgoing(0, 0, "", b"x")
        now = self.client.clock.seconds()
        code = RequestCode.SEND_MESSAGE_V2
        send = Send(self.known, code, outgoing, "ID", messages, now, now + 60, 3000.0)
        decider: Any = SimpleNamespace(failed=lambda _, error: errors.append(error))
        send.decider, send.fixed_queue = decider, MessageQueue("T", broker, 1)
        send.begin(now)
        send.asks = True
        for name, value in changes.items():
            setattr(send, name, value)
        self.attempts.go(send, now)
        return send, errors


def test_sends_that_wait_for_one_broker_share_one_question_and_the_next_ones_need_none() -> None:
    bench = Bench()
    sends = [bench.go()[0] for _ in range(3)]
    other, _ = bench.go("b")
    assert [address for address, _ in bench.client.asked] == [MASTER, OTHER]
    assert (bench.written, [send.tries for send in sends]) == ([], [0, 0, 0])
    bench.answer(COMPARES)
    assert bench.written == [MASTER] * 3 + [OTHER]
    assert [(send.tries, send.brokers, send.is_out) for send in (*sends, other)] == [
        *[(1, ("a",), True)] * 3,
        (1, ("b",), True),
    ]
    bench.go()
    assert (len(bench.client.asked), len(bench.written)) == (2, 5)


def test_who_does_not_say_so_in_time_costs_an_attempt_and_says_so_too_late() -> None:
    """Each waits for as long as it may itself; the answer is of use to those that come later."""
    bench = Bench()
    (short, in_vain), (long, errors) = bench.go(until=1.0), bench.go()
    bench.client.clock.run_for(0.9)
    assert in_vain == []
    bench.client.clock.run_for(0.2)
    (error,) = in_vain
    assert isinstance(error, RemotingTimeout)
    assert (short.tries, short.brokers, short.is_out, errors) == (1, ("a",), False, [])
    bench.answer(COMPARES)
    assert (bench.written, long.is_out, len(in_vain)) == ([MASTER], True, 1)


def test_a_question_in_vain_is_asked_again_by_the_next_send() -> None:
    bench = Bench()
    send, errors = bench.go()
    bench.answer(RemotingConnectError("refused"))
    assert (send.tries, len(errors), bench.written) == (1, 1, [])
    bench.go()
    assert len(bench.client.asked) == 2


def test_nothing_is_written_to_who_compares_nothing() -> None:
    bench = Bench()
    send, errors = bench.go()
    bench.answer(RemotingCommand(0))
    bench.go(brokers=("b",))
    assert [type(error) for error in errors] == [DuplicatesPossible]
    assert (send.tries, send.is_out, bench.written) == (1, False, [])


@pytest.mark.parametrize("is_moved", [False, True])
def test_what_is_lost_while_it_answers_takes_the_send_with_it(*, is_moved: bool) -> None:
    """Whoever has that address next was not asked; nor was a master that came meanwhile."""
    bench = Bench()
    send, errors = bench.go()
    if is_moved:
        bench.client.instance.routes.brokers["a"] = {0: "new:10"}
    else:
        bench.closed.add(MASTER)
    bench.answer(COMPARES)
    (error,) = errors
    assert isinstance(error, RemotingConnectError)
    assert (send.tries, send.is_out, bench.written) == (1, False, [])


def test_a_closed_connection_is_asked_about_anew_and_so_is_a_repetition() -> None:
    bench = Bench()
    bench.go()
    bench.answer(COMPARES)
    bench.go(is_out=True)
    bench.closed.add(MASTER)
    bench.go("a")
    assert len(bench.client.asked) == 2  # the last one waits for the answer to that before it
    bench.closed.clear()
    bench.answer(COMPARES)
    assert bench.written == [MASTER] * 3


def test_a_broker_without_a_master_costs_an_attempt() -> None:
    bench = Bench()
    bench.client.instance.routes.brokers["a"] = {1: "s:10"}
    send, errors = bench.go()
    assert isinstance(errors[0], NoMaster)
    assert (send.tries, send.brokers, bench.client.asked) == (1, ("a",), [])
