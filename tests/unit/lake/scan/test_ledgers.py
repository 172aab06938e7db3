"""What rows of ledgers say, however they are spelt; those that say nothing are counted."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.lake.scan.ledger_files import (
    COUNT,
    LINE,
    OUTSIDE,
    PACKED,
    SCHEMA,
    UNUSABLE,
    LedgerReading,
    LedgerScope,
)
from rmq_ha.lake.scan.ledger_rows import DELIVERED, PRODUCED, unpack

T0 = 1_700_000_000_000
SENT = LedgerReading(PRODUCED, "msgId", 60_000)


ROW = "a row"


def read(how: LedgerReading, *batches: Any) -> list[dict[str, Any]]:
    """What is null is left out; rows are unpacked."""
    made = list(how.batches(batches))
    assert all(batch.schema == SCHEMA and len(batch) for batch in made)
    rows = []
    for row in (row for batch in made for row in batch.to_pylist()):
        said = unpack(row["data"]).to_pylist() if row["kind"] == PACKED else []
        rows += [{**one, "kind": ROW} for one in said] or [row]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def lines(*rows: Any) -> Any:
    texts = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return pa.RecordBatch.from_pydict({LINE: pa.array(texts, pa.binary())})


def rows_of(*rows: Any, how: LedgerReading = SENT) -> list[dict[str, Any]]:
    return [row for row in read(how, lines(*rows)) if row["kind"] == ROW]


def test_a_row_in_full() -> None:
    (count, row) = read(
        SENT,
        lines(
            {
                "topic": "t", "msgId": "A", "sentAt": T0, "status": "SEND_OK", "brokerName": "b",
                "transactionState": "COMMIT", "queueId": 2, "queueOffset": 7, "orderKey": "o",
                "sequence": 3, "bodyCrc": 0xFFFFFFFF, "group": "g", "reconsumeTimes": 1,
            }
        ),
    )  # fmt: skip
    assert row == {
        "kind": ROW, "topic": "t", "id": "A", "atMs": T0, "status": "SEND_OK", "brokerName": "b",
        "transactionState": "COMMIT", "queueId": 2, "queueOffset": 7, "orderKey": "o", "order": 3,
        "bodyCrc": 0x7FFFFFFF, "group": "g", "reconsumeTimes": 1, "side": PRODUCED,
    }  # fmt: skip
    assert count == {
        "kind": COUNT, "topic": "t", "group": "g", "window": T0 - 20_000, "n": 1,
        "acknowledged": 1, "since": T0, "until": T0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"msg_id": "A", "consumer_group": "g", "consumed_at": T0, "queue_id": 1},
        {"messageId": "A", "consumerGroup": "g", "consumedAt": T0, "queueId": 1},
        {"uniq_key": "A", "group": "g", "delivered_at": str(T0), "queueId": "1", "other": [1]},
        {"uniqKey": "A", "msgId": None, "group": "g", "deliveredAt": float(T0), "queueId": 1.0},
    ],
)
def test_every_spelling_says_the_same(given: dict[str, Any]) -> None:
    (row,) = rows_of(given, how=LedgerReading(DELIVERED, "msgId", 60_000))
    assert (row["id"], row["group"], row["atMs"], row["queueId"]) == ("A", "g", T0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "2023-11-14 22:13:20.000",
        " 2023-11-14T23:13:20+01:00 ", f"  {T0} ", "20231114T221320Z",
    ],
)  # fmt: skip
def test_times_are_numbers_or_iso_8601(text: str) -> None:
    (row,) = rows_of({"msgId": "A", "sentAt": text})
    assert row["atMs"] == T0


@pytest.mark.parametrize("value", ["yesterday", "", None, True, [T0], 1 << 63, 1.5, "1_000"])
def test_what_is_no_time_and_no_number_is_nothing(value: Any) -> None:
    (row,) = rows_of({"msgId": "A", "sentAt": value, "queueOffset": value, "queueId": value})
    assert not {"atMs", "queueOffset", "queueId"} & set(row)


@pytest.mark.parametrize("value", [T0 * 1_000_000, -1, "9" * 5_000, 253_402_300_800_000])
def test_a_time_that_no_clock_shows_is_none(value: Any) -> None:
    (row,) = rows_of({"msgId": "A", "sentAt": value})
    assert (row["id"], "atMs" in row, "order" in row) == ("A", False, False)
    (row,) = rows_of({"msgId": "A", "sentAt": 253_402_300_799_999})
    assert row["atMs"] == 253_402_300_799_999


def test_a_queue_that_no_broker_has_is_none() -> None:
    (row,) = rows_of({"msgId": "A", "queueId": 1 << 31, "queueOffset": 1 << 31})
    assert ("queueId" in row, row["queueOffset"]) == (False, 1 << 31)


def test_texts_that_are_none_are_as_json_has_them() -> None:
    given = [
        {"msgId": 17, "topic": True, "status": {"a": 1}, "orderKey": 2.5},
        {"msgId": "\ud800", "topic": "t"},
    ]
    first, second = rows_of(*given)
    assert (first["id"], first["topic"], first["status"], first["orderKey"]) == (
        ("17", "true", '{"a": 1}', "2.5")
    )
    assert second["id"] == "?"


def test_lines_that_say_nothing_are_counted() -> None:
    torn, not_utf8 = b'{"msgId": "A', b'{"msgId": "\xff"}'
    deep = b'{"msgId": ' + b"[" * 100_000
    some = read(SENT, lines(torn, not_utf8, deep, [1], "text", {"msgId": ""}, {"topic": "t"}, {}))
    assert some == [{"kind": UNUSABLE, "n": 8}]
    assert read(SENT, lines()) == []


def test_nan_is_no_reason_to_lose_a_line() -> None:
    (row,) = rows_of(b'{"msgId": "A", "queueOffset": NaN, "queueId": 1}')
    assert (row["id"], row["queueId"], "queueOffset" in row) == ("A", 1, False)


def test_a_batch_has_several_ids() -> None:
    rows = read(SENT, lines({"msgId": "A,B", "sentAt": T0}, {"msgId": ",C,"}, {"msgId": ","}))
    assert [(row["id"], row.get("atMs")) for row in rows if row["kind"] == ROW] == (
        [("A", T0), ("B", T0), ("C", None)]
    )
    assert [row["n"] for row in rows if row["kind"] == UNUSABLE] == [1]
    assert sum(row["n"] for row in rows if row["kind"] == COUNT) == 3


def test_what_one_row_says_of_a_batch_is_of_no_single_message() -> None:
    """One CRC for two hundred messages made two hundred changed bodies."""
    row = {"topic": "t", "queueId": 1, "queueOffset": 7, "bodyCrc": 5, "keys": "k"}
    batch, (alone,) = rows_of({**row, "msgId": "A,B,C"}), rows_of({**row, "msgId": "D"})
    assert [told["queueOffset"] for told in batch] == [7, 8, 9]
    assert not any("bodyCrc" in told or "keysHash" in told for told in batch)
    assert (alone["queueOffset"], alone["bodyCrc"]) == (7, 5)
    assert "keysHash" in alone


@pytest.mark.parametrize(
    ("scope", "ids"),
    [
        (LedgerScope(), "ABCD"),
        (LedgerScope(topics=["t"]), "ABD"),  # without a topic it may be any
        (LedgerScope(brokers=["b"]), "A"),
        (LedgerScope(from_ms=T0), "BCD"),  # without a time, too
        (LedgerScope(to_ms=T0), "AD"),
        (LedgerScope(from_ms=T0, to_ms=T0 + 1), "BD"),
    ],
)
def test_only_what_is_asked_about_is_kept(scope: LedgerScope, ids: str) -> None:
    given = [
        {"msgId": "A", "topic": "t", "brokerName": "b", "sentAt": T0 - 1},
        {"msgId": "B", "topic": "t", "brokerName": "c", "sentAt": T0},
        {"msgId": "C", "topic": "u", "sentAt": T0 + 1},
        {"msgId": "D"},
    ]
    rows = read(SENT._replace(scope=scope), lines(*given))
    assert "".join(row["id"] for row in rows if row["kind"] == ROW) == ids
    assert sum(row["n"] for row in rows if row["kind"] == OUTSIDE) == 4 - len(ids)


def test_counts_are_by_topic_group_and_window() -> None:
    given = [
        {"msgId": "A", "topic": "t", "sentAt": 59_999, "status": "SEND_OK"},
        {"msgId": "B", "topic": "t", "sentAt": 1, "status": "SLAVE_NOT_AVAILABLE"},
        {"msgId": "C", "topic": "t", "sentAt": 60_000, "status": "TIMEOUT"},
        {"msgId": "D", "topic": "t"},
        {"msgId": "E", "group": "g", "sentAt": 5},
    ]
    counts = [row for row in read(SENT, lines(*given)) if row["kind"] == COUNT]
    told = {
        (row.get("topic"), row["group"], row.get("window")): (
            row["n"], row["acknowledged"], row.get("since"), row.get("until"),
        )
        for row in counts
    }  # fmt: skip
    assert told == {
        ("t", "(unnamed)", 0): (2, 2, 1, 59_999),
        ("t", "(unnamed)", 60_000): (1, 0, 60_000, 60_000),
        ("t", "(unnamed)", None): (1, 1, None, None),
        (None, "g", 0): (1, 1, 5, 5),
    }


def test_columns_of_other_kinds_say_the_same() -> None:
    """As Parquet has them; a column beside lines is a directory's, `topic=t/`."""
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "msgId": pa.array([b"A", b"B"]),
            "sentAt": pa.array([at, None], pa.timestamp("us", "UTC")),
            "sent_at": pa.array([None, at.replace(tzinfo=None)], pa.timestamp("us")),
            "queueOffset": pa.array([Decimal(7), None]),
        }
    )
    first, second = (row for row in read(SENT, batch) if row["kind"] == ROW)
    assert (first["id"], first["atMs"], first["queueOffset"]) == ("A", T0, 7)
    assert (second["id"], second["atMs"]) == ("B", T0)
    placed = lines({"msgId": "A"}).append_column("topic", pa.array(["t"]))
    assert [row["topic"] for row in read(SENT, placed) if row["kind"] == ROW] == ["t"]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NAMES = ("msgId", "msg_id", "topic", "queueId", "sentAt", "status", "group", "reconsumeTimes")


@pytest.mark.lake
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES)))
def test_each_row_is_read_as_it_is_alone(rows: list[dict[str, Any]]) -> None:
    """What stands beside a row, and so of which kind a whole column is, changes nothing of it."""

    def said(*some: dict[str, Any]) -> list[dict[str, Any]]:
        return [row for row in read(SENT, lines(*some)) if row["kind"] == ROW]

    assert said(*rows) == [row for alone in rows for row in said(alone)]
