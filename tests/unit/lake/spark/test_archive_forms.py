"""What an archive is a table of: how far it goes, and that a commit brings messages once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.spark.archive.forms import OFFSETS, Archive, DeltaArchive, open_archive
from rmq_ha.lake.spark.source.reading import QueueId
from rmq_ha.lake.spark.source.streaming_offsets import Offsets, from_json, to_json
from tests.unit.lake.spark.plans import Plan, Session, columns_without_java

__all__ = ("columns_without_java",)
QUEUE = QueueId("t", "b", 0)


def written(to: Path, batches: tuple[str, ...], *offsets: int) -> Archive:
    """What Spark's sink leaves of so many batches, and of their offsets."""
    for folder, names in (
        ("_spark_metadata", batches),
        ("_checkpoint/offsets", [str(number) for number in range(len(offsets))]),
    ):
        (to / folder).mkdir(parents=True)
        for name in names:
            (to / folder / name).touch()
    for number, offset in enumerate(offsets):
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps(to_json({QUEUE: offset}))]
        (to / f"_checkpoint/offsets/{number}").write_text("\n".join(lines))
    session: Any = Session()
    return Archive(session, str(to))


def test_the_newest_batch_of_the_table_says_how_far_it_goes(tmp_path: Path) -> None:
    """A batch that only the checkpoint names is done again."""
    found = written(tmp_path, ("0", "1.compact", "2", "lost+found"), 5, 7, 9, 11)
    assert found.ends() == {QUEUE: 9}


def test_what_is_not_there_yet_goes_nowhere(tmp_path: Path) -> None:
    found = written(tmp_path, ())
    assert found.ends() is None
    assert str(found.rows()) == "made"


def test_rows_are_read_where_there_are_some(tmp_path: Path) -> None:
    found = written(tmp_path, ("0",), 5)
    for rows in (found.rows(), found.rows({QUEUE: 5})):
        assert str(rows).startswith("read.schema(")
        assert f".parquet({tmp_path})" in str(rows)
    assert str(found.rows({})) == "made", "whoever has asked already says so"


def test_a_batch_without_its_offsets_is_half_of_a_backup(tmp_path: Path) -> None:
    with pytest.raises(CannotDecide, match="has no _checkpoint/offsets/2, though its table has"):
        written(tmp_path, ("0", "1", "2"), 5, 7).ends()


@pytest.mark.parametrize(
    ("folder", "kind", "says"),
    [
        ("_rmqha", CannotDecide, r"was archived by rmq-ha 0\.1"),
        ("_delta_log", WrongUsage, "is a table of Delta Lake: say so with --format delta"),
    ],
)
def test_a_table_of_another_kind_is_named(
    tmp_path: Path, folder: str, kind: type[Exception], says: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "0").touch()
    with pytest.raises(kind, match=says):
        written(tmp_path, ("0",), 5).ends()


# Delta Lake


def commit(version: int, ends: Offsets | None) -> Row:
    said = None if ends is None else json.dumps({OFFSETS: to_json(ends)})
    return Row(version=version, operation="WRITE", operationParameters={}, userMetadata=said)


class Lake:
    """A session with one table, the rows that are added to it, and who else adds some."""

    def __init__(self, *commits: Row, rows: Any = ()) -> None:
        self.commits = list(commits)
        self.is_missing: Exception | None = None
        self.fails: Exception | None = None
        self.asked: dict[str, Any] = {}
        self.conf = {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"}
        self.read = Plan("read", rows)
        self.catalog = self.write = self

    def tableExists(self, name: str) -> bool:
        assert name == "delta.`/to`"
        if self.is_missing:
            raise self.is_missing
        return bool(self.commits)

    def sql(self, text: str) -> Any:
        assert text == "DESCRIBE HISTORY delta.`/to`"
        return SimpleNamespace(collect=lambda: list(self.commits))

    def format(self, name: str) -> Lake:
        self.asked = {"format": name}
        return self

    def mode(self, name: str) -> Lake:
        return self.options(mode=name)

    def option(self, name: str, value: str) -> Lake:
        return self.options(**{name: value})

    def options(self, **named: str) -> Lake:
        self.asked |= named
        return self

    def partitionBy(self, *names: str) -> Lake:
        self.asked["by"] = names
        return self

    def save(self, to: str) -> None:
        assert to == "/to"
        if self.fails:
            raise self.fails
        added = commit(int(self.asked["txnVersion"]), None).asDict()
        self.commits.insert(0, Row(**{**added, "userMetadata": self.asked["userMetadata"]}))

    def archive(self) -> DeltaArchive:
        session: Any = self
        found = open_archive(session, "/to", "delta")
        assert isinstance(found, DeltaArchive)
        return found

    def append(self, before: Offsets, ends: Offsets) -> dict[str, Any]:
        """What was asked of the writer."""
        rows: Any = self
        self.asked = {}
        self.archive().append(rows, before, ends)
        return self.asked


class Refusal(AnalysisException):
    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition

    def getCondition(self) -> str:
        return self.condition


def test_the_form_says_what_kind_of_table_it_is() -> None:
    session: Any = Session()
    assert type(open_archive(session, "/to")) is Archive


@pytest.mark.parametrize("extensions", [None, "", "org.apache.iceberg"])
def test_a_session_without_delta_lake_is_told_what_it_needs(extensions: Any) -> None:
    lake = Lake()
    lake.conf["spark.sql.extensions"] = extensions
    with pytest.raises(WrongUsage, match="this Spark has no Delta Lake"):
        lake.archive()


def test_the_first_commit_makes_the_table_and_says_how_far_it_goes() -> None:
    lake = Lake()
    asked = lake.append({}, {QUEUE: 5})
    assert (asked["format"], asked["mode"], asked["by"]) == ("delta", "append", ("topic", "day"))
    assert (asked["txnAppId"], asked["txnVersion"]) == ("rmqha", "0")
    assert from_json(json.loads(asked["userMetadata"])[OFFSETS]) == {QUEUE: 5}
    assert lake.archive().ends() == {QUEUE: 5}


@pytest.mark.parametrize(
    ("commits", "version"),
    [
        ([commit(2, {QUEUE: 5}), commit(0, {QUEUE: 3})], "3"),
        ([commit(4, None), commit(2, {QUEUE: 5}), commit(0, {QUEUE: 3})], "3"),
        ([commit(4, None), commit(2, None)], "5"),
    ],
)
def test_a_further_commit_is_numbered_behind_our_last_one(commits: list[Row], version: str) -> None:
    """Of two jobs that saw the same one, Delta lets the first in: others' do not count."""
    lake = Lake(*commits)
    asked = lake.append({QUEUE: 5}, {QUEUE: 8})
    assert (asked["txnVersion"], "by" in asked) == (version, False)
    assert lake.archive().ends() == {QUEUE: 8}


def test_nothing_is_added_behind_what_somebody_else_has_archived() -> None:
    lake = Lake(commit(1, {QUEUE: 6}))
    with pytest.raises(CannotDecide, match="another job archives into /to: this one has added no"):
        lake.append({QUEUE: 5}, {QUEUE: 8})
    assert len(lake.commits) == 1


def test_who_comes_second_at_the_same_moment_is_told_and_other_errors_stay() -> None:
    lake = Lake(commit(1, {QUEUE: 5}))
    lake.fails = RuntimeError("[DELTA_CONCURRENT_TRANSACTION] ...")
    with pytest.raises(CannotDecide, match="another job archives into /to"):
        lake.append({QUEUE: 5}, {QUEUE: 8})
    lake.fails = RuntimeError("No space left on device")
    with pytest.raises(RuntimeError, match="No space left"):
        lake.append({QUEUE: 5}, {QUEUE: 8})


def test_a_table_that_is_not_there_has_no_history() -> None:
    lake = Lake(commit(1, {QUEUE: 5}))
    assert lake.archive().ends() == {QUEUE: 5}
    lake.is_missing = Refusal("DELTA_MISSING_DELTA_TABLE")
    assert lake.archive().ends() is None
    lake.is_missing = Refusal("SOMETHING_ELSE")
    with pytest.raises(AnalysisException):
        lake.archive().ends()
    assert Lake().archive().ends() is None


@pytest.mark.usefixtures("columns_without_java")
def test_where_no_commit_of_ours_is_left_the_rows_say_how_far_it_goes() -> None:
    lake = Lake(commit(4, None), rows=[("t", "b", 0, 6)])
    assert lake.archive().ends() == {QUEUE: 7}
    (asked,) = lake.read.collected
    assert asked.startswith("read.format(delta).load(/to).groupBy(topic, coalesce(brokerName, )")
    assert asked.endswith(".agg(max(queueOffset))")
