"""What consumers ask brokers, and give back to them: whom, in what words, what is made of it."""

import json
from typing import Any

import msgspec
import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ProtocolViolation, RemotingConnectError, RemotingTimeout
from rmq_ha.base.model.flags import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.route_bodies import QueueRoute, TopicRoute
from rmq_ha.base.wire.send_header import decode_send_header
from rmq_ha.client.connection.queue_calls import (
    LOCK_TIMEOUT_MS,
    OFFSET_TIMEOUT_MS,
    GroupMembers,
    QueueCalls,
)
from rmq_ha.client.consume.pull_api import MAX_OFFSET, MIN_OFFSET, Pull, PullApi
from rmq_ha.client.consume.send_back import SEND_BACK_TIMEOUT_MS, SEND_TIMEOUT_MS, SendBack
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError
from rmq_ha.client.rules.subscriptions import MessageSelector, subscription
from tests.unit.client.scripted import (
    MASTER,
    OTHER,
    QUEUE,
    ROUTE,
    SLAVE,
    Scripted,
    message,
    refused,
)

STRANGE = MessageQueue("T", "zzz", 0)


def ok(body: bytes | None = None, **ext: object) -> RemotingCommand:
    return RemotingCommand(0, {key: str(value) for key, value in ext.items()}, body)


@pytest.fixture
def client() -> Scripted:
    found = Scripted()
    found.know()
    return found


@pytest.fixture
def calls(client: Scripted) -> QueueCalls:
    return QueueCalls(client.instance)


# Numbers


def test_numbers_of_a_queue_are_asked_of_its_master(client: Scripted, calls: QueueCalls) -> None:
    for code, field, ask in (
        (RequestCode.GET_MAX_OFFSET, "offset", calls.max_offset),
        (RequestCode.GET_MIN_OFFSET, "offset", calls.min_offset),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp", calls.earliest_msg_store_time),
    ):
        client.answers[code] = ok(**{field: 100 + code})
        assert client.wait(ask(QUEUE)) == 100 + code
        assert client.of(code) == [(MASTER, {"topic": "T", "queueId": "0"})]
    client.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = ok(offset=3)
    assert client.wait(calls.search_offset(QUEUE, 77)) == 3
    ((_, ext),) = client.of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert ext["timestamp"] == "77"


@pytest.mark.parametrize("answer", [ok(), ok(offset="much"), RemotingCommand(0)])
def test_an_answer_without_its_number_is_an_error(
    client: Scripted, calls: QueueCalls, answer: RemotingCommand
) -> None:
    client.answers[RequestCode.GET_MAX_OFFSET] = answer
    with pytest.raises(BrokerRefused, match="no offset"):
        client.wait(calls.max_offset(QUEUE))


def test_a_broker_that_is_not_known_is_looked_up_once_and_then_missed(
    client: Scripted, calls: QueueCalls
) -> None:
    with pytest.raises(MQClientError, match="zzz is known"):
        client.wait(calls.address(STRANGE))
    assert len(client.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
    fresh = Scripted()
    assert fresh.wait(QueueCalls(fresh.instance).address(QUEUE)) == MASTER


# Offsets of a group


def test_a_group_without_an_offset_is_not_one_whose_broker_refuses(
    client: Scripted, calls: QueueCalls
) -> None:
    """Who took a refusal for "never been there" would begin at the end, and skip what waits."""
    code = RequestCode.QUERY_CONSUMER_OFFSET
    client.answers[code] = ok(offset=0)
    assert client.wait(calls.committed("g", QUEUE)) == 0
    assert client.of(code)[0][1]["consumerGroup"] == "g"
    assert client.timeouts == [OFFSET_TIMEOUT_MS]
    client.answers[code] = refused(ResponseCode.QUERY_NOT_FOUND)
    assert client.wait(calls.committed("g", QUEUE)) is None
    client.answers[code] = refused(ResponseCode.SYSTEM_ERROR)
    with pytest.raises(BrokerRefused):
        client.wait(calls.committed("g", QUEUE))


@pytest.mark.parametrize("wait", [False, True])
def test_an_offset_is_kept_by_the_master_and_by_a_slave_while_it_is_silent(
    client: Scripted, calls: QueueCalls, wait: bool
) -> None:
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    client.wait(calls.commit("g", QUEUE, 5, wait=wait))
    expected = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "5"}
    assert client.of(code) == [(MASTER, expected)]
    assert client.timeouts == ([OFFSET_TIMEOUT_MS] if wait else [])
    client.down = {MASTER}
    client.wait(calls.commit("g", QUEUE, 6, wait=wait))
    assert [address for address, _ in client.of(code)] == [MASTER, MASTER, SLAVE]
    client.down = {MASTER, SLAVE}
    with pytest.raises(RemotingConnectError, match=SLAVE):
        client.wait(calls.commit("g", QUEUE, 7, wait=wait))
    client.down = {OTHER}
    with pytest.raises(RemotingConnectError, match=OTHER):
        client.wait(
            calls.commit("g", msgspec.structs.replace(QUEUE, broker_name="b"), 7, wait=wait)
        )


def test_who_waits_for_a_commit_hears_that_it_was_refused(
    client: Scripted, calls: QueueCalls
) -> None:
    client.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = refused(1)
    with pytest.raises(BrokerRefused):
        client.wait(calls.commit("g", QUEUE, 5, wait=True))
    client.wait(calls.commit("g", QUEUE, 5))


# Back


def test_no_slave_is_sent_a_copy(client: Scripted) -> None:
    """It stores nothing: the message would be lost, if it said that it had."""
    client.know("%RETRY%g")
    client.instance.routes.brokers.update({"a": {1: SLAVE}, "b": {1: SLAVE}})
    back = SendBack(client.instance, "g", 16, unit_mode=False)
    assert client.wait(back.send_copy(message(5))) is False
    assert client.of(RequestCode.SEND_MESSAGE_V2) == []


# Members


def members(*ids: str) -> RemotingCommand:
    return ok(encode({"consumerIdList": list(ids)}))


def test_members_are_asked_of_masters_first_and_of_whoever_answers(
    client: Scripted, calls: QueueCalls
) -> None:
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    client.answers[code] = members("me", "other")
    group = GroupMembers(calls, "g", "me")
    assert client.wait(group.of_topic("T")) == ["me", "other"]
    assert client.of(code)[0][1] == {"consumerGroup": "g"}
    assert client.of(code)[0][0] in (MASTER, OTHER)
    client.asked.clear()
    client.down = {MASTER, OTHER}
    group.begin()
    assert client.wait(group.of_topic("T")) == ["me", "other"]
    asked = [address for address, _ in client.of(code)]
    assert sorted(asked[:2]) == [MASTER, OTHER]
    assert asked[2:] == [SLAVE]
    client.asked.clear()
    assert client.wait(group.of_topic("T")) == ["me", "other"]
    assert client.of(code) == []  # each was asked in this round already
    group.begin()
    client.down = {MASTER, OTHER, SLAVE}
    assert client.wait(group.of_topic("T")) is None


@pytest.mark.parametrize("bad", [refused(2), ok(b"no json"), RemotingTimeout("slow")])
def test_a_broker_that_cannot_say_who_is_there_is_passed_over(
    client: Scripted, calls: QueueCalls, bad: Any
) -> None:
    """Its silence is no empty group: every queue would be given up."""
    good = members("me")
    client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda address, _: (
        good if address == SLAVE else bad
    )
    assert client.wait(GroupMembers(calls, "g", "me").of_topic("T")) == ["me"]


def test_a_broker_that_does_not_know_us_is_told_and_asked_again(
    client: Scripted, calls: QueueCalls
) -> None:
    told: list[str] = []

    async def beat() -> None:
        told.append("beat")

    client.instance.heartbeat_now = beat  # type: ignore[assignment, method-assign]
    client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda *_: (
        members("me", "other") if told else refused(ResponseCode.SYSTEM_ERROR)
    )
    group = GroupMembers(calls, "g", "me")
    assert client.wait(group.of_topic("T")) == ["me", "other"]
    assert told == ["beat"]
    group.begin()
    assert client.wait(group.of_topic("T")) == ["me", "other"]
    assert told == ["beat"]


def test_a_broker_that_never_knows_us_hears_one_heartbeat_a_round(
    client: Scripted, calls: QueueCalls
) -> None:
    """It refuses our heartbeats, say: there would be one for each topic."""
    told: list[str] = []

    async def beat() -> None:
        told.append("beat")

    client.instance.heartbeat_now = beat  # type: ignore[assignment, method-assign]
    client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = members("other")
    client.down = {OTHER, SLAVE}
    group = GroupMembers(calls, "g", "me")
    for _ in range(9):
        assert client.wait(group.of_topic("T")) == ["other"]
    assert told == ["beat"]


# Locks


def test_only_what_the_master_promised_is_locked(client: Scripted, calls: QueueCalls) -> None:
    """An order that two members consume at a time is none."""
    second = msgspec.structs.replace(QUEUE, queue_id=1)
    body = json.dumps(
        {
            "lockOKMQSet": [
                {"topic": "T", "brokerName": "a", "queueId": 1},
                {"topic": "T", "brokerName": "a", "queueId": 7},
            ]
        }
    )
    client.answers[RequestCode.LOCK_BATCH_MQ] = ok(body.encode())
    assert client.wait(calls.lock("g", "me", "a", [QUEUE, second])) == [second]
    ((address, command),) = client.asked
    asked = json.loads(command.body or b"")
    assert (address, asked["consumerGroup"], asked["clientId"]) == (MASTER, "g", "me")
    assert [item["queueId"] for item in asked["mqSet"]] == [0, 1]
    assert client.timeouts == [LOCK_TIMEOUT_MS]


@pytest.mark.parametrize("bad", [refused(1), ok(b"no json"), RemotingTimeout("slow")])
def test_a_lock_that_is_not_confirmed_is_none(
    client: Scripted, calls: QueueCalls, bad: Any
) -> None:
    client.answers[RequestCode.LOCK_BATCH_MQ] = bad
    assert client.wait(calls.lock("g", "me", "a", [QUEUE])) == []
    client.answers[RequestCode.LOCK_BATCH_MQ] = ok()
    assert client.wait(calls.lock("g", "me", "a", [QUEUE])) == []


def test_no_slave_locks_or_unlocks(client: Scripted, calls: QueueCalls) -> None:
    client.instance.routes.brokers["a"] = {1: SLAVE}
    assert client.wait(calls.lock("g", "me", "a", [QUEUE])) == []
    client.wait(calls.unlock("g", "me", "a", [QUEUE]))
    assert client.asked == []


def test_an_unlock_is_one_way_and_never_fails(client: Scripted, calls: QueueCalls) -> None:
    client.wait(calls.unlock("g", "me", "a", [QUEUE]))
    ((address, command),) = client.asked
    asked = json.loads(command.body or b"")
    assert (address, command.code) == (MASTER, RequestCode.UNLOCK_BATCH_MQ)
    assert (asked["consumerGroup"], asked["clientId"], len(asked["mqSet"])) == ("g", "me", 1)
    assert client.timeouts == []
    client.wait(calls.unlock("g", "me", "a", []))
    assert len(client.asked) == 1
    client.down = {MASTER}
    client.wait(calls.unlock("g", "me", "a", [QUEUE]))
    handed: Deferred[None] = Deferred()
    client.oneway = lambda address, command: handed  # type: ignore[method-assign]
    over = Deferred.fromCoroutine(calls.unlock("g", "me", "a", [QUEUE]))
    assert not over.called  # who stops would close the connection before it is written
    handed.errback(RemotingTimeout("slow"))
    client.wait(over)


def test_brokers_take_turns_in_being_asked_first(calls: QueueCalls) -> None:
    """One that is silent would make every member wait, each time."""
    firsts = {calls._candidates(ROUTE)[0] for _ in range(32)}
    assert firsts == {MASTER, OTHER}


# Expressions


def test_an_expression_is_compiled_by_the_first_broker_that_is_there(
    client: Scripted, calls: QueueCalls
) -> None:
    wanted = subscription("T", MessageSelector.by_sql("a > 1"), 1)
    code = RequestCode.CHECK_CLIENT_CONFIG
    client.wait(calls.check_subscription("g", "me", wanted))
    ((_, command),) = client.asked
    asked = json.loads(command.body or b"")
    assert (asked["clientId"], asked["group"]) == ("me", "g")
    assert asked["subscriptionData"]["subString"] == "a > 1"
    client.down = {MASTER, OTHER}
    client.asked.clear()
    client.answers[code] = refused(23)
    with pytest.raises(BrokerRefused):
        client.wait(calls.check_subscription("g", "me", wanted))
    assert client.asked[-1][0] == SLAVE
    client.down.add(SLAVE)
    client.wait(calls.check_subscription("g", "me", wanted))
    client.down.clear()
    client.asked.clear()
    client.answers[code] = RemotingTimeout("slow")
    client.wait(calls.check_subscription("g", "me", wanted))
    assert len(client.asked) == 1


# Giving back


def back(client: Scripted, **more: Any) -> SendBack:
    return SendBack(client.instance, "g", 16, unit_mode=more.get("unit_mode", False))


def test_a_message_is_given_back_to_the_master_of_its_queue(client: Scripted) -> None:
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    taken = message(3)
    taken.commit_log_offset = 99
    assert client.wait(back(client).give_back(taken, 2, "a"))
    expected = {
        "group": "g",
        "originTopic": "T",
        "offset": "99",
        "delayLevel": "2",
        "originMsgId": "id3",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    assert client.of(code) == [(MASTER, expected | {"bname": "a"})]
    assert client.timeouts == [SEND_BACK_TIMEOUT_MS]
    assert client.wait(back(client, unit_mode=True).give_back(taken, 2, None))
    assert client.of(code)[1] == ("127.0.0.1:10911", expected | {"unitMode": "true"})


def test_what_its_broker_does_not_take_back_goes_to_the_retry_topic(client: Scripted) -> None:
    client.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = refused(1)
    given = message(3, KEYS="k", TRAN_MSG="true", MIN_OFFSET="0", MAX_OFFSET="9", WAIT="false")
    given.reconsume_times = 2
    given.flag = 5
    assert client.wait(back(client).give_back(given, 0, "a"))
    address, command = client.asked[-1]
    assert address in (MASTER, OTHER)
    assert (command.body, client.timeouts[-1]) == (b"x", SEND_TIMEOUT_MS)
    header = decode_send_header(command)
    assert (header.topic, header.producer_group) == ("%RETRY%g", "CLIENT_INNER_PRODUCER")
    assert (header.reconsume_times, header.max_reconsume_times, header.flag) == (3, 16, 5)
    assert header.queue_id in (0, 1)
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert decode_properties(header.properties) == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "OFF",
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }


def test_a_copy_that_is_not_stored_for_certain_leaves_the_message_with_us(
    client: Scripted,
) -> None:
    """Who took it for stored would commit the offset, and the message would be gone."""
    code = RequestCode.SEND_MESSAGE_V2
    for answer, is_stored in (
        (refused(ResponseCode.SUCCESS), True),
        (refused(ResponseCode.FLUSH_DISK_TIMEOUT), True),
        (refused(ResponseCode.SLAVE_NOT_AVAILABLE), True),
        (refused(ResponseCode.FLUSH_SLAVE_TIMEOUT), True),
        (refused(ResponseCode.SYSTEM_ERROR), False),
        (RemotingTimeout("slow"), False),
    ):
        client.answers[code] = answer
        assert client.wait(back(client).send_copy(message(3))) is is_stored
    client.answers[code] = ok()
    client.instance.routes.brokers.clear()
    assert not client.wait(back(client).send_copy(message(3)))
    assert not client.wait(back(client).give_back(message(3), 0, "a"))


def test_no_slave_takes_a_message_back(client: Scripted) -> None:
    client.instance.routes.brokers.update({"a": {1: SLAVE}, "b": {1: SLAVE}})
    assert client.wait(back(client).give_back(message(3), 0, "a"))
    assert client.of(RequestCode.CONSUMER_SEND_MSG_BACK) == []
    assert client.asked[-1][0] in (MASTER, OTHER)
    read_only = TopicRoute([QueueRoute("a", 2, 2, 4)], ROUTE.brokers)
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = ok(read_only.encode())
    again = SendBack(client.instance, "g2", 16, unit_mode=False)
    assert not client.wait(again.send_copy(message(3)))


def test_a_copy_for_a_retry_topic_that_is_not_there_yet_is_what_makes_it(client: Scripted) -> None:
    """The first message that a new group gives back would be lost with its offset."""
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, request: (
        ok(ROUTE.encode())
        if (request.ext or {})["topic"] == "TBW102"
        else refused(ResponseCode.TOPIC_NOT_EXIST)
    )
    assert client.wait(back(client).send_copy(message(3)))
    assert decode_send_header(client.asked[-1][1]).topic == "%RETRY%g"


def test_a_first_id_stays_the_first_id(client: Scripted) -> None:
    given = message(3, ORIGIN_MESSAGE_ID="FIRST")
    assert client.wait(back(client).send_copy(given))
    header = decode_send_header(client.asked[-1][1])
    assert decode_properties(header.properties)["ORIGIN_MESSAGE_ID"] == "FIRST"


# Pulls


def record(offset: int, tags: str = "") -> bytes:
    host = message(0).store_host
    text = f"TAGS\x01{tags}" if tags else ""
    return encode_record(
        Record(*(101, 1, 0, 0, offset, 0, 0, 5, host, 6, host, 0, 0, b"x", "T", text))
    )


def pull_of(selector: Any = "*", **more: Any) -> Pull:
    return Pull(QUEUE, subscription("T", selector, 9), 5, 32, 1000, **more)


def api(client: Scripted, *filters: Any) -> PullApi:
    return PullApi(client.instance, "g", BrokerChoice(client.clock.seconds), filters)


PLACES = {"nextBeginOffset": 7, "minOffset": 1, "maxOffset": 9}


def test_a_pull_says_what_is_wanted(client: Scripted) -> None:
    code = RequestCode.PULL_MESSAGE
    client.answers[code] = ok(**PLACES)
    client.wait(api(client).pull(pull_of()))
    expected = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "5",
        "maxMsgNums": "32",
        "sysFlag": "0",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "9",
        "expressionType": "TAG",
        "bname": "a",
    }
    assert client.of(code) == [(MASTER, expected)]
    assert client.timeouts == [1000]
    wanted = pull_of("tag", commit_offset=4, hold_ms=20, send_expression=True, is_lite=True)
    wanted.sub_version = 3
    client.wait(api(client).pull(wanted))
    flags = PULL_COMMIT_OFFSET | PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE
    assert client.of(code)[1][1] == expected | {
        "sysFlag": str(flags),
        "commitOffset": "4",
        "suspendTimeoutMillis": "20",
        "subVersion": "3",
        "subscription": "tag",
    }


def test_a_slave_is_told_no_offset_on_the_way(client: Scripted) -> None:
    """Its own copy would not reach the master, and a lower one would come back from there."""
    asked = api(client)
    asked.choice.suggest(QUEUE, 1)
    client.answers[RequestCode.PULL_MESSAGE] = ok(**PLACES, suggestWhichBrokerId=1)
    pulled = client.wait(asked.pull(pull_of(commit_offset=0)))
    ((address, ext),) = client.of(RequestCode.PULL_MESSAGE)
    assert (address, ext["sysFlag"], pulled.from_slave) == (SLAVE, "0", True)
    client.answers[RequestCode.PULL_MESSAGE] = ok(**PLACES, suggestWhichBrokerId=0)
    assert client.wait(asked.pull(pull_of())).from_slave
    assert not client.wait(asked.pull(pull_of(commit_offset=0))).from_slave
    assert client.of(RequestCode.PULL_MESSAGE)[-1][1]["sysFlag"] == str(PULL_COMMIT_OFFSET)


def test_messages_are_chosen_filtered_and_told_the_ends_of_their_queue(client: Scripted) -> None:
    body = b"".join(record(offset, "other" if offset == 6 else "tag") for offset in range(4, 9))
    client.answers[RequestCode.PULL_MESSAGE] = ok(body, **PLACES)
    asked = api(client, lambda found: found[1:], lambda found: found[:-1])
    pulled = client.wait(asked.pull(pull_of("tag")))
    assert [item.queue_offset for item in pulled.result.msg_found_list] == [5, 7]
    for found in pulled.result.msg_found_list:
        assert (found.properties[MIN_OFFSET], found.properties[MAX_OFFSET]) == ("1", "9")
        assert (found.broker_name, pulled.from_slave) == ("a", False)
    result = pulled.result
    assert (result.next_begin_offset, result.min_offset, result.max_offset) == (7, 1, 9)


def test_only_what_was_found_is_decoded(client: Scripted) -> None:
    not_found = ok(b"rubbish", **PLACES)
    not_found.code = ResponseCode.PULL_NOT_FOUND
    client.answers[RequestCode.PULL_MESSAGE] = not_found
    assert client.wait(api(client).pull(pull_of())).result.msg_found_list == []


@pytest.mark.parametrize("missing", list(PLACES))
def test_an_answer_without_its_offsets_is_refused(client: Scripted, missing: str) -> None:
    client.answers[RequestCode.PULL_MESSAGE] = ok(**{**PLACES, missing: "?"})
    with pytest.raises(BrokerRefused, match="the answer has no"):
        client.wait(api(client).pull(pull_of()))
    client.answers[RequestCode.PULL_MESSAGE] = refused(1)
    with pytest.raises(BrokerRefused, match="no"):
        client.wait(api(client).pull(pull_of()))


def test_a_broker_that_is_silent_is_passed_over_until_it_answers(client: Scripted) -> None:
    asked = api(client)
    client.answers[RequestCode.PULL_MESSAGE] = ok(**PLACES)
    client.down = {MASTER}
    with pytest.raises(RemotingConnectError):
        client.wait(asked.pull(pull_of()))
    assert asked.choice.is_avoided(MASTER)
    client.wait(asked.pull(pull_of()))
    assert client.asked[-1][0] == SLAVE
    asked.choice.failed(SLAVE)
    client.down = set()
    client.wait(asked.pull(pull_of()))
    assert not asked.choice.is_avoided(MASTER)
    refusing = api(client)
    client.answers[RequestCode.PULL_MESSAGE] = ProtocolViolation("rubbish")
    with pytest.raises(ProtocolViolation):
        client.wait(refusing.pull(pull_of()))
    assert not refusing.choice.is_avoided(MASTER)


def test_who_has_no_address_is_looked_up_and_then_missed(client: Scripted) -> None:
    client.answers[RequestCode.PULL_MESSAGE] = ok(**PLACES)
    client.instance.routes.brokers.clear()
    assert client.wait(api(client).pull(pull_of())).result.next_begin_offset == 7
    wanted = pull_of()
    wanted.queue = STRANGE
    with pytest.raises(MQClientError, match="no address of zzz"):
        client.wait(api(client).pull(wanted))


def test_a_broker_that_is_too_old_is_not_asked_for_sql(client: Scripted) -> None:
    client.answers[RequestCode.PULL_MESSAGE] = ok(**PLACES)
    sql = pull_of(MessageSelector.by_sql("a > 1"))
    versions = client.instance._heartbeats.versions
    for version, is_asked in ((0, True), (231, False), (232, True), (1, False)):
        versions[MASTER] = version
        client.asked.clear()
        if is_asked:
            client.wait(api(client).pull(sql))
        else:
            with pytest.raises(MQClientError, match="too old"):
                client.wait(api(client).pull(sql))
            client.wait(api(client).pull(pull_of("tag")))
        assert len(client.asked) == 1
