"""What consumers of pops saw in a simulation, and the checker of the promises about it.

The checker's rules have the names of pop.md, section 15: C1 to C10. Times are simulated seconds.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rmq_ha.server.pop.face import LeaseStatus
from tests.sim_kit.promises import Breach, some

ACKED_AGAIN = "C1 acknowledged and handed out again"
NOT_CONSUMED = "C2 never acknowledged"
TWICE = "C2 copied twice"
OVERLAP = "C3 two leases at a time"
LATE = "C4 handed out again too late"
COPY = "C5 copy differs"
ORDER = "C6 out of order"
ANSWERS = "C9 not answered once"

_TICK_S = 0.02
"""The wall clock has whole ms, and the end of a lease is rounded up."""


@dataclass(slots=True)
class Delivery:
    """
    One message in the answer of a pop.

    :ivar asked: when the broker chose the messages.
    :ivar answered: when the answer came.
    :ivar due: until when it is hidden, as the consumer knows it.
    :ivar acks: the answers to acknowledgements, and when they came.
    :ivar is_due_sure: whether nobody tried to end the lease.
    :ivar asks: number of acknowledgements.
    """

    group: str
    key: str
    topic: str
    queue_id: int
    offset: int
    pop_ms: int
    asked: float
    answered: float
    due: float
    reconsumed: int
    body: bytes
    attempt: str = ""
    acks: list[tuple[float, LeaseStatus]] = field(default_factory=list)
    is_due_sure: bool = True
    asks: int = 0

    def acked_at(self) -> float | None:
        """Return when an acknowledgement was confirmed; None if none was."""
        return min([at for at, status in self.acks if status is LeaseStatus.DONE], default=None)

    @property
    def may_be_acked(self) -> bool:
        """Whether an acknowledgement may count."""
        refused = (LeaseStatus.UNKNOWN, LeaseStatus.NOT_IN_BATCH)
        return self.asks > sum(1 for _, status in self.acks if status in refused)


class PopHistory:
    """
    All deliveries.

    :ivar troubles: times of faults; what lasts over one is judged less strictly.
    :ivar is_lossy: whether faults may lose what was acknowledged.
    :ivar has_steps: whether a wall clock was set, so that a new master may err by more than its
        grace.
    :ivar low: by queue id, the first message that no retention deleted.
    """

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.bodies: dict[str, bytes] = {}
        self.troubles: list[float] = []
        self.is_lossy = False
        self.has_steps = False
        self.low: dict[int, int] = {}
        self.calls = 0
        self.answers = 0
        self.unanswered_lives = 0

    def breaches(self, in_order: str) -> Iterator[Breach]:
        """
        Yield what is broken.

        :param in_order: the group that pops in order.
        """
        by_message: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
        for delivery in sorted(self.deliveries, key=lambda item: item.asked):
            by_message[delivery.group, delivery.key].append(delivery)
        for (group, key), deliveries in by_message.items():
            where = f"{key} of {group}"
            yield from self._acked_again(where, deliveries)
            yield from self._copies(where, deliveries, group == in_order)
            if group != in_order:
                yield from self._overlaps(where, deliveries)
        yield from self._order([item for item in self.deliveries if item.group == in_order])

    def _acked_again(self, where: str, deliveries: Sequence[Delivery]) -> Iterator[Breach]:
        if self.is_lossy:
            return
        acked = min(
            [at for item in deliveries if (at := item.acked_at()) is not None], default=None
        )
        for item in deliveries:
            if acked is not None and item.answered > acked:
                yield Breach(
                    ACKED_AGAIN, f"{where}: acknowledged at {acked:.3f}, again {item}", (where,)
                )
                return

    def _copies(
        self, where: str, deliveries: Sequence[Delivery], is_orderly: bool
    ) -> Iterator[Breach]:
        before: Delivery | None = None
        for item in deliveries:
            if item.body != self.bodies.get(item.key):
                yield Breach(COPY, f"{where}: another body at {item.asked:.3f}", (where,))
            if before is not None and not is_orderly:
                is_same = (item.topic, item.offset) == (before.topic, before.offset)
                grows = item.reconsumed > before.reconsumed
                if not self.is_lossy and (is_same or not grows):
                    yield Breach(
                        COPY,
                        f"{where}: {item.topic} {item.offset} has reconsumeTimes "
                        f"{item.reconsumed} after {before.topic} {before.offset} with "
                        f"{before.reconsumed}",
                        (where,),
                    )
            before = item

    def _is_quiet(self, start: float, end: float) -> bool:
        return not any(start - 3.5 <= at <= end for at in self.troubles)

    def _overlaps(self, where: str, deliveries: Sequence[Delivery]) -> Iterator[Breach]:
        for before, item in pairwise(deliveries):
            if not before.is_due_sure:
                continue
            is_quiet = self._is_quiet(before.asked, item.asked)
            may_err = not is_quiet and (self.has_steps or self.is_lossy)
            if item.asked < before.due - _TICK_S and not may_err:
                yield Breach(
                    OVERLAP,
                    f"{where}: hidden until {before.due:.3f}, again at {item.asked:.3f}",
                    (where,),
                )
            if is_quiet and item.asked > before.due + 4.0:
                yield Breach(
                    LATE, f"{where}: due at {before.due:.3f}, again at {item.asked:.3f}", (where,)
                )

    def _order(self, deliveries: Sequence[Delivery]) -> Iterator[Breach]:
        """Check that no lease of a queue begins while another attempt's messages are hidden."""
        queues: dict[int, list[Delivery]] = defaultdict(list)
        for item in sorted(deliveries, key=lambda item: item.asked):
            queues[item.queue_id].append(item)
        for queue_id, items in queues.items():
            held: dict[int, list[Delivery]] = {}
            for item in items:
                for offset, others in held.items():
                    if offset < self.low.get(queue_id, 0):
                        continue
                    last = others[-1]
                    is_over = any(one.may_be_acked or not one.is_due_sure for one in others)
                    is_over = is_over or item.asked >= last.due - _TICK_S
                    if not is_over and item.attempt != last.attempt:
                        may_err = self.is_lossy or self.has_steps
                        if self._is_quiet(last.asked, item.asked) or not may_err:
                            yield Breach(
                                ORDER,
                                f"queue {queue_id}: {item.offset} at {item.asked:.3f}, while "
                                f"{offset} is hidden until {last.due:.3f}",
                                (item.key,),
                            )
                before = held.get(item.offset, [])
                is_same = bool(before) and before[-1].attempt == item.attempt
                held[item.offset] = [*before, item] if is_same else [item]

    def unanswered(self) -> Breach | None:
        """Return that requests to brokers that live were not answered once."""
        if self.answers == self.calls - self.unanswered_lives:
            return None
        text = (
            f"{self.calls} calls, {self.answers} answers, {self.unanswered_lives} at dead brokers"
        )
        return Breach(ANSWERS, text, ())


def not_consumed(keys: Sequence[str], group: str) -> Breach:
    """Return that messages were not consumed by a group."""
    return Breach(NOT_CONSUMED, f"{len(keys)} of {group}: {some(keys)}", tuple(keys))
