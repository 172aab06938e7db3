"""What jobs ask an engine for: which rows, of which places and which time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.scan.fleet.facts import IDS, SCHEMAS, SUMS
from rmq_ha.lake.scan.fleet.judging import JudgingLimits
from rmq_ha.lake.scan.log.columns import schema_of
from rmq_ha.lake.spark import fleet
from rmq_ha.lake.spark.audit.job import _totals
from rmq_ha.lake.spark.audit.queues import tail_findings
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest, delayed_rows, op_marks, stored_rows
from rmq_ha.lake.spark.findings import row_of
from rmq_ha.lake.spark.host.duck import DuckEngine, Row
from rmq_ha.lake.spark.result import JobResult, Table
from rmq_ha.ops.offsets.findings import COLUMNS, Finding, Outcome
from rmq_ha.ops.offsets.places import Place, StorePlace

_OF_QUEUE = ("sums", "bytes", "bad", "mostOffset", "leastPlace", "leastMs", "mostMs")
STORES: list[Place] = [StorePlace("/a"), StorePlace("/b")]


class Reads(DuckEngine):
    """
    An engine that notes what is read.

    :ivar asked: options and columns of each read.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(self.read)
        self.rows = rows
        self.asked: list[tuple[Mapping[str, str], list[str]]] = []

    def read(self, options: Mapping[str, str], columns: Sequence[str]) -> Any:
        self.asked.append((options, list(columns)))
        return pa.Table.from_pylist([dict(row) for row in self.rows], schema_of(columns))


def test_each_place_is_read_and_says_which_it_is() -> None:
    engine = Reads()
    stored_rows(engine, AuditRequest(places=STORES))
    assert [(given["path"], given["brokerName"]) for given, _ in engine.asked] == [
        ("/a", "/a"),
        ("/b", "/b"),
    ]
    engine = Reads()
    stored_rows(engine, AuditRequest(places=STORES[:1]))
    ((given, _),) = engine.asked
    assert "brokerName" not in given


@pytest.mark.parametrize(
    ("asked", "last"),
    [
        ({}, ["bodyCRC", "msgId", "brokerName"]),
        ({"key": "keys"}, ["bodyCRC", "keys", "brokerName"]),
        ({"tags": {"g": ["A"]}}, ["bodyCRC", "msgId", "brokerName", "tags"]),
        ({"body": True}, ["bodyCRC", "msgId", "brokerName", "body"]),
    ],
)
def test_only_the_columns_are_read_that_somebody_looks_at(
    asked: dict[str, Any], last: list[str]
) -> None:
    engine, body = Reads(), bool(asked.get("body"))
    asked = {name: value for name, value in asked.items() if name != "body"}
    rows = stored_rows(engine, AuditRequest(places=STORES[:1], **asked), body=body)
    ((_, columns),) = engine.asked
    assert columns[-len(last) :] == last
    assert "id" in rows.columns


@pytest.mark.parametrize(
    ("topics", "produced", "subscribed"),
    [
        ((), None, {}),
        ((), "ledger", {}),
        (("t.1",), None, {"subscribe": "t.1"}),
        (
            ("t.1",),
            "ledger",
            {
                "subscribePattern": r"t\.1|SCHEDULE_TOPIC_XXXX|rmq_sys_wheel_timer"
                "|RMQ_SYS_TRANS_HALF_TOPIC|TRANS_CHECK_MAX_TIME_TOPIC"
            },
        ),
    ],
)
def test_a_ledger_of_producers_is_compared_with_what_is_on_its_way_as_well(
    topics: tuple[str, ...], produced: str | None, subscribed: dict[str, str]
) -> None:
    engine = Reads()
    stored_rows(engine, AuditRequest(places=STORES[:1], topics=topics, produced=produced))
    ((given, _),) = engine.asked
    assert {name: text for name, text in given.items() if "subscribe" in name} == subscribed


@pytest.mark.parametrize(
    ("span", "left"),
    [
        ({}, [39, 40, 99, 100]),
        ({"from_ms": 50}, [40, 99, 100]),
        ({"to_ms": 90}, [39, 40, 99]),
        ({"from_ms": 50, "to_ms": 90}, [40, 99]),
    ],
)
def test_only_the_time_that_was_asked_for_is_read(span: dict[str, int], left: list[int]) -> None:
    rows = [{"topic": "t", "storeTimestamp": ms * 1000} for ms in (39, 40, 99, 100)]
    read = stored_rows(Reads(rows), AuditRequest(places=STORES[:1], grace_ms=10, **span))  # type: ignore[arg-type]
    assert [row.storedMs for row in read.collect()] == left


@pytest.mark.parametrize("key", ["uniqKey", "keys"])
def test_a_delayed_message_says_where_it_lies_and_where_it_is_to_go(key: str) -> None:
    properties = [("REAL_TOPIC", "t"), ("REAL_QID", "3")]
    rows = [
        {key: "id", "properties": properties, "queueOffset": 7, "storeTimestamp": 9_000},
        {key: None, "properties": properties},
        {key: "nowhere", "properties": []},
    ]
    asked = AuditRequest(places=STORES[:1], key=key)
    (row,) = delayed_rows(Reads(rows), asked).collect()
    assert (row.brokerName, row.queueOffset, row.storedMs, row.id) == ("", 7, 9, "id")
    assert (row.realTopic, row.realQueueId) == ("t", 3)
    other = AuditRequest(places=STORES[:1], key=key, topics=("u",))
    assert delayed_rows(Reads(rows), other).isEmpty()


def test_the_ends_of_half_messages_are_read_of_each_place() -> None:
    rows = [{"body": b"17", "queueId": 2, "storeTimestamp": 5_000}, {"body": b"\xff", "queueId": 2}]
    engine = Reads(rows)
    marks = op_marks(engine, AuditRequest(places=STORES)).collect()
    assert [(row.queueId, row.queueOffset, row.endedMs) for row in marks] == [(2, 17, 5)] * 2
    patterns = [given["subscribePattern"] for given, _ in engine.asked]
    assert patterns == ["RMQ_SYS_TRANS_OP_HALF_TOPIC"] * 2


# Ends of queues


def test_what_is_stored_is_added_up_by_queue_which_ends_behind_its_last_record() -> None:
    def row(broker: str, topic: str, of: int, is_in: bool, n: int, *rest: int) -> Row:
        names = ("brokerName", "topic", "queueId", "inQueue", "n", *_OF_QUEUE)
        return Row.make(names, (broker, topic, of, is_in, n, *rest))

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
        "timers": 0,
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
    row = row_of(finding)
    assert list(row) == list(COLUMNS)
    assert (row["severity"], row["topic"], row["observedAt"]) == ("ERROR", "t", 1_500_000)
    for unknown in (None, 1 << 62):
        assert row_of(finding._replace(observed_at=unknown))["observedAt"] is None


# Fleets


class Fleet:
    """Brokers by their facts, each of which has a verdict already."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, told: dict[str, dict[str, Any]], folder: Any = None
    ) -> None:
        self.told = told
        self.job: Any = SimpleNamespace(
            engine=lambda: DuckEngine(lambda *_: None), progress=lambda label: nullcontext(),
            now_ms=lambda: 7,
        )  # fmt: skip
        self.replicas: list[Any] = [
            SimpleNamespace(
                directory=f"/facts/{broker}-{at}",
                state=SimpleNamespace(broker=broker),
                paths=lambda kind, broker=broker, at=at: (
                    [f"{folder}/{broker}-{at}/{kind}.parquet"] if folder else []
                ),
            )
            for broker in told
            for at in range(2)
        ]
        monkeypatch.setattr(fleet, "replicas_in", lambda directory: self.replicas)
        monkeypatch.setattr(fleet, "_row", self.row)
        monkeypatch.setattr(fleet, "scanned_twice", lambda replicas: ())

    def row(
        self, replicas: Sequence[Any], patience: Any, now_ms: int, twice: Any
    ) -> dict[str, Any]:
        broker = replicas[0].state.broker
        assert (len(replicas), patience.fetches, now_ms) == (2, True, 7)
        numbers = dict.fromkeys(("compared", "differing", "fetched", "left"), 1)
        own = {"broker": broker, "replicas": 2, "verdict": f"of {broker}", "findings": []}
        own["oldestLook"] = None
        return numbers | own | {"safe": True, "exitCode": 0} | self.told[broker]

    def verify(self, *, ids: bool = False) -> JobResult:
        return fleet.verify(self.job, "/facts", JudgingLimits(1, 1, True), 7, looks_for_ids=ids)


def test_every_broker_of_a_fleet_is_judged_and_the_worst_stand_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, dict[str, Any]] = {
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
    assert result.frames()["topics"].isEmpty()


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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A slave's files are not there: they need not be."""
    for broker in "ab":
        (tmp_path / f"{broker}-0").mkdir()
        sums = [{"topic": "t", "queueId": 0, "hour": 3_600_000, "n": 2, "bytes": 9, "bad": 0}]
        ids = [{"hash": 7, "place": 40 + ord(broker)}]
        for kind, rows in ((SUMS, sums), (IDS, ids)):
            table = pa.Table.from_pylist(rows, SCHEMAS[kind])
            pq.write_table(table, tmp_path / f"{broker}-0" / f"{kind}.parquet")
    fleet_ = Fleet(monkeypatch, {"a": {}, "b": {}}, tmp_path)
    plain, twice = fleet_.verify(), fleet_.verify(ids=True)
    (row,) = plain.frames()["topics"].collect()
    assert (row.topic, row.messages, row.bytes) == ("t", 4, 18)
    assert isinstance(plain.findings, DataFrame)
    assert isinstance(twice.findings, DataFrame)
    assert plain.findings.isEmpty()
    (found,) = twice.findings.collect()
    assert (found.code, found.broker, found.physicalOffset) == ("DUPLICATE", "a", 137)
    assert found.detail.startswith("an id that 2 messages of the fleet have")


def test_the_report_names_some_hundreds_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_SHOWN", 2)
    (table,) = Fleet(monkeypatch, {"a": {}, "b": {}, "c": {}}).verify().sections
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["a", "b"]
