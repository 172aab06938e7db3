"""Reduces messages to counts, runs and hashes: `rmq_ha.lake.scan.reducing` on executors."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pyarrow.compute as pc

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Window
from rmq_ha.lake.frames.frame import DataFrame, Engine
from rmq_ha.lake.scan.arrays import filled
from rmq_ha.lake.scan.ledger_rows import STORED, keys_hashes, of_records, pack
from rmq_ha.lake.scan.reducing import (
    IDS,
    PACKED,
    RUN,
    SCHEMA,
    SUMS,
    UNREADABLE,
    Reduction,
    id_column_of,
)
from rmq_ha.lake.scan.stamps import Stamps
from rmq_ha.lake.scan.store.directory import scan
from rmq_ha.lake.scan.store.scanning import Split
from rmq_ha.lake.spark.audit.shape import QUEUE
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest, label_of, options_of
from rmq_ha.lake.spark.source.offline import FileWanted, OfflineQueues
from rmq_ha.lake.spark.source.options import SourceOptions, parse_options

_BY = (*QUEUE, "inQueue", "ordinary", "window", "latency")
_ADDED = ("n", "bytes", "bad")
_LEAST = ("leastOffset", "leastPlace", "leastMs")
_MINUTE_MS = 60_000
_MINUTES = 200
_MOST = ("mostOffset", "mostPlace", "mostMs")


def of_stores(engine: Engine, asked: AuditRequest) -> DataFrame:
    """
    Return the reduced rows of stores; with ledgers also the messages themselves.

    :raises CannotDecide: a store cannot be read, or has no such topic.
    """
    frames = []
    for place in asked.places:
        label = label_of(place, asked.places)
        how = Reduction(label, asked.key, asked.window_ms, *asked.stored_ms)
        frames.append(_read(engine, parse_options(options_of(place, asked)), how, asked))
    return reduce(DataFrame.unionAll, frames)


def of_rows(rows: DataFrame, key: str, window_ms: int) -> DataFrame:
    """
    Return the counts and runs of messages, and the messages themselves.

    The runs are right only if the rows are in the order of the log.

    :param rows: result of `stored_rows.stored_rows`.
    """

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if "keys" in batch.schema.names:
                hashes = keys_hashes(batch["keys"].fill_null(""))
                batch = batch.drop_columns(["keys"]).append_column("keysHash", hashes)
            for label in pc.unique(batch["brokerName"]).to_pylist():
                mine = batch.filter(pc.equal(batch["brokerName"], label))
                yield from _reduced_rows(mine, Reduction(label, key, window_ms))

    return rows.mapInArrow(work, SCHEMA)


def _read(engine: Engine, options: SourceOptions, how: Reduction, asked: AuditRequest) -> DataFrame:
    """Have executors scan a store, and reduce the records of each split."""
    queues = OfflineQueues(options)
    queues.queues(options.subscription)
    of_each, has_tags = asked.has_ledgers, bool(asked.tags)
    has_keys = bool(asked.produced)

    def work(some: Iterator[Split]) -> Iterator[Any]:
        subscribed = FileWanted(options, None)
        store = OfflineQueues(options).store
        for split in some:
            for piece in scan(store, split):
                records = subscribed.select(piece)
                yield from how.unreadable(how.inside_time(records))
                if not of_each:
                    yield from how.batches(records)
                elif len(asked_for := how.inside_time(records)):
                    id_column = id_column_of(how.key)
                    rows = of_records(asked_for, how.label, id_column, tags=has_tags, keys=has_keys)
                    yield from _reduced_rows(rows, how)

    return engine.spread(queues.store.splits(options.split_size), work, SCHEMA)


def _reduced_rows(rows: Any, how: Reduction) -> Iterator[Any]:
    """Yield the packed rows of a batch of one broker, not empty, and those of its reduction."""
    yield filled({"kind": PACKED, "data": pack(rows, STORED)}, SCHEMA)
    yield from how.rows(rows)


def split_packed(every: DataFrame) -> tuple[DataFrame, DataFrame]:
    """
    Divide the rows of a reduction into two frames.

    :returns: the messages themselves, many in each value of the column `data`; and the counts, runs
        and ids, without `data`.
    """
    is_packed = F.col("kind") == PACKED
    return every.where(is_packed).select("data"), every.where(~is_packed).drop("data")


def sums_of(reduced: DataFrame) -> DataFrame:
    """
    Return counts by queue, window and class of latency.

    Columns: the queue, `inQueue`, `ordinary`, `window` (its start, ms), `latency` (from born to
    stored, ms), `sums` (number of rows that were added up), `n`, `bytes`, `bad` (CRC), and least
    and greatest queue offset, place in the log and time.
    """
    return _added_up(reduced.where(F.col("kind") == SUMS), *_BY)


def queues_of(sums: DataFrame) -> list[Any]:
    """Return the counts of each queue, of messages with a place in it and of those without."""
    return _added_up(sums, *QUEUE, "inQueue").collect()


def _added_up(rows: DataFrame, *by: str) -> DataFrame:
    """Add up rows of counts that have equal values in the columns `by`."""
    return rows.groupBy(*by).agg(
        F.count(F.lit(1)).alias("sums"),
        *(F.sum(name).alias(name) for name in _ADDED),
        *(F.min(name).alias(name) for name in _LEAST),
        *(F.max(name).alias(name) for name in _MOST),
    )


def stamps_of(sums: DataFrame) -> dict[str, list[Stamps]]:
    """
    Return by broker the times and places of its records, added up by minute of the store time.

    Only the oldest and the newest `_MINUTES` minutes are returned: they show where the times that
    can be trusted begin and end.

    :param sums: result of `sums_of`.
    """
    minute = F.floor(F.col("mostMs") / _MINUTE_MS)
    by_minute = sums.groupBy("brokerName", minute.alias("minute")).agg(
        *(F.min(name).alias(name) for name in ("leastMs", "leastPlace")),
        *(F.max(name).alias(name) for name in ("mostMs", "mostPlace")),
        F.sum("n").alias("n"),
    )
    of_broker = Window.partitionBy("brokerName")
    edges = (
        by_minute.withColumn("first", F.row_number().over(of_broker.orderBy("minute")))
        .withColumn("last", F.row_number().over(of_broker.orderBy(F.desc("minute"))))
        .where(f"first <= {_MINUTES} or last <= {_MINUTES}")
    )
    stamps: dict[str, list[Stamps]] = {}
    names = ("leastMs", "mostMs", "leastPlace", "mostPlace", "n")
    for row in edges.select("brokerName", *names).collect():
        stamps.setdefault(row["brokerName"], []).append(Stamps(*row[1:]))
    return stamps


def segments_of(reduced: DataFrame) -> DataFrame:
    """Return the runs in the form for `queues.runs_of`."""
    return reduced.where(F.col("kind") == RUN).select(
        *QUEUE,
        F.col("leastPlace").alias("commitLogOffset"),
        F.col("leastMs").alias("storedMs"),
        F.col("leastOffset").alias("first"),
        F.col("mostOffset").alias("last"),
    )


def unreadable_in(reduced: DataFrame) -> DataFrame:
    """Return the rows of records that no consumer can read."""
    return reduced.where(F.col("kind") == UNREADABLE)


def repeated_ids(reduced: DataFrame, partitions: int) -> DataFrame:
    """Return hashes of ids that occur more than once; the ids are divided into `partitions`."""
    hashes = reduced.where(F.col("kind") == IDS).select(F.explode("hashes").alias("hash"))
    return hashes.repartition(partitions, "hash").groupBy("hash").count().where("count > 1")


def places_of(reduced: DataFrame, hashes: DataFrame) -> DataFrame:
    """Return `brokerName` and `commitLogOffset` of the messages whose ids have these hashes."""
    pairs = reduced.where(F.col("kind") == IDS).select(
        "brokerName", F.explode(F.arrays_zip("hashes", "places")).alias("pair")
    )
    named = pairs.select(
        "brokerName",
        F.col("pair.hashes").alias("hash"),
        F.col("pair.places").alias("commitLogOffset"),
    )
    return named.join(hashes.select("hash"), "hash", "left_semi").drop("hash")
