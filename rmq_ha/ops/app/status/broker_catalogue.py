"""The metrics of a broker that only rmq-ha has, except the metrics of replication."""

from rmq_ha.ops.app.status.samples import MetricDescription, MetricKind

OURS = ("cluster", "broker", "broker_id")

_GAUGE, _COUNTER, _HISTOGRAM = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM


def own_metric(
    name: str, kind: MetricKind, unit: str, meaning: str, *labels: str
) -> MetricDescription:
    """Describe a metric of rmq-ha, which has the labels of a broker and its own ones."""
    return MetricDescription(f"rmqha_{name}", kind, unit, (*OURS, *labels), meaning)


BROKER = (
    own_metric(
        "broker_info",
        _GAUGE,
        "1",
        "Shows the broker's role and version, as labels",
        "role",
        "version",
    ),
    own_metric("broker_ready", _GAUGE, "0 or 1", "Clients can be served, as /healthz says"),
    own_metric(
        "broker_uptime_seconds", _GAUGE, "seconds", "Measures the time since the broker was built"
    ),
    own_metric(
        "damaged_messages_total",
        _COUNTER,
        "messages",
        "Counts messages that pulls and queries left out, because the log has no whole record "
        "of them",
    ),
    own_metric(
        "mended_units_total",
        _COUNTER,
        "messages",
        "Counts damaged places of queues that were mended from the log",
    ),
    own_metric(
        "forced_deletions_total",
        _COUNTER,
        "files",
        "Counts files of the commit log that were deleted before they expired, because the "
        "disk was too full",
    ),
    own_metric(
        "set_aside_bytes_total",
        _COUNTER,
        "bytes",
        "Counts bytes of the log that were moved into the folder setaside",
    ),
    own_metric(
        "set_aside_messages_total",
        _COUNTER,
        "messages",
        "Counts whole messages in the bytes that were set aside",
    ),
    own_metric("store_writable", _GAUGE, "0 or 1", "The store takes messages; 0 on a slave"),
    own_metric(
        "log_offset_bytes",
        _GAUGE,
        "bytes",
        "Shows offsets of the commit log: min, max, flushed, dispatched",
        "which",
    ),
    own_metric("queues", _GAUGE, "queues", "Shows how many consume queues are in memory"),
    own_metric(
        "disk_used_ratio",
        _GAUGE,
        "0 to 1",
        "Shows how full the disk is; above 0.9 the store takes no messages",
        "of",
    ),
    own_metric(
        "put_seconds",
        _HISTOGRAM,
        "seconds",
        "Measures the time from the append of a message to its answer, with the waits for "
        "disk and slave",
    ),
    own_metric(
        "replica_wait_seconds",
        _HISTOGRAM,
        "seconds",
        "Measures how long a put waited for a slave's acknowledgement; one value for each "
        "batch that waited",
    ),
    own_metric(
        "flush_wait_seconds",
        _HISTOGRAM,
        "seconds",
        "Measures how long a put waited for the disk (SYNC_FLUSH); one value for each batch "
        "that waited",
    ),
    own_metric(
        "puts_waiting",
        _GAUGE,
        "messages",
        "Shows how many messages are stored and not answered yet",
    ),
    own_metric(
        "degraded_acks_total",
        _COUNTER,
        "messages",
        "Counts messages that are stored less safely than configured, and answered with this "
        "reason instead of SEND_OK",
        "reason",
    ),
    own_metric(
        "refused_puts_total",
        _COUNTER,
        "messages",
        "Counts messages that were not stored, by reason",
        "reason",
    ),
    own_metric(
        "duplicate_sends_total",
        _COUNTER,
        "messages",
        "Counts messages that were sent again within duplicateWindowMillis, and not stored again",
    ),
    own_metric(
        "sends_total",
        _COUNTER,
        "sends",
        "Counts sends by the maker of runs (native or pure) and by way: `run`, or why they were "
        "handled one by one: `unusual`, `queue`, `policy`, `repeated`, `limits`",
        "maker",
        "way",
    ),
    own_metric(
        "kernel_faults_total",
        _COUNTER,
        "calls",
        "Counts calls in which the kernel failed because of a fault of its own, by its function; "
        "the standard error of the broker says where",
        "function",
    ),
    own_metric(
        "negative_answers_total",
        _COUNTER,
        "answers",
        "Counts answers other than SUCCESS, by code; refusals of access control are SYSTEM_ERROR",
        "code",
    ),
    own_metric(
        "acl_refused_total",
        _COUNTER,
        "requests",
        "Counts requests that access control refused; the reason is a key, or names the fault",
        "reason",
    ),
    own_metric(
        "acl_odd_times_total",
        _COUNTER,
        "requests",
        "Counts requests whose signed time is too far from this server's clock; "
        "aclRequiresSignedTime=false lets them pass",
    ),
    own_metric(
        "acl_previous_secret_total",
        _COUNTER,
        "requests",
        "Counts requests signed with the previousSecretKey of their account; while it grows, "
        "a client still needs that key",
    ),
    own_metric(
        "refused_offsets_total",
        _COUNTER,
        "commits",
        "Counts offsets of clients that no queue has: no such queue, below 0, or beyond its "
        "end (checkCommittedOffsets)",
    ),
    own_metric(
        "forwarded_requests_total",
        _COUNTER,
        "requests",
        "Counts requests that this broker, a former master, passed on to the new master "
        "(forwardAfterHandoverSeconds)",
    ),
    own_metric(
        "forwarding_connections",
        _GAUGE,
        "connections",
        "Shows for how many connections of clients this broker passes requests on, or has them "
        "wait for the new master",
    ),
    own_metric(
        "refused_properties_total",
        _COUNTER,
        "messages",
        "Counts sends that were refused because of a property of RocketMQ 5 without effect "
        "here (refuseUnservedProperties), by the name of the property",
        "reason",
    ),
    own_metric(
        "protocol_violations_total",
        _COUNTER,
        "connections",
        "Counts connections that this server closed because of the bytes that the peer sent, "
        "refusals of TLS among them",
    ),
    own_metric(
        "oversized_requests_total",
        _COUNTER,
        "requests",
        "Counts requests that were refused because they ask for too much at once, by the key "
        "that limits them",
        "reason",
    ),
    own_metric(
        "put_off_requests_total",
        _COUNTER,
        "turns",
        "Counts turns in which the requests of a connection had to wait for the next turn "
        "(turnMillis)",
    ),
    own_metric(
        "held_back_connections_total",
        _COUNTER,
        "waits",
        "Counts waits of connections whose address or account is above its quota, by the key "
        "that limits it",
        "reason",
    ),
    own_metric(
        "grpc_clients",
        _GAUGE,
        "clients",
        "Shows how many clients of RocketMQ 5 sent settings and were heard of since, by language",
        "language",
    ),
    own_metric(
        "grpc_answers_total",
        _COUNTER,
        "answers",
        "Counts answers to clients of RocketMQ 5, by method and code",
        "method",
        "code",
    ),
    own_metric(
        "grpc_closed_total",
        _COUNTER,
        "connections",
        "Counts connections of gRPC clients that were closed because of a limit, by the limit",
        "reason",
    ),
    own_metric(
        "not_created_total",
        _COUNTER,
        "requests",
        "Counts requests of clients that named a topic or group for which there is no room "
        "(maxTopics, maxGroups)",
        "reason",
    ),
    own_metric(
        "unfinished_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes of incomplete frames are in memory",
    ),
    own_metric(
        "put_off_frames_total",
        _COUNTER,
        "frames",
        "Counts frames that had to wait until older frames of their address were complete "
        "(maxUnfinishedBytesPerIp)",
    ),
    own_metric(
        "dropped_frames_total",
        _COUNTER,
        "connections",
        "Counts connections that were closed because of an incomplete frame, by the key that "
        "limits it",
        "reason",
    ),
    own_metric(
        "connections",
        _GAUGE,
        "connections",
        "Shows how many connections are open, by port: main, fast, grpc, replication",
        "port",
    ),
    own_metric(
        "connections_accepted_total",
        _COUNTER,
        "connections",
        "Counts accepted connections, by port",
        "port",
    ),
    own_metric(
        "held_pulls", _GAUGE, "requests", "Shows how many pulls wait for a message (long polling)"
    ),
    own_metric(
        "held_pops",
        _GAUGE,
        "requests",
        "Shows how many requests wait for messages to pop, with `popEnable=true`",
    ),
    own_metric(
        "pop_messages_out",
        _GAUGE,
        "messages",
        "Shows how many popped messages are out with consumers, not acknowledged and not due",
    ),
    own_metric("pop_messages_total", _COUNTER, "messages", "Counts messages that pops handed out"),
    own_metric("pop_acks_total", _COUNTER, "messages", "Counts acknowledged messages"),
    own_metric(
        "pop_changes_total",
        _COUNTER,
        "messages",
        "Counts messages whose invisible time a consumer changed",
    ),
    own_metric(
        "pop_retries_total",
        _COUNTER,
        "messages",
        "Counts messages that came due without an acknowledgement and were copied into a retry "
        "topic",
    ),
    own_metric(
        "pop_dead_letters_total",
        _COUNTER,
        "messages",
        "Counts messages that became dead letters, as no consumer acknowledged them after "
        "retryMaxTimes retries (popBrokerDlq)",
    ),
    own_metric(
        "pop_dropped_total",
        _COUNTER,
        "messages",
        "Counts messages that were out when the log deleted them, so that nobody gets them again",
    ),
    own_metric(
        "pop_stale_acks_total",
        _COUNTER,
        "requests",
        "Counts acknowledgements and changes of messages that were not out with that consumer any "
        "more",
    ),
    own_metric(
        "pop_group_messages_out",
        _GAUGE,
        "messages",
        "Shows how many popped messages of a topic and its retry topics are out with a group",
        "consumer_group",
        "topic",
    ),
    own_metric(
        "pop_group_oldest_seconds",
        _GAUGE,
        "seconds",
        "Shows since when the first message that the group has not acknowledged is out; a consumer "
        "that prolongs its time begins anew",
        "consumer_group",
        "topic",
    ),
    own_metric(
        "pop_group_redeliveries_total",
        _COUNTER,
        "messages",
        "Counts messages that were handed out to the group again",
        "consumer_group",
        "topic",
    ),
    own_metric(
        "pop_group_retries_total",
        _COUNTER,
        "messages",
        "Counts messages that came due without an acknowledgement of the group and were copied "
        "into its retry topic",
        "consumer_group",
        "topic",
    ),
    own_metric(
        "pop_group_dead_letters_total",
        _COUNTER,
        "messages",
        "Counts messages that became dead letters of the group",
        "consumer_group",
        "topic",
    ),
    own_metric(
        "pop_journal_behind_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes of the POP journal a start has to read",
    ),
    own_metric(
        "delayed_messages",
        _GAUGE,
        "messages",
        "Shows how many messages wait for their time, for each level that ever had a message",
        "level",
    ),
    own_metric(
        "tier_size_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes of the log the object store has, with tiered storage",
    ),
    own_metric(
        "tier_waiting_bytes",
        _GAUGE,
        "bytes",
        "Shows how many bytes of sealed log files the object store does not have yet",
    ),
    own_metric(
        "tier_failing",
        _GAUGE,
        "0 or 1",
        "Shows whether the last attempt to reach the object store failed",
    ),
    own_metric(
        "tier_read_bytes_total",
        _COUNTER,
        "bytes",
        "Counts bytes that were read from the object store for consumers",
    ),
    own_metric(
        "timer_messages",
        _GAUGE,
        "messages",
        "Shows how many timer messages wait, with `timerWheelEnable=true`; 0 while a start still "
        "looks for them",
    ),
    own_metric(
        "timer_overdue_seconds",
        _GAUGE,
        "seconds",
        "Shows how long the timer message that is due first is due; it is below 0.1 while the "
        "master keeps up",
    ),
    own_metric(
        "half_messages",
        _GAUGE,
        "messages",
        "Shows how many half messages are open: their producers have not ended the transactions; a "
        "master shows it from its first check of transactions on",
    ),
    own_metric(
        "half_message_age_seconds",
        _GAUGE,
        "seconds",
        "Shows how long ago the producer made the oldest open half message",
    ),
    own_metric(
        "registration_failures_total",
        _COUNTER,
        "attempts",
        "Counts attempts to register that a name server did not accept",
    ),
    own_metric(
        "series_left_out",
        _GAUGE,
        "series",
        "Shows how many topics, or pairs of topic and group, have no series because of "
        "metricsSeriesLimit",
        "of",
    ),
)
