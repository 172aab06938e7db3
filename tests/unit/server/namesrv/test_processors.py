"""The name server's requests. Spec: remoting.md, section 2.3 and chapter 9."""

import re
import zlib
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import RegisterBrokerBody, Rival, decode_rivals
from rmq_ha.base.wire.versions import V5_0_0
from rmq_ha.server.namesrv.access import OF_ADMINS, OF_BROKERS
from rmq_ha.server.namesrv.config_processor import ConfigProcessor
from rmq_ha.server.namesrv.kv_config import KVConfigManager
from rmq_ha.server.namesrv.processors import RouteProcessor
from rmq_ha.server.namesrv.routes import RouteInfoManager
from rmq_ha.server.namesrv.settings import NamesrvSettings
from rmq_ha.server.namesrv.wiped_brokers import WipedBrokers
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce
from tests.kits.channel import FakeChannel

BODY_A6 = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d6512ac9cc4d2d2e49cc2d50b232343740805a0606062620160f"
    "c92fc84c7654b000423385604f3f771fd7f8104777b09453b8a1811158ca1c558a293a1600859d18b8"
)
REQUEST_CODES = (Path(__file__).parents[4] / "docs/reference/request-codes.md").read_text()
KV_PATH, PROPERTIES_PATH = "/ns/kvConfig.json", "/ns/namesrv.properties"


class ProcessorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.disk = SimDisk(Random(1), lambda: 0)
        worker = AtOnce()
        self.config = NamesrvConfig(kv_config_path=KV_PATH, config_store_path=PROPERTIES_PATH)
        self.server_config = NettyServerConfig(listen_port=9876)
        self.kv_config = KVConfigManager(self.disk, worker, KV_PATH)
        wiped = WipedBrokers(self.kv_config, lambda: self.config.keep_wiped_write_perm)
        self.routes = RouteInfoManager(wiped.is_wiped)
        route = self.route = RouteProcessor(
            Clock(), self.routes, self.kv_config, wiped, self.config
        )
        settings = NamesrvSettings(self.disk, worker, self.config, self.server_config)
        config = ConfigProcessor(self.kv_config, settings)
        self.handlers = {**route.handlers(), **config.handlers()}
        self.channel = FakeChannel(host="10.0.0.1")
        self.events: list[Any] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def test_a_page_for_operators_has_each_request(self) -> None:
        """With the name and the sender of each."""
        rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (\w+) \|", REQUEST_CODES, re.MULTILINE)
        senders = dict.fromkeys(OF_ADMINS, "operators") | dict.fromkeys(OF_BROKERS, "brokers")
        expected = [
            (str(int(code)), RequestCode(code).name, senders.get(RequestCode(code), "clients"))
            for code in sorted(self.handlers)
        ]
        self.assertEqual(rows, expected)

    def log(self) -> list[str]:
        """What was said since the last time."""
        lines = [formatEvent(event) for event in self.events]
        self.events.clear()
        return lines

    def ask(
        self, code: int, body: bytes | None = None, *, version: int = 407, **ext: str
    ) -> RemotingCommand:
        """What the client gets."""
        request = RemotingCommand(code, ext=ext or None, body=body, version=version)
        try:
            answer = self.handlers[code](self.channel, request)
        except RequestRejected as error:
            return request.response(error.code, error.remark)
        if isinstance(answer, Deferred):
            answer = self.successResultOf(answer)
        assert isinstance(answer, RemotingCommand)
        return answer

    def register(
        self,
        *topics: str,
        counter: int = 1,
        broker_id: int = 0,
        port: int = 10911,
        version: int = 407,
        **more: str,
    ) -> RemotingCommand:
        table = {name: TopicConfig(name, 8, 8) for name in topics}
        body = RegisterBrokerBody(DataVersion(1, counter), table).encode()
        return self.ask(103, body, version=version, **self.broker(broker_id, port), **more)

    def broker(self, broker_id: int = 0, port: int = 10911) -> dict[str, str]:
        return {
            "brokerName": "broker-a",
            "brokerAddr": f"127.0.0.1:{port}",
            "clusterName": "DefaultCluster",
            "haServerAddr": f"127.0.0.1:{port + 1}",
            "brokerId": str(broker_id),
        }

    def test_every_code_of_the_table(self) -> None:
        """Spec: remoting.md, section 2.3."""
        expected = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224}
        self.assertEqual(set(self.handlers), expected | {304, 311, 312, 313, 318, 319, 322, 327})

    def test_register_and_route(self) -> None:
        self.assertEqual(self.register("TopicA").ext, {})
        self.assertEqual(self.log(), ["broker-a 0 at 127.0.0.1:10911 registered"])
        self.assertEqual(self.register("TopicA", counter=2).ext, {})
        self.assertEqual(self.log(), [])
        found = self.ask(105, topic="TopicA")
        assert found.body is not None
        self.assertIn(b'"brokerAddrs":{"0":"127.0.0.1:10911"}', found.body)

    def test_a_topic_that_was_deleted_in_a_broker_leaves_its_route(self) -> None:
        """At the next whole registration of a broker of ours or of 4.9; the key keeps the topic."""
        built_in = ("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "broker-a")
        counters = iter(range(1, 99))

        def left(*topics: str, **more: Any) -> bool:
            """Whether the topic is gone when these are registered."""
            self.register("Old", *built_in, counter=next(counters), allTopics="false")
            self.register(*topics, counter=next(counters), **more)
            return "Old" not in self.routes.topics()

        self.assertTrue(left("T", allTopics="true"))
        self.assertTrue(left(*built_in, "T"))
        self.assertFalse(left("T"))
        self.assertFalse(left(*built_in, "T", allTopics="false"))
        self.assertFalse(left(*built_in, "T", version=V5_0_0))
        self.config.delete_topic_with_broker_registration = False
        self.assertFalse(left("T", allTopics="true"))

    def test_a_takeover_waits_for_the_end_of_the_other(self) -> None:
        """namesrvBrokerTakeover=false: the address, or name and id, of one that is connected."""
        self.config.namesrv_broker_takeover = False
        self.register("T")
        honest = self.channel
        self.channel = FakeChannel(host="10.0.0.1")
        self.channel.remote_text = "10.0.0.66:4000"
        for port in (10911, 20911):
            refused = self.register("Evil", port=port, counter=9)
            self.assertEqual(refused.code, ResponseCode.NO_PERMISSION)
            self.assertIn("registers from 10.0.0.1:5000, and is connected still", refused.remark)
        self.assertEqual(self.routes.topics(), ["T"])
        self.assertEqual(self.register("T", port=20921, broker_id=1).code, 0)
        again = FakeChannel(host="10.0.0.1")  # the same machine, restarted
        self.channel = again
        self.assertEqual(self.register("T").code, 0)
        honest.abort()
        again.abort()
        self.channel = FakeChannel(host="10.0.0.1")
        self.channel.remote_text = "10.0.0.77:4000"
        self.assertEqual(self.register("T", port=20911).code, 0)

    def test_a_takeover_is_at_once_by_default(self) -> None:
        """As in RocketMQ: a promoted slave must not wait for a master that hangs."""
        self.register("T")
        self.channel = FakeChannel(host="10.0.0.1")
        self.channel.remote_text = "10.0.0.66:4000"
        self.log()
        self.assertEqual(self.register("T", port=20911).code, 0)
        (line,) = [line for line in self.log() if "moved from" in line]
        self.assertEqual(
            line,
            "broker-a/0 moved from 127.0.0.1:10911 to 127.0.0.1:20911, and 127.0.0.1:10911 is "
            "still connected; clients are sent to 127.0.0.1:20911. If 127.0.0.1:10911 did not "
            "become a slave, there are TWO MASTERS: stop it",
        )
        self.assertEqual(self.register("T", port=20911, counter=2).code, 0)
        self.assertEqual(self.log(), [])

    def test_two_slaves_of_one_id_are_named_with_what_to_do(self) -> None:
        """Neither of them "became a slave": one of the two needs another id."""
        self.register("T", broker_id=1)
        self.log()
        self.register("T", port=20911, broker_id=1)
        (line,) = [line for line in self.log() if "registered" not in line]
        self.assertEqual(
            line,
            "TWO BROKERS: 127.0.0.1:10911 and 127.0.0.1:20911 both register as broker-a/1; clients "
            "are sent to 127.0.0.1:20911. Stop one of the two, or give it another brokerName or "
            "brokerId",
        )

    def test_two_masters_are_told_apart(self) -> None:
        """The one that lost its id is refused with the address of the other one; one line."""
        self.register("T")
        self.register("T", port=20911)
        self.log()
        for counter in (1, 2):
            refused = self.register("T", counter=counter)
            self.assertEqual(refused.code, ResponseCode.NO_PERMISSION)
            self.assertEqual(refused.ext, {"brokerIdHolder": "127.0.0.1:20911"})
        (line,) = self.log()
        self.assertEqual(
            line,
            "TWO MASTERS: 127.0.0.1:10911 and 127.0.0.1:20911 both register as broker-a/0; clients "
            "are sent to 127.0.0.1:20911. Stop 127.0.0.1:10911, or make it a slave: rmqha-admin "
            "demote",
        )
        self.assertEqual(refused.remark, line)
        told = self.ask(106)
        rival = Rival("broker-a", 0, "127.0.0.1:10911", "127.0.0.1:20911")
        self.assertEqual(decode_rivals((told.ext or {})["brokerIdRivals"]), [rival])
        self.assertIn(b'{0:"127.0.0.1:20911"}', told.body or b"")

    def test_who_found_the_holder_dead_says_so(self) -> None:
        self.register("T")
        self.register("T", port=20911)
        body = RegisterBrokerBody(DataVersion(1, 1), {}).encode()
        ext = {**self.broker(), "takesOverFrom": "127.0.0.1:20911"}
        self.assertEqual(self.ask(103, body, **ext).code, 0)

    def test_an_older_epoch_is_refused_and_a_slave_learns_its_master(self) -> None:
        """Spec: controller.md, section 9.2."""

        def register(epoch: int, broker_id: int, port: int) -> RemotingCommand:
            body = RegisterBrokerBody(DataVersion(1, 1, epoch), {}).encode()
            return self.ask(103, body, **self.broker(broker_id, port))

        self.assertEqual(register(4, 0, 20911).code, 0)
        self.log()
        refused = register(3, 0, 10911)
        self.assertIn("with an older epoch than 127.0.0.1:20911", refused.remark or "")
        self.assertEqual(self.log(), [refused.remark])
        self.assertEqual(register(4, 1, 30911).code, 0)
        late = register(3, 1, 40911)
        self.assertEqual(late.code, 0)
        self.assertEqual((late.ext or {})["masterAddr"], "127.0.0.1:20911")

    def test_a_master_that_stands_aside_is_shown_to_tools(self) -> None:
        """It asks for its version, and does not register."""
        self.register("T", port=20911)
        self.assertEqual(self.ask(106).ext, None)
        self.ask(322, b"{}", **self.broker())
        self.assertIn("127.0.0.1:10911", (self.ask(106).ext or {})["brokerIdRivals"])

    def test_route_forms(self) -> None:
        """Bare keys for old clients, unless they ask for strict JSON."""
        self.register("TopicA")
        old = self.ask(105, topic="TopicA", version=317).body or b""
        self.assertIn(b'{0:"127.0.0.1:10911"}', old)
        asked = self.ask(105, topic="TopicA", version=317, acceptStandardJsonOnly="true").body
        self.assertIn(b'{"0":"127.0.0.1:10911"}', asked or b"")
        self.assertIn(b'{"0":', self.ask(105, topic="TopicA", version=401).body or b"")
        self.assertIn(b"{0:", self.ask(105, topic="TopicA", version=400).body or b"")

    def test_route_unknown(self) -> None:
        answer = self.ask(105, topic="Nowhere")
        self.assertEqual(answer.code, 17)
        self.assertIn("Nowhere", answer.remark or "")
        self.assertEqual(self.ask(105).code, 1)

    def test_register_compressed(self) -> None:
        """Vector A.6."""
        answer = self.ask(103, BODY_A6, compressed="true", bodyCrc32="697467845", **self.broker())
        self.assertEqual(answer.code, 0)
        self.assertEqual(set(self.routes.topics()), {"TopicA", "TBW102"})

    def test_what_brokers_may_register(self) -> None:
        """A million topics of one stranger took 444 MiB."""
        self.config.max_topics_of_broker = 3
        self.config.max_topic_routes = 4
        answer = self.register("A", "B", "C", "D")
        self.assertEqual(answer.code, 1)
        self.assertIn("maxTopicsOfBroker allows 3", answer.remark or "")
        self.assertEqual(self.routes.registrations(), {})
        self.assertEqual(self.register("A", "B", "C").code, 0)
        self.assertEqual(self.register("A", "B", "C", counter=2).code, 0)
        self.assertEqual(self.register("D", counter=3).code, 0)
        answer = self.register("E", counter=4)
        self.assertEqual(answer.code, 1)
        self.assertIn("maxTopicRoutes allows 4", answer.remark or "")
        self.assertEqual(self.route.refused_registrations, 2)
        self.assertEqual(self.ask(216, topic="A").code, 0)
        self.assertEqual(self.register("E", counter=4).code, 0)

    def test_a_compressed_registration_may_become_so_large(self) -> None:
        self.config.max_registration_bytes = 100
        answer = self.ask(103, BODY_A6, compressed="true", **self.broker())
        self.assertIn("maxRegistrationBytes", answer.remark or "")

    def test_register_with_a_wrong_crc(self) -> None:
        self.assertEqual(self.ask(103, b"{}", bodyCrc32="1", **self.broker()).code, 1)
        right = str(zlib.crc32(b"{}") & 0x7FFFFFFF)
        self.assertEqual(self.ask(103, b"{}", bodyCrc32=right, **self.broker()).code, 0)
        self.assertEqual(self.ask(103, b"{}", bodyCrc32="0", **self.broker()).code, 0)
        for text, code in (("9" * 18, 1), ("9" * 19, 0), ("x", 0)):  # no long of Java's, no number
            self.assertEqual(self.ask(103, b"{}", bodyCrc32=text, **self.broker()).code, code)

    def test_damaged_registrations_of_a_machine_are_one_line(self) -> None:
        """Whatever port it comes from each time."""
        for port in (4000, 4001):
            self.channel.remote_text = f"10.0.0.1:{port}"
            self.assertEqual(self.ask(103, b"\0garbage", **self.broker()).code, 1)
        (line,) = self.log()
        self.assertTrue(line.startswith("a registration by 10.0.0.1:4000 is refused: "))

    def test_register_damaged(self) -> None:
        """Refused with the reason; nothing is registered."""
        for ext in ({"compressed": "true"}, {}):
            self.assertEqual(self.ask(103, b"\0garbage", **ext, **self.broker()).code, 1)
        for name in ("brokerName", "brokerAddr", "clusterName", "brokerId"):
            ext = self.broker()
            del ext[name]
            answer = self.ask(103, b"{}", **ext)
            self.assertEqual(answer.code, 1)
            self.assertIn(name, answer.remark or "")
        self.assertEqual(self.routes.topics_of_cluster("DefaultCluster"), [])

    def test_register_without_a_body(self) -> None:
        self.assertEqual(self.ask(103, **self.broker()).code, 0)

    def test_register_by_an_old_broker(self) -> None:
        """A bare topic table below version 37."""
        body = (
            b'{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"T":{"perm":6,'
            b'"topicName":"T"}}}'
        )
        self.ask(103, body, version=36, **self.broker())
        self.assertEqual(self.routes.topics(), ["T"])

    def test_a_slave_learns_its_master(self) -> None:
        self.register("T")
        answer = self.register("T", broker_id=1, port=11911)
        self.assertEqual(
            answer.ext, {"masterAddr": "127.0.0.1:10911", "haServerAddr": "127.0.0.1:10912"}
        )

    def test_order_configuration(self) -> None:
        """In every registration's answer; in routes only with orderMessageEnable."""
        self.assertIsNone(self.register("T").body)
        self.ask(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:8")
        self.assertEqual(self.register("T").body, b'{"table":{"T":"broker-a:8"}}')
        self.assertNotIn(b"orderTopicConf", self.ask(105, topic="T").body or b"")
        self.config.order_message_enable = True
        self.assertIn(b'"orderTopicConf":"broker-a:8"', self.ask(105, topic="T").body or b"")
        self.ask(102, namespace="ORDER_TOPIC_CONFIG", key="T")
        self.assertEqual(self.register("T").body, b'{"table":{}}')

    def test_connection_close(self) -> None:
        """The broker is gone at once; many registrations leave one callback."""
        self.register("T")
        self.register("T", counter=2)
        self.assertEqual(self.channel.close_callbacks, 1)
        self.register("T", broker_id=1, port=10921)
        self.log()
        self.channel.abort()
        self.assertEqual(self.ask(105, topic="T").code, 17)
        gone = ["broker 127.0.0.1:10911 is gone: ", "broker 127.0.0.1:10921 is gone: "]
        why = "its connection 10.0.0.1:5000 ended"
        self.assertEqual(sorted(self.log()), [line + why for line in gone])
        self.assertEqual(self.route._watched, set())

    def test_unregister(self) -> None:
        self.register("T")
        self.log()
        self.assertEqual(self.ask(104, **self.broker()).code, 0)
        self.assertEqual(self.log(), ["broker-a 0 at 127.0.0.1:10911 unregistered"])
        self.assertEqual(self.ask(105, topic="T").code, 17)
        self.assertEqual(self.ask(104, **self.broker()).code, 0)

    def test_a_strangers_good_bye(self) -> None:
        """It is answered, and changes nothing."""
        self.register("T")
        own, self.channel = self.channel, FakeChannel(host="10.0.0.1")
        self.log()
        self.assertEqual(self.ask(104, **self.broker()).code, 0)
        (line,) = self.log()
        self.assertIn("says good-bye for broker-a 0 at 127.0.0.1:10911", line)
        self.assertEqual(self.ask(105, topic="T").code, 0)
        self.channel = own

    def test_data_version(self) -> None:
        query = b'{"counter":1,"timestamp":1}'
        answer = self.ask(322, query, **self.broker())
        self.assertEqual((answer.ext, answer.body), ({"changed": "true"}, None))
        self.register("T")
        answer = self.ask(322, query, **self.broker())
        self.assertEqual((answer.ext, answer.body), ({"changed": "false"}, query))
        answer = self.ask(322, b'{"counter":2,"timestamp":1}', **self.broker())
        self.assertEqual((answer.ext, answer.body), ({"changed": "true"}, query))
        self.assertEqual(self.ask(322, b"[1]", **self.broker()).code, 1)

    def test_cluster_info_keys_stay_bare(self) -> None:
        self.register("T")
        self.assertEqual(
            self.ask(106).body,
            b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":'
            b'"broker-a","cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":'
            b'["broker-a"]}}',
        )

    def test_lists(self) -> None:
        self.assertEqual(self.ask(206).body, b'{"topicList":[]}')
        self.register("T", "U")
        self.assertEqual(self.ask(206).body, b'{"topicList":["T","U"]}')
        self.assertEqual(self.ask(224, cluster="DefaultCluster").body, b'{"topicList":["T","U"]}')
        self.assertEqual(self.ask(224, cluster="x").body, b'{"topicList":[]}')
        self.assertEqual(
            self.ask(304).body,
            b'{"brokerAddr":"127.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}',
        )
        for code in (311, 312, 313):
            self.assertEqual(self.ask(code).body, b'{"topicList":[]}')

    def test_write_permission(self) -> None:
        self.register("T", "U")
        self.assertEqual(self.ask(205, brokerName="broker-a").ext, {"wipeTopicCount": "2"})
        self.assertIn(b'"perm":4', self.ask(105, topic="T").body or b"")
        self.assertEqual(self.ask(327, brokerName="broker-a").ext, {"addTopicCount": "2"})
        self.assertIn(b'"perm":6', self.ask(105, topic="T").body or b"")
        self.assertEqual(self.ask(205).code, 1)

    def test_a_wiped_permission_lasts(self) -> None:
        """Over changed topics, the broker's restart and our own, until 327."""
        self.register("T")
        self.ask(205, brokerName="broker-a")
        self.register("T", "New", counter=2)
        self.assertIn(b'"perm":4', self.ask(105, topic="New").body or b"")
        self.ask(104, **self.broker())
        self.register("T", counter=2)
        self.assertIn(b'"perm":4', self.ask(105, topic="T").body or b"")
        disk = self.disk
        self.setUp()
        self.disk = disk
        self.kv_config.decode(disk.read_bytes(KV_PATH))
        self.register("T")
        self.assertIn(b'"perm":4', self.ask(105, topic="T").body or b"")
        self.assertEqual(self.ask(327, brokerName="broker-a").ext, {"addTopicCount": "1"})
        self.register("T", counter=3)
        self.assertIn(b'"perm":6', self.ask(105, topic="T").body or b"")

    def test_a_wiped_permission_as_in_rocketmq(self) -> None:
        """With keepWipedWritePerm=false the next changed registration ends it."""
        self.config.keep_wiped_write_perm = False
        self.register("T")
        self.ask(205, brokerName="broker-a")
        self.register("T")
        self.assertIn(b'"perm":4', self.ask(105, topic="T").body or b"")
        self.register("T", counter=2)
        self.assertIn(b'"perm":6', self.ask(105, topic="T").body or b"")
        self.assertFalse(self.disk.exists(KV_PATH))

    def test_wiping_an_unknown_broker_leaves_no_trace(self) -> None:
        self.assertEqual(self.ask(205, brokerName="typo").ext, {"wipeTopicCount": "0"})
        self.assertFalse(self.disk.exists(KV_PATH))

    def test_delete_topic(self) -> None:
        self.register("T", "U")
        self.assertEqual(self.ask(216, topic="T").code, 0)
        self.assertEqual(self.ask(216, topic="U", clusterName="Elsewhere").code, 0)
        self.assertEqual(self.ask(206).body, b'{"topicList":["U"]}')
        self.assertEqual(self.ask(216, topic="U", clusterName="DefaultCluster").code, 0)
        self.assertEqual(self.ask(206).body, b'{"topicList":[]}')

    def test_key_values(self) -> None:
        """On disk before the answer; an emptied namespace is still there."""
        self.assertEqual(self.ask(101, namespace="n", key="k").code, 22)
        self.assertEqual(self.ask(219, namespace="n").code, 22)
        self.assertEqual(self.ask(100, namespace="n", key="k", value="v").code, 0)
        self.assertEqual(self.disk.read_bytes(KV_PATH), b'{"configTable":{"n":{"k":"v"}}}')
        self.assertEqual(self.ask(101, namespace="n", key="k").ext, {"value": "v"})
        self.assertEqual(self.ask(219, namespace="n").body, b'{"table":{"k":"v"}}')
        self.assertEqual(self.ask(102, namespace="n", key="k").code, 0)
        self.assertEqual(self.ask(102, namespace="x", key="k").code, 0)
        self.assertEqual(self.ask(219, namespace="n").body, b'{"table":{}}')
        self.assertEqual(self.ask(219, namespace="x").code, 22)
        self.assertEqual(self.ask(100, namespace="n").code, 1)

    def test_key_values_on_a_full_disk(self) -> None:
        """The operator is told that it will not last."""
        self.disk.is_full = True
        answer = self.ask(100, namespace="n", key="k", value="v")
        self.assertEqual(answer.code, 1)
        self.assertIn(KV_PATH, answer.remark or "")
        self.flushLoggedErrors(OSError)

    def test_show_configuration(self) -> None:
        lines = (self.ask(319).body or b"").decode().splitlines()
        self.assertIn("orderMessageEnable=false", lines)
        self.assertIn("listenPort=9876", lines)
        self.assertIn("serverChannelMaxIdleTimeSeconds=120", lines)

    def test_update_configuration(self) -> None:
        """Known keys change at once and in the file, whose comments stay; others are ignored."""
        self.disk.replace(PROPERTIES_PATH, b"# mine\nlistenPort=9876\n")
        body = b"orderMessageEnable=true\nnoSuchKey=1\n"
        self.assertEqual(self.ask(318, body).code, 0)
        self.assertTrue(self.config.order_message_enable)
        self.assertEqual(
            self.disk.read_bytes(PROPERTIES_PATH),
            b"# mine\nlistenPort=9876\norderMessageEnable=true\n",
        )
        self.assertEqual(self.ask(318).code, 0)

    def test_update_of_several_keys(self) -> None:
        """Of the name server and of its port, all of them."""
        wanted = [
            "orderMessageEnable=true",
            "keepWipedWritePerm=false",
            "serverChannelMaxIdleTimeSeconds=77",
        ]
        self.assertEqual(self.ask(318, "\n".join(wanted).encode()).code, 0)
        lines = (self.ask(319).body or b"").decode().splitlines()
        self.assertLessEqual(set(wanted), set(lines))
        self.assertEqual(self.disk.read_bytes(PROPERTIES_PATH).decode().split(), wanted)

    def test_update_of_what_is_dangerous_is_refused(self) -> None:
        """Nothing of such a request is done."""
        for name in (
            "kvConfigPath",
            "configStorePath",
            "rocketmqHome",
            "bindAddress",
            "listenPort",
            "tls.server.mode",
        ):
            answer = self.ask(318, f"orderMessageEnable=true\n{name}=/etc/x".encode())
            self.assertEqual(answer.code, 16)
            self.assertIn(name, answer.remark or "")
        self.assertFalse(self.config.order_message_enable)
        self.assertFalse(self.disk.exists(PROPERTIES_PATH))

    def test_update_of_what_would_do_nothing_is_refused(self) -> None:
        """A key that is read at the start, and one that nothing here acts on."""
        for setting, reason in (
            ("logLevel=debug", "cannot change while the name server runs"),
            ("serverWorkerThreads=9", "has no effect here (rmq-ha serves requests in one thread"),
            ("clusterTest=true", "has no effect here"),
        ):
            answer = self.ask(318, f"orderMessageEnable=true\n{setting}".encode())
            self.assertEqual(answer.code, 1)
            self.assertIn(reason, answer.remark or "")
        self.assertFalse(self.config.order_message_enable)
        self.assertFalse(self.disk.exists(PROPERTIES_PATH))

    def test_update_with_a_bad_value(self) -> None:
        """Refused as a whole."""
        answer = self.ask(318, b"orderMessageEnable=true\nmaxConnections=many")
        self.assertEqual(answer.code, 1)
        self.assertIn("maxConnections=many", answer.remark or "")
        self.assertFalse(self.config.order_message_enable)
