"""Tells which brokers are in sync with a master, how much of its log may be read, and which puts
are kept.

Spec: controller.md, chapter 8.
"""

from dataclasses import dataclass

from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epochs
from rmq_ha.server.replication.epochs.feed import Report
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.store.log.journal_log import LogBytes


@dataclass(slots=True)
class _Slave:
    """
    One broker with a connection.

    :ivar link: the newest connection; older ones count for nothing.
    :ivar acked: its last report on this connection; None before the first one.
    :ivar progress: when its report last rose, or when it last had the whole log, in seconds.
    :ivar may_join: whether its last report allows it to join the set.
    """

    link: object
    progress: float
    acked: int | None = None
    may_join: bool = False


class SyncState:
    """
    A master's view of its set for one epoch, from its election until it leads no more.

    Brokers are counted, not connections; only a broker's newest connection counts. Only a `Report`
    is believed. Differs from 5.3.3 on purpose. The confirm offset never falls, waits for members
    that have not reported, and counts the whole set even with allAckInSyncStateSet off. A broker
    that makes no progress is not in sync, whatever was sent to it. Puts are judged by the size of
    the set when they end. A refused change of the set is dropped.

    :param confirm_offset: confirm offset of the log when this broker began to lead.
    :ivar epochs: epochs of the log.
    :ivar led_from: end of the log when this broker began to lead. Other brokers have later bytes
        only if this broker has sent them.
    :ivar known: the set as the controller has it.
    :ivar wanted: the members for which the controller is being asked; None: no change is wanted.
    :ivar confirm_offset: messages below it may be read.
    """

    def __init__(
        self,
        broker_id: int,
        log: LogBytes,
        epochs: Epochs,
        known: SyncStateSet,
        settings: ReplicationSettings,
        now: float,
        confirm_offset: int = 0,
    ) -> None:
        self.epochs = epochs
        self.known = known
        self.wanted: frozenset[int] | None = None
        self.confirm_offset = confirm_offset
        self._id = broker_id
        self._log = log
        self._settings = settings
        self._began = now
        # By broker id: its newest connection; the end of the log that it was sent; when it may be
        # proposed again, in seconds. `_gone` has the brokers that lost a connection in this epoch.
        self._slaves: dict[int, _Slave] = {}
        self._sent: dict[int, int] = {}
        self._barred: dict[int, float] = {}
        self._gone: set[int] = set()
        self._is_asked = False  # whether the controllers may have been asked for `wanted`
        # `_level` is the end that the log had at the last `appended`.
        self.led_from = self._level = int(log.max_offset)
        self._confirm()

    # ------------------------------------------------------------ connections

    def sent_to(self, broker_id: int) -> int:
        """
        Return the offset up to which a broker was sent the log in this epoch, on any connection.
        """
        return self._sent.get(broker_id, 0)

    def sending(self, broker_id: int, end: int) -> None:
        """Note that a broker is sent the log up to `end`."""
        self._sent[broker_id] = max(end, self.sent_to(broker_id))

    def connected(self, broker_id: int, link: object, now: float) -> object | None:
        """
        Take the handshake of a slave.

        :returns: the broker's earlier connection, to be closed, since only one counts; None: there
            is none.
        """
        before = self._slaves.get(broker_id)
        self._slaves[broker_id] = _Slave(link, now)
        return None if before is None or before.link is link else before.link

    def reported(self, link: object, report: Report, now: float) -> None:
        """Take a slave's report of its log's end."""
        slave = self._slaves.get(report.broker_id)
        if slave is None or slave.link is not link:
            return
        if slave.acked is None or report.offset > slave.acked:
            slave.progress = now
        slave.acked = report.offset
        slave.may_join = self._may_join(report)
        self._confirm()

    def _may_join(self, report: Report) -> bool:
        last = self.epochs.last_entry
        return (
            report.reached
            and not report.is_learner
            and last is not None
            and report.offset >= last.start
        )

    def closed(self, broker_id: int, link: object) -> None:
        """
        Take the end of a connection. It is ignored unless it was the newest one of its broker.
        """
        slave = self._slaves.get(broker_id)
        if slave is not None and slave.link is link:
            del self._slaves[broker_id]
            self._gone.add(broker_id)

    def appended(self, now: float) -> None:
        """Take note that this log grew: slaves that had all of it are behind from now on."""
        for slave in self._slaves.values():
            if slave.acked is not None and slave.acked >= self._level:
                slave.progress = now
        self._level = self._end
        self._confirm()

    def flushed(self) -> None:
        """Take note that more of this log is on the disk."""
        self._confirm()

    # ------------------------------------------------------------ the set

    @property
    def union(self) -> frozenset[int]:
        """Return all ids that are members, or may become members by a change under way."""
        return frozenset(self.known.members) | (self.wanted or frozenset())

    def proposal(self, now: float) -> SyncStateSet | None:
        """
        Return the set that the controllers should adopt, until they adopt or refuse it.

        Puts wait for a joining broker first. The controller is asked to add that broker only when
        it has all messages that were acknowledged or read before.

        :returns: the members, with the epoch of the set that they replace. None: the present set is
            right, or a joining broker lacks messages.
        """
        if self.wanted is not None and not self._is_asked and not self._can_be(self.wanted, now):
            self.wanted = None
        if self.wanted is None:
            members = frozenset(self.known.members)
            stay = self._staying(members, now)
            join = {
                broker_id
                for broker_id, slave in self._slaves.items()
                if slave.may_join
                and broker_id not in members
                and now >= self._barred.get(broker_id, now)
            }
            if stay | join == members or self._id not in members:
                return None
            self.wanted, self._is_asked = stay | join, False
        if not self._is_asked and not all(map(self._has_all, self._joining)):
            return None
        self._is_asked = True
        return SyncStateSet(tuple(sorted(self.wanted)), self.known.epoch)

    @property
    def _joining(self) -> frozenset[int]:
        return (self.wanted or frozenset()) - frozenset(self.known.members)

    def _can_be(self, proposed: frozenset[int], now: float) -> bool:
        """Whether each proposed broker is still connected and makes progress."""
        return self._staying(proposed | frozenset(self.known.members), now) == proposed

    def _staying(self, members: frozenset[int], now: float) -> frozenset[int]:
        """Return this broker, and the given brokers that keep up with it."""
        return frozenset(
            broker_id
            for broker_id in members
            if broker_id == self._id or self._stays(broker_id, now)
        )

    def _has_all(self, broker_id: int) -> bool:
        """
        Whether a joining broker has all messages that were acknowledged or read before puts waited
        for it. In an asynchronous set that is not required.
        """
        is_asynchronous = not self._waits_for_all and self._settings.in_sync_replicas <= 1
        return is_asynchronous or self._holds(broker_id, self.confirm_offset)

    def _stays(self, broker_id: int, now: float) -> bool:
        limit = self._settings.ha_max_time_slave_not_catchup / 1000
        slave = self._slaves.get(broker_id)
        if slave is None:
            return broker_id not in self._gone and now < self._began + limit
        if slave.acked is not None and slave.acked >= self._end:
            return True
        return now < slave.progress + limit

    def adopt(self, told: SyncStateSet) -> None:
        """Take over the set that the controller tells, unless it is older than the known one."""
        if told.epoch > self.known.epoch:
            self.known, self.wanted = told, None
            self._confirm()

    def refused(self, now: float, *, lacks_heartbeat: bool = False) -> None:
        """
        Drop the proposed set, since the controller refused it and named the set that it has.

        A refusal without that set decides nothing, as an earlier try may have been accepted. Until
        the controller names its set, puts wait for the members of both sets. The brokers that would
        have joined are not proposed again for some time.

        :param lacks_heartbeat: whether a joining broker had sent no heartbeat yet. Then the time is
            brokerHeartbeatInterval, in which the next one is due. Otherwise it is
            haMaxTimeSlaveNotCatchup.
        """
        settings = self._settings
        pause = settings.ha_max_time_slave_not_catchup
        if lacks_heartbeat:
            pause = min(pause, settings.broker_heartbeat_interval)
        for broker_id in self._joining:
            self._barred[broker_id] = now + pause / 1000
        self.wanted = None
        self._confirm()

    def deadline(self, now: float) -> float | None:
        """
        Return when `proposal` may have another result if nothing else happens, in seconds; None:
        never.
        """
        limit = self._settings.ha_max_time_slave_not_catchup / 1000
        times = [
            (self._began if broker_id not in self._slaves else self._slaves[broker_id].progress)
            + limit
            for broker_id in self.known.members
            if broker_id != self._id
        ]
        times += [end for broker_id, end in self._barred.items() if broker_id in self._slaves]
        return min((time for time in times if time > now), default=None)

    # ------------------------------------------------------------ puts

    @property
    def has_enough(self) -> bool:
        """
        Whether the set has minInSyncReplicas members, which puts need when they are appended and
        when they end.
        """
        return len(self.known.members) >= self._settings.min_in_sync_replicas

    def is_kept(self, end: int) -> bool:
        """Whether as many brokers hold the log up to `end` as the configuration says."""
        if not self.has_enough:
            return False
        if self._waits_for_all:
            return all(self._holds(broker_id, end) for broker_id in self.union)
        holders = sum(1 for broker_id in self._certain if self._holds(broker_id, end))
        return holders >= self._settings.in_sync_replicas

    def acked(self, broker_id: int) -> int | None:
        """Return the end of a broker's log; None: not known."""
        if broker_id == self._id:
            return self._settings.counted(self._log)
        slave = self._slaves.get(broker_id)
        return None if slave is None else slave.acked

    @property
    def _certain(self) -> frozenset[int]:
        """
        Return the ids that are members whether the controller accepts the proposal or refuses it.
        """
        members = frozenset(self.known.members)
        return members if self.wanted is None else members & self.wanted

    def _holds(self, broker_id: int, end: int) -> bool:
        held = self.acked(broker_id)
        return held is not None and held >= end

    @property
    def _end(self) -> int:
        return int(self._log.max_offset)

    @property
    def _waits_for_all(self) -> bool:
        return self._settings.all_ack_in_sync_state_set

    def _confirm(self) -> None:
        """
        Raise the confirm offset to the highest offset up to which enough members hold the log.

        All members are needed with allAckInSyncStateSet, otherwise inSyncReplicas of them.
        """
        union = self.union
        if self._id not in union:
            return
        if self._waits_for_all:
            counted, needed = union, len(union)
        else:
            # While a change of the set is under way, the controller may have accepted it already.
            # Only members of both sets count, so that each of the two sets that may elect has the
            # bytes.
            counted = self._certain
            needed = max(1, min(self._settings.in_sync_replicas, len(union)))
        acks = (self.acked(broker_id) for broker_id in counted)
        known = sorted((ack for ack in acks if ack is not None), reverse=True)
        # It never falls: consumers may have read up to it.
        if len(known) >= needed:
            self.confirm_offset = max(self.confirm_offset, min(known[needed - 1], self._end))
