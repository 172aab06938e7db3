"""`python -m rmq_ha.spark.host.training`: make the archive of classes that Spark starts from."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from rmq_ha.spark.host import class_archive, gateway
from rmq_ha.spark.host.class_archive import SWITCH
from rmq_ha.spark.host.java import Java, cache_directory, find_java
from rmq_ha.spark.host.session import COMPILING, spark_home, start_session


def main() -> int:
    """
    Make the archive if nobody else does.

    :returns: 0 if there is an archive now.
    """
    home = spark_home()
    if home is None:
        return 1
    os.nice(19)
    java = find_java()
    jars = gateway.jars_of(home)
    archive = class_archive.archive_of(java, jars, cache_directory())
    if archive.path.is_file():
        return 0
    with class_archive.alone(archive) as alone:
        if not alone:
            return 1
        try:
            made = train(java, archive, jars)
        except Exception:
            made = False
        if not made:
            archive.failed.touch()
    return 0 if made else 1


def train(java: Java, archive: class_archive.Archive, jars: Sequence[str]) -> bool:
    """Run what jobs run, and keep its classes."""
    with tempfile.TemporaryDirectory(prefix="rmq-ha-") as scratch:
        classes = Path(scratch) / "classes.lst"
        if not run_something(classes, Path(scratch)):
            return False
        return class_archive.make(java, archive, classes, gateway.LAUNCHER_OPTIONS, jars)


def run_something(classes: Path, scratch: Path) -> bool:
    """
    A session that does a little of everything.

    :param classes: the JVM writes the names of what it loads there.
    :param scratch: an empty directory.
    """
    os.environ[SWITCH] = "off"
    spark = start_session(
        "rmq-ha training",
        master="local[1]",
        driver_memory="512m",
        conf={
            "spark.driver.extraJavaOptions": f"-XX:DumpLoadedClassList={classes}",
            COMPILING: "FALLBACK",
        },
        quick=True,
    )
    java: Any = SparkContext._gateway
    try:
        queries(spark, scratch)
    finally:
        spark.stop()
        java.proc.stdin.close()
        java.proc.wait(60)
    return classes.is_file()


def queries(spark: Any, scratch: Path) -> None:
    """Joins, windows, sorts, Parquet, JSON, Python workers: what jobs are made of."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    parquet, records = str(scratch / "parquet"), scratch / "table.json"
    records.write_text('{"offsetTable": {"t@g": {0: 1}}}')
    rows = spark.createDataFrame([(1, "a", b"x"), (2, "b", None)], "id long, name string, b binary")
    rows = rows.withColumn("at", F.timestamp_millis(F.col("id"))).persist()
    rows.write.partitionBy("name").mode("overwrite").parquet(parquet)
    again = spark.read.parquet(parquet)
    window = Window.partitionBy("name").orderBy("id")
    joined = rows.join(again.select("id", F.length("b").alias("size")), "id", "full_outer")
    joined = joined.withColumn("before", F.lag("id").over(window))
    joined.groupBy("name").agg(
        F.count("*"), F.max("at"), F.percentile_approx("id", 0.99), F.crc32(F.first("b"))
    ).orderBy("name").toArrow()
    rows.join(again, "id", "left_anti").unionByName(rows.join(again, "id", "left_semi")).count()
    schema = "offsetTable map<string,map<string,bigint>>"
    options = {"multiLine": "true", "allowUnquotedFieldNames": "true"}
    spark.read.options(**options).schema(schema).json(str(records)).select(
        F.explode("offsetTable")
    ).toArrow()
    rows.mapInArrow(lambda batches: batches, rows.schema).limit(1).toArrow()
    spark.sparkContext.parallelize([1], 1).map(lambda value: value).collect()
    rows.unpersist()


if __name__ == "__main__":
    sys.exit(main())
