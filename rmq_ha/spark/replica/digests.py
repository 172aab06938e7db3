"""
Digests of a log, for stores that no machine sees together.

One side writes a digest of each window of its log to Parquet; where the other store is, these
windows are read again and compared. Bytes without a meaning, behind a file's last record, are left
out. What a window that differs holds is for whoever sees both stores.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any
from zlib import crc32

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rmq_ha.errors import CannotDecide
from rmq_ha.offsets.findings import Finding, Outcome
from rmq_ha.scan.log.records import Records
from rmq_ha.scan.replica.codes import finding
from rmq_ha.scan.replica.logs import Log, What
from rmq_ha.scan.replica.settings import SHA256, StoreAt, opened
from rmq_ha.scan.replica.verdicts import verdict
from rmq_ha.spark.findings import FINDINGS, finding_row
from rmq_ha.spark.result import JobResult

DIGESTS = StructType(
    [
        StructField("low", LongType(), False),
        StructField("high", LongType(), False),
        StructField("digest", StringType(), False),
        StructField("store", StringType(), False),
    ]
)
_TASK = 64 << 20


def write_digests(
    spark: SparkSession, at: StoreAt, directory: str, window: int, kind: str, start: int
) -> JobResult:
    """
    Write the digests of a store's log.

    :param directory: any that Spark can write; what is there is replaced.
    :param window: bytes that one digest stands for.
    :param kind: of `KINDS`.
    :raises CannotDecide: there is no store, or it cannot be read.
    """
    one = opened(at, None)
    low = max(one.low, start)
    log, store = one.log, at.uri
    tasks = list(_windows(log, low, one.high, _TASK))
    rows = spark.sparkContext.parallelize(tasks, max(1, len(tasks))).flatMap(
        lambda task: (
            (*part, digest_of(log, *part, kind), store) for part in _parts(task[0], task[1], window)
        )
    )
    spark.createDataFrame(rows, DIGESTS).write.mode("overwrite").parquet(directory)
    line = f"digests of [{low}, {one.high}) are in {directory}: take them to where the other is"
    nothing = spark.createDataFrame([], FINDINGS)
    return JobResult(nothing, Outcome.HOLDS, line, {"from": low, "to": one.high})


def compare_digests(
    spark: SparkSession, at: StoreAt, directory: str, *, is_master: bool, start: int
) -> JobResult:
    """
    Compare a store's log with the digests of the other side's.

    :param directory: what `write_digests` wrote.
    :param is_master: the store is the master's, the digests are the slave's.
    :raises CannotDecide: one of them cannot be read, or they have nothing in common.
    """
    one = opened(at, None)
    theirs = _read(spark, directory)
    bounds = theirs.agg(F.min("low"), F.max("high"), F.first("store")).first()
    if bounds is None or bounds[0] is None:
        raise CannotDecide(f"{directory} holds no digest")
    low, high = max(one.low, bounds[0], start), min(one.high, bounds[1])
    mine = theirs.where((F.col("low") >= low) & (F.col("high") <= high))
    log, other, store = one.log, bounds[2], at.uri
    found = mine.rdd.flatMap(
        lambda row: _differing(log, row["low"], row["high"], row["digest"], is_master, store, other)
    )
    told = found.collect()
    reached = mine.agg(F.max("high")).collect()[0][0]
    if reached is None:
        raise CannotDecide(
            f"{at.uri} with [{one.low}, {one.high}) and the digests of [{bounds[0]}, {bounds[1]}) "
            "have no whole window in common"
        )
    common = low, reached
    return JobResult(
        spark.createDataFrame([finding_row(one) for one in told], FINDINGS),
        Outcome.VIOLATED if told else Outcome.HOLDS,
        verdict(common, None, min(told, key=_place, default=None), len(told)),
        {"from": low, "to": reached, "differences": len(told)},
    )


def _place(one: Finding) -> int:
    return one.physical_offset or 0


def _read(spark: SparkSession, directory: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        found = spark.read.parquet(directory)
    except AnalysisException as error:
        raise CannotDecide(f"{directory} holds no digests: {str(error).splitlines()[0]}") from None
    if not set(DIGESTS.fieldNames()) <= set(found.columns):
        raise CannotDecide(f"{directory} holds no digests, but {', '.join(found.columns)}")
    return found


def _windows(log: Log, low: int, high: int, step: int) -> Iterator[tuple[int, int]]:
    """Stretches of the files, without what is behind their last records."""
    for file in log.row:
        begin, end = max(low, file.base), min(high, file.end)
        if begin >= end:
            continue
        last = log.place_of(end - 1)
        if last.what is What.BLANK:
            end = min(end, last.start + 8)
        yield from ((at, min(at + step, end)) for at in range(begin, end, step))


def _parts(low: int, high: int, window: int) -> Iterator[tuple[int, int]]:
    """Windows on a grid that does not depend on where a log begins."""
    at = low
    while at < high:
        end = min((at // window + 1) * window, high)
        yield at, end
        at = end


def digest_of(log: Log, low: int, high: int, kind: str) -> str:
    """
    Of the bytes of a window.

    :param kind: of `KINDS`.
    :raises CannotDecide: a file vanished, or cannot be read.
    """
    data: Any = log.read(low, high - low)
    return f"sha256:{sha256(data).hexdigest()}" if kind == SHA256 else f"crc32:{crc32(data):08x}"


def _differing(
    log: Log, low: int, high: int, theirs: str, is_master: bool, store: str, other: str
) -> Iterable[Finding]:
    mine = digest_of(log, low, high, theirs.partition(":")[0])
    if mine == theirs:
        return []
    where: dict[str, Any] = {}
    for piece in log.pieces(low, high):
        if isinstance(piece, Records) and len(piece):
            where = {
                "topic": piece.topics()[0].as_py(),
                "queue_id": int(piece.queue_id[0]),
                "queue_offset": int(piece.queue_offset[0]),
                "msg_id": piece.select(slice(0, 1)).msg_id[0].as_py(),
            }
            break
    return [
        finding(
            "DIGEST_DIFFERS",
            f"[{low}, {high}); the first message that begins there is named.",
            broker=other if is_master else store,
            physical_offset=low,
            expected=mine if is_master else theirs,
            actual=theirs if is_master else mine,
            **where,
        )
    ]
