"""
All metrics: only this module names them; docs/reference/metrics.md lists the same.

They have the names, labels and units of RocketMQ 5's brokers and of rocketmq-exporter where those
have such a metric; rmq-ha's own begin with `rmqha_`.
"""

from rmq_ha.ops.app.status.exporter import EXPORTER
from rmq_ha.ops.app.status.samples import Kind, MetricDescription

OURS = ("cluster", "broker", "broker_id")
FIVE = ("cluster", "node_type", "node_id")
STORAGE = (*FIVE, "storage_type", "storage_medium")
PROCESS = ("server",)

_GAUGE, _COUNTER, _HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM


def _own_metric(name: str, kind: Kind, unit: str, meaning: str, *labels: str) -> MetricDescription:
    return MetricDescription(f"rmqha_{name}", kind, unit, (*OURS, *labels), meaning)


_BROKER = (
    _own_metric("broker_info", _GAUGE, "1", "Role and version, as labels", "role", "version"),
    _own_metric("broker_ready", _GAUGE, "0 or 1", "What /healthz says: clients can be served"),
    _own_metric("broker_uptime_seconds", _GAUGE, "seconds", "Since the broker was built"),
    _own_metric(
        "damaged_messages_total",
        _COUNTER,
        "messages",
        "That pulls and queries left out, as the log has no whole record of them",
    ),
    _own_metric(
        "mended_units_total", _COUNTER, "messages", "Damaged places of queues, mended from the log"
    ),
    _own_metric(
        "forced_deletions_total",
        _COUNTER,
        "files",
        "Of the commit log, before they expired, because the disk was too full",
    ),
    _own_metric(
        "set_aside_bytes_total", _COUNTER, "bytes", "Of the log, moved into the folder setaside"
    ),
    _own_metric("set_aside_messages_total", _COUNTER, "messages", "Whole ones in them"),
    _own_metric("store_writable", _GAUGE, "0 or 1", "Puts are taken; 0 on a slave"),
    _own_metric(
        "log_offset_bytes",
        _GAUGE,
        "bytes",
        "Offsets of the commit log: min, max, flushed, dispatched",
        "which",
    ),
    _own_metric("queues", _GAUGE, "queues", "Consume queues in memory"),
    _own_metric(
        "disk_used_ratio", _GAUGE, "0 to 1", "How full the disk is; above 0.9 puts stop", "of"
    ),
    _own_metric(
        "put_seconds",
        _HISTOGRAM,
        "seconds",
        "From the append of a message to its answer: disk and slave waited for",
    ),
    _own_metric(
        "replica_wait_seconds",
        _HISTOGRAM,
        "seconds",
        "Of it, waiting for a slave's acknowledgement; by batch that waited",
    ),
    _own_metric(
        "flush_wait_seconds",
        _HISTOGRAM,
        "seconds",
        "Of it, waiting for the disk (SYNC_FLUSH); by batch that waited",
    ),
    _own_metric("puts_waiting", _GAUGE, "messages", "Stored, not yet answered"),
    _own_metric(
        "degraded_acks_total",
        _COUNTER,
        "messages",
        "Stored, but less safely than configured: answered with this reason instead of SEND_OK",
        "reason",
    ),
    _own_metric("refused_puts_total", _COUNTER, "messages", "Not stored, by reason", "reason"),
    _own_metric(
        "duplicate_sends_total",
        _COUNTER,
        "messages",
        "Sent again, and not stored again, within duplicateWindowMillis",
    ),
    _own_metric(
        "negative_answers_total",
        _COUNTER,
        "answers",
        "Answers other than SUCCESS by code; refusals of ACL are SYSTEM_ERROR",
        "code",
    ),
    _own_metric(
        "acl_refused_total",
        _COUNTER,
        "requests",
        "That access control refused; the reason is a key, or what was wrong",
        "reason",
    ),
    _own_metric(
        "acl_odd_times_total",
        _COUNTER,
        "requests",
        "With a signed time that is too far from ours; let pass while aclRequiresSignedTime=false",
    ),
    _own_metric(
        "acl_previous_secret_total",
        _COUNTER,
        "requests",
        "Signed with the previousSecretKey of their account; while it grows, somebody needs it",
    ),
    _own_metric(
        "refused_offsets_total",
        _COUNTER,
        "commits",
        "Offsets of clients that no queue has: no such queue, below 0, or beyond its end "
        "(checkCommittedOffsets)",
    ),
    _own_metric(
        "refused_properties_total",
        _COUNTER,
        "messages",
        "Sends that were refused because of a property of RocketMQ 5 that nothing here acts on "
        "(refuseUnservedProperties), by the name of the property",
        "reason",
    ),
    _own_metric(
        "protocol_violations_total",
        _COUNTER,
        "connections",
        "Closed by us because of what the peer sent; refusals of TLS are here",
    ),
    _own_metric(
        "oversized_requests_total",
        _COUNTER,
        "requests",
        "Refused, because they ask for too much at once, by the key that says so",
        "reason",
    ),
    _own_metric(
        "put_off_requests_total",
        _COUNTER,
        "turns",
        "In which a connection's requests had to wait for the next one (turnMillis)",
    ),
    _own_metric(
        "held_back_connections_total",
        _COUNTER,
        "waits",
        "Of a connection whose address or account is above its quota, by the key that says so",
        "reason",
    ),
    _own_metric(
        "not_created_total",
        _COUNTER,
        "requests",
        "Of clients that named a topic or group for which there is no room (maxTopics, maxGroups)",
        "reason",
    ),
    _own_metric("unfinished_bytes", _GAUGE, "bytes", "Of frames that are not whole yet"),
    _own_metric(
        "put_off_frames_total",
        _COUNTER,
        "frames",
        "That were not read on until older ones of their address were whole "
        "(maxUnfinishedBytesPerIp)",
    ),
    _own_metric(
        "dropped_frames_total",
        _COUNTER,
        "connections",
        "Closed because of a frame that was not whole, by the key that says so",
        "reason",
    ),
    _own_metric(
        "connections", _GAUGE, "connections", "Open, by port: main, fast, replication", "port"
    ),
    _own_metric("connections_accepted_total", _COUNTER, "connections", "Accepted, by port", "port"),
    _own_metric("held_pulls", _GAUGE, "requests", "Pulls that wait for a message (long polling)"),
    _own_metric(
        "delayed_messages",
        _GAUGE,
        "messages",
        "Waiting for their time, by level: each level that ever had a message",
        "level",
    ),
    _own_metric(
        "registration_failures_total",
        _COUNTER,
        "attempts",
        "A name server did not take the registration",
    ),
    _own_metric(
        "series_left_out",
        _GAUGE,
        "series",
        "Topics, or pairs of topic and group, beyond metricsSeriesLimit",
        "of",
    ),
)

_REPLICATION = (
    _own_metric("replication_slaves", _GAUGE, "slaves", "Connected slaves that can be served"),
    _own_metric("replication_lag_bytes", _GAUGE, "bytes", "Of our log, not acknowledged", "slave"),
    _own_metric(
        "replication_lag_seconds",
        _GAUGE,
        "seconds",
        "For how long there has been something that this slave lacks; 0 when it has all",
        "slave",
    ),
    _own_metric("replication_acked_bytes", _GAUGE, "bytes", "Offset that it acknowledged", "slave"),
    _own_metric(
        "replication_unacknowledged_bytes",
        _GAUGE,
        "bytes",
        "What no slave of this run ever acknowledged; grows while there is none",
    ),
    _own_metric(
        "replication_unacknowledged_seconds",
        _GAUGE,
        "seconds",
        "For how long there has been such; absent before the first slave",
    ),
    _own_metric(
        "replication_diverged_total",
        _COUNTER,
        "connections",
        "Slaves of ours that came with another log at its end, or more of it, than we have",
    ),
    _own_metric(
        "replication_within_record_total",
        _COUNTER,
        "connections",
        "Slaves that cannot compare, and came with an end within a record that they were not sent",
    ),
    _own_metric(
        "replication_refused_total",
        _COUNTER,
        "connections",
        "Of hosts that are not in haAllowedSlaves, or do not know haSecret",
    ),
    _own_metric(
        "replication_turned_away_total",
        _COUNTER,
        "connections",
        "That had to leave the replication port, as there were more than haMaxSlaves",
    ),
    _own_metric(
        "replication_refused_ahead",
        _GAUGE,
        "machines",
        "Whose Java slave came with more than we had; refused until it comes with less",
    ),
    _own_metric(
        "replication_stranded",
        _GAUGE,
        "slaves",
        "Whose log ends before this master's first file begins, so that they cannot follow",
    ),
    _own_metric(
        "slave_stranded",
        _GAUGE,
        "0 or 1",
        "This slave cannot follow: its master has deleted what comes next",
    ),
    _own_metric(
        "slave_diverged",
        _GAUGE,
        "0 or 1",
        "This slave stays away from its master: the two logs are not the same",
    ),
    _own_metric(
        "slave_log_unreadable",
        _GAUGE,
        "0 or 1",
        "This slave's log holds what is no record, and acknowledges nothing",
    ),
    _own_metric("slave_following", _GAUGE, "0 or 1", "This slave gets its master's log"),
    _own_metric("slave_alone_seconds", _GAUGE, "seconds", "For how long this slave follows nobody"),
    _own_metric("slave_reported_bytes", _GAUGE, "bytes", "Offset that it told its master last"),
    _own_metric("slave_master_silence_seconds", _GAUGE, "seconds", "Since the master was heard"),
    _own_metric(
        "slave_sync_age_seconds",
        _GAUGE,
        "seconds",
        "Since the last good copy of the master's table; of none: since the start",
        "table",
    ),
    _own_metric("slave_sync_failures_total", _COUNTER, "copies", "Copies that failed", "table"),
    _own_metric(
        "slave_sync_streamed",
        _GAUGE,
        "0 or 1",
        "The master sends its tables as they change; a copy is a write of what came",
    ),
)

_DLEDGER = (
    _own_metric(
        "dledger_info",
        _GAUGE,
        "1",
        "Who this member is, what it is, and whom it takes for the leader",
        "group",
        "member",
        "role",
        "leader",
    ),
    _own_metric("dledger_term", _GAUGE, "terms", "The current one"),
    _own_metric("dledger_is_leader", _GAUGE, "0 or 1", "This member leads"),
    _own_metric("dledger_has_leader", _GAUGE, "0 or 1", "This member knows a leader"),
    _own_metric(
        "dledger_index",
        _GAUGE,
        "entries",
        "Of the ledger: begin, end, committed; -1: none",
        "which",
    ),
    _own_metric(
        "dledger_lag_entries",
        _GAUGE,
        "entries",
        "Of the leader's ledger, not acknowledged; told by the leader",
        "member",
    ),
    _own_metric("dledger_lag_bytes", _GAUGE, "bytes", "The same in bytes", "member"),
    _own_metric(
        "dledger_lag_seconds",
        _GAUGE,
        "seconds",
        "For how long a member has lacked entries and has acknowledged none; told by the leader",
        "member",
    ),
    _own_metric(
        "dledger_takes_entries",
        _GAUGE,
        "0 or 1",
        "This member's ledger takes entries; 0: its disk is full or has failed",
    ),
    _own_metric(
        "dledger_stalled_seconds",
        _GAUGE,
        "seconds",
        "For how long messages wait at this leader and none was committed",
    ),
    _own_metric(
        "dledger_elections_total",
        _COUNTER,
        "elections",
        "Times that this member lost its role or its leader",
    ),
    _own_metric(
        "dledger_diverged",
        _GAUGE,
        "0 or 1",
        "The leader has another entry where this member has a committed one",
    ),
    _own_metric(
        "dledger_refused_total",
        _COUNTER,
        "requests",
        "That came from another address than the member's that they name",
    ),
    _own_metric("dledger_pending_appends", _GAUGE, "batches", "Stored here, waiting for a quorum"),
)


_CONTROLLED = (
    _own_metric("controller_epoch", _GAUGE, "epochs", "The newest that this log has"),
    _own_metric("controller_is_master", _GAUGE, "0 or 1", "This broker leads its set"),
    _own_metric(
        "controller_has_lease", _GAUGE, "0 or 1", "It may accept: no other can be elected yet"
    ),
    _own_metric(
        "controller_in_sync", _GAUGE, "brokers", "In sync, with this one; told by the master"
    ),
    _own_metric(
        "controller_unconfirmed_bytes", _GAUGE, "bytes", "Of the log that may not be read yet"
    ),
    _own_metric(
        "controller_role_changes_total", _COUNTER, "changes", "Roles that this broker was given"
    ),
)


def _five(name: str, kind: Kind, unit: str, meaning: str, *labels: str) -> MetricDescription:
    return MetricDescription(f"rocketmq_{name}", kind, unit, (*FIVE, *labels), meaning)


_ROCKETMQ_5 = (
    _five("broker_permission", _GAUGE, "2: write, 4: read, 6: both", "brokerPermission"),
    _five("messages_in_total", _COUNTER, "messages", "Put, by topic", "topic"),
    _five("throughput_in_total", _COUNTER, "bytes", "Put, by topic", "topic"),
    _five(
        "messages_out_total",
        _COUNTER,
        "messages",
        "Read, by topic and group",
        "topic",
        "consumer_group",
    ),
    _five(
        "throughput_out_total",
        _COUNTER,
        "bytes",
        "Read, by topic and group",
        "topic",
        "consumer_group",
    ),
    _five(
        "consumer_lag_messages",
        _GAUGE,
        "messages",
        "Not yet committed, on the queues where the group committed before",
        "topic",
        "consumer_group",
    ),
    _five("producer_connections", _GAUGE, "clients", "In producer groups", "language", "version"),
    _five(
        "consumer_connections",
        _GAUGE,
        "clients",
        "In consumer groups",
        "language",
        "version",
        "consume_mode",
    ),
    _five("topic_number", _GAUGE, "topics", "Configured"),
    _five("consumer_group_number", _GAUGE, "groups", "Configured"),
    MetricDescription(
        "rocketmq_storage_size", _GAUGE, "bytes", STORAGE, "The commit log, min to max"
    ),
    MetricDescription(
        "rocketmq_storage_flush_behind_bytes", _GAUGE, "bytes", STORAGE, "Not yet on this disk"
    ),
    MetricDescription(
        "rocketmq_storage_dispatch_behind_bytes",
        _GAUGE,
        "bytes",
        STORAGE,
        "Not yet in queues and index",
    ),
    MetricDescription(
        "rocketmq_storage_message_reserve_time",
        _GAUGE,
        "milliseconds",
        STORAGE,
        "Age of the oldest message",
    ),
)

_PROCESS = (
    MetricDescription(
        "rmqha_build_info",
        _GAUGE,
        "1",
        (*PROCESS, "version", "python", "twisted"),
        "Versions of rmq-ha and of what it stands on",
    ),
    MetricDescription(
        "rmqha_certificate_end_seconds",
        _GAUGE,
        "seconds since 1970",
        (*PROCESS, "setting", "who"),
        "When a certificate ends that this server shows or believes",
    ),
    MetricDescription(
        "rmqha_reactor_lag_seconds",
        _HISTOGRAM,
        "seconds",
        PROCESS,
        "How late a timer ran, looked at twice a second: what everything here waits",
    ),
    MetricDescription(
        "rmqha_reactor_lag_max_seconds", _GAUGE, "seconds", PROCESS, "The worst of the last minute"
    ),
    MetricDescription(
        "rmqha_reactor_delayed_calls", _GAUGE, "timers", PROCESS, "Timers that are armed"
    ),
    MetricDescription(
        "rmqha_open_connections", _GAUGE, "connections", PROCESS, "That all ports have taken"
    ),
    MetricDescription(
        "rmqha_connection_places",
        _GAUGE,
        "connections",
        PROCESS,
        "How many all ports take together: maxConnections, or what the open files leave",
    ),
    MetricDescription(
        "rmqha_refused_connections_total",
        _COUNTER,
        "connections",
        (*PROCESS, "reason"),
        "Closed as soon as they came; the reason is the key that is exceeded",
    ),
)

_NAMESRV = (
    MetricDescription("rmqha_namesrv_brokers", _GAUGE, "brokers", PROCESS, "Registered addresses"),
    MetricDescription("rmqha_namesrv_topics", _GAUGE, "topics", PROCESS, "Known topics"),
    MetricDescription(
        "rmqha_namesrv_refused_total",
        _COUNTER,
        "requests",
        PROCESS,
        "For a broker, from elsewhere than namesrvAllowedBrokers",
    ),
    MetricDescription(
        "rmqha_namesrv_acl_refused_total",
        _COUNTER,
        "requests",
        (*PROCESS, "reason"),
        "That access control refused; the reason is a key, or what was wrong",
    ),
    MetricDescription(
        "rmqha_namesrv_acl_odd_times_total",
        _COUNTER,
        "requests",
        PROCESS,
        "With a signed time that is too far from ours; let pass while aclRequiresSignedTime=false",
    ),
    MetricDescription(
        "rmqha_namesrv_acl_previous_secret_total",
        _COUNTER,
        "requests",
        PROCESS,
        "Signed with the previousSecretKey of their account; while it grows, somebody needs it",
    ),
    MetricDescription("rmqha_namesrv_connections", _GAUGE, "connections", PROCESS, "Open"),
    MetricDescription(
        "rmqha_namesrv_refused_registrations_total",
        _COUNTER,
        "requests",
        PROCESS,
        "Of brokers, because they were too large or could not be read",
    ),
    MetricDescription(
        "rmqha_namesrv_takeovers_total",
        _COUNTER,
        "registrations",
        PROCESS,
        "That took brokerName and brokerId from a connected broker; elections do not count",
    ),
    MetricDescription(
        "rmqha_namesrv_rivals",
        _GAUGE,
        "brokers",
        PROCESS,
        "That claimed within 120 s a brokerName and brokerId which another broker holds",
    ),
    MetricDescription(
        "rmqha_namesrv_dropped_frames_total",
        _COUNTER,
        "connections",
        (*PROCESS, "reason"),
        "Closed because of a frame that was not whole, by the key that says so",
    ),
    MetricDescription(
        "rmqha_namesrv_registration_age_seconds",
        _GAUGE,
        "seconds",
        (*PROCESS, "address"),
        "Since a broker registered last; it is forgotten after 120",
    ),
)

CATALOGUE: dict[str, MetricDescription] = {
    item.name: item
    for item in (
        *_BROKER,
        *_REPLICATION,
        *_DLEDGER,
        *_CONTROLLED,
        *_ROCKETMQ_5,
        *EXPORTER,
        *_PROCESS,
        *_NAMESRV,
    )
}
