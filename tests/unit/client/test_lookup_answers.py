"""What lookups make of answers, the sparse ones too: another vendor's broker leaves fields out."""

from typing import Any

import pytest

from rmq_ha.base.errors import ProtocolViolation, RemotingConnectError
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.route_bodies import BrokerRoute, ClusterInfo, QueueRoute, TopicRoute
from rmq_ha.base.wire.send_header import decode_send_header
from rmq_ha.base.wire.stat_bodies import REPLICATION_KEY, TopicOffset
from rmq_ha.client.lookup.accounts import (
    Account,
    AclRules,
    FileVersion,
    acl_rules,
    acl_versions,
    put_account,
)
from rmq_ha.client.lookup.administration import producers_at, put_topic
from rmq_ha.client.lookup.asking import Ask, Asking, drive_at_once
from rmq_ha.client.lookup.brokers import replication_of, topic_offsets
from rmq_ha.client.lookup.groups import (
    EARLIEST,
    LATEST,
    GroupLag,
    QueueLag,
    consume_stats,
    offset_at,
    reset_offset,
)
from rmq_ha.client.lookup.kv_config import kv_of, namesrv_config, set_writes
from rmq_ha.client.lookup.lookups import (
    PlaceId,
    PullTerms,
    cluster_info,
    committed_offset,
    message_at,
    pull_records,
    topic_route,
)
from rmq_ha.client.lookup.pulls import Pull, pull_request, read_pulled
from rmq_ha.client.lookup.requests import pull_request as plain_pull_request
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.lookup.running_info import HeldQueue, RunningInfo, TopicPace, running_info
from rmq_ha.client.lookup.traffic import TrafficCount, growth, waiting
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoRoute
from rmq_ha.client.rules.subscriptions import subscription

QUEUE = MessageQueue("T", "a", 0)
ROUTE = TopicRoute(
    [QueueRoute("a", 2, 2, 6), QueueRoute("b", 2, 2, 6)],
    [BrokerRoute("C", "a", {0: "a:1"}), BrokerRoute("C", "b", {0: "b:1"})],
)


def of(asking: Asking[Any], body: object = None, code: int = 0, **ext: str) -> Any:
    """What comes of it, when each answer is this one; bytes are taken as they are."""
    data = body if isinstance(body, bytes) or body is None else encode(body)
    return drive_at_once(asking, lambda ask: RemotingCommand(code, ext or None, data))


def header_of(asking: Asking[Any]) -> dict[str, str]:
    """Of its first request."""
    return next(asking).command.ext or {}


def spans(minute: int, hour: int, day: int) -> dict[str, Any]:
    sums = {"statsMinute": minute, "statsHour": hour, "statsDay": day}
    return {name: {"sum": sum_, "tps": 1.5} for name, sum_ in sums.items()}


@pytest.mark.parametrize("sums", [(7, 2, 3), (2, 7, 3), (2, 3, 7)])
def test_the_growth_of_a_day_is_the_most_that_any_span_has_seen(sums: tuple[int, int, int]) -> None:
    assert of(growth("b:1", "N", "T"), spans(*sums)) == TrafficCount(1.5, 7)


def test_nothing_has_grown_where_nothing_was_counted() -> None:
    """The broker has no such figure since it started; an answer without any is another thing."""
    assert of(growth("b:1", "N", "T"), None, ResponseCode.SYSTEM_ERROR) == TrafficCount(0.0, 0)
    with pytest.raises(ProtocolViolation):
        of(growth("b:1", "N", "T"), None)


def test_what_waits_is_summed_by_topic_and_group() -> None:
    def table(topic: str, *queues: tuple[int, int]) -> dict[str, Any]:
        return {
            "offsetTable": {
                MessageQueue(topic, "a", number): {
                    "brokerOffset": end,
                    "consumerOffset": place,
                }
                for number, (end, place) in enumerate(queues)
            }
        }

    groups = [{"g": [table("T", (10, 4), (5, 5)), table("U", (3, 1)), {}]}, {"h": [table("T")]}]
    assert of(waiting("b:1"), {"consumeStatsList": groups}) == {("T", "g"): 6, ("U", "g"): 2}
    for nothing in (None, {}, b'{"consumeStatsList":null}'):
        assert of(waiting("b:1"), nothing) == {}


def test_a_broker_that_says_little_of_its_accounts_is_read_all_the_same() -> None:
    account = {"accessKey": "k", "admin": True, "topicPerms": ["T=PUB"], "groupPerms": ["g=SUB"]}
    body = {"globalWhiteAddrs": ["10.*"], "plainAccessConfigs": [account, {"accessKey": "p"}]}
    full = Account("k", admin=True, topic_perms=("T=PUB",), group_perms=("g=SUB",))
    assert of(acl_rules("b:1"), body) == AclRules(["10.*"], {"k": full, "p": Account("p")})
    assert of(acl_rules("b:1"), b'{"plainAccessConfigs":null}') == AclRules([], {})
    with pytest.raises(ProtocolViolation):
        of(acl_rules("b:1"), None)
    text = '{"/f":{"counter":3,"timestamp":9}}'
    versions = of(acl_versions("b:1"), allAclFileVersion=text, brokerName="a")
    assert versions == [FileVersion("a", "/f", 3, 9)]
    assert of(acl_versions("b:1")) == []
    assert of(acl_versions("b:1"), brokerName="a") == []


def test_an_account_is_sent_without_what_shall_stay_as_it_is() -> None:
    account = Account("k", "s", None, True, None, "SUB", ("T=PUB", "U=SUB"), ())
    assert header_of(put_account("b:1", account)) == {
        "accessKey": "k",
        "secretKey": "s",
        "admin": "true",
        "defaultGroupPerm": "SUB",
        "topicPerms": "T=PUB,U=SUB",
    }
    account = Account("k", group_perms=("g=SUB", "h=DENY"))
    assert header_of(put_account("b:1", account)) == {
        "accessKey": "k",
        "admin": "false",
        "groupPerms": "g=SUB,h=DENY",
    }


def test_a_name_servers_keys_settings_and_writers() -> None:
    assert of(kv_of("n:1", "N"), {"table": {"a": "b"}}) == {"a": "b"}
    for nothing in (None, {}, b'{"table":null}'):
        assert of(kv_of("n:1", "N"), nothing) == {}
    assert of(kv_of("n:1", "N"), b"rubbish", ResponseCode.QUERY_NOT_FOUND) == {}
    assert of(namesrv_config("n:1"), b"a=b\nc=d\n") == {"a": "b", "c": "d"}
    assert of(namesrv_config("n:1")) == {}
    counts = {"addTopicCount": "2", "wipeTopicCount": "3"}
    for allowed, code, count in (
        (True, RequestCode.ADD_WRITE_PERM_OF_BROKER, 2),
        (False, RequestCode.WIPE_WRITE_PERM_OF_BROKER, 3),
    ):
        assert next(set_writes("n:1", "a", allowed=allowed)).command.code == code
        assert of(set_writes("n:1", "a", allowed=allowed), **counts) == count


def test_a_member_says_what_it_holds_how_fast_it_is_and_what_its_threads_do() -> None:
    held = {QUEUE: {"commitOffset": 5, "cachedMsgCount": 2}}
    other = MessageQueue("T", "b", 0)
    pace = {"consumeOKTPS": 1.0, "consumeFailedTPS": 2.0, "consumeRT": 3.0}
    body = {"mqTable": held | {other: {}}, "statusTable": {"T": pace}, "jstack": "main"}
    assert of(running_info("b:1", "g", "me"), body) == RunningInfo(
        [HeldQueue(QUEUE, 5, 2), HeldQueue(other, 0, 0)], [TopicPace("T", 1.0, 2.0, 3.0)], "main"
    )
    for nothing in (None, {}, b'{"statusTable":null,"jstack":null,"mqTable":null}'):
        assert of(running_info("b:1", "g", "me"), nothing) == RunningInfo([], [], "")
    for stacks, wanted in ((True, "true"), (False, "false")):
        asked = header_of(running_info("b:1", "g", "me", stacks=stacks))
        assert asked["jstackEnable"] == wanted


def test_a_group_has_a_lag_though_a_broker_leaves_out_what_is_not_known() -> None:
    """No time of the last message is 0; no rate, or none that is a number, is 0 as well."""

    def answer(body: bytes | None) -> GroupLag:
        def of_broker(ask: Ask) -> RemotingCommand:
            is_route = ask.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            return RemotingCommand(0, {}, ROUTE.encode() if is_route else body)

        return drive_at_once(consume_stats("g"), of_broker)

    table = {QUEUE: {"brokerOffset": 9, "consumerOffset": 4}}
    two = QueueLag(QUEUE, 9, 4, 0)
    many = {MessageQueue("T", "a", number): item for number in range(3) for item in table.values()}
    assert len(answer(encode({"offsetTable": many})).queues) == 6
    for tps in ("fast", [1]):
        found = answer(encode({"offsetTable": table, "consumeTps": tps}))
        assert (found, found.lag) == (GroupLag([two, two], 0.0), 10)
    assert answer(encode({"offsetTable": table})) == GroupLag([two, two], 0.0)
    for nothing in (None, b"{}"):
        assert answer(nothing) == GroupLag([], 0.0)
    for item in ({"brokerOffset": 9}, {"brokerOffset": 9, "consumerOffset": "x"}, [], 3):
        with pytest.raises(ProtocolViolation, match="unexpected form"):
            answer(encode({"offsetTable": {QUEUE: item}}))


def test_a_group_whose_topic_is_not_named_is_asked_about_of_the_whole_cluster() -> None:
    """It has no retry topic, so nothing says which brokers know it."""
    cluster = ClusterInfo({item.broker_name: item for item in ROUTE.brokers})

    def answer(ask: Ask) -> RemotingCommand:
        if ask.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST)
        if ask.command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return RemotingCommand(0, {}, cluster.encode())
        assert ask.command.ext == {"consumerGroup": "g"}
        return RemotingCommand(0, {}, encode({"consumeTps": 2.0}))

    assert drive_at_once(consume_stats("g"), answer) == GroupLag([], 4.0)
    with pytest.raises(NoRoute):
        drive_at_once(consume_stats("g", "T"), answer)


def test_a_time_in_a_queue_is_its_end_its_beginning_or_searched_for() -> None:
    for timestamp, code in (
        (LATEST, RequestCode.GET_MAX_OFFSET),
        (EARLIEST, RequestCode.GET_MIN_OFFSET),
        (1, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
        (-2, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ):
        assert next(offset_at({0: "a:1"}, QUEUE, timestamp)).command.code == code
    assert header_of(offset_at({0: "a:1"}, QUEUE, 7))["timestamp"] == "7"


def test_a_reset_says_of_each_queue_where_it_was_and_needs_each_master() -> None:
    """What consumers say that they came to counts; of what they leave out, what was asked for."""

    def answer(ask: Ask) -> RemotingCommand:
        code = ask.command.code
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return RemotingCommand(0, {}, ROUTE.encode())
        if code == RequestCode.QUERY_CONSUMER_OFFSET:
            none = (ask.command.ext or {})["queueId"] == "1"
            return RemotingCommand(ResponseCode.QUERY_NOT_FOUND if none else 0, {"offset": "4"})
        table = {MessageQueue("T", "a", 1): 40, MessageQueue("T", "b", 0): 50}
        return RemotingCommand(0, {"offset": "30"}, encode({"offsetTable": table}))

    moved = drive_at_once(reset_offset("g", "T", LATEST), answer).moved
    assert [(item.queue.broker_name, *item[1:]) for item in moved] == [
        ("a", 4, 30),
        ("a", -1, 40),
        ("b", 4, 50),
        ("b", -1, 30),
    ]
    half = TopicRoute(ROUTE.queues, [ROUTE.brokers[0], BrokerRoute("C", "b", {1: "s:1"})])
    with pytest.raises(MQClientError, match="b has no master"):
        drive_at_once(
            reset_offset("g", "T", LATEST, apply=False),
            lambda ask: RemotingCommand(0, {"offset": "3"}, half.encode()),
        )


def test_an_answer_without_a_body_is_no_route_and_no_cluster_of_rubbish() -> None:
    with pytest.raises(BrokerRefused, match="name server"):
        of(topic_route("T"), None)
    with pytest.raises(NoRoute, match="cannot be read"):
        of(topic_route("T"), b"rubbish")
    assert of(cluster_info(), None) == of(cluster_info(), b"{}")
    with pytest.raises(BrokerRefused):
        of(committed_offset({0: "a:1"}, "g", QUEUE), None)
    with pytest.raises(BrokerRefused, match="no message"):
        of(message_at(PlaceId("b:1", 9)), None)


def test_who_is_silent_is_passed_over_until_nobody_is_left() -> None:
    """It is remembered, also by the next pull."""
    choice = BrokerChoice(lambda: 0.0)
    asked: list[str] = []

    def refuse(ask: Ask) -> RemotingCommand:
        asked.append(ask.address)
        raise RemotingConnectError(ask.address)

    with pytest.raises(RemotingConnectError):
        drive_at_once(
            pull_records(choice, {0: "m:1", 1: "s:1", 2: "t:1"}, QUEUE, 0, PullTerms("g")), refuse
        )
    assert asked == ["m:1", "s:1", "t:1"]
    assert all(map(choice.is_avoided, asked))


@pytest.mark.parametrize(
    ("wish", "is_master", "header"),
    [
        ({}, True, {"sysFlag": "0", "commitOffset": "0", "subVersion": "77"}),
        ({"commit_offset": 0}, True, {"sysFlag": "1", "commitOffset": "0"}),
        ({"commit_offset": 6}, True, {"sysFlag": "1", "commitOffset": "6"}),
        ({"commit_offset": 6}, False, {"sysFlag": "0", "commitOffset": "6"}),
        ({"hold_ms": 15}, False, {"sysFlag": "2", "suspendTimeoutMillis": "15"}),
        ({"send_expression": True}, True, {"sysFlag": "4", "subscription": "tag"}),
        ({"is_lite": True}, True, {"sysFlag": "16"}),
        ({"sub_version": 0}, True, {"subVersion": "0"}),
    ],
)
def test_a_pull_asks_for_what_is_wished_and_for_no_more(
    wish: dict[str, Any], is_master: bool, header: dict[str, str]
) -> None:
    pull = Pull(QUEUE, subscription("T", "tag", 77), 3, 7, 1000, **wish)
    asked = pull_request("g", pull, is_master=is_master).ext or {}
    assert {name: asked[name] for name in header} == header
    assert ("subscription" in asked) is ("subscription" in header)
    assert asked["expressionType"] == "TAG"


def test_what_a_broker_refuses_is_no_pull_though_it_names_places() -> None:
    places = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "9"}
    with pytest.raises(BrokerRefused, match="b:1"):
        read_pulled(RemotingCommand(ResponseCode.SYSTEM_ERROR, places), "b:1", 0)
    found = read_pulled(RemotingCommand(0, places | {"suggestWhichBrokerId": "-1"}), "b:1", 2)
    assert (found.body, found.suggest_which_broker_id, found.broker_id) == (b"", 0, 2)


def test_of_records_side_by_side_the_first_is_the_one_that_begins_there() -> None:
    here = Address(b"\x7f\0\0\1", 1)
    records = [
        encode_record(Record(*(0, 1, 0, 0, at, 0, 0, 5, here, 6, here, 7, 8, b"x", "T", "")))
        for at in (3, 4)
    ]
    assert of(message_at(PlaceId("b:1", 9)), b"".join(records)).queue_offset == 3


def test_a_topic_of_an_operator_is_ordered_if_he_says_so() -> None:
    for order, text in ((True, "true"), (False, "false")):
        assert header_of(put_topic("b:1", TopicConfig("T", order=order)))["order"] == text


def test_a_producer_that_tells_no_version_has_none() -> None:
    body = {"data": {"PG": [{"clientId": "me", "remoteIP": "/10.0.0.1:7"}]}}
    ((connection,),) = of(producers_at("b:1"), body).values()
    assert (connection.client_id, connection.client_address) == ("me", "10.0.0.1:7")
    assert (connection.language, connection.version) == (None, 0)
    assert of(producers_at("b:1")) == of(producers_at("b:1"), b'{"data":null}') == {}


@pytest.mark.parametrize("text", ["rubbish", "[" * 100_000, "[]", "3"])
def test_what_no_broker_of_ours_says_of_its_pair_is_nothing(text: str) -> None:
    assert replication_of({REPLICATION_KEY: text}) == {}
    assert replication_of({}) == {}
    assert replication_of({REPLICATION_KEY: '{"a":1}'}) == {"a": 1}


def test_where_the_queues_of_a_topic_are_and_that_there_may_be_none() -> None:
    item = {"minOffset": 1, "maxOffset": 2, "lastUpdateTimestamp": 3}
    table = {"offsetTable": {QUEUE: item}}
    assert of(topic_offsets("b:1", "T"), table) == {QUEUE: TopicOffset(1, 2, 3)}
    assert of(topic_offsets("b:1", "T")) == {}
    assert of(topic_offsets("b:1", "T"), b"rubbish", ResponseCode.TOPIC_NOT_EXIST) == {}
    for wrong in ({"minOffset": 1}, {"minOffset": "x", "maxOffset": 2}, 3):
        with pytest.raises(ProtocolViolation, match="another form"):
            of(topic_offsets("b:1", "T"), {"offsetTable": {QUEUE: wrong}})


def test_requests_of_plain_values() -> None:
    request = send_request("g", "T", 3, b"x", "", 9)
    assert request.body == b"x"
    assert send_request("g", "T", 3, b"", "", 9).body is None
    header = decode_send_header(request)
    assert (header.default_topic_queue_nums, header.queue_id, header.born_timestamp) == (4, 3, 9)
    for hold_ms, flag in ((0, "4"), (1, "6")):
        asked = plain_pull_request("g", "T", 3, 5, hold_ms=hold_ms).ext or {}
        assert (asked["sysFlag"], asked["suspendTimeoutMillis"]) == (flag, str(hold_ms))
