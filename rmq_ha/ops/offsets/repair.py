"""Plans a repair: commands, and tables to put in place. Nothing is applied."""

import json
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from rmq_ha.base.host.files import write_atomic
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.wire import fastjson
from rmq_ha.ops.offsets.model import DELAY, GROUP, OFFSET, QUEUE, TOPIC, Snapshot, canonical
from rmq_ha.ops.offsets.pairing import Pairing, cases, is_pair
from rmq_ha.ops.offsets.rules import Case, judge


class RepairStep(NamedTuple):
    """A step of the plan, and a command for a shell, which may be empty."""

    why: str
    command: str


def steps(pairing: Pairing, max_lag: int = 0) -> list[RepairStep]:
    """Return the steps in the order in which they are to be done; none if the two are no pair."""
    if not is_pair(pairing):
        return []
    ranked: list[tuple[int, RepairStep]] = []
    tables: set[str] = set()
    for case in cases(pairing):
        ruling = judge(case, max_lag)
        # If the master lacks the value or has it damaged, the right value is not known.
        known = case.on_master and set(ruling.codes) - {"MASTER_BEYOND_MAX", "MASTER_DAMAGED"}
        if known and case.key.kind in (OFFSET, DELAY):
            tables.add(case.key.kind)
        told = (_step(pairing, case, code) for code in ruling.codes)
        ranked += [step for step in told if step is not None]
    ranked += [(5, _table_step(pairing, kind)) for kind in tables]
    unique = dict.fromkeys(sorted(ranked))
    return [step for _, step in unique]


def _step(pairing: Pairing, case: Case, code: str) -> tuple[int, RepairStep] | None:
    """Return the step against a fault and its rank, 0 to be done first; None: no step helps."""
    slave = pairing.slave.place
    if code in ("QUEUE_AHEAD", "LOG_AHEAD"):
        return 0, RepairStep(
            f"{slave} holds what its master lost: stop both, keep copies, decide which store is"
            " right; verify-replica shows where they part",
            f"rmqha-spark verify-replica {quote(pairing.masters[-1].place)} {quote(slave)}",
        )
    if code in ("NOT_REPLICATED", "LOG_BEHIND"):
        return 1, RepairStep(
            f"{slave} lacks messages: stop producers (or wipe the write permission) and wait until"
            " both logs are equally long",
            "mqadmin wipeWritePerm -b BROKER_NAME -n NAMESRV",
        )
    if case.key.kind == TOPIC and code in ("MISSING_TOPIC_CONFIG", "QUEUE_NUM_DRIFT"):
        topic = quote(case.key.topic or "")
        return 3, RepairStep(
            f"the topic {case.key.topic} is not on {slave} as on the master",
            f"mqadmin updateTopic -b SLAVE_ADDRESS -t {topic} -r {case.master_low}"
            f" -w {case.master}{_topic_options(case)}",
        )
    if case.key.kind == GROUP and code == "MISSING_GROUP":
        return 4, RepairStep(
            f"the consumer group {case.key.group} is not on {slave}",
            f"mqadmin updateSubGroup -b SLAVE_ADDRESS -g {quote(case.key.group or '')}"
            f"{_group_options(case)}",
        )
    if code in ("CONTENT_DRIFT", "STALE_TABLE", "VERSION_DRIFT"):
        return 2, RepairStep(
            f"{slave} does not copy its master's tables: its log says why (address of the master,"
            " firewall on the master's port - 2)",
            "",
        )
    return None


def _topic_options(case: Case) -> str:
    """Return the options of mqadmin that give a topic the master's permission and order."""
    topic = json.loads(case.master_text or "{}")
    order = " -o true" if topic.get("order") else ""
    return f" -p {topic.get('perm', 6)}{order}"


_GROUP_OPTIONS = {
    "s": "consumeEnable",
    "m": "consumeFromMinEnable",
    "d": "consumeBroadcastEnable",
    "q": "retryQueueNums",
    "r": "retryMaxTimes",
    "i": "brokerId",
    "w": "whichBrokerWhenConsumeSlowly",
    "a": "notifyConsumerIdsChangedEnable",
}


def _group_options(case: Case) -> str:
    """Return all options of a group: mqadmin sets those not given to its own defaults."""
    group = json.loads(case.master_text or "{}")
    return "".join(
        f" -{letter} {canonical(group[name])}"
        for letter, name in _GROUP_OPTIONS.items()
        if name in group
    )


def _table_step(pairing: Pairing, kind: str) -> RepairStep:
    """Return the step that puts a merged table in place, of the kind `OFFSET` or `DELAY`."""
    name = "consumerOffset.json" if kind == OFFSET else "delayOffset.json"
    moves = (
        ""
        if pairing.masters[-1].is_resting
        else "; the master still runs, and its table grows old: stop it first and make this again"
    )
    return RepairStep(
        f"offsets of {pairing.slave.place} differ: with that broker stopped, put the merged table"
        f" in place before it starts as master{moves}",
        f"cp {name} STORE_PATH_ROOT_DIR/config/{name}",
    )


def merged_offsets(pairing: Pairing) -> bytes:
    """
    Return `consumerOffset.json` for the slave: the master's offsets, and those that only the slave
    has.

    No offset lies beyond the end of the slave's queue, and none is lower than the slave's if the
    master crashed, because the slave's is then better known.
    """
    table = pairing.slave.offsets()
    is_older = pairing.masters[-1].is_crashed
    ends = pairing.slave.bounds()
    for name, queues in pairing.masters[-1].offsets().items():
        topic = name.partition("@")[0]
        merged = table.setdefault(name, {})
        for queue_id, offset in queues.items():
            end = ends.get((topic, queue_id), (0, offset))[1]
            known = merged.get(queue_id, offset) if is_older else offset
            merged[queue_id] = min(max(offset, known), end)
    return fastjson.pretty({"offsetTable": table})


def merged_delays(pairing: Pairing) -> bytes:
    """Return `delayOffset.json` for the slave: the master's, up to the ends of its queues."""
    ends = {
        fact.queue_id: fact.value or 0
        for fact in pairing.slave.facts
        if fact.kind == QUEUE and fact.topic == SCHEDULE_TOPIC
    }
    master = pairing.masters[-1]
    known = _delays(pairing.slave)
    levels = dict(known)
    for queue_id, value in _delays(master).items():
        newest = max(value, known.get(queue_id, value)) if master.is_crashed else value
        levels[queue_id] = min(newest, ends.get(queue_id, newest))
    levels = {queue_id + 1: value for queue_id, value in levels.items()}
    return fastjson.pretty({"offsetTable": dict(sorted(levels.items()))})


def _delays(snapshot: Snapshot) -> dict[int, int]:
    """Return the progress of the delay levels, by queue id (level - 1)."""
    return {fact.queue_id or 0: fact.value or 0 for fact in snapshot.facts if fact.kind == DELAY}


def script(plan: Sequence[RepairStep]) -> str:
    """Return the plan as a text to read and to copy from; as a script it does nothing."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Sequence[RepairStep]) -> Iterator[str]:
    yield "#!/bin/sh"
    yield "# What verify-offsets proposes. Nothing is done by it, and nothing by running this file:"
    yield "# read, fill in the words in capitals, and run the lines that you want."
    for number, step in enumerate(plan, 1):
        yield ""
        yield f"# {number}. {step.why}"
        if step.command:
            yield f"# {step.command}"


def save(pairings: Sequence[Pairing], directory: str, max_lag: int = 0) -> None:
    """
    Write the plan and merged tables, with a directory for each slave if there are several.

    :raises OSError: the disk refuses.
    """
    for number, pairing in enumerate(pairings, 1):
        if not is_pair(pairing):
            continue
        place = directory if len(pairings) == 1 else f"{directory}/slave-{number}"
        write_atomic(f"{place}/repair.sh", script(steps(pairing, max_lag)).encode())
        write_atomic(f"{place}/consumerOffset.json", merged_offsets(pairing))
        if DELAY in pairing.kinds:
            write_atomic(f"{place}/delayOffset.json", merged_delays(pairing))
