"""The metrics of replication: of a pair, of a DLedger group, and of controller mode."""

from rmq_ha.ops.app.status.broker_catalogue import own_metric
from rmq_ha.ops.app.status.samples import MetricKind

_GAUGE, _COUNTER = MetricKind.GAUGE, MetricKind.COUNTER

PAIR = (
    own_metric(
        "replication_slaves", _GAUGE, "slaves", "Shows how many connected slaves can be served"
    ),
    own_metric(
        "replication_lag_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes of this master's log the slave has not acknowledged",
        "slave",
    ),
    own_metric(
        "replication_lag_seconds",
        _GAUGE,
        "seconds",
        "Measures for how long the slave has lacked messages; 0 when it has all",
        "slave",
    ),
    own_metric(
        "replication_acked_bytes",
        _GAUGE,
        "bytes",
        "Shows the offset that the slave acknowledged",
        "slave",
    ),
    own_metric(
        "replication_unacknowledged_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes no slave has acknowledged since the start; it grows while there "
        "is no slave",
    ),
    own_metric(
        "replication_unacknowledged_seconds",
        _GAUGE,
        "seconds",
        "Measures for how long the log has had bytes that no slave acknowledged; absent before the "
        "first slave connects",
    ),
    own_metric(
        "replication_diverged_total",
        _COUNTER,
        "connections",
        "Counts slaves of rmq-ha that connected with another end of the log, or with more of "
        "it, than this master has",
    ),
    own_metric(
        "replication_within_record_total",
        _COUNTER,
        "connections",
        "Counts slaves that cannot compare logs, and whose log ended within a record that "
        "they were not sent",
    ),
    own_metric(
        "replication_refused_total",
        _COUNTER,
        "connections",
        "Counts connections of hosts that are not in haAllowedSlaves, or do not know haSecret",
    ),
    own_metric(
        "replication_turned_away_total",
        _COUNTER,
        "connections",
        "Counts connections that were closed because the replication port had more than "
        "haMaxSlaves",
    ),
    own_metric(
        "replication_refused_ahead",
        _GAUGE,
        "machines",
        "Shows how many machines have a Java slave with more bytes than this master; they are "
        "refused until they come with fewer",
    ),
    own_metric(
        "replication_stranded",
        _GAUGE,
        "slaves",
        "Shows how many slaves cannot follow, because their log ends before this master's "
        "first file begins",
    ),
    own_metric(
        "slave_stranded",
        _GAUGE,
        "0 or 1",
        "This slave cannot follow, because its master has deleted the messages that come next",
    ),
    own_metric(
        "slave_diverged",
        _GAUGE,
        "0 or 1",
        "This slave stays away from its master, because the two logs differ",
    ),
    own_metric(
        "slave_log_unreadable",
        _GAUGE,
        "0 or 1",
        "This slave's log has bytes that are no record, so it acknowledges nothing",
    ),
    own_metric("slave_following", _GAUGE, "0 or 1", "This slave gets its master's log"),
    own_metric(
        "slave_alone_seconds",
        _GAUGE,
        "seconds",
        "Measures for how long this slave has followed no master",
    ),
    own_metric(
        "slave_reported_bytes",
        _GAUGE,
        "bytes",
        "Shows the offset that this slave reported to its master last",
    ),
    own_metric(
        "slave_master_silence_seconds",
        _GAUGE,
        "seconds",
        "Measures the time since the master's last sign of life",
    ),
    own_metric(
        "slave_sync_age_seconds",
        _GAUGE,
        "seconds",
        "Measures the time since the table was last copied from the master, or since the "
        "start if it never was",
        "table",
    ),
    own_metric(
        "slave_sync_failures_total",
        _COUNTER,
        "copies",
        "Counts copies of the table that failed",
        "table",
    ),
    own_metric(
        "slave_sync_streamed",
        _GAUGE,
        "0 or 1",
        "The master sends its tables as they change, and a copy is a write of the received table",
    ),
)

DLEDGER = (
    own_metric(
        "dledger_info",
        _GAUGE,
        "1",
        "Shows this member, its role, and the leader that it knows, as labels",
        "group",
        "member",
        "role",
        "leader",
    ),
    own_metric("dledger_term", _GAUGE, "terms", "Shows the current term"),
    own_metric("dledger_is_leader", _GAUGE, "0 or 1", "This member leads"),
    own_metric("dledger_has_leader", _GAUGE, "0 or 1", "This member knows a leader"),
    own_metric(
        "dledger_index",
        _GAUGE,
        "entries",
        "Shows indexes of the ledger: begin, end, committed; -1 if there is none",
        "which",
    ),
    own_metric(
        "dledger_lag_entries",
        _GAUGE,
        "entries",
        "Shows how many entries of the leader's ledger the member has not acknowledged; only "
        "the leader knows it",
        "member",
    ),
    own_metric(
        "dledger_lag_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes of the leader's ledger the member has not acknowledged; only "
        "the leader knows it",
        "member",
    ),
    own_metric(
        "dledger_lag_seconds",
        _GAUGE,
        "seconds",
        "Measures for how long the member has lacked entries without acknowledging any; only "
        "the leader knows it",
        "member",
    ),
    own_metric(
        "dledger_takes_entries",
        _GAUGE,
        "0 or 1",
        "This member's ledger takes entries; 0 if its disk is full or has failed",
    ),
    own_metric(
        "dledger_stalled_seconds",
        _GAUGE,
        "seconds",
        "Measures for how long messages have waited at this leader while none was committed",
    ),
    own_metric(
        "dledger_elections_total",
        _COUNTER,
        "elections",
        "Counts the times that this member lost its role or its leader",
    ),
    own_metric(
        "dledger_diverged",
        _GAUGE,
        "0 or 1",
        "The leader has another entry in the place of a committed entry of this member",
    ),
    own_metric(
        "dledger_refused_total",
        _COUNTER,
        "requests",
        "Counts requests that came from another address than that of the member which they name",
    ),
    own_metric(
        "dledger_pending_appends",
        _GAUGE,
        "batches",
        "Shows how many batches are stored here and wait for a quorum",
    ),
)


CONTROLLED = (
    own_metric("controller_epoch", _GAUGE, "epochs", "Shows the newest epoch in this broker's log"),
    own_metric("controller_is_master", _GAUGE, "0 or 1", "This broker leads its set"),
    own_metric(
        "controller_has_lease",
        _GAUGE,
        "0 or 1",
        "This broker may take messages, because no other broker can have been elected yet",
    ),
    own_metric(
        "controller_in_sync",
        _GAUGE,
        "brokers",
        "Shows how many brokers are in sync, this one included; only the master knows it",
    ),
    own_metric(
        "controller_unconfirmed_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes of the log may not be read yet",
    ),
    own_metric(
        "controller_role_changes_total",
        _COUNTER,
        "changes",
        "Counts the roles that controllers gave to this broker",
    ),
)
