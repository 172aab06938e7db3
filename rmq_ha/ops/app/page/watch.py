"""
Compares a server's state with that of the last look, and makes an event of each difference.

Pure: the state and the time are passed in.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from rmq_ha.ops.app.page.events import EventKind, Events, EventSeverity, Timeline
from rmq_ha.ops.app.page.values import MemberRow, Tone

GONE = "gone"
UNSEEN = "not seen from here"
"""State of a member that no longer connects to this broker. It may still run."""
KEPT_LOOKS = 900
"""How many looks a member that is gone stays on the page: half an hour with a look every 2 s."""

_SEVERITY = {
    Tone.GOOD: EventSeverity.GOOD,
    Tone.WARN: EventSeverity.WARN,
    Tone.ERROR: EventSeverity.ERROR,
    Tone.IDLE: EventSeverity.INFO,
}


class ServerState(NamedTuple):
    """
    The state of a server at one look.

    :ivar role: role of this server: `SYNC_MASTER`, ...
    :ivar health: the health that /healthz tells.
    :ivar counts: how many requests were refused or failed since the start, by the text of the
        event.
    :ivar registered: the brokers that are registered (name server).
    """

    role: str
    is_ready: bool
    health: str
    members: list[MemberRow] = []
    counts: Mapping[str, int] = {}
    registered: Mapping[str, str] = {}


class Watch:
    """
    Adds events and states of members.

    :ivar members: members at the last look, with the time since when each has its state; a member
        that is gone stays for a while.
    """

    def __init__(self, events: Events, timeline: Timeline) -> None:
        self.members: list[MemberRow] = []
        self._events = events
        self._timeline = timeline
        self._before: ServerState | None = None
        self._gone: dict[str, tuple[MemberRow, int]] = {}

    def look(self, now_ms: int, seen: ServerState) -> None:
        before, self._before = self._before, seen
        if before is None:
            is_named = seen.health.startswith(seen.role)
            text = f"started as {seen.health if is_named else f'{seen.role}: {seen.health}'}"
            self._tell(now_ms, EventKind.ROLE, EventSeverity.INFO, text)
        else:
            self._compare(now_ms, before, seen)
        self._take_members(now_ms, seen.members, is_first=before is None)

    def _tell(
        self, now_ms: int, kind: EventKind, severity: EventSeverity, text: str, times: int = 1
    ) -> None:
        self._events.add(now_ms, kind, severity, text, times)

    def _compare(self, now_ms: int, before: ServerState, seen: ServerState) -> None:
        if seen.role != before.role:
            text = f"{before.role} became {seen.role}"
            self._tell(now_ms, EventKind.ROLE, EventSeverity.WARN, text)
        if seen.is_ready != before.is_ready:
            severity = EventSeverity.GOOD if seen.is_ready else EventSeverity.ERROR
            word = "ready" if seen.is_ready else "not ready"
            self._tell(now_ms, EventKind.HEALTH, severity, f"{word}: {seen.health}")
        for what, count in seen.counts.items():
            more = count - before.counts.get(what, 0)
            if more > 0:
                kind = EventKind.REGISTRATION if "registration" in what else EventKind.REFUSAL
                self._tell(now_ms, kind, EventSeverity.WARN, what, more)
        self._compare_registered(now_ms, before.registered, seen.registered)

    def _compare_registered(
        self, now_ms: int, before: Mapping[str, str], now: Mapping[str, str]
    ) -> None:
        for address in now.keys() - before.keys():
            text = f"{now[address]} at {address} registered"
            self._tell(now_ms, EventKind.REGISTRATION, EventSeverity.GOOD, text)
        for address in before.keys() - now.keys():
            text = f"{before[address]} at {address} is not registered any more"
            self._tell(now_ms, EventKind.REGISTRATION, EventSeverity.WARN, text)

    def _take_members(self, now_ms: int, members: Iterable[MemberRow], *, is_first: bool) -> None:
        before = {member.key: member for member in self.members}
        shown, members = {}, list(members)
        for member in members:
            key, name = member.key, member.name
            self._gone.pop(key, None)
            is_news = self._timeline.note(now_ms, key, f"{member.role}: {member.state}")
            shown[key] = replace(member, since_ms=self._timeline.state_since(key))
            if is_news and not is_first and not member.is_here:
                text = f"{name}: {member.state}"
                self._tell(now_ms, EventKind.REPLICATION, _SEVERITY[member.tone], text)
            elif is_news and not is_first and member.note:
                self._tell(
                    now_ms, EventKind.HEALTH, _SEVERITY[member.tone], f"{name}: {member.note}"
                )
        leads = any(member.is_here and member.role == "master" for member in members)
        if not leads:
            self._forget(now_ms)
        for key, member in before.items():
            if key not in shown and key not in self._gone:
                self._note_left(now_ms, member, leads)
        for key, (member, looks) in list(self._gone.items()):
            self._gone[key] = (member, looks + 1)
            if looks >= KEPT_LOOKS:
                del self._gone[key]
            else:
                shown[key] = member
        self.members = list(shown.values())

    def _forget(self, now_ms: int) -> None:
        """
        Note all missing members as not seen. Slaves connect to the master alone, so a broker that
        is not the master cannot say that one is gone.
        """
        for key in self._gone:
            self._timeline.note(now_ms, key, UNSEEN)
        self._gone.clear()

    def _note_left(self, now_ms: int, member: MemberRow, leads: bool) -> None:
        """
        Note a member that left. A slave that its master misses is gone; about any other member this
        broker knows nothing.
        """
        if member.role != "slave" or member.is_here or not leads:
            self._timeline.note(now_ms, member.key, UNSEEN)
            return
        self._timeline.note(now_ms, member.key, GONE)
        self._tell(now_ms, EventKind.REPLICATION, EventSeverity.WARN, f"{member.name} is gone")
        gone = replace(member, state=GONE, tone=Tone.ERROR, since_ms=now_ms, lag_seconds=None)
        self._gone[member.key] = (gone, 0)
