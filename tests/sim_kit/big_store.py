"""
Large stores, written at the speed of the disk: `python -m tests.sim_kit.big_store DIR --gib 10`.

Commit log, consume queues and tables as after a clean stop: a broker opens them.
"""

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.store_format.checkpoint import CHECKPOINT_SIZE, CheckpointTimes
from rmq_ha.base.store_format.commitlog import (
    BLANK_SIZE,
    dispatch_request_at,
    encode_blank,
)
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.server.store.index.index import IndexService
from tests.sim_kit.big_records import GIBIBYTE, MAX_BLOCK, Block, Shape, topic_names

_UNIT = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
GROUPS = ("billing", "search")
"""Consumer groups of every topic. The first has consumed all messages, the second nine tenths."""


class BigStore(NamedTuple):
    """
    The result of writing a store.

    :ivar max_offset: end of the last record.
    :ivar queues: how many messages each queue has, by topic and queue.
    :ivar last_ms: store time of the last message.
    """

    records: int
    max_offset: int
    queues: dict[tuple[str, int], int]
    last_ms: int


def write_big_store(roots: Sequence[Path | str], shape: Shape) -> BigStore:
    """
    Write the same store into each of the directories.

    :param roots: `storePathRootDir`s that hold no store yet.
    :raises ValueError: the shape makes no sense, or a directory has a store already.
    """
    directories = [Path(root) for root in roots]
    for directory in directories:
        if (directory / "commitlog").exists():
            raise ValueError(f"{directory} holds a store already; name another directory")
    block = Block(shape)
    if shape.file_size < int(block.ends[0]) + BLANK_SIZE:
        raise ValueError(f"no record fits into a file of {shape.file_size} bytes")
    if shape.queue_file_size % UNIT_SIZE:
        raise ValueError(f"a queue's file has units of {UNIT_SIZE} bytes: {shape.queue_file_size}")
    with _Files(directories, shape) as files:
        written = _write_log(files, block, shape)
    _write_tables(directories, shape, written)
    return written


# ---------------------------------------------------------------- files


class _Files:
    """The open files of one store in several directories."""

    def __init__(self, roots: Sequence[Path], shape: Shape) -> None:
        self._roots = roots
        self._shape = shape
        self._log: list[BinaryIO] = []
        self._queues: dict[tuple[str, int], list[BinaryIO]] = {}

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        _finish(self._log, self._shape.file_size)
        for files in self._queues.values():
            _finish(files, self._shape.queue_file_size)

    def next_log_file(self, base: int) -> None:
        """Begin the log file that starts at a physical offset."""
        _finish(self._log, self._shape.file_size)
        self._log = self._open("commitlog", base)

    def log(self, data: bytes | memoryview) -> None:
        for file in self._log:
            file.write(data)

    def queue(self, name: tuple[str, int], start: int, units: Any) -> None:
        """
        Append units to a consume queue.

        :param start: how many units the queue has already.
        """
        per_file = self._shape.queue_file_size // UNIT_SIZE
        while len(units):
            room = per_file - start % per_file
            if room == per_file:
                _finish(self._queues.get(name, []), self._shape.queue_file_size)
                topic, queue_id = name
                self._queues[name] = self._open(
                    f"consumequeue/{topic}/{queue_id}", start * UNIT_SIZE
                )
            data = units[:room].tobytes()
            for file in self._queues[name]:
                file.write(data)
            start += len(units[:room])
            units = units[room:]

    def _open(self, directory: str, base: int) -> list[BinaryIO]:
        files: list[BinaryIO] = []
        for root in self._roots:
            (root / directory).mkdir(parents=True, exist_ok=True)
            files.append((root / directory / f"{base:020d}").open("wb", buffering=0))
        return files


def _finish(files: Sequence[BinaryIO], size: int) -> None:
    """Extend files to their full size, as brokers do; the rest of a file is a hole."""
    for file in files:
        file.truncate(size)
        file.close()


def _write_log(files: _Files, block: Block, shape: Shape) -> BigStore:
    """Fill one file after the other with copies of the block."""
    taken = np.zeros(len(block.names), np.int64)
    records = position = 0
    least = int(block.ends[0])
    file_end = 0
    while True:
        if position == file_end:
            files.next_log_file(position)
            file_end += shape.file_size
        count = block.fitting(min(file_end - BLANK_SIZE, shape.size) - position)
        if count:
            out = block.numbered(records, position, taken, count)
            files.log(out.data)
            _write_units(files, block, position, taken, count)
            taken += np.bincount(block.columns.queue[:count], minlength=len(taken))
            position += len(out)
            records += count
        if position + least > shape.size:
            break
        if position + least + BLANK_SIZE > file_end:
            files.log(encode_blank(file_end - position))
            position = file_end
    last_ms = int(block.store_times(max(0, records - 1), 1)[0])
    queues = dict(zip(block.names, taken.tolist(), strict=True))
    return BigStore(records, position, queues, last_ms)


def _write_units(files: _Files, block: Block, base: int, taken: Any, count: int) -> None:
    order = block.order[block.order < count]
    units = np.empty(count, _UNIT)
    units["offset"] = base + block.starts[order]
    units["size"] = block.ends[order] - block.starts[order]
    units["code"] = block.columns.code[order]
    bounds = np.searchsorted(block.columns.queue[order], np.arange(len(block.names) + 1))
    for number, name in enumerate(block.names):
        files.queue(name, int(taken[number]), units[bounds[number] : bounds[number + 1]])


# ---------------------------------------------------------------- tables and index


def _write_tables(roots: Sequence[Path], shape: Shape, written: BigStore) -> None:
    """Write the tables that a broker writes when it stops."""
    version = DataVersion(shape.first_ms, len(GROUPS) + shape.topics)
    topics = {name: TopicConfig(name, shape.queues, shape.queues) for name in topic_names(shape)}
    offsets: dict[str, dict[int, int]] = {}
    for (topic, queue), count in written.queues.items():
        offsets.setdefault(f"{topic}@{GROUPS[0]}", {})[queue] = count
        offsets.setdefault(f"{topic}@{GROUPS[1]}", {})[queue] = count * 9 // 10
    groups = {name: SubscriptionGroupConfig(name) for name in GROUPS}
    files = {
        "config/topics.json": fastjson.pretty(TopicTable(version, topics)),
        "config/subscriptionGroup.json": fastjson.pretty(GroupTable(version, groups)),
        "config/consumerOffset.json": fastjson.pretty({"offsetTable": offsets}),
        "config/delayOffset.json": fastjson.pretty({"offsetTable": {}}),
    }
    indexed_ms = 0
    if shape.index_sizes is not None:
        indexed_ms = _write_index(roots[0], shape, shape.index_sizes)
        for root in roots[1:]:
            shutil.copytree(roots[0] / "index", root / "index")
    times = CheckpointTimes(written.last_ms, written.last_ms, indexed_ms).encode()
    files["checkpoint"] = times.ljust(CHECKPOINT_SIZE, b"\0")
    for root in roots:
        (root / "config").mkdir(exist_ok=True)
        for name, data in files.items():
            (root / name).write_bytes(data)


def _write_index(root: Path, shape: Shape, sizes: tuple[int, int]) -> int:
    """Write the index of the whole log, and return the store time up to which full files reach."""
    service = IndexService(RealDisk(), str(root), *sizes, lambda: shape.first_ms)
    reached = [0]
    service.on_file_full = reached.append
    for path in sorted((root / "commitlog").iterdir()):
        for requests in _requests(path):
            service.put_requests(requests)
    service.sync()
    service.close()
    return reached[-1]


def _requests(path: Path) -> Iterator[list[DispatchRequest]]:
    requests: list[DispatchRequest] = []
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as log:
        data: Any = log
        at = 0
        while isinstance(request := dispatch_request_at(data, at, len(data), []), DispatchRequest):
            requests.append(request)
            at += request.size
            if len(requests) == MAX_BLOCK:
                yield requests
                requests = []
    if requests:
        yield requests


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("directory", type=Path, help="the store's root; with --pair, of both")
    parser.add_argument("--gib", type=float, default=1.0, help="size of the commit log")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body, on average")
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--queues", type=int, default=4, help="of each topic")
    parser.add_argument("--file-mib", type=int, default=1024, help="of a commit log file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--index", action="store_true", help="index files as well; slow")
    parser.add_argument(
        "--pair", action="store_true", help="two equal stores, DIR/master and DIR/slave"
    )
    options = parser.parse_args()
    shape = Shape(
        size=int(options.gib * GIBIBYTE),
        body=options.body,
        topics=options.topics,
        queues=options.queues,
        seed=options.seed,
        file_size=options.file_mib << 20,
        index_sizes=(5_000_000, 20_000_000) if options.index else None,
    )
    roots = [options.directory]
    if options.pair:
        roots = [options.directory / "master", options.directory / "slave"]
    began = time.monotonic()
    try:
        written = write_big_store(roots, shape)
    except ValueError as error:
        parser.error(str(error))
    took = time.monotonic() - began
    print(
        f"{written.records:,} records, {written.max_offset:,} bytes in {took:.1f} s: "
        f"{written.max_offset * len(roots) / took / 1e6:,.0f} MB/s"
    )


if __name__ == "__main__":
    main()
