"""SEND_MESSAGE in all its forms, on a whole simulated broker. Spec: remoting.md, chapter 4."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.model.flags import MULTI_TAGS, TOPIC_UNIT, TOPIC_UNIT_SUB
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.store_format.commitlog import Record, decode_record, decode_records
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from tests.unit.server.broker.sim_broker import SimBroker

PHYSICAL = slice(16, 32)


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    made = SimBroker().start()
    made.broker.topics.update(TopicConfig("TopicA", 4, 4))
    yield made
    made.stop()


def send(broker: SimBroker, properties: str = "", code: int = 310, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "producerGroup": "PG",
        "topic": "TopicA",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 1,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_000,
        "flag": 7,
        "properties": properties,
        "reconsumeTimes": 0,
        "unitMode": "false",
        "maxReconsumeTimes": None,
        "batch": "false",
    }
    body = changes.pop("body", b"hello")
    version = changes.pop("version", 407)
    fields |= changes
    short = dict(zip(fields, "abcdefghijklm", strict=True))
    ext = {
        (name if code in (10, 324) else short[name]): str(value)
        for name, value in fields.items()
        if value is not None
    }
    return broker.call(RemotingCommand(code, ext, body, version=version))


def stored(broker: SimBroker, answer: RemotingCommand) -> Record:
    """The record that an answer names."""
    assert answer.ext is not None
    data = broker.broker.store.record_at(int(answer.ext["msgId"][PHYSICAL], 16))
    return decode_record(data)


@pytest.mark.parametrize("code", [10, 310])
def test_stored_and_answered(broker: SimBroker, code: int) -> None:
    """V1 and V2: fields are stored, CLUSTER added, WAIT left out; the answer names the place."""
    answer = send(broker, "TAGS\x01A\x02WAIT\x01true\x02KEYS\x01k", code=code)
    assert answer.code == 0
    assert answer.ext is not None
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("1", "0")
    assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("DefaultRegion", "true")
    record = stored(broker, answer)
    assert (record.topic, record.queue_id, record.body, record.flag) == ("TopicA", 1, b"hello", 7)
    assert record.born_host.ip == Address.parse(broker.client_host.ip, 0).ip
    assert record.properties == {"TAGS": "A", "KEYS": "k", "CLUSTER": "DefaultCluster"}


@pytest.mark.parametrize(
    "text",
    [
        "WAIT\x01true",
        "WAIT\x01true\x02A\x01b",
        "A\x01b\x02",
        "A\x01b\x02WAIT\x01true\x02",
        "CLUSTER\x01forged\x02A\x01b",
        "",
        "XWAIT\x01true\x02A\x01b",
        "A\x01b\x02WAIT\x01truely",
    ],
)
def test_properties_of_a_run_are_those_of_a_single_send(broker: SimBroker, text: str) -> None:
    """However the producer wrote them, nothing but WAIT and CLUSTER changes."""
    expected = decode_properties(text) | {"CLUSTER": "DefaultCluster"}
    expected.pop("WAIT", None)
    assert stored(broker, send(broker, text)).properties == expected


def test_one_way(broker: SimBroker) -> None:
    """Stored, and not answered."""
    request = broker.message(b"quiet", "TopicA")
    request.flag |= FLAG_ONEWAY
    broker.wait(broker.client.oneway(f"{broker.host.ip}:10911", request))
    broker.world.clock.run_for(0.1)
    assert broker.broker.store.max_offset_in_queue("TopicA", 0) == 1


@pytest.mark.parametrize(
    ("text", "waits"),
    [("", True), ("WAIT\x01TRUE", True), ("WAIT\x01false", False), ("A\x01b\x02WAIT\x01no", False)],
)
def test_waiting(broker: SimBroker, text: str, waits: bool) -> None:
    """Only `true`, in any case, and no WAIT at all wait for flush and replica."""
    seen: list[bool] = []
    put = broker.broker.store.put_drafts
    broker.broker.store.put_drafts = lambda drafts, wait, *others: (
        seen.append(wait),
        put(drafts, wait, *others),
    )
    assert send(broker, text).code == 0
    assert seen == [waits]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": ""}, 1),
        ({"topic": "a b"}, 1),
        ({"topic": "t" * 128}, 1),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16),
        ({"topic": "Unknown", "defaultTopic": "NoSuchTemplate"}, 17),
        ({"queueId": 4}, 1),
        ({"queueId": "many"}, 1),
        ({"body": bytes(5 << 20)}, 13),
        ({"properties": "A\x01" + "x" * 40_000}, 13),
        ({"batch": "true", "body": b"no batch"}, 1),
        ({"batch": "true", "body": bytes(5 << 20)}, 13),
    ],
)
def test_refused(broker: SimBroker, changes: dict[str, Any], code: int) -> None:
    """With the code of the first check that fails, a remark, and the trace fields alone."""
    answer = send(broker, **changes)
    assert (answer.code, bool(answer.remark)) == (code, True)
    if changes.get("queueId") != "many":
        assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert broker.broker.store.log.max_offset == 0


@pytest.mark.parametrize("properties", ["", "TRAN_MSG\x01true\x02PGROUP\x01PG"])
@pytest.mark.parametrize(("reads", "writes"), [(2, 6), (6, 2), (6, 6)])
def test_a_queue_that_is_only_read_or_only_written_takes_messages(
    broker: SimBroker, reads: int, writes: int, properties: str
) -> None:
    """As Java's broker: producers whose routes are older than the topic's change go on."""
    broker.broker.topics.update(TopicConfig("Uneven", reads, writes))
    for number, code in ((1, 0), (5, 0), (6, 1)):
        assert send(broker, properties, topic="Uneven", queueId=number).code == code, number


def test_a_topic_is_created(broker: SimBroker) -> None:
    """As many queues as the producer wants and the template has; perm without the inherit bit."""
    assert send(broker, topic="Fresh", queueId=2, defaultTopicQueueNums=3).code == 0
    created = broker.broker.topics.get("Fresh")
    assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (3, 3, 6)


@pytest.mark.parametrize(
    ("topic", "unit_mode", "flag"),
    [
        ("Fresh", "false", 0),
        ("Fresh", "true", TOPIC_UNIT),
        ("%RETRY%G", "false", 0),
        ("%RETRY%G", "true", TOPIC_UNIT_SUB),
    ],
)
def test_a_topic_that_is_created_says_whether_it_is_of_a_unit(
    broker: SimBroker, topic: str, unit_mode: str, flag: int
) -> None:
    broker.broker.groups.update(SubscriptionGroupConfig("G"))
    assert send(broker, topic=topic, queueId=0, unitMode=unit_mode).code == 0
    assert broker.broker.topics.get(topic).topic_sys_flag == flag


@pytest.mark.parametrize(("reads", "writes", "chosen"), [(4, 3, 3), (1, 1, 1), (4, 0, 1)])
def test_any_queue(broker: SimBroker, reads: int, writes: int, chosen: int) -> None:
    """
    A negative queue leaves the choice to the broker: any that is written, and none that is not
    there, where nobody would read it.
    """
    broker.broker.topics.update(TopicConfig("Some", reads, writes))
    answers = [send(broker, topic="Some", queueId=-1) for _ in range(16)]
    queues = {stored(broker, answer).queue_id for answer in answers}
    assert queues == set(range(chosen))


def test_not_before_its_time(broker: SimBroker) -> None:
    """startAcceptSendRequestTimeStamp."""
    later = broker.host.now_ms() + 60_000
    broker.broker.configuration.broker.start_accept_send_request_time_stamp = later
    assert send(broker).code == 1


def test_read_only_broker(broker: SimBroker) -> None:
    """brokerPermission without WRITE refuses ordered topics only; routes keep others away."""
    broker.broker.configuration.broker.broker_permission = 4
    assert send(broker).code == 0
    broker.broker.topics.update(TopicConfig("TopicA", 4, 4, order=True))
    assert send(broker).code == 16


def test_delayed(broker: SimBroker) -> None:
    """Answered with the requested queue; stored under the schedule topic; delivered later."""
    answer = send(broker, "DELAY\x011\x02WAIT\x01true", queueId=3)
    assert answer.ext is not None
    assert (answer.code, answer.ext["queueId"]) == (0, "3")
    record = stored(broker, answer)
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", 0)
    assert record.properties["REAL_TOPIC"] == "TopicA"
    assert record.properties["REAL_QID"] == "3"
    assert record.properties["WAIT"] == "true"
    assert broker.broker.store.max_offset_in_queue("TopicA", 3) == 0
    broker.world.clock.run_for(1.3)
    assert broker.broker.store.max_offset_in_queue("TopicA", 3) == 1


def test_batch(broker: SimBroker) -> None:
    """Members keep flag, body and properties; the batch's come after; ids are joined."""
    members = [(1, b"one", "TAGS\x01A"), (2, b"two", ""), (3, b"three", "KEYS\x01k\x02")]
    answer = send(broker, "WAIT\x01true", 320, batch="true", body=encode_batch(members))
    assert answer.ext is not None
    assert (answer.code, answer.ext["queueOffset"]) == (0, "0")
    ids = answer.ext["msgId"].split(",")
    offsets = [int(item[PHYSICAL], 16) for item in ids]
    records = [decode_record(broker.broker.store.record_at(offset)) for offset in offsets]
    assert [(item.flag, item.body, item.queue_offset) for item in records] == [
        (1, b"one", 0),
        (2, b"two", 1),
        (3, b"three", 2),
    ]
    common = "WAIT\x01true\x02CLUSTER\x01DefaultCluster"
    texts = [record.properties_string for record in records]
    assert texts == [f"TAGS\x01A\x02{common}", common, f"KEYS\x01k\x02{common}"]


@pytest.mark.parametrize(("kind", "flag"), [("SINGLE_TAG", 0), ("MULTI_TAG", MULTI_TAGS)])
def test_messages_of_a_topic_with_several_tags_say_so(
    broker: SimBroker, kind: str, flag: int
) -> None:
    """Sent alone, delayed or in a batch: what else their flags say stays."""
    broker.broker.topics.update(TopicConfig("Tags", 4, 4, topic_filter_type=kind))
    batch = {"code": 320, "batch": "true", "body": encode_batch([(0, b"x", "")])}
    for changes in ({}, {"properties": "DELAY\x011"}, batch):
        record = stored(broker, send(broker, topic="Tags", sysFlag=1, **changes))
        assert record.sys_flag & 3 == 1 | flag


def test_retry_topic_and_dead_letters(broker: SimBroker) -> None:
    """A client's own re-send goes to the retry topic until it was tried often enough."""
    broker.broker.groups.update(SubscriptionGroupConfig("G", retry_max_times=2))
    broker.broker.topics.update(TopicConfig("%RETRY%G", 3, 3))
    records = [
        stored(broker, send(broker, topic="%RETRY%G", queueId=2, **changes))
        for changes in (
            {"reconsumeTimes": 1},
            {"reconsumeTimes": 2},
            {"reconsumeTimes": 2, "maxReconsumeTimes": 9},
            {"reconsumeTimes": 2, "maxReconsumeTimes": 9, "version": 120},
            {"reconsumeTimes": 2, "maxReconsumeTimes": 9, "version": 121},
        )
    ]
    topics = [record.topic for record in records]
    assert topics == ["%RETRY%G", "%DLQ%G", "%RETRY%G", "%DLQ%G", "%RETRY%G"]
    assert [record.queue_id for record in records] == [2, 0, 2, 0, 2]
    broker.broker.configuration.broker.auto_create_subscription_group = False
    assert send(broker, topic="%RETRY%Nobody", queueId=0).code == 26


def half(broker: SimBroker) -> tuple[Any, dict[str, Any]]:
    """A half message's answer, and what its producer sends to end it."""
    answer = send(broker, "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01U", queueId=2, sysFlag=4)
    assert answer.ext is not None
    return answer, {
        "producerGroup": "PG",
        "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": str(int(answer.ext["msgId"][PHYSICAL], 16)),
        "msgId": "U",
    }


def end(broker: SimBroker, decision: int, ext: dict[str, Any]) -> RemotingCommand:
    return broker.call(RemotingCommand(37, {**ext, "commitOrRollback": str(decision)}))


def visible(broker: SimBroker) -> list[Record]:
    broker.world.clock.run_for(0.1)
    found = broker.broker.store.get_message("G", "TopicA", 2, 0, 32, None)
    return decode_records(b"".join(found.messages))


def test_commit(broker: SimBroker) -> None:
    """The half message appears in its real queue; the op message says that it is settled."""
    answer, ext = half(broker)
    record = stored(broker, answer)
    assert (record.topic, record.queue_id, record.sys_flag & 0xC) == (
        "RMQ_SYS_TRANS_HALF_TOPIC",
        0,
        0,
    )
    assert visible(broker) == []
    assert end(broker, 8, ext).code == 0
    (message,) = visible(broker)
    assert (message.body, message.sys_flag & 0xC) == (b"hello", 8)
    assert message.prepared_transaction_offset == record.physical_offset
    assert broker.broker.store.max_offset_in_queue("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 1


def test_rollback(broker: SimBroker) -> None:
    """Nothing appears, and the half message is settled."""
    _, ext = half(broker)
    assert end(broker, 12, ext).code == 0
    assert visible(broker) == []
    assert broker.broker.store.max_offset_in_queue("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"producerGroup": "Other"},
        {"tranStateTableOffset": "5"},
        {"commitLogOffset": "7"},
        {"commitLogOffset": "99999999"},
    ],
)
def test_not_the_half_message(broker: SimBroker, changes: dict[str, str]) -> None:
    """Whoever does not know the message exactly ends nothing."""
    _, ext = half(broker)
    assert end(broker, 8, ext | changes).code == 1
    assert visible(broker) == []


def test_rejected_transactions(broker: SimBroker) -> None:
    """rejectTransactionMessage."""
    broker.broker.configuration.broker.reject_transaction_message = True
    assert send(broker, "TRAN_MSG\x01true\x02PGROUP\x01PG").code == 16
