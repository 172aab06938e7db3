"""Types whole lines of `rmqha-admin` against a simulated cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport

from rmq_ha.admin import session, stdin
from rmq_ha.admin.main import main
from tests.unit.client.sim_cluster import SimCluster


class Answer(NamedTuple):
    """How a line ended, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[Any]:
        rows: list[Any] = self.lines[0]["rows"]
        return rows


class _Reactor:
    """Of the reactor a command asks only to be told when it ends."""

    def addSystemEventTrigger(self, *_: object) -> None: ...


class Typist:
    """
    Somebody at a machine beside the cluster's.

    :param patch: until its end, commands run on the simulated clock.
    :ivar host: that machine.
    """

    def __init__(self, cluster: SimCluster, patch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.host = host = cluster.world.add("admin").seams

        def react(start: Callable[[Any], Deferred[None]]) -> None:
            cluster.wait(start(_Reactor()), 200)

        def standard_io(protocol: Any, reactor: object) -> None:
            protocol.makeConnection(StringTransport())
            protocol.dataReceived(self._given.encode())
            protocol.connectionLost()

        self._given = ""
        patch.setattr(stdin, "StandardIO", standard_io)
        patch.setattr(session, "make_steady", lambda _: None)
        patch.setattr(session, "make_host", lambda _: host)
        patch.setattr(session, "react", react)

    def __call__(self, *words: str, given: str = "", namesrv: str | None = None) -> Answer:
        """A line, whose blanks part words; the last words may have blanks."""
        return self.as_typed(*words, "--json", given=given, namesrv=namesrv)

    def as_typed(self, *words: str, given: str = "", namesrv: str | None = None) -> Answer:
        """As for people, unless the words say otherwise."""
        line, *more = words
        servers = self.cluster.namesrv.address if namesrv is None else namesrv
        typed = [*line.split(), *more, "-n", servers]
        self._given = given
        done = CliRunner().invoke(main, typed)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Answer(done.exit_code, done.stdout, done.stderr)

    def does(self, *words: str, is_silent: bool = False, **more: Any) -> Answer:
        """It has to succeed, and to say something."""
        told = self(*words, **more)
        assert told.code == 0, told
        assert told.out or is_silent, words
        return told
