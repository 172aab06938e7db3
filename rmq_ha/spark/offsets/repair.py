"""What an operator could do about it: commands and a table to put in place. Nothing is applied."""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from rmq_ha.spark.host.files import write_atomic
from rmq_ha.spark.offsets.model import DELAY, GROUP, OFFSET, QUEUE, TOPIC
from rmq_ha.spark.offsets.pairing import Pairing, cases
from rmq_ha.spark.offsets.rules import Case, judge
from rmq_ha.wire import fastjson


class Step(NamedTuple):
    """
    :ivar command: for a shell; empty: nothing can be typed.
    """

    why: str
    command: str


def steps(pairing: Pairing, max_lag: int = 0) -> list[Step]:
    """In the order in which they are to be done."""
    found: list[tuple[int, Step]] = []
    tables: set[str] = set()
    for case in cases(pairing):
        ruling = judge(case, max_lag)
        if case.key.kind in (OFFSET, DELAY):
            if ruling.codes and set(ruling.codes) - {"ORPHAN_ON_SLAVE", "MASTER_BEYOND_MAX"}:
                tables.add(case.key.kind)
            continue
        for code in ruling.codes:
            step = _step(pairing, case, code)
            if step is not None:
                found.append(step)
    found += [(5, _table_step(pairing, kind)) for kind in sorted(tables, reverse=True)]
    unique = dict.fromkeys(sorted(found))
    return [step for _, step in unique]


def _step(pairing: Pairing, case: Case, code: str) -> tuple[int, Step] | None:
    slave = pairing.slave.place
    if code in ("QUEUE_AHEAD", "LOG_AHEAD"):
        return 0, Step(
            f"{slave} holds what its master lost: stop both, keep copies, decide which store is"
            " right; verify-replica shows where they part",
            f"rmqha-spark verify-replica {quote(pairing.masters[-1].place)} {quote(slave)}",
        )
    if code in ("NOT_REPLICATED", "LOG_BEHIND"):
        return 1, Step(
            f"{slave} lacks messages: stop producers (or wipe the write permission) and wait until"
            " both logs are equally long",
            "mqadmin wipeWritePerm -b BROKER_NAME -n NAMESRV",
        )
    if case.key.kind == TOPIC and code in ("MISSING_TOPIC_CONFIG", "QUEUE_NUM_DRIFT"):
        topic = quote(case.key.topic or "")
        return 3, Step(
            f"the topic {case.key.topic} is not on {slave} as on the master",
            f"mqadmin updateTopic -b SLAVE_ADDRESS -t {topic} -r {case.master_low}"
            f" -w {case.master}",
        )
    if case.key.kind == GROUP and code == "MISSING_GROUP":
        return 4, Step(
            f"the consumer group {case.key.group} is not on {slave}",
            f"mqadmin updateSubGroup -b SLAVE_ADDRESS -g {quote(case.key.group or '')}",
        )
    if code in ("CONTENT_DRIFT", "STALE_TABLE", "VERSION_DRIFT"):
        return 2, Step(
            f"{slave} does not copy its master's tables: its log says why (address of the master,"
            " firewall on the master's port - 2)",
            "",
        )
    return None


def _table_step(pairing: Pairing, kind: str) -> Step:
    name = "consumerOffset.json" if kind == OFFSET else "delayOffset.json"
    return Step(
        f"offsets of {pairing.slave.place} differ: with that broker stopped, put the merged table"
        " in place before it starts as master",
        f"cp {name} STORE_PATH_ROOT_DIR/config/{name}",
    )


def merged_offsets(pairing: Pairing) -> bytes:
    """
    `consumerOffset.json` for the slave: the master's offsets, and those only the slave has.

    None lies beyond what the slave's queue holds.
    """
    table = pairing.slave.offsets()
    ends = pairing.slave.bounds()
    for name, queues in pairing.masters[-1].offsets().items():
        topic = name.partition("@")[0]
        merged = table.setdefault(name, {})
        for queue_id, offset in queues.items():
            end = ends.get((topic, queue_id), (0, offset))[1]
            merged[queue_id] = min(offset, end)
    return fastjson.pretty({"offsetTable": table})


def merged_delays(pairing: Pairing) -> bytes:
    """`delayOffset.json` for the slave: the master's, not beyond what the slave's queues hold."""
    ends = {
        fact.queue_id: fact.value or 0
        for fact in pairing.slave.facts
        if fact.kind == QUEUE and fact.topic == _schedule(pairing)
    }
    levels = {
        (fact.queue_id or 0) + 1: min(fact.value or 0, ends.get(fact.queue_id, fact.value or 0))
        for fact in pairing.masters[-1].facts
        if fact.kind == DELAY
    }
    return fastjson.pretty({"offsetTable": dict(sorted(levels.items()))})


def _schedule(pairing: Pairing) -> str | None:
    return next((fact.topic for fact in pairing.masters[-1].facts if fact.kind == DELAY), None)


def script(plan: Sequence[Step]) -> str:
    """A text to read and to copy from; run as it is, it does nothing."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Sequence[Step]) -> Iterator[str]:
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
    Write plan and merged tables, a directory for each slave if there are several.

    :raises OSError: the disk refuses.
    """
    for number, pairing in enumerate(pairings, 1):
        place = directory if len(pairings) == 1 else f"{directory}/slave-{number}"
        write_atomic(f"{place}/repair.sh", script(steps(pairing, max_lag)).encode())
        write_atomic(f"{place}/consumerOffset.json", merged_offsets(pairing))
        if DELAY in pairing.kinds:
            write_atomic(f"{place}/delayOffset.json", merged_delays(pairing))
