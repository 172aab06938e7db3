"""Brokers of ours at controllers of ours, on simulated machines. Spec: controller.md, chapter 3."""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel, capturedLogs, formatEvent

from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.roles.actions import Adopt, Follow, Lead, LogProgress
from rmq_ha.server.replication.epochs.roles.controller_client import ControllerClient, Decision
from rmq_ha.server.replication.epochs.roles.identity import IdentityFiles, KnownIds
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager
from rmq_ha.server.replication.epochs.settings import ManagerSettings
from tests.sim_kit.controlled import until, wait
from tests.unit.server.controller.controllers import BROKER_PORT, Controllers

WHO = "/store/brokerIdentity"


class Broker:
    """A port, files, and a client; no store."""

    def __init__(self, desk: Controllers, name: str) -> None:
        self.desk = desk
        self.host = desk.world.add(name)
        self.address = f"{self.host.ip}:{BROKER_PORT}"
        self.start()

    def start(self) -> None:
        seams = self.host.seams
        self.decisions: list[Decision] = []
        files = IdentityFiles(seams.disk, WHO)
        files.load("c", "b")
        manager = ReplicasManager(
            ManagerSettings(
                cluster_name="c",
                broker_name="b",
                broker_address=self.address,
                controllers=tuple(self.desk.addresses),
            ),
            KnownIds(files.identity, files.application),
            self.progress,
            seams.now_ms,
            seams.random,
        )
        self.rpc = RemotingClient(seams, NettyClientConfig())
        self.client = ControllerClient(seams, manager, files, self.rpc, self)
        dispatcher = RequestDispatcher()
        dispatcher.routes[1008] = self.client.notified
        self.server = RemotingServer(seams, NettyServerConfig(), dispatcher)
        wait(self.desk.world, self.server.listen(BROKER_PORT, ""))
        self.client.start()

    def progress(self) -> LogProgress:
        """Each election is in the epoch file at once."""
        return LogProgress(self.client.manager.epoch or -1, 0, 0)

    def decided(self, decision: Decision) -> None:
        self.decisions.append(decision)

    @property
    def number(self) -> int | None:
        identity = self.client.manager.identity
        return None if identity is None else identity.broker_id

    def again(self) -> None:
        self.host.restart()
        self.start()


def desk_with(brokers: int = 2, size: int = 1) -> tuple[Controllers, list[Broker]]:
    """They join one after the other, so the first one leads."""
    desk = Controllers(size, 0)
    made = []
    for number in range(brokers):
        made.append(Broker(desk, f"broker{number}"))
        until(desk.world, lambda: bool(made[-1].decisions), 10.0)
    until(desk.world, lambda: made[0].client.may_accept, 5.0)
    return desk, made


def roles(broker: Broker) -> list[Any]:
    return [each for each in broker.decisions if isinstance(each, Lead | Follow)]


def test_two_brokers_join_and_one_leads() -> None:
    desk, (first, second) = desk_with()
    assert (first.number, second.number) == (1, 2)
    assert roles(first) == [Lead(1, SyncStateSet((1,), 1))]
    assert roles(second) == [Follow(1, first.address, 1)]
    assert not second.client.may_accept
    assert first.host.seams.disk.read_bytes(WHO) == b"c#b#1"
    first.client.propose(SyncStateSet((1, 2), 1))
    until(desk.world, lambda: Adopt(SyncStateSet((1, 2), 2)) in first.decisions, 1.0)
    assert desk.info()[1] == SyncStateSet((1, 2), 2)


def in_sync(desk: Controllers, first: Broker) -> None:
    first.client.propose(SyncStateSet((1, 2), 1))
    until(desk.world, lambda: desk.info()[1].members == (1, 2), 2.0)


def test_the_other_one_leads_within_a_second_after_a_kill() -> None:
    desk, (first, second) = desk_with()
    in_sync(desk, first)
    first.host.crash()
    until(desk.world, lambda: second.client.may_accept, 1.5)
    assert roles(second)[-1] == Lead(2, SyncStateSet((2,), 3))
    first.again()
    until(desk.world, lambda: bool(roles(first)), 5.0)
    assert first.number == 1
    assert roles(first) == [Follow(2, second.address, 2)]


def test_a_master_that_hears_of_no_controller_accepts_no_more() -> None:
    desk, (first, second) = desk_with()
    desk.crash(0)
    took = until(desk.world, lambda: not first.client.may_accept, 10.0)
    assert took <= 8.0
    assert roles(first) == [Lead(1, SyncStateSet((1,), 1))], "it keeps its role"
    desk.restart(0)
    until(desk.world, lambda: first.client.may_accept, 5.0)
    assert roles(second) == [Follow(1, first.address, 1)]


def test_a_controller_that_does_not_answer_is_told_of_once() -> None:
    desk, (first,) = desk_with(1)
    said: list[str] = []
    with capturedLogs() as events:
        desk.crash(0)
        until(desk.world, lambda: not first.client.may_accept, 10.0)
        desk.restart(0)
        until(desk.world, lambda: first.client.may_accept, 5.0)
    for event in events:
        if (
            event["log_namespace"].endswith("ControllerClient")
            and event["log_level"] > LogLevel.debug
        ):
            said.append(str(formatEvent(event)))
    silent, back = said
    assert "does not answer: look at it, and at controllerAddr" in silent
    assert "answers again" in back


def test_who_is_no_controller_is_told_of_once() -> None:
    """Another server's port in controllerAddr: it answers, and is asked about once a second."""
    desk = Controllers(1, 0)
    host = desk.world.add("a name server")
    asked: list[int] = []
    dispatcher = RequestDispatcher()

    def unknown(_: Any, request: RemotingCommand) -> RemotingCommand:
        asked.append(request.code)
        return request.response(3, "request code is not supported")

    dispatcher.default = unknown
    wait(desk.world, RemotingServer(host.seams, NettyServerConfig(), dispatcher).listen(9876, ""))
    desk.addresses = [f"{host.ip}:9876"]
    with capturedLogs() as events:
        broker = Broker(desk, "broker0")
        desk.world.clock.run_for(20.0)
    (said,) = [str(formatEvent(event)) for event in events if event["log_level"] is LogLevel.warn]
    assert f"controller {host.ip}:9876 is no controller; correct controllerAddr" in said
    assert 10 <= len(asked) <= 30
    assert broker.decisions == []


def test_one_of_three_controllers_may_die() -> None:
    desk, (first, second) = desk_with(size=3)
    in_sync(desk, first)
    desk.crash(desk.leader())
    desk.leader()
    until(desk.world, lambda: first.client.may_accept, 15.0)
    first.host.crash()
    until(desk.world, lambda: second.client.may_accept, 30.0)
    assert isinstance(roles(second)[-1], Lead)


def test_a_refused_set_is_dropped() -> None:
    desk, (first, _) = desk_with()
    first.client.propose(SyncStateSet((1, 99), 1))
    until(desk.world, lambda: Adopt(SyncStateSet((1,), 1), is_final=True) in first.decisions, 2.0)
    assert desk.info()[1] == SyncStateSet((1,), 1)


def test_a_role_that_was_not_taken_is_given_again() -> None:
    desk, (first, _) = desk_with()
    first.client.failed()
    assert not first.client.may_accept
    until(desk.world, lambda: len(roles(first)) == 2, 5.0)
    until(desk.world, lambda: first.client.may_accept, 5.0)


def test_hazard_23_controllers_that_lost_their_disks_take_the_same_ids() -> None:
    desk, (first, second) = desk_with()
    desk.crash(0)
    desk.hosts[0].restart()
    desk.hosts[0].seams.disk.remove_tree("/controller")
    desk.services[0] = desk.make(0)
    wait(desk.world, desk.services[0].start())
    until(desk.world, lambda: desk.services[0].elections == 1, 30.0)
    until(desk.world, lambda: first.client.may_accept or second.client.may_accept, 30.0)
    assert {first.client.manager.epoch, second.client.manager.epoch} <= {1, 2}
    until(desk.world, lambda: first.client.manager.epoch == second.client.manager.epoch == 2, 9.0)
    assert (first.number, second.number) == (1, 2)
    assert first.host.seams.disk.read_bytes(WHO) == b"c#b#1"
    assert second.host.seams.disk.read_bytes(WHO) == b"c#b#2"


def test_who_is_stopped_says_nothing() -> None:
    desk, (first, _) = desk_with()
    first.client.stop()
    assert not first.client.may_accept
    before = len(first.decisions)
    desk.world.clock.run_for(10.0)
    assert len(first.decisions) == before
