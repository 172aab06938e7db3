"""A process with the recipe of docs/spark.md, from a topic of JSON into a table, to be killed.

Arguments: the name server, and the directory for table and checkpoint. It says `warm` when Spark is
up, and begins when it is told to with a line.

The table is Parquet. `RMQ_HA_SPARK_LAKE=delta` makes it one of Delta Lake, with its jars in
`RMQ_HA_SPARK_JARS` (`,` between them) and the Spark that they were made for.
"""

import os
import sys
from typing import Any

TOPIC = "Killed"
FORMAT = os.environ.get("RMQ_HA_SPARK_LAKE", "parquet")
LAKE = {}
if FORMAT == "delta":
    LAKE = {
        "spark.jars": os.environ["RMQ_HA_SPARK_JARS"],
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def start(spark: Any, namesrv: str, directory: str, most: int = 100, **trigger: Any) -> Any:
    """The query; all of its runs have this form, with at most so many messages a batch."""
    rows = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(most))
        .option("minPartitions", "2")
        .load()
        .selectExpr("from_json(string(body), 'n bigint').n AS n", "topic", "queueId", "queueOffset")
    )
    return (
        rows.writeStream.format(FORMAT)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .option("path", f"{directory}/table")
        .trigger(**trigger)
        .start()
    )


def main() -> None:
    """Until somebody kills us."""
    from rmq_ha.spark.host.session import start_session

    spark = start_session("to be killed", master="local[2]", conf=LAKE)
    print("warm", flush=True)
    sys.stdin.readline()
    start(spark, *sys.argv[1:], processingTime="0 seconds").awaitTermination()


if __name__ == "__main__":
    main()
