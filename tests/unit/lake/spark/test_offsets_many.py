"""Many pairs: one answer for all."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.spark.host.duck import DuckEngine, Row
from rmq_ha.lake.spark.offsets.job import lag
from rmq_ha.lake.spark.offsets.many_pairs import PairWork, decided, verify
from rmq_ha.lake.spark.source.messages import messages
from rmq_ha.ops.offsets.findings import COLUMNS, Outcome
from rmq_ha.ops.offsets.model import OFFSET, Fact, Snapshot, queue_fact
from rmq_ha.ops.offsets.opening import look_at_pair
from rmq_ha.ops.offsets.pairing import Forecast
from rmq_ha.ops.offsets.places import StorePlace
from rmq_ha.ops.offsets.sampling import Patience
from rmq_ha.ops.offsets.snapshot_history import append
from rmq_ha.ops.offsets.verdict import Limits, answer
from tests.unit.lake.spark.golden_stores import java_store


def row(code: int, verdict: str = "v", repeats: int | None = 0) -> Any:
    numbers = dict.fromkeys(Forecast._fields, repeats)
    own = {"master": "m", "slaves": ["s"], "safe": code == 0, "exitCode": code, "verdict": verdict}
    values: dict[str, Any] = own | numbers
    return Row.make(list(values), list(values.values()))


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


@pytest.mark.parametrize("records", [False, True])
def test_a_pairs_row_is_what_the_command_would_say_of_it(tmp_path: Path, records: bool) -> None:
    """Its numbers are those of its best slave; what was seen is kept if a history is named."""
    master, good = java_store("clean", tmp_path / "m"), tmp_path / "good"
    shutil.copytree(master, good)
    bad = Path(shutil.copytree(master, tmp_path / "bad"))
    table = bad / "config" / "consumerOffset.json"
    table.write_bytes(b'{"offsetTable":{}}')
    places = [StorePlace(str(place)) for place in (master, bad, good)]
    folder = str(tmp_path / "history") if records else None
    line = PairWork(ClientConfig(), Patience(), Limits(), folder).row(7, places)
    told = answer(look_at_pair(ClientConfig(), places, Patience()), Limits())
    assert (line["number"], line["master"]) == (7, str(master))
    assert line["slaves"] == [str(bad), str(good)]
    assert (line["safe"], line["exitCode"]) == (told.numbers["safe"], int(told.outcome))
    assert line["verdict"] == told.verdict
    best = told.by_slave[str(good)]
    assert {name: line[name] for name in Forecast._fields} == best._asdict()
    assert best != told.by_slave[str(bad)]
    assert [found["code"] for found in line["findings"]] == [each.code for each in told.findings]
    assert line["findings"]
    assert list(line["findings"][0]) == list(COLUMNS)
    assert line["lag"] == lag(told.rows).to_pylist() != []
    assert len(list(tmp_path.glob("history/*/*"))) == (3 if records else 0)


@pytest.mark.parametrize(
    ("codes", "past", "outcome"),
    [
        ([0, 0], False, Outcome.HOLDS),
        ([0, 3, 1], False, Outcome.VIOLATED),
        ([0, 0], True, Outcome.VIOLATED),
    ],
)
def test_all_pairs_are_judged_by_tasks_and_the_worst_are_shown_first(
    tmp_path: Path, codes: list[int], past: bool, outcome: Outcome
) -> None:
    class Fixed(PairWork):
        def row(self, number: int, places: Sequence[Any]) -> dict[str, Any]:
            line = dict.fromkeys(Forecast._fields, 5) | {"findings": [], "lag": []}
            line |= {"number": number, "master": places[0], "slaves": places[1:]}
            code = codes[number]
            return line | {"safe": not code, "exitCode": code, "verdict": f"v{number}"}

    if past:  # the master's offset was 50, and the slave's is 40 where it was 50
        for at, value in ((60_000, 50), (120_000, 40)):
            facts = (Fact(OFFSET, "t", "g", 0, value), queue_fact("t", 0, 0, 100))
            taken = Snapshot("s", "b", 1, "SLAVE", False, at, at, frozenset([OFFSET]), facts)
            append(taken, str(tmp_path))
    pairs: Any = [[f"m{at}", f"s{at}", f"t{at}"] for at in range(len(codes))]
    work = Fixed(ClientConfig(), Patience(), Limits())
    told = verify(DuckEngine(messages), pairs, work, str(tmp_path) if past else None)
    assert told.outcome is outcome
    table = told.sections[0]
    order = sorted(range(len(codes)), key=lambda at: (codes[at] == 0, codes[at]))
    assert table.rows == [(f"m{at}", f"s{at}, t{at}", f"v{at}") for at in order]  # type: ignore[union-attr]
    assert told.numbers["safe"] is not any(codes)
    assert told.numbers["historyViolations"] == past
    assert [row["master"] for row in told.numbers["pairs"]] == [pair[0] for pair in pairs]
    frames = told.frames()
    assert [row.master for row in frames["pairs"].collect()] == [pair[0] for pair in pairs]
    assert frames["lag"].isEmpty()
    assert isinstance(told.findings, DataFrame)
    assert [row.code for row in told.findings.collect()] == ["ROLLBACK"] * past


def test_of_many_pairs_three_hundred_are_shown() -> None:
    class Fixed(PairWork):
        def row(self, number: int, places: Sequence[Any]) -> dict[str, Any]:
            line = dict.fromkeys(Forecast._fields, 0) | {"findings": [], "lag": []}
            line |= {"number": number, "master": "m", "slaves": [], "safe": True}
            return line | {"exitCode": 0, "verdict": "yes"}

    work, pairs = Fixed(ClientConfig(), Patience(), Limits()), [()] * 301
    told = verify(DuckEngine(messages), pairs, work)
    (table,) = told.sections
    assert len(table.rows) == 300  # type: ignore[union-attr]
    assert len(told.numbers["pairs"]) == 301


def test_of_pairs_that_are_not_safe_a_violated_one_is_told_before_an_undecided_one() -> None:
    rows = [row(3, "not known"), row(1, "lost"), row(1, "other")]
    _, verdict = decided(rows)
    assert verdict.endswith("; 1 could not be decided; first: m: lost")
