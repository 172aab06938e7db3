"""The controllers' tables under any order of events: what must hold always."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq_ha.server.controller.broker_sets import BrokerSet, BrokerSets
from rmq_ha.server.controller.codes import ControllerResponseCode
from rmq_ha.server.controller.events import (
    Event,
    MasterElected,
    SyncStateSetAltered,
    decode_event,
    encode_event,
)
from rmq_ha.server.controller.liveness import Liveness
from rmq_ha.server.controller.messages import (
    ANYONE,
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    CleanBrokerDataRequest,
    ElectMasterRequest,
    GetNextBrokerIdRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
    SyncStateSet,
)
from rmq_ha.server.controller.replicas import Decision, ReplicasInfoManager

NAME, CLUSTER = "b", "c"
IDS = st.integers(1, 4)
SILENCE = 3000


class Controllers(RuleBasedStateMachine):
    """One set of brokers, a controller that may be replaced, and a log."""

    @initialize(unclean=st.booleans())
    def begin(self, unclean: bool) -> None:
        self.unclean = unclean
        self.now = 1_000_000
        self.log: list[bytes] = []
        self.sets = BrokerSets()
        self.liveness = Liveness()
        self.liveness.begin(self.now)
        self.manager = ReplicasInfoManager(self.sets, self.liveness, lambda: self.unclean)
        self.masters: dict[int, int] = {}
        self.last = (0, 0, 1)

    @property
    def set(self) -> BrokerSet | None:
        return self.sets.get(NAME)

    def commit(self, decision: Decision) -> Decision:
        if decision.event is not None:
            before = self.set
            had = None if before is None else (before.master, before.members, before.master_epoch)
            self.check_event(decision.event, had)
            self.log.append(encode_event(decision.event))
            self.sets.apply(decode_event(self.log[-1]))
            after = self.set
            if after is None:
                self.masters, self.last = {}, (0, 0, 1)
        return decision

    def check_event(self, event: Event, had: Any) -> None:
        """Against the tables before it."""
        if isinstance(event, SyncStateSetAltered):
            assert had[0] in event.members
        if not isinstance(event, MasterElected):
            return
        master, members, epoch = had
        assert event.master_epoch > epoch
        if event.master_id is None:
            assert not self.liveness.is_alive(NAME, master, self.now)
            assert not any(self.liveness.is_alive(NAME, i, self.now) for i in members)
        elif epoch > 0:
            assert self.liveness.is_alive(NAME, event.master_id, self.now)
            if event.master_id not in members:
                assert self.unclean
                assert not any(self.liveness.is_alive(NAME, i, self.now) for i in members)
        elif not self.liveness.is_alive(NAME, event.master_id, self.now):
            assert event.master_id == self.asked

    @rule(number=IDS, code=st.sampled_from("xy"))
    def apply_for(self, number: int, code: str) -> None:
        request = ApplyBrokerIdRequest(
            cluster_name=CLUSTER,
            broker_name=NAME,
            applied_broker_id=number,
            register_check_code=f"h:{number};{code}",
        )
        before = self.set
        owner = before.brokers.get(number) if before else None
        decision = self.commit(self.manager.apply_broker_id(request))
        if owner is not None:
            good = owner.check_code == f"h:{number};{code}"
            assert (decision.code == ControllerResponseCode.SUCCESS) is good
            assert decision.event is None

    @rule(number=IDS, port=st.integers(1, 3))
    def register(self, number: int, port: int) -> None:
        request = RegisterBrokerRequest(
            cluster_name=CLUSTER, broker_name=NAME, broker_id=number, broker_address=f"h:{port}"
        )
        decision = self.commit(self.manager.register_broker(request, self.now))
        known = self.set is not None and number in self.set.brokers
        assert (decision.code == ControllerResponseCode.SUCCESS) is known

    @rule(number=IDS, epoch=st.integers(-1, 9), offset=st.integers(0, 5))
    def heartbeat(self, number: int, epoch: int, offset: int) -> None:
        request = HeartbeatRequest(
            broker_name=NAME,
            broker_addr=f"h:{number}",
            broker_id=number,
            epoch=epoch,
            max_offset=offset,
            heartbeat_timeout_mills=SILENCE,
        )
        self.liveness.hear(request, None, self.now)

    @rule(number=IDS)
    def dies(self, number: int) -> None:
        self.liveness.mark_dead([(NAME, number)])

    @rule(ms=st.sampled_from([10, SILENCE, SILENCE + 1, 11_000]))
    def time_goes_by(self, ms: int) -> None:
        self.now += ms
        self.liveness.expire(self.now)

    @rule(heard=st.booleans())
    def another_controller_leads(self, heard: bool) -> None:
        """It has the log; the heartbeats only if it was there all the time."""
        if not heard:
            self.liveness = Liveness()
        self.liveness.begin(self.now)
        self.sets = self.replayed()
        self.manager = ReplicasInfoManager(self.sets, self.liveness, lambda: self.unclean)

    @rule(number=IDS | st.just(ANYONE), designated=st.booleans())
    def elect(self, number: int, designated: bool) -> None:
        self.asked = number
        before = self.set
        master = before.master if before else None
        may_live = master is not None and self.liveness.may_live(
            NAME, master, self.now, before.silence_ms if before else 0
        )
        alive = master is not None and self.liveness.is_alive(NAME, master, self.now)
        request = ElectMasterRequest(broker_name=NAME, broker_id=number, designate_elect=designated)
        decision = self.commit(self.manager.elect_master(request, self.now))
        if alive and not (designated and number not in (ANYONE, master)):
            assert decision.event is None
        if may_live and not alive:
            assert decision.event is None, "the old master may go on writing"
        if decision.code == ControllerResponseCode.MASTER_NOT_AVAILABLE:
            again = self.manager.elect_master(request, self.now)
            assert again.event is None, "a failed election costs one epoch, not one each time"

    @rule()
    def scan(self) -> None:
        self.asked = ANYONE
        for name in self.manager.without_master(self.now):
            request = ElectMasterRequest(broker_name=name)
            decision = self.commit(self.manager.elect_master(request, self.now))
            assert decision.event is not None, "a scan that changes nothing would come for ever"
        assert not self.manager.without_master(self.now)

    @rule(
        by=IDS,
        off=st.sampled_from([0, 0, 0, -1, 1]),
        set_off=st.sampled_from([0, 0, 0, -1, 1]),
        members=st.sets(IDS, min_size=1),
    )
    def alter(self, by: int, off: int, set_off: int, members: set[int]) -> None:
        before = self.set
        epoch = before.master_epoch if before else 0
        set_epoch = before.set_epoch if before else 0
        request = AlterSyncStateSetRequest(
            broker_name=NAME, master_broker_id=by, master_epoch=epoch + off
        )
        wanted = SyncStateSet(tuple(sorted(members)), set_epoch + set_off)
        decision = self.commit(self.manager.alter_sync_state_set(request, wanted, self.now))
        if decision.event is not None:
            assert before is not None
            assert (off, set_off, before.master) == (0, 0, by)

    @rule(numbers=st.sets(IDS), living=st.booleans())
    def clean(self, numbers: set[int], living: bool) -> None:
        before = self.set
        request = CleanBrokerDataRequest(
            broker_name=NAME,
            broker_controller_ids_to_clean=";".join(map(str, numbers)),
            is_clean_living_broker=living,
        )
        decision = self.manager.clean_broker_data(request, self.now)
        if decision.event is not None and not living and before is not None:
            doomed = (numbers or set(before.brokers)) & before.brokers.keys()
            assert not any(self.liveness.is_alive(NAME, i, self.now) for i in doomed)
        self.commit(decision)

    def replayed(self) -> BrokerSets:
        sets = BrokerSets()
        for body in self.log:
            sets.apply(decode_event(body))
        return sets

    @invariant()
    def the_master_is_in_sync(self) -> None:
        found = self.set
        if found is None:
            return
        assert set(found.members) <= found.brokers.keys()
        assert list(found.members) == sorted(set(found.members))
        if found.master is not None:
            assert found.master in found.members

    @invariant()
    def an_epoch_has_one_master(self) -> None:
        found = self.set
        if found is None:
            return
        if found.master is not None:
            assert self.masters.setdefault(found.master_epoch, found.master) == found.master

    @invariant()
    def epochs_and_ids_only_grow(self) -> None:
        found = self.set
        if found is None:
            return
        now = (found.master_epoch, found.set_epoch, found.next_id)
        assert all(after >= before for after, before in zip(now, self.last, strict=True))
        assert found.next_id > max(found.brokers)
        self.last = now

    @invariant()
    def the_log_tells_all(self) -> None:
        assert self.replayed().get(NAME) == self.set

    @invariant()
    def the_next_id_is_free(self) -> None:
        request = GetNextBrokerIdRequest(broker_name=NAME)
        header: Any = self.manager.next_broker_id(request).header
        assert self.set is None or header.next_broker_id not in self.set.brokers


TestControllers = Controllers.TestCase
TestControllers.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
