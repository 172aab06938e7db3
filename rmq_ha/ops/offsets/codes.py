"""The codes of `verify-offsets`: the severity of each, and its sentence for the operator."""

from collections.abc import Mapping
from typing import NamedTuple

from rmq_ha.ops.offsets.findings import Severity


class Meaning(NamedTuple):
    """
    The meaning of one code of a job's findings.

    :ivar sentence: the cause and the cure. `verify-offsets` fills the places `{repeats}`,
        `{skipped}` and `{lost}` with numbers of messages; other jobs add details to the sentence.
    """

    severity: Severity
    sentence: str


_SYNC = " Does the slave's copying of tables work: master address, master's port - 2, its log?"
MEANINGS: Mapping[str, Meaning] = {
    "LAGGING": Meaning(
        Severity.INFO,
        "the slave is behind by what it may be (it copies tables every 10 s): a fail-over now"
        " repeats {repeats} messages",
    ),
    "UNSETTLED": Meaning(
        Severity.INFO,
        "differs, but not for long enough to be wrong: the slave may be about to copy it; look"
        " again, or give a longer --wait",
    ),
    "STALE": Meaning(
        Severity.ERROR,
        "the slave has not taken over this offset for longer than --max-skew: a fail-over repeats"
        " {repeats} messages." + _SYNC,
    ),
    "SLAVE_AHEAD": Meaning(
        Severity.ERROR,
        "the slave is ahead of its master: a fail-over skips {skipped} messages. Was the group"
        " consuming from the slave, or has the master lost offsets? (Without an entry it is at 0.)",
    ),
    "MASTER_OLDER": Meaning(
        Severity.INFO,
        "the slave has a newer copy than its master, which crashed before it wrote this offset",
    ),
    "MISSING_ON_SLAVE": Meaning(
        Severity.ERROR,
        "the slave has no offset of this group: after a fail-over it begins anew ({repeats}"
        " repeated, {skipped} skipped)." + _SYNC,
    ),
    "ORPHAN_ON_SLAVE": Meaning(
        Severity.WARN,
        "the master does not have it: deleted there (slaves never forget offsets), or lost there",
    ),
    "TOPIC_DELETED": Meaning(
        Severity.INFO,
        "the topic was deleted: neither side's table of topics has it. Slaves keep the offsets of"
        " its groups and the files of its queues",
    ),
    "BEYOND_MAX": Meaning(
        Severity.ERROR,
        "the slave's queue ends before this offset: pulls are answered PULL_OFFSET_MOVED and the"
        " consumer jumps; what is stored there until then is skipped. Is replication behind?",
    ),
    "MASTER_BEYOND_MAX": Meaning(
        Severity.ERROR,
        "the master's own queue ends before this offset: has it lost the end of its log? Reset the"
        " offset of the group to the end of the queue",
    ),
    "MASTER_DAMAGED": Meaning(
        Severity.ERROR,
        "the master's own offset is no number that a broker writes: its table is damaged, and"
        " nothing can be said of the slave's. Reset the offset of the group",
    ),
    "BELOW_MIN": Meaning(
        Severity.ERROR,
        "the slave's queue begins behind what the group consumes next: a fail-over skips {skipped}"
        " messages that only the master has. Let the group catch up first",
    ),
    "DELAY_LAG": Meaning(
        Severity.ERROR,
        "the slave's copy of this delay level's progress is older than --max-skew: after a"
        " fail-over {repeats} delayed messages are delivered again." + _SYNC,
    ),
    "DELAY_AHEAD": Meaning(
        Severity.ERROR,
        "the slave's progress of this delay level is ahead of the master's: after a fail-over"
        " {skipped} delayed messages are never delivered",
    ),
    "NOT_REPLICATED": Meaning(
        Severity.ERROR,
        "the slave lacks {lost} messages at the end of this queue: a fail-over loses them. Wait for"
        " replication, with producers stopped or write permission wiped",
    ),
    "QUEUE_AHEAD": Meaning(
        Severity.ERROR,
        "the slave has messages that its master has not: the master lost the end of its log. Do not"
        " let them replicate; decide which store is right (operations guide: slave ahead)",
    ),
    "LOG_BEHIND": Meaning(
        Severity.ERROR,
        "the slave's commit log ends before the master's of a while ago: replication does not keep"
        " up, or has ended",
    ),
    "LOG_AHEAD": Meaning(
        Severity.ERROR,
        "the slave's commit log is longer than its master's: the master lost the end of its log. Do"
        " not let them replicate; decide which store is right",
    ),
    "MIN_DRIFT": Meaning(
        Severity.INFO,
        "the slave's queue begins later than the master's: old messages are on the master only",
    ),
    "QUEUE_CUT": Meaning(
        Severity.ERROR,
        "the slave's queue begins later than the master's, though both logs begin at the same"
        " place: it lost its first files. Move its directory away and start the slave, which builds"
        " the queue again from its log",
    ),
    "MISSING_TOPIC_CONFIG": Meaning(
        Severity.ERROR,
        "the slave does not know this topic: after a fail-over nobody can consume what is in it,"
        " and it is lost to clients until somebody creates it." + _SYNC,
    ),
    "MISSING_GROUP": Meaning(
        Severity.ERROR,
        "the slave does not know this consumer group: after a fail-over its settings are the"
        " defaults, or it is refused." + _SYNC,
    ),
    "QUEUE_NUM_DRIFT": Meaning(
        Severity.ERROR,
        "the numbers of queues differ: after a fail-over some queues can be neither read nor"
        " written." + _SYNC,
    ),
    "CONTENT_DRIFT": Meaning(Severity.ERROR, "the settings differ." + _SYNC),
    "VERSION_DRIFT": Meaning(
        Severity.INFO,
        "equal content, but of another version: harmless in files of Java's brokers, whose groups"
        " get a new version at each start; live it may mean that the slave copies nothing",
    ),
    "STALE_TABLE": Meaning(
        Severity.ERROR, "the slave has an older table, for longer than --max-skew." + _SYNC
    ),
    "TABLE_DAMAGED": Meaning(
        Severity.ERROR,
        "a table of this store and its backup cannot be read, and what it holds was not compared:"
        " a Java broker does not start with it. Repair it, or copy it from the other side",
    ),
    "STORE_DAMAGED": Meaning(
        Severity.ERROR,
        "files of this store are missing or damaged; the rest was compared. verify-replica says"
        " what is gone",
    ),
    "SNAPSHOT_INCOMPLETE": Meaning(
        Severity.ERROR,
        "another version of rmq-ha took this snapshot, which does not say whether damage was met:"
        " update rmq-ha on that machine, and take a snapshot again",
    ),
    "NOT_TOLD": Meaning(
        Severity.ERROR,
        "one of the sides says nothing of these, and they were not compared: take its snapshot"
        " again",
    ),
    "NOT_A_SLAVE": Meaning(
        Severity.WARN, "was given as a slave, but says that it is none: is this the pair?"
    ),
    "NOT_THE_MASTER": Meaning(
        Severity.WARN, "was given as the master, but says that it is a slave: is this the pair?"
    ),
    "OTHER_BROKER": Meaning(Severity.ERROR, "its broker name is not its master's: this is no pair"),
    "SAME_BROKER": Meaning(
        Severity.ERROR,
        "has its master's name and id: it is the same broker, or has taken its place; name the"
        " slave by its own address or id",
    ),
    "ROLLBACK": Meaning(
        Severity.ERROR,
        "the offset went back, {repeats} messages, without a reset on the master: they were"
        " consumed again. A fail-over with old offsets, or a table that was put back?",
    ),
    "OFFSET_RESET": Meaning(
        Severity.WARN,
        "the offset went back on the master, {repeats} messages: a reset by somebody, or a master"
        " that came back with old offsets",
    ),
    "OFFSET_JUMP": Meaning(
        Severity.ERROR,
        "the offset jumped beyond what was stored: messages that come until there are skipped",
    ),
}
HISTORIC = frozenset({"ROLLBACK", "OFFSET_RESET", "OFFSET_JUMP"})
"""Codes that tell of the past; they do not make a failover unsafe."""
