"""Who replicates what to whom, as one broker sees it: a pair, a DLedger group or a set."""

from collections.abc import Mapping
from typing import Any

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.app.page.values import Member, Tone
from rmq_ha.ops.app.status.slaves import slave_names
from rmq_ha.server.dledger.statistics import DLedgerStatistics

_MOST = 32
_BEHIND = 1 << 20
"""A slave with so many bytes to go is behind; with less it is on its way."""


def _here(
    key: str, name: str, role: str, why_no_puts: str, link: Mapping[str, Any] | None
) -> Member:
    """:param link: to the master; None: this is one."""
    if link is None:
        state, tone = ("takes messages", Tone.GOOD) if not why_no_puts else ("no puts", Tone.ERROR)
        note = why_no_puts or ""
        return Member(
            key=key, name=name, role=role, state=state, tone=tone, is_here=True, note=note
        )
    state = str(link.get("state") or "unknown")
    tone = Tone.GOOD if state == "following" else Tone.WARN
    if link.get("fault"):
        tone = Tone.ERROR
    return Member(
        key=key,
        name=name,
        role=role,
        state=state,
        tone=tone,
        is_here=True,
        note=str(link.get("fault") or ""),
    )


def members_of_pair(
    told: Mapping[str, Any], role: BrokerRole, address: str, why_no_puts: str
) -> list[Member]:
    """
    A master and its slaves, or a slave and its master.

    :param told: statistics of the journal, here and below.
    :param address: of this broker.
    :param why_no_puts: empty: it takes messages.
    """
    is_slave = role is BrokerRole.SLAVE
    link = (told.get("master") or {}) if is_slave else None
    members = [_here(address, address, "slave" if is_slave else "master", why_no_puts, link)]
    if link is not None:
        name = f"master {link.get('address') or ''}".strip()
        members.append(_master(name, name, link))
    return members + _slaves(told)


def _master(key: str, name: str, link: Mapping[str, Any]) -> Member:
    """The master that this slave follows, or should."""
    follows = link.get("state") == "following"
    return Member(
        key=key,
        name=name,
        role="master",
        state="answers" if follows else "not followed",
        tone=Tone.GOOD if follows else Tone.WARN,
    )


def _slaves(told: Mapping[str, Any]) -> list[Member]:
    slaves = [item for item in told.get("slaves", ()) if item["requested"] is not None][:_MOST]
    members = []
    for slave, name in zip(slaves, slave_names(slaves), strict=True):
        number = slave.get("broker_id")
        stage, lag = str(slave["stage"]), int(slave["lag"])
        is_stranded = stage == "stranded"
        tone = Tone.ERROR if is_stranded else Tone.WARN if lag > _BEHIND else Tone.GOOD
        key = f"slave {name}" if number is None else _of_set(number)
        members.append(
            Member(
                key=key,
                name=key if number is None else f"{key} at {name}",
                role="slave",
                state=stage,
                tone=tone if stage != "catching up" or is_stranded else Tone.WARN,
                lag_bytes=lag,
                lag_seconds=slave.get("lag_seconds"),
            )
        )
    return members


def members_of_group(told: DLedgerStatistics, why_no_puts: str) -> list[Member]:
    """A DLedger group: this member, its leader, and what the followers of a leader lack."""
    role, leader = str(told.role or "CANDIDATE").lower(), told.leader or ""
    leads, name = role == "leader", str(told.self_id)
    if leads:
        here = _here(name, name, "leader", why_no_puts, None)
    else:
        fault = "its committed entries are others than the leader's" if told.is_diverged else None
        link = {"state": "following" if leader else "no leader", "fault": fault}
        here = _here(name, name, role, "", link)
    members = [here]
    if leader and not leads:
        key = str(leader)
        members.append(Member(key=key, name=key, role="leader", state="answers", tone=Tone.GOOD))
    for member, follower in list(told.followers.items())[:_MOST]:
        entries, size = follower.entries_behind, follower.bytes_behind
        tone = Tone.GOOD if size is not None and size < _BEHIND else Tone.WARN
        state = "caught up" if not entries else "behind"
        members.append(
            Member(
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


def members_of_set(told: Mapping[str, Any], address: str, why_no_puts: str) -> list[Member]:
    """A set in controller mode, as its master or one of the others sees it."""
    leads, link = bool(told["leads"]), told["master"]
    name = address if told["id"] is None else f"{_of_set(told['id'])} at {address}"
    role = "master" if leads else "slave"
    members = [_here(address, name, role, why_no_puts, None if leads else link or {})]
    if link is not None and not leads:
        key = _of_set(link["broker_id"])
        members.append(_master(key, f"{key} at {link['address']}", link))
    return members + _slaves(told)


def _of_set(number: int) -> str:
    """A broker in controller mode, whether it leads or follows: its id is for life."""
    return f"broker {number}"
