"""
The forms of an archive's table: Parquet, or Delta Lake.

The plain form is Parquet that Spark's own streaming sink writes. Spark lists the valid files in
`_spark_metadata`, and reads only these; the checkpoint beside it has the offsets up to which the
queues were read. A batch is in the table when `_spark_metadata` names it, and the checkpoint says
which offsets it had. In a table of Delta Lake the offsets stand in the commit that brought the
messages (`userMetadata`). So messages and offsets always belong together, and a table that is
restored to a former version continues from the offsets of that version.
"""

import json
from collections.abc import Iterator, Sequence
from random import SystemRandom

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.host.files import listing, read_small
from rmq_ha.lake.spark.source.reading import QueueId
from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of
from rmq_ha.lake.spark.source.streaming_offsets import Offsets, from_json, to_json

CHECKPOINT = "_checkpoint"
"""
Directory of the checkpoint below the archive; readers of Parquet skip names that begin with `_`.
"""
STORED = struct_of(COLUMNS)
"""Columns that are kept of a message; `topic` and the day are in the names of directories."""
DAY = "day"
_ROWS = StructType([*STORED.fields, StructField(DAY, StringType())])
PARQUET = "parquet"
_OLD = "_rmqha"
OFFSETS = "rmqha.offsets"
"""Member of a commit: for each queue the first offset that is not archived."""


class Archive:
    """An archive as Parquet in the directory `to`, a path or a URI."""

    def __init__(self, spark: SparkSession, to: str) -> None:
        self._spark, self._to = spark, to

    def rows(self, ends: Offsets | None = None) -> DataFrame:
        """Return all rows, with the source's columns, `properties` and `day`."""
        if not (self.ends() if ends is None else ends):
            return self._spark.createDataFrame([], _ROWS)
        return self._rows().select(*_ROWS.names)

    def ends(self) -> Offsets | None:
        """
        Return the first offset of each queue that is not archived; None: nothing was archived yet.

        :raises WrongUsage: the directory is a table of Delta Lake.
        :raises CannotDecide: the archive is damaged, too old, or in a place that only Hadoop can
            read.
        """
        place = self._to.replace("s3a://", "s3://")
        if listing(f"{place}/{_OLD}"):
            raise CannotDecide(
                f"{self._to} was archived by rmq-ha 0.1, which kept its own list of files: it is"
                " plain Parquet to read, but cannot go on; begin another archive"
            )
        if listing(f"{place}/_delta_log"):
            raise WrongUsage(f"{self._to} is a table of Delta Lake: say so with --format delta")
        names = [entry.name for entry in listing(f"{place}/_spark_metadata")]
        numbers = [name.removesuffix(".compact") for name in names]
        batches = [int(number) for number in numbers if number.isdecimal()]
        if not batches:
            return None
        offsets = f"{CHECKPOINT}/offsets/{max(batches)}"
        try:
            text = read_small(f"{place}/{offsets}").decode()
        except FileNotFoundError:
            raise CannotDecide(
                f"{self._to} has no {offsets}, though its table has that batch: take the whole"
                " archive from one backup"
            ) from None
        return from_json(json.loads(text.splitlines()[-1]))

    def _rows(self) -> DataFrame:
        return self._spark.read.schema(_ROWS).parquet(self._to)


class DeltaArchive(Archive):
    """
    An archive as a table of Delta Lake, with its offsets in the commits.

    :raises WrongUsage: the session does not know tables of Delta Lake.
    """

    def __init__(self, spark: SparkSession, to: str) -> None:
        super().__init__(spark, to)
        if "delta" not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise WrongUsage(
                'this Spark has no Delta Lake. docs/spark.md, "archive", says what it needs:'
                " --conf spark.jars=..., --conf spark.sql.extensions=..."
            )

    def ends(self) -> Offsets | None:
        """Return the offsets in our newest commit; of a cleaned history those of the rows."""
        history = self._history()
        said = next(_commits(history), None)
        if said is not None or not history:
            return said
        broker = F.coalesce("brokerName", F.lit("")).alias("broker")
        rows = self._rows().groupBy("topic", broker, "queueId").agg(F.max("queueOffset"))
        return {QueueId(*queue): last + 1 for *queue, last in rows.collect()}

    def append(self, rows: DataFrame, before: Offsets, ends: Offsets) -> None:
        """
        Append rows in one commit.

        :param before: offsets where `rows` begins, as `ends()` returned them.
        :raises CannotDecide: another job has archived into the table since then; nothing was added.
        """
        history = self._history()
        said = json.dumps({OFFSETS: to_json(ends), "commit": f"{SystemRandom().getrandbits(64):x}"})
        ours = [row["version"] for row in history if _offsets_of(row) is not None]
        last = max(ours or [row["version"] for row in history], default=-1)
        writer = rows.write.format("delta").mode("append").option("userMetadata", said)
        # Of several jobs that saw the same last commit, Delta lets one commit.
        writer = writer.options(txnAppId="rmqha", txnVersion=str(last + 1))
        if not history:
            writer = writer.partitionBy("topic", DAY)
        if next(_commits(history), before) == before:
            try:
                writer.save(self._to)
            except Exception as error:  # of Java or of pyspark, by its version
                if "DELTA_CONCURRENT" not in str(error):
                    raise
        if all(row["userMetadata"] != said for row in self._history()):
            raise CannotDecide(
                f"another job archives into {self._to}: this one has added nothing since; run one"
            )

    def _rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._to)

    def _history(self) -> list[Row]:
        """Return the commits, the newest first; empty: the table does not exist yet."""
        try:
            name = f"delta.`{self._to}`"
            if self._spark.catalog.tableExists(name):
                return self._spark.sql(f"DESCRIBE HISTORY {name}").collect()
        except AnalysisException as error:
            if error.getCondition() != "DELTA_MISSING_DELTA_TABLE":
                raise
        return []


def open_archive(spark: SparkSession, archive: str, form: str = PARQUET) -> Archive:
    """
    Open an archive, which need not exist yet.

    :param form: `parquet` or `delta`.
    :raises WrongUsage: the session does not know tables of this form.
    """
    return Archive(spark, archive) if form == PARQUET else DeltaArchive(spark, archive)


def _commits(history: Sequence[Row]) -> Iterator[Offsets]:
    """Yield the offsets in rmq-ha's commits that the present table is made of, the newest first."""
    upto = history[0]["version"] if history else 0
    for row in history:
        if row["version"] > upto:
            continue
        if row["operation"] == "RESTORE":
            version = row["operationParameters"].get("version")
            if version is None:
                return  # restored to a time: the rows tell
            upto = int(version)
        ends = _offsets_of(row)
        if ends is not None:
            yield ends


def _offsets_of(commit: Row) -> Offsets | None:
    """Return the offsets in a commit; None: another program made it."""
    try:
        return from_json(json.loads(commit["userMetadata"] or "")[OFFSETS])
    except (ValueError, KeyError, TypeError):
        return None
