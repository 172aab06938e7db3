"""A whole name server on a simulated machine."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import RegisterBrokerBody
from rmq_ha.server.namesrv.namesrv import Namesrv
from rmq_ha.testing.host import World

BROKER = BrokerIdentity("C", "a", 0, "10.0.0.9:10911", "10.0.0.9:10912")
KV_PATH = "/ns/kvConfig.json"
CONFIG_PATH = "/ns/namesrv.properties"


class ControllerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(7)
        self.server, self.peer = self.world.add("namesrv"), self.world.add("broker")
        self.namesrv = self.make()
        self.wait(self.namesrv.start())
        self.client = RemotingClient(self.peer.seams, NettyClientConfig())

    def make(self) -> Namesrv:
        return Namesrv(
            self.server.seams,
            NamesrvConfig(kv_config_path=KV_PATH, config_store_path=CONFIG_PATH),
            NettyServerConfig(listen_port=9876),
        )

    def wait(self, waiting: Deferred[Any], seconds: float = 5.0) -> Any:
        self.world.clock.run_for(seconds)
        return self.successResultOf(waiting)

    def ask(self, code: int, body: bytes | None = None, **ext: str) -> RemotingCommand:
        command = RemotingCommand(code, ext=ext, body=body)
        answer = self.client.invoke(f"{self.server.ip}:9876", command, 3000)
        found = self.wait(answer, 1.0)
        assert isinstance(found, RemotingCommand)
        return found

    def register(self) -> None:
        body = RegisterBrokerBody(DataVersion(1, 1), {"T": TopicConfig("T")}).encode()
        self.assertEqual(self.ask(103, body, **BROKER.to_ext()).code, 0)

    def test_what_access_control_would_need_stops_no_start_without_it(self) -> None:
        config = NamesrvConfig(acl_requires_tls=True)
        tls = {"tls.server.mode": "disabled"}
        Namesrv(self.server.seams, config, NettyServerConfig(), tls=tls)

    def test_register_and_route(self) -> None:
        self.register()
        self.assertEqual(self.ask(105, topic="T").code, 0)

    def test_unknown_code(self) -> None:
        """Answered, where the Java name server lets the client wait."""
        self.assertEqual(self.ask(999).code, 3)

    def test_a_closed_connection_removes_its_broker(self) -> None:
        self.register()
        self.wait(self.client.stop())
        self.client = RemotingClient(self.peer.seams, NettyClientConfig())
        self.assertEqual(self.ask(105, topic="T").code, 17)

    def test_registrations_that_are_unread_after_a_long_turn_are_read_before_the_scan(self) -> None:
        """Else a name server that stood still for two minutes would forget every broker."""
        order: list[str] = []
        server = self.world.add("other")
        namesrv = Namesrv(server.seams, NamesrvConfig(), NettyServerConfig(listen_port=1))
        self.wait(namesrv.start(), 0.1)
        namesrv.routes.expire = lambda now: order.append("scan") or []  # type: ignore
        due = namesrv._scan._timer.getTime()  # type: ignore[union-attr]
        server.seams.clock.callLater(due - server.seams.clock.seconds(), order.append, "read")
        self.world.clock.run_for(5.0)
        self.assertEqual(order, ["read", "scan"])
        self.wait(namesrv.stop())

    def test_every_silent_broker_is_cut_off(self) -> None:
        """Its connection is of no use any more; it has to come again, with all that it has."""
        aborted: list[str] = []

        class Channel:
            def __init__(self, name: str) -> None:
                self.name = name

            def abort(self) -> None:
                aborted.append(self.name)

        for name in ("a", "b", "c"):
            broker = BrokerIdentity("C", name, 0, f"{name}:10911", f"{name}:10912")
            now = self.world.clock.seconds() + (100 if name == "b" else 0)
            self.namesrv.routes.register(broker, DataVersion(1, 1), {}, None, Channel(name), now)
        self.world.clock.run_for(140)
        self.assertEqual(aborted, ["a", "c"])

    def test_a_silent_broker_expires(self) -> None:
        """Although its connection is in use: only registrations count."""
        self.register()
        for _ in range(11):
            self.world.clock.run_for(9.0)
            self.assertEqual(self.ask(105, topic="T").code, 0)
        self.world.clock.run_for(22.0)
        self.assertEqual(self.ask(105, topic="T").code, 17)

    def test_key_values_survive_a_restart(self) -> None:
        self.assertEqual(self.ask(100, namespace="n", key="k", value="v").code, 0)
        self.wait(self.client.stop())
        self.wait(self.namesrv.stop())
        self.assertEqual(self.namesrv.port, 9876)
        self.namesrv = self.make()
        self.wait(self.namesrv.start())
        self.client = RemotingClient(self.peer.seams, NettyClientConfig())
        self.assertEqual(self.ask(101, namespace="n", key="k").ext, {"value": "v"})

    def stop_while(self, write: Callable[[], object], path: str) -> bytes:
        """Stop during a slow write; what the file holds when the stop says that it is over."""
        self.wait(self.client.stop())
        self.server.worker.delay = (5.0, 6.0)
        write()
        found: list[bytes] = []
        stopping = self.namesrv.stop()
        stopping.addCallback(lambda _: found.append(self.server.disk.read_bytes(path)))
        self.world.clock.run_for(60.0)
        self.successResultOf(stopping)
        return found[0]

    def test_a_stop_waits_for_a_key_that_is_being_written(self) -> None:
        """Who ends the process then loses nothing that was asked for."""
        self.ask(100, namespace="n", key="k", value="early")
        found = self.stop_while(lambda: self.namesrv.kv_config.put("n", "k", "late"), KV_PATH)
        self.assertIn(b"late", found)

    def test_a_stop_waits_for_a_setting_that_is_being_written(self) -> None:
        self.server.disk.replace(CONFIG_PATH, b"")
        settings = self.namesrv.settings
        found = self.stop_while(lambda: settings.update("orderMessageEnable=true"), CONFIG_PATH)
        self.assertIn(b"orderMessageEnable=true", found)

    def test_after_a_stop_no_timer_is_left(self) -> None:
        self.wait(self.client.stop())
        self.wait(self.namesrv.stop())
        self.assertEqual(self.server.clock.getDelayedCalls(), [])

    def test_damaged_key_values(self) -> None:
        """The start fails and says which files."""
        for name in (KV_PATH, KV_PATH + ".bak"):
            self.server.disk.replace(name, b"{")
        failure = self.failureResultOf(self.make().start(), StoreError)
        self.assertIn(KV_PATH, failure.getErrorMessage())
