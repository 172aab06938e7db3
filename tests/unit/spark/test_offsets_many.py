"""Many pairs: one answer for all."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.offsets.findings import Outcome
from rmq_ha.offsets.pairing import Forecast
from rmq_ha.offsets.places import StorePlace
from rmq_ha.offsets.sampling import Patience
from rmq_ha.offsets.verdict import Limits
from rmq_ha.spark.offsets.many import PairWork, decided


def row(code: int, verdict: str = "v", repeats: int | None = 0) -> Any:
    numbers = dict.fromkeys(Forecast._fields, repeats)
    return Row(master="m", slaves=["s"], safe=code == 0, exitCode=code, verdict=verdict, **numbers)


@pytest.mark.parametrize(
    ("codes", "past", "outcome", "says"),
    [
        ([0, 0], 0, Outcome.HOLDS, "safe to fail over: yes, all 2 pairs; 0 messages"),
        ([0, 3, 1], 0, Outcome.VIOLATED, "no: 2 of 3 pairs; 0 messages"),
        ([0, 3], 0, Outcome.UNDECIDED, "no: 1 of 2 pairs; 0 messages"),
        ([0], 2, Outcome.VIOLATED, "the history holds 2 violations"),
    ],
)
def test_the_worst_pair_counts(codes: list[int], past: int, outcome: Outcome, says: str) -> None:
    rows = [row(code, f"verdict {code}") for code in codes]
    answered, verdict = decided(rows, past)
    assert (answered, says in verdict) == (outcome, True)
    worst = next((code for code in (1, 3) if code in codes), None)
    assert worst is None or verdict.endswith(f"first: m: verdict {worst}")


def test_numbers_are_added_up_and_what_is_unknown_is_none() -> None:
    rows = [row(0, repeats=3), row(0, repeats=4), row(3, repeats=None)]
    assert "7 messages would be repeated, 7 skipped, 7 lost; 1 could not" in decided(rows)[1]


def test_a_pair_that_cannot_be_read_is_one_row_and_no_failure(tmp_path: Path) -> None:
    work = PairWork(ClientConfig(), Patience(), Limits())
    found = work.row(5, [StorePlace(str(tmp_path / name)) for name in "ms"])
    assert (found["number"], found["safe"], found["exitCode"]) == (5, False, 3)
    assert (found["master"], found["slaves"]) == (str(tmp_path / "m"), [str(tmp_path / "s")])
    assert found["verdict"].startswith(f"could not decide: {tmp_path / 'm'} has no commit log")
    same = work.row(0, [StorePlace(str(tmp_path))] * 2)
    assert "are the same place" in same["verdict"]
