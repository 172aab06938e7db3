"""Parses the options for where a read begins and ends: words, offsets by queue, or times."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.source.reading import QueueId, first_names

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
_LONGEST = (1 << 63) - 1


class BoundaryKind(StrEnum):
    """How a boundary is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True)
class Boundary:
    """
    Where the read of all queues begins, or ends.

    :ivar ms: with `BoundaryKind.TIME`: the first message stored then or later.
    :ivar by_queue: with `BoundaryKind.OFFSETS` offsets (-1 latest, -2 earliest), with
        `BoundaryKind.TIMES` ms; the broker of a key is empty where the option names none.
    :ivar group: with `BoundaryKind.GROUP`: the group whose offsets are used.
    """

    kind: BoundaryKind
    ms: int = 0
    by_queue: Mapping[QueueId, int] = field(default_factory=dict)
    group: str = ""
    option: str = ""

    def offset_of(self, queue: QueueId) -> int | None:
        """Return the offset or ms of a queue, given with or without its broker; None: none."""
        exact = self.by_queue.get(queue)
        return self.by_queue.get(queue._replace(broker="")) if exact is None else exact

    def check_covers(self, queues: Iterable[QueueId]) -> None:
        """
        Check that every queue has a number, and every number a queue, as in Spark's Kafka source.

        :raises WrongUsage: a queue has no number, or a number has no queue.
        """
        here = list(queues)
        brokers: dict[tuple[str, int], set[str]] = {}
        for queue in here:
            brokers.setdefault((queue.topic, queue.queue_id), set()).add(queue.broker)
        missing = [queue for queue in here if self.offset_of(queue) is None]
        if missing:
            raise WrongUsage(
                f"{self.option} names some queues only: {first_names(missing)} missing; name every "
                "queue that is read (-2: its beginning, -1: its end)"
            )
        known = set(here)
        for queue in self.by_queue:
            holders = brokers.get((queue.topic, queue.queue_id), set())
            if not queue.broker and len(holders) > 1:
                raise WrongUsage(
                    f"{self.option}: queue {queue.queue_id} of {queue.topic} is on"
                    f" {', '.join(sorted(holders))}: write"
                    f' {{"{queue.topic}":{{"{min(holders)}":{{"{queue.queue_id}":...}}}}}}'
                )
            if not holders or (queue.broker and queue not in known):
                raise WrongUsage(
                    f"{self.option} names {queue}, which is not there or not subscribed to;"
                    f" there are {first_names(here)}"
                )


EARLIEST = Boundary(BoundaryKind.EARLIEST)
LATEST = Boundary(BoundaryKind.LATEST)


def parse_offsets(text: str, option: str, *, batch: bool, is_start: bool) -> Boundary:
    """
    Read `earliest`, `latest`, `group:NAME`, or JSON of offsets.

    :param batch: the read is a batch, which cannot begin at "latest".
    :param is_start: the boundary is the beginning; an end cannot be "earliest".
    :raises WrongUsage: the text has another form.
    """
    word = text.strip().lower()
    if word == BoundaryKind.LATEST:
        if batch and is_start:
            raise WrongUsage(f"{option}=latest: a batch that begins at the end reads nothing")
        return Boundary(BoundaryKind.LATEST, option=option)
    if word == BoundaryKind.EARLIEST:
        if not is_start:
            raise WrongUsage(f"{option}=earliest: a read that ends at the beginning reads nothing")
        return Boundary(BoundaryKind.EARLIEST, option=option)
    if word.startswith(_GROUP):
        group = text.strip()[len(_GROUP) :].strip()
        if not group:
            raise WrongUsage(f"{option}={text!r}: write {_GROUP}NAME, a consumer group")
        return Boundary(BoundaryKind.GROUP, group=group, option=option)
    table = queue_table(
        text, option, f'earliest, latest, {_GROUP}NAME or JSON like {{"topic":{{"0":23,"1":-2}}}}'
    )
    for queue, offset in table.items():
        if offset < EARLIEST_OFFSET:
            raise WrongUsage(f"{option}: {offset} of {queue} is no offset; -2 earliest, -1 latest")
        if offset == LATEST_OFFSET and batch and is_start:
            raise WrongUsage(f"{option}: a batch cannot begin at the end of {queue} (-1)")
        if offset == EARLIEST_OFFSET and not is_start:
            raise WrongUsage(f"{option}: a read cannot end at the beginning of {queue} (-2)")
    return Boundary(BoundaryKind.OFFSETS, by_queue=table, option=option)


def parse_timestamps(text: str, option: str) -> Boundary:
    """
    Read JSON of times, ms since the epoch.

    :raises WrongUsage: the text has another form.
    """
    table = queue_table(text, option, 'JSON like {"topic":{"0":1700000000000}}')
    for queue, ms in table.items():
        if ms < 0:
            raise WrongUsage(f"{option}: {ms} of {queue} is no time in ms since the epoch")
    return Boundary(BoundaryKind.TIMES, by_queue=table, option=option)


def queue_table(text: str, option: str, form: str) -> dict[QueueId, int]:
    """
    Read `{"topic":{"0":23}}` or `{"topic":{"broker-a":{"0":23}}}`.

    :raises WrongUsage: the text has another form.
    """
    wrong = f"{option}={text!r}: write {form}, or with brokers {_LEVELS}"
    table: dict[QueueId, int] = {}
    for topic, inner in _read(text, _Numbers, wrong).items():
        for name, value in inner.items():
            level = value if isinstance(value, dict) else {name: value}
            broker = name if isinstance(value, dict) else ""
            for queue_id, number in level.items():
                if not _is_id(queue_id) or QueueId(topic, broker, int(queue_id)) in table:
                    raise WrongUsage(wrong)  # a queue twice, as "0" and "00"
                table[QueueId(topic, broker, int(queue_id))] = number
    return table


def assigned_queues(text: str, option: str) -> tuple[QueueId, ...]:
    """
    Read `{"topic":[0,1]}` or `{"topic":{"broker-a":[0,1]}}`.

    :raises WrongUsage: the text has another form.
    """
    wrong = (
        f'{option}={text!r}: write JSON like {{"topic":[0,1]}}, or {{"topic":{{"broker-a":[0]}}}}'
    )
    queues = {
        QueueId(topic, broker, queue_id)
        for topic, inner in _read(text, _Assigned, wrong).items()
        for broker, ids in (inner if isinstance(inner, dict) else {"": inner}).items()
        for queue_id in ids
    }
    return tuple(sorted(queues))


_Some = Meta(min_length=1)
_Number = Annotated[int, Meta(ge=-_LONGEST, le=_LONGEST)]
_OfBroker = Annotated[dict[str, _Number], _Some]
_Numbers = Annotated[dict[str, Annotated[dict[str, _Number | _OfBroker], _Some]], _Some]
_Ids = Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 31)]], _Some]
_Assigned = Annotated[dict[str, _Ids | Annotated[dict[str, _Ids], _Some]], _Some]


def _read(text: str, kind: Any, wrong: str) -> Any:
    """:raises WrongUsage: the text is no JSON of this kind, or has a key twice."""
    try:
        return convert(json.loads(text, object_pairs_hook=_unique), kind)
    except (ValueError, RecursionError, ValidationError):
        raise WrongUsage(wrong) from None


_GROUP = "group:"
_LEVELS = '{"topic":{"broker-a":{"0":23}}}'


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object; raise ValueError if a key stands there twice."""
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key stands there twice")
    return unique


def _is_id(text: str) -> bool:
    """Return whether a text is the number of a queue."""
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 31
