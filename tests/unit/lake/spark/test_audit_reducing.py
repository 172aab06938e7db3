"""Records reduced to counts, runs and hashes: the same as a look at each of them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq_ha.lake.scan.arrays import text_hashes
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.reducing import IDS, RUN, SUMS, Reduction, is_ordinary, latency_floors
from rmq_ha.lake.scan.store.directory import open_store, scan
from tests.unit.lake.spark.golden_stores import java_store


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Records]:
    store = open_store(str(java_store("clean", tmp_path_factory.mktemp("reducing"))))
    return [piece for split in store.splits() for piece in scan(store, split)]


def rows(parts: list[Records], **given: Any) -> list[dict[str, Any]]:
    how = Reduction("b", "uniqKey", 1_000, **given)
    return [row for part in parts for batch in how.batches(part) for row in batch.to_pylist()]


def single(parts: list[Records]) -> list[dict[str, Any]]:
    columns = ["topic", "queueId", "queueOffset", "commitLogOffset", "msgId", "keys", "storeSize",
               "crcOk"]  # fmt: skip
    found = []
    for part in parts:
        flags = part.stored_sys_flag.tolist()
        born, stored = part.born_timestamp.tolist(), part.store_timestamp.tolist()
        each = zip(part.batch(columns).to_pylist(), flags, born, stored, strict=True)
        found += [
            row | {"inQueue": not flag & 4, "born": one, "stored": two}
            for row, flag, one, two in each
        ]
    return found


def test_counts_are_those_of_the_records(parts: list[Records]) -> None:
    wanted: dict[Any, list[int]] = {}
    for row in single(parts):
        key = (
            row["topic"], row["queueId"], row["inQueue"], row["born"] // 1000 * 1000,
            int(latency_floors(np.array([row["stored"] - row["born"]]))[0]),
        )  # fmt: skip
        one = wanted.setdefault(key, [0, 0, 0])
        one[0] += 1
        one[1] += row["storeSize"]
        one[2] = max(one[2], row["queueOffset"])
    found: dict[Any, list[int]] = {}
    for row in rows(parts):
        if row["kind"] == SUMS:
            names = ("topic", "queueId", "inQueue", "window", "latency")
            one = found.setdefault(tuple(row[name] for name in names), [0, 0, 0])
            one[0] += row["n"]
            one[1] += row["bytes"]
            one[2] = max(one[2], row["mostOffset"])
            assert not row["bad"]
    assert found == wanted


def test_runs_cover_each_record_once_and_ids_have_their_places(parts: list[Records]) -> None:
    every = single(parts)
    queued = sorted(
        (row["topic"], row["queueId"], row["queueOffset"]) for row in every if row["inQueue"]
    )
    runs = [row for row in rows(parts) if row["kind"] == RUN]
    covered = [
        (row["topic"], row["queueId"], offset)
        for row in runs
        for offset in range(row["leastOffset"], row["mostOffset"] + 1)
    ]
    assert sorted(covered) == queued
    assert len(runs) < len(queued) / 3
    first = {row["commitLogOffset"]: row for row in every}
    for run in runs:
        assert first[run["leastPlace"]]["queueOffset"] == run["leastOffset"]
        assert first[run["leastPlace"]]["stored"] == run["leastMs"]
    ids = [row for row in rows(parts) if row["kind"] == IDS]
    places = [place for row in ids for place in row["places"]]
    own = [row for row in every if row["inQueue"] and is_ordinary(row["topic"])]
    assert sorted(places) == sorted(row["commitLogOffset"] for row in own)
    hashes = {hash for row in ids for hash in row["hashes"]}
    assert len(hashes) == len({(row["topic"], row["msgId"]) for row in own})


def test_of_messages_without_an_id_no_number_is_kept(parts: list[Records]) -> None:
    how = Reduction("b", "keys", 1_000)
    kept = [row for part in parts for batch in how.batches(part) for row in batch.to_pylist()]
    places = [place for row in kept if row["kind"] == IDS for place in row["places"]]
    own = [row for row in single(parts) if row["inQueue"] and is_ordinary(row["topic"])]
    named = [row["commitLogOffset"] for row in own if row["keys"] is not None]
    assert 0 < len(named) < len(own)
    assert sorted(places) == sorted(named)


def test_only_the_time_that_is_asked_for(parts: list[Records]) -> None:
    moments = sorted(row["stored"] for row in single(parts))
    low, high = moments[len(moments) // 3], moments[2 * len(moments) // 3]
    found = rows(parts, from_ms=low, to_ms=high)
    counted = sum(row["n"] for row in found if row["kind"] == SUMS)
    assert counted == sum(low <= moment < high for moment in moments)
    assert rows(parts, from_ms=moments[-1] + 1) == []


@given(st.lists(st.integers(-5, 1 << 40)))
def test_latencies_have_the_same_classes(values: list[int]) -> None:
    found = latency_floors(np.array(values, np.int64))
    alone = [int(latency_floors(np.array([value], np.int64))[0]) for value in values]
    assert found.tolist() == alone


@example([("é", 0), ("©", 1)])
@given(st.lists(st.tuples(st.sampled_from(["", "a", "é", "a\0", "x" * 9, "y" * 40]) | st.text(),
                          st.integers(0, 1))))  # fmt: skip
def test_numbers_of_texts_are_equal_where_texts_are(pairs: list[tuple[str, int]]) -> None:
    texts = pa.array([None, *(text for text, _ in pairs)], pa.string()).slice(1)
    seeds = np.array([seed for _, seed in pairs], np.uint64)
    found = text_hashes(texts, seeds).tolist()
    assert len(set(found)) == len(set(pairs))
    assert len(set(zip(found, pairs, strict=True))) == len(set(pairs))


def test_numbers_of_texts_that_differ_in_the_last_letters_of_two_words_differ() -> None:
    """What a word has changed in its number, a like change in the next word must not take back."""
    letters = [chr(number) for number in range(128)]
    texts = pa.array([f"abcdefg{one}hijklmn{other}" for one in letters for other in letters])
    found = text_hashes(texts, np.zeros(len(texts), np.uint64))
    assert len(np.unique(found)) == len(texts)
