"""
One Spark session for all tests of this folder: they run in one process (tests/conftest.py).

`spark.newSession()` isolates settings and views where a test needs that.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# Java looks for a class in all 280 jars of Spark in turn. These have nearly all classes.
FIRST_JARS = (
    "scala-library",
    "spark-catalyst_",
    "spark-sql_",
    "spark-core_",
    "spark-sql-api_",
    "spark-common-utils_",
    "spark-network-",
    "spark-unsafe_",
    "hadoop-client-",
    "json4s-",
    "jackson-",
    "py4j-",
    "log4j-",
    "arrow-",
    "parquet-",
    "netty-",
)


def first_jars() -> str:
    """Return the class path of the jars that are to be searched first."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return ""
    home = os.environ.get("SPARK_HOME") or Path(spec.origin).parent
    jars = sorted(Path(home, "jars").glob("*.jar"))
    return ":".join(str(jar) for first in FIRST_JARS for jar in jars if jar.name.startswith(first))


# What runs once is not worth compiling twice, nor are queries. Spark's classes are well-formed.
RUNS_ONCE = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    "spark.driver.extraClassPath": first_jars(),
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "tests.spark.warm_daemon",
}
NEEDED = ("pyspark", "pyarrow", "pandas", "numpy", "duckdb")


def reason_to_skip() -> str:
    """Empty: Spark can run here."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return f"no {', '.join(missing)}: pip install 'rmq-ha[scan,spark]'"
    from rmq_ha.lake.spark.host.java import NoJava, find_java

    try:
        find_java()
    except NoJava as no_java:
        return str(no_java)
    return ""


class _Skipped(pytest.Module):
    """A file that cannot even be imported here: it is skipped, and that is seen."""

    reason = ""

    def collect(self) -> Any:
        pytest.skip(self.reason, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    reason = reason_to_skip()
    if not reason:
        return None
    skipped = _Skipped.from_parent(parent, path=module_path)
    skipped.reason = reason
    return skipped


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """`local[2]`, 1 GiB, quiet, UTC, with the data source `rocketmq`."""
    from rmq_ha.lake.spark.host.session import start_session
    from tests.spark import connect_server, lakes

    conf = RUNS_ONCE | connect_server.SETTINGS | lakes.SETTINGS
    session = start_session("rmq-ha tests", master="local[2]", conf=conf)
    yield session
    session.stop()


@pytest.fixture(params=["spark", "here"])
def engine(request: pytest.FixtureRequest) -> Any:
    """Each engine on its turn: the rules stand once, and both of them run them."""
    if request.param == "here":
        return request.getfixturevalue("here")
    from rmq_ha.lake.spark.host.engine import SparkEngine

    return SparkEngine(request.getfixturevalue("spark"))


@pytest.fixture
def here() -> Any:
    """
    The engine of this process alone, for cases of rules that another test has Spark run: an audit
    takes Spark 8 s and this engine 1 s.
    """
    from rmq_ha.lake.spark.host.duck import DuckEngine
    from rmq_ha.lake.spark.source.messages import messages

    return DuckEngine(messages)


@pytest.fixture(params=["rmqha-spark", "rmqha-admin"])
def command(request: pytest.FixtureRequest) -> Any:
    """Either command, in this process; `rmqha-spark` uses the session that is there."""
    if request.param == "rmqha-admin":
        from rmq_ha.ops.admin.main import main as admin

        return admin
    from rmq_ha.lake.spark.cli import main

    request.getfixturevalue("spark")
    return main
