"""
What an archive holds: runs, one file each, which say which files count.

A file that no run names does not exist for readers, whatever a directory lists.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmq_ha.errors import CannotDecide
from rmq_ha.spark.source.reading import QueueId, QueueRange

FORMAT = 1
HOME = "_rmqha"
"""Readers of Parquet directories pass over names that begin with `_`."""
STAGING = f"{HOME}/staging"
PENDING = f"{HOME}/pending.json"
_RUN = "run-"


class Kept(NamedTuple):
    """
    What a run took of a queue.

    :ivar rows: messages; fewer than offsets if the source had holes.
    :ivar last: what tells the message before `stop` from any other; empty: not known.
    """

    queue: QueueId
    start: int
    stop: int
    rows: int
    last: str = ""


class DataFile(NamedTuple):
    """
    A file that counts.

    :ivar path: below the archive.
    :ivar staged: where it was written before; below the archive.
    :ivar size: bytes.
    """

    path: str
    staged: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """
    One committed run.

    :ivar number: 1, 2, ... without a hole.
    :ivar token: tells runs apart that want the same number.
    :ivar source: the place that was read.
    :ivar created_ms: ms since the epoch.
    :ivar bad_crc: messages whose body did not fit its CRC in the source.
    :ivar digest: of all rows, whatever their order.
    """

    number: int
    token: str
    source: str
    created_ms: int
    ranges: Sequence[Kept]
    files: Sequence[DataFile]
    rows: int
    bad_crc: int
    digest: int

    @property
    def name(self) -> str:
        """Of its file, below the archive."""
        return name_of(self.number)


def name_of(number: int) -> str:
    """The file of a run, below the archive."""
    return f"{HOME}/{_RUN}{number:06d}.json"


def number_of(name: str) -> int | None:
    """The number of a run from the name of its file; None: it is another file."""
    digits = name.removeprefix(_RUN).removesuffix(".json")
    is_run = name == f"{_RUN}{digits}.json" and digits.isascii() and digits.isdigit()
    return int(digits) if is_run else None


def encode(run: Run) -> str:
    """As JSON."""
    return json.dumps(
        {
            "format": FORMAT,
            "number": run.number,
            "token": run.token,
            "source": run.source,
            "createdMs": run.created_ms,
            "rows": run.rows,
            "badCrc": run.bad_crc,
            "digest": run.digest,
            "ranges": [
                {
                    "topic": kept.queue.topic,
                    "broker": kept.queue.broker,
                    "queueId": kept.queue.queue_id,
                    "start": kept.start,
                    "stop": kept.stop,
                    "rows": kept.rows,
                    "last": kept.last,
                }
                for kept in run.ranges
            ],
            "files": [file._asdict() for file in run.files],
        },
        ensure_ascii=False,
        indent=1,
    )


def decode(text: str, where: str) -> Run:
    """
    Read a run.

    :param where: its file, for the error.
    :raises CannotDecide: it is damaged, or of a later version.
    """
    try:
        value = json.loads(text)
        if _int(value["format"]) != FORMAT:
            raise CannotDecide(f"{where} has format {value['format']!r}: a later rmq-ha wrote it")
        return Run(
            number=_int(value["number"]),
            token=_str(value["token"]),
            source=_str(value["source"]),
            created_ms=_int(value["createdMs"]),
            ranges=tuple(_kept(each) for each in value["ranges"]),
            files=tuple(
                DataFile(_str(each["path"]), _str(each["staged"]), _int(each["size"]))
                for each in value["files"]
            ),
            rows=_int(value["rows"]),
            bad_crc=_int(value["badCrc"]),
            digest=_int(value["digest"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CannotDecide(
            f"{where} is damaged ({error!r}): without it nobody knows which files count. Take it"
            " from a backup"
        ) from error


def _kept(value: Mapping[str, Any]) -> Kept:
    queue = QueueId(_str(value["topic"]), _str(value["broker"]), _int(value["queueId"]))
    span = _int(value["start"]), _int(value["stop"]), _int(value["rows"])
    return Kept(queue, *span, _str(value.get("last", "")))


def _int(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no number")
    return value


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


@dataclass(frozen=True)
class Manifest:
    """All runs of an archive, in order."""

    runs: Sequence[Run] = ()

    @staticmethod
    def of(runs: Iterable[Run]) -> "Manifest":
        """
        Check that they fit together.

        :raises CannotDecide: a run is missing, or two of them took the same message.
        """
        ordered = sorted(runs, key=lambda run: run.number)
        ends: dict[QueueId, int] = {}
        for expected, run in enumerate(ordered, 1):
            if run.number != expected:
                raise CannotDecide(
                    f"the archive has no {name_of(expected)}, but later ones: take it from a backup"
                )
            for kept in run.ranges:
                if kept.start < ends.get(kept.queue, 0):
                    raise CannotDecide(
                        f"{run.name} begins at {kept.start} of {kept.queue}, which was archived up"
                        f" to {ends[kept.queue]} already: two archives were mixed"
                    )
                ends[kept.queue] = kept.stop
        return Manifest(tuple(ordered))

    @property
    def next_number(self) -> int:
        """Of the next run."""
        return len(self.runs) + 1

    @property
    def rows(self) -> int:
        """Messages that are archived."""
        return sum(run.rows for run in self.runs)

    @property
    def paths(self) -> list[str]:
        """The files that count, below the archive."""
        return [file.path for run in self.runs for file in run.files]

    def ends(self) -> dict[QueueId, int]:
        """Of each queue, the first offset that is not archived."""
        return {kept.queue: kept.stop for run in self.runs for kept in run.ranges}

    def lasts(self) -> dict[QueueId, str]:
        """Of each queue, what tells the last message that is archived from any other."""
        return {kept.queue: kept.last for run in self.runs for kept in run.ranges}

    def brokers(self) -> set[str]:
        """Names of brokers; empty: of a store whose broker was not named."""
        return {kept.queue.broker for run in self.runs for kept in run.ranges}


def batches(ranges: Sequence[QueueRange], most: int) -> Iterable[list[QueueRange]]:
    """
    Divide ranges into runs.

    :param most: messages of a run at most.
    """
    batch: list[QueueRange] = []
    room = most
    for each in ranges:
        start = each.start
        while start < each.stop:
            stop = min(each.stop, start + room)
            batch.append(QueueRange(each.queue, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield batch
                batch, room = [], most
    if batch:
        yield batch


def nested(values: Mapping[QueueId, int]) -> str:
    """Offsets as the data source wants them: `{"topic":{"broker-a":{"0":23}}}`."""
    tree: dict[str, dict[str, Any]] = {}
    for queue, value in values.items():
        inner = tree.setdefault(queue.topic, {})
        if queue.broker:
            inner = inner.setdefault(queue.broker, {})
        inner[str(queue.queue_id)] = value
    return json.dumps(tree)


def assigned(queues: Iterable[QueueId]) -> str:
    """Queues as the option `assign` wants them."""
    tree: dict[str, Any] = {}
    for queue in queues:
        if queue.broker:
            tree.setdefault(queue.topic, {}).setdefault(queue.broker, []).append(queue.queue_id)
        else:
            tree.setdefault(queue.topic, []).append(queue.queue_id)
    return json.dumps(tree)
