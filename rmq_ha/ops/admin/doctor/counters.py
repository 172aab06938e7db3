"""
Rules over /metrics: faults since the start of a server, faults that go on now, and resources that
run out.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, Status
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

FEW_FILES = 4096
NEARLY = 0.8
LAG_S = 1.0


class _Counter(NamedTuple):
    """
    A rule about counters of /metrics.

    :ivar metric: names of the metrics; each is looked at by itself.
    """

    code: str
    metric: str
    cause: str
    fix: str


_EVER = (
    _Counter(
        "messages-damaged",
        "rmqha_damaged_messages_total",
        "a broker's log has damaged messages: pulls leave them out",
        "look at the disk's health (smartctl) and at the broker's log file; another broker of "
        'the pair may have the messages undamaged: docs/operations.md, "Damaged stores"',
    ),
    _Counter(
        "queues-mended",
        "rmqha_mended_units_total",
        "entries of queues were damaged on the disk, and the broker mended them from the log",
        "look at the disk's health (smartctl)",
    ),
    _Counter(
        "deleted-early",
        "rmqha_forced_deletions_total",
        "files of the log were deleted before fileReservedTime, because the disk was too full",
        "enlarge the disk, or set a shorter `fileReservedTime` if messages may go earlier; the "
        "log says which files were deleted, and which groups miss messages",
    ),
    _Counter(
        "slave-diverged-once",
        "rmqha_replication_diverged_total",
        "a slave connected with a log that differs from its master's, or that is longer",
        "look into `setaside` on the slave's machine, and at the slave's `/healthz`; if the "
        "slave follows now, nothing else has to be done",
    ),
    _Counter(
        "slave-doubtful",
        "rmqha_replication_within_record_total",
        "a Java slave's log ended within a record that this master did not send: the slave's "
        "log may differ from the master's",
        'compare the two logs, or empty the slave\'s store; docs/operations.md, "Logs that part"',
    ),
)
_NOW = (
    _Counter(
        "acks-degraded",
        "rmqha_degraded_acks_total",
        "producers get FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE or FLUSH_DISK_TIMEOUT in place "
        "of SEND_OK",
        "see no-slave, slave-behind and flush-behind, as the named reason says",
    ),
    _Counter(
        "puts-refused",
        "rmqha_refused_puts_total",
        "messages are refused, for the reason that is named",
        "as the reason says: free the disk, send to the master, make messages smaller, or send "
        "less",
    ),
    _Counter(
        "registration-fails",
        "rmqha_registration_failures_total",
        "a broker cannot register with a name server: clients keep its old routes",
        "see name-server-silent; with many topics: `maxTopicsOfBroker`; with access control: "
        "`aclAccessKey`; a broker with tls.server.mode=enforcing needs name servers with TLS, "
        "too",
    ),
    _Counter(
        "access-refused",
        "rmqha_acl_refused_total",
        "access control refuses requests",
        "the broker's log names the account, its address and the missing permission; "
        "`rmqha-admin acl set` grants it",
    ),
    _Counter(
        "odd-times",
        "rmqha_acl_odd_times_total",
        "clients sign with a time that differs much from the broker's clock",
        "set up NTP at the clients that the log names",
    ),
    _Counter(
        "slave-refused",
        "rmqha_replication_refused_total",
        "hosts are refused at the port for slaves: strangers, or a slave that is missing in "
        "`haAllowedSlaves` or lacks `haSecret`",
        "the log names the address; if it is your slave, add the address to `haAllowedSlaves`, "
        "or give the slave `haSecret`",
    ),
    _Counter(
        "connections-refused",
        "rmqha_refused_connections_total",
        "new connections are refused at once, because of the key that is named",
        "the log names the address with so many connections; raise LimitNOFILE, or the key",
    ),
    _Counter(
        "offsets-refused",
        "rmqha_refused_offsets_total",
        "clients commit offsets that no queue has",
        "if a topic was made smaller or made again while clients ran, restart these clients, "
        "whose routes are old. If a slave was promoted that lacked messages, the refusals end "
        "by themselves when the members pull",
    ),
    _Counter(
        "properties-refused",
        "rmqha_refused_properties_total",
        "sends are refused because of properties of RocketMQ 5 that brokers of 4.9 ignore, such as "
        "TIMER_DELAY_SEC",
        "`timerWheelEnable=true` and a restart deliver messages with a timer when they are due; "
        "let the producer leave other properties out. `refuseUnservedProperties=false` delivers "
        "all such messages at once",
    ),
    _Counter(
        "topics-not-made",
        "rmqha_not_created_total",
        "clients use topics or groups that the broker does not create, because it has maxTopics "
        "or maxGroups",
        "delete topics and groups that nobody needs; the log names the client that asks",
    ),
    _Counter(
        "frames-dropped",
        "rmqha_dropped_frames_total",
        "connections are closed because their requests do not arrive completely",
        "the log names the address; if many clients share it behind a NAT, raise the key that "
        "is named",
    ),
    _Counter(
        "grpc-refused",
        "rmqha_grpc_closed_total",
        "connections of gRPC clients are closed, because they reach the limit that is named",
        "the log names the address: it may be a scanner or an attack (close the port to it); if it "
        "is your program, look for calls that it cancels, and for connections that it does not "
        "read",
    ),
    _Counter(
        "strangers",
        "rmqha_protocol_violations_total",
        "a peer does not speak RocketMQ's protocol, or not the TLS that this port needs",
        "the log names the address: it may be a scanner (close the port to it), a health check "
        "at the wrong port (give it `metricsPort`), or a client without TLS (--tls)",
    ),
)


def _statuses(facts: ClusterFacts) -> Iterator[tuple[BrokerFacts, Status]]:
    for broker in facts.answering():
        if broker.status is not None and broker.status.problem is None:
            yield broker, broker.status


def _counted_since_start(metric: str, facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        count = status.total(metric)
        if count:
            yield Observation(str(broker), f"{metric} is {count:.0f} since its start")


def _now(metric: str, facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        growth = status.growth(metric)
        if growth is not None and growth > 0:
            why = _reasons(status, metric)
            yield Observation(
                str(broker), f"{metric} grew by {growth:.0f} within {facts.again_s:g} s{why}"
            )


def _reasons(status: Status, metric: str) -> str:
    """Return the values of the label `reason` whose counters grew between the two looks."""
    before = {labels.get("reason"): value for labels, value in status.metrics.get(metric, ())}
    reasons = [
        str(labels["reason"])
        for labels, value in status.later.get(metric, ())
        if labels.get("reason") and value > before.get(labels["reason"], 0.0)
    ]
    return f" ({', '.join(sorted(reasons))})" if reasons else ""


def _refused_ahead(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        count = status.total("rmqha_replication_refused_ahead")
        if count:
            yield Observation(str(broker), f"it refuses the slaves of {count:.0f} machines")


def _member_diverged(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        if status.total("rmqha_dledger_diverged"):
            yield Observation(
                str(broker), "the leader has another entry where it has a committed one"
            )


def _no_leader_known(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        name = "rmqha_dledger_has_leader"
        if name in status.metrics and not status.total(name):
            yield Observation(str(broker), "it knows no leader of its group")


def _reactor(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        worst = status.total("rmqha_reactor_lag_max_seconds")
        if worst > LAG_S:
            yield Observation(
                str(broker), f"within the last minute everything waited {worst:.1f} s"
            )


def _few_files(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        most = status.total("process_max_fds")
        if 0 < most < FEW_FILES:
            yield Observation(str(broker), f"it may open {most:.0f} files and connections")
    local = facts.local
    if local and 0 < local.most_files < FEW_FILES:
        yield Observation(
            local.file, f"a broker that starts here may open {local.most_files} files"
        )


def _share(status: Status, used: str, most: str) -> float:
    limit = status.total(most)
    return status.total(used) / limit if limit > 0 else 0.0


def _running_out(facts: ClusterFacts) -> Iterator[Observation]:
    pairs = (
        ("process_open_fds", "process_max_fds", "open files"),
        ("rmqha_open_connections", "rmqha_connection_places", "places for connections"),
    )
    for broker, status in _statuses(facts):
        for used, most, what in pairs:
            if _share(status, used, most) > NEARLY:
                yield Observation(
                    str(broker), f"{status.total(used):.0f} of {status.total(most):.0f} {what}"
                )


def _series(facts: ClusterFacts) -> Iterator[Observation]:
    for broker, status in _statuses(facts):
        left_out = status.total("rmqha_series_left_out")
        if left_out:
            yield Observation(str(broker), f"{left_out:.0f} topics or groups have no series")


def _rules(
    counters: Iterable[_Counter], look: Callable[[str, ClusterFacts], Iterator[Observation]]
) -> Iterator[Rule]:
    for item in counters:
        yield Rule(
            item.code, DoctorSeverity.WARNING, item.cause, item.fix, partial(look, item.metric)
        )


RULES = (
    *_rules(_EVER, _counted_since_start),
    *_rules(_NOW, _now),
    Rule(
        "slave-refused-ahead",
        DoctorSeverity.ERROR,
        "a Java slave's log was longer than its master's, and the master refuses it until it is "
        "not",
        "empty the slave's store, or promote the slave if you need its messages; "
        'docs/operations.md, "Logs that part"',
        _refused_ahead,
    ),
    Rule(
        "member-diverged",
        DoctorSeverity.ERROR,
        "two members of a DLedger group committed different entries",
        "stop the group, keep all stores, compare the ledgers; empty the member that is wrong",
        _member_diverged,
    ),
    Rule(
        "no-leader-known",
        DoctorSeverity.ERROR,
        "a member of a DLedger group knows no leader",
        "`rmqha-admin dledger status`; open the port of `dLegerPeers` between all members",
        _no_leader_known,
    ),
    Rule(
        "reactor-late",
        DoctorSeverity.WARNING,
        "the broker's only thread was held up for more than a second",
        "look at the machine's load, swap and disk; move topics to another broker",
        _reactor,
    ),
    Rule(
        "few-files",
        DoctorSeverity.WARNING,
        "the limit of open files is low",
        "set LimitNOFILE=65536 in the systemd unit (`ulimit -Hn`), and restart the server",
        _few_files,
    ),
    Rule(
        "running-out",
        DoctorSeverity.WARNING,
        "four fifths of the open files, or of the places for connections, are taken",
        "raise LimitNOFILE, or find out which clients have so many connections: `rmqha-admin "
        "connections`",
        _running_out,
    ),
    Rule(
        "series-left-out",
        DoctorSeverity.NOTE,
        "not all topics and groups have metrics",
        "raise `metricsSeriesLimit`, if your metrics store can take more",
        _series,
    ),
)
