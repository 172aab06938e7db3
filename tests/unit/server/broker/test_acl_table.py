"""The table of permissions against a whole broker: each route has a row, and no row lets through
what it should not. What an account with DENY everywhere, or with one topic, could do before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.properties import REAL_QID, REAL_TOPIC
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import HALF_TOPIC
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.store_format.commitlog import Record, decode_records, encode_record
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.acl.table import TABLE
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.guarded import (
    ACCOUNTS,
    ADMIN,
    NOBODY,
    OWNER,
    WEAK,
    Guarded,
    commit,
    every_request,
    offset_of,
)
from tests.unit.server.broker.transaction_kit import COMMIT


@pytest.fixture
def broker() -> Iterator[Guarded]:
    made = Guarded().start()
    yield made
    made.stop()


def routes(broker: Guarded) -> set[int]:
    """Every code that either port answers, in whatever way."""
    found: set[int] = set()
    for dispatcher in (broker.broker.dispatcher, broker.broker.fast_dispatcher):
        assert dispatcher.default is None
        found |= set(map(int, dispatcher.routes))
        assert dispatcher.handle_run is not None
        found |= {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2}  # in runs, too
    return found


def test_every_route_has_a_row_and_every_row_a_route(broker: Guarded) -> None:
    only_in_controller_mode = {
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    }
    assert routes(broker) | only_in_controller_mode == set(map(int, TABLE))
    assert not routes(broker) & only_in_controller_mode, "4.9.7 does not know them"


def test_a_route_without_a_row_is_not_served(broker: Guarded) -> None:
    asked: list[Any] = []
    broker.broker.dispatcher.routes[9999] = lambda channel, request: asked.append(request)
    for account in ACCOUNTS:
        answer = broker.by(account, RemotingCommand(9999, {}))
        assert answer.code == 3
        assert "not in the table of permissions" in (answer.remark or "")
    assert asked == []


def test_who_may_nothing_can_do_nothing(broker: Guarded) -> None:
    """38 of 59 codes asked nothing before."""
    requests = every_request(broker)
    assert set(requests) == routes(broker)  # a new route needs its request here
    before = broker.state()
    refused = {}
    for account in (NOBODY, WEAK):
        for code, request in requests.items():
            answer = broker.by(account, request)
            refused[code] = (answer.code, (answer.remark or "").partition(":")[0], answer.body)
        passed = {code for code, told in refused.items() if told != (1, "AclException", None)}
        assert passed == set()
        assert broker.state() == before
    assert broker.questions == []


def test_the_same_requests_are_served_for_who_may(broker: Guarded) -> None:
    """None of them was refused for its form: those for admins by one, the others by their owner."""
    for code, request in every_request(broker).items():
        is_for_admins = TABLE[code][0].text == "admin"
        if code in (51, 53, 320):  # the last account, no access control any more; no batch
            continue
        answer = broker.by(ADMIN if is_for_admins else OWNER, request)
        wrong = "topic:Secret" if code == 314 else "AclException"  # its other group is not theirs
        assert wrong not in (answer.remark or ""), (code, answer)


def test_the_document_shows_the_table() -> None:
    """One row for each request, in the order of the codes; a failure prints the table to copy."""
    text = (Path(__file__).parents[4] / "docs" / "security.md").read_text()
    rows = [
        f"| {int(code)} | `{RequestCode(code).name}` | "
        + "; ".join(dict.fromkeys([rule.text for rule in rules]))
        + " |"
        for code, rules in sorted(TABLE.items())
    ]
    shown = "\n".join(["| code | request | what the account needs |", "|---|---|---|", *rows, ""])
    assert f"\n\n{shown}\n" in text, shown


# ------------------------------------------------------------ single findings (H1)


def test_a_stranger_is_not_asked_about_half_messages(broker: Guarded) -> None:
    """a08: it joined the group with a heartbeat, and got the body of the half message."""
    stranger = RemotingClient(broker.client_host.seams, broker.configuration.client)
    stolen: list[Any] = []
    stranger.routes[RequestCode.CHECK_TRANSACTION_STATE] = lambda _, told: stolen.append(told)
    address = f"{broker.host.ip}:{LISTEN_PORT}"
    beat = {"clientID": "thief", "producerDataSet": [{"groupName": "TPG"}]}
    for _ in range(3):
        request = RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.encode(beat))
        joined = broker.wait(stranger.invoke(address, sign(request, WEAK), 3000))
        assert joined.code == 0  # it has other groups, and replies to wait for
    broker.decide = lambda key: COMMIT
    broker.half("second")
    broker.rounds(3)
    assert stolen == []
    assert {key for key, _ in broker.asked} == {"open", "second"}
    assert broker.broker.producers.find_channel("thief") is not None
    broker.wait(stranger.stop())


def test_a_stranger_gets_no_replies_by_another_accounts_client_id(broker: Guarded) -> None:
    """Replies go to the client id that the question names; whoever said it last got them."""
    requester = broker.broker.producers.find_channel("c1")
    assert requester is not None
    stranger = RemotingClient(broker.client_host.seams, broker.configuration.client)
    address = f"{broker.host.ip}:{LISTEN_PORT}"
    beat = {"clientID": "c1", "producerDataSet": [{"groupName": "any"}]}
    for account, is_theirs in ((NOBODY, False), (WEAK, False), (OWNER, True)):
        request = sign(RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.encode(beat)), account)
        assert broker.wait(stranger.invoke(address, request, 3000)).code == 0
        found = broker.broker.producers.find_channel("c1")
        assert (found is not requester) is is_theirs  # of one account: the one that said so last
    broker.wait(stranger.stop())


def forged(broker: Guarded, topic: str, properties: str, at: int, body: bytes) -> bytes:
    """A record that says of itself that it is at this place of the log."""
    host = broker.configuration.store_host
    record = Record(
        0, 0, 0, 0, 0, at, 0, 0, host, 0, host, 0, 0, body, topic, properties
    )  # fmt: skip
    return encode_record(record)


@pytest.mark.parametrize("account", [WEAK, None])
def test_a_forged_record_inside_a_body_is_none(
    broker: Guarded, account: Credentials | None
) -> None:
    """
    a09: a half message inside a permitted message's body, ended, was FORGED INTO SECRET.

    It is refused without access control, too, and for every code that takes an offset.
    """
    if account is None:
        broker.configuration.broker.acl_enable = False
        broker.stop()
        broker.configuration.ours.acl_plug_in = ""
        broker.account = None
        broker.start()
    else:
        broker.account = account
    store = broker.broker.store
    fields = f"{REAL_TOPIC}\x01Secret\x02{REAL_QID}\x010\x02PGROUP\x01mine\x02TRAN_MSG\x01true"
    # A message of the same size first: it tells where the body of the next one begins.
    probe = forged(broker, HALF_TOPIC, fields, 0, b"FORGED INTO SECRET")
    first = int(broker.sent("Open", probe, "mine")[-16:], 16)
    body_at = (store.record_at(first) or b"").index(probe)
    at = store.log.max_offset + body_at
    broker.sent("Open", forged(broker, HALF_TOPIC, fields, at, b"FORGED INTO SECRET"), "mine")
    assert store.record_at(at) is not None, "the forgery looks like a record"
    before = store.max_offset_in_queue("Secret", 0)
    place = {"producerGroup": "mine", "tranStateTableOffset": "0", "commitLogOffset": str(at)}
    ended = broker.call(
        RemotingCommand(37, {**place, "msgId": "x", "commitOrRollback": str(COMMIT)})
    )
    assert (ended.code, "no half message at" in (ended.remark or "")) == (1, True)
    message_id = broker.secret[:-16] + f"{at:016X}"
    for code, ext in (
        (33, {"offset": str(at)}),
        (36, {"group": "mine", "offset": str(at), "delayLevel": "0"}),
        (309, {"consumerGroup": "mine", "clientId": "c", "msgId": message_id}),
        (323, {"msgId": message_id}),
    ):
        if code != 323 or account is None:
            answer = broker.call(RemotingCommand(code, ext))
            assert answer.code == 1
            assert answer.body is None
    assert store.max_offset_in_queue("Secret", 0) == before


def test_a_record_in_no_queue_is_shown_to_an_admin_alone(broker: Guarded) -> None:
    """No queue tells a prepared record from bytes in a body; RocketMQ shows it to everybody."""
    request = send_request("mine", "Open", 0, b"prepared", "", 0)
    assert request.ext is not None
    request.ext["f"] = str(TRANSACTION_PREPARED)
    at = offset_of((broker.by(WEAK, request).ext or {})["msgId"])
    view = RemotingCommand(33, {"offset": at})
    assert [record.body for record in decode_records(broker.by(ADMIN, view).body or b"")] == [
        b"prepared"
    ]
    assert "AclException" in (broker.by(WEAK, view).remark or "")
    back = RemotingCommand(36, {"group": "mine", "offset": at, "delayLevel": "0"})
    assert broker.by(ADMIN, back).code == 1


def test_a_message_of_another_topic_cannot_be_given_back(broker: Guarded) -> None:
    """a09: given back to the own group, it was pulled from %RETRY%mine."""
    broker.account = WEAK
    broker.beat("mine", "Open")
    ext = {"group": "mine", "offset": offset_of(broker.secret), "delayLevel": "0"}
    answer = broker.call(RemotingCommand(36, ext))
    assert "topic:Secret" in (answer.remark or "")
    own = {**ext, "offset": offset_of(broker.sent("Open", b"mine"))}
    assert broker.call(RemotingCommand(36, own)).code == 0


def test_a_retry_is_given_back_again_and_read(broker: Guarded) -> None:
    """What a consumer does with its own group's retry topic goes on working."""
    broker.account = WEAK
    broker.beat("mine", "Open")
    ext = {"group": "mine", "offset": offset_of(broker.sent("Open", b"mine")), "delayLevel": "1"}
    assert broker.call(RemotingCommand(36, ext)).code == 0
    broker.run(3)
    pulled = broker.call(pull_request("mine", "%RETRY%mine", 0, 0))
    assert pulled.code == 0, pulled
    (record,) = broker.records("%RETRY%mine")
    again = {**ext, "offset": str(record.physical_offset)}
    assert broker.call(RemotingCommand(36, again)).code == 0
    assert broker.call(commit("mine", "%RETRY%mine", 0, 1)).code == 0


def test_a_transaction_of_an_account_that_may(broker: Guarded) -> None:
    assert broker.end(broker.place, COMMIT).code == 0
    assert broker.visible() == ["open"]
    answer = broker.by(WEAK, RemotingCommand(37, {**broker.place, "commitOrRollback": "8"}))
    assert "group:TPG" in (answer.remark or "")


def test_a_half_message_is_ended_by_who_may_send_to_its_topic(broker: Guarded) -> None:
    """PUB on a producer group of one's own, which anybody may name, is not enough."""
    own = {**broker.place, "producerGroup": "mine", "commitOrRollback": str(COMMIT)}
    answer = broker.by(WEAK, RemotingCommand(37, own))
    assert "topic:" in (answer.remark or "")
    assert broker.visible() == []


def test_replies_and_traces_are_for_who_uses_a_topic(broker: Guarded) -> None:
    """a08: 79 MiB stored with 20 requests, and forged replies, of who may nothing."""
    for topic in ("DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC"):
        before = broker.broker.store.log.max_offset
        for code in (RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.SEND_MESSAGE_V2):
            request = send_request("p", topic, 0, b"x" * 1000, "REPLY_TO_CLIENT\x01c1", 0)
            request.code = code
            answer = broker.by(NOBODY, request)
            assert f"topic:{topic}" in (answer.remark or "")
        assert broker.broker.store.log.max_offset == before
    cluster = broker.configuration.broker.broker_cluster_name
    trace = send_request("p", "RMQ_SYS_TRACE_TOPIC", 0, b"x", "", 0)
    reply = send_request("p", f"{cluster}_REPLY_TOPIC", 0, b"x", "REPLY_TO_CLIENT\x01none", 0)
    reply.code = RequestCode.SEND_REPLY_MESSAGE_V2
    for request in (trace, reply):
        assert "AclException" not in (broker.by(WEAK, request).remark or "")


def test_a_key_whose_hash_collides_shows_no_other_topics_messages(broker: Guarded) -> None:
    """
    The index knows hashes of `topic#key`, and those of TAa#k and TBB#k are the same.

    Whoever may read one topic could choose a key for the messages of any other.
    """
    for topic in ("TAa", "TBB"):
        broker.broker.topics.update(TopicConfig(topic, 1, 1, 6))
        message = send_request("p", topic, 0, topic.encode(), "KEYS\x01k", 0)
        assert broker.by(ADMIN, message).code == 0
    broker.run(0.1)
    ext = {"topic": "TAa", "key": "k", "maxNum": "9", "beginTimestamp": "0"}
    query = RemotingCommand(12, {**ext, "endTimestamp": str(1 << 60)})
    assert broker.by(ADMIN, RemotingCommand(12, {**(query.ext or {}), "topic": "T" * 300})).code
    found = decode_records(broker.by(ADMIN, query).body or b"")
    assert [record.topic for record in found] == ["TAa"]
