"""
The catalogue of all metrics. Only metrics in it can be exported, and docs/reference/metrics.md
lists the same.

A metric that RocketMQ 5's brokers or rocketmq-exporter have keeps its name, labels and unit. Names
of other metrics begin with `rmqha_`.
"""

from rmq_ha.ops.app.status.broker_catalogue import BROKER
from rmq_ha.ops.app.status.exporter import EXPORTER
from rmq_ha.ops.app.status.replication_catalogue import CONTROLLED, DLEDGER, PAIR
from rmq_ha.ops.app.status.samples import MetricDescription, MetricKind

FIVE = ("cluster", "node_type", "node_id")
STORAGE = (*FIVE, "storage_type", "storage_medium")
PROCESS = ("server",)

_GAUGE, _COUNTER, _HISTOGRAM = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM


def _five(name: str, kind: MetricKind, unit: str, meaning: str, *labels: str) -> MetricDescription:
    return MetricDescription(f"rocketmq_{name}", kind, unit, (*FIVE, *labels), meaning)


_ROCKETMQ_5 = (
    _five("broker_permission", _GAUGE, "2: write, 4: read, 6: both", "Shows brokerPermission"),
    _five(
        "messages_in_total",
        _COUNTER,
        "messages",
        "Counts messages that were put, by topic",
        "topic",
    ),
    _five(
        "throughput_in_total", _COUNTER, "bytes", "Counts bytes that were put, by topic", "topic"
    ),
    _five(
        "messages_out_total",
        _COUNTER,
        "messages",
        "Counts messages that were read, by topic and group",
        "topic",
        "consumer_group",
    ),
    _five(
        "throughput_out_total",
        _COUNTER,
        "bytes",
        "Counts bytes that were read, by topic and group",
        "topic",
        "consumer_group",
    ),
    _five(
        "consumer_lag_messages",
        _GAUGE,
        "messages",
        "Shows how many messages the group has not committed yet, in queues in which it "
        "committed before",
        "topic",
        "consumer_group",
    ),
    _five(
        "producer_connections",
        _GAUGE,
        "clients",
        "Shows how many clients are in producer groups",
        "language",
        "version",
    ),
    _five(
        "consumer_connections",
        _GAUGE,
        "clients",
        "Shows how many clients are in consumer groups",
        "language",
        "version",
        "consume_mode",
    ),
    _five("topic_number", _GAUGE, "topics", "Shows how many topics are configured"),
    _five(
        "consumer_group_number", _GAUGE, "groups", "Shows how many consumer groups are configured"
    ),
    MetricDescription(
        "rocketmq_storage_size",
        _GAUGE,
        "bytes",
        STORAGE,
        "Shows the size of the commit log, from its first to its last byte",
    ),
    MetricDescription(
        "rocketmq_storage_flush_behind_bytes",
        _GAUGE,
        "bytes",
        STORAGE,
        "Shows how many bytes are not flushed to the disk yet",
    ),
    MetricDescription(
        "rocketmq_storage_dispatch_behind_bytes",
        _GAUGE,
        "bytes",
        STORAGE,
        "Shows how many bytes are not in queues and index yet",
    ),
    MetricDescription(
        "rocketmq_storage_message_reserve_time",
        _GAUGE,
        "milliseconds",
        STORAGE,
        "Measures the age of the oldest message",
    ),
)

_PROCESS = (
    MetricDescription(
        "rmqha_build_info",
        _GAUGE,
        "1",
        (*PROCESS, "version", "python", "twisted", "kernel"),
        "Shows the versions of rmq-ha, Python and Twisted, as labels, and whether runs of messages "
        "are made by the native kernel or in pure Python",
    ),
    MetricDescription(
        "rmqha_certificate_end_seconds",
        _GAUGE,
        "seconds since 1970",
        (*PROCESS, "setting", "who"),
        "Shows when a certificate ends that this server shows or trusts",
    ),
    MetricDescription(
        "rmqha_reactor_lag_seconds",
        _HISTOGRAM,
        "seconds",
        PROCESS,
        "Measures twice a second how late a timer fires; all work of this process waits for "
        "so long",
    ),
    MetricDescription(
        "rmqha_reactor_lag_max_seconds",
        _GAUGE,
        "seconds",
        PROCESS,
        "Shows the longest delay of a timer in the last minute",
    ),
    MetricDescription(
        "rmqha_reactor_delayed_calls", _GAUGE, "timers", PROCESS, "Shows how many timers are armed"
    ),
    MetricDescription(
        "rmqha_open_connections",
        _GAUGE,
        "connections",
        PROCESS,
        "Shows how many connections all ports have accepted and not closed",
    ),
    MetricDescription(
        "rmqha_connection_places",
        _GAUGE,
        "connections",
        PROCESS,
        "Shows how many connections all ports accept together: maxConnections, or the rest of "
        "the open files",
    ),
    MetricDescription(
        "rmqha_refused_connections_total",
        _COUNTER,
        "connections",
        (*PROCESS, "reason"),
        "Counts connections that were closed at once; the reason is the key whose limit was "
        "reached",
    ),
)

_NAMESRV = (
    MetricDescription(
        "rmqha_namesrv_brokers",
        _GAUGE,
        "brokers",
        PROCESS,
        "Shows how many addresses of brokers are registered",
    ),
    MetricDescription(
        "rmqha_namesrv_topics", _GAUGE, "topics", PROCESS, "Shows how many topics are known"
    ),
    MetricDescription(
        "rmqha_namesrv_refused_total",
        _COUNTER,
        "requests",
        PROCESS,
        "Counts requests for a broker that came from an address outside of namesrvAllowedBrokers",
    ),
    MetricDescription(
        "rmqha_namesrv_acl_refused_total",
        _COUNTER,
        "requests",
        (*PROCESS, "reason"),
        "Counts requests that access control refused; the reason is a key, or names the fault",
    ),
    MetricDescription(
        "rmqha_namesrv_acl_odd_times_total",
        _COUNTER,
        "requests",
        PROCESS,
        "Counts requests whose signed time is too far from this server's clock; "
        "aclRequiresSignedTime=false lets them pass",
    ),
    MetricDescription(
        "rmqha_namesrv_acl_previous_secret_total",
        _COUNTER,
        "requests",
        PROCESS,
        "Counts requests signed with the previousSecretKey of their account; while it grows, "
        "a client still needs that key",
    ),
    MetricDescription(
        "rmqha_namesrv_connections",
        _GAUGE,
        "connections",
        PROCESS,
        "Shows how many connections are open",
    ),
    MetricDescription(
        "rmqha_namesrv_refused_registrations_total",
        _COUNTER,
        "requests",
        PROCESS,
        "Counts registrations of brokers that were too large or could not be read",
    ),
    MetricDescription(
        "rmqha_namesrv_takeovers_total",
        _COUNTER,
        "registrations",
        PROCESS,
        "Counts registrations that took brokerName and brokerId from a connected broker, "
        "without those of elections",
    ),
    MetricDescription(
        "rmqha_namesrv_rivals",
        _GAUGE,
        "brokers",
        PROCESS,
        "Shows how many brokers claimed within 120 s a brokerName and brokerId which another "
        "broker holds",
    ),
    MetricDescription(
        "rmqha_namesrv_dropped_frames_total",
        _COUNTER,
        "connections",
        (*PROCESS, "reason"),
        "Counts connections that were closed because of an incomplete frame, by the key that "
        "limits it",
    ),
    MetricDescription(
        "rmqha_namesrv_registration_age_seconds",
        _GAUGE,
        "seconds",
        (*PROCESS, "address"),
        "Measures the time since the broker's last registration; after 120 s the broker is "
        "forgotten",
    ),
)

CATALOGUE: dict[str, MetricDescription] = {
    item.name: item
    for item in (
        *BROKER,
        *PAIR,
        *DLEDGER,
        *CONTROLLED,
        *_ROCKETMQ_5,
        *EXPORTER,
        *_PROCESS,
        *_NAMESRV,
    )
}
