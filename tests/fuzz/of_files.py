"""Files that operators write or copy: properties, accounts, and the JSON tables beside a store."""

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.task import Clock

from rmq_ha.base.config import properties
from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.config.dledger_settings import parse_ids, parse_peers
from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError, ProtocolViolation
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.server.acl.reading import read_file
from rmq_ha.server.acl.rules import Rules
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.promotions import Promotions
from rmq_ha.server.broker.tables.request_modes import RequestModes
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.namesrv.kv_config import KVConfigManager
from rmq_ha.server.replication.epochs.epochs import decode_epochs, encode_epochs
from rmq_ha.server.replication.epochs.roles.identity import decode_identity
from rmq_ha.server.store.delay.offsets import DelayOffsets
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce
from tests.fuzz.target import target

HERE = Surroundings({}, "/home/me", "machine", "10.0.0.1", "/here")
BROKER = b"""# a comment
brokerName = broker-a\\u0020b
listenPort=10911\r\n! another
messageDelayLevel=1s 5s \\
  10s
brokerRole=SYNC_MASTER
haAllowedSlaves=10.0.0.0/8, ::1
aclEnable=true
enableDLegerCommitLog=true
dLegerPeers=n0-a:1;n1-b:2
dLegerSelfId=n0
tls.server.mode=enforcing
unknown.key=1
"""
NAMESRV = b"listenPort=9876\nnamesrvAllowedBrokers=10.0.0.7\nkvConfigPath=/x\n"


@target("file.broker", [BROKER, BROKER[:90]], (ConfigurationError,))
def read_broker_file(data: bytes) -> None:
    load_broker(properties.decode(data), HERE, name="broker.properties")


@target("file.namesrv", [NAMESRV], (ConfigurationError,))
def read_namesrv_file(data: bytes) -> None:
    load_namesrv(properties.decode(data), HERE, name="namesrv.properties")


@target(
    "file.properties", [BROKER, b"a\\ b\\u00e9:c\\\n  d\n\\uD83D\\uDE00=1"], (ConfigurationError,)
)
def read_properties_file(data: bytes) -> None:
    """What is written for a setting is read as that setting."""
    for item in properties.parse(properties.decode(data)):
        (again,) = properties.parse(properties.format_property(item.key, item.value))
        assert (again.key, again.value) == (item.key, item.value)


@target("text.delay_levels", [b"1s 5s 10m 2h 1d"], (ConfigurationError,))
def read_delay_levels(data: bytes) -> None:
    parse_delay_levels(data.decode("utf-8", "replace"))


@target("text.peers", [b"n0-127.0.0.1:20911;n1-host:20912;n2-[::1]:1"], (ConfigurationError,))
def read_peers(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_ids(text)
    parse_peers(text)


NETWORKS = (b"10.0.0.1, fd00::/8,localhost,10.1.0.0/16", b"*", b"::ffff:1.2.3.4", b"fe80::1%eth0")


@target("text.networks", NETWORKS, (ValueError,))
def read_networks(data: bytes) -> None:
    """Nobody belongs to two lists of strangers."""
    text = data.decode("utf-8", "replace")
    assert text not in Networks("192.0.2.0/24") or Address.parse(text.strip("[]"), 1)
    assert "192.0.2.1" not in Networks(text, with_names=True) or b"*" in data or b"/" in data


ACCOUNTS = b"""globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.1-5]
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  whiteRemoteAddress: 'fe80::*'
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB]
  groupPerms:
  - groupB=PUB|SUB
dataVersion: [{counter: 1, timestamp: 2}]
"""


@target(
    "file.acl",
    [ACCOUNTS, b"accounts: &a [*a]", b"- x", b"a: {b: [{c: {}}]}"],
    (ConfigurationError,),
)
def read_accounts(data: bytes) -> None:
    """Read, and made into the rules that requests are judged by."""
    Rules([read_file("plain_acl.yml", data)], strict=True, reply_topic="C_REPLY_TOPIC")


def table(name: str, seed: bytes, make: Callable[[Any, Any, Clock], Any]) -> None:
    """A table that is read at a start; what it took it can write, and read again."""

    def read(data: bytes) -> None:
        made = make(SimDisk(Random(1), lambda: 0), AtOnce(), Clock())
        made.decode(data)
        made.decode(made.encode())

    target(f"table.{name}", [seed], (ProtocolViolation,))(read)


CONFIG = BrokerConfig()
table(
    "topics",
    b'{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"topicName":"T"}}}',
    lambda disk, worker, _: TopicConfigManager(disk, worker, "/t", CONFIG, lambda: 0),
)
table(
    "groups",
    b'{"dataVersion":{"counter":1},"subscriptionGroupTable":{"G":{"groupName":"G"}}}',
    lambda disk, worker, _: SubscriptionGroupManager(disk, worker, "/t", CONFIG, lambda: 0),
)
table(
    "request_modes",
    b'{"messageRequestModeMap":{"T":{"G":{"mode":"POP","popShareQueueNum":1}}}}',
    lambda disk, worker, _: RequestModes(disk, worker, "/t"),
)
table(
    "offsets",
    b'{"offsetTable":{"T@G":{0:1,1:2}}}',
    lambda disk, worker, _: ConsumerOffsetManager(disk, worker, "/t"),
)
table(
    "filters",
    b'{"filterDataByTopic":{"T":{"topic":"T","groupFilterData":{"G":{"topic":"T",'
    b'"consumerGroup":"G","expression":"a > 1","expressionType":"SQL92","clientVersion":1,'
    b'"bornTime":1,"deadTime":0,"dead":false,"bloomFilterData":null}}}}}',
    lambda disk, worker, _: ConsumerFilterManager(disk, worker, "/t", CONFIG, lambda: 0),
)
table(
    "delays",
    b'{"offsetTable":{1:5,18:7}}',
    lambda disk, worker, clock: DelayOffsets(clock, disk, worker, "/t", 1000),
)
table(
    "delay_copy",
    b'{"offsetTable":{1:5}}',
    lambda disk, worker, _: DelayOffsetCopy(disk, worker, "/t"),
)
table(
    "deleted",
    b'{"deletedQueues":{"T":{"0":5}}}',
    lambda disk, worker, _: DeletedQueues(disk, worker, "/t"),
)
table("kv", b'{"configTable":{"n":{"k":"v"}}}',
      lambda disk, worker, _: KVConfigManager(disk, worker, "/t"))  # fmt: skip


@target("file.epochs", [b"2\n1435550930\n1-0\n2-2268\n", b"1\n0\n1-0\n"])
def read_epoch_file(data: bytes) -> None:
    assert decode_epochs(encode_epochs(decode_epochs(data))) == decode_epochs(data)


@target("file.identity", [b"Peer5Cluster#broker-c#2", b"C#b#1#127.0.0.1:1;2"])
def read_identity(data: bytes) -> None:
    decode_identity(data)


@target("file.promotions", [b'{"promotions": 2, "isOwn": true}'], (ProtocolViolation,))
def read_promotions(data: bytes) -> None:
    Promotions(SimDisk(Random(1), lambda: 0), AtOnce(), "/config").decode(data)
