"""A slave's connection to its master, which is renewed whenever it ends.

Spec: ha.md, sections 4.7, 9 and 18.
"""

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import (
    ConnectError,
    ConnectionClosed,
    ConnectionRefusedError,
    DNSLookupError,
)
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import (
    DamagedMaster,
    DivergedTail,
    NothingInCommon,
    ReplicationError,
    StoreError,
    StrandedLog,
    TlsRefused,
    UnreadableLog,
)
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.seams import Host
from rmq_ha.server.replication.classic.comparing import StartSearch
from rmq_ha.server.replication.classic.replica import ClassicReplica, ReplicaStage
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.link import MasterLink
from rmq_ha.server.replication.places import holds_nothing
from rmq_ha.server.replication.protocol import ReplicaProtocol
from rmq_ha.server.replication.statistics import STRANDED, MasterStatistics
from rmq_ha.server.store.log.journal_log import CopiedLog

RETRY_SECONDS = 5.0
"""
Longest pause between connects in seconds; also the pause after an error that a person or the disk
has to mend.
"""
FIRST_RETRY_SECONDS = 0.5
RETRY_GROWTH = 1.5
PORT_FOR_SLAVES = "a master's port for slaves is its haListenPort: listenPort + 1, unless set"
REFUSED_SECONDS = (1.0, 3.0)
"""
Range of the random pause after a protocol error, or after the master closed without a frame, in
seconds.
"""
REJOIN_SECONDS = (0.05, 0.3)
"""Range of the random pause after the end of a connection that worked, in seconds."""


class LinkFault(Enum):
    """The fault for which a slave does not follow its master until somebody mends it."""

    DIVERGED = "diverged"
    UNREADABLE = "unreadable"
    STRANDED = STRANDED
    DISK = "disk"


class TailOfStore:
    """
    The link's access to the slave's store, besides the log.

    :param set_aside: `DefaultMessageStore.set_tail_aside`.
    :param unreadable_at: returns the physical offset of bytes that can never become a record; None:
        no such bytes.
    :param set_all_aside: `DefaultMessageStore.set_all_aside`.
    :param refetch_refusal: the function of that name, with its other arguments filled in.
    """

    def __init__(
        self,
        set_aside: Callable[[int, str], "Deferred[Any]"] | None = None,
        unreadable_at: Callable[[], int | None] = lambda: None,
        set_all_aside: Callable[[str], "Deferred[Any]"] | None = None,
        refetch_refusal: Callable[[StrandedLog], str] = lambda stranded: "",
    ) -> None:
        self.set_aside = set_aside
        self.set_all_aside = set_all_aside
        self.refetch_refusal = refetch_refusal
        self.unreadable_at = unreadable_at


def retry_seconds(failures: int, random: Random) -> float:
    """
    Return the seconds to wait after a failed connect.

    :param failures: number of failures in a row before this one; after the first failure there is
        no pause.
    """
    if not failures:
        return 0.0
    seconds = min(RETRY_SECONDS, FIRST_RETRY_SECONDS * RETRY_GROWTH ** min(failures - 1, 20))
    return seconds * random.uniform(0.8, 1.0)


class ClassicLink(MasterLink[ClassicReplica]):
    """
    A slave's connection to its master, renewed again and again.

    There is one connection at a time; a changed address takes effect at the next connect. A
    repeated reason for the end of a connection is logged once.

    Where this slave's log and the master's part, the slave's tail is set aside and fetched anew. In
    three cases the slave does not follow the master, and `fault` says why. The two logs have
    nothing in common. Or the slave's log cannot be read although the master has the same bytes. Or
    the master has deleted the bytes that follow on the slave's log, and the slave may not set all
    of its log aside.

    :param connector: opens the connections.
    :param was_cut: called after this slave's log became shorter.
    :ivar tail: access to the store; its default sets nothing aside.
    :ivar fault: the reason why the link stays away; None while it does not.
    :ivar set_aside: number of times that a diverged tail was set aside in this run.
    """

    def __init__(
        self,
        host: Host,
        configuration: BrokerConfiguration,
        log: CopiedLog,
        connector: MasterConnector,
        was_cut: Callable[[], None],
    ) -> None:
        super().__init__(host, connector)
        self.address: str | None = None
        self.tail = TailOfStore()
        self.fault: LinkFault | None = None
        self.set_aside = 0
        self._reason = ""
        self._state = "no address"
        self._was_cut = was_cut
        self._search = StartSearch(log)
        self._failures = 0
        self._configuration = configuration
        self._commit_log = log
        self._is_redirected = False
        self._is_followed = False
        self._heard: float | None = None

    @property
    def state(self) -> str:
        """
        Return for operators the fault, the stage of the connection, or the reason why there is no
        connection.
        """
        if self.fault is not None:
            return self.fault.value
        return self.connection.replica.stage.value if self.connection else self._state

    def set_address(self, address: str) -> None:
        """
        Take the address of the master's HA listener.

        :raises ValueError: the address is not `host:port`.
        """
        parse_host_port(address)
        if address == self.address:
            return
        self.address = address
        self._failures = 0
        if not self._is_running or self.connection or self._task:
            return
        if self._attempt is None:
            self._connect_after(0.0)
        else:  # a machine that vanished answers nothing for 5 s
            self._is_redirected = True
            self._attempt.cancel()

    def stop(self) -> "Deferred[None]":
        self.fault = None
        self._state = "stopped"
        return super().stop()

    def look(self) -> None:
        """
        Check, because the log grew, whether it has bytes that can never become a record. A slave
        stops acknowledging such a log.
        """
        if self.connection is not None and self.tail.unreadable_at() is not None:
            self.connection.step(self.connection.replica.look)

    def statistics(self) -> MasterStatistics:
        """
        Return the link's statistics. The master's silence goes on counting when the connection is
        lost.
        """
        replica = self.connection.replica if self.connection else None
        heard = replica.last_read if replica and replica.frames else self._heard
        silent = None if heard is None else self._host.clock.seconds() - heard
        return MasterStatistics(
            address=self.address,
            state=self.state,
            fault=None if self.fault is None else self._reason,
            alone_seconds=self._alone.seconds,
            set_aside=self.set_aside,
            reported=replica.reported if replica else None,
            frames=replica.frames if replica else 0,
            silent_ms=None if silent is None else round(silent * 1000),
        )

    def _connect(self) -> None:
        if self._is_running and self.address is not None:
            self._state = "connecting"
            super()._connect()

    def _open(self) -> "Deferred[Any]":
        assert self.address is not None
        host, port = parse_host_port(self.address)
        return maybeDeferred(self._connector.open, host, port, self._build)

    def _build(self) -> ReplicaProtocol[ClassicReplica]:
        clock, log, tail = self._host.clock, self._commit_log, self.tail
        start = self._search.place(tail.unreadable_at())
        config, most = self._configuration.store, self._configuration.ours.ha_first_offset_max
        replica = ClassicReplica(log, config, clock.seconds(), start, tail.unreadable_at, most)
        return ReplicaProtocol(replica, self, clock)

    def _connected(self, connection: ReplicaProtocol[ClassicReplica]) -> None:
        self._is_redirected = False
        super()._connected(connection)

    def _failed(self, failure: Failure) -> None:
        self._attempt = None
        if not self._is_running:
            return
        if self._is_redirected:
            self._is_redirected = False
            self._connect_after(0.0)
            return
        self._state = "unreachable"
        if not isinstance(
            failure.value,
            ConnectError
            | ConnectionClosed
            | DNSLookupError
            | OSError
            | TlsRefused
            | StoreError
            | ReplicationError,
        ):
            self.log.failure("connecting to the master at {peer}", failure, peer=self.address)
        text = f"cannot connect: {failure.getErrorMessage().rstrip('.')}"
        if isinstance(failure.value, ConnectionRefusedError):
            text += f"; nobody listens there: does the master run? {PORT_FOR_SLAVES}"
        elif isinstance(failure.value, StoreError):
            text = failure.getErrorMessage()
            self._stay_away(LinkFault.DISK, text)
        elif self.fault is LinkFault.DISK:
            self.fault = None
        self._tell(text)
        self._connect_after(retry_seconds(self._failures, self._host.random))
        self._failures += 1

    def stepped(self, connection: ReplicaProtocol[ClassicReplica]) -> None:
        """See `ReplicaOwner`. Take note when the connection begins to follow the master."""
        if self._is_followed or connection.replica.stage is not ReplicaStage.FOLLOWING:
            return
        self._is_followed = True
        self.fault = None
        self._alone.end()
        self._last_reason = ""
        self._failures = 0
        self._search.reset()
        self.log.info(
            "following the master at {peer} from {physical_offset}",
            peer=self.address,
            physical_offset=connection.replica.reported,
        )

    def lost(
        self, connection: ReplicaProtocol[ClassicReplica], error: Exception | None, why: str
    ) -> None:
        self._is_followed = False
        if connection.replica.frames:
            self._heard = connection.replica.last_read
        super().lost(connection, error, why)

    def _come_back(
        self, connection: ReplicaProtocol[ClassicReplica], error: Exception | None, why: str
    ) -> None:
        """
        Connect again: soon after a normal end, later when somebody has to mend something first.
        """
        self._state = "disconnected"
        random = self._host.random
        if isinstance(error, DivergedTail):
            self._parted(error)
            return
        if isinstance(error, NothingInCommon):
            self._look_further_back(error)
            return
        if isinstance(error, StrandedLog):
            self._left_behind(error)
            return
        seconds = random.uniform(*REJOIN_SECONDS)
        if isinstance(error, UnreadableLog):
            self._stay_away(LinkFault.UNREADABLE, why)
            # A link that followed comes back at once to compare the bytes with the master's. If the
            # master has the same bytes, only a person can help, so it comes back rarely.
            if connection.replica.stage is not ReplicaStage.FOLLOWING:
                seconds = RETRY_SECONDS
        elif isinstance(error, DamagedMaster):
            self._stay_away(LinkFault.DIVERGED, why)
            seconds = RETRY_SECONDS
        elif isinstance(error, StoreError):
            self._stay_away(LinkFault.DISK, why)
            seconds = RETRY_SECONDS
        elif error is None and holds_nothing(self._commit_log) and self._commit_log.max_offset:
            why = (
                f"{why}, and sent nothing; this slave's log holds no message and begins at "
                f"{self._commit_log.max_offset}, and the master's may end before. Were files of it "
                "lost? Move commitlog, consumequeue, index and checkpoint away, and start again"
            )
            self._stay_away(LinkFault.DIVERGED, why)
            seconds = RETRY_SECONDS
        elif error is not None or not connection.replica.frames:
            seconds = random.uniform(*REFUSED_SECONDS)
            why += "" if error else f" without an answer; {PORT_FOR_SLAVES}"
        self._tell(why)
        self._connect_after(seconds)

    def _look_further_back(self, error: NothingInCommon) -> None:
        if self._search.go_back(error.start):
            self.log.info(
                "{error}; comparing from further back with the master at {peer}",
                error=error,
                peer=self.address,
            )
            self._connect_after(self._host.random.uniform(*REJOIN_SECONDS))
            return
        low = self._commit_log.min_offset
        why = (
            f"{error}; this slave's log and the master's have nothing in common, down to the "
            f"slave's first byte at {low}. Is it another broker's store, or does the master's log "
            "begin behind it? This slave's log is left as it is; to follow this master, move "
            "commitlog, consumequeue and index away"
        )
        self._stay_away(LinkFault.DIVERGED, why)
        self._tell(why)
        self._connect_after(RETRY_SECONDS)

    def _stay_away(self, fault: LinkFault, why: str) -> None:
        self.fault = fault
        self._reason = why

    def _parted(self, error: DivergedTail) -> None:
        """Set aside the part of the log that the master does not have, then connect again."""
        set_aside = self.tail.set_aside
        if set_aside is None or not self._configuration.ours.ha_set_aside_diverged_tail:
            why = (
                f"{error}; this slave keeps its log from {error.end} on, since "
                "haSetAsideDivergedTail=false, and does not follow the master: promote this broker "
                "if its data are the better ones, else move commitlog, consumequeue and index "
                "away, or set haSetAsideDivergedTail=true"
            )
            self._stay_away(LinkFault.DIVERGED, why)
            self._tell(why)
            self._connect_after(RETRY_SECONDS)
            return
        self._state = "setting aside"
        self.log.warn(
            "{error}: this slave's log from {physical_offset} to {end} is set aside, and fetched "
            "anew from the master at {peer}",
            error=error,
            physical_offset=error.end,
            end=self._commit_log.max_offset,
            peer=self.address,
        )
        task = maybeDeferred(set_aside, error.end, str(error))
        self._run_task(task).addCallbacks(self._cut, self._not_cut)

    def _left_behind(self, error: StrandedLog) -> None:
        """
        Set aside the whole log, if that is allowed: the master has deleted the bytes that follow on
        it.
        """
        set_aside, why_not = self.tail.set_all_aside, self.tail.refetch_refusal(error)
        if set_aside is None or why_not:
            why = f"{error}. {why_not}"
            self._stay_away(LinkFault.STRANDED, why)
            self._tell(why)
            self._connect_after(RETRY_SECONDS)
            return
        self._state = "setting aside"
        self.log.warn(
            "this slave sets its store aside and fetches all from the master at {peer} anew: "
            "{error}",
            peer=self.address,
            error=error,
        )
        task = maybeDeferred(set_aside, str(error)).addCallback(self._begin_at, error.begins)
        self._run_task(task).addCallbacks(self._cut, self._not_cut, (0,))

    def _begin_at(self, _: object, physical_offset: int) -> None:
        """
        Let the empty log begin at an offset. Otherwise the slave would get only the master's last
        file, as in 4.9.
        """
        self._commit_log.append_raw(physical_offset, b"")

    def _cut(self, _: object, tails: int = 1) -> None:
        self.set_aside += tails
        self._search.reset()
        if not self._is_running:
            return
        self._was_cut()
        self._connect_after(0.0)

    def _not_cut(self, failure: Failure) -> None:
        if not self._is_running:
            return
        why = f"what the master does not have cannot be set aside: {failure.getErrorMessage()}"
        if not isinstance(failure.value, StoreError | OSError):
            self.log.failure("setting the end of this slave's log aside", failure)
        self._stay_away(LinkFault.DIVERGED, why)
        self._tell(why)
        self._connect_after(RETRY_SECONDS)

    def _tell_alone(self) -> None:
        name = self._configuration.broker.broker_name or "(not set)"
        if self.address is None:
            why = f"no name server knows a master of brokerName={name}: is that name right?"
        else:
            why = f"{self.address} is {self.state}: {self._last_reason or 'it says nothing'}"
        self.log.warn(
            "this slave follows nobody since {seconds:.0f} s: {why}; what it serves gets old",
            seconds=self._alone.seconds or 0.0,
            why=why,
        )

    def _tell(self, reason: str) -> None:
        if reason != self._last_reason:
            self._last_reason = reason
            tell = self.log.warn if self.fault is None else self.log.error
            tell(
                "not following the master at {peer}: {error}; trying again and again",
                peer=self.address,
                error=reason,
            )
