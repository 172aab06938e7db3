"""Faults of timer messages, planted on purpose: `tests/sim_kit/timers.py` finds each of them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.properties import TIMER_SRC, encode_properties
from rmq_ha.base.store_format import timer_times
from rmq_ha.server.store.timer import delivery, frontier, records
from rmq_ha.server.store.timer.delivery import TimerDelivery
from rmq_ha.server.store.timer.table import TimerTable
from rmq_ha.server.store.timer.timers import TimerMessageService
from tests.sim_kit.planting import Patches
from tests.sim_kit.timers import PAIR


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


TIMER_MUTANTS = (
    TimerMutant("no-source", "deliveries do not name their record", 0, _no_source),
    TimerMutant("frontier-behind", "a frontier stands behind its run", 1, _frontier_behind_its_run),
    TimerMutant("nothing-open", "a frontier names no open message", 1, _nothing_is_open),
    TimerMutant(
        "refused-is-put", "a refused delivery is not tried again", 8, _refused_counts_as_put
    ),
    TimerMutant("java-exact", "times that Java rounded count as exact", 0, _java_is_exact),
    TimerMutant("cut-without-scan", "a cut log keeps its table", 0, _cut_without_scan),
    TimerMutant("recalls-ignored", "recalls settle nothing", 0, _later_recalls_ignored),
    TimerMutant("rolled-twice", "a rolled copy replaces nothing", 5, _rolled_replaces_nothing),
)
