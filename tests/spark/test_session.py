"""Sessions as users start them: a program, spark-submit, executors elsewhere."""

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from rmq_ha.lake.spark.host.java import find_java
from rmq_ha.lake.spark.host.packing import write_zip
from rmq_ha.lake.spark.host.session import JobSession, start_session
from tests.kits.cluster_packages import link_cluster_packages

ROOT = Path(__file__).parents[2]
STORES = ROOT / "tests" / "fixtures" / "store"
# What runs once is not worth compiling twice.
LOCAL = ("--master", "local[1]", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")
EXECUTORS = int(os.environ.get("RMQ_HA_SPARK_EXECUTORS", "1"))

JOB = """
import sys
import click
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.lake.spark.result import JobResult, Outcome
from rmq_ha.lake.spark.running import job_options, run_job

def places(batches):
    import pyarrow as pa
    import rmq_ha
    for batch in batches:
        rows = pa.array([batch.num_rows], pa.int32())
        yield pa.RecordBatch.from_pydict({"place": [rmq_ha.__file__], "rows": rows})

@click.command()
@job_options
@click.argument("store")
def look(store):
    def body(job):
        spark = job.spark
        java = spark._jvm.java.lang.System.getProperty("java.home")
        rows = spark.read.format("rocketmq").load(store)
        seen = rows.select("queueId").mapInArrow(places, "place string, rows int").collect()
        job.note(f"java {java}")
        for place in {row.place for row in seen}:
            job.note(f"rmq_ha {place}")
        found = [Finding("WARN", "SEEN", "")]
        return JobResult(found, Outcome.HOLDS, f"{sum(row.rows for row in seen)} messages")
    run_job("look", {"store": store}, body)

look()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "look.py"
    path.write_text(JOB)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("store")
    shutil.unpack_archive(STORES / "clean.tar.gz", place)
    return place / "clean"


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    """The environment of a user who has set nothing of Spark."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SPARK")}
    environ.pop("PYSPARK_PYTHON", None)
    return environ


def run(
    command: list[Any], environ: dict[str, str], where: Path
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(part) for part in command],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=200,
        env=environ,
        check=False,
    )


def test_a_session_is_quiet_small_and_on_loopback(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    context = spark.sparkContext
    assert context.uiWebUrl is None
    assert context.getConf().get("spark.driver.host") == "127.0.0.1"
    runtime: Any = context._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    assert runtime.maxMemory() <= 1 << 30


def test_a_session_that_is_there_is_used_and_stays(spark: SparkSession) -> None:
    session = JobSession("another", master="local[1]", driver_memory="9g")
    assert session.get() is spark
    session.close()
    assert spark.range(3).count() == 3
    assert start_session() is spark


def test_a_job_says_only_its_notes_and_its_verdict(
    job: Path, store: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, job, store, *LOCAL, "--strict", "--out", out]
    done = run(command, environ, tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("187 messages")
    assert f"java {find_java().home}" in done.stderr
    # Spark says nothing, and Java one line that no option turns off.
    said = ("java ", "rmq_ha ", "WARNING: Using incubator modules: jdk.incubator.vector")
    assert all(line.startswith(said) for line in done.stderr.splitlines())
    assert {path.name for path in out.iterdir()} >= {"findings", "summary.json", "report.html"}


def test_executors_get_rmq_ha_from_a_zip_under_spark_submit(
    job: Path, store: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    """They have pyspark, pyarrow, numpy and pandas, as clusters do. The exit code comes through."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link_cluster_packages(tmp_path / "env" / "lib" / version / "site-packages")
    tried = run([python, "-c", "import rmq_ha"], environ, tmp_path)
    assert tried.stderr.endswith("No module named 'rmq_ha'\n")
    write_zip(str(tmp_path / "rmq_ha.zip"))
    home = Path(pyspark.__file__).parent
    done = run(
        [
            *(home / "bin" / "spark-submit", "--master", f"local-cluster[{EXECUTORS},1,1024]"),
            # Half of the time is compiling, of what runs once.
            *("--driver-java-options", "-XX:TieredStopAtLevel=1"),
            *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"),
            *("--py-files", tmp_path / "rmq_ha.zip", job, store, "--strict"),
        ],
        environ
        | {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": str(python)}
        | {"PYSPARK_DRIVER_PYTHON": sys.executable},
        tmp_path,
    )
    assert done.stdout.splitlines()[-1].startswith("187 messages"), done.stderr
    assert done.returncode == 1
    # Spark's script joins the two outputs.
    places = [line for line in done.stdout.splitlines() if line.startswith("rmq_ha ")]
    # Relative: an executor's working directory; the driver has an absolute one.
    assert places == ["rmq_ha ./rmq_ha.zip/rmq_ha/__init__.py"]


HANGING = """
import time
import click
from rmq_ha.lake.spark.running import job_options, run_job

@click.command()
@job_options
def hang():
    def body(job):
        print(job.spark.sparkContext._gateway.proc.pid, flush=True)
        job.spark.sparkContext.parallelize([100], 1).map(time.sleep).collect()
    run_job("hang", {}, body)

hang()
"""


def test_ctrl_c_ends_the_job_and_java_with_it(tmp_path: Path) -> None:
    script = tmp_path / "hang.py"
    script.write_text(HANGING)
    process = subprocess.Popen(
        [sys.executable, script, *LOCAL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    java = Path("/proc") / process.stdout.readline().strip()
    assert (java / "stat").exists()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "failed: interrupted, so there is no verdict; run it again\n"
    assert process.returncode == 4, err
    deadline = time.monotonic() + 60
    while java.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not java.exists()
