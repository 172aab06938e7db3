"""
The members of a pair, a DLedger group or a set, and their replication, as one broker knows them.
"""

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.app.page.values import MemberRow, Tone
from rmq_ha.ops.app.status.slaves import slave_names
from rmq_ha.server.dledger.statistics import DLedgerStatistics
from rmq_ha.server.replication.statistics import (
    FOLLOWING,
    MasterStatistics,
    ReplicationStatistics,
    SetStatistics,
)

NO_LINK = MasterStatistics(state="unknown")
"""State of a slave whose journal does not tell about a master."""
_MOST = 32
_BEHIND = 1 << 20
"""A slave that lacks at least so many bytes is shown as behind."""


def _own_member(
    key: str, name: str, role: str, why_no_puts: str, master: MasterStatistics | None
) -> MemberRow:
    """
    Return the row of this broker.

    :param master: the master as this slave sees it; None: this broker is no slave.
    """
    if master is None:
        state, tone = ("takes messages", Tone.GOOD) if not why_no_puts else ("no puts", Tone.ERROR)
        note = why_no_puts or ""
        return MemberRow(
            key=key, name=name, role=role, state=state, tone=tone, is_here=True, note=note
        )
    tone = Tone.GOOD if master.is_followed else Tone.WARN
    if master.fault:
        tone = Tone.ERROR
    return MemberRow(
        key=key,
        name=name,
        role=role,
        state=master.state,
        tone=tone,
        is_here=True,
        note=master.fault or "",
    )


def members_of_pair(
    statistics: ReplicationStatistics, role: BrokerRole, address: str, why_no_puts: str
) -> list[MemberRow]:
    """
    Return a master and its slaves, or a slave and its master.

    :param statistics: the statistics of the journal.
    :param address: the address of this broker.
    :param why_no_puts: why it takes no messages; empty: it takes messages.
    """
    is_slave = role is BrokerRole.SLAVE
    master = (statistics.master or NO_LINK) if is_slave else None
    members = [
        _own_member(address, address, "slave" if is_slave else "master", why_no_puts, master)
    ]
    if master is not None:
        name = f"master {master.address or ''}".strip()
        members.append(_master(name, name, master))
    return members + _slaves(statistics)


def _master(key: str, name: str, master: MasterStatistics) -> MemberRow:
    """Return the row of the master that this slave follows, or should follow."""
    follows = master.is_followed
    return MemberRow(
        key=key,
        name=name,
        role="master",
        state="answers" if follows else "not followed",
        tone=Tone.GOOD if follows else Tone.WARN,
    )


def _slaves(statistics: ReplicationStatistics) -> list[MemberRow]:
    slaves = statistics.known_slaves[:_MOST]
    members = []
    for slave, name in zip(slaves, slave_names(slaves), strict=True):
        number, stage, lag = slave.broker_id, slave.stage, slave.lag
        is_stranded = slave.is_stranded
        tone = Tone.ERROR if is_stranded else Tone.WARN if lag > _BEHIND else Tone.GOOD
        key = f"slave {name}" if number is None else _of_set(number)
        members.append(
            MemberRow(
                key=key,
                name=key if number is None else f"{key} at {name}",
                role="slave",
                state=stage,
                tone=tone if stage != "catching up" or is_stranded else Tone.WARN,
                lag_bytes=lag,
                lag_seconds=slave.lag_seconds,
            )
        )
    return members


def members_of_group(told: DLedgerStatistics, why_no_puts: str) -> list[MemberRow]:
    """
    Return the members of a DLedger group: this one, its leader, and what the followers of a leader
    lack.
    """
    role, leader = str(told.role or "CANDIDATE").lower(), told.leader or ""
    leads, name = role == "leader", str(told.self_id)
    if leads:
        here = _own_member(name, name, "leader", why_no_puts, None)
    else:
        fault = "its committed entries differ from the leader's" if told.is_diverged else None
        state = FOLLOWING if leader else "no leader"
        here = _own_member(name, name, role, "", MasterStatistics(state=state, fault=fault))
    members = [here]
    if leader and not leads:
        key = str(leader)
        members.append(MemberRow(key=key, name=key, role="leader", state="answers", tone=Tone.GOOD))
    for member, follower in list(told.followers.items())[:_MOST]:
        entries, size = follower.entries_behind, follower.bytes_behind
        tone = Tone.GOOD if size is not None and size < _BEHIND else Tone.WARN
        state = "caught up" if not entries else "behind"
        members.append(
            MemberRow(
                key=str(member),
                name=str(member),
                role="follower",
                state=state,
                tone=tone,
                lag_bytes=size,
                note=f"{entries} entries to go" if entries else "",
            )
        )
    return members


def members_of_set(statistics: SetStatistics, address: str, why_no_puts: str) -> list[MemberRow]:
    """Return the brokers of a set in controller mode, as its master or a slave sees them."""
    leads, master, number = statistics.leads, statistics.master, statistics.broker_id
    name = address if number is None else f"{_of_set(number)} at {address}"
    role = "master" if leads else "slave"
    members = [_own_member(address, name, role, why_no_puts, None if leads else master or NO_LINK)]
    if master is not None and not leads:
        key = _of_set(master.broker_id)
        members.append(_master(key, f"{key} at {master.address}", master))
    return members + _slaves(statistics)


def _of_set(number: int | None) -> str:
    """
    Return the name of a broker in controller mode. Its id never changes, whether it leads or
    follows.
    """
    return f"broker {number}"
