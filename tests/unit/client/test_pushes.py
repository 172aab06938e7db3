"""What brokers ask of a client, and what each group's part of it is told."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.bodies import MessageQueue, decode_queue_table
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.client.connection.pushes import Pushes

QUEUE = MessageQueue("T", "a", 0)
CHANNEL: Any = SimpleNamespace(remote_text="b:1")
HERE = Address(b"\x7f\0\0\1", 1)
RECORD = encode_record(
    Record(*(0, 1, 0, 0, 0, 0, 0, 5, HERE, 6, HERE, 7, 8, b"x", "T", "PGROUP\x01PG"))
)


class Part:
    """
    A producer's or consumer's.

    :ivar told: what it was told, in order.
    """

    def __init__(self, *, takes_replies: bool = True) -> None:
        self.told: list[Any] = []
        self._takes_replies = takes_replies

    def on_group_changed(self) -> None:
        self.told.append("changed")

    def reset_offsets(self, topic: str, offsets: Any) -> None:
        self.told.append((topic, offsets))

    def consume_status(self, topic: str) -> Any:
        return {MessageQueue(topic, "a", 0): 7}

    def running_info(self, stacks: bool) -> Any:
        return {"jstack": stacks, "properties": {"OWN": "1", "SHARED": "part"}}

    def consume_directly(self, message: Any) -> Any:
        return {"body": message.body.decode(), "broker": message.broker_name}

    def check_transaction(self, message: Any, header: Any, answer: Any) -> None:
        answer("the answer")
        self.told.append("checked")

    def reply(self, message: Any, correlation_id: str) -> bool:
        self.told.append((message, correlation_id))
        return self._takes_replies


def asked(pushes: Pushes, code: int, body: bytes | None = None, **ext: str) -> Any:
    """What a handler answers; None: the broker waits for nothing."""
    return pushes.handlers()[code](CHANNEL, RemotingCommand(code, ext or None, body))


def pushes(producers: Any = None, consumers: Any = None) -> Pushes:
    about = {"SHARED": "client", "LANGUAGE": "PYTHON"}
    return Pushes(producers or {}, consumers or {}, lambda: 99, lambda it: it, lambda: about)


def test_only_the_group_that_is_named_is_told_that_its_members_changed() -> None:
    parts = {"CG": Part(), "OTHER": Part()}
    asked(pushes(consumers=parts), RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="CG")
    for ext in ({}, {"consumerGroup": "NOBODY"}):
        asked(pushes(consumers=parts), RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, **ext)
    assert (parts["CG"].told, parts["OTHER"].told) == (["changed"], [])


def test_offsets_are_reset_where_a_table_says_so() -> None:
    part, code = Part(), RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    body = encode({"offsetTable": {QUEUE: 7}})
    asked(pushes(consumers={"CG": part}), code, body, group="CG", topic="T")
    assert part.told == [("T", {QUEUE: 7})]
    asked(pushes(consumers={"CG": part}), code, None, group="CG", topic="T")
    asked(pushes(consumers={"CG": part}), code, body, group="NOBODY", topic="T")
    asked(pushes(consumers={"CG": part}), code, body)
    assert len(part.told) == 1


def test_a_group_that_is_not_here_has_no_offsets_and_one_that_is_says_them() -> None:
    code, here = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, pushes(consumers={"CG": Part()})
    answer = asked(here, code, group="CG", topic="T")
    assert decode_queue_table(answer.body, "messageQueueTable") == {QUEUE: 7}
    for ext in ({}, {"group": "NOBODY", "topic": "T"}):
        assert json.loads(asked(here, code, **ext).body)["messageQueueTable"] == {}


@pytest.mark.parametrize(
    ("ext", "stacks"),
    [({}, False), ({"jstackEnable": "false"}, False), ({"jstackEnable": "TRUE"}, True)],
)
def test_a_group_says_how_it_runs_and_the_client_the_rest(ext: Any, stacks: bool) -> None:
    """What the group says of itself counts more."""
    here = pushes(consumers={"CG": Part()})
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    assert json.loads(asked(here, code, consumerGroup="CG", **ext).body) == {
        "jstack": stacks,
        "properties": {"OWN": "1", "SHARED": "part", "LANGUAGE": "PYTHON"},
    }
    for wrong in ({"consumerGroup": "NOBODY"}, {}):
        with pytest.raises(RequestRejected, match="not exist"):
            asked(here, code, **wrong)


def test_a_message_is_consumed_on_demand() -> None:
    here, code = pushes(consumers={"CG": Part()}), RequestCode.CONSUME_MESSAGE_DIRECTLY
    answers: list[Any] = []
    asked(here, code, RECORD, consumerGroup="CG", brokerName="a").addCallback(answers.append)
    asked(here, code, RECORD, consumerGroup="CG").addCallback(answers.append)
    assert [json.loads(answer.body) for answer in answers] == [
        {"body": "x", "broker": "a"},
        {"body": "x", "broker": ""},
    ]
    for wrong in (None, b"", RECORD * 2):
        with pytest.raises(RequestRejected, match="one message"):
            asked(here, code, wrong, consumerGroup="CG")


def test_a_transaction_of_a_group_that_is_not_here_is_nobodys() -> None:
    part, code, sent = Part(), RequestCode.CHECK_TRANSACTION_STATE, list[Any]()
    channel: Any = SimpleNamespace(remote_text="b:1", send=sent.append)
    for producers in ({"PG": part}, {"OTHER": part}):
        signing = Pushes(producers, {}, lambda: 99, lambda it: f"signed {it}", dict)  # type: ignore[dict-item, arg-type, return-value, str-bytes-safe]
        signing.handlers()[code](channel, RemotingCommand(code, None, RECORD))
    assert (part.told, sent) == (["checked"], ["signed the answer"])


REPLY = {
    "topic": "T",
    "queueId": "3",
    "bornTimestamp": "5",
    "bornHost": "/10.0.0.1:7",
    "storeTimestamp": "6",
    "storeHost": "[::1]:8",
    "sysFlag": "4",
    "flag": "9",
    "reconsumeTimes": "2",
    "properties": "CORRELATION_ID\x01C\x02UNIQ_KEY\x01U\x02ARRIVE_TIME\x011",
}


def test_a_reply_goes_to_whoever_waits_for_it_and_says_when_it_came() -> None:
    deaf, waiting, after = Part(takes_replies=False), Part(), Part()
    here = pushes({"A": deaf, "B": waiting, "C": after})
    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert asked(here, code, b"body", **REPLY).code == 0
    assert (len(deaf.told), len(waiting.told), after.told) == (1, 1, [])
    ((message, correlation_id),) = waiting.told
    assert (correlation_id, message.properties["ARRIVE_TIME"]) == ("C", "99")
    assert (message.topic, message.queue_id, message.body) == ("T", 3, b"body")
    assert (message.msg_id, message.flag, message.sys_flag) == ("U", 9, 4)
    assert (message.born_timestamp, str(message.born_host)) == (5, "10.0.0.1:7")
    assert (message.store_timestamp, str(message.store_host)) == (6, "[::1]:8")
    assert message.reconsume_times == 2
    assert (message.queue_offset, message.commit_log_offset, message.store_size) == (0, 0, 0)


def test_a_reply_that_says_little_is_one_all_the_same() -> None:
    deaf = Part(takes_replies=False)
    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert asked(pushes({"A": deaf}), code).code == 0
    ((message, correlation_id),) = deaf.told
    assert (message.topic, message.body, message.msg_id, correlation_id) == ("", b"", "", "")
    numbers = (message.queue_id, message.flag, message.sys_flag, message.reconsume_times)
    assert (*numbers, message.born_timestamp, message.store_timestamp) == (0,) * 6
    assert str(message.born_host) == str(message.store_host) == "0.0.0.0:0"
    with pytest.raises(RequestRejected, match="queueId is no number"):
        asked(pushes({"A": deaf}), code, queueId="many")
