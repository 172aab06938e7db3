"""The facts of replication that metrics, health, the page and `rmqha-admin` show, in one type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rmq_ha.server.store.journal_statistics import JournalStatistics

STRANDED = "stranded"
"""Stage of a slave that needs bytes which its master has deleted; also the state of its link."""
FOLLOWING = "following"
"""State of a link whose slave appends the bytes that its master sends."""
_MOST_SLAVES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveStatistics:
    """
    The facts that a master knows of one connection to its replication port.

    :ivar address: `host:port` of the other end.
    :ivar stage: how far the slave has come, in words.
    :ivar requested: physical offset that the slave's first report named; None: no report came yet.
    :ivar acked: physical offset up to which the slave says that it holds the log.
    :ivar lag: bytes of the log that the slave has not acknowledged.
    :ivar lag_seconds: seconds for which the log has been longer than `acked`.
    :ivar broker_id: id of the slave in its set; None: the slave has not told it. Slaves of a pair
        never do.
    """

    address: str
    stage: str
    requested: int | None
    acked: int
    lag: int
    lag_seconds: float | None = None
    broker_id: int | None = None

    @property
    def is_stranded(self) -> bool:
        """Whether the slave needs bytes that its master has deleted, so that it gets nothing."""
        return self.stage == STRANDED

    def info(self) -> dict[str, Any]:
        """Return the facts that `rmqha-admin` shows."""
        return {
            "address": self.address,
            "stage": self.stage,
            "acked": self.acked,
            "lag": self.lag,
            "lag_seconds": self.lag_seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterStatistics:
    """
    The facts that a slave knows of its master and of the link to it.

    :ivar address: `host:port` of the master; None: nobody has named one.
    :ivar state: how far the link is, in words.
    :ivar fault: why the slave stays away, for operators; None: nothing is wrong.
    :ivar alone_seconds: seconds for which no master was followed; None: one is followed.
    :ivar broker_id: id of the master in its set; None: there is no set.
    :ivar set_aside: how often the end of the slave's log was set aside since the start.
    :ivar reported: physical offset that the master was told last; None: there is no connection.
    :ivar frames: number of whole frames that came on this connection.
    :ivar silent_ms: milliseconds since the master was heard; None: it never was.
    """

    address: str | None = None
    state: str = "no address"
    fault: str | None = None
    alone_seconds: float | None = None
    broker_id: int | None = None
    set_aside: int = 0
    reported: int | None = None
    frames: int = 0
    silent_ms: int | None = None

    @classmethod
    def from_replication(cls, told: Mapping[str, Any]) -> "MasterStatistics | None":
        """
        Make statistics from the JSON with which a broker answers `rmqha-admin`; None: the answer
        names no master.

        :param told: the whole object; facts that are missing in its member `master` keep their
            defaults.
        """
        info = told.get("master")
        if not isinstance(info, dict):
            return None
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in info.items() if name in known})

    @property
    def is_followed(self) -> bool:
        """Whether the slave appends the bytes that its master sends."""
        return self.state == FOLLOWING


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatistics(JournalStatistics):
    """
    The facts of a master with slaves, or of a slave with a master. Sizes are in bytes.

    A count that a dialect does not have is None.

    :ivar replicated_offset: the highest physical offset that a slave has shown to hold; 0: none.
    :ivar slaves: connections to the replication port.
    :ivar master: None: this broker follows nobody and shall follow nobody.
    :ivar verified: slaves whose checksum was equal to that of this log.
    :ivar different: slaves whose checksum differed from that of this log.
    :ivar within_record: slaves that began in the middle of a record of this log.
    :ivar refused_ahead: machines of slaves that were refused because their logs were longer than
        this one.
    :ivar turned_away: number of connections that were closed because there were more than
        `haMaxSlaves`.
    :ivar unacknowledged: bytes that no slave has acknowledged since the start; None: no slave came.
    :ivar unacknowledged_seconds: seconds for which the log has had bytes that no slave
        acknowledged.
    """

    replicated_offset: int = 0
    slaves: Sequence[SlaveStatistics] = ()
    master: MasterStatistics | None = None
    verified: int | None = None
    different: int | None = None
    within_record: int | None = None
    refused_ahead: Sequence[str] = ()
    turned_away: int | None = None
    unacknowledged: int | None = None
    unacknowledged_seconds: float | None = None

    @property
    def follows_master(self) -> bool:
        """Whether this broker is a slave that appends the bytes that its master sends."""
        return self.master is not None and self.master.is_followed

    @property
    def stranded(self) -> int:
        """Return the number of slaves that need bytes which this master has deleted."""
        return sum(slave.is_stranded for slave in self.slaves)

    @property
    def known_slaves(self) -> list[SlaveStatistics]:
        """Return the connections whose slave has said where its log ends."""
        return [slave for slave in self.slaves if slave.requested is not None]

    @property
    def served_slaves(self) -> list[SlaveStatistics]:
        """
        Return the connections whose slave has said where its log ends, and gets the bytes that it
        lacks.
        """
        return [slave for slave in self.known_slaves if not slave.is_stranded]

    def slaves_info(self) -> list[dict[str, Any]]:
        """Return the facts of the slaves that `rmqha-admin` shows."""
        return [slave.info() for slave in self.known_slaves[:_MOST_SLAVES]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatistics(ReplicationStatistics):
    """
    The facts of a broker in controller mode.

    :ivar broker_id: the id that the controllers gave this broker; None: they have not given one
        yet.
    :ivar epoch: the newest epoch in the log; -1: the log has none.
    :ivar leads: whether this broker is the elected master.
    :ivar has_lease: whether no other broker can have been elected.
    :ivar elections: number of role changes since the start.
    :ivar in_sync: ids of the brokers in the sync state set that the controllers have; empty: this
        broker does not lead.
    :ivar is_in_sync: whether the controllers had this broker in the set when they were asked last.
    :ivar confirm_offset: physical offset up to which the log may be read.
    :ivar unconfirmed: bytes of the log that may not be read yet.
    :ivar stranded_ids: ids of the slaves that need bytes which this master has deleted.
    """

    broker_id: int | None = None
    epoch: int = -1
    leads: bool = False
    has_lease: bool = False
    elections: int = 0
    in_sync: Sequence[int] = ()
    is_in_sync: bool = False
    confirm_offset: int = 0
    unconfirmed: int = 0
    stranded_ids: Sequence[int] = ()

    @property
    def stranded(self) -> int:
        """
        See `ReplicationStatistics.stranded`. A stranded slave counts even while it is between two
        connections.
        """
        return len(self.stranded_ids)
