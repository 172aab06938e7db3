"""Whether a Spark that was named could be there, before anything waits for it."""

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


class NoMaster(Exception):
    """Nobody answers where Spark's master should be; says why."""


def is_master(text: str) -> bool:
    """It has a form that Spark knows."""
    return _MASTER.fullmatch(text) is not None


def is_connect(master: str) -> bool:
    """Spark runs elsewhere and is spoken to over Spark Connect: no Java is needed here."""
    return master.startswith("sc://")


def refuse_unreachable(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """
    Spark itself would try for a minute, and say little.

    :param master: of a cluster.
    :raises NoMaster: no standalone master answers, or no server of Spark Connect.
    :raises rmq_ha.base.errors.WrongUsage: YARN is not configured here.
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
    raise NoMaster(
        f"no master of Spark answers at {_without_token(master)} ({failed}); is the address right, "
        "and does a master run there?"
    )


def _without_token(master: str) -> str:
    """Behind the address of Spark Connect there may be a token."""
    return "/".join(master.split("/")[:3]) if is_connect(master) else master


def _addresses(master: str) -> list[tuple[str, int]]:
    """Where somebody has to answer; nothing is known of YARN and Kubernetes."""
    if is_connect(master):
        host, _, port = _without_token(master).removeprefix("sc://").partition(":")
        return [(host, int(port or _CONNECT_PORT))]
    if not master.startswith("spark://"):
        return []
    pairs = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
    return [(host, int(port)) for host, _, port in pairs]
