"""Request-reply: codes 324, 325 and the push 326. Spec: remoting.md, section 4.8 and A.11."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.send_header import SendHeader, encode_send_header
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.sim_client import SILENT, SimClient

VECTORS = Path(__file__).parents[3] / "vectors" / "remoting"
PUSH_EXT = json.loads(json.loads((VECTORS / "appendix_a.json").read_text())["reply_push_header"])[
    "extFields"
]
RESPONSE_EXT = json.loads(
    json.loads((VECTORS / "relays.json").read_text())["reply_response_header"]
)["extFields"]
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKED = {
    "MSG_TYPE": "reply",
    "REPLY_TO_CLIENT": "c1",
    "UNIQ_KEY": "UU",
    "TTL": "3000",
    "CORRELATION_ID": "cid1",
}


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    broker = SimBroker().start()
    yield broker
    broker.stop()


def reply(
    properties: dict[str, str], *, v1: bool = False, body: bytes = b"answer", **more: Any
) -> RemotingCommand:
    header: dict[str, Any] = {
        "producer_group": "PG",
        "topic": REPLY_TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "born_timestamp": 1795246971397,
        "properties": "\x02".join([f"{name}\x01{text}" for name, text in properties.items()]),
        **more,
    }
    code = RequestCode.SEND_REPLY_MESSAGE if v1 else RequestCode.SEND_REPLY_MESSAGE_V2
    return RemotingCommand(code, encode_send_header(SendHeader(**header), v1=v1), body)


def stored(broker: SimBroker, topic: str = REPLY_TOPIC) -> list[Any]:
    found = broker.broker.store.get_message("g", topic, 0, 0, 32, None)
    return decode_records(b"".join(found.messages))


@pytest.mark.parametrize("v1", [False, True])
def test_a_reply_reaches_its_requester(broker: SimBroker, v1: bool) -> None:
    """Pushed with the header that Java writes; answered when the requester has it."""
    client = SimClient(broker)
    client.answers[326] = RemotingCommand(0)
    answer = broker.call(reply(ASKED, v1=v1))
    assert (answer.code, answer.remark) == (0, None)
    assert (answer.ext or {}).keys() == RESPONSE_EXT.keys()
    assert answer.ext is not None
    assert {**answer.ext, "msgId": ""} == {**RESPONSE_EXT, "msgId": ""}
    (push,) = client.pushed
    assert (push.code, push.flag, push.body) == (326, 0, b"answer")
    ext = dict(push.ext or {})
    golden = dict(PUSH_EXT)
    assert ext.keys() == golden.keys()
    now = ext.pop("storeTimestamp")
    assert decode_properties(ext.pop("properties")) == {**ASKED, "PUSH_REPLY_TIME": now}
    assert decode_properties(golden.pop("properties")).keys() == {*ASKED, "PUSH_REPLY_TIME"}
    assert ext.pop("bornHost").startswith(broker.client_host.ip + ":")
    assert ext.pop("storeHost") == f"{broker.host.ip}:{broker.configuration.server.listen_port}"
    for name in ("storeTimestamp", "bornHost", "storeHost"):
        del golden[name]
    assert ext == golden
    (copy,) = stored(broker)
    assert copy.body == b"answer"
    assert copy.properties == ASKED


def test_the_copy_keeps_what_says_how_to_read_it(broker: SimBroker) -> None:
    """Java forgets that the body is compressed."""
    SimClient(broker).answers[326] = RemotingCommand(0)
    broker.call(reply(ASKED, sys_flag=1 | 4, flag=3, reconsume_times=2))
    (copy,) = stored(broker)
    assert (copy.sys_flag & 0xF, copy.flag, copy.reconsume_times) == (1, 3, 2)
    assert copy.prepared_transaction_offset == 0


def test_replies_need_not_be_stored(broker: SimBroker) -> None:
    """storeReplyMessageEnable=false, also while we run; the client still wants numbers."""
    update = RemotingCommand(
        RequestCode.UPDATE_BROKER_CONFIG, body=b"storeReplyMessageEnable=false"
    )
    assert broker.call(update).code == 0
    SimClient(broker).answers[326] = RemotingCommand(0)
    answer = broker.call(reply(ASKED))
    assert answer.code == 0
    assert answer.ext == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": "0",
        "queueId": "0",
        "queueOffset": "0",
    }
    assert broker.broker.store.max_offset_in_queue(REPLY_TOPIC, 0) == 0


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({}, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({"REPLY_TO_CLIENT": "zz"}, "push reply message fail, channel of <zz> not found."),
        ({"REPLY_TO_CLIENT": "c1"}, "push reply message to c1 fail: it answered code 1"),
    ],
)
def test_a_reply_that_reaches_nobody_is_stored(
    broker: SimBroker, properties: dict[str, str], remark: str
) -> None:
    """Code 1 with the ids of the copy, as in Java."""
    SimClient(broker).answers[326] = RemotingCommand(1, remark="no")
    answer = broker.call(reply(properties))
    assert (answer.code, answer.remark) == (1, remark)
    assert answer.ext is not None
    assert answer.ext["queueOffset"] == "0"
    assert len(answer.ext["msgId"]) == 32
    assert len(stored(broker)) == 1


def test_a_reply_that_reaches_nobody_and_is_not_stored(broker: SimBroker) -> None:
    broker.configuration.broker.store_reply_message_enable = False
    answer = broker.call(reply({}))
    assert answer.code == 1
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_a_silent_requester(broker: SimBroker) -> None:
    """Answered after 10 s; the copy was stored at once."""
    SimClient(broker).answers[326] = SILENT
    began = broker.world.clock.seconds()
    responder = SimClient(broker, "responder")
    answer = responder.ask(reply(ASKED))
    assert answer.code == 1
    assert "no response" in (answer.remark or "")
    assert 10 <= broker.world.clock.seconds() - began < 11
    assert len(stored(broker)) == 1


def test_a_requester_that_leaves(broker: SimBroker) -> None:
    """Answered at once, and nobody finds it any more."""
    client = SimClient(broker)
    asked = broker.ask(reply(ASKED))
    broker.world.clock.run_while(lambda: not client.pushed, 5)
    client.leave()
    answer = broker.wait(asked)
    assert answer.code == 1
    assert "lost the connection" in (answer.remark or "")
    assert "not found" in (broker.call(reply(ASKED)).remark or "")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"topic": "no topic"}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "Unknown", "default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 7}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_checks_are_those_of_sends(broker: SimBroker, change: dict[str, Any], code: int) -> None:
    """Before anything is pushed or stored; with the trace fields that Java's producer wants."""
    client = SimClient(broker)
    answer = broker.call(reply(ASKED, **change))
    assert answer.code == code
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert client.pushed == []


def test_a_topic_may_be_created(broker: SimBroker) -> None:
    """As by a send; and the broker may choose the queue, which the push does not show."""
    client = SimClient(broker)
    client.answers[326] = RemotingCommand(0)
    answer = broker.call(reply(ASKED, topic="Fresh", queue_id=-1))
    assert answer.code == 0
    assert 0 <= int((answer.ext or {})["queueId"]) < 4
    assert (client.pushed[0].ext or {})["queueId"] == "-1"


def test_a_store_that_refuses_does_not_change_a_success(broker: SimBroker) -> None:
    """The requester has its reply; that is what the answer is about."""
    SimClient(broker).answers[326] = RemotingCommand(0)
    too_large = b"x" * (broker.configuration.store.max_message_size + 1)
    answer = broker.call(reply(ASKED, body=too_large))
    assert answer.code == 0
    assert (answer.ext or {})["msgId"] == "0"


def test_too_many_replies_wait(broker: SimBroker) -> None:
    """A requester that does not answer holds up a quarter; the others still get theirs."""
    broker.configuration.broker.reply_thread_pool_queue_capacity = 8
    broker.stop()
    broker.start()
    client, other = SimClient(broker), SimClient(broker, "c2")
    other.answers[326] = RemotingCommand(0)
    for _ in range(2):
        broker.ask(reply(ASKED)).addErrback(lambda _: None)
    broker.world.clock.run_for(1)
    refused = broker.call(reply(ASKED))
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert (refused.remark or "").startswith("[OVERLOAD]system busy")
    assert refused.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert broker.call(reply({**ASKED, "REPLY_TO_CLIENT": "c2"})).code == 0
    assert len(stored(broker)) == 3
    broker.world.clock.run_for(11)
    client.answers[326] = RemotingCommand(0)
    assert broker.call(reply(ASKED)).code == 0


def test_the_trace_settings_change_while_we_run(broker: SimBroker) -> None:
    """In answers to sends, too."""
    body = b"traceOn=false\nregionId=East"
    assert broker.call(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0
    for answer in (broker.call(reply({})), broker.send()):
        assert answer.ext is not None
        assert (answer.ext["TRACE_ON"], answer.ext["MSG_REGION"]) == ("false", "East")
