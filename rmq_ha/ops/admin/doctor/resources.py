"""Rules: disks, clocks, and settings that endanger messages."""

from collections.abc import Iterator
from statistics import median_low

from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, number, size_in
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

APART_MS = 3_000
DISPATCH_BYTES = 10_000_000
UNFLUSHED_BYTES = 256 << 20
SLOW_PUT_MS = 500.0
SETTLED_S = 300
_HOUR_S = 3600
_LEAST_S = _HOUR_S
_GB = 1e9


def _clocks(facts: ClusterFacts) -> Iterator[Observation]:
    known = [(b, b.clock_ahead_ms) for b in facts.answering() if b.clock_ahead_ms is not None]
    if not known:
        return
    usual = median_low([ahead for _, ahead in known])
    apart = [(b, ahead) for b, ahead in known if abs(ahead - usual) > APART_MS]
    for broker, ahead in apart:
        yield Observation(str(broker), f"its clock is {_seconds(ahead - usual)} the other brokers'")
    if abs(usual) > APART_MS:
        whose = "the brokers' clocks are" if len(known) > 1 else f"the clock of {known[0][0]} is"
        yield Observation("this machine", f"{whose} {_seconds(usual)} the one here")


def _seconds(ahead_ms: int) -> str:
    return f"{abs(ahead_ms) / 1000:.0f} s {'ahead of' if ahead_ms > 0 else 'behind'}"


def _ratio(broker: BrokerFacts) -> float:
    """Return how full the fuller one of the broker's two disks is, from 0 to 1."""
    keys = ("commitLogDiskRatio", "consumeQueueDiskRatio")
    return max(number(broker.info, key, 0.0) for key in keys)


def _level(broker: BrokerFacts, key: str, default: int) -> float:
    return (number(broker.config, key, default) or default) / 100


def _disk_full(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if _ratio(broker) >= _level(broker, "diskSpaceWarningLevelRatio", 90):
            yield Observation(str(broker), f"its disk is {_ratio(broker) * 100:.0f} % full")


def _disk_cleans(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        limits = [("diskSpaceCleanForciblyRatio", 85), ("diskSpaceWarningLevelRatio", 90)]
        cleans_at, warns_at = (_level(broker, key, default) for key, default in limits)
        if cleans_at <= _ratio(broker) < warns_at:
            yield Observation(
                str(broker),
                f"its disk is {_ratio(broker) * 100:.0f} % full, and diskSpaceCleanForciblyRatio "
                f"is {cleans_at * 100:.0f} %",
            )


def _disk_forecast(facts: ClusterFacts) -> Iterator[Observation]:
    """
    Report disks that will be full before messages are old enough to be deleted, at the rate at
    which the log grew since its oldest message.
    """
    for broker in facts.answering():
        oldest = number(broker.info, "earliestMessageTimeStamp", 0)
        begin = number(broker.info, "commitLogMinOffset")
        free, total = broker.free_bytes, broker.total_bytes
        age_s = facts.now_ms / 1000 - oldest / 1000
        cleans_at = _level(broker, "diskSpaceCleanForciblyRatio", 85)
        if oldest <= 0 or begin is None or free is None or total is None:
            continue
        if not _LEAST_S <= age_s < broker.reserved_s or _ratio(broker) >= cleans_at:
            continue
        rate = (broker.end - begin) / age_s
        room = free - (1 - cleans_at) * total
        hours = max(room, 0) / max(rate, 1) / _HOUR_S
        if rate > 0 and room < rate * (broker.reserved_s - age_s):
            yield Observation(
                str(broker),
                f"its log grew by {rate * _HOUR_S / _GB:.1f} GB an hour over "
                f"{age_s / _HOUR_S:.0f} h; its disk is {cleans_at * 100:.0f} % full in "
                f"{hours:.1f} h, before messages are {broker.reserved_s / _HOUR_S:.0f} h old",
            )


def _dispatch(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        behind = number(broker.info, "dispatchBehindBytes", 0)
        if behind > DISPATCH_BYTES:
            yield Observation(
                str(broker), f"{behind:.0f} bytes of its log are not in its queues yet"
            )


def _flush(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        text = broker.info.get("remainHowManyDataToFlush", "")
        if (size_in(text) or 0) > UNFLUSHED_BYTES:
            yield Observation(str(broker), f"{text} of its log are not on its disk yet")


def _slow_puts(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        latency = number(broker.info, "putLatency99", 0.0)
        if latency > SLOW_PUT_MS:
            yield Observation(str(broker), f"one put in a hundred takes more than {latency:.0f} ms")


def _failed_puts(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        failed = number(broker.info, "putMessageFailedTimes", 0)
        if failed:
            yield Observation(str(broker), f"{failed:.0f} puts failed since its start")


def _memory_only(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        flush = broker.config.get("flushDiskType")
        if (
            broker.role == BrokerRole.ASYNC_MASTER.value
            and flush == FlushDiskType.ASYNC_FLUSH.value
        ):
            yield Observation(str(broker), "ASYNC_MASTER with ASYNC_FLUSH")


def _open_to_all(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        is_open = broker.config.get("aclEnable") == "false"
        if broker.config.get("bindAddress", "").startswith(("127.", "::1")):
            continue
        if is_open and broker.config.get("tls.server.mode") != "enforcing":
            yield Observation(str(broker), "aclEnable=false, and TLS is not enforced")


def _broker_restarted(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.runs_s is not None and broker.runs_s < SETTLED_S:
            yield Observation(str(broker), f"it runs for {broker.runs_s} s")


RULES = (
    Rule(
        "clocks-apart",
        DoctorSeverity.ERROR,
        "clocks differ by more than 3 s: delayed messages, retention, searches by time and "
        "signed requests go wrong",
        "set up NTP (chrony) on the machine that the finding names, and set its clock slowly, "
        "not by a jump",
        _clocks,
    ),
    Rule(
        "disk-full",
        DoctorSeverity.ERROR,
        "a disk is so full that messages are refused (above 90 %, diskSpaceWarningLevelRatio)",
        "free some space or enlarge the disk; `rmqha-admin broker config set NAME "
        "fileReservedTime=HOURS` deletes older messages, read or not",
        _disk_full,
    ),
    Rule(
        "disk-cleans",
        DoctorSeverity.ERROR,
        "a disk is so full (above 85 %, diskSpaceCleanForciblyRatio) that messages are deleted "
        "before fileReservedTime is over",
        "free some space or enlarge the disk now; the code unread-deleted names the groups that "
        "miss messages",
        _disk_cleans,
    ),
    Rule(
        "disk-forecast",
        DoctorSeverity.WARNING,
        "at the present rate of messages a log fills its disk before messages are old enough to "
        "be deleted",
        "enlarge the disk, or keep messages for less time (`fileReservedTime`), or move topics "
        "to another broker",
        _disk_forecast,
    ),
    Rule(
        "dispatch-behind",
        DoctorSeverity.WARNING,
        "records of the log do not get into their queues: consumers do not see them yet",
        "after a start, wait until the broker has caught up; otherwise the broker's log says "
        "what the disk refuses, or the disk is busy (`iostat -x 1`)",
        _dispatch,
    ),
    Rule(
        "flush-behind",
        DoctorSeverity.WARNING,
        "much of the log is in memory only: a power cut loses it",
        "look at the disk's speed and health; flushDiskType=SYNC_FLUSH holds producers back "
        "instead",
        _flush,
    ),
    Rule(
        "puts-slow",
        DoctorSeverity.WARNING,
        "producers wait long for their answers",
        "look at the disk, at the slave (slave-behind) and at the load of the machine",
        _slow_puts,
    ),
    Rule(
        "puts-failed",
        DoctorSeverity.NOTE,
        "sends failed since the broker's start: its log and `rmqha_refused_puts_total` say why",
        "look into the broker's log; the count begins anew at the next start",
        _failed_puts,
    ),
    Rule(
        "acks-from-memory",
        DoctorSeverity.NOTE,
        "sends are answered SEND_OK while the message is only in the memory of one machine",
        "if that is not safe enough: use a SYNC_MASTER with a slave, or SYNC_FLUSH",
        _memory_only,
    ),
    Rule(
        "open-to-all",
        DoctorSeverity.NOTE,
        "everybody who reaches the broker may read, write and configure",
        "`aclEnable=true`, or tls.server.mode=enforcing with a trust root; docs/security.md",
        _open_to_all,
    ),
    Rule(
        "just-started",
        DoctorSeverity.NOTE,
        "a broker started within the last five minutes: rates and ages say little yet",
        "if nobody restarted the broker, its log and the service manager's log say why it ended",
        _broker_restarted,
    ),
)
