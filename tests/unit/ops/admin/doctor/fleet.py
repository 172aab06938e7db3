"""Whole broker servers on simulated machines, and what `doctor` says of them before and after."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin import broker, topic
from rmq_ha.ops.admin.doctor.command import examine
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity
from rmq_ha.ops.admin.doctor.gather import DoctorScope
from rmq_ha.ops.app.broker_server import BrokerServer
from rmq_ha.ops.app.descriptors import allow_descriptors
from rmq_ha.ops.app.live_check import examine_before_start
from rmq_ha.testing.brokers import NAMESRV_PORT, NamesrvNode
from rmq_ha.testing.cluster import small_configuration
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say

STATUS_PORT = 5557
PATH = "/etc/broker.properties"
ERROR, WARNING = DoctorSeverity.ERROR.value, DoctorSeverity.WARNING.value


class Visit:
    """What `doctor` said once."""

    def __init__(self, said: Said) -> None:
        self.said = said
        self.items: list[dict[str, str]] = said.json["findings"]
        self.not_looked: dict[str, str] = {
            item["what"]: item["why"] for item in said.json["not_looked_at"]
        }

    def codes(self, *severities: str) -> set[str]:
        """Of findings as bad as that; of all, when none is given."""
        severe = severities or tuple(item.value for item in DoctorSeverity)
        return {item["code"] for item in self.items if item["severity"] in severe}

    def __str__(self) -> str:
        return "\n".join(
            f"{i['severity']} {i['code']} {i['about']}: {i['text']}" for i in self.items
        )

    def texts(self, code: str) -> list[str]:
        """What was said of one fault, with whom it is about."""
        return [f"{item['about']}: {item['text']}" for item in self.items if item["code"] == code]


class Fleet(SimCluster):
    """
    Brokers as `twistd rmqha` runs them, on machines of a network.

    :ivar servers: machine name to running `BrokerServer`.
    """

    def __init__(
        self, *names: str, subnet: str = "10.0.0", watched: bool = False, **settings: Any
    ) -> None:
        """:param watched: they have status ports: each visit then takes its time to read them."""
        self.watched = watched
        if watched:
            allow_descriptors()  # as a server at its start: its metrics are those of this process
        self.servers: dict[str, BrokerServer] = {}
        super().__init__(*names, subnet=subnet, **settings)

    def add(
        self, name: str, role: BrokerRole = BrokerRole.ASYNC_MASTER, **changes: dict[str, Any]
    ) -> Any:
        """As `SimCluster.add`: a whole server; its section `options` are options of plugins."""
        host = self.hosts.get(name) or self.world.add(name)
        if not host.is_running:
            host.restart()
        self.hosts[name] = host
        configuration = small_configuration(host.ip, role, FlushDiskType.ASYNC_FLUSH)
        configuration.broker.namesrv_addr = self.namesrv.address
        configuration.broker.broker_name = "pair"
        configuration.ours.metrics_port = STATUS_PORT if self.watched else 0
        configuration.ours.metrics_address = host.ip
        configuration.ours.page_enable = False
        configuration.plugin_options.update(changes.pop("options", {}))
        for section, values in changes.items():
            for key, value in values.items():
                setattr(getattr(configuration, section), key, value)
        server = self.servers[name] = BrokerServer(host.seams, configuration)
        self.wait(server.start())
        self.brokers[name] = server._broker
        return self.brokers[name]

    def stop(self, name: str) -> None:
        """In an orderly way; its machine stays."""
        self.wait(self.servers.pop(name).stop())
        del self.brokers[name]

    def second_name_server(self) -> NamesrvNode:
        """Another one, on a machine of its own."""
        other = NamesrvNode(self.world.add("ns2"))
        other.start()
        return other

    @property
    def every_name_server(self) -> str:
        """Both of them."""
        return f"{self.namesrv.address};{self.world.hosts['ns2'].ip}:{NAMESRV_PORT}"

    def type(self, work: Any) -> None:
        """A command of `rmqha-admin`, which has to do it."""
        said = say(self, work)
        assert not said.code, said.out + said.err

    def config_set(self, which: str = "pair", **changes: str) -> None:
        """`rmqha-admin broker config set`."""
        self.type(
            lambda s: broker.set_config(s, which, changes, drop_old=True, yes=True, dry_run=False)
        )

    def make_topic(self, name: str = "Work", queues: int = 4) -> None:
        """`rmqha-admin topic create`."""
        shape = {"queues": queues, "read_queues": None, "write_queues": None, "perm": None}
        self.type(
            lambda s: topic.change_topic(s, name, "", shape, is_new=True, yes=True, dry_run=False)
        )

    def visit(self, which: str = "", **more: Any) -> Visit:
        """`rmqha-admin doctor` on the machine `admin`, or where `say` is told to run it."""
        scope = more.pop("scope", None) or DoctorScope(which)
        work = more.pop("work", examine)
        return Visit(say(self, lambda session: work(session, scope), **more))

    def is_well(self, **more: Any) -> Visit:
        """Nobody has to do anything."""
        visit = self.visit(**more)
        assert visit.codes(ERROR, WARNING) == set(), str(visit)
        return visit

    def finds(self, code: str, *consequences: str, **more: Any) -> str:
        """
        The fault is found, and no other error but those that it brings about.

        :returns: what was said of it.
        """
        visit = self.visit(**more)
        assert code in visit.codes(), str(visit)
        assert visit.codes(ERROR) - {code} == set(consequences), str(visit)
        return "\n".join(visit.texts(code))

    def fix(self, code: str, **more: Any) -> str:
        """What it advises against a fault."""
        return next(item["fix"] for item in self.visit(**more).items if item["code"] == code)

    def with_file(self, name: str, text: str) -> dict[str, Any]:
        """A properties file on a machine: `visit` there, with it."""
        machine = self.hosts[name]
        machine.disk.replace(PATH, text.encode())
        around = Surroundings({}, "/root", name, machine.ip, "/")
        return {"scope": DoctorScope(config=PATH, surroundings=around), "host": machine.seams}

    def before(self, name: str, text: str, **scope: Any) -> dict[str, Any]:
        """`--check --live` there, for a properties file."""
        visit = self.with_file(name, text)
        scope = {"scope": visit["scope"]._replace(**scope)}
        return {**visit, **scope, "work": examine_before_start, "namesrv": ""}

    def file_of(self, name: str, *lines: str) -> str:
        """A properties file of the broker that runs on a machine; what is said last holds."""
        own = self.brokers[name].configuration
        usual = [
            f"brokerName={own.broker.broker_name}",
            f"brokerIP1={self.hosts[name].ip}",
            f"namesrvAddr={self.namesrv.address}",
            f"brokerRole={own.store.broker_role.value}",
            f"brokerId={own.broker.broker_id}",
            f"storePathRootDir={own.store.store_path_root_dir}",
            "mappedFileSizeCommitLog=32768",
        ]
        return "\n".join([*usual, *lines]) + "\n"

    def send(self, topic: str, count: int = 1, size: int = 10, **more: Any) -> list[Any]:
        """Messages of a producer, one after the other; its answers."""

        async def work() -> list[Any]:
            given = {"delivery_timeout_ms": 0, "compress_msg_body_over_howmuch": 1 << 30} | more
            config = ProducerConfig(producer_group="makers", **given)
            producer = Producer(self.client("maker"), config)
            await producer.start()
            try:
                body = b"m" * size
                return [await producer.send(Message(topic, body, tags="a")) for _ in range(count)]
            finally:
                await producer.stop()

        return list(self.wait(work()))

    def again(self, name: str, act: Callable[[], Any]) -> None:
        """Each second, from a machine, until that is crashed; what comes of it nobody minds."""
        host = self.hosts[name] = self.hosts.get(name) or self.world.add(name)

        def tick() -> None:
            done = act()
            if isinstance(done, Deferred):
                done.addErrback(lambda _: None)
            host.clock.callLater(1.0, tick)

        tick()

    def asking(
        self, name: str, code: int, ext: dict[str, str], body: bytes = b""
    ) -> Callable[[], Any]:
        """A request to the broker on machine `a`, as a program there would make it."""
        host = self.hosts[name] = self.hosts.get(name) or self.world.add(name)
        client = RemotingClient(host.seams, NettyClientConfig())
        return lambda: client.invoke(
            self.address("a"), RemotingCommand(code, dict(ext), body=body), 3000
        )

    def sending(self, name: str, topic: str = "Work", **client: Any) -> Callable[[], Any]:
        """A producer on a machine that sends a message whenever it is told to."""
        given = {"delivery_timeout_ms": 0, "retry_times_when_send_failed": 0}
        producer = Producer(
            self.client(name, **client), ProducerConfig(producer_group="makers", **given)
        )
        self.wait(producer.start())
        return lambda: producer.send(Message(topic, b"again"))

    def send_anyway(self, topic: str, count: int = 1, size: int = 10) -> None:
        """The same, and whatever is refused is refused."""
        with suppress(MQClientError):
            self.send(topic, count, size)

    def member(self, name: str, listen: Any, **more: Any) -> PushConsumer:
        """Of the group `workers`, of the topic `Work`."""
        expression = more.pop("expression", "*")
        consumer = PushConsumer(self.client(name), "workers", PushConsumerConfig(**more))
        consumer.subscribe("Work", expression)
        consumer.register_message_listener(listen)
        self.wait(consumer.start())
        return consumer


def never(messages: Any, context: Any) -> Deferred[None]:
    """A listener that hangs."""
    return Deferred()


def whole_pair(*, watched: bool = False, name_servers: int = 1, **changes: dict[str, Any]) -> Fleet:
    """A SYNC_MASTER on machine `a`, its slave on `b`, both settled; nothing is wrong."""
    fleet = Fleet(watched=watched)
    if name_servers > 1:
        fleet.second_name_server()
        changes["broker"] = {"namesrv_addr": fleet.every_name_server, **changes.get("broker", {})}
    fleet.add("a", BrokerRole.SYNC_MASTER, **changes)
    slave = {**changes, "broker": {**changes.get("broker", {}), "broker_id": 1}}
    fleet.add("b", BrokerRole.SLAVE, **slave)
    fleet.run(12)
    fleet.is_well()
    return fleet
