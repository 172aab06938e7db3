"""What the page of a broker says that somebody should look at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.app.page.broker import BrokerBoard
from rmq_ha.ops.app.page.values import DiskUse, MemberRow, Tone
from rmq_ha.ops.app.page.watch import GONE
from rmq_ha.ops.app.status.health import Health
from rmq_ha.server.broker.transactions.service import OpenTransactions
from rmq_ha.server.pop.face import GroupOut
from rmq_ha.server.store.timer.reports import TimerReport, TimerWork

EMPTY, SOUND = DiskUse(0.1, 0.9), Health(True, "")


def notices(
    *members: MemberRow,
    disk: DiskUse = EMPTY,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    mode: str = "pair",
    health: Health = SOUND,
) -> list[tuple[Tone, str]]:
    """Of a broker that knows these members of its pair, group or set."""
    store = SimpleNamespace(broker_role=role)
    board: Any = SimpleNamespace(
        _broker=SimpleNamespace(configuration=SimpleNamespace(store=store)),
        _status=SimpleNamespace(health=lambda: health, journal=SimpleNamespace(mode=lambda: mode)),
        watch=SimpleNamespace(members=list(members)),
        _of_dead=list,
        _of_timers=list,
        _of_pops=list,
        _of_transactions=list,
    )
    return [(item.tone, item.text) for item in BrokerBoard._notices(board, disk)]


@pytest.mark.parametrize(
    ("half", "found"),
    [
        (None, ""),
        (OpenTransactions(), ""),
        (OpenTransactions(2, 1_000_000 - 300_000, "makers", "T"), ""),
        (
            OpenTransactions(2, 1_000_000 - 301_000, "makers", "T"),
            "2 half messages open, the oldest for 301 s: no producer of makers ends its",
        ),
    ],
)
def test_half_messages_that_nobody_ends_are_named(
    half: OpenTransactions | None, found: str
) -> None:
    checks = SimpleNamespace(open_transactions=lambda: half)
    board: Any = SimpleNamespace(
        _broker=SimpleNamespace(transaction_checks=checks),
        host=SimpleNamespace(now_ms=lambda: 1_000_000),
    )
    told = [item.text for item in BrokerBoard._of_transactions(board)]
    assert len(told) == bool(found)
    assert "".join(told).startswith(found)


def member(role: str = "slave", state: str = "following", **more: Any) -> MemberRow:
    return MemberRow(key="m", name="m", role=role, state=state, tone=Tone.GOOD, **more)


def test_a_sound_broker_has_none_and_one_that_is_not_ready_says_why() -> None:
    assert notices(member()) == []
    assert notices(health=Health(False, "starting")) == [(Tone.ERROR, "starting")]


@pytest.mark.parametrize(
    ("age_s", "is_enabled", "found"),
    [
        (3590, True, ""),
        (3660, True, "workers has a popped message of Work for 61 min"),
        (3660, False, ""),
    ],
)
def test_a_popped_message_that_is_out_for_an_hour_is_named(
    age_s: int, is_enabled: bool, found: str
) -> None:
    out = {
        ("others", "Work"): GroupOut(1, 10_000_000),
        ("workers", "Work"): GroupOut(2, 10_000_000 - age_s * 1000),
    }
    pops = SimpleNamespace(
        is_enabled=is_enabled,
        counters=lambda: SimpleNamespace(out=3),
        out_by_group=lambda: out,
    )
    board: Any = SimpleNamespace(
        _broker=SimpleNamespace(pops=pops), host=SimpleNamespace(now_ms=lambda: 10_000_000)
    )
    assert [item.text for item in BrokerBoard._of_pops(board)] == ([found] if found else [])


@pytest.mark.parametrize(
    ("work", "late_s", "found"),
    [
        (TimerWork.DELIVERING, 9, ""),
        (TimerWork.DELIVERING, 11, "the first of 3 timer messages is late by 11 s: it does not"),
        (TimerWork.HELD, 11, "the first of 3 timer messages is late by 11 s: timerStopDequeue"),
        (TimerWork.SLAVE, 11, ""),
        (TimerWork.OFF, 0, "3 timer messages wait, and timerWheelEnable is false"),
    ],
)
def test_timer_messages_that_are_late_or_left_are_named(
    work: TimerWork, late_s: int, found: str
) -> None:
    report = TimerReport(work, 3, 1_000_000 - late_s * 1000, 0)
    store = SimpleNamespace(timers=SimpleNamespace(report=lambda: report))
    board: Any = SimpleNamespace(
        _broker=SimpleNamespace(store=store), host=SimpleNamespace(now_ms=lambda: 1_000_000)
    )
    told = [item.text for item in BrokerBoard._of_timers(board)]
    assert len(told) == bool(found)
    assert "".join(told).startswith(found)


@pytest.mark.parametrize(
    ("members", "role", "mode", "is_alone"),
    [
        ([], BrokerRole.SYNC_MASTER, "pair", True),
        ([member("master"), member(state=GONE)], BrokerRole.SYNC_MASTER, "pair", True),
        ([member()], BrokerRole.SYNC_MASTER, "pair", False),
        ([], BrokerRole.ASYNC_MASTER, "pair", False),
        ([], BrokerRole.SYNC_MASTER, "group", False),
    ],
)
def test_a_master_of_a_pair_that_waits_for_a_slave_says_that_none_is_there(
    members: list[MemberRow], role: BrokerRole, mode: str, is_alone: bool
) -> None:
    found = [text for _, text in notices(*members, role=role, mode=mode)]
    alone = "no slave is connected: new messages are on this machine only"
    assert found == ([alone] if is_alone else [])


@pytest.mark.parametrize(
    ("seen", "is_lost"),
    [
        (member(state="connecting", is_here=True), True),
        (member(state="following", is_here=True), False),
        (member(state="connecting", is_here=False), False),
        (member("master", "connecting", is_here=True), False),
        (member(state="connecting", is_here=True, note="it says why"), False),
    ],
)
def test_a_slave_that_follows_nobody_says_so_unless_its_note_does(
    seen: MemberRow, is_lost: bool
) -> None:
    lost = [(Tone.WARN, "this slave follows no master (connecting)")]
    assert notices(seen) == (lost if is_lost else [])
    assert notices(member(), seen) == (lost if is_lost else []), "each member is looked at"


@pytest.mark.parametrize(
    ("seen", "is_late"),
    [
        (member(lag_seconds=5.0), False),
        (member(lag_seconds=5.1), True),
        (member(lag_seconds=None), False),
        (member(state=GONE, lag_seconds=9.0), False),
    ],
)
def test_who_is_more_than_five_seconds_behind_is_named(seen: MemberRow, is_late: bool) -> None:
    assert notices(seen) == ([(Tone.WARN, "m is 5 s behind")] if is_late else [])


@pytest.mark.parametrize(
    ("used", "tone"), [(0.74, None), (0.75, Tone.WARN), (0.89, Tone.WARN), (0.9, Tone.ERROR)]
)
def test_a_disk_is_worth_a_look_before_it_refuses_messages(used: float, tone: Tone | None) -> None:
    text = f"the disk of the commit log is {used:.0%} full"
    assert notices(disk=DiskUse(used, 0.9)) == ([(tone, text)] if tone else [])
