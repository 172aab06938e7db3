"""
Faults of timer messages, planted on purpose: `timers.py` and `timer_clients.py` find each of them.

Spec: timer.md, section 16.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.properties import TIMER_ASKS, TIMER_SRC, encode_properties
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.store_format import timer_times
from rmq_ha.server.broker.processors import send_back, timer_sends
from rmq_ha.server.broker.role import RoleSwitch
from rmq_ha.server.broker.timer_recalls import RecallEnd, RecallOutcome, TimerRecalls
from rmq_ha.server.store.delay import level
from rmq_ha.server.store.timer import delivery, frontier, records, request
from rmq_ha.server.store.timer.delivery import TimerDelivery
from rmq_ha.server.store.timer.frontier import Frontier
from rmq_ha.server.store.timer.table import TimerTable
from rmq_ha.server.store.timer.timers import TimerMessageService
from tests.sim_kit.planting import Patches
from tests.sim_kit.timer_clients import CLIENTS
from tests.sim_kit.timers import GROUP, PAIR


class TimerMutant(NamedTuple):
    """
    A fault that can be planted.

    :ivar fault: a sentence that says the fault.
    :ivar seed: one that found it.
    """

    name: str
    fault: str
    seed: int
    plant: Callable[[Patches], None]
    kind: str = PAIR


def _no_source(patches: Patches) -> None:
    make = records.delivery_of

    def without(*arguments: Any) -> BrokerMessage:
        message = make(*arguments)
        del message.properties[TIMER_SRC]
        message.properties_string = encode_properties(message.properties)
        return message

    patches.put(delivery, "delivery_of", without)


def _frontier_behind_its_run(patches: Patches) -> None:
    put_run, due = TimerDelivery._put_run, TimerDelivery._frontier_due
    patches.put(TimerDelivery, "_frontier_due", lambda self: None)

    def late(self: Any, messages: Any, offsets: Any, *, again: bool = True) -> None:
        message = due(self)
        put_run(self, messages, offsets, again=again)
        if message is not None:
            self._put([message], lambda results: None)

    patches.put(TimerDelivery, "_put_run", late)


def _nothing_is_open(patches: Patches) -> None:
    encode = frontier.encode_frontier
    patches.put(
        delivery,
        "encode_frontier",
        lambda due, offset, end, sources: encode(due, offset, end, ()),
    )


def _refused_counts_as_put(patches: Patches) -> None:
    after = TimerDelivery._after_put

    def believe(self: Any, offsets: Any, results: Any, again: bool) -> None:
        after(self, offsets, results, False)

    patches.put(TimerDelivery, "_after_put", believe)


def _java_is_exact(patches: Patches) -> None:
    def exact(properties: Any) -> int | None:
        out = timer_times.ms_in(properties, "TIMER_OUT_MS")
        return None if out is None else out + 1

    patches.put(timer_times, "due_of", exact)


def _cut_without_scan(patches: Patches) -> None:
    begin = TimerMessageService.begin
    patches.put(
        TimerMessageService,
        "begin",
        lambda self: begin(self) if self._table is None else None,
    )


def _later_recalls_ignored(patches: Patches) -> None:
    settle = TimerTable._settle_by_record

    def deaf(self: Any, number: int, unit: Sequence[int], due: int) -> None:
        if unit[2] & timer_times.ROLLED_BIT or not self.waiting.count:
            settle(self, number, unit, due)  # type: ignore[arg-type]

    patches.put(TimerTable, "_settle_by_record", deaf)


def _rolled_replaces_nothing(patches: Patches) -> None:
    settle = TimerTable._settle_by_record

    def deaf(self: Any, number: int, unit: Sequence[int], due: int) -> None:
        if unit[2] & timer_times.RECALL_BIT:
            settle(self, number, unit, due)  # type: ignore[arg-type]

    patches.put(TimerTable, "_settle_by_record", deaf)


def _frontier_in_flight(patches: Patches) -> None:
    put_run = TimerDelivery._put_run

    def eager(self: Any, messages: Any, offsets: Any, *, again: bool = True) -> None:
        table = self._table
        up_to, under_way = table.waiting.up_to, set(offsets)
        table.greatest = max([table.greatest, *offsets])
        table.waiting.up_to = lambda due, offset: [
            message for message in up_to(due, offset) if message not in under_way
        ]
        try:
            put_run(self, messages, offsets, again=again)
        finally:
            del table.waiting.up_to

    patches.put(TimerDelivery, "_put_run", eager)


def _due_alone(patches: Patches) -> None:
    def settles(self: Any, due_ms: int, source: Any) -> bool:
        is_told = source.physical_offset < self.end and due_ms <= self.due_ms
        return is_told and source not in self.unsettled

    patches.put(Frontier, "settles", settles)


def _before_level(patches: Patches) -> None:
    async def is_ready(self: Any, term: int) -> bool:
        return bool(self._group.leads(term))

    patches.put(TimerDelivery, "is_level", property(lambda self: True))
    patches.put(RoleSwitch, "_is_ready", is_ready)  # the change of role waits, too


def _refused_in_flight(patches: Patches) -> None:
    after, land = TimerDelivery._after_put, TimerDelivery._land

    def keep(self: Any, offsets: Any, results: Any, again: bool) -> None:
        kept = self.__dict__.setdefault("kept", set())
        for (_, offset), result in zip(offsets, results, strict=True):
            if result.append is None:
                kept.add(offset)
        after(self, offsets, results, again)
        self.in_flight.update(kept)

    def land_without(self: Any) -> None:
        land(self)
        self.in_flight.update(self.__dict__.get("kept", ()))

    patches.put(TimerDelivery, "_after_put", keep)
    patches.put(TimerDelivery, "_land", land_without)


def _time_out_is_refusal(patches: Patches) -> None:
    after = TimerDelivery._after_put

    def believe(self: Any, offsets: Any, results: Any, again: bool) -> None:
        results = [
            result if result.status is PutMessageStatus.PUT_OK else result._replace(append=None)
            for result in results
        ]
        after(self, offsets, results, again)

    patches.put(TimerDelivery, "_after_put", believe)


def _own_is_rounded(patches: Patches) -> None:
    due_of = timer_times.due_of

    def late(properties: Any) -> int | None:
        due, out = due_of(properties), timer_times.ms_in(properties, "TIMER_OUT_MS")
        is_own = due is not None and out is not None and due == out + 1
        return out + 1000 if is_own and out is not None else due

    patches.put(timer_times, "due_of", late)


def _cleaner_asks_nobody(patches: Patches) -> None:
    patches.put(TimerMessageService, "releases", lambda self, end: True)


def _precedence_swapped(patches: Patches) -> None:
    patches.put(request, "TIMER_ASKS", tuple(reversed(TIMER_ASKS)))


def _timer_beats_level(patches: Patches) -> None:
    def asks(properties: Any) -> bool:
        return any(properties.get(name) for name in TIMER_ASKS)

    patches.put(request, "asks_for_timer", asks)
    patches.put(timer_sends, "asks_for_timer", asks)


def _overflow_is_past(patches: Patches) -> None:
    asked = request.asked_due

    def wrapped(properties: Any, now_ms: int) -> int:
        due = asked(properties, now_ms)
        return now_ms - 1 if due is None else due

    patches.put(timer_sends, "asked_due", wrapped)


def _no_reserve(patches: Patches) -> None:
    patches.put(timer_sends, "has_room", lambda text: True)


def _half_is_timed(patches: Patches) -> None:
    patches.put(timer_sends, "HALF_TOPIC", "no such topic")


def _source_believed(patches: Patches) -> None:
    drop = request.drop_written_by_brokers

    def keep(properties: dict[str, str]) -> None:
        source = properties.get(TIMER_SRC)
        drop(properties)
        if source is not None:
            properties[TIMER_SRC] = source

    patches.put(timer_sends, "drop_written_by_brokers", keep)


def _source_sent_back(patches: Patches) -> None:
    patches.put(send_back, "TIMER_SRC", "no such property")
    patches.put(level, "TIMER_SRC", "no such property")


def _recall_answered_early(patches: Patches) -> None:
    put = TimerRecalls._put

    async def at_once(self: Any, begun: Any, make: Any) -> RecallEnd:
        Deferred.fromCoroutine(put(self, begun, make)).addErrback(lambda failure: None)
        return RecallEnd(RecallOutcome.RECALLED)

    patches.put(TimerRecalls, "_put", at_once)


TIMER_MUTANTS = (
    TimerMutant("no-source", "deliveries do not name their record", 0, _no_source),
    TimerMutant("frontier-behind", "a frontier stands behind its run", 7, _frontier_behind_its_run),
    TimerMutant("nothing-open", "a frontier names no open message", 4, _nothing_is_open),
    TimerMutant(
        "refused-is-put", "a refused delivery is not tried again", 44, _refused_counts_as_put
    ),
    TimerMutant("java-exact", "times that Java rounded count as exact", 0, _java_is_exact),
    TimerMutant("cut-without-scan", "a cut log keeps its table", 0, _cut_without_scan),
    TimerMutant("recalls-ignored", "recalls settle nothing", 0, _later_recalls_ignored),
    TimerMutant("rolled-twice", "a rolled copy replaces nothing", 2, _rolled_replaces_nothing),
    TimerMutant(
        "frontier-in-flight", "a frontier counts its own run as settled", 0, _frontier_in_flight
    ),
    TimerMutant("due-alone", "a frontier settles all of its due time", 9, _due_alone),
    TimerMutant(
        "before-level",
        "a new master does not wait for queues",
        1,
        _before_level,
        GROUP,
    ),
    TimerMutant("refused-in-flight", "a refused delivery stays in flight", 14, _refused_in_flight),
    TimerMutant(
        "time-out-is-refusal",
        "a delivery that was not confirmed in time counts as refused",
        1,
        _time_out_is_refusal,
        GROUP,
    ),
    TimerMutant("own-rounded", "own times count as rounded by Java", 0, _own_is_rounded),
    TimerMutant("cleaner-asks-nobody", "files go with waiting messages", 5, _cleaner_asks_nobody),
    TimerMutant("precedence", "the time counts before delays", 0, _precedence_swapped, CLIENTS),
    TimerMutant("timer-beats-level", "timers win over levels", 0, _timer_beats_level, CLIENTS),
    TimerMutant("overflow", "a delay without end is over at once", 0, _overflow_is_past, CLIENTS),
    TimerMutant("no-reserve", "deliveries get no room for properties", 1, _no_reserve, CLIENTS),
    TimerMutant("half-timed", "half messages wait", 0, _half_is_timed, CLIENTS),
    TimerMutant("source-believed", "clients may settle messages", 0, _source_believed, CLIENTS),
    TimerMutant("source-sent-back", "copies of deliveries settle", 1, _source_sent_back, CLIENTS),
    TimerMutant(
        "recall-early",
        "a recall is answered before it is stored",
        8,
        _recall_answered_early,
        CLIENTS,
    ),
)
