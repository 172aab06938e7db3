"""Controllers and brokers on simulated machines."""

from __future__ import annotations

from typing import Any

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.controller.codec import decode_set, encode_set
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.testing.host import World
from tests.sim_kit.controlled import Asker, ControllerDesk, Ext, wait

BROKER_PORT = 10911


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

    def heartbeat(self) -> Ext:
        return {
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

    def _beat(self) -> None:
        if self.beats:
            for address in self.controllers:
                command = RemotingCommand(904, ext=self.heartbeat())
                self.asker.client.oneway(address, command).addErrback(lambda _: None)
        self.host.clock.callLater(1.0, self._beat)


class Controllers(ControllerDesk):
    """One group of controllers `n0`, `n1` ..., and brokers of the set `b`."""

    def __init__(self, size: int = 1, brokers: int = 2, seed: int = 5, **config: Any) -> None:
        super().__init__(size, seed, **config)
        self.brokers = {
            number: SimBroker(self.world, number, self.addresses)
            for number in range(1, brokers + 1)
        }

    def join(self, number: int) -> None:
        """Get an id and register."""
        broker = self.brokers[number]
        names = {"clusterName": "c", "brokerName": "b"}
        code = f"{broker.address};1"
        applied = {**names, "appliedBrokerId": str(number), "registerCheckCode": code}
        taken = self.ask_as(number, 1013, applied)
        assert taken.code == 0, taken.remark
        here = {**names, "brokerId": str(number), "brokerAddress": broker.address}
        known = self.ask_as(number, 1003, here)
        assert known.code == 0, known.remark

    def ask_as(
        self, number: int, code: int, ext: Ext | None = None, body: bytes | None = None
    ) -> RemotingCommand:
        """What the leader answers that broker."""
        address = self.addresses[self.leader()]
        return self.brokers[number].asker.ask(address, code, ext, body)

    def pair(self) -> None:
        """Both are in the set, 1 leads."""
        for number in self.brokers:
            self.join(number)
        self.world.clock.run_for(1.5)
        assert self.ask_as(1, 1002, {"brokerName": "b", "brokerId": "1"}).code == 0
        info = self.info()
        altered = self.ask_as(
            1,
            1001,
            {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": info[0]["masterEpoch"]},
            encode_set(SyncStateSet((1, 2), info[1].epoch)),
        )
        assert altered.code == 0, altered.remark

    def master(self) -> str | None:
        return self.info()[0].get("masterBrokerId")
