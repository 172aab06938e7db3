"""Starts a quiet Spark session for the jobs, on this machine unless another master is set."""

import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.host.java import find_java
from rmq_ha.lake.spark.host.masters import is_connect, refuse_unreachable

DEFAULT_MEMORY = "1g"
"""Heap of the driver; no job needs more, however large the store."""

_LOG4J = Path(__file__).with_name("log4j2.properties")
# Spark takes this process for a shell, and would show its own progress bar.
_NO_BAR = {"spark.ui.showConsoleProgress": "false"}
_SHUFFLE = "spark.sql.shuffle.partitions"
# Spark hides settings with these names as well (spark.redaction.regex).
_SECRET = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)


class JobSession:
    """
    The session of one job. `get` starts it, and `close` releases it.

    :param log_level: lowest level of Spark's log that is shown: `off`, `error`, `warn`.
    :raises rmq_ha.lake.spark.host.java.NoJava: no usable Java was found.
    :raises rmq_ha.lake.spark.host.masters.NoSparkMaster: the master does not answer.
    """

    def __init__(
        self,
        name: str = "rmq-ha",
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        driver_memory: str | None = None,
        log_level: str = "error",
    ) -> None:
        if log_level != "warn":
            _no_json()
        self._name = name
        self._given = dict(conf or {})
        if driver_memory:
            self._given["spark.driver.memory"] = driver_memory
        remote = os.environ.get("SPARK_REMOTE", "")
        if master:
            self._given["spark.master"] = master
        elif is_connect(remote):
            self._given.setdefault("spark.master", remote)
        self._spark: SparkSession | None = None
        self._is_ours = SparkContext._active_spark_context is None
        self._connect = is_connect(self._given.get("spark.master", ""))
        if self._connect:
            refuse_unreachable(self._given["spark.master"])
        elif SparkContext._gateway is None and not is_submitted():
            self._choose_java(log_level)

    def get(self) -> SparkSession:
        """Start the session if there is none, and return it."""
        if self._connect:
            self._spark = over_connect(self._given)
            return self._spark
        if SparkContext._gateway is None:
            _launch(self._given)
        settings = _settings(self._name, self._given)
        self._spark = spark = SparkSession.builder.config(conf=settings).getOrCreate()
        master = settings.get("spark.master") or ""
        if is_local(master) and not settings.contains(_SHUFFLE):
            spark.conf.set(_SHUFFLE, 2 * spark.sparkContext.defaultParallelism)
        if not _is_found_anyway(master):
            register(spark)
        return spark

    def close(self, *, interrupted: bool = False) -> None:
        """
        Release the session; a session that existed before stays.

        A local session ends with this process, in the background; a session on a cluster is stopped
        here.

        :param interrupted: do not wait for the cluster; Java tells it when it notices that this
            process is gone.
        """
        if self._spark is not None and self._is_ours:
            spark, self._spark = self._spark, None
            if self._connect:
                spark.interruptAll()
                spark.stop()
                return
            if interrupted:
                return
            if is_submitted() or not is_local(spark.sparkContext.master or ""):
                spark.stop()

    def _choose_java(self, log_level: str) -> None:
        """Find Java for the JVM that `get` will start, and complete the JVM's settings."""
        java = find_java()
        master = self._given.get("spark.master", "local[*]")
        refuse_unreachable(master)
        self._given.setdefault("spark.driver.memory", DEFAULT_MEMORY)
        options = self._given.get("spark.driver.extraJavaOptions", "")
        self._given["spark.driver.extraJavaOptions"] = (
            f"-Drmqha.log.level={log_level} {options}".strip()
        )
        os.environ["JAVA_HOME"] = str(java.home)
        if is_local(master):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _no_json() -> None:
    """Stop pyspark from logging each error of a query as 6 KB of JSON, besides raising it."""
    for of in ("SQL", "DataFrame"):
        PySparkLogger.getLogger(f"{of}QueryContextLogger").disabled = True


def start_session(
    name: str = "rmq-ha",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    driver_memory: str | None = None,
    verbose: bool = False,
) -> SparkSession:
    """
    Return a session with the data source `rocketmq`.

    Under `spark-submit`, or if a session exists already, it is that session, with its settings.

    :param master: `local[2]`, `spark://...`; None: the master of Spark's settings, else all
        processors of this machine.
    :param conf: Spark's settings, which win over all others.
    :param driver_memory: the driver's heap, like `1g`.
    :param verbose: show Spark's warnings too.
    :raises rmq_ha.lake.spark.host.java.NoJava: no usable Java was found.
    """
    return JobSession(
        name,
        master=master,
        conf=conf,
        driver_memory=driver_memory,
        log_level="warn" if verbose else "error",
    ).get()


def over_connect(given: Mapping[str, str]) -> SparkSession:
    """
    Return a session of a Spark Connect server, whose Python has rmq-ha as well.

    :param given: settings; `spark.master` is the server's address, `sc://host:15002`.
    :raises WrongUsage: a setting can only be made where the server starts, or packages are missing.
    """
    try:
        spark = SparkSession.builder.remote(given["spark.master"]).getOrCreate()
    except ImportError as error:
        raise WrongUsage(f"Spark Connect needs pip install 'rmq-ha[connect]': {error}") from None
    mine = {"spark.sql.session.timeZone": "UTC", **given}
    del mine["spark.master"]
    for key, value in mine.items():
        try:
            spark.conf.set(key, value)
        except PySparkException:
            raise WrongUsage(
                f"--conf {key}: over Spark Connect it cannot be changed; set it where the server"
                " starts"
            ) from None
    register(spark)
    return spark


def is_submitted() -> bool:
    """Return whether `spark-submit` started this process, so that a JVM runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def register(spark: SparkSession) -> None:
    """Make `format("rocketmq")` known to a session."""
    from rmq_ha.lake.spark.source.datasource import RocketmqDataSource

    spark.dataSource.register(RocketmqDataSource)


def _is_found_anyway(master: str) -> bool:
    """
    Return whether `format("rocketmq")` works without a call, because Spark finds `pyspark_rocketmq`
    when it searches.

    That search takes a second, which a job that does not use the format should not pay. Under
    `spark-submit` rmq-ha may come in a zip, which only this process knows when Spark searches.
    """
    same_python = os.environ.get("PYSPARK_PYTHON") == sys.executable
    here = is_local(master) and same_python and not is_submitted()
    return here and find_spec("pyspark_rocketmq") is not None


def _settings(name: str, given: Mapping[str, str]) -> SparkConf:
    """Return the given settings, then those Spark was started with, then our defaults."""
    conf = SparkConf()
    for key, value in given.items():
        conf.set(key, value)
    conf.setIfMissing("spark.master", "local[*]")
    conf.setIfMissing("spark.app.name", name)
    master = conf.get("spark.master") or ""
    for key, value in defaults(master).items():
        conf.setIfMissing(key, value)
    return conf


def defaults(master: str) -> dict[str, str]:
    """Return settings that the user has not set; on a cluster, those that results depend on."""
    settings = {"spark.sql.session.timeZone": "UTC"}
    if is_local(master):
        settings |= {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return settings


def is_local(master: str) -> bool:
    """Return whether all of Spark runs on this machine."""
    return master.startswith("local")


def _launch(given: Mapping[str, str]) -> None:
    """Start the JVM by Spark's own scripts, or use the one that spark-submit has started."""
    options = given.get("spark.driver.extraJavaOptions", "")
    conf = SparkConf(loadDefaults=False)
    for key, value in {
        **_NO_BAR,
        **given,
        "spark.driver.extraJavaOptions": " ".join([*_quiet(), options]),
    }.items():
        if not _SECRET.search(key):  # `ps` would show it; the session's settings have it
            conf.set(key, value)
    SparkContext._ensure_initialized(conf=conf)


def _quiet() -> list[str]:
    """Return Java's option for rmq-ha's log settings, which it cannot read from a zip."""
    return [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"] if _LOG4J.is_file() else []
