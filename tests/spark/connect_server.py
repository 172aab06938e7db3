"""A server of Spark Connect in the JVM of a session that is there."""

from typing import Any

SETTINGS = {
    "spark.connect.grpc.binding.port": "0",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


def serve(spark: Any) -> int:
    """Let it listen, until the session ends; the port. The session has to have `SETTINGS`."""
    package = spark.sparkContext._jvm.org.apache.spark.sql.connect.service
    service = getattr(package, "SparkConnectService$").__getattr__("MODULE$")
    if not service.started():
        service.start(spark.sparkContext._jsc.sc())
    port: int = service.localPort()
    return port
