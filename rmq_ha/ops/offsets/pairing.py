"""Chooses the master's samples for a slave's snapshot, and makes a `Case` of each key."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rmq_ha.base.model.topics import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX, is_system
from rmq_ha.ops.offsets.codes import MEANINGS
from rmq_ha.ops.offsets.findings import Severity
from rmq_ha.ops.offsets.model import (
    DELAY,
    GROUP,
    LOG,
    OFFSET,
    QUEUE,
    TEXTS,
    TOPIC,
    Fact,
    FactKey,
    Snapshot,
)
from rmq_ha.ops.offsets.rules import Case, Ruling, judge


class Pairing(NamedTuple):
    """
    A slave's snapshot and the samples of its master around it.

    :ivar is_proven: whether the first sample is older than the slave's tables may be.
    :ivar is_first: whether the slave is the first of several; findings about the master are
        reported for it only.
    """

    masters: Sequence[Snapshot]
    slave: Snapshot
    is_proven: bool
    is_first: bool = True

    @property
    def sample_before(self) -> int:
        """Index of the last sample that ended before the slave's began, or of the first."""
        earlier = [
            index for index, master in enumerate(self.masters) if master.ended <= self.slave.began
        ]
        return earlier[-1] if earlier else 0

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of facts that all snapshots could read."""
        return frozenset.intersection(self.slave.kinds, *(item.kinds for item in self.masters))

    @property
    def uncertain_queues(self) -> frozenset[tuple[str, int]]:
        """Queues whose end is not known on one of the sides."""
        sides = (self.slave, *self.masters)
        return frozenset[tuple[str, int]]().union(*(item.uncertain_queues for item in sides))

    def bounds_of(self, snapshot: Snapshot) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the bounds of the queues of a side, without those that are not compared."""
        uncertain = self.uncertain_queues
        bounds = snapshot.bounds().items()
        return {queue: ends for queue, ends in bounds if queue not in uncertain}

    def facts_of(self, snapshot: Snapshot) -> list[Fact]:
        """Return the facts that both sides tell: kinds, topics, and queues with known ends."""
        kinds = self.kinds
        own = frozenset[str]().union(*(item.own for item in (self.slave, *self.masters)))
        uncertain = self.uncertain_queues
        return [
            fact
            for fact in snapshot.facts
            if fact.kind in kinds
            and not (fact.kind == TOPIC and fact.topic in own)
            and not (fact.kind == QUEUE and (fact.topic, fact.queue_id) in uncertain)
        ]


def pair(
    masters: Sequence[Snapshot], slave: Snapshot, skew_ms: int, *, is_first: bool = True
) -> Pairing:
    """
    Choose the master's samples with which a slave's sample can be compared.

    :param skew_ms: by how many ms a slave's tables may be older than its sample.
    """
    old = [index for index, item in enumerate(masters) if item.ended <= slave.began - skew_ms]
    if skew_ms <= 0 and not old:
        old = [0]
    return Pairing(masters[old[-1] if old else 0 :], slave, bool(old), is_first)


def cases(pairing: Pairing) -> Iterator[Case]:
    """Yield a case for every key that either side has."""
    samples: dict[FactKey, list[tuple[int, Fact]]] = defaultdict(list)
    for index, master in enumerate(pairing.masters):
        for fact in pairing.facts_of(master):
            samples[fact.key].append((index, fact))
    slaves = {fact.key: fact for fact in pairing.facts_of(pairing.slave)}
    last = pairing.masters[-1]
    master_bounds, slave_bounds = pairing.bounds_of(last), pairing.bounds_of(pairing.slave)
    has_messages = _begin_alike(last, pairing.slave)
    topics = {
        fact.topic for side in (last, pairing.slave) for fact in side.facts if fact.kind == TOPIC
    }
    groups = {fact.group for fact in last.facts if fact.kind == GROUP}
    has_groups = GROUP in last.kinds
    for key in samples.keys() | slaves.keys():
        where = (key.topic or "", key.queue_id or 0)
        yield _case(
            pairing,
            key,
            samples.get(key, []),
            slaves.get(key),
            where in master_bounds
            and (not has_groups or key.group in groups or _is_built_in(key.group)),
            (*master_bounds.get(where, (None, None)), *slave_bounds.get(where, (None, None))),
        )._replace(
            is_deleted=bool(topics)
            and TOPIC in pairing.kinds
            and key.topic not in topics
            and where not in master_bounds
            and not is_system(key.topic or ""),
            has_messages=has_messages,
        )


def _begin_alike(master: Snapshot, slave: Snapshot) -> bool:
    """Return whether both stores rest, and their logs begin at the same place."""
    lows = [fact.low for side in (master, slave) for fact in side.facts if fact.kind == LOG]
    return master.is_resting and slave.is_resting and len(lows) == 2 and lows[0] == lows[1]


def _is_built_in(group: str | None) -> bool:
    """Return whether a group is built in, or None: groups of brokers are in no table."""
    return group is None or group in BUILT_IN_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def _case(
    pairing: Pairing,
    key: FactKey,
    samples: Sequence[tuple[int, Fact]],
    slave: Fact | None,
    is_served: bool,
    bounds: tuple[int | None, int | None, int | None, int | None],
) -> Case:
    """
    Return the case of one key.

    :param samples: the master's facts of this key, each with the number of its sample.
    :param bounds: first offset and end of the queue at the master, then at the slave.
    """
    end, before = len(pairing.masters) - 1, pairing.sample_before
    last = next((fact for index, fact in samples if index == end), None)
    values = [fact.value for _, fact in samples if fact.value is not None]
    texts = {fact.text for _, fact in samples}
    if key.kind not in (OFFSET, DELAY):
        bounds = (None, None, None, None)
    return Case(
        key,
        pairing.is_proven,
        pairing.is_first,
        pairing.masters[-1].is_crashed,
        is_served,
        last is not None,
        len(samples) == end + 1 and len(texts) == 1,
        last.value if last else None,
        min(values, default=None),
        max(values, default=None),
        next((fact.value for index, fact in samples if index == before), None),
        last.text if last else None,
        last.low if last else None,
        slave is not None,
        slave.value if slave else None,
        slave.text if slave else None,
        slave.low if slave else None,
        *bounds,
    )


class Forecast(NamedTuple):
    """
    The effect of a failover to one slave, in messages; see `Ruling`.

    :ivar delay_repeats: delayed messages that RocketMQ delivers again; rmq-ha looks each one up,
        and does not repeat it.
    :ivar errors: number of faults of severity ERROR.
    :ivar unsettled: number of differences that may be gone at a later look.
    """

    repeats: int = 0
    skipped: int = 0
    lost: int = 0
    delay_repeats: int = 0
    errors: int = 0
    unsettled: int = 0


def forecast(rulings: Iterable[tuple[Case, Ruling]]) -> Forecast:
    """Add up the effects of a failover to one slave on all keys."""
    numbers = [0] * 6
    for case, ruling in rulings:
        is_delay = case.key.kind == DELAY
        numbers[3 if is_delay else 0] += ruling.repeats
        numbers[1] += ruling.skipped
        numbers[2] += ruling.lost
        numbers[4] += sum(MEANINGS[code].severity is Severity.ERROR for code in ruling.codes)
        numbers[5] += "UNSETTLED" in ruling.codes
    return Forecast(*numbers)


def predict(pairing: Pairing, max_lag: int = 0) -> Forecast:
    """Return the forecast of a pairing, without Spark: for the sampling, and for tests."""
    return forecast((case, judge(case, max_lag)) for case in cases(pairing))


def is_right(masters: Sequence[Snapshot], slave: Snapshot) -> bool:
    """
    Return whether the slave has all that the master had in its first sample, so that no fault can
    be proven.

    A slave that holds what the master held at some time of the window is right, however short the
    window is.
    """
    return predict(Pairing(masters, slave, True)).errors == 0


def caught_up(masters: Sequence[Snapshot], slave: Snapshot) -> bool:
    """Return whether the slave is right, but for commits of the last seconds: do not wait."""
    for case in cases(Pairing(masters, slave, True)):
        ruling = judge(case)
        if (
            ruling.lost
            or ruling.skipped
            or any(MEANINGS[code].severity is Severity.ERROR for code in ruling.codes)
        ):
            return False
        if "LAGGING" in ruling.codes and (not case.on_slave or case.key.kind in TEXTS):
            return False
    return True


def is_pair(pairing: Pairing) -> bool:
    """Return whether the two may be a pair: equal names, as far as known, and not one broker."""
    master, slave = pairing.masters[-1], pairing.slave
    if master.broker is None or slave.broker is None:
        return True
    is_same = master.broker_id is not None and master.broker_id == slave.broker_id
    return master.broker == slave.broker and not is_same


def ends(snapshot: Snapshot) -> dict[str, int]:
    """Return by topic how many queues a side knows; the other side is asked for the same ones."""
    numbers: dict[str, int] = {}
    for fact in snapshot.facts:
        if fact.kind == QUEUE and fact.topic is not None:
            numbers[fact.topic] = max(numbers.get(fact.topic, 0), (fact.queue_id or 0) + 1)
    return numbers
