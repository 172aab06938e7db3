"""Sessions without Spark: settings, and whose Java and whose Spark they are."""

import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.spark.host import session
from rmq_ha.lake.spark.host.ending import quiet_libraries
from rmq_ha.lake.spark.host.java import Java
from rmq_ha.lake.spark.host.session import (
    JobSession,
    defaults,
    is_local,
    is_submitted,
)
from rmq_ha.lake.spark.host.staging import _last_segment, _send_to_executors, needs_staging, stage


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
    one = JobSession(log_level="warn")
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


class Jvm:
    """What a session is made of in the end: each step is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has_gateway: bool = False) -> None:
        self.told: list[Any] = []
        self.settings: dict[str, Any] = {}
        self.builder = self.conf = self.sparkContext = self
        self.defaultParallelism = 4
        monkeypatch.setattr(SparkContext, "_gateway", "a gateway" if has_gateway else None)
        monkeypatch.setattr(SparkContext, "_jvm", None)
        monkeypatch.setattr(session, "SparkSession", self)
        for name in ("_launch", "register", "over_connect"):
            monkeypatch.setattr(session, name, lambda *given, name=name: self.note(name, *given))
        monkeypatch.setattr(session, "_is_found_anyway", lambda master: master == "local[found]")

    def note(self, name: str, *given: Any) -> Any:
        self.told.append((name, *given))
        return self

    def config(self, conf: Any) -> Any:
        self.settings = dict(conf.getAll())
        return self

    def getOrCreate(self) -> Any:
        return self.note("made")

    def set(self, key: str, value: Any) -> None:
        self.told.append((key, value))

    def session(self, given: dict[str, str], connect: bool = False) -> JobSession:
        one = JobSession.__new__(JobSession)
        one._name, one._given = "me", given
        one._spark, one._connect, one._is_ours = None, connect, True
        return one


SHUFFLE = ("spark.sql.shuffle.partitions", 8)


@pytest.mark.parametrize(
    ("given", "has_gateway", "told"),
    [
        ({}, True, ["made", SHUFFLE, "register"]),
        ({}, False, ["_launch", "made", SHUFFLE, "register"]),
        ({"spark.master": "local[found]"}, True, ["made", SHUFFLE]),
        ({"spark.master": "yarn"}, True, ["made", "register"]),
        ({"spark.sql.shuffle.partitions": "3"}, True, ["made", "register"]),
    ],
)
def test_a_session_is_made_with_two_parts_for_each_processor_and_our_source(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    has_gateway: bool,
    told: list[Any],
) -> None:
    jvm = Jvm(monkeypatch, has_gateway)
    one = jvm.session(given)
    assert one.get() is jvm
    steps = {
        "made": ("made",),
        "_launch": ("_launch", given),
        "register": ("register", jvm),
    }
    assert jvm.told == [steps.get(step, step) for step in told]
    assert jvm.settings["spark.app.name"] == "me"
    assert one._spark is jvm


def test_over_connect_the_server_makes_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = Jvm(monkeypatch)
    given = {"spark.master": "sc://h:1"}
    one = jvm.session(given, connect=True)
    assert one.get() is jvm
    assert jvm.told == [("over_connect", given)]
    assert one._spark is jvm


@pytest.mark.parametrize(("verbose", "level"), [(True, "warn"), (False, "error")])
def test_a_session_of_ones_own_is_as_quiet_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, verbose: bool, level: str
) -> None:
    told: list[Any] = []

    class Made:
        def __init__(self, *given: Any, **named: Any) -> None:
            told.append((given, named))

        def get(self) -> str:
            return "spark"

    monkeypatch.setattr(session, "JobSession", Made)
    found: Any = session.start_session("me", master="yarn", verbose=verbose)
    assert found == "spark"
    wanted = {"master": "yarn", "conf": None, "driver_memory": None, "log_level": level}
    assert told == [(("me",), wanted)]


def test_pyspark_does_not_write_down_each_error_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    loggers = [PySparkLogger.getLogger(f"{of}QueryContextLogger") for of in ("SQL", "DataFrame")]
    for logger in loggers:
        monkeypatch.setattr(logger, "disabled", False)
    session._no_json()
    assert [logger.disabled for logger in loggers] == [True, True]


def test_our_source_is_made_known_by_its_class() -> None:
    told: list[Any] = []
    spark: Any = SimpleNamespace(dataSource=SimpleNamespace(register=told.append))
    session.register(spark)
    assert [one.name() for one in told] == ["rocketmq"]


@pytest.mark.parametrize("options", [{}, {"spark.driver.extraJavaOptions": "-Dmine=1"}])
def test_sparks_own_start_gets_our_log_settings_and_those_that_were_given(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: made.append(conf))
    monkeypatch.setattr(session, "SparkConf", Conf)
    session._launch({"spark.master": "yarn", "a": "b", **options})
    (conf,) = made
    java = conf.pop("spark.driver.extraJavaOptions").split()
    assert conf == {"spark.ui.showConsoleProgress": "false", "spark.master": "yarn", "a": "b"}
    assert java[0].startswith("-Dlog4j2.configurationFile=")
    assert java[1:] == list(options.values())


class Conf(dict[str, str]):
    """Settings, and none of a file or of the system's properties."""

    def __init__(self, loadDefaults: bool) -> None:
        assert not loadDefaults

    def set(self, key: str, value: str) -> None:
        self[key] = value


# Stores that only Hadoop can open


class Context:
    def __init__(self, *files: str) -> None:
        self.listFiles = list(files)
        self.added: list[tuple[str, bool]] = []

    def addFile(self, uri: str, recursive: bool = False) -> None:
        self.added.append((uri, recursive))


def test_a_store_is_sent_to_executors_once_and_by_its_last_name() -> None:
    context = Context("hdfs://n/other/", "hdfs://n/jars/a.jar")
    assert _send_to_executors(context, "hdfs://n/store").endswith("store")
    assert context.added == [("hdfs://n/store", True)]
    context = Context("hdfs://n/store/")
    assert _send_to_executors(context, "hdfs://n/store").endswith("store")
    assert context.added == []
    with pytest.raises(CannotDecide, match="cannot be copied beside hdfs://n/store: Spark keeps"):
        _send_to_executors(context, "hdfs://n/copy/store")
    assert [_last_segment(uri) for uri in ("a/b", "a/b/")] == ["b", "b"]


def test_of_several_files_that_have_the_name_the_first_is_the_one_that_spark_keeps() -> None:
    context = Context("hdfs://n/a/store", "hdfs://n/store")
    with pytest.raises(CannotDecide, match="hdfs://n/store cannot be copied beside hdfs://n/a/st"):
        _send_to_executors(context, "hdfs://n/store")


class Hadoop:
    """A file system of Hadoop, through which one store is copied here."""

    def __init__(self, tmp_path: Path, fails: str = "") -> None:
        self.copies: list[Any] = []
        self.fails, self.tmp_path = fails, tmp_path
        fs = SimpleNamespace(Path=self.path)
        self._jvm = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=fs)))
        )
        self._jsc = SimpleNamespace(hadoopConfiguration=lambda: "settings")
        self.master = "local[2]"
        self.sparkContext = self

    def path(self, uri: str) -> Any:
        return SimpleNamespace(uri=uri, getFileSystem={"settings": self}.__getitem__)

    def copyToLocalFile(self, deletes: bool, source: Any, target: Any, is_raw: bool) -> None:
        if self.fails:
            error = Py4JError("it failed")
            error.java_exception = self.fails
            raise error
        self.copies.append((source.uri, deletes, is_raw))
        assert target.uri.endswith("/store.part")
        copy = Path(target.uri.removeprefix("file://"))
        copy.mkdir(parents=True)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where Spark keeps what it copies."""
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    return tmp_path


def test_on_this_machine_a_store_is_copied_once_and_kept_where_it_is(root: Path) -> None:
    """Under another name until it is whole, without sums of Hadoop's beside its files."""
    hadoop = Hadoop(root)
    found = [stage(hadoop, uri) for uri in ("hdfs://n/store/", "hdfs://n/store")]
    assert found[0] == found[1]
    assert Path(found[0]).is_dir()
    assert Path(found[0]).name == "store"
    assert list(Path(found[0]).parent.iterdir()) == [Path(found[0])]
    assert hadoop.copies == [("hdfs://n/store", False, True)]


def test_on_a_cluster_each_executor_gets_it() -> None:
    context: Any = Context()
    context.master, context.sparkContext = "yarn", context
    assert stage(context, "hdfs://n/store/").endswith("store")
    assert context.added == [("hdfs://n/store", True)]


def test_what_hadoop_cannot_copy_either_is_said_in_its_first_line(root: Path) -> None:
    hadoop = Hadoop(root, "java.io.IOException: no such host\n\tat somewhere")
    with pytest.raises(CannotDecide) as caught:
        stage(hadoop, "hdfs://n/store")
    assert str(caught.value) == (
        "hdfs://n/store cannot be copied: java.io.IOException: no such host"
    )


def test_over_connect_nothing_is_staged(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(WrongUsage, match="cannot be copied over Spark Connect"):
        stage(Hadoop(root), "wasbs://box@account/x")


def test_only_what_nothing_here_knows_is_staged(tmp_path: Path) -> None:
    assert not needs_staging(str(tmp_path))
    assert not needs_staging("file:///x")
    assert needs_staging("wasbs://box@account/x")


# Whose Java starts


@pytest.mark.parametrize("master", [None, "local[2]", "yarn"])
def test_java_and_settings_are_chosen_before_sparks_scripts_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str | None
) -> None:
    names = ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "JAVA_HOME")
    for name in names:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    asked: list[str] = []
    monkeypatch.setattr(session, "find_java", lambda: Java(tmp_path, 21, "PATH"))
    monkeypatch.setattr(session, "refuse_unreachable", asked.append)
    one = JobSession.__new__(JobSession)
    one._given = {"spark.driver.extraJavaOptions": "-Dmine=1"}
    if master is not None:
        one._given["spark.master"] = master
    one._choose_java("warn")
    assert asked == [master or "local[*]"]
    assert one._given["spark.driver.memory"] == "1g"
    assert one._given["spark.driver.extraJavaOptions"] == "-Drmqha.log.level=warn -Dmine=1"
    here = (None, None) if master == "yarn" else (sys.executable, "127.0.0.1")
    assert tuple(map(os.environ.get, names)) == (*here, str(tmp_path))


def test_ps_shows_no_secret_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: made.append(conf))
    monkeypatch.setattr(session, "SparkConf", Conf)
    session._launch({"spark.hadoop.fs.s3a.secret.key": "x", "spark.hadoop.fs.s3a.access.key": "y"})
    assert not [key for key in made[0] if "s3a" in key]


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
    monkeypatch.setattr(JobSession, "_choose_java", lambda *_: said.append("start"))
    monkeypatch.setattr(session, "is_submitted", lambda: submitted)
    monkeypatch.setattr(session, "_no_json", lambda: said.append("quiet"))
    monkeypatch.setenv("SPARK_REMOTE", remote)
    one = JobSession(master=master, log_level="warn", driver_memory="2g", conf={"a": "b"})
    assert said == told
    where = {"spark.master": master or remote} if master or remote.startswith("sc:") else {}
    assert one._given == {"a": "b", "spark.driver.memory": "2g", **where}
    assert one._connect is (told[:1] not in (["start"], []))
    JobSession(master=master)
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


def test_what_libraries_log_goes_nowhere_unless_somebody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else Python writes warnings to standard error by itself; once is enough."""
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    for logger in (root, py4j):
        monkeypatch.setattr(logger, "handlers", [])
    for _ in range(2):
        quiet_libraries()
        assert [[type(each) for each in logger.handlers] for logger in (root, py4j)] == [
            [logging.NullHandler]
        ] * 2
    listens = logging.StreamHandler()
    monkeypatch.setattr(root, "handlers", [listens])
    quiet_libraries()
    assert root.handlers == [listens]
