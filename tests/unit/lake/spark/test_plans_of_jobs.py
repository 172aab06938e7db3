"""What jobs ask Spark for: which rows, of which places and which time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.lake.scan.fleet.judging import JudgingLimits
from rmq_ha.lake.spark import fleet
from rmq_ha.lake.spark.audit.job import _totals
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest, delayed_rows, op_marks, stored_rows
from rmq_ha.lake.spark.audit.tails import tail_findings
from rmq_ha.lake.spark.findings import finding_row
from rmq_ha.lake.spark.result import JobResult, Table
from rmq_ha.ops.offsets.findings import COLUMNS, Finding, Outcome
from rmq_ha.ops.offsets.places import Place, StorePlace
from tests.unit.lake.spark.plans import Plan, Session, columns_without_java

__all__ = ("columns_without_java",)
pytestmark = pytest.mark.usefixtures("columns_without_java")
_OF_QUEUE = ("sums", "bytes", "bad", "mostOffset", "leastPlace", "leastMs", "mostMs")
STORES: list[Place] = [StorePlace("/a"), StorePlace("/b")]


def stored(*places: Place, body: bool = False, **asked: Any) -> list[str]:
    """What is asked of each place for the rows of an audit."""
    session: Any = Session()
    rows = stored_rows(session, AuditRequest(places=places or STORES[:1], **asked), body=body)
    return str(rows).split(".unionByName(")


def test_each_place_is_read_and_says_which_it_is() -> None:
    first, second = stored(*STORES)
    for text, path in ((first, "/a"), (second, "/b")):
        assert f"brokerName={path}" in text
        assert f"path={path}" in text
    (alone,) = stored()
    assert "brokerName=" not in alone


@pytest.mark.parametrize(
    ("asked", "columns", "id_column"),
    [
        ({}, "bodyCRC msgId brokerName)", "msgId AS id"),
        ({"key": "keys"}, "bodyCRC keys brokerName)", "keys AS id"),
        ({"tags": {"g": ["A"]}}, "bodyCRC msgId brokerName tags)", "msgId AS id"),
        ({"body": True}, "bodyCRC msgId brokerName body)", "msgId AS id"),
    ],
)
def test_only_the_columns_are_read_that_somebody_looks_at(
    asked: dict[str, Any], columns: str, id_column: str
) -> None:
    (text,) = stored(**asked)
    assert f"{columns}.options(" in text
    assert id_column in text


@pytest.mark.parametrize(
    ("topics", "produced", "subscribed"),
    [
        ((), None, ""),
        ((), "ledger", ""),
        (("t.1",), None, "subscribe=t.1"),
        (
            ("t.1",),
            "ledger",
            r"subscribePattern=t\.1|SCHEDULE_TOPIC_XXXX|RMQ_SYS_TRANS_HALF_TOPIC"
            "|TRANS_CHECK_MAX_TIME_TOPIC",
        ),
    ],
)
def test_a_ledger_of_producers_is_compared_with_what_is_on_its_way_as_well(
    topics: tuple[str, ...], produced: str | None, subscribed: str
) -> None:
    (text,) = stored(topics=topics, produced=produced)
    options = text.partition(".options(")[2].partition(")")[0]
    found = [part for part in options.split(", ") if part.startswith("subscribe")]
    assert found == ([subscribed] if subscribed else [])


@pytest.mark.parametrize(
    ("span", "steps"),
    [
        ({}, []),
        ({"from_ms": 50}, [">=(unix_millis(storeTimestamp), 40)"]),
        ({"to_ms": 90}, ["<(unix_millis(storeTimestamp), 100)"]),
        (
            {"from_ms": 50, "to_ms": 90},
            [">=(unix_millis(storeTimestamp), 40)", "<(unix_millis(storeTimestamp), 100)"],
        ),
    ],
)
def test_only_the_time_that_was_asked_for_is_read(span: dict[str, int], steps: list[str]) -> None:
    (text,) = stored(grace_ms=10, **span)
    assert text.count(".where(") == len(steps)
    assert "".join(f".where({step})" for step in steps) in text


@pytest.mark.parametrize(("key", "id_column"), [("uniqKey", "uniqKey"), ("keys", "keys")])
def test_a_delayed_message_says_where_it_lies_and_where_it_is_to_go(
    key: str, id_column: str
) -> None:
    session: Any = Session()
    text = str(delayed_rows(session, AuditRequest(places=STORES[:1], key=key)))
    assert (
        ".select(coalesce(brokerName, ) AS brokerName, queueId, queueOffset, commitLogOffset,"
        f" unix_millis(storeTimestamp) AS storedMs, {id_column} AS id,"
    ) in text
    assert text.endswith(".where(id is not null and realTopic is not null)")
    some = str(delayed_rows(session, AuditRequest(places=STORES[:1], topics=("t",))))
    assert some.endswith(".where(in(realTopic, t))")


def test_the_ends_of_half_messages_are_read_of_each_place() -> None:
    session: Any = Session()
    text = str(op_marks(session, AuditRequest(places=STORES)))
    assert text.count("subscribePattern=RMQ_SYS_TRANS_OP_HALF_TOPIC") == 2
    assert text.endswith(".where(queueOffset is not null)")


# Ends of queues


def test_what_is_stored_is_added_up_by_queue_which_ends_behind_its_last_record() -> None:
    def row(broker: str, topic: str, of: int, is_in: bool, n: int, *rest: int) -> Row:
        names = ("brokerName", "topic", "queueId", "inQueue", "n", *_OF_QUEUE)
        return Row(**dict(zip(names, (broker, topic, of, is_in, n, *rest), strict=True)))

    totals = _totals(
        [
            row("b", "t", 3, True, 9, 2, 900, 0, 8, 0, 40, 70),
            row("b", HALF_TOPIC, 0, True, 4, 1, 400, 1, 3, 900, 50, 60),
            row("b", HALF_TOPIC, 0, False, 2, 1, 200, 0, 0, 800, 45, 90),
            row("c", SCHEDULE_TOPIC, 1, True, 5, 1, 500, 0, 11, 100, 55, 65),
        ]
    )
    assert totals == {
        "stored": 20,
        "sums": 5,
        "bytes": 2000,
        "bad": 1,
        "queues": 3,
        "brokers": {"b", "c"},
        "fromZero": {"b"},
        "leastMs": 40,
        "mostMs": 90,
        "halves": 6,
        "delayed": 5,
        "ends": {("b", "t", 3): 9, ("b", HALF_TOPIC, 0): 4, ("c", SCHEDULE_TOPIC, 1): 12},
    }
    nothing = _totals([])
    assert (nothing["stored"], nothing["mostMs"], nothing["ends"]) == (0, None, {})


def test_what_a_queue_has_behind_the_log_is_told_by_its_last_offsets() -> None:
    (found,) = tail_findings({("b", "t", 3): 11}, {("b", "t", 3): 9}, 5)
    assert found.detail.startswith("the consume queue has 2 entries behind the last record")
    assert (found.expected, found.actual) == ("offsets up to 10", "up to 8")
    assert (found.broker, found.queue_offset, found.observed_at) == ("b", 9, 5)
    assert tail_findings({("b", "t", 3): 9}, {("b", "t", 3): 9}, 5) == []


# Findings


def test_a_finding_is_a_row_whether_its_time_is_known_or_not() -> None:
    finding = Finding("ERROR", "X", "detail", topic="t", observed_at=1_500)
    row = dict(zip(COLUMNS, finding_row(finding), strict=True))
    assert (row["severity"], row["topic"], row["observedAt"].timestamp()) == ("ERROR", "t", 1.5)
    assert finding_row(finding._replace(observed_at=None))[-1] is None


# Fleets


class Fleet:
    """Brokers by their facts; each is judged here, where Spark would send it to an executor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, told: dict[str, dict[str, Any]]) -> None:
        self.told = told
        self.job: Any = SimpleNamespace(
            spark=Session(), progress=lambda label: nullcontext(), now_ms=lambda: 7
        )
        self.replicas: list[Any] = [
            SimpleNamespace(
                state=SimpleNamespace(broker=broker),
                paths=lambda kind, broker=broker, at=at: [f"/facts/{broker}-{at}/{kind}"],
            )
            for broker in told
            for at in range(2)
        ]
        monkeypatch.setattr(fleet, "replicas_in", lambda directory: self.replicas)
        monkeypatch.setattr(fleet, "_row", self.row)
        monkeypatch.setattr(fleet, "spread", self.spread)

    def row(self, replicas: Sequence[Any], patience: Any, now_ms: int) -> dict[str, Any]:
        broker = replicas[0].state.broker
        assert (len(replicas), patience.fetches, now_ms) == (2, True, 7)
        numbers = dict.fromkeys(("compared", "differing", "fetched", "left"), 1)
        own = {"broker": broker, "replicas": 2, "verdict": f"of {broker}", "findings": []}
        return numbers | own | {"safe": True, "exitCode": 0} | self.told[broker]

    def spread(self, spark: Any, tasks: Sequence[Any], work: Any, schema: Any) -> Plan:
        batches: Iterator[Any] = work(iter(tasks))
        return Plan("fleet", [Row(**row) for batch in batches for row in batch.to_pylist()])

    def verify(self, *, ids: bool = False) -> JobResult:
        return fleet.verify(self.job, "/facts", JudgingLimits(1, 1, True), 7, looks_for_ids=ids)


def test_every_broker_of_a_fleet_is_judged_and_the_worst_stand_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {
        "a": {},
        "b": {"safe": None},
        "c": {"safe": False},
        "d": {"exitCode": 3, "safe": None},
        "e": {"exitCode": 1, "safe": False, "differing": 0, "replicas": 1},
        "f": {"exitCode": 1, "differing": 5},
    }
    result = Fleet(monkeypatch, told).verify()
    (table,) = result.sections
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["e", "d", "f", "c", "a", "b"]
    assert result.numbers == {
        "brokers": 6,
        "stores": 12,
        **dict.fromkeys(("compared", "fetched", "left"), 6),
        "differing": 9,
    }
    assert result.outcome is Outcome.VIOLATED
    assert result.verdict == (
        "6 brokers, 12 stores: logs differ in 5, safe to fail over 2, without a slave 1, could not"
        " be decided 1; first: e: of e"
    )
    assert "groupBy(topic, timestamp_millis(hour) AS hour)" in str(result.frames["topics"])


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [((0, 0), Outcome.HOLDS), ((0, 3), Outcome.UNDECIDED), ((3, 1), Outcome.VIOLATED)],
)
def test_the_worst_broker_of_a_fleet_counts(
    monkeypatch: pytest.MonkeyPatch, codes: tuple[int, int], outcome: Outcome
) -> None:
    told = {name: {"exitCode": code} for name, code in zip("ab", codes, strict=True)}
    result = Fleet(monkeypatch, told).verify()
    assert result.outcome is outcome
    assert ("could not be decided" in result.verdict) is (3 in codes)
    assert ("first: " in result.verdict) is (codes != (0, 0))


def test_sums_and_ids_are_read_of_masters_only_and_ids_where_somebody_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet_ = Fleet(monkeypatch, {"a": {}, "b": {}})
    plain, twice = fleet_.verify(), fleet_.verify(ids=True)
    assert "read.parquet(/facts/a-0/sums, /facts/b-0/sums)" in str(plain.frames["topics"])
    assert "union" not in str(plain.findings)
    said = str(twice.findings)
    assert "read.parquet(/facts/a-0/ids, /facts/b-0/ids)" in said
    assert "min(place) AS place, min(file) AS file" in said
    assert "regexp_extract(file, ([^/]+)-[0-9]+/[^/]+$, 1)" in said


def test_a_fleet_without_sums_has_no_topics_and_one_without_ids_no_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet_ = Fleet(monkeypatch, {"a": {}})
    for replica in fleet_.replicas:
        replica.paths = lambda kind: []
    result = fleet_.verify(ids=True)
    assert str(result.frames["topics"]) == "made"
    assert "union" not in str(result.findings)


def test_the_report_names_some_hundreds_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_SHOWN", 2)
    (table,) = Fleet(monkeypatch, {"a": {}, "b": {}, "c": {}}).verify().sections
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["a", "b"]
