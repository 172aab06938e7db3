"""Archive and audit of a running broker: the archive beside its live topic, and a ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import WrongUsage
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.spark.archive import replay
from rmq_ha.lake.spark.archive.job import ArchiveRequest, archive
from rmq_ha.lake.spark.archive.table import table
from rmq_ha.lake.spark.audit.job import audit
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest as AuditAsked
from rmq_ha.lake.spark.host.engine import SparkEngine
from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.places import parse_place
from tests.spark import lakes
from tests.spark.jobs import FakeJob
from tests.spark.live_brokers import Cluster, cluster_in

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_in(tmp_path_factory.mktemp("live"), slave=False) as made:
        made.create(TOPIC)
        yield made


def send(cluster: Cluster, first: int, stop: int) -> list[dict[str, Any]]:
    """Lines of a producer's ledger."""
    lines = []
    with cluster.client() as client:
        for number in range(first, stop):
            now = int(time.time() * 1000)
            result = client.send(Message(TOPIC, b"x%d" % number, keys=f"k{number}"))
            lines.append(
                {"topic": TOPIC, "msgId": result.msg_id, "sentAt": now,
                 "status": result.send_status.name}
            )  # fmt: skip
    return lines


def read(spark: Any, cluster: Cluster, topic: str, columns: tuple[str, ...]) -> list[Any]:
    schema = struct_of({name: COLUMNS[name] for name in columns})
    options = {"namesrv": cluster.namesrv, "subscribe": topic}
    rows: list[Any] = (
        spark.read.format("rocketmq").schema(schema).options(**options).load().collect()
    )
    return rows


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("parquet", marks=lakes.ONLY_PARQUET),
        pytest.param("delta", marks=lakes.ONLY_DELTA),
    ],
)
def test_archive_and_live_topic_are_one_table(
    spark: Any, cluster: Cluster, tmp_path: Path, form: str
) -> None:
    """Sent, archived, sent again: the table has each message once, and the audit loses none."""
    job: Any = FakeJob(SparkEngine(spark))
    place = parse_place(f"namesrv://{cluster.namesrv}/broker-a")
    to = str(tmp_path / "archive")
    sent = send(cluster, 0, 30)
    asked = ArchiveRequest(place=place, to=to, form=form, topics=(TOPIC,))
    assert archive(job, asked).numbers["rows"] == 30
    sent += send(cluster, 30, 50)
    live = {"namesrv": cluster.namesrv, "subscribe": TOPIC}
    together = table(spark, to, live, form=form)
    keys = sorted(row.msgId for row in together.select("msgId").collect())
    assert keys == sorted(line["msgId"] for line in sent)
    assert archive(job, asked).numbers["rows"] == 20
    # A store whose broker is not named would archive all of it again.
    unnamed = parse_place(str(cluster.master.store))
    with pytest.raises(WrongUsage, match="--broker-name"):
        archive(job, ArchiveRequest(place=unnamed, to=to, form=form, topics=(TOPIC,)))

    # Back into another topic: the same messages, with their times, no faster than they may come;
    # what is there is not sent twice.
    cluster.create("again")
    job.client = ClientConfig(namesrv_addr=cluster.namesrv)
    back = replay.ReplayRequest(archive=to, form=form, topic=TOPIC, to="again", rate=100)
    assert replay.replay(job, back).numbers["sent"] == 50
    assert replay.replay(job, back).numbers == {"sent": 0, "queues": 4, "alreadyThere": 50}
    columns = (
        "uniqKey", "queueId", "keys", "body", "properties", "bornTimestamp", "storeTimestamp",
        "queueOffset", "msgId",
    )  # fmt: skip
    copies = read(spark, cluster, "again", columns)
    originals = {row.uniqKey: row for row in read(spark, cluster, TOPIC, columns)}
    for row in copies:
        one = originals[row.uniqKey]
        assert (row["keys"], row.body, row.queueId) == (one["keys"], one.body, one.queueId)
        for name, moment in (
            (replay.ORIGINAL_BORN, one.bornTimestamp),
            (replay.ORIGINAL_STORED, one.storeTimestamp),
        ):
            ms = moment.replace(tzinfo=UTC).timestamp() * 1000
            assert abs(int(row.properties[name]) - ms) <= 1
        assert row.properties[replay.ORIGINAL_ID] == one.msgId
    stored = sorted(row.storeTimestamp for row in copies)
    assert (stored[-1] - stored[0]).total_seconds() >= 0.3, "50 at 100 a second, 10 at a time"
    order = [(row.queueId, row.queueOffset, originals[row.uniqKey].queueOffset) for row in copies]
    assert [each[::2] for each in sorted(order)] == sorted(each[::2] for each in order)

    ledger = tmp_path / "sent.jsonl"
    lost = {"topic": TOPIC, "msgId": "NEVER", "sentAt": sent[25]["sentAt"], "status": "SEND_OK"}
    ledger.write_text("\n".join(map(json.dumps, [*sent, lost])))
    result = audit(
        job, AuditAsked(places=[place], topics=(TOPIC,), produced=str(ledger), grace_ms=0)
    )
    assert result.outcome is Outcome.VIOLATED
    assert [row.msgId for row in result.findings.collect()] == ["NEVER"]
    assert result.numbers["stored"] == 50
