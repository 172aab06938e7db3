"""Sessions without Spark: settings, and whose Java and whose Spark they are."""

import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import SparkContext

from rmq_ha.errors import CannotDecide
from rmq_ha.spark.host import session
from rmq_ha.spark.host.session import Session, defaults, is_local, is_submitted, spark_home
from rmq_ha.spark.host.staging import _last, _sent, needs_staging

HERE = Path(pyspark.__file__).parent


def test_on_a_cluster_only_what_results_depend_on_is_set() -> None:
    assert set(defaults("spark://host:7077")) == {"spark.sql.session.timeZone"}
    assert [is_local(m) for m in ("local", "local-cluster[1,1,1]", "yarn")] == [True, True, False]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"spark.master": "local[*]", "spark.app.name": "me", "spark.ui.enabled": "false"}),
        (
            {"spark.master": "local[2]", "spark.ui.enabled": "true", "spark.app.name": "you"},
            {"spark.master": "local[2]", "spark.ui.enabled": "true", "spark.app.name": "you"},
        ),
        (
            {"spark.master": "yarn"},
            {"spark.master": "yarn", "spark.ui.enabled": None, "spark.app.name": "me"},
        ),
    ],
)
def test_what_was_given_wins_over_what_is_ours(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], wanted: dict[str, str | None]
) -> None:
    monkeypatch.setattr(SparkContext, "_jvm", None)
    found = session._settings("me", given)
    assert {name: found.get(name) for name in wanted} == wanted
    assert found.get("spark.sql.session.timeZone") == "UTC"


def test_another_spark_than_pysparks_is_started_in_its_own_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert spark_home() == HERE
    link = tmp_path / "link"
    link.symlink_to(HERE)
    for other, home in ((HERE, HERE), (link, HERE), (tmp_path, None)):
        monkeypatch.setenv("SPARK_HOME", str(other))
        assert spark_home() == home


def test_who_was_submitted_has_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_submitted()


@pytest.mark.parametrize(
    ("master", "python", "submitted", "found"),
    [
        ("local[2]", sys.executable, False, True),
        ("yarn", sys.executable, False, False),
        ("local[2]", "/another/python", False, False),
        ("local[2]", None, False, False),
        ("local[2]", sys.executable, True, False),  # rmq-ha may come in a zip
    ],
)
def test_spark_finds_the_data_source_by_itself_with_our_python_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, master: str, python: str | None, submitted: bool, found: bool
) -> None:
    for name, value in (
        ("PYSPARK_PYTHON", python),
        ("PYSPARK_GATEWAY_PORT", "1" if submitted else None),
    ):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert session._is_found_anyway(master) is found
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    assert not session._is_found_anyway(master)


def test_javas_log_is_set_by_our_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (option,) = session._quiet()
    assert option.startswith("-Dlog4j2.configurationFile=file:///")
    assert option.endswith("/log4j2.properties")
    monkeypatch.setattr(session, "_LOG4J", tmp_path / "none")  # in a zip
    assert session._quiet() == []


class Spark:
    """What `close` asks of a session."""

    def __init__(self, master: str) -> None:
        self.told: list[str] = []
        self.sparkContext = self
        self.master = master

    def stop(self) -> None:
        self.told.append("stop")

    def interruptAll(self) -> None:
        self.told.append("interrupt")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, []),  # a local one ends with this process
        ({"master": "yarn"}, ["stop"]),
        ({"submitted": True}, ["stop"]),
        ({"master": "yarn", "interrupted": True}, []),
        ({"master": "yarn", "ours": False}, []),
        ({"connect": True}, ["interrupt", "stop"]),
        ({"connect": True, "interrupted": True}, ["interrupt", "stop"]),
    ],
)
def test_what_was_taken_is_given_back(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], told: list[str]
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # so that nothing is started here
    one = Session(log_level="warn")
    assert one._is_ours is (SparkContext._active_spark_context is None)
    if not given.get("submitted"):
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    spark = Spark(given.get("master", "local[2]"))
    one._spark = spark  # type: ignore[assignment]
    one._is_ours = given.get("ours", True)
    one._connect = given.get("connect", False)
    for _ in range(2):  # once is enough
        one.close(interrupted=given.get("interrupted", False))
    assert spark.told == told


# Stores that only Hadoop can open


class Context:
    def __init__(self, *files: str) -> None:
        self.listFiles = list(files)
        self.added: list[tuple[str, bool]] = []

    def addFile(self, uri: str, recursive: bool = False) -> None:
        self.added.append((uri, recursive))


def test_a_store_is_sent_to_executors_once_and_by_its_last_name() -> None:
    context = Context("hdfs://n/other/", "hdfs://n/jars/a.jar")
    assert _sent(context, "hdfs://n/store").endswith("store")
    assert context.added == [("hdfs://n/store", True)]
    context = Context("hdfs://n/store/")
    assert _sent(context, "hdfs://n/store").endswith("store")
    assert context.added == []
    with pytest.raises(CannotDecide, match="cannot be copied beside hdfs://n/store: Spark keeps"):
        _sent(context, "hdfs://n/copy/store")
    assert [_last(uri) for uri in ("a/b", "a/b/")] == ["b", "b"]


def test_only_what_nothing_here_knows_is_staged(tmp_path: Path) -> None:
    assert not needs_staging(str(tmp_path))
    assert not needs_staging("file:///x")
    assert needs_staging("wasbs://box@account/x")
