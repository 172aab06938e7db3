"""A broker with access control, accounts, and what belongs to one of them."""

from typing import Any

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatch,
    MessageQueue,
    SubscriptionData,
)
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.transaction_kit import COMMIT, TransactionBroker

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
        self.configuration.ours.pop_enable = True
        self.account: Credentials | None = OWNER

    def start(self) -> "Guarded":
        super().start()
        for topic in ("Secret", "Open", "Paid"):
            self.broker.topics.update(TopicConfig(topic, 4, 4, 6))
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
        broker = self.broker
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
    popped = {
        "consumerGroup": "good", "topic": "Secret", "queueId": "0", "maxMsgNums": "1",
        "invisibleTime": "9000", "offset": "0", "extraInfo": "0 1 9000 0 0 broker-a 0 0",
    }  # fmt: skip
    weak = {"subject": "User:weakweak"}
    policy = fastjson.encode(
        {
            "policies": [
                {"entries": [{"resource": "Topic:Secret", "actions": ["Sub"], "decision": "Allow"}]}
            ]
        }
    )
    v1 = {
        "producerGroup": "p", "topic": "Secret", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "0",
        "flag": "0",
    }  # fmt: skip
    v2 = send_request("p", "Secret", 0, b"forged", "", 0).ext
    ext: dict[int, dict[str, str] | None] = {
        290001: {"to": "10.0.0.9:1"}, 290002: {"step": "look"},
        290003: {"client": "10.0.0.9:1"},
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
        3001: {"username": "newuser"}, 3002: {"username": "weakweak"},
        3003: {"username": "weakweak"}, 3004: {"username": "adminadmin"}, 3005: {},
        3006: weak, 3007: weak, 3008: weak, 3009: {"subject": "User:ownerowner"}, 3010: {},
        351: {"topic": "Secret", "lo": "true"}, 352: {"group": "good"},
        370: {"topic": "Secret", "recallHandle": "djEgU2VjcmV0IGEgMSBL"},
        200050: popped, 200051: popped, 200052: popped, 200053: popped, 200054: popped,
        200055: popped,
    }  # fmt: skip
    bodies = {
        34: HeartbeatData("c3", [ConsumerData("good", subscriptions=[])]).encode(),
        41: locks("good", "Secret", "thief"),
        42: locks("good", "Secret", "own"),
        46: fastjson.encode({"clientId": "c", "group": "good", "subscriptionData": None}),
        400: fastjson.encode(
            {
                "topic": "Secret",
                "consumerGroup": "good",
                "clientId": "c2",
                "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            }
        ),
        3001: fastjson.encode({"password": "newsecret", "userType": "Super"}),
        3002: fastjson.encode({"password": "newsecret"}),
        3006: policy,
        3007: policy,
        401: fastjson.encode({"topic": "Secret", "consumerGroup": "good", "mode": "POP"}),
        200151: fastjson.encode(
            {
                "acks": [
                    {"c": "good", "t": "Secret", "r": "0", "so": 0, "q": 0, "pt": 1, "b": "AQ=="}
                ]
            }
        ),
        200: fastjson.encode({"groupName": "good", "consumeEnable": False}),
        25: b"regionId=changed\n",
        **dict.fromkeys((10, 310, 324, 325), b"forged"),
        320: b"forged",
    }
    none = (21, 26, 28, 43, 45, 52, 54, 60, 61, 201, 305, 306, 316, 328, 329, 402)
    codes = [*ext, *[code for code in bodies if code not in ext], *none]
    return {
        code: RemotingCommand(code, dict(ext.get(code) or {}), bodies.get(code)) for code in codes
    }
