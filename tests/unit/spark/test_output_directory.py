"""Where a job writes, as far as no session is needed for it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from rmq_ha.errors import WrongUsage
from rmq_ha.offsets.findings import COLUMNS, Outcome
from rmq_ha.offsets.summary import Timings
from rmq_ha.spark.findings import FINDINGS
from rmq_ha.spark.host.output import (
    _LocalPlace,
    prepare,
    refuse_foreign,
    write_refusal,
)

TIMINGS = Timings(1_700_000_000_000, 1.0, 2.0)


def test_a_refusal_leaves_its_reason(tmp_path: Path) -> None:
    """No session is needed to say why there is no verdict; an older verdict does not stay."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "summary.json").write_text("old")
    written = write_refusal("x", {}, Outcome.UNDECIDED, "The store moves.", str(out), TIMINGS)
    assert written.outcome is Outcome.UNDECIDED
    assert json.loads((out / "summary.json").read_text())["exitCode"] == 3
    assert written.summary == json.loads((out / "summary.json").read_text())
    assert written.findings.counts == {}
    assert "The store moves." in (out / "report.html").read_text()
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "summary.json"]


def test_a_refusal_without_a_place_that_it_can_reach_is_told_all_the_same(tmp_path: Path) -> None:
    """Only Spark reaches HDFS, and no session was started."""
    for out in (None, "hdfs://nowhere:1/x"):
        written = write_refusal("x", {}, Outcome.FAILED, "No Java.", out, TIMINGS)
        assert (written.outcome, written.verdict) == (Outcome.FAILED, "No Java.")
        assert written.summary["exitCode"] == int(Outcome.FAILED)
    new = tmp_path / "a" / "b"
    written = write_refusal("x", {}, Outcome.FAILED, "No Java.", f"file://{new}", TIMINGS)
    assert json.loads((new / "summary.json").read_text()) == written.summary


def test_an_older_verdict_is_gone_before_anything_of_the_new_one_is_there(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("old")
    place = _LocalPlace(tmp_path)
    place.begin()
    assert list(tmp_path.iterdir()) == []
    place.write("summary.json", "\ud800 new")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert (tmp_path / "summary.json").read_text() == "? new"


def test_few_findings_are_one_file_and_its_mark_and_replace_those_of_before(tmp_path: Path) -> None:
    old = tmp_path / "findings"
    old.mkdir()
    (old / "part-7.parquet").touch()
    few = to_arrow_schema(FINDINGS, timezone="UTC").empty_table()
    _LocalPlace(tmp_path).save_findings(None, few)  # type: ignore[arg-type]
    assert sorted(path.name for path in old.iterdir()) == ["_SUCCESS", "part-0.parquet"]
    assert pq.read_table(old / "part-0.parquet").schema.names == list(COLUMNS)


def test_whether_it_can_be_written_is_found_out_before_anything_is_read(tmp_path: Path) -> None:
    prepare("hdfs://somewhere/x")
    for _ in range(2):
        prepare(str(tmp_path / "a" / "new"))
    assert list((tmp_path / "a" / "new").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(WrongUsage, match="that is a file; name a directory"):
        prepare(str(tmp_path / "file"))
    with pytest.raises(WrongUsage, match="cannot be written: Not a directory; name another place"):
        prepare(str(tmp_path / "file" / "below"))
    (tmp_path / "a" / "new" / "other").touch()
    with pytest.raises(WrongUsage, match="holds other things"):
        prepare(str(tmp_path / "a" / "new"))


def test_a_directory_with_other_things_is_refused(tmp_path: Path) -> None:
    refuse_foreign(str(tmp_path / "new"))
    refuse_foreign(str(tmp_path))
    refuse_foreign("hdfs://somewhere/x")
    refuse_foreign(f"file://{tmp_path}")
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(WrongUsage, match="empty"):
        refuse_foreign(str(tmp_path))
    with pytest.raises(WrongUsage, match="empty"):
        refuse_foreign(f"file:{tmp_path}")
    (tmp_path / "file").touch()
    with pytest.raises(WrongUsage, match="that is a file; name a directory"):
        refuse_foreign(str(tmp_path / "file"))
    (tmp_path / "findings").mkdir()
    refuse_foreign(str(tmp_path))
