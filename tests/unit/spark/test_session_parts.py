"""Sessions without Spark: settings, and whose Java and whose Spark they are."""

import os
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException

from rmq_ha.errors import CannotDecide, WrongUsage
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


# Whose Java starts


@pytest.mark.parametrize(
    ("given", "environ", "home", "begins"),
    [
        ({}, {}, HERE, True),
        ({"spark.master": "local[2]"}, {}, HERE, True),
        ({}, {"PYSPARK_SUBMIT_ARGS": "x"}, HERE, False),  # whoever says so knows why
        ({}, {}, None, False),  # another Spark
        ({"spark.master": "yarn"}, {}, HERE, False),
    ],
)
def test_java_is_ours_to_start_for_pysparks_own_spark_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    environ: dict[str, str],
    home: Path | None,
    begins: bool,
) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    told: list[Any] = []
    monkeypatch.setattr(session, "find_java", lambda: "java")
    monkeypatch.setattr(session, "cache_directory", lambda: "cache")
    monkeypatch.setattr(session, "spark_home", lambda: home)
    monkeypatch.setattr(session, "refuse_unreachable", told.append)
    monkeypatch.setattr(session, "home_for_spark", lambda *given: "/".join(given))
    monkeypatch.setattr(session, "_begin", lambda *given: given)
    one = Session.__new__(Session)
    one._given = {**given, "spark.driver.extraJavaOptions": "-Dmine=1"}
    found: Any = one._start("warn")
    assert one._given["spark.driver.memory"] == "1g"
    if begins:
        assert found == ("java", HERE, "cache", one._given, "-Drmqha.log.level=warn")
        assert told == []
    else:
        assert found is None
        assert told == [given.get("spark.master", "local[*]")]
        assert one._given["spark.driver.extraJavaOptions"] == "-Drmqha.log.level=warn -Dmine=1"
        assert os.environ["JAVA_HOME"] == "java/cache"
    is_here = "spark.master" not in given or given["spark.master"].startswith("local")
    assert os.environ.get("PYSPARK_PYTHON") == (sys.executable if is_here else None)


@pytest.mark.parametrize(
    ("master", "remote", "submitted", "told"),
    [
        (None, "", False, ["start"]),
        ("local[2]", "", False, ["start"]),
        (None, "", True, []),  # spark-submit has started it
        ("sc://h:1", "", False, ["sc://h:1"]),
        (None, "sc://h:2", False, ["sc://h:2"]),
        ("local[2]", "sc://h:2", False, ["start"]),
        (None, "local", False, ["start"]),
    ],
)
def test_a_session_is_asked_for_at_once_where_it_is_to_be(
    monkeypatch: pytest.MonkeyPatch,
    master: str | None,
    remote: str,
    submitted: bool,
    told: list[str],
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(session, "refuse_unreachable", said.append)
    monkeypatch.setattr(Session, "_start", lambda *_: said.append("start"))
    monkeypatch.setattr(session, "is_submitted", lambda: submitted)
    monkeypatch.setattr(session, "_no_json", lambda: said.append("quiet"))
    monkeypatch.setenv("SPARK_REMOTE", remote)
    one = Session(master=master, log_level="warn", driver_memory="2g", conf={"a": "b"})
    assert said == told
    where = {"spark.master": master or remote} if master or remote.startswith("sc:") else {}
    assert one._given == {"a": "b", "spark.driver.memory": "2g", **where}
    assert one._connect is (told[:1] not in (["start"], []))
    Session(master=master)
    assert said[len(told)] == "quiet"


def test_over_connect_a_setting_of_the_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Remote:
        def __init__(self) -> None:
            self.builder = self.conf = self

        def remote(self, master: str) -> Any:
            seen.append(master)
            return self

        def getOrCreate(self) -> Any:
            return self

        def set(self, key: str, value: str) -> None:
            if key == "static":
                raise PySparkException("no")
            seen.append((key, value))

    monkeypatch.setattr(session, "SparkSession", Remote())
    monkeypatch.setattr(session, "register", lambda _: seen.append("registered"))
    session.over_connect({"spark.master": "sc://h:1", "a": "b"})
    zone = ("spark.sql.session.timeZone", "UTC")
    assert seen == ["sc://h:1", zone, ("a", "b"), "registered"]
    with pytest.raises(WrongUsage, match="--conf static: over Spark Connect it cannot be changed"):
        session.over_connect({"spark.master": "sc://h:1", "static": "x"})
