"""`audit-messages` over whole stores: one that Java wrote, and the same with faults."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.lake.spark.audit.job import audit
from rmq_ha.lake.spark.audit.reduction import of_stores
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest
from rmq_ha.lake.spark.host.engine import SparkEngine
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.places import StorePlace
from tests.sim_kit.store_faults.image import StoreImage
from tests.spark.jobs import FakeJob
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log
from tests.unit.lake.spark.recipes import answer_of

SLOTS = 50


def run(engine: Any, store: Path, **asked: Any) -> JobResult:
    job: Any = FakeJob(engine, 1_800_000_000_000)
    return audit(job, AuditRequest(places=[StorePlace(str(store))], **asked))


def found(result: JobResult) -> set[tuple[Any, ...]]:
    rows = result.findings.select("code", "topic", "queueId", "queueOffset").collect()
    assert len(rows) == len(set(rows))
    return {tuple(row) for row in rows}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return java_store("clean", tmp_path_factory.mktemp("audit"))


def ledgers(rows: list[dict[str, Any]], directory: Path) -> tuple[str, str]:
    """What its producers and one group would have written down."""

    def ms(moment: Any) -> int:
        return int(moment.timestamp() * 1000)

    own = [row for row in rows if row["topic"].startswith("Topic") and row["uniqKey"]]
    sent = [
        {"topic": row["topic"], "msgId": row["msgId"], "sentAt": ms(row["bornTimestamp"]),
         "status": "SEND_OK", "queueId": row["queueId"], "queueOffset": row["queueOffset"]}
        for row in own
    ]  # fmt: skip
    given = [
        {"topic": row["topic"], "msgId": row["msgId"], "group": "g", "queueId": row["queueId"],
         "queueOffset": row["queueOffset"], "deliveredAt": ms(row["storeTimestamp"]) + 9}
        for row in own
    ]  # fmt: skip
    paths = directory / "sent.jsonl", directory / "given.jsonl"
    for path, lines in zip(paths, (sent, given), strict=True):
        path.write_text("\n".join(map(json.dumps, lines)))
    return str(paths[0]), str(paths[1])


def test_a_healthy_store_holds_and_its_report_counts(
    engine: Any, healthy: Path, tmp_path: Path
) -> None:
    """Delayed, transactional, retried and compressed messages, IPv6 hosts: no alarm."""
    rows = rows_of_log(healthy, None)
    sent, given = ledgers(rows, tmp_path)
    result = run(
        engine, healthy, produced=sent, delivered=given, ordered=["g"], grace_ms=0,
        tags={"other": ["x"]},
    )  # fmt: skip
    assert result.outcome is Outcome.HOLDS, found(result)
    says = answer_of("audit-messages").replace("N messages in M", "189 messages in 16")
    assert result.verdict == says, "docs/spark.md"
    assert result.numbers["stored"] == 189
    assert result.numbers["badCrc"] == 0
    assert result.numbers["bytes"] == sum(row["storeSize"] for row in rows)
    assert {row[0] for row in found(result)} <= {"DUPLICATE", "OPEN_HALF", "UNPRODUCED"}
    windows = result.frames()["windows"].collect()
    assert sum(row.stored or 0 for row in windows) >= result.numbers["produced"]
    assert sum(row.delivered or 0 for row in windows) == result.numbers["produced"]
    assert next(section.title for section in result.sections) == "Topics"


def test_a_task_has_its_own_part_of_the_log_alone(spark: Any, healthy: Path) -> None:
    """What all tasks get does not grow with their number, and each one's own is small."""

    def sent(split_size: int) -> tuple[int, list[int]]:
        given = {"splitSize": str(split_size)}
        asked = AuditRequest(places=[StorePlace(str(healthy))], options=given)
        plan = of_stores(SparkEngine(spark), asked).rows._jdf.queryExecution().analyzed()
        tasks = plan.child()
        if tasks.nodeName() == "Repartition":
            tasks = tasks.child()
        dataset = spark._jvm.org.apache.spark.sql.classic.Dataset
        rows = DataFrame(dataset.ofRows(spark._jsparkSession, tasks), spark)
        sizes = rows.selectExpr("length(task)").collect()
        return plan.expressions().head().func().command().size(), [size for (size,) in sizes]

    (shared, few), (shared_of_many, many) = sent(1 << 20), sent(48)
    assert len(many) > 1_000 > 10 > len(few)
    assert abs(shared - shared_of_many) < 64
    assert max(many) < 2 * max(few) < 1_000


def test_faults_are_found_where_they_were_planted(
    engine: Any, healthy: Path, tmp_path: Path
) -> None:
    """Lost, lost behind the delay, stored twice at one offset and at two, exchanged, damaged."""
    image = StoreImage.load(healthy, SLOTS, [1_000, 2_000])
    records = [entry.record for entry in image.records()]

    def numbers_of(queue_id: int) -> list[int]:
        return [
            number
            for number, record in enumerate(records)
            if (record.topic, record.queue_id) == ("TopicB", queue_id)
            and "UNIQ_KEY" in record.properties_string
        ]

    of_queue = numbers_of(1)
    lost, double, again, first, second, damaged = (of_queue[at] for at in (4, 9, 14, 19, 20, 25))
    delayed = numbers_of(0)[0]
    behind = 1 + max(records[number].queue_offset for number in numbers_of(0))
    log = list(records)
    log[first], log[second] = log[second], log[first]
    log.append(records[again]._replace(queue_id=0, queue_offset=behind))
    log.insert(double + 1, records[double])
    del log[lost]
    log.remove(records[delayed])
    moved = image.lay_out(log)
    image.rebuild(moved)
    for offset, record in moved:
        if record.properties_string == records[damaged].properties_string:
            at = image.log.index(record.body, offset - image.base)
            image.log[at] ^= 1
    store = tmp_path / "store"
    image.save(store)
    sent, _ = ledgers(rows_of_log(healthy, None), tmp_path)
    result = run(engine, store, produced=sent, grace_ms=0)
    offsets = {number: records[number].queue_offset for number in of_queue}
    others = ("LOST", "OPEN_HALF", "UNPRODUCED", "CLOCK_BACK")  # back by what was exchanged
    codes = {row for row in found(result) if row[0] not in others}
    assert codes == {
        ("DELAY_NOT_DELIVERED", SCHEDULE_TOPIC, 0, 0),
        ("OFFSET_TWICE", "TopicB", 1, offsets[double]),
        ("DUPLICATE", "TopicB", 1, offsets[double]),
        ("DUPLICATE", "TopicB", 0, behind),
        ("SWAPPED", "TopicB", 1, offsets[first]),
        ("BAD_CRC", "TopicB", 1, offsets[damaged]),
    }
    assert result.outcome is Outcome.VIOLATED
    # Without a ledger the store is reduced where it is read: the same is found.
    plain = run(engine, store)
    gap = ("GAP", "TopicB", 1, offsets[lost])
    assert {row for row in found(plain) if row[0] not in others} == codes | {gap}
    for name in ("stored", "bytes", "queues", "badCrc", "oldestMs", "newestMs", "beginsAtZero"):
        assert plain.numbers[name] == result.numbers[name], name
    ours, theirs = (
        {(row.topic, row.window): (row.stored, row.bytes, row.bornToStoredP99)
         for row in each.frames()["windows"].where("stored is not null").collect()}
        for each in (plain, result)
    )  # fmt: skip
    assert ours == theirs
    rows = result.findings.where("code = 'LOST'").collect()
    unique = "UNIQ_KEY\x01"
    assert [(row.msgId, row.queueId, row.queueOffset) for row in rows] == [
        (records[lost].properties_string.split(unique)[1].split("\x02")[0], 1, offsets[lost])
    ]
    assert "1 LOST" in result.verdict


def test_times_that_no_clock_has_shown_are_no_reason_to_fail(
    engine: Any, healthy: Path, tmp_path: Path
) -> None:
    """A producer may say any time of birth, and the bytes of a time may be damaged."""
    image = StoreImage.load(healthy, SLOTS, [1_000, 2_000])
    log = [entry.record for entry in image.records()]
    own = [at for at, record in enumerate(log) if record.topic == "TopicB"]
    log[own[0]] = log[own[0]]._replace(born_timestamp=1 << 62)
    log[own[1]] = log[own[1]]._replace(born_timestamp=-(1 << 62))
    placed = image.lay_out(log)
    image.rebuild(placed)
    at = placed[own[-1]][0] - image.base
    image.log[at + 56 : at + 64] = (1 << 61).to_bytes(8, "big")  # when it was stored
    image.log[image.log.index(log[own[-1]].body, at)] ^= 1
    image.save(tmp_path / "store")
    sent, given = ledgers(rows_of_log(healthy, None), tmp_path)
    ways: list[dict[str, Any]] = [{"produced": sent, "delivered": given}]
    if not isinstance(engine, SparkEngine):  # there the planted faults take both ways
        ways.append({})
    for asked in ways:
        result = run(engine, tmp_path / "store", **asked)
        (damaged,) = result.findings.where("code = 'BAD_CRC'").collect()
        assert (damaged.topic, damaged.observedAt) == ("TopicB", None)
        assert sum(row.stored or 0 for row in result.frames()["windows"].collect()) > 100


def test_what_is_delayed_or_half_sent_is_not_lost(here: Any, healthy: Path, tmp_path: Path) -> None:
    """A ledger names the real topic; the message lies in a topic of the broker's for the time."""
    rows = [row for row in rows_of_log(healthy, None) if "REAL_TOPIC" in row["properties"]]
    topic = rows[0]["properties"]["REAL_TOPIC"]
    there = {row["msgId"] for row in rows if row["properties"]["REAL_TOPIC"] == topic}
    lines = [{"topic": topic, "msgId": name} for name in [*there, "NEVER"]]
    sent = tmp_path / "sent.json"
    sent.write_text("\n".join(map(json.dumps, lines)))
    result = run(here, healthy, produced=str(sent), topics=(topic,), grace_ms=0)
    lost = result.findings.where("code = 'LOST'").collect()
    assert [row.msgId for row in lost] == ["NEVER"]


def test_nothing_is_no_answer(engine: Any, tmp_path: Path) -> None:
    nothing = tmp_path / "none"
    (nothing / "commitlog").mkdir(parents=True)
    with pytest.raises(CannotDecide):
        run(engine, nothing)
