"""A process with a stream from brokers into Parquet, to be killed.

Arguments: the name server, and the directory for table and checkpoint. It says `warm` when Spark is
up, and begins when it is told to with a line.
"""

import sys
from typing import Any

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
        .select("queueId", "queueOffset", "body")
    )
    return (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .option("path", f"{directory}/table")
        .trigger(**trigger)
        .start()
    )


def main() -> None:
    """Until somebody kills us."""
    from rmq_ha.spark.host.session import start_session

    spark = start_session("to be killed", master="local[2]")
    print("warm", flush=True)
    sys.stdin.readline()
    start(spark, *sys.argv[1:], processingTime="0 seconds").awaitTermination()


if __name__ == "__main__":
    main()
