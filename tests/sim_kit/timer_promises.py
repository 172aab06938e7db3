"""The judge of timer messages: what a log has to show at the end, after all is due.

- Each message that waited and was not recalled was delivered exactly once.
- No message was delivered before it was due, by the clock of the broker that delivered it.
- A message whose recall is in the log was not delivered.
- A frontier claims no message that was not settled before it.
- While nothing disturbs the master, a message comes at most 100 ms after it is due.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from rmq_ha.base.model.properties import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_SRC,
)
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.base.store_format.timer_times import RECALL_BIT, due_in, timer_code
from tests.sim_kit.promises import Breach, some

LOST_TIMERS = "timer messages lost"
TWICE = "timer messages twice"
EARLY = "timer messages early"
LATE = "timer messages late"
RECALLED = "recalled and delivered"
FRONTIER = "frontier claims too much"
MOST_LATE_MS = 100


def timer_breaches(
    records: Iterable[Record], recalled: Iterable[str] = (), calm_from: int | None = None
) -> Iterator[Breach]:
    """
    Compare the timer messages of a log with what became of them.

    :param records: in the order of the log.
    :param recalled: sources of messages whose recall was acknowledged.
    :param calm_from: messages behind this physical offset must not come late.
    """
    dues: dict[str, int] = {}
    replaced, taken_back = set[str](), set[str]()
    delivered, early, late = Counter[str](), list[str](), list[str]()
    claimed: list[str] = []
    open_sources: dict[str, tuple[int, int, int]] = {}
    for record in records:
        properties = record.properties
        if record.topic == TIMER_PROGRESS_TOPIC:
            claimed += _claimed(record, open_sources)
            continue
        source = properties.get(TIMER_SRC, "")
        open_sources.pop(source, None)
        if record.topic == TIMER_TOPIC:
            code = timer_code(properties) or 0
            own = f"{record.physical_offset}-{record.queue_offset}"
            if code & RECALL_BIT:
                taken_back.add(source)
                continue
            replaced.add(source)
            dues[own] = due_in(code)
            open_sources[own] = dues[own], record.queue_offset, record.physical_offset
        elif source:
            delivered[source] += 1
            asked = _time_asked(record)
            if asked is None:
                continue
            # Its store time is never before that of another record, though a clock goes back.
            late_ms = int(properties[TIMER_DEQUEUE_MS]) - asked
            if late_ms < 0:
                early.append(source)
            is_calm = calm_from is not None and int(source.partition("-")[0]) >= calm_from
            if is_calm and late_ms > MOST_LATE_MS:
                late.append(source)
    owed = dues.keys() - replaced - taken_back
    replaced.discard("")
    groups = (
        (LOST_TIMERS, "wait for ever", sorted(owed - delivered.keys())),
        (TWICE, "delivered more than once", sorted(i for i, n in delivered.items() if n > 1)),
        (TWICE, "delivered beside a later copy", sorted(replaced & delivered.keys())),
        (EARLY, "delivered before they were due", early),
        (LATE, f"delivered more than {MOST_LATE_MS} ms after they were due", late),
        (RECALLED, "recalled and delivered", sorted(taken_back & delivered.keys())),
        (RECALLED, "recall acknowledged, and delivered", sorted({*recalled} & owed)),
        (FRONTIER, "claimed by a frontier and not settled", claimed),
    )
    for kind, what, sources in groups:
        if sources:
            yield Breach(kind, f"{len(sources)} {what}: {some(sources)}", tuple(sources))


def _time_asked(delivery: Record) -> int | None:
    """Return the time that a client asked for; None if it asked for a delay."""
    properties = delivery.properties
    if {TIMER_DELAY_SEC, TIMER_DELAY_MS} & properties.keys():
        return None
    if not {TIMER_DEQUEUE_MS, TIMER_DELIVER_MS} <= properties.keys():
        return None  # no delivery, but a copy that a client made, or that was sent back
    return int(properties[TIMER_DELIVER_MS])


def _claimed(frontier: Record, waiting: dict[str, tuple[int, int, int]]) -> Iterator[str]:
    said = json.loads(frontier.body)
    for source, (due, number, place) in waiting.items():
        is_below = (due, number) <= (said["due"], said["offset"]) and place < said["end"]
        if is_below and source not in said["open"]:
            yield source
