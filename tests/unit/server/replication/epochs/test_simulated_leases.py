"""
Two brokers and our controller's rules under cut lines, delays and frozen processes, from a seed.

At no moment do two of them accept, and after the faults one does, which both agree on.

Spec: controller.md, chapters 3, 10 and 14.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.server.controller.broker_sets import BrokerSets
from rmq_ha.server.controller.codec import decode_set
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.controller.liveness import Liveness
from rmq_ha.server.controller.messages import (
    ANYONE,
    ElectMasterRequest,
    GetMetadataResponse,
    SyncStateSet,
)
from rmq_ha.server.controller.replicas import Decision, ReplicasInfoManager
from rmq_ha.server.replication.epochs.roles.actions import (
    Accept,
    Adopt,
    Apply,
    AskController,
    ControllerAnswer,
    LogProgress,
    SetRole,
    Withdraw,
)
from rmq_ha.server.replication.epochs.roles.identity import KnownIds
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager
from rmq_ha.server.replication.epochs.settings import ManagerSettings

NAME, CONTROLLER = "b", "c:1"
STEP = 0.05
SETTINGS = {"cluster_name": "c", "broker_name": NAME, "controllers": (CONTROLLER,)}


class Broker:
    def __init__(self, number: int, random: Random) -> None:
        self.address = f"h{number}:1"
        self.random = random
        self.files: tuple[Any, Any] = (None, None)
        self.boot()

    def boot(self) -> None:
        """A process begins with what is on the disk."""
        self.manager = ReplicasManager(
            ManagerSettings(broker_address=self.address, **SETTINGS),  # type: ignore[arg-type]
            KnownIds(*self.files),
            lambda: LogProgress(0, 0, 0),
            lambda: 1,
            self.random,
        )
        self.frozen_until = 0.0
        self.known = SyncStateSet()
        self.is_cut = False


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 100.0
        self.sets, self.liveness = BrokerSets(), Liveness()
        self.controller = ReplicasInfoManager(self.sets, self.liveness, lambda: False)
        self.liveness.begin(self.ms)
        self.brokers = [Broker(1, self.random), Broker(2, self.random)]
        self.wire: list[tuple[float, Any]] = []
        self.delay = 0.1
        self.scan_at = self.now
        self.changes = 0
        self.last: Broker | None = None
        self.accepting = 0.0

    @property
    def ms(self) -> int:
        return int(self.now * 1000)

    def later(self, call: Any) -> None:
        self.wire.append((self.now + self.random.random() * self.delay, call))

    # ------------------------------------------------------------ controller

    def commit(self, decision: Decision) -> Decision:
        if decision.event is not None:
            self.sets.apply(decision.event)
        return decision

    def ask(self, broker: Broker, manager: ReplicasManager, ask: AskController) -> None:
        if broker.is_cut or self.random.random() < 0.02:
            self.reply(broker, manager, ask, None, 3.0)
            return
        self.later(lambda: self.serve(broker, manager, ask))

    def serve(self, broker: Broker, manager: ReplicasManager, ask: AskController) -> None:
        header: Any = ask.header
        if ask.code == ControllerRequestCode.BROKER_HEARTBEAT:
            self.liveness.hear(header, None, self.ms)
            decision = Decision(0)
        elif ask.code == ControllerRequestCode.GET_METADATA_INFO:
            decision = Decision(
                0, header=GetMetadataResponse(group="g", controller_leader_address=CONTROLLER)
            )
        elif ask.code == ControllerRequestCode.GET_NEXT_BROKER_ID:
            decision = self.controller.next_broker_id(header)
        elif ask.code == ControllerRequestCode.APPLY_BROKER_ID:
            decision = self.commit(self.controller.apply_broker_id(header))
        elif ask.code == ControllerRequestCode.REGISTER_BROKER:
            decision = self.commit(self.controller.register_broker(header, self.ms))
        elif ask.code == ControllerRequestCode.ELECT_MASTER:
            decision = self.commit(self.controller.elect_master(header, self.ms))
        elif ask.code == ControllerRequestCode.GET_REPLICA_INFO:
            decision = self.controller.replica_info(header.broker_name)
        else:
            decision = self.commit(
                self.controller.alter_sync_state_set(header, decode_set(ask.body), self.ms)
            )
        ext = {} if decision.header is None else ext_fields(decision.header)
        answer = ControllerAnswer(decision.code, decision.remark, ext, decision.body or b"")
        self.reply(broker, manager, ask, None if broker.is_cut else answer)

    def reply(
        self,
        broker: Broker,
        manager: ReplicasManager,
        ask: AskController,
        answer: ControllerAnswer | None,
        seconds: float = 0.0,
    ) -> None:
        def arrive() -> None:
            if broker.frozen_until > self.now:
                self.wire.append((broker.frozen_until, arrive))
            elif broker.manager is manager:
                manager.answered(ask, answer, self.now)

        self.wire.append((self.now + seconds + self.random.random() * self.delay, arrive))

    def scan(self) -> None:
        self.scan_at = self.now + 1.0
        self.liveness.expire(self.ms)
        for name in self.controller.without_master(self.ms):
            request = ElectMasterRequest(cluster_name="c", broker_name=name, broker_id=ANYONE)
            self.commit(self.controller.elect_master(request, self.ms))
            for notice in self.controller.notices(name, self.ms):
                for broker in self.brokers:
                    hears = broker.address == notice.address and not broker.is_cut
                    if hears and self.random.random() < 0.7 and broker.frozen_until <= self.now:
                        broker.manager.notified(notice.header, self.now)

    # ------------------------------------------------------------ brokers

    def run(self, broker: Broker) -> None:
        manager = broker.manager
        if manager.deadline() <= self.now:
            manager.tick(self.now)
        for action in manager.take():
            if isinstance(action, AskController):
                self.ask(broker, manager, action)
            elif isinstance(action, Apply):
                broker.files = (broker.files[0], action.application)
                manager.write_done(self.now)
            elif isinstance(action, Accept):
                broker.files = (action.identity, None)
                manager.write_done(self.now)
            elif isinstance(action, Withdraw):
                broker.files = (broker.files[0], None)
                manager.write_done(self.now)
            elif isinstance(action, Adopt):
                broker.known = action.known
        if manager.role is SetRole.MASTER and broker.known.epoch and self.random.random() < 0.1:
            manager.propose(SyncStateSet((1, 2), broker.known.epoch), self.now)

    def step(self) -> None:
        self.now += STEP
        due = sorted((each for each in self.wire if each[0] <= self.now), key=lambda each: each[0])
        self.wire = [each for each in self.wire if each[0] > self.now]
        for _, call in due:
            call()
        if self.now >= self.scan_at:
            self.scan()
        accepting = [b for b in self.brokers if b.manager.may_accept(self.now)]
        assert len(accepting) < 2, "two masters accept"
        for broker in self.brokers:
            if broker.frozen_until <= self.now:
                self.run(broker)
        if accepting:
            self.accepting += STEP
            if accepting[0] is not self.last:
                self.changes += 1
                self.last = accepting[0]

    def disturb(self) -> None:
        broker = self.random.choice(self.brokers)
        kind = self.random.randrange(6)
        if kind == 0:
            broker.is_cut = not broker.is_cut
        elif kind == 1:
            broker.frozen_until = self.now + self.random.uniform(1, 30)
        elif kind == 2:
            self.delay = self.random.choice((0.1, 0.1, 2.0, 6.0))
        elif kind == 3:
            broker.boot()
        elif kind == 4:
            self.liveness.begin(self.ms)  # another controller of the group begins to lead
            self.liveness._last.clear()


@pytest.mark.parametrize("seed", range(12))
def test_hazard_2_two_masters_never_accept(seed: int) -> None:
    world = World(seed)
    for number in range(3000):
        if number % 100 == 99:
            world.disturb()
        world.step()
    world.delay = 0.1
    for broker in world.brokers:
        broker.is_cut, broker.frozen_until = False, 0.0
    for _ in range(1200):
        world.step()
    accepting = [b for b in world.brokers if b.manager.may_accept(world.now)]
    assert len(accepting) == 1
    assert {b.manager.epoch for b in world.brokers} == {accepting[0].manager.epoch}
    assert sorted(b.manager.role.value for b in world.brokers) == ["master", "slave"]


def test_the_worlds_see_what_they_are_for() -> None:
    """Masters change in them, and most of the time somebody accepts."""
    worlds = [World(seed) for seed in range(4)]
    for world in worlds:
        for number in range(3000):
            if number % 100 == 99:
                world.disturb()
            world.step()
    assert sum(world.changes for world in worlds) > 6
    assert sum(world.accepting for world in worlds) > 4 * 3000 * STEP / 3
