"""A process with the recipe of docs/spark.md, from a topic of JSON into a table, to be killed.

Arguments: the name server, and the directory for table and checkpoint. It says `warm` when Spark is
up, and begins when it is told to with a line. Which table: `tests/spark/lakes.py`.
"""

import sys
from typing import Any

from tests.spark import lakes

TOPIC = "Killed"


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
    query = rows.writeStream.format(lakes.FORMAT).trigger(**trigger)
    query = query.option("checkpointLocation", f"{directory}/checkpoint")
    return query.start(f"{directory}/table")


def main() -> None:
    """Until somebody kills us."""
    from rmq_ha.lake.spark.host.session import start_session
    from tests.spark.conftest import RUNS_ONCE

    spark = start_session("to be killed", master="local[2]", conf=RUNS_ONCE | lakes.SETTINGS)
    print("warm", flush=True)
    sys.stdin.readline()
    start(spark, *sys.argv[1:], processingTime="0 seconds").awaitTermination()


if __name__ == "__main__":
    main()
