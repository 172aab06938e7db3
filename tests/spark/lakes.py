"""
Which kind of table the tests of this folder write: Parquet, as Spark itself does, or Delta Lake.

For `RMQ_HA_SPARK_LAKE=delta` there have to be its jars in the directory `RMQ_HA_SPARK_JARS`, and
the Spark that they were made for; `tox -e delta` gets both.
"""

import os
from pathlib import Path

import pytest

FORMAT = os.environ.get("RMQ_HA_SPARK_LAKE", "parquet")
SETTINGS: dict[str, str] = {}
if FORMAT == "delta":
    SETTINGS = {
        "spark.jars": ",".join(map(str, Path(os.environ["RMQ_HA_SPARK_JARS"]).glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The log of a table of a few files is read in 50 tasks otherwise.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "2",
    }
ONLY_PARQUET = pytest.mark.skipif(FORMAT != "parquet", reason="it changes files of Spark's")
ONLY_DELTA = pytest.mark.skipif(
    FORMAT != "delta", reason="Delta Lake's jars and a Spark that they fit: tox -e delta"
)
