"""The board of a broker."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.base.model.printable import counted
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topics import HALF_TOPIC
from rmq_ha.base.timing.slices import in_slices
from rmq_ha.base.wire.command import VERSION
from rmq_ha.base.wire.versions import version_name
from rmq_ha.ops.admin.doctor.halves import OLD_S as HALF_OLD_S
from rmq_ha.ops.admin.doctor.pops import LONG_S as POP_LONG_S
from rmq_ha.ops.admin.doctor.timers import LATE_S as TIMER_LATE_S
from rmq_ha.ops.admin.doctor.timers import reason_of_delay
from rmq_ha.ops.app.page.board import Board, certificate_notices, certificates
from rmq_ha.ops.app.page.fleet import Fleet
from rmq_ha.ops.app.page.history import Point
from rmq_ha.ops.app.page.life import Lives
from rmq_ha.ops.app.page.listing import Listing, Selection, pick
from rmq_ha.ops.app.page.measures import PEAKS, SERIES, BrokerMeasures
from rmq_ha.ops.app.page.members import ask_members
from rmq_ha.ops.app.page.rows import PageRows
from rmq_ha.ops.app.page.search import Searches
from rmq_ha.ops.app.page.tail import Tails
from rmq_ha.ops.app.page.trends import TrendForm, TrendKeeper, rings_for
from rmq_ha.ops.app.page.values import (
    ClientKind,
    ClientRow,
    Clients,
    DiskUse,
    GroupRow,
    Groups,
    GroupSheet,
    LogUse,
    MachineRow,
    Overview,
    PageNotice,
    Tone,
    Topic,
    Topics,
    TopicSheet,
)
from rmq_ha.ops.app.page.waiting import WaitingRoom
from rmq_ha.ops.app.page.watch import GONE, ServerState
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.server.acl.service import PlainAccessControl
from rmq_ha.server.broker.own_calls import signed
from rmq_ha.server.store.timer.reports import TimerWork

_FULL = 0.75
"""
Share of the disk from which on the page warns; files are deleted at `diskSpaceCleanForciblyRatio`.
"""
_LAG_S = 5.0
_MOST_KINDS = 50
_ROWS_A_SLICE = 2000


class BrokerBoard(Board):
    """
    The board of one broker, from its start on.

    :param broker: a `Broker` that serves.
    :param status: the source of /metrics and /healthz.
    :param reactor: histogram of how late timers ran.
    """

    kind = "broker"
    log = Logger()

    def __init__(self, broker: Any, status: BrokerStatus, reactor: Histogram) -> None:
        host = broker.host
        own = broker.configuration.ours
        super().__init__(host, broker.store.statistics.boot_ms, PEAKS, self._keep)
        root, days = broker.configuration.store.store_path_root_dir, own.page_history_days
        form = TrendForm(SERIES, rings_for(days))
        self._trends = TrendKeeper(host, root, form) if days else None
        self._broker = broker
        self._status = status
        self._measures = BrokerMeasures(broker, reactor)
        self.rows = PageRows(broker)
        self._topics: Listing[Topic] = Listing(host.clock, self.rows.topics)
        self._groups: Listing[GroupRow] = Listing(host.clock, self.rows.groups)
        self._clients: Listing[ClientRow] = Listing(host.clock, self.rows.clients)
        self.searches = Searches(broker, host.clock, self.rows)
        self.tails = Tails(broker, host.clock)
        self.lives = Lives(broker, host.clock, self.rows)
        self.waiting = WaitingRoom(broker, status)
        calls = signed(broker.client, host, broker.configuration)
        name_servers = broker.registration.name_servers
        self._fleet = Fleet(host, calls, lambda: list(name_servers), self._machine)

    def start(self) -> None:
        super().start()
        if self._trends is not None:
            self.is_restoring = True
            loaded = self._trends.load()
            loaded.addCallback(lambda points: in_slices(self.host.clock, self.past.restore(points)))
            loaded.addBoth(self._restored)

    def stop(self) -> "Deferred[None]":
        if self._trends is not None:
            self._trends.close()
        return super().stop()

    def _restored(self, outcome: object) -> None:
        self.is_restoring = False
        if isinstance(outcome, Failure):
            self.log.failure("the history of the page cannot be shown", outcome)

    def _keep(self, ring: int, point: Point) -> None:
        if self._trends is not None:
            self._trends.write(ring, point)

    # ------------------------------------------------------------ called by the timer

    def look(self) -> None:
        """Look for news, and at the next part of the lists that are too long for one look."""
        self._measures.look()
        super().look()

    def server_state(self) -> ServerState:
        broker, health = self._broker, self._status.health()
        why_no_puts = broker.store.why_not_writable() or broker.journal.why_no_puts()
        members = self._status.journal.members(why_no_puts)
        return ServerState(
            broker.configuration.store.broker_role.name,
            health.is_ready,
            health.reason,
            members,
            self._counts(),
        )

    def measured(self) -> Mapping[str, float | None]:
        return self._measures.take([item for item in self.watch.members if item.state != GONE])

    def _counts(self) -> dict[str, int]:
        """
        Return how many requests since the start were refused, failed, or stored less safely than
        configured, by the text of the event.
        """
        broker = self._broker
        outcomes = broker.store.statistics.outcomes
        counts = {
            f"messages refused: {status.name}": count for status, count in outcomes.refused.items()
        }
        for status, count in outcomes.degraded.items():
            counts[f"messages stored, but less safely: {status.name}"] = count
        for control in broker.access_controls:
            if isinstance(control, PlainAccessControl):
                for kind, count in control.refused.items():
                    counts[f"requests refused by access control: {kind.value}"] = count
        counts["strangers refused at the replication port"] = broker.journal.statistics().refused
        counts["registrations that failed"] = broker.registration.failures
        for key, count in broker.limits.refused.items():
            counts[f"requests refused: {key}"] = count
        connections = broker.host.connections
        if connections is not None:
            for key, count in connections.refused.items():
                counts[f"connections refused: {key}"] = count
        return counts

    # ------------------------------------------------------------ the overview

    def overview(self) -> Overview:
        self._fleet.look()
        broker = self._broker
        identity, role = broker.identity, broker.configuration.store.broker_role
        tls_certificates = certificates(broker.tls.certificates())
        disk = self._disk()
        return self.overview_with(
            f"{identity.broker_name}",
            identity.address,
            self._status.health(),
            cluster=identity.cluster,
            role=role.name,
            role_since_ms=self._state_since(),
            mode=self._status.journal.mode(),
            notices=[
                *self._notices(disk),
                *certificate_notices(tls_certificates, self.host.now_ms()),
            ],
            numbers=self._numbers(),
            machines=self._machines(),
            cluster_note=self._fleet.note,
            disk=disk,
            log=self._log(),
            certificates=tls_certificates,
            name_servers=list(broker.registration.name_servers),
        )

    def _state_since(self) -> int | None:
        here = [member.since_ms for member in self.watch.members if member.is_here]
        return here[0] if here else None

    def _numbers(self) -> dict[str, int]:
        broker = self._broker
        numbers = {
            "topics": len(broker.topics.table),
            "groups": len(broker.groups.table),
            "producer_groups": len(broker.producers.groups()),
            "consumer_groups": len(broker.consumers.groups()),
            "connections": broker.main_server.connections + broker.fast_server.connections,
            "held_pulls": len(broker.hold),
            "consumer_lag": self._measures.lags.total,
            "dead": self._measures.dead.total,
            "puts": broker.store.statistics.put_times,
            "gets": broker.store.statistics.get_transferred,
        }
        if broker.store.timers.is_enabled:
            numbers["timers"] = broker.store.timers.waiting
        half = broker.transaction_checks.open_transactions()
        if half is not None and (half.number or broker.topics.get(HALF_TOPIC)):
            numbers["half"] = half.number
        numbers["delayed"] = self._status.delayed_total()
        if broker.pops.is_enabled:
            numbers["popped_out"] = broker.pops.counters().out
        connections = broker.host.connections
        if connections is not None and connections.places is not None:
            numbers["places"] = connections.places
        return numbers

    def _disk(self) -> DiskUse:
        store, ours = self._broker.store, self._broker.configuration.ours
        limit = ours.disk_space_warning_level_ratio / 100
        usage = self.host.disk.usage(store.log.directories[0])
        if usage is None:
            return DiskUse(store.cleaner.log_ratio(), limit)
        return DiskUse(store.cleaner.log_ratio(), limit, usage.total, usage.usable)

    def _log(self) -> LogUse:
        store = self._broker.store
        log, oldest = store.log, store.earliest_message_time()
        return LogUse(
            log.max_offset - max(0, log.min_offset),
            log.max_offset,
            max(0, log.max_offset - log.flushed_offset),
            max(0, store.dispatcher.bytes_behind),
            oldest if oldest > 0 else None,
        )

    def _machines(self) -> list[MachineRow]:
        """
        Return this broker as it is now, and the others of the last round. Distances are those of
        the last round, in which all were asked at the same time.
        """
        own = self._machine()
        others = [item for item in self._fleet.machines if item.address != own.address]
        for item in self._fleet.machines:
            if item.address == own.address:
                own = replace(own, behind_bytes=item.behind_bytes)
        return sorted([own, *others], key=_place)

    def _machine(self) -> MachineRow:
        broker, health = self._broker, self._status.health()
        identity = broker.identity
        return MachineRow(
            set_name=identity.broker_name,
            broker_id=identity.broker_id,
            address=identity.address,
            cluster=identity.cluster,
            role=broker.configuration.store.broker_role.name,
            tone=Tone.GOOD if health.is_ready else Tone.ERROR,
            note="" if health.is_ready else health.reason,
            is_here=True,
            version=version_name(VERSION),
            put_rate=self._last.get("put_rate"),
            get_rate=self._last.get("get_rate"),
            disk_used=broker.store.cleaner.log_ratio(),
            log_end=broker.store.log.max_offset,
            seen_ms=self.host.now_ms(),
        )

    def _notices(self, disk: DiskUse) -> list[PageNotice]:
        broker, health = self._broker, self._status.health()
        notices = []
        if not health.is_ready:
            notices.append(PageNotice(Tone.ERROR, health.reason, "rmqha-admin doctor says more"))
        members = self.watch.members
        living = [item for item in members if item.role == "slave" and item.state != GONE]
        role = broker.configuration.store.broker_role
        if role is BrokerRole.SYNC_MASTER and not living and self._status.journal.mode() == "pair":
            text = "no slave is connected: new messages are on this machine only"
            notices.append(PageNotice(Tone.ERROR, text, "start the slave; docs/failover.md"))
        for item in members:
            if (
                item.is_here
                and item.role == "slave"
                and item.state != "following"
                and not item.note
            ):
                text = f"this slave follows no master ({item.state})"
                notices.append(PageNotice(Tone.WARN, text, "is the master dead? docs/failover.md"))
            elif item.state != GONE and item.lag_seconds is not None and item.lag_seconds > _LAG_S:
                text = f"{item.name} is {item.lag_seconds:.0f} s behind"
                notices.append(PageNotice(Tone.WARN, text, "look at its disk and at the network"))
        if disk.used >= _FULL:
            text = f"the disk of the commit log is {disk.used:.0%} full"
            hint = f"messages are refused from {disk.refuses_at:.0%} on"
            tone = Tone.ERROR if disk.used >= disk.refuses_at else Tone.WARN
            notices.append(PageNotice(tone, text, hint))
        more = [*self._of_timers(), *self._of_transactions(), *self._of_pops(), *self._of_dead()]
        return [*notices, *more]

    def _of_pops(self) -> list[PageNotice]:
        pops = self._broker.pops
        if not pops.is_enabled or not pops.counters().out:
            return []
        (group, topic), oldest = min(
            pops.out_by_group().items(), key=lambda item: item[1].first_pop_ms
        )
        age_s = (self.host.now_ms() - oldest.first_pop_ms) / 1000
        if age_s <= POP_LONG_S:
            return []
        text = f"{group} has a popped message of {topic} for {age_s / 60:.0f} min"
        return [PageNotice(Tone.WARN, text, f"rmqha-admin group inflight {group}")]

    def _of_transactions(self) -> list[PageNotice]:
        half = self._broker.transaction_checks.open_transactions()
        if half is None or not half.number:
            return []
        age_s = (self.host.now_ms() - half.born_ms) / 1000
        if age_s <= HALF_OLD_S:
            return []
        text = (
            f"{counted(half.number, 'half message')} open, the oldest for {age_s:.0f} s: no "
            f"producer of {half.group or '(no group)'} ends its transaction"
        )
        return [PageNotice(Tone.WARN, text, "rmqha-admin transaction status")]

    def _of_timers(self) -> list[PageNotice]:
        report = self._broker.store.timers.report()
        late_s = report.overdue_ms(self.host.now_ms()) / 1000
        hint = "rmqha-admin doctor says more"
        if report.work is TimerWork.OFF and report.waiting:
            text = f"{report.waiting} timer messages wait, and timerWheelEnable is false"
            return [PageNotice(Tone.ERROR, text, hint)]
        if late_s <= TIMER_LATE_S or report.work in (TimerWork.OFF, TimerWork.SLAVE):
            return []
        why, _ = reason_of_delay(report.work)
        text = f"the first of {report.waiting} timer messages is late by {late_s:.0f} s: {why}"
        return [PageNotice(Tone.ERROR, text, hint)]

    def _of_dead(self) -> list[PageNotice]:
        points = self.past.fine.points_after(0, ["dead"]).series.get("dead", [])
        counts = [item for item in points if item is not None]
        # A broker that starts counts the messages that its queues hold already.
        grown = int(counts[-1] - min(counts[1:])) if len(counts) > 2 else 0
        if grown <= 0:
            return []
        what = "a message" if grown == 1 else f"{grown} messages"
        text = f"{what} went to a dead letter queue in the last hour"
        return [PageNotice(Tone.WARN, text, "rmqha-admin dlq show GROUP")]

    # ------------------------------------------------------------ lists

    def topics(self, host: str, text: str, kind: str, sort: str, most: int) -> "Deferred[Topics]":
        """
        Return topics whose names contain a text.

        :param kind: only topics of this kind; empty: any.
        :param sort: `name`, or the name of a numeric field of `Topic`; then the largest come first.
        """
        text = text.lower()
        key = _sorting(sort, ("messages", "total", "put_rate", "put_bytes", "queues"))

        def picked(rows: list[Topic]) -> "Deferred[Selection[Topic]]":
            return pick(
                self.lane,
                host,
                rows,
                lambda row: (not kind or row.kind == kind) and text in row.name.lower(),
                key,
                most,
                largest=sort != "name",
            )

        later = self._topics.rows().addCallback(picked)
        return later.addCallback(lambda it: Topics(it.total, self._topics.age, it.rows))

    def groups(self, host: str, text: str, sort: str, most: int) -> "Deferred[Groups]":
        text = text.lower()
        key = _sorting(sort, ("lag", "members", "get_rate", "dead", "retrying", "topics"))

        def picked(rows: list[GroupRow]) -> "Deferred[Selection[GroupRow]]":
            return pick(
                self.lane,
                host,
                rows,
                lambda row: text in row.name.lower(),
                key,
                most,
                largest=sort != "name",
            )

        later = self._groups.rows().addCallback(picked)
        return later.addCallback(lambda it: Groups(it.total, self._groups.age, it.rows))

    def clients(self, host: str, text: str, most: int) -> "Deferred[Clients]":
        """Return clients whose id, address or group contains a text, and counts of all clients."""
        text = text.lower()
        kinds: Counter[tuple[str, str, str]] = Counter()

        def counted(rows: list[ClientRow]) -> "Deferred[Selection[ClientRow]]":
            return self.lane.run(host, _count_kinds(rows, kinds)).addCallback(
                lambda _: picked(rows)
            )

        def picked(rows: list[ClientRow]) -> "Deferred[Selection[ClientRow]]":
            return pick(
                self.lane,
                host,
                rows,
                lambda row: text in f"{row.client_id} {row.address} {row.group}".lower(),
                lambda row: (row.group, row.kind, row.client_id),
                most,
                largest=False,
            )

        later = self._clients.rows().addCallback(counted)
        return later.addCallback(
            lambda it: Clients(
                it.total,
                self._clients.age,
                it.rows,
                [ClientKind(*kind, count) for kind, count in kinds.most_common(_MOST_KINDS)],
            )
        )

    def topic_sheet(self, host: str, name: str) -> "Deferred[TopicSheet | None]":
        """Return the sheet of one topic; None: no topic has this name."""
        sheets: list[TopicSheet] = []
        later = self.lane.run(host, self.rows.topic_sheet(name, sheets))
        return later.addCallback(lambda _: sheets[0] if sheets else None)

    def group_sheet(self, host: str, name: str) -> "Deferred[GroupSheet | None]":
        """Return the sheet of one group, whose members are asked for their queues."""
        return Deferred.fromCoroutine(self._group_sheet(host, name))

    async def _group_sheet(self, host: str, name: str) -> GroupSheet | None:
        owners = await ask_members(self._broker, name)
        sheets: list[GroupSheet] = []
        steps = self.rows.group_sheet(name, owners, self.host.now_ms(), sheets)
        await self.lane.run(host, steps)
        return sheets[0] if sheets else None


def _count_kinds(rows: list[ClientRow], kinds: "Counter[tuple[str, str, str]]") -> Iterator[None]:
    """Count the clients by protocol, language and version, some rows for each item."""
    known: set[tuple[str, str]] = set()
    for number, row in enumerate(rows):
        if (row.client_id, row.address) not in known:
            known.add((row.client_id, row.address))
            kinds[row.protocol, row.language, row.version] += 1
        if number % _ROWS_A_SLICE == _ROWS_A_SLICE - 1:
            yield


def _place(machine: MachineRow) -> tuple[str, str, float, str]:
    """Sort sets together; within a set by id, with members without an id last."""
    number = math.inf if machine.broker_id is None else machine.broker_id
    return machine.cluster, machine.set_name, number, machine.address


def _sorting(sort: str, known: tuple[str, ...]) -> Any:
    """Return the sort key; by name if `sort` is not one of the known fields."""
    if sort in known:
        return lambda row: (getattr(row, sort), row.name)
    return lambda row: row.name
