"""Rules: whether every slave follows its master, and whether it has the master's messages."""

from collections.abc import Iterator

from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, master_of, number
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

HEARTBEAT_MS = 5_000
NEW_S = 20.0
BEHIND_S = 5.0
TABLES_S = 60.0
_MISSED = 2.2
"""
Missed heartbeats before doctor reports; after four, by default, the slave closes the connection.
"""
_FAULTS = ("diverged", "unreadable", "stranded")
_FIXES = {
    "unreachable": "see no-master, then ha-port-blocked",
    "no address": "compare `brokerName` and `namesrvAddr`",
    "disconnected": "the master's log says why, and `haMasterAddress`, where it is set, has to "
    "name the master's `haListenPort`",
    "connected": "look again in 10 s",
}
"""The remedy, by the state of the slave's link."""


def _slaves(facts: ClusterFacts) -> Iterator[BrokerFacts]:
    return (item for item in facts.answering() if item.is_slave and not item.is_dledger)


def _pairs(facts: ClusterFacts) -> Iterator[tuple[BrokerFacts, BrokerFacts]]:
    """Yield each slave with the only master of its name."""
    for _, members in facts.pairs():
        master = master_of(members)
        if master is not None:
            yield from ((item, master) for item in members if item.answers and item.is_slave)


def _stays_out(facts: ClusterFacts, state: str) -> Iterator[Observation]:
    for slave in _slaves(facts):
        link = slave.link
        if link and link.state == state:
            yield Observation(str(slave), str(link.fault or state))


def _slave_diverged(facts: ClusterFacts) -> Iterator[Observation]:
    return _stays_out(facts, "diverged")


def _unreadable(facts: ClusterFacts) -> Iterator[Observation]:
    return _stays_out(facts, "unreadable")


def _slave_stranded(facts: ClusterFacts) -> Iterator[Observation]:
    return _stays_out(facts, "stranded")


def _not_following(facts: ClusterFacts) -> Iterator[Observation]:
    """
    Report slaves that do not follow. If a set has no master to follow, the rule `nobody-leads`
    reports that instead.
    """
    leaderless = {item.name for item in facts.leaderless}
    for slave in _slaves(facts):
        link = slave.link
        if link and not link.is_followed and link.state not in _FAULTS:
            whom = link.address
            if not whom and slave.name in leaderless:
                continue
            told = f"it does not follow {whom}" if whom else "it knows no master to follow"
            why = f": {link.fault}" if link.fault else ""
            yield Observation(str(slave), f"{link.state}: {told}{why}", _FIXES.get(link.state, ""))


def _silent(facts: ClusterFacts) -> Iterator[Observation]:
    for slave in _slaves(facts):
        link = slave.link
        if link is None or not link.is_followed:
            continue
        silent = link.silent_ms or 0
        heartbeat = number(slave.config, "haSendHeartbeatInterval", HEARTBEAT_MS) or HEARTBEAT_MS
        if silent > _MISSED * heartbeat:
            yield Observation(
                str(slave), f"it heard nothing of its master for {silent / 1000:.0f} s"
            )


def _slaves_behind(facts: ClusterFacts) -> Iterator[Observation]:
    for master in facts.answering():
        for slave in master.slaves or () if master.is_master else ():
            seconds = slave.get("lag_seconds") or 0
            if seconds > BEHIND_S:
                yield Observation(
                    str(master),
                    f"{slave.get('address')} lacks {slave.get('lag')} bytes, for {seconds:.0f} s",
                )
    for follower, master in _pairs(facts):
        most = number(master.config, "haSlaveFallbehindMax", 256 << 20)
        if not master.is_ours and master.end - follower.end > most:
            yield Observation(
                str(follower), f"it lacks {master.end - follower.end} bytes of {master.address}"
            )


def _slaves_ahead(facts: ClusterFacts) -> Iterator[Observation]:
    for slave, master in _pairs(facts):
        if slave.end > master.end:
            yield Observation(
                str(slave),
                f"its log ends at {slave.end}, {slave.end - master.end} bytes behind the end of "
                f"its master's ({master.address}), which was asked later",
            )


def _tables_old(facts: ClusterFacts) -> Iterator[Observation]:
    for slave in _slaves(facts):
        if not slave.is_ours or (slave.runs_s or 0) < TABLES_S:
            continue
        seconds = slave.replication.get("tables_seconds")
        if seconds is None:
            yield Observation(str(slave), "it never got a copy of one of its master's tables")
        elif seconds > TABLES_S:
            yield Observation(
                str(slave), f"its copies of its master's tables are {seconds:.0f} s old"
            )


def _topics_missing(facts: ClusterFacts) -> Iterator[Observation]:
    for slave, master in _pairs(facts):
        if slave.topics is None or master.topics is None:
            continue
        missing = sorted(master.topics - slave.topics)
        seconds = slave.replication.get("tables_seconds")
        if seconds is None:  # Java's brokers do not say: the topics may have come a moment ago
            changed = master.topics_changed_ms - (master.clock_ahead_ms or 0)
            seconds = (facts.now_ms - changed) / 1000
        if missing and seconds > NEW_S:
            named = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
            yield Observation(str(slave), f"it lacks {len(missing)} topics of its master: {named}")


def _history_missing(facts: ClusterFacts) -> Iterator[Observation]:
    for slave, master in _pairs(facts):
        begins = [number(item.info, "commitLogMinOffset") for item in (slave, master)]
        file_size = number(master.config, "mappedFileSizeCommitLog", 1 << 30)
        if None not in begins and begins[0] - begins[1] > 2 * file_size:  # type: ignore[operator]
            yield Observation(
                str(slave),
                f"its log begins at {begins[0]:.0f}, its master's at {begins[1]:.0f}",
            )


def _set_aside(facts: ClusterFacts) -> Iterator[Observation]:
    for slave in _slaves(facts):
        link = slave.link
        if link and link.set_aside:
            yield Observation(
                str(slave), f"in this run it set the end of its log aside {link.set_aside} times"
            )


def _follows_another(facts: ClusterFacts) -> Iterator[Observation]:
    for slave, master in _pairs(facts):
        link = slave.link
        if link is None or not link.is_followed:
            continue
        whom = str(link.address or "")
        port = master.config.get("haListenPort")
        hosts = {master.host, master.config.get("brokerIP2", "")}
        # Controllers tell slaves where the master listens for clients.
        known = {f"{host}:{port}" for host in hosts} | {master.address}
        is_address = whom.replace(".", "").replace(":", "").isdecimal()  # the host may be a name
        if is_address and port and whom not in known:
            yield Observation(
                str(slave), f"it follows {whom}, but the master of its name is {master}"
            )


RULES = (
    Rule(
        "diverged",
        DoctorSeverity.ERROR,
        "a slave's log differs from its master's, so the slave does not follow and acknowledges "
        "nothing",
        "do what the slave's line says; docs/operations.md, \"Logs that part\": keep the slave's "
        "store if you need its messages; if not, empty the store and start the slave again",
        _slave_diverged,
    ),
    Rule(
        "log-unreadable",
        DoctorSeverity.ERROR,
        "a slave's log has bytes that are no record, and its master's log has the same bytes",
        "the master's file is damaged there: replace it by a copy (from a backup, or from "
        "another slave), then start this slave with an empty store; look at the master's disk "
        '(smartctl); docs/operations.md, "Damaged stores"',
        _unreadable,
    ),
    Rule(
        "slave-stranded",
        DoctorSeverity.ERROR,
        "a slave was away for longer than its master keeps messages: the master has deleted the "
        "messages that the slave needs next",
        "do what the slave's line says: make room on its disk, or set "
        "`haRefetchStrandedStore=true` (without controllers `haRefetchStrandedPair=true`), so "
        "that it copies the whole log again; or move its commitlog, consumequeue, index, "
        "checkpoint and epochFileCheckpoint away and start it again",
        _slave_stranded,
    ),
    Rule(
        "not-following",
        DoctorSeverity.ERROR,
        "a slave does not get its master's log",
        "; ".join(f"{state}: {fix}" for state, fix in _FIXES.items()),
        _not_following,
    ),
    Rule(
        "master-silent",
        DoctorSeverity.ERROR,
        "a slave is connected to its master and hears nothing; a firewall between them may have "
        "dropped the connection",
        "look at the master's `/healthz` and machine, and at the network between them",
        _silent,
    ),
    Rule(
        "slave-behind",
        DoctorSeverity.WARNING,
        "a slave follows but does not keep up: after a fail-over the messages that it lacks are "
        "lost",
        "look at the slave's disk and at the network; do not promote the slave before it caught up",
        _slaves_behind,
    ),
    Rule(
        "slave-ahead",
        DoctorSeverity.ERROR,
        "a slave has more messages than its master: the master lost messages that were not on "
        "its disk, or an old master came back as a slave",
        "decide first which messages you need. If you need the slave's, type `rmqha-admin "
        "promote` on its machine; "
        'docs/operations.md, "Logs that part"',
        _slaves_ahead,
    ),
    Rule(
        "tables-old",
        DoctorSeverity.WARNING,
        "a slave has old copies of topics, groups and offsets: after a fail-over groups "
        "continue at old offsets",
        "the slave's log says which table is old, and why; the master's listenPort has to be "
        "open for the slave (a Java slave needs listenPort - 2, too), and with access control "
        "the slave's account has to be an admin's (`aclAccessKey`)",
        _tables_old,
    ),
    Rule(
        "slave-lacks-topics",
        DoctorSeverity.WARNING,
        "a slave lacks topics of its master: the messages are in the slave's log, but cannot be "
        "read there",
        "wait 10 s if the topics are new; if it does not help, do as for tables-old",
        _topics_missing,
    ),
    Rule(
        "slave-lacks-history",
        DoctorSeverity.WARNING,
        "a slave's log begins much later than its master's: after a fail-over older messages are "
        "gone (a Java slave that was empty copies the last file only)",
        "copy the master's store to the slave, or wait until the master's older files are "
        "expired, before you rely on it",
        _history_missing,
    ),
    Rule(
        "tail-set-aside",
        DoctorSeverity.WARNING,
        "messages that only this broker had were set aside: no consumer gets them",
        "on its machine `rmqha-admin setaside list --store <storePathRootDir>` says how many "
        "messages of which topic are there, and `setaside resend FOLDER` sends them again; delete "
        "the folder when nobody needs it any more",
        _set_aside,
    ),
    Rule(
        "follows-another",
        DoctorSeverity.WARNING,
        "a slave follows an address that is not the master of its name: another broker, or a "
        "forwarded port",
        "remove `haMasterAddress` from the slave's file, so that name servers name the master, "
        "and restart the slave; if the name servers differ, correct that first",
        _follows_another,
    ),
)
