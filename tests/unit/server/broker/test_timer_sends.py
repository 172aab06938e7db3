"""Sends that ask for a timer, on a whole simulated broker. Spec: timer.md, sections 3, 7 and 12."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import decode_frame
from rmq_ha.base.wire.recall_handle import RecallHandle
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.test_processor_send import send, stored

FIXTURES = Path(__file__).parents[3] / "fixtures" / "timer"
RECORDED = json.loads((FIXTURES / "send.json").read_text())
TIMER_TOPIC = "rmq_sys_wheel_timer"
KEY = "7F000001000050360001A222FD9CE701"
OTHERWISE_HERE = {
    # Java lets it wrap around, and delivers the message at once.
    "TIMER_DELAY_SEC overflow": 13,
    # Java delivers a message that was received and is sent on at once.
    "client-made TIMER_OUT_MS and TIMER_DELAY_SEC=60": 0,
    # Java answers code 1 with a NumberFormatException.
    "DELAY=abc with TIMER_DELAY_SEC": 13,
}


def timer_broker(**settings: Any) -> SimBroker:
    """A broker that has timers and is named as in the recordings."""
    made = SimBroker()
    made.configuration.broker.broker_name = "broker-t"
    ours = {"timer_wheel_enable": True, **settings}
    for name, value in ours.items():
        setattr(made.configuration.ours, name, value)
    made.start()
    for topic in ("TopicA", "TT"):
        made.broker.topics.update(TopicConfig(topic, 4, 4))
    return made


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    made = timer_broker()
    yield made
    made.stop()


def bodies(broker: SimBroker, topic: str = "TopicA") -> list[bytes]:
    """The bodies of a topic's messages, by queue and offset."""
    store = broker.broker.store
    found = []
    for queue_id in range(4):
        queue = store.queues.get(topic, queue_id)
        for offset in range(queue.max_offset if queue is not None else 0):
            found.append(decode_record(store.record_at(queue.unit(offset)[0])).body)
    return found


def waiting(broker: SimBroker) -> int:
    return int(broker.broker.store.max_offset_in_queue(TIMER_TOPIC, 0))


def run(broker: SimBroker, seconds: float) -> None:
    broker.world.clock.run_for(seconds)


def frame_of(text: str) -> RemotingCommand:
    """The request of a recording."""
    data = bytes.fromhex(text)
    size = int.from_bytes(data[4:8], "big")
    return decode_frame(0, data[8 : 8 + size], data[8 + size :])


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_javas_recorded_sends_are_answered_alike(case: dict[str, Any], broker: SimBroker) -> None:
    request, java = frame_of(case["request_hex"]), case["response"]
    assert request.ext is not None
    asked = decode_properties(request.ext["i"])
    born = int(request.ext["g"])
    broker.host.step_clock(born - broker.host.now_ms())
    answer = broker.call(request)
    assert answer.code == OTHERWISE_HERE.get(case["name"], java["code"])
    if case["name"] in OTHERWISE_HERE:
        return
    assert answer.remark == java.get("remark")
    handle = java.get("extFields", {}).get("recallHandle")
    assert answer.ext is not None
    assert ("recallHandle" in answer.ext) == (handle is not None)
    if handle is None:
        return
    own, javas = RecallHandle.parse(answer.ext["recallHandle"]), RecallHandle.parse(handle)
    assert own is not None
    assert javas is not None
    assert own[:2] == javas[:2]
    assert own.unique_key == javas.unique_key == answer.ext["transactionId"]
    due = int(asked.get("TIMER_DELIVER_MS", own.time))
    if not {"TIMER_DELAY_SEC", "TIMER_DELAY_MS"} & asked.keys():
        assert int(own.time) in (due, due + 1)
    # Java rounds down to the second, and was some ms behind the client.
    assert 0 <= int(own.time) - int(javas.time) + 200 <= 1300
    (code, place) = (answer.code, int(answer.ext["msgId"][16:], 16))
    assert (code, own.source) == (0, f"{place}-{answer.ext['queueOffset']}")
    assert answer.ext["queueId"] == java["extFields"]["queueId"]


@pytest.mark.parametrize("code", [10, 310])
def test_a_message_waits_and_comes_when_it_is_due(broker: SimBroker, code: int) -> None:
    answer = send(broker, f"TIMER_DELAY_SEC\x0160\x02UNIQ_KEY\x01{KEY}", code=code)
    assert answer.code == 0
    record = stored(broker, answer)
    assert (record.topic, record.queue_id, record.body) == (TIMER_TOPIC, 0, b"hello")
    assert record.properties["REAL_TOPIC"] == "TopicA"
    assert record.properties["REAL_QID"] == "1"
    run(broker, 59.9)
    assert bodies(broker) == []
    run(broker, 0.3)
    assert bodies(broker) == [b"hello"]


def test_a_level_wins_over_a_timer_and_removes_it(broker: SimBroker) -> None:
    answer = send(broker, "TIMER_DELAY_SEC\x013600\x02DELAY\x013")
    assert (answer.code, "recallHandle" in answer.ext) == (0, False)
    record = stored(broker, answer)
    assert record.topic == "SCHEDULE_TOPIC_XXXX"
    assert "TIMER_DELAY_SEC" not in record.properties


def test_a_message_without_a_unique_key_gets_one(broker: SimBroker) -> None:
    answer = send(broker, "TIMER_DELAY_SEC\x0160")
    handle = RecallHandle.parse(answer.ext["recallHandle"])
    assert handle is not None
    assert len(handle.unique_key) == 32
    assert stored(broker, answer).properties["UNIQ_KEY"] == handle.unique_key


@pytest.mark.parametrize("wheel", [True, False])
def test_a_client_cannot_settle_a_waiting_message(wheel: bool) -> None:
    """TIMER_SRC is dropped from each message of a client, alone, in a batch and sent back."""
    broker = timer_broker(timer_wheel_enable=wheel)
    forged = "TIMER_SRC\x0110-0\x02REAL_TOPIC\x01TopicA\x02TIMER_DEQUEUE_MS\x011"
    alone = stored(broker, send(broker, forged)).properties
    assert alone == {**alone, "REAL_TOPIC": "TopicA", "TIMER_DEQUEUE_MS": "1"}
    answer = send(broker, batch="true", body=encode_batch([(0, b"b", forged)]))
    for properties in (alone, stored(broker, answer).properties):
        assert "TIMER_SRC" not in properties
    broker.stop()


def test_a_delivery_that_is_sent_back_settles_nothing(broker: SimBroker) -> None:
    """It comes again by a level, and is not timed again."""
    send(broker, f"TIMER_DELAY_SEC\x015\x02UNIQ_KEY\x01{KEY}")
    run(broker, 6)
    store = broker.broker.store
    place = store.queues.get("TopicA", 1).unit(0)[0]
    delivery = decode_record(store.record_at(place))
    assert delivery.properties["TIMER_SRC"]
    broker.broker.groups.update(SubscriptionGroupConfig(group_name="G"))
    back = {"offset": str(place), "group": "G", "delayLevel": "0", "originMsgId": "x"}
    assert broker.call(RemotingCommand(36, back)).code == 0
    unit = store.queues.get("SCHEDULE_TOPIC_XXXX", 2).unit(0)
    assert "TIMER_SRC" not in decode_record(store.record_at(unit[0])).properties
    run(broker, 15)
    assert waiting(broker) == 1
    retried = bodies(broker, "%RETRY%G")
    assert retried == [b"hello"]


def test_a_forwarded_message_is_delayed_anew(broker: SimBroker) -> None:
    """Java takes its TIMER_OUT_MS for that of its own delivery, and delivers it at once."""
    send(broker, f"TIMER_DELAY_SEC\x015\x02UNIQ_KEY\x01{KEY}")
    run(broker, 6)
    place = broker.broker.store.queues.get("TopicA", 1).unit(0)[0]
    received = decode_record(broker.broker.store.record_at(place)).properties_string
    text = received.replace("TIMER_DELAY_SEC\x015", "TIMER_DELAY_SEC\x0130")
    answer = send(broker, text, topic="TT", body=b"on")
    record = stored(broker, answer)
    assert (record.topic, record.properties["REAL_TOPIC"]) == (TIMER_TOPIC, "TT")
    assert not {"TIMER_SRC", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS"} & record.properties.keys()
    run(broker, 31)
    assert bodies(broker, "TT") == [b"on"]


def test_dead_letters_are_not_delayed(broker: SimBroker) -> None:
    """A client's own resend beyond the last attempt."""
    broker.broker.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=1))
    broker.broker.topics.update(TopicConfig("%RETRY%G", 1, 1))
    text = f"TIMER_DELAY_SEC\x0160\x02UNIQ_KEY\x01{KEY}"
    dead = send(broker, text, topic="%RETRY%G", queueId=0, reconsumeTimes=1, maxReconsumeTimes=1)
    assert stored(broker, dead).topic == "%DLQ%G"
    fresh = send(broker, text, topic="%RETRY%G", queueId=0)
    assert (fresh.code, "recallHandle" in fresh.ext) == (0, False)
    assert stored(broker, fresh).topic == TIMER_TOPIC


@pytest.mark.parametrize("size", [32767 - 160 - 200, 32767 - 160])
def test_a_delivery_always_has_room(broker: SimBroker, size: int) -> None:
    """Java acknowledges such a message, and throws it away when it is due."""
    text = f"TIMER_DELAY_SEC\x015\x02UNIQ_KEY\x01{KEY}\x02A\x01"
    answer = send(broker, text + "v" * (size - len(text)))
    if answer.code:
        assert (answer.code, "160 bytes of properties more" in answer.remark) == (13, True)
        assert size == 32767 - 160
    else:
        run(broker, 6)
        assert bodies(broker) == [b"hello"]


def test_too_many_in_one_second_are_refused() -> None:
    broker = timer_broker(timer_congest_num_each_slot=2)
    due = (broker.host.now_ms() // 1000 + 60) * 1000 + 500
    answers = []
    for _ in range(12):
        answers.append(send(broker, f"TIMER_DELIVER_MS\x01{due}"))
        run(broker, 0.1)
    refused = [answer for answer in answers if answer.code]
    assert waiting(broker) <= 4
    assert {answer.code for answer in refused} == {1}
    assert refused[-1].remark.startswith(
        "timer message is under flow control, max num limit is 4 or the current value is greater "
        "than 2 and less than 4, trigger random flow control"
    )
    assert send(broker, f"TIMER_DELIVER_MS\x01{due + 1000}").code == 0
    broker.stop()


def test_too_many_in_all_are_refused() -> None:
    broker = timer_broker(timer_max_waiting=3)
    codes = []
    for number in range(5):
        codes.append(send(broker, f"TIMER_DELAY_SEC\x01{60 + number}").code)
        run(broker, 0.1)
    assert codes == [0, 0, 0, 1, 1]
    broker.stop()


def test_a_batch_waits_as_a_whole(broker: SimBroker) -> None:
    """Java ignores the timers of members, and acknowledges them."""
    members = [(0, b"%d" % n, f"UNIQ_KEY\x01K{n}\x02TIMER_DELAY_SEC\x01{5 - n}") for n in range(3)]
    answer = send(broker, batch="true", body=encode_batch(members))
    assert (answer.code, waiting(broker)) == (0, 3)
    run(broker, 4.5)
    assert bodies(broker) == [b"2", b"1"]
    run(broker, 1)
    assert bodies(broker) == [b"2", b"1", b"0"]


def test_a_batch_with_a_common_timer(broker: SimBroker) -> None:
    members = [(0, b"%d" % n, f"UNIQ_KEY\x01K{n}") for n in range(90)]
    answer = send(broker, "TIMER_DELAY_SEC\x015", batch="true", body=encode_batch(members))
    assert answer.remark is None
    run(broker, 0.1)
    assert (answer.code, waiting(broker), len(answer.ext["msgId"].split(","))) == (0, 90, 90)
    run(broker, 6)
    assert len(bodies(broker)) == 90


def test_a_batch_in_which_only_some_wait_is_refused(broker: SimBroker) -> None:
    members = [(0, b"a", "TIMER_DELAY_SEC\x015"), (0, b"b", "KEYS\x01k")]
    answer = send(broker, batch="true", body=encode_batch(members))
    assert (answer.code, waiting(broker)) == (13, 0)
    assert "1 of the 2 messages of the batch ask for a timer" in answer.remark
    bad = [(0, b"a", "TIMER_DELAY_SEC\x015"), (0, b"b", "TIMER_DELAY_SEC\x01x")]
    answer = send(broker, batch="true", body=encode_batch(bad))
    assert (answer.code, answer.remark.endswith("(message 1 of the batch)")) == (13, True)
    over = [(0, b"a", "TIMER_DELIVER_MS\x011"), (0, b"b", "TIMER_DELAY_MS\x01-1")]
    assert send(broker, batch="true", body=encode_batch(over)).code == 0
    run(broker, 0.1)
    assert sorted(bodies(broker)) == [b"a", b"b"]


def test_a_transaction_counts_from_its_commit(broker: SimBroker) -> None:
    """Java delays the half message itself, and no consumer ever gets it."""
    text = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02TIMER_DELAY_SEC\x0130\x02UNIQ_KEY\x01{KEY}"
    half = send(broker, text, sysFlag=4)
    assert (half.code, "recallHandle" in half.ext) == (0, False)
    assert stored(broker, half).topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    run(broker, 20)
    end = {
        "producerGroup": "PG",
        "tranStateTableOffset": half.ext["queueOffset"],
        "commitLogOffset": str(int(half.ext["msgId"][16:], 16)),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": KEY,
    }
    assert broker.call(RemotingCommand(37, end)).code == 0
    run(broker, 29.5)
    assert (bodies(broker), waiting(broker)) == ([], 1)
    run(broker, 1)
    assert bodies(broker) == [b"hello"]


def test_a_half_message_whose_timer_is_illegal_is_refused(broker: SimBroker) -> None:
    text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02TIMER_DELAY_SEC\x01x"
    assert send(broker, text, sysFlag=4).code == 13


def test_a_reply_is_not_delayed(broker: SimBroker) -> None:
    answer = send(broker, "TIMER_DELAY_SEC\x015\x02REPLY_TO_CLIENT\x01c", code=325)
    assert (answer.code, "replies are brought at once" in answer.remark) == (13, True)


def test_a_repeated_send_waits_once() -> None:
    """Its answer has the handle of the message that waits."""
    broker = timer_broker(duplicate_window_millis=60_000)
    text = f"TIMER_DELAY_SEC\x0130\x02UNIQ_KEY\x01{KEY}"
    first = send(broker, text)
    run(broker, 2)
    again = send(broker, text)
    assert again.ext["duplicate"] == "true"
    assert again.ext["recallHandle"] == first.ext["recallHandle"]
    assert waiting(broker) == 1
    broker.stop()


def test_a_send_that_is_repeated_after_its_time_is_the_same() -> None:
    """The first one waits still, because the operator holds deliveries back."""
    broker = timer_broker(duplicate_window_millis=60_000, timer_stop_dequeue=True)
    text = f"TIMER_DELIVER_MS\x01{broker.host.now_ms() + 1000}\x02UNIQ_KEY\x01{KEY}"
    first = send(broker, text)
    run(broker, 5)
    again = send(broker, text)
    assert (again.ext["duplicate"], again.ext["msgId"]) == ("true", first.ext["msgId"])
    broker.broker.configuration.ours.timer_stop_dequeue = False
    run(broker, 5)
    assert bodies(broker) == [b"hello"]
    broker.stop()
