"""Messages with a timer, and their recall, towards brokers with and without timers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import Ask, drive_at_once
from rmq_ha.client.rules.delay_levels import levels_near
from rmq_ha.client.rules.errors import BrokerRefused, IllegalMessage, NoTimers, NotStarted
from rmq_ha.client.rules.messages import Message, SendResult
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.transactions import LocalTransactionState, TransactionProducer
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.client.test_askings import sending

LATER = timedelta(minutes=7, seconds=30)


class Bench:
    """A broker and a started producer."""

    def __init__(self, *, timers: bool = True, ours: dict[str, Any] | None = None) -> None:
        self.cluster = SimCluster()
        self.cluster.add("a", ours={"timer_wheel_enable": timers, **(ours or {})})
        self.instance = self.cluster.client()
        self.producer = self.made()
        self.cluster.clock.run_for(0.1)

    def made(self, **config: Any) -> Producer:
        name = f"PG{len(self.cluster.hosts)}{len(config)}"
        producer = Producer(self.instance, ProducerConfig(producer_group=name, **config))
        self.cluster.wait(producer.start())
        return producer

    def send(self, message: Message, producer: Producer | None = None) -> SendResult:
        result: SendResult = self.cluster.wait((producer or self.producer).send(message))
        return result

    def count(self, topic: str = "T") -> int:
        self.cluster.run(0.1)
        store = self.cluster.brokers["a"].store
        return sum(store.max_offset_in_queue(topic, queue_id) for queue_id in range(4))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_message_comes_after_a_delay_that_no_level_has(bench: Bench) -> None:
    result = bench.send(Message("T", b"x", delay=LATER))
    assert result.recall_handle is not None
    bench.cluster.run(449)
    assert bench.count() == 0
    bench.cluster.run(1)
    assert bench.count() == 1


def test_a_message_comes_at_a_time(bench: Bench) -> None:
    now = datetime.fromtimestamp(bench.cluster.hosts["a"].now_ms() / 1000, UTC)
    bench.send(Message("T", b"x", deliver_at=now + timedelta(seconds=30)))
    bench.cluster.run(29)
    assert bench.count() == 0
    bench.cluster.run(1)
    assert bench.count() == 1
    bench.send(Message("T", b"x", deliver_at=now))  # its time is over
    assert bench.count() == 2


def test_a_level_needs_no_timers() -> None:
    bench = Bench(timers=False)
    result = bench.send(Message("T", b"x", delay=timedelta(minutes=5)))
    assert result.recall_handle is None
    assert bench.count("SCHEDULE_TOPIC_XXXX") >= 0
    bench.cluster.run(301)
    assert bench.count() == 1


@pytest.mark.parametrize("refuses", [True, False])
def test_a_broker_without_timers_gets_no_such_message(refuses: bool) -> None:
    """Nor does one that would deliver it at once, as RocketMQ 4.9 does."""
    bench = Bench(timers=False, ours={"refuse_unserved_properties": refuses})
    with pytest.raises(NoTimers, match=r"the nearest levels are 7m and 8m") as refused:
        bench.send(Message("T", b"x", delay=LATER))
    assert "timerWheelEnable=true" in str(refused.value)
    with pytest.raises(NoTimers, match="the nearest level is 2h"):
        bench.send(Message("T", b"x", delay=timedelta(days=1)))
    assert bench.count() == 0


def test_a_recalled_message_never_comes(bench: Bench) -> None:
    result = bench.send(Message("T", b"x", delay=LATER))
    handle = result.recall_handle or ""
    assert bench.cluster.wait(bench.producer.recall("T", handle)) == result.msg_id
    assert bench.cluster.wait(bench.producer.recall("T", handle)) == result.msg_id
    bench.cluster.run(460)
    assert bench.count() == 0


def test_a_message_that_came_cannot_be_recalled(bench: Bench) -> None:
    handle = bench.send(Message("T", b"x", delay=LATER)).recall_handle or ""
    bench.cluster.run(460)
    with pytest.raises(BrokerRefused, match="recall failed") as refused:
        bench.cluster.wait(bench.producer.recall("T", handle))
    assert refused.value.code == 604


@pytest.mark.parametrize(
    ("topic", "handle", "sentence"),
    [
        ("T", "", "recall handle is invalid"),
        ("T", "nonsense", "recall handle is invalid"),
        ("%RETRY%G", "x", "messages of %RETRY%G cannot be recalled"),
        ("%DLQ%G", "x", "cannot be recalled"),
        ("U", "djEgVCBhIDEgSw==", "the recall handle is of the topic T, not of U"),
    ],
)
def test_no_broker_is_asked_with_such_a_handle(
    bench: Bench, topic: str, handle: str, sentence: str
) -> None:
    with pytest.raises(IllegalMessage, match=sentence):
        bench.cluster.wait(bench.producer.recall(topic, handle))


def test_a_stopped_producer_recalls_nothing(bench: Bench) -> None:
    bench.cluster.wait(bench.producer.stop())
    with pytest.raises(NotStarted):
        bench.cluster.wait(bench.producer.recall("T", "x"))


def test_what_does_not_go_with_a_timer_is_refused(bench: Bench) -> None:
    timed = Message("T", b"x", delay=LATER)
    for send, sentence in (
        (lambda: bench.producer.send_oneway(timed), "not sent one-way"),
        (lambda: bench.producer.send_batch([timed]), "ignore that in a batch"),
        (
            lambda: bench.producer.send(
                Message("T", b"x", delay=LATER, properties={"TIMER_DELIVER_MS": "5"})
            ),
            r"several delays \(TIMER_DELAY_MS, TIMER_DELIVER_MS\)",
        ),
        (
            lambda: bench.producer.send(Message("T", b"x", delay=LATER, properties={"DELAY": "3"})),
            "several delays",
        ),
    ):
        with pytest.raises(IllegalMessage, match=sentence):
            bench.cluster.wait(send())
    assert bench.count() == 0


def test_an_idempotent_producer_asks_twice(bench: Bench) -> None:
    """Whether the broker compares ids, and whether it has timers."""
    bench = Bench(ours={"duplicate_window_millis": 600_000})
    producer = bench.made(idempotent=True)
    first = bench.send(Message("T", b"x", delay=LATER), producer)
    assert first.recall_handle is not None
    bench.send(Message("T", b"y"), producer)
    assert bench.count() == 1


class Commits:
    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: Any) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


def test_a_transaction_with_a_timer_needs_a_broker_of_rmq_ha(bench: Bench) -> None:
    producer = TransactionProducer(bench.instance, Commits(), ProducerConfig(producer_group="TX"))
    bench.cluster.wait(producer.start())
    bench.cluster.wait(producer.send_in_transaction(Message("T", b"x", delay=LATER)))
    bench.cluster.run(449)
    assert bench.count() == 0
    bench.cluster.run(2)
    assert bench.count() == 1


# ---------------------------------------------------------------- without a reactor


@pytest.mark.parametrize(
    ("code", "ext", "sentence"),
    [
        (3, {}, "has no timers"),
        (16, {}, "RocketMQ 5, which never delivers"),
        (604, {"timedTransactions": "true"}, ""),
    ],
)
def test_a_thread_asks_the_broker_too(code: int, ext: dict[str, str], sentence: str) -> None:
    """4.9 knows no recalls; 5 knows them and loses transactions with a timer."""
    asked: list[int] = []

    def answer(ask: Ask) -> RemotingCommand:
        asked.append(ask.command.code)
        if ask.command.code == RequestCode.RECALL_MESSAGE:
            return RemotingCommand(code, ext, remark="recall handle is invalid")
        ok = {"queueId": "0", "queueOffset": "0", "msgId": "0" * 32, "recallHandle": "h"}
        return RemotingCommand(0, ok)

    made = sending()
    half = Message("T", b"x", delay=LATER, properties={"TRAN_MSG": "true"})
    if sentence:
        with pytest.raises(NoTimers, match=sentence):
            drive_at_once(made.send(half), answer)
        assert asked == [RequestCode.RECALL_MESSAGE]
        return
    for _ in range(4):
        result = drive_at_once(made.send(half), answer)
        assert result.recall_handle == "h"
    # Each of the two brokers is asked once.
    assert asked.count(RequestCode.RECALL_MESSAGE) == 2
    assert asked.count(RequestCode.SEND_MESSAGE_V2) == 4


def test_levels_near_a_time() -> None:
    assert levels_near({"TIMER_DELIVER_MS": "91000"}, 1000) == "the nearest levels are 1m and 2m"
    assert levels_near({"TIMER_DELAY_SEC": "0"}, 0) == "the nearest level is 1s"
    assert levels_near({"TIMER_DELAY_SEC": "x"}, 0).startswith("the levels are 1s, 5s")
