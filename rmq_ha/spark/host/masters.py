"""Whether a Spark that was named could be there, before anything waits for it."""

import os
import re
import socket
from collections.abc import Mapping

from rmq_ha.errors import WrongUsage

FORMS = "local, local[4], local[*], spark://host:7077, yarn or k8s://https://host:port"
_MASTER = re.compile(
    r"local|local\[(\*|\d+)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s:,]+:\d+(,[^\s:,]+:\d+)*|yarn|k8s://\S+"
)
_PATIENCE = 5.0


class NoMaster(Exception):
    """Nobody answers where Spark's master should be; says why."""


def is_master(text: str) -> bool:
    """It has a form that Spark knows."""
    return _MASTER.fullmatch(text) is not None


def refuse_unreachable(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """
    Spark itself would try for a minute, and say little.

    :param master: of a cluster.
    :raises NoMaster: no standalone master answers.
    :raises rmq_ha.errors.WrongUsage: YARN is not configured here.
    """
    if master == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        raise WrongUsage("yarn: set HADOOP_CONF_DIR to the directory with yarn-site.xml")
    if not master.startswith("spark://"):
        return
    failed = ""
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _PATIENCE).close()
            return
        except (OSError, OverflowError) as error:
            failed = f"{address}: {error}"
    raise NoMaster(f"no master of Spark answers at {master} ({failed}); is it right, does one run?")
