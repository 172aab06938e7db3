"""Judges the timer messages of a log; `rmq_ha.ops.offline.timer_rules` has the rules."""

from collections.abc import Iterator

from rmq_ha.base.model.properties import TIMER_DEQUEUE_MS, decode_properties
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offline.records import LogStretch
from rmq_ha.ops.offline.timer_rules import (
    FoundTimerFault,
    TimerAudit,
    TimerFault,
    is_timer_record,
)
from rmq_ha.ops.offsets.findings import Finding, Severity

_MARK = f"{TIMER_DEQUEUE_MS}\x01".encode()


class TimerCheck:
    """Checks the timer messages of one store, whose records are given in the order of the log."""

    def __init__(self) -> None:
        self._audit = TimerAudit()
        self._faults: list[FoundTimerFault] = []

    def take(self, stretch: LogStretch) -> None:
        """
        Take records of the log.

        Few logs have timer messages. So the records are looked at one by one only if their topics
        or bytes show that some are about timer messages.
        """
        rows, data = stretch.run.rows, stretch.data
        topics = {topic for topic, _ in rows.names}
        if not topics & {TIMER_TOPIC, TIMER_PROGRESS_TOPIC} and _MARK not in data:
            self._audit.saw(rows[-1][5])
            return
        for row in rows:
            topic, place, stored, text = row[0], row[2], row[5], row[11]
            self._audit.saw(stored)
            if is_timer_record(topic, text):
                properties = decode_properties(text)
                self._faults += self._audit.take(topic, properties, place, row[6], stored)
            elif topic == TIMER_PROGRESS_TOPIC:
                body = decode_record(data, place - stretch.position).body
                self._audit.take_frontier(body, place)

    def findings(self, name: str, *, is_log_whole: bool) -> Iterator[Finding]:
        """
        Yield a finding for each kind of fault, with the place of its first message. Call this after
        the last record.

        :param is_log_whole: whether no part of the log is missing or damaged. If it is not, missing
            deliveries are no faults, because they may be in the parts that are lost.
        """
        faults = [*self._faults, *(self._audit.end() if is_log_whole else ())]
        kinds: dict[tuple[TimerFault, bool], list[FoundTimerFault]] = {}
        for item in faults:
            kinds.setdefault((item.fault, item.is_passed_over), []).append(item)
        for (fault, is_passed_over), items in sorted(kinds.items()):
            first = min(items, key=lambda item: item.place)
            note = f"{len(items)} timer messages; the first is that of {first.source}."
            yield finding(
                fault.value,
                f"{note} {_PASSED_OVER}" if is_passed_over else note,
                severity=Severity.ERROR if is_passed_over else None,
                broker=name,
                topic=TIMER_TOPIC,
                physical_offset=first.place,
            )


_PASSED_OVER = "A record of progress says that they were delivered: send them again."
