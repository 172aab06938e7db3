"""Controllers and brokers on simulated machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.config.controller import ControllerConfig
from rmq_ha.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.controller.codec import decode_set, encode_set
from rmq_ha.controller.messages import SyncStateSet
from rmq_ha.controller.service import ControllerService
from rmq_ha.errors import RemotingConnectError
from rmq_ha.remoting.client import RemotingClient
from rmq_ha.remoting.dispatcher import RequestDispatcher
from rmq_ha.remoting.server import RemotingServer
from rmq_ha.testing.host import SimHost, World
from rmq_ha.wire.command import RemotingCommand

PORT, BROKER_PORT = 9878, 10911
Ext = dict[str, str]


class Asker:
    """Asks, from a machine of its own, over one connection."""

    def __init__(self, world: World, host: SimHost) -> None:
        self.world, self.host = world, host
        self.client = RemotingClient(host.seams, NettyClientConfig())

    def ask(
        self, address: str, code: int, ext: Ext | None = None, body: bytes | None = None
    ) -> RemotingCommand:
        """The answer; it has to come within 5 s of simulated time."""
        request = RemotingCommand(code, ext=ext, body=body)
        try:
            answer = wait(self.world, self.client.invoke(address, request, 4900))
        except RemotingConnectError:  # of a life before
            answer = wait(self.world, self.client.invoke(address, request, 4900))
        assert isinstance(answer, RemotingCommand)
        return answer


def wait(world: World, waiting: Deferred[Any], seconds: float = 5.0) -> Any:
    """Its result, once it has one."""
    found: list[Any] = []
    waiting.addBoth(found.append)
    until(world, lambda: bool(found), seconds)
    if isinstance(found[0], BaseException) or hasattr(found[0], "raiseException"):
        found[0].raiseException()
    return found[0]


def until(world: World, is_so: Callable[[], bool], seconds: float) -> float:
    """Simulated time goes on until it is so, at most that long; how long that took."""
    start = world.clock.seconds()
    while not is_so():
        assert world.clock.seconds() - start < seconds, f"not within {seconds} s"
        world.clock.run_for(0.05)
    return world.clock.seconds() - start


class SimBroker:
    """What a controller sees of a broker: heartbeats, and a port that takes 1008."""

    def __init__(self, world: World, number: int, controllers: list[str]) -> None:
        self.world, self.number, self.controllers = world, number, controllers
        self.host = world.add(f"broker{number}")
        self.address = f"{self.host.ip}:{BROKER_PORT}"
        self.told: list[tuple[Ext, SyncStateSet]] = []
        self.epoch, self.max_offset, self.silence = 0, 0, 3000
        self.beats = True
        self.start()

    def start(self) -> None:
        self.asker = Asker(self.world, self.host)
        dispatcher = RequestDispatcher()
        dispatcher.routes[1008] = self._told
        self.server = RemotingServer(self.host.seams, NettyServerConfig(), dispatcher)
        wait(self.world, self.server.listen(BROKER_PORT, ""))
        self._beat()

    def _told(self, _: Any, request: RemotingCommand) -> None:
        self.told.append((request.ext or {}, decode_set(request.body or b"")))

    def _beat(self) -> None:
        if self.beats:
            ext = {
                "clusterName": "c",
                "brokerName": "b",
                "brokerAddr": self.address,
                "brokerId": str(self.number),
                "epoch": str(self.epoch),
                "maxOffset": str(self.max_offset),
                "confirmOffset": "0",
                "heartbeatTimeoutMills": str(self.silence),
                "electionPriority": "2147483647",
            }
            for address in self.controllers:
                sent = self.asker.client.oneway(address, RemotingCommand(904, ext=ext))
                sent.addErrback(lambda _: None)
        self.host.clock.callLater(1.0, self._beat)


class Controllers:
    """One group of controllers `n0`, `n1` ..., and brokers of the set `b`."""

    def __init__(self, size: int = 1, brokers: int = 2, seed: int = 5, **config: Any) -> None:
        self.world = World(seed, subnet="10.0.0")
        self.config = config
        self.hosts = [self.world.add(f"n{number}") for number in range(size)]
        self.addresses = [f"{host.ip}:{PORT}" for host in self.hosts]
        self.services = [self.make(number) for number in range(size)]
        for service in self.services:
            wait(self.world, service.start())
        self.tool = Asker(self.world, self.world.add("tool"))
        self.leader()
        self.brokers = {
            number: SimBroker(self.world, number, self.addresses)
            for number in range(1, brokers + 1)
        }

    def make(self, number: int) -> ControllerService:
        peers = ";".join(f"n{i}-{address}" for i, address in enumerate(self.addresses))
        config = ControllerConfig(
            controller_dleger_peers=peers,
            controller_dleger_self_id=f"n{number}",
            controller_store_path="/controller",
            mapped_file_size=1 << 16,
            config_store_path="/controller.conf",
            **self.config,
        )
        return ControllerService(self.hosts[number].seams, config, NettyServerConfig())

    def crash(self, number: int, *, power: bool = True) -> None:
        self.hosts[number].crash(power=power)

    def restart(self, number: int) -> None:
        self.hosts[number].restart()
        self.services[number] = self.make(number)
        wait(self.world, self.services[number].start())

    def leader(self, seconds: float = 30.0) -> int:
        """Which one leads and serves."""
        until(self.world, lambda: self._leading() is not None, seconds)
        found = self._leading()
        assert found is not None
        return found

    def _leading(self) -> int | None:
        for number, service in enumerate(self.services):
            if self.hosts[number].is_running and service.group.is_ready:
                return number
        return None

    def ask(self, code: int, ext: Ext | None = None, body: bytes | None = None) -> RemotingCommand:
        """The leader's answer."""
        return self.tool.ask(self.addresses[self.leader()], code, ext, body)

    def join(self, number: int) -> None:
        """Get an id and register."""
        broker = self.brokers[number]
        names = {"clusterName": "c", "brokerName": "b"}
        code = f"{broker.address};1"
        taken = self.ask(1013, {**names, "appliedBrokerId": str(number), "registerCheckCode": code})
        assert taken.code == 0, taken.remark
        known = self.ask(1003, {**names, "brokerId": str(number), "brokerAddress": broker.address})
        assert known.code == 0, known.remark

    def pair(self) -> None:
        """Both are in the set, 1 leads."""
        for number in self.brokers:
            self.join(number)
        self.world.clock.run_for(1.5)
        assert self.ask(1002, {"brokerName": "b", "brokerId": "1"}).code == 0
        info = self.info()
        altered = self.ask(
            1001,
            {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": info[0]["masterEpoch"]},
            encode_set(SyncStateSet((1, 2), info[1].epoch)),
        )
        assert altered.code == 0, altered.remark

    def info(self) -> tuple[Ext, SyncStateSet]:
        """1004."""
        answer = self.ask(1004, {"brokerName": "b"})
        assert answer.code == 0, answer.remark
        return answer.ext or {}, decode_set(answer.body or b"")

    def master(self) -> str | None:
        return self.info()[0].get("masterBrokerId")
