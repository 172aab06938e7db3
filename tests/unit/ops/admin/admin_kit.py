"""Runs commands' work against a simulated cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

from rich.console import Console

from rmq_ha.base.seams import Host
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import Session, perform
from tests.unit.client.sim_cluster import SimCluster


class Said:
    """How a command ended, and what it wrote."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """Its only line of JSON."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def last(self) -> Any:
        """Its last line of JSON."""
        return json.loads(self.out.splitlines()[-1])


def say(
    cluster: SimCluster,
    work: Callable[[Session], Any],
    host: Host | None = None,
    *,
    as_json: bool = True,
    namesrv: str | None = None,
    limit: float = 200.0,
    **options: Any,
) -> Said:
    """
    Run it on a machine, or on one of its own.

    :param options: of `Options`.
    """
    out, err = StringIO(), StringIO()
    consoles = [Console(file=file, width=300, soft_wrap=True) for file in (out, err)]
    if host is None:
        known_hosts = cluster.world.hosts
        host = (known_hosts.get("admin") or cluster.world.add("admin")).seams
    known = cluster.namesrv.address if namesrv is None else namesrv
    chosen = Options(namesrv=known, timeout_ms=2000, **options)
    session = Session(host, chosen, Output(as_json, *consoles))
    code = cluster.wait(perform(session, work), limit)
    return Said(code, out.getvalue(), err.getvalue())
