"""What must hold in a master/slave pair, whatever goes wrong.

The promises, and what they do not say:

- PUT_OK of a SYNC_MASTER: at that moment a slave holds the same bytes (in memory; ha.md,
  section 6). So the message survives the loss of one machine; both may lose it when the power of
  both fails under ASYNC_FLUSH.
- PUT_OK under SYNC_FLUSH: the master's own disk holds it.
- A process that is killed loses nothing that it wrote.
- A master that comes back with less than its slave has (it lost what it had sent) leaves two logs
  that do not continue each other. 4.x cannot see that on the wire (ha.md, section 14.2): here it
  is a `hazard`, named and counted, never passed over; everything else is a `violation`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmq_ha.model.java_hash import tags_code
from rmq_ha.model.status import PutMessageStatus
from rmq_ha.testing.images import LogImage, QueueImage, Seen, parse_record
from rmq_ha.testing.workload import Attempt

MAX_FINDINGS = 40


class Finding(NamedTuple):
    """
    Something that a checker saw.

    :ivar time: simulated seconds.
    :ivar kind: a short name; equal causes have equal kinds.
    """

    time: float
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.time:.6f} s: {self.kind}: {self.text}"


@dataclass
class Findings:
    """
    All that was seen.

    :ivar violations: promises that were broken.
    :ivar hazards: what 4.x does not promise, and what happened.
    """

    violations: list[Finding] = field(default_factory=list)
    hazards: list[Finding] = field(default_factory=list)

    def violation(self, time: float, kind: str, text: str) -> None:
        """A promise is broken."""
        if len(self.violations) < MAX_FINDINGS:
            self.violations.append(Finding(time, kind, text))

    def hazard(self, time: float, kind: str, text: str) -> None:
        """Something that RocketMQ 4.x allows to go wrong did."""
        if len(self.hazards) < MAX_FINDINGS:
            self.hazards.append(Finding(time, kind, text))

    def kinds(self) -> list[str]:
        """The kinds of violations, in order of appearance."""
        return list(dict.fromkeys(finding.kind for finding in self.violations))


def compare_logs(one: LogImage, other: LogImage) -> int | None:
    """
    Compare two logs byte by byte where both have bytes.

    :returns: the physical offset of the first difference; None when there is none.
    """
    start, end = max(one.start, other.start), min(one.end, other.end)
    if start >= end:
        return None
    a, b = one.slice(start, end), other.slice(start, end)
    if a == b:
        return None
    return start + next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


def check_numbering(records: Iterable[Seen]) -> str | None:
    """Queue offsets of each queue are consecutive in log order; what is wrong, or None."""
    expected: dict[tuple[str, int], int] = {}
    for record in records:
        key = record.topic, record.queue_id
        wanted = expected.get(key, record.queue_offset)
        if record.queue_offset != wanted:
            return f"{key} has {record.queue_offset} after {wanted - 1} at {record.offset}"
        expected[key] = wanted + 1
    return None


def expected_units(
    records: Iterable[Seen],
) -> dict[tuple[str, int], dict[int, tuple[int, int, int]]]:
    """The units that the consume queues should hold, rebuilt from the log."""
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    for record in records:
        units = queues.setdefault((record.topic, record.queue_id), {})
        units[record.queue_offset] = (record.offset, record.size, tags_code(record.tags))
    return queues


def check_queues(
    records: Iterable[Seen], queues: dict[tuple[str, int], QueueImage], start: int
) -> str | None:
    """
    Compare consume queues with what the log says.

    :param start: where the log starts; units of what was deleted before it do not count.
    :returns: what is wrong, or None.
    """
    expected = expected_units(records)
    for key, units in expected.items():
        image = queues.get(key, QueueImage())
        for number, unit in units.items():
            found = image.units.get(number)
            if found != unit:
                return f"{key} unit {number} is {found} instead of {unit}"
    for key, image in queues.items():
        known = expected.get(key, {})
        for number, unit in image.units.items():
            if number not in known and unit[0] >= start:
                return f"{key} has unit {number} {unit}, but the log has no such record"
    return None


def check_reading(store: Any, records: Iterable[Seen]) -> str | None:
    """
    Read every queue from its first message to its last, as a consumer does.

    :param store: a `DefaultMessageStore`.
    :returns: what is wrong, or None.
    """
    expected: dict[tuple[str, int], list[Seen]] = {}
    for record in records:
        expected.setdefault((record.topic, record.queue_id), []).append(record)
    for (topic, queue_id), wanted in expected.items():
        number, read = wanted[0].queue_offset, 0
        while read < len(wanted):
            result = store.get_message("checker", topic, queue_id, number, 32, None)
            if result is None or not result.messages:
                status = None if result is None else result.status
                return f"{topic} {queue_id}: {status} at {number}, {len(wanted) - read} are left"
            for message in result.messages:
                found = parse_record(message, 0, len(message))
                next_one = wanted[read] if read < len(wanted) else None
                if found != next_one:
                    return f"{topic} {queue_id}: read {found} instead of {next_one}"
                read += 1
            number = result.next_begin_offset
    return None


def check_index(store: Any, records: Iterable[Seen]) -> str | None:
    """Each record's unique id leads to it; what is wrong, or None."""
    for record in [record for record in records if record.unique_id][::7]:
        found = store.query(record.topic, record.unique_id, 32, 0, 1 << 62)
        ids = [parse_record(data, 0, len(data)) for data in found.records]
        if record not in ids:
            return f"a query for {record.unique_id} finds {ids} instead of {record}"
    return None


def check_attempts(
    attempts: Iterable[Attempt],
    findings: Findings,
    now: float,
    logs: dict[str, dict[str, Seen]],
    crashed_boots: set[int],
) -> None:
    """
    At the end: every result came once, and every stored message is where its status says.

    :param logs: records by unique id, by machine; the master's first.
    :param crashed_boots: lives of the master that ended in a crash; their results may be missing.
    """
    for attempt in attempts:
        name = attempt.unique_id
        if attempt.fired != 1 and (attempt.fired > 1 or attempt.boot not in crashed_boots):
            findings.violation(now, "result", f"the result of {name} came {attempt.fired} times")
        if attempt.status is None:
            continue
        held_by = [machine for machine, records in logs.items() if name in records]
        if not attempt.status.is_stored:
            if held_by and attempt.status is not PutMessageStatus.UNKNOWN_ERROR:
                text = f"{name} ended {attempt.status.name} and is in the log of {held_by}"
                findings.violation(now, "stored-after-refusal", text)
        elif "master" not in held_by and "master" not in attempt.lost_on:
            text = f"{name} ended {attempt.status.name}, and the master's log has it not"
            findings.violation(now, "lost", text)
