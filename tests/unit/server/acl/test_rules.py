"""The decision about a request."""

from typing import Any

import pytest

from rmq_ha.base.errors import AccessRefused, RequestRejected
from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.send_header import SendHeader, encode_send_header
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.acl.reading import read_file
from rmq_ha.server.acl.rules import Rules

FILE = """
globalWhiteRemoteAddresses: [10.9.9.*]
accounts:
- {accessKey: adminadmin, secretKey: adminsecret, admin: true}
- {accessKey: limitedadmin, secretKey: adminsecret, admin: true, topicPerms: [a=PUB]}
- accessKey: useruser
  secretKey: usersecret
  whiteRemoteAddress: 10.8.8.8
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [pub=PUB, sub=SUB, both=PUB|SUB, none=DENY, "spaced = SUB"]
  groupPerms: [denied=DENY, pubgroup=PUB]
- {accessKey: nothing, secretKey: usersecret}
"""
ADMIN = Credentials("adminadmin", "adminsecret")
LIMITED = Credentials("limitedadmin", "adminsecret")
USER = Credentials("useruser", "usersecret")
NOTHING = Credentials("nothing", "usersecret")


def rules(text: str = FILE, strict: bool = True) -> Rules:
    return Rules([read_file("f", text.encode())], strict=strict, reply_topic="c_REPLY_TOPIC")


def refusal(request: RemotingCommand, made: Rules | None = None, host: str = "10.0.0.1") -> str:
    """Why not; empty when it may."""
    try:
        (made or rules()).check(request, host)
    except RequestRejected as error:
        code, remark = error.code, error.remark
    else:
        return ""
    assert code == 1
    assert "secret" not in remark.replace("secret key", "")
    return remark


def send(topic: str, group: str = "g", v1: bool = False) -> RemotingCommand:
    if not v1:
        return send_request(group, topic, 0, b"hi", "", 0)
    header = SendHeader(producer_group=group, topic=topic, queue_id=0)
    ext = encode_send_header(header, v1=True)
    return RemotingCommand(RequestCode.SEND_MESSAGE, {**ext, "group": group}, b"hi")


def command(code: int, **ext: str) -> RemotingCommand:
    return RemotingCommand(code, ext)


def heartbeat(group: str, topic: str, *others: str) -> RemotingCommand:
    """Of a client with this group, and with others behind it."""
    consumers = [
        ConsumerData(name, subscriptions=[SubscriptionData(topic, "*")])
        for name in (group, *others)
    ]
    return RemotingCommand(RequestCode.HEART_BEAT, None, HeartbeatData("c", consumers).encode())


def check_client(group: str, topic: str) -> RemotingCommand:
    subscription = {"topic": topic, "subString": "*"}
    body = {"clientId": "c", "group": group, "subscriptionData": subscription}
    return RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, None, fastjson.encode(body))


def test_who_is_not_known_is_refused() -> None:
    request = send("pub")
    assert "No accessKey is configured" in refusal(request)
    assert "No accessKey is configured" in refusal(RemotingCommand(28))
    nobody = sign(request, Credentials("nobodynobody", "usersecret"))
    assert "No acl config for nobodynobody" in refusal(nobody, rules(strict=False))


def test_a_wrong_key_and_a_wrong_secret_look_alike() -> None:
    """Who guesses learns no access key; the log says which it was."""
    reasons, remarks = set(), set()
    for credentials in (Credentials("useruser", "othersecret"), Credentials("unkn0wn!", "x")):
        with pytest.raises(AccessRefused) as refused:
            rules().check(sign(send("pub"), credentials), "10.0.0.1")
        reasons.add(refused.value.reason)
        remarks.add(refused.value.remark.replace(credentials.access_key, "KEY"))
    assert len(remarks) == 1
    assert reasons == {
        "accessKey=useruser: the secret is wrong",
        "accessKey=unkn0wn!: there is no such account",
    }


def test_a_wrong_signature_is_refused() -> None:
    wrong = sign(send("pub"), Credentials("useruser", "othersecret"))
    assert "Check signature failed for accessKey=useruser" in refusal(wrong)
    signed = sign(send("pub"), USER)
    assert refusal(signed) == ""
    assert signed.ext is not None
    del signed.ext["Signature"]
    assert "Check signature failed" in refusal(signed)
    for change in ({"b": "both"}, {"SecurityToken": "x"}, {"x": "y"}):
        signed = sign(send("pub"), USER)
        assert signed.ext is not None
        signed.ext.update(change)
        assert "Check signature failed" in refusal(signed)
    signed = sign(send("pub"), USER)
    signed.body = b"ho"
    assert "Check signature failed" in refusal(signed)


def test_white_addresses_are_asked_for_nothing() -> None:
    made = rules()
    for _ in range(2):
        assert refusal(command(RequestCode.DELETE_TOPIC_IN_BROKER), made, "10.9.9.1") == ""


def test_what_only_administrators_may_is_theirs_by_signature_or_by_address() -> None:
    made, request = rules(), command(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert made.check_administrator(request, "10.9.9.1") is None
    grant = made.check_administrator(sign(request, ADMIN), "10.0.0.1")
    assert grant is not None
    assert grant.is_admin
    for asked in (request, sign(request, USER)):
        with pytest.raises(AccessRefused):
            made.check_administrator(asked, "10.0.0.1")


@pytest.mark.parametrize("strict", [True, False])
def test_the_white_address_of_an_account_saves_it_the_signature_only(strict: bool) -> None:
    made = rules(strict=strict)
    wrong = Credentials("useruser", "othersecret")
    assert refusal(sign(send("pub"), wrong), made, "10.8.8.8") == ""
    assert refusal(sign(send("pub"), wrong), made, "10.8.8.9") != ""
    assert refusal(send("pub"), made, "10.8.8.8") != ""  # the account's own list needs its key
    for request in (send("none"), command(RequestCode.UPDATE_BROKER_CONFIG)):
        reason = refusal(sign(request, wrong), made, "10.8.8.8")
        assert (reason != "") is strict  # 4.9.7 asks nothing any more


def test_a_query_by_unique_key_is_signed_without_its_mark() -> None:
    request = sign(command(RequestCode.QUERY_MESSAGE, topic="sub", key="k"), USER)
    assert request.ext is not None
    request.ext["_UNIQUE_KEY_QUERY"] = "true"
    assert refusal(request) == ""


JAVA_ALLOWED = [
    send("pub"),
    send("both"),
    send("both", v1=True),
    send("%RETRY%g", "g"),
    RemotingCommand(RequestCode.SEND_MESSAGE, {"topic": "%RETRY%g"}, b"x"),
    RemotingCommand(RequestCode.SEND_MESSAGE, {"group": "g"}, b"x"),
    send("RMQ_SYS_TRACE_TOPIC"),
    pull_request("g", "sub", 0, 0),
    pull_request("g", "spaced", 0, 0),
    command(RequestCode.PULL_MESSAGE),
    command(RequestCode.QUERY_MESSAGE, topic="both"),
    command(RequestCode.CONSUMER_SEND_MSG_BACK, group="g"),
    command(RequestCode.UNREGISTER_CLIENT, clientID="c", producerGroup="denied"),
    command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g"),
    command(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="sub"),
    command(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="denied", topic="none"),
    command(RequestCode.END_TRANSACTION, producerGroup="denied"),
    command(RequestCode.GET_BROKER_CLUSTER_ACL_INFO),
    command(9999),
    RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO),
    heartbeat("g", "sub"),
]
JAVA_DENIED = [
    (send("none"), "No default permission for topic:none: accessKey=useruser needs PUB, the "
                   "account's entry denies it"),
    (send("sub"), "needs PUB, the account's entry does not include PUB"),
    (send("other"), "topic:other: accessKey=useruser needs PUB, the account's default denies it"),
    (send("other", v1=True), "topic:other"),
    (send("%RETRY%denied", "denied"), "group:denied: accessKey=useruser needs SUB"),
    (send("%RETRY%denied", "denied", v1=True), "group:denied"),
    (pull_request("g", "pub", 0, 0), "topic:pub"),
    (pull_request("denied", "sub", 0, 0), "group:denied"),
    (pull_request("pubgroup", "sub", 0, 0), "group:pubgroup"),
    (pull_request("g", "RMQ_SYS_TRACE_TOPIC", 0, 0), "topic:RMQ_SYS_TRACE_TOPIC"),
    (command(RequestCode.QUERY_MESSAGE, topic="none"), "topic:none"),
    (command(RequestCode.CONSUMER_SEND_MSG_BACK, group="denied"), "group:denied"),
    (command(RequestCode.UNREGISTER_CLIENT, consumerGroup="denied"), "group:denied"),
    (command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="denied"), "group:denied"),
    (command(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="pub"), "topic:pub"),
    (command(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="denied", topic="sub"), "denied"),
    (heartbeat("denied", "sub"), "group:denied"),
    (heartbeat("g", "pub"), "topic:pub"),
    (heartbeat("g", "sub", "denied"), "group:denied"),
    (RemotingCommand(RequestCode.HEART_BEAT), "request 34 needs a body"),
    (heartbeat("g", ["sub"]), "topic"),  # type: ignore[arg-type]
    (RemotingCommand(RequestCode.HEART_BEAT, None, b"xx"), "the body of request 34"),
]  # fmt: skip


def half(topic: str, group: str, owner: str = "") -> RemotingCommand:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{owner or group}\x02"
    return send_request(group, topic, 0, b"hi", properties, 0)


# What the table makes of the same account: docs/security.md.
ALLOWED = [
    send("pub"),
    send("both"),
    send("both", v1=True),
    send("%RETRY%g", "g"),
    send("RMQ_SYS_TRACE_TOPIC"),
    half("pub", "pubgroup"),
    pull_request("g", "sub", 0, 0),
    pull_request("g", "spaced", 0, 0),
    pull_request("g", "%RETRY%g", 0, 0),
    command(RequestCode.QUERY_MESSAGE, topic="both"),
    command(RequestCode.CONSUMER_SEND_MSG_BACK, group="g", offset="0"),
    command(RequestCode.UNREGISTER_CLIENT, clientID="c", producerGroup="denied"),
    command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g"),
    command(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="sub"),
    command(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="%RETRY%g"),
    command(RequestCode.GET_MAX_OFFSET, topic="pub"),
    command(RequestCode.END_TRANSACTION, producerGroup="pubgroup", commitLogOffset="0"),
    heartbeat("g", "sub"),
    check_client("g", "sub"),
]
NEEDS_ADMIN = "Need admin permission"
DENIED = [
    *[item for item in JAVA_DENIED if item[0].code != RequestCode.CONSUMER_SEND_MSG_BACK],
    (command(RequestCode.CONSUMER_SEND_MSG_BACK, group="denied", offset="0"), "group:denied"),
    (command(RequestCode.PULL_MESSAGE), "the header field consumerGroup is missing"),
    (RemotingCommand(RequestCode.SEND_MESSAGE, {}, b"x"), "the header field topic is missing"),
    (half("pub", "g"), "group:g: accessKey=useruser needs PUB"),
    (half("pub", "pubgroup", owner="g"), "group:g: accessKey=useruser needs PUB"),
    (half("sub", "pubgroup"), "topic:sub"),
    (send("%RETRY%g", "denied"), "group:denied: accessKey=useruser needs SUB"),
    (command(RequestCode.END_TRANSACTION, producerGroup="g", commitLogOffset="0"), "group:g"),
    (command(RequestCode.END_TRANSACTION, producerGroup="pubgroup", commitLogOffset="x"), "number"),
    (command(RequestCode.GET_MAX_OFFSET, topic="none"), "topic:none"),
    (check_client("denied", "sub"), "group:denied"),
    (check_client("g", "pub"), "topic:pub"),
    (RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, None, b"xx"), "the body of request 4"),
    (RemotingCommand(RequestCode.LOCK_BATCH_MQ, None, b"xx"), "the body of request 4"),
    (send("SCHEDULE_TOPIC_XXXX"), NEEDS_ADMIN),
    (pull_request("g", "SCHEDULE_TOPIC_XXXX", 0, 0), NEEDS_ADMIN),
    (command(RequestCode.GET_BROKER_RUNTIME_INFO), NEEDS_ADMIN),
    (command(RequestCode.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="g"), NEEDS_ADMIN),
    (command(RequestCode.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="g", topic=" "), NEEDS_ADMIN),
]


@pytest.mark.parametrize("request_", ALLOWED, ids=lambda item: f"{item.code}-{item.ext}")
def test_what_is_granted_passes(request_: RemotingCommand) -> None:
    assert refusal(sign(request_, USER)) == ""


@pytest.mark.parametrize(("request_", "reason"), DENIED)
def test_what_is_not_granted_is_refused(request_: RemotingCommand, reason: str) -> None:
    assert reason in refusal(sign(request_, USER))


@pytest.mark.parametrize("request_", JAVA_ALLOWED, ids=lambda item: f"{item.code}-{item.ext}")
def test_what_4_9_7_lets_pass(request_: RemotingCommand) -> None:
    assert refusal(sign(request_, USER), rules(strict=False)) == ""


@pytest.mark.parametrize(("request_", "reason"), JAVA_DENIED)
def test_what_4_9_7_refuses(request_: RemotingCommand, reason: str) -> None:
    assert reason in refusal(sign(request_, USER), rules(strict=False))


def test_an_account_without_words_may_use_nothing() -> None:
    assert "topic:pub" in refusal(sign(send("pub"), NOTHING))
    assert "group:g" in refusal(sign(send("%RETRY%g", "g"), NOTHING))
    for topic in ("RMQ_SYS_TRACE_TOPIC", "c_REPLY_TOPIC"):
        assert f"topic:{topic}" in refusal(sign(send(topic), NOTHING))
    assert refusal(sign(command(28), NOTHING), rules(strict=False)) == ""  # as 4.9.7


WIDE = """
accounts:
- accessKey: wideuser
  secretKey: usersecret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [Secret=DENY, TBW102=SUB, SCHEDULE_TOPIC_XXXX=SUB]
  groupPerms: [denied=DENY]
"""


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("Other", ""),
        ("BenchmarkTest", ""),
        ("TBW102", ""),  # named
        ("%DLQ%g", ""),
        ("%DLQ%denied", "topic:%DLQ%denied"),
        ("SCHEDULE_TOPIC_XXXX", NEEDS_ADMIN),  # named, but it holds what Secret is for
        ("RMQ_SYS_TRANS_HALF_TOPIC", NEEDS_ADMIN),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", NEEDS_ADMIN),
        ("TRANS_CHECK_MAX_TIME_TOPIC", NEEDS_ADMIN),
        ("OFFSET_MOVED_EVENT", NEEDS_ADMIN),
        ("RMQ_SYS_TRACE_TOPIC", "the account's default does not include SUB"),
        ("rmq_sys_anything", "the account's default does not include SUB"),
        ("DefaultCluster_REPLY_TOPIC", "the account's default does not include SUB"),
    ],
)
def test_a_default_is_for_topics_of_users(topic: str, reason: str) -> None:
    read = read_file("f", WIDE.encode())
    made = Rules([read], strict=True, reply_topic="DefaultCluster_REPLY_TOPIC")
    request = sign(pull_request("g", topic, 0, 0), Credentials("wideuser", "usersecret"))
    assert reason in refusal(request, made)
    assert bool(reason) == bool(refusal(request, made))


def test_producer_groups_are_settled_by_who_may_publish_with_them() -> None:
    for account, strict, expected in (
        (USER, True, {"pubgroup"}),
        (USER, False, {"g", "pubgroup", "denied"}),
        (ADMIN, True, {"g", "pubgroup", "denied"}),
        (LIMITED, True, set[str]()),
    ):
        beat = RemotingCommand(RequestCode.HEART_BEAT, None, HeartbeatData("c").encode())
        grant = rules(strict=strict).check(sign(beat, account), "10.0.0.1")
        assert grant is not None
        assert grant.account == account.access_key
        groups = ("g", "pubgroup", "denied")
        assert {group for group in groups if grant.may_settle(group)} == expected


def test_a_code_without_a_row_is_refused() -> None:
    for account in (USER, ADMIN):
        with pytest.raises(RequestRejected) as refused:
            rules().check(sign(command(9999), account), "10.0.0.1")
        assert refused.value.code == 3  # as a broker answers that has no such code
        assert "not in the table of permissions" in refused.value.remark


def test_an_admin_without_entries_may_everything() -> None:
    for item, reason in [*[(item, "") for item in ALLOWED], *DENIED]:
        if not any(word in reason for word in ("body", "missing", "number")) and reason != "topic":
            assert refusal(sign(item, ADMIN)) == ""
    assert refusal(sign(send("a"), LIMITED)) == ""
    assert "topic:b" in refusal(sign(send("b"), LIMITED))


@pytest.mark.parametrize("code", [17, 25, 200, 207, 215])
def test_admin_codes_need_an_admin(code: int) -> None:
    for strict in (True, False):
        made = rules(strict=strict)
        assert f"Need admin permission for request code={code}" in refusal(
            sign(command(code), USER), made
        )
        assert refusal(sign(command(code), LIMITED), made) == ""


@pytest.mark.parametrize("code", [50, 51, 52, 53, 54])
def test_who_could_make_himself_admin_needs_to_be_one(code: int) -> None:
    assert "Need admin" in refusal(sign(command(code), USER))
    assert refusal(sign(command(code), ADMIN)) == ""
    assert refusal(sign(command(code), USER), rules(strict=False)) == ""  # as 4.9.7


def test_a_batch_needs_what_a_message_needs() -> None:
    batch = send("sub")
    batch.code = RequestCode.SEND_BATCH_MESSAGE
    assert "topic:sub" in refusal(sign(batch, USER))
    assert refusal(sign(batch, USER), rules(strict=False)) == ""  # as 4.9.7


@pytest.mark.parametrize("v1", [True, False])
def test_a_reply_needs_what_a_message_needs_but_for_reply_topics(v1: bool) -> None:
    reply = send("sub", v1=v1)
    reply.code = (
        RequestCode.SEND_REPLY_MESSAGE if v1 else RequestCode.SEND_REPLY_MESSAGE_V2
    )  # it is stored in the topic that it names
    assert "topic:sub" in refusal(sign(reply, USER))
    assert refusal(sign(reply, USER), rules(strict=False)) == ""  # as 4.9.7
    for topic, account, reason in (
        ("c_REPLY_TOPIC", USER, ""),  # who read the question may answer it
        ("d_REPLY_TOPIC", USER, "topic:d_REPLY_TOPIC"),  # of another cluster
        ("c_REPLY_TOPIC", NOTHING, "topic:c_REPLY_TOPIC"),
    ):
        reply = send(topic, v1=v1)
        reply.code = RequestCode.SEND_REPLY_MESSAGE if v1 else RequestCode.SEND_REPLY_MESSAGE_V2
        assert reason in refusal(sign(reply, account))
        assert bool(reason) == bool(refusal(sign(reply, account)))


@pytest.mark.parametrize("v1", [True, False])
def test_who_sends_to_a_retry_topic_must_read_with_its_group(v1: bool) -> None:
    foreign = send("%RETRY%denied", group="mygroup", v1=v1)
    assert "group:denied" in refusal(sign(foreign, USER))
    assert refusal(sign(foreign, USER), rules(strict=False)) == ""  # as 4.9.7
    assert refusal(sign(send("%RETRY%mygroup", group="mygroup", v1=v1), USER)) == ""


def test_the_first_file_that_has_a_key_defines_it() -> None:
    first = read_file("first", b"accounts: [{accessKey: useruser, secretKey: firstsecret}]")
    second = read_file("second", FILE.encode())
    made = Rules([first, second], strict=True)
    assert made.home["useruser"] == "first"
    assert made.accounts["useruser"].secret_key == "firstsecret"
    assert made.notices == ["second: account useruser has no effect: first defines it"]
    assert "Check signature" in refusal(sign(send("pub"), USER), made)
    assert refusal(sign(command(28), ADMIN), made) == ""


def test_rules_that_let_nobody_in_say_so() -> None:
    assert "nobody is let in" in rules("accounts: []").notices[0]
    assert rules("globalWhiteRemoteAddresses: ['*']").notices == []


def test_hosts_of_a_flood_fill_no_memory() -> None:
    made: Any = rules()
    for number in range(10_000):
        refusal(command(28), made, f"10.{number >> 8}.{number & 255}.1")
        assert len(made._hosts) == number % 4096 + 1


def test_every_white_address_lets_in() -> None:
    white = rules("globalWhiteRemoteAddresses: [10.1.1.1, 10.2.2.*]\naccounts: []\n")
    assert [refusal(send("t"), white, host) == "" for host in ("10.1.1.1", "10.2.2.7")] == [
        True
    ] * 2
    assert refusal(send("t"), white, "10.3.3.3")
