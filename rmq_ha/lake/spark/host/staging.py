"""Has Spark copy stores that only Hadoop can open."""

import os
from typing import Any
from zlib import crc32

from pyspark.sql.utils import is_remote

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.host.files import STAGED, files_of


def needs_staging(place: str) -> bool:
    """Return whether this process cannot open a place, so that perhaps only Hadoop can."""
    try:
        files_of(place)
    except CannotDecide:
        return True
    return False


def stage(spark: Any, uri: str) -> str:
    """
    Have Spark copy a store of a Hadoop file system to every machine that reads it.

    Each machine keeps the whole store until the session ends, so the store must fit on its disk.

    :returns: a place for `files_of`, the same on the driver and on executors.
    :raises WrongUsage: Spark is used over Spark Connect, which gives no access to Hadoop's file
        systems.
    :raises CannotDecide: Hadoop cannot read the store; or, on a cluster, a store with the same last
        name was copied before.
    """
    if is_remote():
        raise WrongUsage(
            f"{uri} is known to Hadoop only, and cannot be copied over Spark Connect: give a path"
            " that the server's executors see, or a place that pyarrow opens (s3://, gs://, hdfs://)"
        )
    from py4j.protocol import Py4JError

    from rmq_ha.lake.spark.host.session import is_local

    uri = uri.rstrip("/")
    try:
        if is_local(spark.sparkContext.master):
            return _copy_locally(spark.sparkContext, uri)
        return _send_to_executors(spark.sparkContext, uri)
    except Py4JError as error:
        reason = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise CannotDecide(f"{uri} cannot be copied: {reason}") from None


def _copy_locally(context: Any, uri: str) -> str:
    """Make one copy beside Spark's own files, if all tasks run on this machine."""
    from pyspark import SparkFiles

    target = f"{SparkFiles.getRootDirectory()}/store-{crc32(uri.encode()):08x}/{_last_segment(uri)}"
    if not os.path.exists(target):
        hadoop = context._jvm.org.apache.hadoop.fs
        path = hadoop.Path(uri)
        system = path.getFileSystem(context._jsc.hadoopConfiguration())
        # It has another name until it is complete.
        system.copyToLocalFile(False, path, hadoop.Path(f"file://{target}.part"), True)
        os.replace(f"{target}.part", target)
    return target


def _send_to_executors(context: Any, uri: str) -> str:
    """Send the store to every executor, under the last part of its name."""
    name = _last_segment(uri)
    others = [other.rstrip("/") for other in context.listFiles if _last_segment(other) == name]
    if others and others[0] != uri:
        raise CannotDecide(
            f"{uri} cannot be copied beside {others[0]}: Spark keeps what it copies by its last "
            "name. Give one of them another name there"
        )
    if not others:
        context.addFile(uri, recursive=True)
    return STAGED + name


def _last_segment(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]
