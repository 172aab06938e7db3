"""Where a job writes, as far as no session is needed for it."""

import errno
import io
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import StorageLevel

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.findings import FINDINGS
from rmq_ha.lake.spark.host.duck import DuckEngine
from rmq_ha.lake.spark.host.engine import SparkEngine, SparkFrame
from rmq_ha.lake.spark.host.output import (
    AT_HAND,
    _count,
    _LocalPlace,
    _place,
    prepare,
    refuse_foreign,
    write_output,
    write_refusal,
)
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.source.messages import messages
from rmq_ha.ops.offsets.findings import COLUMNS, Finding, Outcome
from rmq_ha.ops.offsets.summary import Timings

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
    few = FINDINGS.empty_table()
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


def test_a_disk_that_is_full_is_noticed_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file may still be made there."""

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Full())
    with pytest.raises(WrongUsage, match="cannot be written: No space left on device"):
        prepare(str(tmp_path))


def test_a_directory_that_cannot_be_looked_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Any) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(WrongUsage, match="cannot be read: Permission denied"):
        refuse_foreign(str(tmp_path))


def test_many_findings_are_written_by_spark(tmp_path: Path) -> None:
    rows: Any = Frame([a_finding(1)])
    _LocalPlace(tmp_path).save_findings(SparkFrame(rows), None)
    assert rows.told == ["overwrite", f"file://{tmp_path}/findings"]


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


class Frame:
    """What writing asks of a frame of Spark with these rows."""

    def __init__(self, rows: list[dict[str, Any]], level: StorageLevel = StorageLevel.NONE) -> None:
        self.table = pa.Table.from_pylist(rows, FINDINGS)
        self.storageLevel = level
        self.told: list[Any] = []
        self.write = self

    def persist(self, _: StorageLevel) -> Any:
        self.told.append("persist")
        return self

    def unpersist(self) -> Any:
        self.told.append("unpersist")
        return self

    def limit(self, count: int) -> Any:
        few = Frame([])
        few.table = self.table.slice(0, count)
        return few

    def toArrow(self) -> pa.Table:
        return self.table

    def mode(self, word: str) -> Any:
        self.told.append(word)
        return self

    def parquet(self, uri: str) -> None:
        self.told.append(uri)


def a_finding(number: int, severity: str = "ERROR") -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | {
        "severity": severity, "code": "GAP", "detail": "it lacks some", "queueOffset": number
    }  # fmt: skip


def result_of(findings: Any, **frames: Any) -> JobResult:
    def wrapped(frame: Any) -> Any:
        return SparkFrame(frame) if isinstance(frame, Frame) else frame

    others = {name: wrapped(frame) for name, frame in frames.items()}
    return JobResult(wrapped(findings), Outcome.HOLDS, "All is well.", {"n": 1}, [], lambda: others)


def engine() -> Any:
    return DuckEngine(messages)


def test_what_a_job_found_is_written_whole_and_the_summary_last(tmp_path: Path) -> None:
    findings, more = Frame([a_finding(1), a_finding(2, "WARN")]), Frame([])
    result = result_of(findings, more=more)
    written = write_output("x", {"a": "b"}, result, str(tmp_path), TIMINGS, engine)
    assert findings.told == ["unpersist", "persist", "unpersist"]  # computed once
    assert more.told == ["overwrite", f"file://{tmp_path}/more"]
    assert (written.outcome, written.verdict) == (Outcome.HOLDS, "All is well.")
    assert written.findings.counts == {"GAP": 2}
    assert json.loads((tmp_path / "summary.json").read_text()) == written.summary
    assert (written.summary["job"], written.summary["numbers"]) == ("x", {"n": 1})
    assert 2.0 <= written.summary["seconds"]["run"] < 60
    assert 0 <= written.summary["seconds"]["write"] < 60
    rows = pq.read_table(tmp_path / "findings" / "part-0.parquet").to_pylist()
    assert [row["queueOffset"] for row in rows] == [1, 2]
    page = (tmp_path / "report.html").read_text()
    assert "All is well." in page
    assert "it lacks some" in page


def test_without_spark_the_same_is_written(tmp_path: Path) -> None:
    """A list of findings, and frames of this process."""
    findings = [Finding("ERROR", "GAP", "it lacks some", queue_offset=at) for at in (1, 2)]
    more = engine().table(FINDINGS.empty_table()).where("code = 'GAP'")
    written = write_output("x", {}, result_of(findings, more=more), str(tmp_path), TIMINGS, engine)
    assert written.findings.counts == {"GAP": 2}
    rows = pq.read_table(tmp_path / "findings").to_pylist()
    assert [row["queueOffset"] for row in rows] == [1, 2]
    assert pq.read_table(tmp_path / "more").schema.names == list(COLUMNS)
    assert (tmp_path / "more" / "_SUCCESS").exists()
    assert "it lacks some" in (tmp_path / "report.html").read_text()
    with pytest.raises(WrongUsage, match="give a directory of this machine, or use rmqha-spark"):
        write_output("x", {}, result_of(findings), "hdfs://n/out", TIMINGS, engine)


def test_over_connect_frames_come_here_and_are_written_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's machine may be another one, with another directory of that name."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    rows: Any = Frame([a_finding(7)])
    frame, nobody = SparkFrame(rows), SimpleNamespace()
    _LocalPlace(tmp_path).save("more", frame)
    assert rows.told == []
    assert pq.read_table(tmp_path / "more").to_pylist()[0]["queueOffset"] == 7
    assert (tmp_path / "more" / "_SUCCESS").exists()
    with pytest.raises(WrongUsage, match="over Spark Connect, name a directory of this machine"):
        SparkEngine(nobody).place("hdfs://n/out")  # type: ignore[arg-type]


def test_what_a_machine_leaves_that_loses_its_power_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has its name only when its bytes are on the disk."""
    seen: list[Any] = []

    def fsync(number: int) -> None:
        size = os.fstat(number).st_size
        seen.append((size, [path.name for path in tmp_path.iterdir()]))

    monkeypatch.setattr(os, "fsync", fsync)
    _LocalPlace(tmp_path).write("summary.json", "{}")
    assert seen == [(2, [".summary.json.new"])]


class Hadoop:
    """Files of a file system that only Spark reaches, by their addresses; and its session."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"hdfs://n/out/summary.json": b"old"}
        self.told: list[Any] = []
        fs = SimpleNamespace(Path=self.path)
        hadoop = SimpleNamespace(hadoop=SimpleNamespace(fs=fs))
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=hadoop))
        state = SimpleNamespace(newHadoopConf=lambda: "settings")
        self._jsparkSession = SimpleNamespace(sessionState=lambda: state)
        self.sparkContext = self

    def path(self, uri: str) -> Any:
        return Address(uri, self)

    def mkdirs(self, path: Any) -> None:
        self.told.append(f"mkdirs {path}")

    def delete(self, path: Any, is_recursive: bool) -> None:
        assert not is_recursive
        self.files.pop(path, None)

    def create(self, path: Any, replaces: bool) -> Any:
        assert replaces, "what an earlier run left unfinished is in the way"
        parts: list[bytes] = []
        return SimpleNamespace(
            write=parts.append, close=lambda: self.files.update({path: b"".join(parts)})
        )

    def rename(self, source: Any, target: Any) -> None:
        assert target not in self.files, "Hadoop replaces no file"
        self.files[target] = self.files.pop(source)


class Address(str):
    def __new__(cls, uri: str, hadoop: Hadoop) -> "Address":
        made = super().__new__(cls, uri)
        made.hadoop = hadoop
        return made

    hadoop: Hadoop

    def getFileSystem(self, settings: str) -> Hadoop:
        assert settings == "settings"
        return self.hadoop


def of_spark(hadoop: Any) -> SparkEngine:
    return SparkEngine(hadoop)


def test_a_place_that_only_spark_reaches_gets_all_of_it_and_the_summary_last() -> None:
    hadoop, findings, more = Hadoop(), Frame([a_finding(1)]), Frame([])
    result = result_of(findings, more=more)
    written = write_output("x", {}, result, "hdfs://n/out/", TIMINGS, lambda: of_spark(hadoop))
    assert hadoop.told == ["mkdirs hdfs://n/out"]
    assert findings.told[2:4] == ["overwrite", "hdfs://n/out/findings"]
    assert more.told == ["overwrite", "hdfs://n/out/more"]
    assert sorted(hadoop.files) == ["hdfs://n/out/report.html", "hdfs://n/out/summary.json"]
    assert json.loads(hadoop.files["hdfs://n/out/summary.json"]) == written.summary
    assert b"it lacks some" in hadoop.files["hdfs://n/out/report.html"]


def test_an_older_verdict_there_is_gone_first_and_replaced_by_a_refusal() -> None:
    hadoop: Any = Hadoop()
    _place("hdfs://n/out", of_spark(hadoop)).begin()
    assert hadoop.files == {}
    for reason in ("It moves.", "It \ud800 rests."):
        write_refusal("x", {}, Outcome.UNDECIDED, reason, "hdfs://n/out", TIMINGS, of_spark(hadoop))
    assert json.loads(hadoop.files["hdfs://n/out/summary.json"])["verdict"] == "It ? rests."


def test_of_many_findings_the_counts_and_the_worst_come_here() -> None:
    """ERROR stands before WARN, and that before all else."""
    rows = [a_finding(number, "WARN") for number in range(AT_HAND)]
    rows += [a_finding(7), {**a_finding(3), "code": "LAG"}]
    few, counted = _count(engine().table(pa.Table.from_pylist(rows, FINDINGS)))
    assert few is None
    assert counted.counts == {"GAP": AT_HAND + 1, "LAG": 1}
    assert len(counted.top) == AT_HAND
    first = [(row["severity"], row["code"], row["queueOffset"]) for row in counted.top[:3]]
    assert first == [("ERROR", "GAP", 7), ("ERROR", "LAG", 3), ("WARN", "GAP", 0)]


def test_nothing_is_written_where_nobody_names_a_place(tmp_path: Path) -> None:
    kept = Frame([a_finding(1, "WARN")], StorageLevel.DISK_ONLY)
    written = write_output("x", {}, result_of(kept), None, TIMINGS, engine)
    assert kept.told == []  # whoever kept it may go on with it
    assert (written.outcome, written.summary["exitCode"]) == (Outcome.HOLDS, 0)
    strict = write_output("x", {}, result_of(kept), None, TIMINGS, engine, strict=True)
    assert strict.outcome is Outcome.VIOLATED
    assert strict.verdict == "All is well. (--strict: a warning is a violation)"


def test_up_to_a_thousand_findings_come_here(tmp_path: Path) -> None:
    findings = Frame([a_finding(number) for number in range(AT_HAND)])
    written = write_output("x", {}, result_of(findings), None, TIMINGS, engine)
    assert written.findings.total == len(written.findings.top) == AT_HAND
