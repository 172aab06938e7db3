"""Codes of `verify-replica`, `verify-fleet`, `store verify` and `rmqha-scan`, with sentences."""

from collections.abc import Mapping
from typing import Any

from rmq_ha.ops.offsets.codes import Meaning
from rmq_ha.ops.offsets.findings import Finding, Severity

_COPY = " Copy the damaged side's log anew from the other one (stop it, move its store away)."
_REBUILD = (
    " Stop that broker, move its consumequeue directory away and start it: it builds all queues"
    " from the log."
)
_INDEX = (
    " The log is not touched: queries by key miss messages. Delete that index file if it matters."
)

MEANINGS: Mapping[str, Meaning] = {
    "LOG_DIFFERS": Meaning(Severity.ERROR, "The slave's record is not the master's." + _COPY),
    "DIVERGED": Meaning(
        Severity.ERROR,
        "Each side went on by itself, as after a fail-over to a slave that was behind: what is"
        " behind was not compared. Do not let them replicate; decide which tail is right, keep a"
        " copy of the other, and copy its log anew.",
    ),
    "NOT_ITS_SLAVE": Meaning(
        Severity.ERROR, "These are stores of two brokers: give the two of one pair."
    ),
    "RECORD_LOST": Meaning(Severity.ERROR, "The slave's log lacks this message." + _COPY),
    "RECORD_EXTRA": Meaning(
        Severity.ERROR, "The slave's log has a message here that the master's has not." + _COPY
    ),
    "RECORD_DUPLICATED": Meaning(
        Severity.ERROR, "The slave's log holds this message twice." + _COPY
    ),
    "RECORD_MOVED": Meaning(
        Severity.ERROR, "The slave's log has this message in another place of the order." + _COPY
    ),
    "MORE_DIFFERENCES": Meaning(
        Severity.ERROR, "There are more differences behind this one; they were not looked at."
    ),
    "DIGEST_DIFFERS": Meaning(
        Severity.ERROR,
        "The bytes of this window of the log differ. Where both stores are seen,"
        " `rmqha-spark verify-replica MASTER SLAVE --from OFFSET` names the message.",
    ),
    "WINDOW_CHANGED": Meaning(
        Severity.ERROR,
        "This part of the log has other bytes than when an earlier scan read it, though nothing"
        " writes there: the disk damaged it, or somebody changed it." + _COPY + " After a repair"
        " scan the store --again.",
    ),
    "FACTS_DAMAGED": Meaning(
        Severity.WARN,
        "Facts of this store are missing or damaged, so the store was not compared. Its broker does"
        " not count as safe.",
    ),
    "FACTS_OLD": Meaning(
        Severity.WARN,
        "Its facts are too old to rely on, or of a clock that is ahead: look whether rmqha-scan"
        " still runs beside it.",
    ),
    "LOOK_OLD": Meaning(
        Severity.WARN,
        "Parts of the log were not read for long, and damage that came later is not seen: scan"
        " more often, or with a smaller --reread.",
    ),
    "GRID_DIFFERS": Meaning(
        Severity.WARN,
        "The two stores were scanned with windows of different sizes, and their logs cannot be"
        " compared: scan one of them --again with the --window of the other.",
    ),
    "NOT_COMPARED": Meaning(
        Severity.WARN,
        "More than a hundredth of the log was not compared, because only one side has a digest of"
        " it: scan both stores again.",
    ),
    "SAME_STORE": Meaning(
        Severity.ERROR,
        "One store was scanned under two names: one of the commands has the wrong directory,"
        " --broker or --id, and the store that it should have read was not compared.",
    ),
    "NO_REPLICA": Meaning(
        Severity.WARN,
        "There are facts of one store of this broker only, and nothing to compare. Does rmqha-scan"
        " run beside its slave? For a broker that has none, give --alone.",
    ),
    "ALONE": Meaning(Severity.INFO, "This broker has no slave, as --alone says."),
    "NO_MASTER": Meaning(
        Severity.WARN,
        "There are no facts of this broker's master (id 0), so its slaves were not compared. Look"
        " whether rmqha-scan runs beside it.",
    ),
    "BODY_CRC": Meaning(
        Severity.ERROR,
        "The body does not match the CRC that was stored with it: a disk, or memory, flipped bits.",
    ),
    "RECORD_CHANGED": Meaning(
        Severity.ERROR,
        "The record was changed in both logs after it had been filed. Do not have queues or index"
        " built anew: that would make it permanent. Take the message from an archive or a backup,"
        " or send it again.",
    ),
    "LOG_HOLE": Meaning(
        Severity.ERROR,
        "A file of the log is missing or was cut short: its messages are gone here." + _COPY,
    ),
    "RECORD_UNREADABLE": Meaning(
        Severity.ERROR, "No record stands here, though the log goes on behind it." + _COPY
    ),
    "LOG_CUT": Meaning(
        Severity.ERROR,
        "The checkpoint says that more of the log was on the disk: the log lost its end, and a"
        " master does not start." + _COPY,
    ),
    "TABLE_DAMAGED": Meaning(
        Severity.ERROR,
        "What this table says is lost here. Stop the broker, and copy the file from a replica.",
    ),
    "RESTORED": Meaning(
        Severity.INFO,
        "A store that `restore` made is like that: its first start reads all of the log and builds"
        " the rest.",
    ),
    "TORN_TAIL": Meaning(
        Severity.ERROR,
        "The log ends in the middle of a record that its queues know already. A start cuts it off:"
        " let it, on a slave, and see that replication brings it again.",
    ),
    "TAIL_RESIDUE": Meaning(
        Severity.INFO, "Behind the end of the log stands what an earlier truncation left."
    ),
    "BLANK_DIFFERS": Meaning(
        Severity.INFO, "Only bytes without a meaning, behind the last record of a file, differ."
    ),
    "MASTER_AHEAD": Meaning(
        Severity.INFO,
        "The slave's log ends before the master's: what is behind it was not compared.",
    ),
    "SLAVE_AHEAD": Meaning(
        Severity.ERROR,
        "The slave's log is longer than its master's: the master lost the end of its log. Do not"
        " let them replicate; decide which store is right.",
    ),
    "SLAVE_STARTS_LATER": Meaning(
        Severity.INFO, "The slave's log begins behind the master's: old messages are there only."
    ),
    "CQ_MISSING": Meaning(
        Severity.ERROR,
        "The queue has no entry for this message: consumers never get it." + _REBUILD,
    ),
    "CQ_OFFSET": Meaning(
        Severity.ERROR, "The queue's entry points to another place of the log." + _REBUILD
    ),
    "CQ_SIZE": Meaning(Severity.ERROR, "The queue's entry has another size." + _REBUILD),
    "CQ_TAGS": Meaning(
        Severity.ERROR,
        "The queue's entry has the hash of other tags: consumers with a filter miss it." + _REBUILD,
    ),
    "CQ_DELIVERY_TIME": Meaning(
        Severity.ERROR, "The delayed message is due at another time than its level says." + _REBUILD
    ),
    "CQ_LEVELS_CHANGED": Meaning(
        Severity.WARN,
        "The delays of this level differ: messageDelayLevel was changed, or differs between"
        " brokers.",
    ),
    "CQ_DANGLING": Meaning(
        Severity.ERROR, "The queue's entry points to no message of its own." + _REBUILD
    ),
    "CQ_ORDER": Meaning(
        Severity.ERROR, "The entries of this queue are not in the order of the log." + _REBUILD
    ),
    "CQ_DELETED": Meaning(
        Severity.INFO,
        "The topic was deleted on this side, and its queue with it: the messages go with the files"
        " of the log. A slave may keep the queue's files.",
    ),
    "CQ_FORGOTTEN": Meaning(
        Severity.WARN,
        "The log has messages that are older than their queue: its topic was deleted (and perhaps"
        " created again), or the queue's first files are gone.",
    ),
    "CQ_FILE": Meaning(
        Severity.ERROR,
        "A Java broker does not start with such a queue, and what was there cannot be consumed."
        + _REBUILD,
    ),
    "CQ_NOT_DISPATCHED": Meaning(
        Severity.INFO, "The newest messages are not in the queues yet; a start puts them there."
    ),
    "INDEX_HOLE": Meaning(
        Severity.ERROR, "The index has no entry for a key of this message." + _INDEX
    ),
    "INDEX_UNREADABLE": Meaning(
        Severity.ERROR, "Nothing else was looked at in this index file." + _INDEX
    ),
    "INDEX_MISSING": Meaning(
        Severity.ERROR,
        "This side has no index, the other one has: queries by key find nothing here. Was it"
        " removed, or is messageIndexEnable off? A broker that builds its queues anew builds it,"
        " too.",
    ),
    "INDEX_GAP": Meaning(
        Severity.WARN,
        "No index file covers this stretch of the log, as after a crash with"
        " messageIndexSafe=false: its messages are not found by key.",
    ),
    "INDEX_WRONG": Meaning(
        Severity.ERROR, "The index entry points to a place where no message has that key." + _INDEX
    ),
    "INDEX_CHAIN": Meaning(
        Severity.ERROR, "The index entry cannot be reached from its slot." + _INDEX
    ),
    "INDEX_HEADER": Meaning(
        Severity.ERROR, "The index file's header does not say what its entries are." + _INDEX
    ),
    "INDEX_ORDER": Meaning(
        Severity.WARN, "The entries of the index file are not in the order of the log." + _INDEX
    ),
    "INDEX_TIME": Meaning(
        Severity.WARN, "The index entry has another time than its message." + _INDEX
    ),
    "INDEX_NOT_DISPATCHED": Meaning(
        Severity.INFO, "The newest messages are not in the index yet; a start puts them there."
    ),
    "TIMER_NOT_DELIVERED": Meaning(
        Severity.WARN,
        "These are past their time, and the log has neither a delivery nor a recall of them. A"
        " start with timerWheelEnable=true delivers them, unless a record of progress says that it"
        " did.",
    ),
    "TIMER_DELIVERED_TWICE": Meaning(
        Severity.ERROR, "These were delivered again: consumers get them twice."
    ),
    "TIMER_DELIVERED_EARLY": Meaning(
        Severity.ERROR,
        "These were delivered before they were due, and consumers got them early."
        " Look whether the clock of a master was set.",
    ),
    "TIMER_RECALLED_DELIVERED": Meaning(
        Severity.ERROR,
        "These were recalled, and delivered all the same: producers were told that nobody gets"
        " them, and consumers did.",
    ),
    "CHECKPOINT_MISSING": Meaning(
        Severity.WARN,
        "There is no checkpoint: after a crash recovery has to read all of the log.",
    ),
    "CHECKPOINT_DAMAGED": Meaning(
        Severity.WARN,
        "The checkpoint is damaged: it has a time before 1970, or another size. Stop the broker and"
        " remove it;"
        " recovery then reads all of the log.",
    ),
    "CHECKPOINT_AHEAD": Meaning(
        Severity.WARN,
        "The checkpoint is newer than the newest message: after a crash recovery may begin too"
        " late.",
    ),
}


def finding(
    code: str, note: str = "", *, severity: Severity | None = None, **where: Any
) -> Finding:
    """
    Return one row of the findings.

    :param code: a code of `MEANINGS`.
    :param note: a sentence about what was found, put before the code's meaning.
    :param severity: None for the usual severity of the code.
    :param where: fields of `Finding`, which say where it was found.
    """
    usual, sentence = MEANINGS[code]
    detail = f"{note} {sentence}" if note else sentence
    return Finding(str(severity or usual), code, detail, **where)
