"""What a controller refuses, each for its own reason, and where its limits are to the ms."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.server.controller.codes import ControllerResponseCode
from rmq_ha.server.controller.liveness import Liveness
from rmq_ha.server.controller.messages import (
    AlterSyncStateSetRequest,
    HeartbeatRequest,
    SyncStateSet,
)
from tests.unit.server.controller.test_replicas import Desk

LATER = 20_000
"""By then it is known who is dead."""


def heard(silence: int | None, at: int = 0) -> Liveness:
    liveness = Liveness()
    request = HeartbeatRequest(
        broker_name="b", broker_addr="h", broker_id=1, heartbeat_timeout_mills=silence
    )
    liveness.hear(request, None, at)
    return liveness


@pytest.mark.parametrize(
    ("silence", "limit"), [(1, 1), (500, 500), (0, 10_000), (-1, 10_000), (None, 10_000)]
)
def test_a_broker_lives_for_as_long_as_it_said_to_the_ms(silence: int | None, limit: int) -> None:
    """Whoever asks, and whoever forgets it."""
    liveness = heard(silence, at=7)
    assert liveness.is_alive("b", 1, 7 + limit)
    assert liveness.may_live("b", 1, 7 + limit, 0)
    assert liveness.expire(7 + limit) == []
    assert not liveness.is_alive("b", 1, 8 + limit)
    assert not liveness.may_live("b", 1, 8 + limit, 1 << 40)
    assert [key for key, _ in liveness.expire(8 + limit)] == [("b", 1)]


def test_a_heartbeat_without_a_number_says_nothing() -> None:
    liveness = Liveness()
    liveness.hear(HeartbeatRequest(broker_name="b", broker_addr="h", broker_id=None), "c", 0)
    assert liveness.bound_to("c") == []


@pytest.mark.parametrize(
    ("own", "other", "master"),
    [
        ((7, 100), (7, 100), 2),
        ((7, 100), (7, 101), 1),
        ((7, 101), (7, 100), 2),
        ((6, 900), (7, 100), 1),
        ((0, 50), (0, 100), 1),
        ((0, 0), (0, 1), 1),
        ((0, 0), (9, 0), 2),
        ((0, 0), (-1, 100), 2),
    ],
)
def test_who_asks_first_leads_if_nobody_has_what_it_lacks(
    own: tuple[int, int], other: tuple[int, int], master: int
) -> None:
    desk = Desk(1, 2)
    desk.beat(1, *other)
    desk.beat(2, *own)
    assert desk.elect(2).code == ControllerResponseCode.SUCCESS
    assert desk.set.master == master


def test_who_asks_first_and_is_not_known_waits_only_for_those_that_have_data() -> None:
    desk = Desk(1, 2)
    desk.beat(1)
    assert desk.elect(2).code == ControllerResponseCode.SUCCESS
    assert desk.set.master == 2


def test_nobody_but_an_operator_moves_a_master_that_lives() -> None:
    """Whoever asks is told who it is; to name the one that leads changes nothing either."""
    desk = Desk(1, 2)
    desk.in_sync(1, 2)
    for asked in ((1, False), (2, False), (1, True)):
        decision = desk.elect(*asked)
        header: Any = decision.header
        assert (decision.code, decision.event) == (ControllerResponseCode.MASTER_STILL_EXIST, None)
        assert header.master_broker_id == 1
    assert desk.elect(2, designated=True).code == ControllerResponseCode.SUCCESS
    assert (desk.set.master, desk.set.master_epoch) == (2, 2)


def test_who_is_designated_has_to_be_in_the_set() -> None:
    desk = Desk(1, 2, 3)
    desk.in_sync(1, 2)
    desk.beat(3)
    assert desk.elect(3, designated=True).code == ControllerResponseCode.ELECT_MASTER_FAILED
    assert desk.elect(4, designated=True).code == ControllerResponseCode.NEED_TO_BE_REGISTERED
    assert (desk.set.master, desk.set.master_epoch) == (1, 1)


def test_an_id_is_taken_again_by_its_owner_only() -> None:
    """The first answer was lost, or somebody else has that number."""
    desk = Desk(1, 2)
    assert desk.apply(2).code == ControllerResponseCode.SUCCESS
    assert desk.apply(2, code="another;1").code == ControllerResponseCode.BROKER_ID_INVALID
    assert desk.set.brokers[2].check_code == "h:2;1"


@pytest.mark.parametrize(
    ("members", "changes", "code"),
    [
        ((1, 2), {"broker_name": "x"}, ControllerResponseCode.ALTER_SYNC_STATE_SET_FAILED),
        ((1,), {}, ControllerResponseCode.ALTER_SYNC_STATE_SET_FAILED),
        ((1, 2), {"master_broker_id": 2}, ControllerResponseCode.INVALID_MASTER),
        ((1, 2), {"master_epoch": 2}, ControllerResponseCode.FENCED_MASTER_EPOCH),
        ((1, 2), {"set_epoch": 2}, ControllerResponseCode.FENCED_SYNC_STATE_SET_EPOCH),
        ((1, 4), {}, ControllerResponseCode.INVALID_REPLICAS),
        ((1, 2, 3), {}, ControllerResponseCode.BROKER_NOT_ALIVE),
        ((2,), {}, ControllerResponseCode.ALTER_SYNC_STATE_SET_FAILED),
        ((1, 2), {}, ControllerResponseCode.SUCCESS),
    ],
)
def test_the_set_is_changed_by_its_master_alone_and_by_members_that_live(
    members: tuple[int, ...], changes: dict[str, Any], code: int
) -> None:
    """3 is known, and dead; 4 is not known."""
    desk = Desk(1, 2, 3)
    desk.in_sync(1)
    desk.now = LATER
    desk.beat(2)  # the master need not have been heard of: it has just spoken
    fields = {"broker_name": "b", "master_broker_id": 1, "master_epoch": 1, "set_epoch": 1}
    fields |= changes
    wanted = SyncStateSet(members, fields.pop("set_epoch"))
    decision = desk.manager.alter_sync_state_set(
        AlterSyncStateSetRequest(**fields), wanted, desk.now
    )
    assert decision.code == code
    assert (decision.event is not None) is (code == ControllerResponseCode.SUCCESS)
    desk.done(decision)
    assert desk.set.members == ((1, 2) if code == ControllerResponseCode.SUCCESS else (1,))
