"""The table of permissions against a whole broker: each route has a row, and no row lets through
what it should not. What an account with DENY everywhere, or with one topic, could do before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transaction_kit import COMMIT, TransactionBroker

from rmq_ha.acl.table import TABLE, as_markdown
from rmq_ha.client.requests import pull_request, send_request
from rmq_ha.client.signing import Credentials, sign
from rmq_ha.model.properties import REAL_QID, REAL_TOPIC
from rmq_ha.model.topic_config import TopicConfig
from rmq_ha.model.topics import HALF_TOPIC
from rmq_ha.remoting.client import RemotingClient
from rmq_ha.store.format.commitlog import Record, encode_record
from rmq_ha.testing.cluster import LISTEN_PORT
from rmq_ha.wire import fastjson
from rmq_ha.wire.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatch,
    MessageQueue,
    SubscriptionData,
)
from rmq_ha.wire.codes import RequestCode
from rmq_ha.wire.command import RemotingCommand

FILE = """
accounts:
- {accessKey: adminadmin, secretKey: adminsecret, admin: true}
- accessKey: ownerowner
  secretKey: ownersecret
  topicPerms: [Secret=PUB|SUB, Paid=PUB]
  groupPerms: [good=SUB, TPG=PUB]
- {accessKey: nobodynobody, secretKey: nobodysecret}
- accessKey: weakweak
  secretKey: weaksecret
  topicPerms: [Open=PUB|SUB, Secret=DENY]
  groupPerms: [mine=PUB|SUB]
"""
ADMIN = Credentials("adminadmin", "adminsecret")
OWNER = Credentials("ownerowner", "ownersecret")
NOBODY = Credentials("nobodynobody", "nobodysecret")
WEAK = Credentials("weakweak", "weaksecret")
ACCOUNTS = (ADMIN, OWNER, NOBODY, WEAK)


class Guarded(TransactionBroker):
    """
    A broker with accounts, whose owner has a group, locks, offsets and an open transaction.

    :ivar secret: offsetMsgId of a message of topic Secret.
    """

    def __init__(self) -> None:
        super().__init__()
        self.host.disk.replace("/conf/plain_acl.yml", FILE.encode())
        self.configuration.broker.acl_enable = True
        self.configuration.ours.acl_plug_in = "plain"
        self.configuration.ours.acl_directory = "/conf"
        self.account: Credentials | None = OWNER

    def start(self) -> "Guarded":
        super().start()
        for topic in ("Secret", "Open", "Paid"):
            self.controller.topics.update(TopicConfig(topic, 4, 4, 6))
        self.connect()  # the owner's producer of TPG
        self.beat("good", "Secret")
        self.secret = self.sent("Secret", b"TOP SECRET 1")
        self.call(commit("good", "Secret", 0, 40))
        self.call(RemotingCommand(RequestCode.LOCK_BATCH_MQ, None, locks("good", "Secret", "own")))
        self.place = self.half("open")
        return self

    def call(self, request: RemotingCommand, port: int = LISTEN_PORT) -> RemotingCommand:
        return super().call(request if self.account is None else sign(request, self.account), port)

    def by(self, account: Credentials, request: RemotingCommand) -> RemotingCommand:
        """A request of another account, over the same connection."""
        before, self.account = self.account, account
        try:
            return self.call(request)
        finally:
            self.account = before

    def beat(self, group: str, topic: str) -> RemotingCommand:
        consumer = ConsumerData(group, subscriptions=[SubscriptionData(topic, "*")])
        return self.call(
            RemotingCommand(RequestCode.HEART_BEAT, None, HeartbeatData("c2", [consumer]).encode())
        )

    def sent(self, topic: str, body: bytes, group: str = "p") -> str:
        answer = self.call(send_request(group, topic, 0, body, "", 0))
        assert answer.code == 0, answer
        return (answer.ext or {})["msgId"]

    def state(self) -> Any:
        """What a request could change."""
        broker = self.controller
        return (
            broker.store.log.max_offset,
            {key: dict(queues) for key, queues in broker.consumer_offsets.table.items()},
            dict(broker.topics.table),
            dict(broker.groups.table),
            repr(broker.queue_locks._groups),
            sorted(broker.consumers.groups()),
            broker.configuration.broker.region_id,
            sorted(broker.access_controls[0].to_json()["plainAccessConfigs"][0]),
        )


def offset_of(message_id: str) -> str:
    return str(int(message_id[-16:], 16))


def commit(group: str, topic: str, queue_id: int, offset: int) -> RemotingCommand:
    ext = {"consumerGroup": group, "topic": topic}
    numbers = {"queueId": str(queue_id), "commitOffset": str(offset)}
    return RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {**ext, **numbers})


def locks(group: str, topic: str, client: str) -> bytes:
    return LockBatch(group, client, [MessageQueue(topic, "broker-a", 0)]).encode()


def every_request(broker: Guarded) -> dict[int, RemotingCommand]:
    """One of each code that would change or tell something, were it allowed."""
    queue = {"topic": "Secret", "queueId": "0"}
    group_and_topic = {"group": "good", "topic": "Secret"}
    consumer = {"consumerGroup": "good"}
    new_topic = {
        "topic": "Secret", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    v1 = {
        "producerGroup": "p", "topic": "Secret", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "0",
        "flag": "0",
    }  # fmt: skip
    v2 = send_request("p", "Secret", 0, b"forged", "", 0).ext
    ext: dict[int, dict[str, str] | None] = {
        10: v1, 310: v2, 320: v2, 324: v1, 325: v2,
        11: pull_request("good", "Secret", 0, 0).ext,
        12: {"topic": "Secret", "key": "k", "maxNum": "1", "beginTimestamp": "0",
             "endTimestamp": "9"},
        14: {**consumer, **queue}, 15: commit("good", "Secret", 0, 1).ext, 17: new_topic,
        29: {**queue, "timestamp": "0"}, 30: queue, 31: queue, 32: queue,
        33: {"offset": offset_of(broker.secret)},
        36: {"group": "good", "offset": offset_of(broker.secret), "delayLevel": "0"},
        37: {**broker.place, "commitOrRollback": str(COMMIT)},
        35: {"clientID": "c2", **consumer}, 38: consumer,
        50: {"accessKey": "newaccount", "secretKey": "newsecret", "admin": "true"},
        51: {"accessKey": "adminadmin"}, 53: {"globalWhiteAddrs": "*"},
        202: {"topic": "Secret"}, 203: consumer, 204: {"producerGroup": "TPG"},
        207: {"groupName": "good", "removeOffset": "true"}, 208: consumer,
        215: {"topic": "Secret"},
        222: {**group_and_topic, "timestamp": "0", "isForce": "true"}, 223: group_and_topic,
        300: {"topic": "Secret"}, 303: group_and_topic,
        307: {**consumer, "clientId": "c2"}, 308: {"compareGroup": "good", "topic": "Secret"},
        309: {**consumer, "clientId": "c2", "msgId": broker.secret},
        314: {"srcGroup": "good", "destGroup": "mine", "topic": "Secret", "offline": "true"},
        315: {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Secret"}, 317: {"isOrder": "false"},
        321: {**queue, "index": "0", "count": "1"}, 323: {"msgId": broker.secret},
    }  # fmt: skip
    bodies = {
        34: HeartbeatData("c3", [ConsumerData("good", subscriptions=[])]).encode(),
        41: locks("good", "Secret", "thief"),
        42: locks("good", "Secret", "own"),
        46: fastjson.encode({"clientId": "c", "group": "good", "subscriptionData": None}),
        200: fastjson.encode({"groupName": "good", "consumeEnable": False}),
        25: b"regionId=changed\n",
        **dict.fromkeys((10, 310, 324, 325), b"forged"),
        320: b"forged",
    }
    none = (21, 26, 28, 43, 45, 52, 54, 201, 305, 306, 316, 328, 329)
    codes = [*ext, *[code for code in bodies if code not in ext], *none]
    return {
        code: RemotingCommand(code, dict(ext.get(code) or {}), bodies.get(code)) for code in codes
    }


@pytest.fixture
def broker() -> Iterator[Guarded]:
    made = Guarded().start()
    yield made
    made.stop()


def routes(broker: Guarded) -> set[int]:
    """Every code that either port answers, in whatever way."""
    found: set[int] = set()
    for dispatcher in (broker.controller.dispatcher, broker.controller.fast_dispatcher):
        assert dispatcher.default is None
        found |= set(map(int, dispatcher.routes))
        found |= {int(key.split(b":")[1].strip(b",")) for key in dispatcher.bulk}
    return found


def test_every_route_has_a_row_and_every_row_a_route(broker: Guarded) -> None:
    assert routes(broker) == set(map(int, TABLE))


def test_a_route_without_a_row_is_not_served(broker: Guarded) -> None:
    asked: list[Any] = []
    broker.controller.dispatcher.routes[9999] = lambda channel, request: asked.append(request)
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
    text = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    assert as_markdown() in text, as_markdown()


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
    assert broker.controller.producers.find_channel("thief") is not None
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
    store = broker.controller.store
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


def test_replies_and_traces_are_for_who_uses_a_topic(broker: Guarded) -> None:
    """a08: 79 MiB stored with 20 requests, and forged replies, of who may nothing."""
    for topic in ("DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC"):
        before = broker.controller.store.log.max_offset
        for code in (RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.SEND_MESSAGE_V2):
            request = send_request("p", topic, 0, b"x" * 1000, "REPLY_TO_CLIENT\x01c1", 0)
            request.code = code
            answer = broker.by(NOBODY, request)
            assert f"topic:{topic}" in (answer.remark or "")
        assert broker.controller.store.log.max_offset == before
    cluster = broker.configuration.broker.broker_cluster_name
    trace = send_request("p", "RMQ_SYS_TRACE_TOPIC", 0, b"x", "", 0)
    reply = send_request("p", f"{cluster}_REPLY_TOPIC", 0, b"x", "REPLY_TO_CLIENT\x01none", 0)
    reply.code = RequestCode.SEND_REPLY_MESSAGE_V2
    for request in (trace, reply):
        assert "AclException" not in (broker.by(WEAK, request).remark or "")
