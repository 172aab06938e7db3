"""Starting Spark's JVM: what is said when it does not come up."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmq_ha.lake.spark.host import gateway
from rmq_ha.lake.spark.host.gateway import (
    GatewayFailed,
    JvmOptions,
    Starting,
    command_of,
    environ_for,
    finish,
    give_up,
    jars_of,
    start,
)
from rmq_ha.lake.spark.host.java import Java

ANSWERS = """
import os, struct, sys
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(path + ".new", "wb") as file:
    file.write(struct.pack(">ii", 4321, 6) + b"secret")
os.rename(path + ".new", path)
sys.stdin.read()
"""


def java(tmp_path: Path, has_vector: bool = True) -> Java:
    return Java(tmp_path / "java", 21, has_vector, "PATH", "")


def test_it_says_where_it_listens_and_ends_when_we_let_go() -> None:
    starting = start([sys.executable, "-c", ANSWERS], os.environ)
    found = finish(starting)
    assert (found.port, found.secret) == (4321, "secret")
    assert not starting.directory.exists()
    assert found.process.stdin is not None
    found.process.stdin.close()
    assert found.process.wait(30) == 0


def coming_up(tmp_path: Path, data: bytes | None) -> Starting:
    """One that runs, and has said this so far."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    folder = tmp_path / "starting"
    folder.mkdir()
    if data is not None:
        (folder / "connection").write_bytes(data)
    return Starting(process, folder)


def test_the_secret_is_as_long_as_it_says(tmp_path: Path) -> None:
    starting = coming_up(tmp_path, struct.pack(">ii", 4321, 6) + b"secret and more")
    assert finish(starting)[1:] == (4321, "secret")
    give_up(starting)
    assert starting.process.poll() is not None


def test_one_that_says_nothing_is_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory may be gone already: that is no other error."""
    clock, waits = iter([1.0, 121.0, 121.5]), list[float]()
    time = SimpleNamespace(monotonic=lambda: next(clock), sleep=waits.append)
    monkeypatch.setattr(gateway, "time", time)
    starting = coming_up(tmp_path, None)
    starting.directory.rmdir()
    with pytest.raises(GatewayFailed, match="Java did not answer for 120 s"):
        finish(starting)
    assert waits == [0.01]
    assert starting.process.poll() is not None


def test_ctrl_c_does_not_reach_it() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        gateway._ignore_interrupt()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_one_that_ends_at_once_is_an_error() -> None:
    starting = start([sys.executable, "-c", "import sys; sys.exit(7)"], os.environ)
    with pytest.raises(GatewayFailed, match="ended with 7 while it started"):
        finish(starting)
    assert not starting.directory.exists()


def test_one_that_nobody_needs_is_ended() -> None:
    starting = start([sys.executable, "-c", "import time; time.sleep(100)"], os.environ)
    give_up(starting)
    assert starting.process.returncode is not None
    assert not starting.directory.exists()


def test_one_that_comes_up_while_we_are_interrupted_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its file for the connection is gone by then, so nobody would ever reach or end it."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    starting = start([sys.executable, "-c", "import time; time.sleep(100)"], os.environ)
    monkeypatch.setattr(gateway.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finish(starting)
    assert starting.process.returncode is not None
    assert not starting.directory.exists()


def test_secrets_are_not_on_the_command_line_of_java(tmp_path: Path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "geheim", "spark.x": "y"}
    command = command_of(java(tmp_path), tmp_path, JvmOptions("1g", conf=conf))
    assert "spark.x=y" in command
    assert not [part for part in command if "geheim" in part]


def test_sparks_logging_jar_comes_first_then_what_most_is_in_and_the_rest(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    jars = ["slf4j-api-2.0.17.jar", "spark-catalyst_2.13-4.3.0.jar", "scala-library-2.13.18.jar"]
    jars += ["spark-core_2.13-4.3.0.jar", "scala-reflect-2.13.18.jar", "alpha.jar", "zeta.jar"]
    for name in (*reversed(jars), "notes.txt"):
        (tmp_path / "jars" / name).touch()
    assert [os.path.basename(jar) for jar in jars_of(tmp_path)] == jars


def test_what_the_user_put_before_the_jars_stays_there(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark.jar").touch()
    wanted = JvmOptions("2g", ["-Da=b"], ["/conf"], {"spark.x": "y z"})
    command = command_of(java(tmp_path), tmp_path, wanted)
    assert command[:2] == [str(tmp_path / "java" / "bin" / "java"), "-Xmx2g"]
    assert command[command.index("-cp") + 1] == f"/conf:{tmp_path / 'jars' / 'spark.jar'}"
    assert command[-4:] == [
        *("org.apache.spark.deploy.SparkSubmit", "--conf", "spark.x=y z", "pyspark-shell")
    ]


def test_only_executors_need_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that knows Spark's home would take pyspark from a zip, and compile it each time."""
    monkeypatch.setenv("SPARK_HOME", "/spark")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    local = environ_for(java(tmp_path), tmp_path, tmp_path, "local[2]")
    assert "SPARK_HOME" not in local
    assert (local["SPARK_LOCAL_IP"], local["SPARK_CONNECT_MODE"]) == ("127.0.0.1", "0")
    cluster = environ_for(java(tmp_path), tmp_path, tmp_path, "local-cluster[1,1,1024]")
    assert cluster["SPARK_HOME"] == str(tmp_path)
    assert cluster["JAVA_HOME"] == str(tmp_path / "java")
