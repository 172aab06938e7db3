"""Rows that travel as one value, and how they are divided by id."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.lake.scan.ledger_rows import (
    PARTS,
    PRODUCED,
    STORED,
    TOLD,
    divide,
    of_records,
    pack,
    unpack,
)
from rmq_ha.lake.scan.store.directory import open_store, scan

LONGS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.none() | st.text(max_size=9), "topic": st.none() | st.sampled_from("tu")}
        | {"storedMs": LONGS, "order": LONGS, "crcOk": st.none() | st.booleans()}
    )
)


def batch(rows: list[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=TOLD)


@pytest.mark.lake
@given(ROWS)
def test_what_is_packed_is_what_is_unpacked(rows: list[dict[str, Any]]) -> None:
    told = batch(rows)
    (data,) = pack(told, PRODUCED).to_pylist()
    said = unpack(data)
    assert said.schema == TOLD
    assert said.to_pylist() == [{**row, "side": PRODUCED} for row in told.to_pylist()]


def test_a_column_of_another_width_becomes_ours() -> None:
    narrow = pa.RecordBatch.from_pydict({"id": ["a"], "bodyCrc": pa.array([7], pa.int32())})
    (data,) = pack(narrow, STORED).to_pylist()
    (row,) = unpack(data).to_pylist()
    assert (row["id"], row["bodyCrc"], row["side"], row["topic"]) == ("a", 7, STORED, None)


@pytest.mark.lake
@given(ROWS, st.integers(1, 300))
def test_all_rows_of_an_id_are_in_one_part(rows: list[dict[str, Any]], count: int) -> None:
    told = batch(rows)
    parts: dict[int, list[dict[str, Any]]] = {}
    for piece in divide(told, count):
        assert piece.schema == PARTS
        (row,) = piece.to_pylist()
        assert 0 <= row["part"] < count
        assert row["part"] not in parts
        parts[row["part"]] = unpack(row["data"]).to_pylist()
    said = [row for row in told.to_pylist() if row["id"] is not None]
    for some in parts.values():
        ids = {row["id"] for row in some}
        assert some == [row for row in said if row["id"] in ids]  # in their order
    assert sum(map(len, parts.values())) == len(said)


def test_ids_are_spread_evenly() -> None:
    told = batch([{"id": f"0A141E281F905B2133A1{number:012X}"} for number in range(10_000)])
    sizes = [len(unpack(piece["data"][0].as_py())) for piece in divide(told, 10)]
    assert len(sizes) == 10
    assert min(sizes) > 800


@pytest.mark.parametrize("tags", [False, True])
def test_records_say_what_their_columns_say(java: Path, tags: bool) -> None:
    store = open_store(str(java))
    for split in store.splits():
        for records in scan(store, split):
            told = of_records(records, "b", "keys", tags=tags).to_pylist()
            same = {
                "id": "keys", "topic": "topic", "queueId": "queueId", "bodyCrc": "bodyCRC",
                "queueOffset": "queueOffset", "commitLogOffset": "commitLogOffset",
                "crcOk": "crcOk", "storeSize": "storeSize",
            }  # fmt: skip
            wanted = records.batch([*same.values(), "tags"]).to_pylist()
            assert [{name: row[name] for name in same} for row in told] == (
                [{name: row[of] for name, of in same.items()} for row in wanted]
            )
            assert [row.get("tags") for row in told] == (
                [row["tags"] if tags else None for row in wanted]
            )
            assert {row["brokerName"] for row in told} == {"b"}
            times = [(row["bornMs"], row["storedMs"]) for row in told]
            born, stored = records.born_timestamp.tolist(), records.store_timestamp.tolist()
            assert times == list(zip(born, stored, strict=True))
