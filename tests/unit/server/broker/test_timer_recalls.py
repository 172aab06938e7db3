"""RECALL_MESSAGE (370), and 60 and 61, on a whole simulated broker. Spec: timer.md, section 6."""

import json
from collections.abc import Iterator
from pathlib import Path
from struct import unpack
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.recall_handle import RecallHandle
from rmq_ha.ops.app.status.broker import BrokerStatus
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.test_metrics import scrape
from tests.unit.server.broker.test_processor_send import send
from tests.unit.server.broker.test_timer_sends import (
    KEY,
    TIMER_TOPIC,
    bodies,
    frame_of,
    run,
    timer_broker,
    waiting,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "timer"
RECORDED = {item["name"]: item for item in json.loads((FIXTURES / "recall.json").read_text())}
NOT_WAITING = "recall failed, the message is not waiting"
REFUSED_ALIKE = (
    "not base64",
    "empty handle",
    "v2",
    "4 items",
    "wrong topic in handle",
    "wrong broker",
    "expired",
    "ts not a number",
    "ts too far",
    "topic unknown",
    "no handle field",
)
TO_NOBODY = ("unknown id", "handle's time 2 s early")
"""Java answers these with success, and recalls nothing."""


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    made = timer_broker()
    yield made
    made.stop()


def timed(broker: SimBroker, properties: str = "", **changes: Any) -> str:
    """Send a message that is due in 60 s; return its handle."""
    text = f"TIMER_DELAY_SEC\x0160\x02UNIQ_KEY\x01{KEY}{properties}"
    handle: str = send(broker, text, **changes).ext["recallHandle"]
    run(broker, 0.1)
    return handle


def recall(broker: SimBroker, handle: str, **changes: str) -> RemotingCommand:
    ext = {"producerGroup": "PG", "topic": "TopicA", "recallHandle": handle, **changes}
    return broker.call(RemotingCommand(370, ext))


def of_java(handle: str) -> str:
    """The handle as a Java broker would have made it."""
    parsed = RecallHandle.parse(handle)
    assert parsed is not None
    return parsed._replace(source="").encode()


@pytest.mark.parametrize("as_java", [False, True])
def test_a_recalled_message_never_comes(broker: SimBroker, as_java: bool) -> None:
    handle = timed(broker)
    handle = of_java(handle) if as_java else handle
    answer = recall(broker, handle)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext is not None
    assert (answer.ext["msgId"], answer.ext["MSG_REGION"]) == (KEY, "DefaultRegion")
    record = decode_record(
        broker.broker.store.record_at(broker.broker.store.queues.get(TIMER_TOPIC, 0).unit(1)[0])
    )
    assert (record.body, record.properties["TIMER_DEL_UNIQKEY"]) == (b"0", f"TopicA+{KEY}")
    assert record.properties["PGROUP"] == "PG"
    assert recall(broker, handle).code == 0  # again
    assert waiting(broker) == 2  # one recall is enough
    run(broker, 90)
    assert bodies(broker) == []
    assert recall(broker, handle).code in (0, 604)


def test_what_was_delivered_is_not_recalled(broker: SimBroker) -> None:
    handle = timed(broker)
    run(broker, 61)
    for again in (handle, of_java(handle)):
        answer = recall(broker, again)
        assert (answer.code, answer.remark) == (604, "recall failed, timestamp invalid")
    assert bodies(broker) == [b"hello"]


@pytest.mark.parametrize("name", REFUSED_ALIKE)
def test_javas_recorded_recalls_are_refused_alike(broker: SimBroker, name: str) -> None:
    case = RECORDED[name]
    broker.host.step_clock(1_795_883_440_500 - broker.host.now_ms())
    answer, java = broker.call(frame_of(case["request_hex"])), case["response"]
    assert (answer.code, answer.remark) == (java["code"], java["remark"])
    assert answer.ext is not None
    assert answer.ext["MSG_REGION"] == java["extFields"]["MSG_REGION"]


@pytest.mark.parametrize("name", TO_NOBODY)
def test_a_recall_of_what_does_not_wait_is_refused(broker: SimBroker, name: str) -> None:
    broker.host.step_clock(1_795_883_440_500 - broker.host.now_ms())
    answer = broker.call(frame_of(RECORDED[name]["request_hex"]))
    assert (answer.code, answer.remark) == (604, NOT_WAITING)


@pytest.mark.parametrize("name", ["good", "no padding", "no producerGroup"])
def test_javas_recorded_recalls_succeed_alike(broker: SimBroker, name: str) -> None:
    case = RECORDED[name]
    broker.host.step_clock(1_795_883_440_500 - broker.host.now_ms())
    key = case["response"]["extFields"]["msgId"]
    text = f"TIMER_DELIVER_MS\x011795883446001\x02UNIQ_KEY\x01{key}"
    assert send(broker, text, topic="TT").code == 0
    run(broker, 0.1)
    request = frame_of(case["request_hex"])
    # Java's times are full seconds, so such a handle names a message that Java stored.
    assert request.ext is not None
    handle = RecallHandle.parse(request.ext["recallHandle"])
    assert handle is not None
    request.ext["recallHandle"] = handle._replace(time="1795883446002").encode()
    answer = broker.call(request)
    assert (answer.code, answer.ext) == (0, {**case["response"]["extFields"], **(answer.ext or {})})
    run(broker, 10)
    assert bodies(broker, "TT") == []


def test_all_of_one_key_and_time_are_recalled(broker: SimBroker) -> None:
    due = broker.host.now_ms() + 60_000
    for topic in ("TopicA", "TopicA", "TT"):
        send(broker, f"TIMER_DELIVER_MS\x01{due}\x02UNIQ_KEY\x01{KEY}", topic=topic)
    run(broker, 0.1)
    handle = RecallHandle("TopicA", "broker-t", str(due), KEY)
    out = decode_record(
        broker.broker.store.record_at(broker.broker.store.queues.get(TIMER_TOPIC, 0).unit(0)[0])
    ).properties["TIMER_OUT_MS"]
    assert recall(broker, handle._replace(time=str(int(out) + 1)).encode()).code == 0
    run(broker, 61)
    assert (bodies(broker), bodies(broker, "TT")) == ([], [b"hello"])


def test_two_recalls_at_a_time_are_one(broker: SimBroker) -> None:
    handle = timed(broker)
    ext = {"topic": "TopicA", "recallHandle": handle}
    both = [broker.ask(RemotingCommand(370, dict(ext))) for _ in range(2)]
    assert [broker.wait(later).code for later in both] == [0, 0]
    assert waiting(broker) == 2


def test_a_recall_that_is_not_stored_lets_the_message_come(broker: SimBroker) -> None:
    handle = timed(broker)
    store = broker.broker.store
    store.slow_until = store.host.clock.seconds() + 1
    answer = recall(broker, handle)
    assert (answer.code, answer.remark) == (1, "recall failed, execute error")
    run(broker, 61)
    assert bodies(broker) == [b"hello"]


@pytest.mark.parametrize(
    ("settings", "code", "remark"),
    [
        ({"recall_message_enable": False}, 16, "recall failed, operation is forbidden"),
        ({"timer_wheel_enable": False}, 3, " request type 370 not supported: timerWheelEnable is"),
    ],
)
def test_recalls_can_be_switched_off(settings: dict[str, Any], code: int, remark: str) -> None:
    broker = timer_broker(**settings)
    answer = recall(broker, RecallHandle("TopicA", "broker-t", "1", "K").encode())
    assert (answer.code, (answer.remark or "").startswith(remark)) == (code, True)
    broker.stop()


@pytest.mark.parametrize(
    "change", [{"start_accept_send_request_time_stamp": 1 << 60}, {"broker_permission": 4}]
)
def test_a_closed_broker_recalls_nothing(broker: SimBroker, change: dict[str, int]) -> None:
    handle = timed(broker)
    broker.broker.configuration.ours.allow_recall_when_broker_not_writeable = False
    config: BrokerConfig = broker.broker.configuration.broker
    for name, value in change.items():
        setattr(config, name, value)
    answer = recall(broker, handle)
    assert (answer.code, answer.remark) == (14, "recall failed, broker service not available")
    config.start_accept_send_request_time_stamp = 0
    broker.broker.configuration.ours.allow_recall_when_broker_not_writeable = True
    assert recall(broker, handle).code == 0


def test_a_recall_without_a_topic_says_so(broker: SimBroker) -> None:
    answer = broker.call(RemotingCommand(370, {"recallHandle": "x"}))
    assert (answer.code, answer.remark) == (1, "the header field topic is missing")


# ---------------------------------------------------------------- recalls that are sent


@pytest.mark.parametrize("named", ["TopicA+", ""])
def test_a_client_sends_a_recall_as_a_message(broker: SimBroker, named: str) -> None:
    handle = RecallHandle.parse(timed(broker))
    assert handle is not None
    text = (
        f"TIMER_DEL_UNIQKEY\x01{named}{KEY}\x02TIMER_DELIVER_MS\x01{handle.time}\x02UNIQ_KEY\x01R"
    )
    answer = send(broker, text)
    assert (answer.code, "recallHandle" in answer.ext) == (0, False)
    again = send(broker, text)
    assert (again.code, "it was recalled before" in again.remark) == (13, True)
    run(broker, 61)
    assert bodies(broker) == []


def test_a_recall_acts_only_within_its_topic(broker: SimBroker) -> None:
    """At Java, whoever may write any topic recalls the messages of each topic."""
    handle = RecallHandle.parse(timed(broker))
    assert handle is not None
    text = f"TIMER_DEL_UNIQKEY\x01TopicA+{KEY}\x02TIMER_DELIVER_MS\x01{handle.time}"
    answer = send(broker, text, topic="TT")
    assert (answer.code, "no message of TT waits" in answer.remark) == (13, True)
    run(broker, 61)
    assert bodies(broker) == [b"hello"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TIMER_DEL_UNIQKEY\x01K", "it needs TIMER_DELIVER_MS"),
        ("TIMER_DEL_UNIQKEY\x01K\x02TIMER_DELAY_SEC\x015\x02DELAY\x013", "and no delay level"),
        ("TIMER_DEL_UNIQKEY\x01K\x02TIMER_DELAY_SEC\x015\x02TRAN_MSG\x01true", "a transaction"),
        ("TIMER_DEL_UNIQKEY\x01K\x02TIMER_DELIVER_MS\x011000", "if set del msg, the delay time"),
    ],
)
def test_a_recall_that_recalls_nothing_is_refused(
    broker: SimBroker, text: str, reason: str
) -> None:
    answer = send(broker, text)
    assert (answer.code, reason in answer.remark) == (13, True)
    batch = send(broker, batch="true", body=encode_batch([(0, b"b", text)]))
    assert (batch.code, waiting(broker)) == (13, 0)


# ---------------------------------------------------------------- 60 and 61


def test_a_java_slave_asks_how_far_its_master_is(broker: SimBroker) -> None:
    timed(broker)
    now_ms = broker.host.now_ms()
    answer = broker.call(RemotingCommand(60))
    assert answer.body is not None
    read, flushed, offset, masters, epoch, stamp, _ = unpack(">7q", answer.body)
    assert (read % 1000, flushed, offset, masters, epoch) == (0, 0, 1, 1, 0)
    assert now_ms - 1000 <= read <= now_ms <= stamp + 10


def test_the_metrics_count_by_topic(broker: SimBroker) -> None:
    timed(broker)
    timed(broker, topic="TT")
    timed(broker, topic="TT")
    answer = broker.call(RemotingCommand(61))
    assert answer.body is not None
    body = json.loads(answer.body)
    assert {topic: item["count"] for topic, item in body["timingCount"].items()} == {
        "TopicA": 1,
        "TT": 2,
    }
    assert set(body["dataVersion"]) == {"counter", "timestamp"}


def test_without_timers_there_is_nothing_to_tell() -> None:
    broker = timer_broker(timer_wheel_enable=False)
    for code, remark in ((60, "The checkpoint is null"), (61, "The timer message store is null")):
        answer = broker.call(RemotingCommand(code))
        assert (answer.code, answer.remark) == (1, remark)
    broker.stop()


def test_the_broker_tells_operators(broker: SimBroker) -> None:
    """The five keys that mqadmin shows as #Timer(Progress)."""
    broker.broker.topics.update(TopicConfig("TT", 1, 1))
    timed(broker)
    answer = broker.call(RemotingCommand(28))
    assert answer.body is not None
    table = json.loads(answer.body)["table"]
    assert {name: text for name, text in table.items() if name.startswith("timer")} == {
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "1",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
    }


def test_operators_see_the_rates_and_the_lateness_of_timer_messages() -> None:
    """With `timerStopDequeue` a message is not delivered, so it becomes overdue."""
    broker = timer_broker(timer_stop_dequeue=True)
    broker.broker.topics.update(TopicConfig("TT", 1, 1))
    timed(broker)
    rates = set()
    for _ in range(12):
        run(broker, 0.1)
        body = broker.call(RemotingCommand(28)).body
        assert body is not None
        rates.add(json.loads(body)["table"]["timerEnqueueTps"])
    assert rates == {"0.0", "1.0"}
    status = BrokerStatus(broker.broker)
    found = scrape(status)
    assert set(found["rmqha_timer_messages"].values()) == {1}
    assert set(found["rmqha_timer_overdue_seconds"].values()) == {0}
    run(broker, 70)
    (overdue,) = scrape(status)["rmqha_timer_overdue_seconds"].values()
    assert 10 < overdue < 12
    broker.stop()


# ---------------------------------------------------------------- right after the send


def send_unseen(broker: SimBroker, seconds: float) -> str:
    """Send a message that is dispatched only after some seconds; return its handle."""
    dispatcher = broker.broker.store.dispatcher

    def go_on() -> None:
        dispatcher.start()
        dispatcher.run()

    dispatcher.stop()
    broker.host.clock.callLater(seconds, go_on)
    text = f"TIMER_DELAY_SEC\x0160\x02UNIQ_KEY\x01{KEY}"
    handle: str = send(broker, text).ext["recallHandle"]
    assert waiting(broker) == 0
    return handle


@pytest.mark.parametrize("as_java", [False, True])
def test_a_recall_waits_until_its_message_is_dispatched(broker: SimBroker, as_java: bool) -> None:
    handle = send_unseen(broker, 1.0)
    handle = of_java(handle) if as_java else handle
    assert recall(broker, handle).code == 0
    run(broker, 90)
    assert (waiting(broker), bodies(broker)) == (2, [])


def test_a_recall_sent_as_a_message_waits_alike(broker: SimBroker) -> None:
    handle = RecallHandle.parse(send_unseen(broker, 1.0))
    assert handle is not None
    text = f"TIMER_DEL_UNIQKEY\x01TopicA+{KEY}\x02TIMER_DELIVER_MS\x01{handle.time}"
    assert send(broker, text).code == 0
    run(broker, 90)
    assert bodies(broker) == []


@pytest.mark.parametrize("as_java", [False, True])
def test_a_recall_does_not_wait_for_ever(broker: SimBroker, as_java: bool) -> None:
    handle = send_unseen(broker, 30.0)
    handle = of_java(handle) if as_java else handle
    began = broker.host.clock.seconds()
    answer = recall(broker, handle)
    assert (answer.code, answer.remark) == (14, "recall failed, broker service not available")
    assert 2 <= broker.host.clock.seconds() - began < 3
    run(broker, 60)
    assert bodies(broker) == [b"hello"]


def test_a_broker_that_stops_leaves_no_recall_unanswered(broker: SimBroker) -> None:
    later = broker.broker.store.timers.until_dispatched()
    assert later.called
    send_unseen(broker, 30.0)
    answers: list[bool] = []
    broker.broker.store.timers.until_dispatched().addCallback(answers.append)
    broker.wait(Deferred.fromCoroutine(broker.broker.store.timers.close()))
    assert answers == [False]
