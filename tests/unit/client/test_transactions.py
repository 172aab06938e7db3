"""Half messages and their ends, with scripted brokers and a listener that is played by the test."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.parts import CheckHeader
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send import transactions
from rmq_ha.client.send.transactions import (
    CHECK_SECONDS,
    LocalTransactionState,
    TransactionProducer,
)
from tests.unit.client.scripted import MASTER, SLAVE, Scripted, message, refused

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW
HALF = {"msgId": "7F00000100002A9F0000000000001234", "queueId": "0", "queueOffset": "5"}
HEADER = CheckHeader(7, 99, "id", "TX", "OFF", "b:1")


class Bench:
    """A producer; `outcome` is what its listener does next."""

    def __init__(self) -> None:
        self.client = Scripted()
        self.client.know()
        self.client.answers[RequestCode.SEND_MESSAGE_V2] = RemotingCommand(
            0, HALF | {"transactionId": "TX"}
        )
        self.outcome: Any = COMMIT
        self.worked: list[Any] = []
        listener: Any = self
        config = ProducerConfig(producer_group="p", retry_times_when_send_failed=0)
        self.producer = TransactionProducer(self.client.instance, listener, config)
        self.client.wait(self.producer.start())
        self.answers: list[dict[str, str]] = []
        self.remarks: list[str | None] = []

    def execute_local_transaction(self, *args: Any) -> Any:
        self.worked.append(args)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    check_local_transaction = execute_local_transaction

    def send(self, sent: Message | None = None) -> Any:
        later = self.producer.send_in_transaction(sent or Message("T", b"x"), "arg")
        return self.client.wait(later)

    def ends(self) -> list[tuple[str, dict[str, str]]]:
        return self.client.of(RequestCode.END_TRANSACTION)

    def ask(self) -> None:
        """A broker asks about a half message."""
        half = message(3, PGROUP="p", UNIQ_KEY="UNIQ")
        self.producer.check_transaction(half, HEADER, self.answered)

    def answered(self, command: RemotingCommand) -> None:
        self.answers.append(command.ext or {})
        self.remarks.append(command.remark)


@pytest.mark.parametrize(("state", "code"), [(COMMIT, "8"), (ROLLBACK, "12"), (UNKNOWN, "0")])
def test_the_broker_is_told_how_the_work_ended(state: LocalTransactionState, code: str) -> None:
    bench = Bench()
    bench.outcome = state
    sent = Message("T", b"x")
    sent.properties["DELAY"] = "3"
    result = bench.send(sent)
    assert (result.local_transaction_state, bench.worked) == (state, [(sent, "arg")])
    ((address, ext),) = bench.ends()
    assert address in (MASTER, "o:10")
    assert ext == {
        "producerGroup": "p",
        "tranStateTableOffset": "5",
        "commitLogOffset": str(0x1234),
        "commitOrRollback": code,
        "fromTransactionCheck": "false",
        "msgId": sent.properties["UNIQ_KEY"],
        "transactionId": "TX",
    }
    assert (sent.properties["TRAN_MSG"], sent.properties["PGROUP"]) == ("true", "p")
    ((_, header),) = bench.client.of(RequestCode.SEND_MESSAGE_V2)
    assert header["f"] == "4"  # without the flag consumers would get it at once
    assert "DELAY" not in sent.properties


@pytest.mark.parametrize("outcome", [RuntimeError("on purpose"), "nonsense", None])
def test_work_whose_end_is_not_known_is_asked_about_later(outcome: Any) -> None:
    """Neither committed nor rolled back on a guess."""
    bench = Bench()
    bench.outcome = outcome
    assert bench.send().local_transaction_state is UNKNOWN
    ((_, ext),) = bench.ends()
    assert ext["commitOrRollback"] == "0"
    assert "executeLocalTransactionBranch" in str(bench.client.asked[-1][1].remark)


def test_a_half_message_that_is_not_safe_is_rolled_back_and_the_work_not_begun() -> None:
    bench = Bench()
    bench.client.answers[RequestCode.SEND_MESSAGE_V2] = RemotingCommand(
        ResponseCode.FLUSH_DISK_TIMEOUT, HALF
    )
    assert bench.send().local_transaction_state is ROLLBACK
    assert (bench.worked, bench.ends()[0][1]["commitOrRollback"]) == ([], "12")
    assert "transactionId" not in bench.ends()[0][1]
    bench.client.answers[RequestCode.SEND_MESSAGE_V2] = refused(ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(BrokerRefused):
        bench.send()
    assert (bench.worked, len(bench.ends())) == ([], 1)


def test_an_end_that_does_not_get_away_is_left_to_the_broker_s_question() -> None:
    bench = Bench()

    def work(*_: Any) -> Any:
        bench.client.instance.routes.brokers.update({"a": {1: SLAVE}, "b": {1: SLAVE}})
        return COMMIT

    bench.execute_local_transaction = work  # type: ignore[method-assign]
    with capturedLogs() as events:
        assert bench.send().local_transaction_state is COMMIT
    assert bench.ends() == []
    assert len(events) == 1
    assert "no master" in str(events[0]["reason"])


def test_a_question_is_answered_by_the_listener() -> None:
    bench = Bench()
    bench.ask()
    assert bench.answers == [
        {
            "producerGroup": "p",
            "tranStateTableOffset": "7",
            "commitLogOffset": "99",
            "commitOrRollback": "8",
            "fromTransactionCheck": "true",
            "msgId": "UNIQ",
            "transactionId": "TX",
        }
    ]
    bench.outcome = RuntimeError("on purpose")
    bench.ask()
    assert bench.answers[1]["commitOrRollback"] == "0"
    assert bench.remarks[0] is None
    assert "checkLocalTransactionState" in (bench.remarks[1] or "")


def test_questions_that_wait_are_bounded_in_number_and_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "MAX_CHECKS", 3)
    bench = Bench()
    waiting = [Deferred[Any]() for _ in range(4)]
    for bench.outcome in waiting:
        bench.ask()
    assert len(bench.worked) == 3
    waiting[0].callback(COMMIT)
    assert len(bench.answers) == 1
    bench.ask()
    assert len(bench.worked) == 4
    bench.client.clock.run_for(CHECK_SECONDS - 0.1)
    assert len(bench.answers) == 1
    bench.client.clock.run_for(0.2)
    assert [answer["commitOrRollback"] for answer in bench.answers] == ["8", "0", "0", "0"]
    bench.outcome = COMMIT
    bench.ask()
    assert bench.answers[-1]["commitOrRollback"] == "8"


def test_a_producer_that_was_stopped_answers_nothing() -> None:
    bench = Bench()
    cancelled: list[Any] = []
    for _ in range(2):
        bench.outcome = Deferred(cancelled.append)
        bench.ask()
    bench.client.wait(bench.producer.stop())
    assert len(cancelled) == 2
    bench.ask()
    assert len(bench.worked) == 2


def test_an_answer_that_cannot_be_sent_is_a_fault_of_its_own() -> None:
    bench = Bench()

    def broken(command: RemotingCommand) -> None:
        raise RuntimeError("on purpose")

    bench.answered = broken  # type: ignore[method-assign]
    with capturedLogs() as events:
        bench.ask()
    assert len(events) == 1
