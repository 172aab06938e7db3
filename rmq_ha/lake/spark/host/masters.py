"""Checks that the Spark master that was named answers, before a job waits for it."""

import os
import re
import socket
from collections.abc import Mapping

from rmq_ha.base.errors import WrongUsage

FORMS = (
    "local, local[4], local[*], spark://host:7077, yarn, k8s://https://host:port or, over Spark"
    " Connect, sc://host:15002"
)
_MASTER = re.compile(
    r"local|local\[(\*|\d+)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s:,]+:\d+(,[^\s:,]+:\d+)*|yarn|k8s://\S+|sc://[^\s/:]+(:\d+)?(/\S*)?"
)
_CONNECT_PORT = 15002
_PATIENCE = 5.0


class NoSparkMaster(Exception):
    """Spark's master does not answer; the text says why."""


def is_master(text: str) -> bool:
    """Return whether a text has a form of master that Spark knows."""
    return _MASTER.fullmatch(text) is not None


def is_connect(master: str) -> bool:
    """Return whether a master is reached over Spark Connect, which needs no Java here."""
    return master.startswith("sc://")


def refuse_unreachable(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """
    Refuse a master that does not answer. Spark itself would try for a minute, and say little.

    :param master: the master of a cluster.
    :raises NoSparkMaster: the standalone master, or the server of Spark Connect, does not answer.
    :raises rmq_ha.base.errors.WrongUsage: YARN is not configured on this machine.
    """
    if master == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        raise WrongUsage("yarn: set HADOOP_CONF_DIR to the directory with yarn-site.xml")
    failed = ""
    addresses = _addresses(master)
    for host, port in addresses:
        try:
            socket.create_connection((host, port), _PATIENCE).close()
            return
        except (OSError, OverflowError) as error:
            failed = f"{host}:{port}: {error}"
    if not addresses:
        return
    raise NoSparkMaster(
        f"no master of Spark answers at {_without_token(master)} ({failed}); is the address right, "
        "and does a master run there?"
    )


def _without_token(master: str) -> str:
    """Return a master without the token that may follow the address of Spark Connect."""
    return "/".join(master.split("/")[:3]) if is_connect(master) else master


def _addresses(master: str) -> list[tuple[str, int]]:
    """Return the addresses that must answer; none for YARN and Kubernetes."""
    if is_connect(master):
        host, _, port = _without_token(master).removeprefix("sc://").partition(":")
        return [(host, int(port or _CONNECT_PORT))]
    if not master.startswith("spark://"):
        return []
    pairs = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
    return [(host, int(port)) for host, _, port in pairs]
