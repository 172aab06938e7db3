"""
A process without Java that does everything over Spark Connect.

Arguments: the server's port, the name server of a broker with the topic `Connect`, two stores that
are the same, a directory for what is written, and which jobs; on stdout a line for each thing done.
"""

import json
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark.sql.utils import is_remote

from rmq_ha.lake.scan.command import main as scan
from rmq_ha.lake.spark.cli import main as jobs
from rmq_ha.lake.spark.host.session import start_session

TOPIC = "Connect"


def batch_stream_and_sink(master: str, namesrv: str, store: str, out: Path) -> None:
    """Rows of a store into a topic; out of it by a stream, which a listener looks at."""
    from prometheus_client import REGISTRY

    from rmq_ha.lake.spark.lag import LagListener

    spark = start_session(master=master)
    assert is_remote()
    spark.streams.addListener(LagListener())
    where = {"namesrv": namesrv, "subscribe": TOPIC}
    read = spark.read.format("rocketmq").option("subscribe", "TopicC").load(store)
    read.select("body", "keys").write.format("rocketmq").options(namesrv=namesrv, topic=TOPIC).mode(
        "append"
    ).save()
    rows = spark.readStream.format("rocketmq").options(**where, startingOffsets="earliest").load()
    query = (
        rows.select("body", "queueOffset")
        .writeStream.format("parquet")
        .queryName("over-connect")
        .options(path=str(out / "table"), checkpointLocation=str(out / "checkpoint"))
        .start()
    )
    seen = set()
    while query.isActive and len(seen) < 4:
        query.processAllAvailable()
        for metric in REGISTRY.collect():
            if metric.name == "rmqha_spark_behind_messages":
                seen |= {s.labels["queue"] for s in metric.samples if s.value == 0}
    query.stop()
    say("stream", spark.read.parquet(str(out / "table")).count(), sorted(seen))
    spark.stop()


def job(master: str, *arguments: Any) -> None:
    """A command of rmqha-spark, as on a command line."""
    name = "--spark-master" if arguments[0] == "verify-offsets" else "--master"
    done = CliRunner().invoke(jobs, [*map(str, arguments), name, master, "--quiet"])
    say(arguments[0], done.exit_code, done.stdout.splitlines()[-1])


def say(*what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    port, namesrv, store, other, out, *which = sys.argv[1:]
    master = f"sc://127.0.0.1:{port}"
    batch_stream_and_sink(master, namesrv, store, Path(out))
    for name in which:
        given: list[Any] = {
            "verify-replica": [store, other, "--check", "bytes", "--out", f"{out}/replica"],
            "verify-offsets": ["--master", store, "--slave", other],
            "audit-messages": [store, "--out", f"{out}/audit"],
            "archive": [store, "--to", f"{out}/archive", "--before", "now"],
            "replay": [
                *(f"{out}/archive", "--topic", "TopicC"),
                *("--as", TOPIC, "--namesrv", namesrv),
            ],
            "verify-fleet": [f"{out}/facts"],
        }[name]
        if name == "verify-fleet":
            for number, place in enumerate((store, other)):
                arguments = [place, "--to", f"{out}/facts", "--broker", "b", "--id", str(number)]
                CliRunner().invoke(scan, arguments, catch_exceptions=False)
        job(master, name, *given)


if __name__ == "__main__":
    main()
