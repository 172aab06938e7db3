"""What a leading controller answers: elections, sets, ids; chapter 14's hazards among them."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.server.controller.broker_sets import BrokerSet, BrokerSets
from rmq_ha.server.controller.codec import decode_elected, decode_replicas
from rmq_ha.server.controller.codes import ControllerResponseCode
from rmq_ha.server.controller.events import MasterElected, decode_event
from rmq_ha.server.controller.liveness import Liveness
from rmq_ha.server.controller.messages import (
    ANYONE,
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    CleanBrokerDataRequest,
    ElectMasterRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
    SyncStateSet,
)
from rmq_ha.server.controller.replicas import Decision, ReplicasInfoManager


class Desk:
    """A controller that leads, of one set `b`."""

    def __init__(self, *ids: int, unclean: bool = False) -> None:
        self.now = 0
        self.sets, self.liveness = BrokerSets(), Liveness()
        self.manager = ReplicasInfoManager(self.sets, self.liveness, lambda: unclean)
        for number in ids:
            assert self.apply(number).code == ControllerResponseCode.SUCCESS

    @property
    def set(self) -> BrokerSet:
        found = self.sets.get("b")
        assert found is not None
        return found

    def done(self, decision: Decision) -> Decision:
        if decision.event is not None:
            self.sets.apply(decision.event)
        return decision

    def apply(self, number: int, cluster: str = "c", code: str = "") -> Decision:
        request = ApplyBrokerIdRequest(
            cluster_name=cluster,
            broker_name="b",
            applied_broker_id=number,
            register_check_code=code or f"h:{number};1",
        )
        return self.done(self.manager.apply_broker_id(request))

    def beat(self, number: int, epoch: int = 0, offset: int = 0, **more: Any) -> None:
        request = HeartbeatRequest(
            broker_name="b",
            broker_addr=f"h:{number}",
            broker_id=number,
            epoch=epoch,
            max_offset=offset,
            **more,
        )
        self.liveness.hear(request, f"channel {number}", self.now)

    def elect(self, number: int = ANYONE, designated: bool = False) -> Decision:
        request = ElectMasterRequest(broker_name="b", broker_id=number, designate_elect=designated)
        return self.done(self.manager.elect_master(request, self.now))

    def alter(self, *members: int) -> Decision:
        request = AlterSyncStateSetRequest(
            broker_name="b",
            master_broker_id=self.set.master or 0,
            master_epoch=self.set.master_epoch,
        )
        wanted = SyncStateSet(members, self.set.set_epoch)
        return self.done(self.manager.alter_sync_state_set(request, wanted, self.now))

    def clean(self, ids: str = "", living: bool = False) -> Decision:
        request = CleanBrokerDataRequest(
            broker_name="b", broker_controller_ids_to_clean=ids, is_clean_living_broker=living
        )
        return self.done(self.manager.clean_broker_data(request, self.now))

    def in_sync(self, *ids: int) -> None:
        """All live, the first one leads, all are in the set."""
        for number in ids:
            self.beat(number)
        assert self.elect(ids[0]).code == ControllerResponseCode.SUCCESS
        if len(ids) > 1:
            assert self.alter(*ids).code == ControllerResponseCode.SUCCESS


def test_a_pair_fails_over() -> None:
    desk = Desk(1, 2)
    desk.in_sync(1, 2)
    desk.liveness.mark_dead([("b", 1)])
    assert desk.manager.without_master(desk.now) == ["b"]
    decision = desk.elect()
    assert decision.event == MasterElected("b", 2, 2, 10_000)
    assert (desk.set.master, desk.set.master_epoch, desk.set.members) == (2, 2, (2,))
    assert decode_elected(decision.body or b"").addresses == {1: "h:1", 2: "h:2"}
    (notice,) = desk.manager.notices("b", desk.now)
    assert (notice.address, notice.header.master_broker_id) == ("h:2", 2)


def test_the_longest_newest_log_wins_also_by_more_than_two_gib() -> None:
    """Java casts the difference to 32 bits. Spec: controller.md, chapter 14 (19)."""
    desk = Desk(1, 2, 3, 4)
    desk.in_sync(1, 2, 3, 4)
    desk.beat(2, 1, 10)
    desk.beat(3, 1, 10 + (3 << 30))
    desk.beat(4, 0, 1 << 40)
    desk.liveness.mark_dead([("b", 1)])
    desk.elect()
    assert desk.set.master == 3


def test_a_truncated_log_is_no_longer_the_longest() -> None:
    """The last heartbeat counts. Spec: controller.md, chapter 14 (19)."""
    desk = Desk(1, 2, 3)
    desk.in_sync(1, 2, 3)
    desk.beat(2, 1, 1000)
    desk.beat(3, 1, 500)
    desk.beat(2, 1, 100)
    desk.liveness.mark_dead([("b", 1)])
    desk.elect()
    assert desk.set.master == 3


def test_priority_decides_among_equals() -> None:
    desk = Desk(1, 2, 3)
    desk.in_sync(1, 2, 3)
    desk.beat(3, election_priority=1)
    desk.liveness.mark_dead([("b", 1)])
    desk.elect()
    assert desk.set.master == 3


def test_nobody_outside_the_set_is_elected_unless_that_is_switched_on() -> None:
    """Spec: controller.md, chapter 14 (21)."""
    for unclean in (False, True):
        desk = Desk(1, 2, unclean=unclean)
        desk.in_sync(1)
        desk.beat(2)
        desk.liveness.mark_dead([("b", 1)])
        desk.elect()
        assert desk.set.master == (2 if unclean else None)
        assert desk.set.master_epoch == 2


def test_a_failed_election_costs_one_epoch() -> None:
    """Java's costs three, and more each time. Spec: controller.md, chapter 14 (18)."""
    desk = Desk(1)
    desk.in_sync(1)
    desk.liveness.mark_dead([("b", 1)])
    codes = [desk.elect().code for _ in range(5)]
    assert set(codes) == {ControllerResponseCode.MASTER_NOT_AVAILABLE}
    assert (desk.set.master, desk.set.master_epoch, desk.set.members) == (None, 2, (1,))
    assert desk.manager.without_master(desk.now) == []
    desk.beat(1)
    assert desk.manager.without_master(desk.now) == ["b"]
    assert desk.elect(1).code == ControllerResponseCode.SUCCESS
    assert (desk.set.master, desk.set.master_epoch) == (1, 3)


def test_the_first_one_to_ask_leads_unless_another_has_more() -> None:
    """Spec: controller.md, chapter 14 (25)."""
    desk = Desk(1, 2)
    desk.beat(1)
    desk.beat(2)
    desk.elect(2)
    assert desk.set.master == 2

    desk = Desk(1, 2)
    desk.beat(1, 7, 100)
    assert desk.elect(2).code == ControllerResponseCode.ELECT_MASTER_FAILED
    desk.beat(2, 6, 900)
    desk.elect(2)
    assert desk.set.master == 1


def test_epochs_begin_above_those_that_brokers_know() -> None:
    """A controller that lost its data. Spec: controller.md, chapter 14 (24)."""
    desk = Desk(1, 2)
    desk.beat(1, 41, 100)
    desk.beat(2, 40, 100)
    desk.elect(1)
    assert (desk.set.master, desk.set.master_epoch) == (1, 42)


def test_a_new_leader_elects_nobody_beside_a_master_that_may_live() -> None:
    """It has heard nobody yet: the old master may be accepting in its lease, of 20 s here."""
    desk = Desk(1, 2)
    desk.beat(1, heartbeat_timeout_mills=20_000)
    desk.elect(1)
    desk.elect(1)
    desk.beat(2)
    desk.alter(1, 2)
    desk.liveness = Liveness()
    desk.manager = ReplicasInfoManager(desk.sets, desk.liveness, lambda: False)
    desk.liveness.begin(desk.now)
    desk.beat(2)
    assert desk.elect(2).code == ControllerResponseCode.ELECT_MASTER_FAILED
    assert desk.elect(2, designated=True).code == ControllerResponseCode.ELECT_MASTER_FAILED
    assert desk.manager.without_master(desk.now) == []
    desk.now += 20_000
    desk.beat(2)
    assert desk.manager.without_master(desk.now) == []
    desk.now += 1
    assert desk.manager.without_master(desk.now) == ["b"]
    desk.elect()
    assert desk.set.master == 2


def test_a_new_leader_takes_changes_of_the_set_at_once() -> None:
    """A Java master asks no more once it is refused. Spec: controller.md, chapter 14 (5)."""
    desk = Desk(1, 2)
    desk.in_sync(1, 2)
    desk.liveness = Liveness()
    desk.manager = ReplicasInfoManager(desk.sets, desk.liveness, lambda: False)
    desk.liveness.begin(desk.now)
    assert desk.alter(1).code == ControllerResponseCode.SUCCESS
    assert desk.alter(1, 2).code == ControllerResponseCode.SUCCESS


def test_ids_are_never_given_twice() -> None:
    """Java counts, and gets stuck. Spec: controller.md, chapter 14 (22)."""
    desk = Desk(1)
    assert desk.apply(9).code == ControllerResponseCode.SUCCESS
    assert desk.set.next_id == 10
    assert desk.clean("9").code == ControllerResponseCode.SUCCESS
    assert desk.set.next_id == 10


@pytest.mark.parametrize("number", [0, -1, (1 << 31) - 1])
def test_ids_that_are_none_are_refused(number: int) -> None:
    assert Desk(1).apply(number).code == ControllerResponseCode.BROKER_ID_INVALID


def test_a_broker_name_belongs_to_one_cluster() -> None:
    """Spec: controller.md, chapter 14 (27)."""
    decision = Desk(1).apply(2, cluster="other")
    assert decision.code == ControllerResponseCode.BROKER_ID_INVALID
    assert "cluster c" in (decision.remark or "")


def test_a_master_that_moved_is_told_its_new_address() -> None:
    desk = Desk(1)
    desk.in_sync(1)
    request = RegisterBrokerRequest(broker_name="b", broker_id=1, broker_address="h:99")
    header: Any = desk.done(desk.manager.register_broker(request, desk.now)).header
    assert header.master_address == desk.set.master_address == "h:99"


def test_who_is_cleaned_leads_no_more() -> None:
    desk = Desk(1, 2)
    desk.in_sync(1, 2)
    assert desk.clean("1").code == ControllerResponseCode.INVALID_CLEAN_BROKER_METADATA
    assert desk.clean("1", living=True).code == ControllerResponseCode.SUCCESS
    assert (desk.set.master, desk.set.master_epoch, desk.set.members) == (None, 2, (2,))
    assert desk.set.set_epoch == 3
    desk.elect()
    assert desk.set.master == 2
    assert desk.clean(living=True).code == ControllerResponseCode.SUCCESS
    assert desk.sets.names() == []


def test_all_that_are_cleaned_are_forgotten() -> None:
    """Nobody of them can be elected any more; nor does who was never there harm the others."""
    desk = Desk(1, 2, 3, 4)
    desk.in_sync(1, 2, 3, 4)
    assert desk.clean("2;3;1;9", living=True).code == ControllerResponseCode.SUCCESS
    assert desk.set.addresses == {4: "h:4"}
    assert (desk.set.master, desk.set.members) == (None, (4,))


def test_a_connection_is_that_of_the_last_heartbeat() -> None:
    """Java's is that of the first. Spec: controller.md, chapter 14 (16)."""
    liveness = Liveness()
    request = HeartbeatRequest(broker_name="b", broker_addr="h:1", broker_id=1)
    liveness.hear(request, "old", 0)
    liveness.hear(request, "new", 1)
    assert liveness.bound_to("old") == []
    assert liveness.bound_to("new") == [("b", 1)]


def test_silence_is_death() -> None:
    liveness = Liveness()
    for number, silence in ((1, None), (2, 500), (3, 10**9)):
        request = HeartbeatRequest(
            broker_name="b", broker_addr="h", broker_id=number, heartbeat_timeout_mills=silence
        )
        liveness.hear(request, None, 0)
    assert [key for key, _ in liveness.expire(501)] == [("b", 2)]
    assert [key for key, _ in liveness.expire(10_001)] == [("b", 1)]
    assert [key for key, _ in liveness.expire(3_600_001)] == [("b", 3)]


def test_a_new_leader_does_not_know_what_the_one_before_has_heard() -> None:
    """Of a master that it alone lost sight of it cannot say that it is dead."""
    liveness = Liveness()
    request = HeartbeatRequest(broker_name="b", broker_addr="h", broker_id=1)
    liveness.hear(request, None, 0)
    liveness.expire(15_000)
    assert not liveness.may_live("b", 1, 15_000, 0)
    liveness.begin(15_000)
    assert liveness.may_live("b", 1, 25_000, 0)
    assert not liveness.may_live("b", 1, 25_001, 0)
    assert liveness.may_live("b", 1, 25_001, 20_000)
    liveness.begin(30_000)
    liveness.mark_dead([("b", 1)])
    assert not liveness.may_live("b", 1, 30_000, 0)


def test_an_epoch_is_given_once() -> None:
    desk = Desk(1, 2)
    desk.in_sync(1, 2)
    desk.sets.apply(MasterElected("b", 2, 1))
    assert (desk.set.master, desk.set.members) == (1, (1, 2))


def test_a_set_whose_master_died_just_now_is_not_cleaned_as_a_whole() -> None:
    desk = Desk(1)
    desk.in_sync(1)
    desk.liveness.mark_dead([("b", 1)])
    assert desk.clean().code == ControllerResponseCode.INVALID_CLEAN_BROKER_METADATA
    desk.elect()
    assert desk.clean().code == ControllerResponseCode.SUCCESS


def test_strangers_cannot_fill_the_memory() -> None:
    liveness = Liveness()
    for number in range(10_001):
        request = HeartbeatRequest(broker_name="b", broker_addr="h", broker_id=number)
        liveness.hear(request, None, 0)
    assert liveness.dropped == 1


def test_an_entry_that_is_no_event_is_said_so() -> None:
    for body in (b"", b"{}", b'{"event":"set"}', b'{"event":"what","broker_name":"b"}'):
        with pytest.raises(CorruptRecord):
            decode_event(body)


def test_all_sets_are_told_where_no_name_is_asked_for() -> None:
    """Java tells no set for an empty list; the answer to names is Java's."""
    desk = Desk(1, 2)
    every = desk.manager.sync_state_data([], 0)
    assert every == desk.manager.sync_state_data(["b"], 0)
    assert list(decode_replicas(every.body or b"")) == ["b"]
    nobody = desk.manager.sync_state_data(["other"], 0)
    assert nobody.body == b'{"replicasInfoTable":{}}'
