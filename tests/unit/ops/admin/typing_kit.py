"""Types whole lines of `rmqha-admin` against a simulated cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.admin import confirm, produce, session
from rmq_ha.ops.admin.main import main
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


def of(rows: list[Any], *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of each row."""
    return [tuple(row[column] for column in columns) for row in rows]


class _Reactor:
    """Of the reactor a command asks only to be told when it ends: `interrupt` says so."""

    def addSystemEventTrigger(self, _: str, __: str, interrupt: Callable[[], object]) -> None:
        self.interrupt = interrupt


class Typist:
    """
    Somebody at a machine beside the cluster's.

    :param patch: until its end, commands run on the simulated clock.
    :ivar host: that machine; who sets another types there.
    :ivar asked: codes of the requests that came to brokers, in their order.
    """

    def __init__(self, cluster: SimCluster, patch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.host = host = cluster.world.add("admin").seams

        def react(start: Callable[[Any], Deferred[None]]) -> None:
            reactor = _Reactor()
            over = start(reactor)
            for seconds, event in self._events:
                host.clock.callLater(seconds, event, reactor)
            self._events.clear()
            cluster.wait(over, 200)

        def standard_io(protocol: Any, reactor: object) -> None:
            protocol.makeConnection(StringTransport())
            protocol.dataReceived(self._given.encode())
            protocol.connectionLost()

        self._given = ""
        self._events: list[tuple[float, Callable[[_Reactor], object]]] = []
        self._patch = patch
        self.asked: list[int] = []
        for broker in cluster.brokers.values():
            self._watch(broker.dispatcher.routes)
        patch.setattr(produce, "StandardIO", standard_io)
        patch.setattr(session, "make_steady", lambda _: None)
        patch.setattr(session, "make_host", lambda _: self.host)
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
        done = CliRunner().invoke(main, typed, input=given)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Answer(done.exit_code, done.stdout, done.stderr)

    def does(self, *words: str, is_silent: bool = False, **more: Any) -> Answer:
        """It has to succeed, and to say something."""
        told = self(*words, **more)
        assert told.code == 0, told
        assert told.out or is_silent, words
        return told

    def sits_there(self) -> None:
        """From now on `given` is what somebody at the keyboard answers."""
        self._patch.setattr(confirm, "is_interactive", lambda: True)

    def meanwhile(self, seconds: float, event: Callable[[], object]) -> None:
        """It happens while the next line runs, so long after its start."""
        self._events.append((seconds, lambda _: event()))

    def interrupts(self, seconds: float) -> None:
        """Ctrl-C, so long after the start of the next line."""
        self._events.append((seconds, lambda reactor: reactor.interrupt()))

    def answers(self, broker: str, code: int, answer: Callable[[RemotingCommand], Any]) -> None:
        """From now on it answers these requests so; what `answer` raises is what it refuses."""
        self.cluster.brokers[broker].dispatcher.routes[code] = lambda _, command: answer(command)

    def refuses(self, broker: str, code: int, remark: str = "not today") -> None:
        """From now on it refuses these requests."""

        def refuse(_: RemotingCommand) -> None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)

        self.answers(broker, code, refuse)

    def keeps_silent(self, broker: str, code: int) -> None:
        """From now on it does not answer these requests, as a Java broker without ACL."""
        self.answers(broker, code, lambda _: Deferred())

    def _watch(self, routes: dict[int, Any]) -> None:
        for code, handler in routes.items():
            routes[code] = lambda channel, command, handler=handler: (
                self.asked.append(command.code) or handler(channel, command)
            )
