"""A server of one part: its status port is there before it, and after it."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from rmq_ha.ops.app.lone_server import LoneServer
from rmq_ha.ops.app.status.health import Health


class Steps:
    """What a server of one part is made of: each step is noted, and ends when a test says."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ends: list[Deferred[Any]] = []

    def part(self, name: str, port: int) -> Any:
        return SimpleNamespace(
            port=port,
            start=partial(self._begin, f"start {name}"),
            stop=partial(self._begin, f"stop {name}"),
            show=lambda board: self.begun.append(("show", board)),
            withdraw=lambda health: self.begun.append(health),
        )

    def _begin(self, step: str) -> Deferred[Any]:
        self.begun.append(step)
        self.ends.append(Deferred())
        return self.ends[-1]


class Lone(LoneServer):
    log = Logger()


def is_done(later: Deferred[Any]) -> bool:
    return bool(later.called and later.result is None)


def test_the_status_port_starts_first_and_stops_last() -> None:
    """Each step waits for the one before: /healthz can say what goes on."""
    steps = Steps()
    board: Any = "a board"
    server = Lone(steps.part("part", 1), steps.part("status", 2), (), None, lambda: board)
    started = server.start()
    assert steps.begun == ["start status"]
    steps.ends[0].callback(None)
    assert steps.begun[1:] == ["start part"]
    steps.ends[1].callback(None)
    assert steps.begun[2:] == [("show", board)]
    assert is_done(started)
    assert server.facts() == {"listenPort": 1, "metricsPort": 2}
    stopped = server.stop()
    assert steps.begun[3:] == [Health(False, "stopping"), "stop part"]
    steps.ends[2].callback(None)
    assert steps.begun[5:] == ["stop status"]
    assert not is_done(stopped)
    steps.ends[3].callback(None)
    assert is_done(stopped)


def test_without_a_status_port_the_part_alone_starts_and_stops() -> None:
    steps = Steps()
    server = Lone(steps.part("part", 1), None, (), None, pytest.fail)
    for begin in (server.start, server.stop):
        later = begin()
        assert not is_done(later)
        steps.ends[-1].callback(None)
        assert is_done(later)
    assert steps.begun == ["start part", "stop part"]
    assert server.facts() == {"listenPort": 1}


def test_without_a_board_the_status_port_shows_none() -> None:
    steps = Steps()
    started = Lone(steps.part("part", 1), steps.part("status", 2), (), None).start()
    for end in steps.ends:
        end.callback(None)
    assert steps.begun == ["start status", "start part"]
    assert is_done(started)


def test_a_status_port_ends_though_its_part_cannot_be_stopped() -> None:
    steps = Steps()
    part, status = steps.part("part", 1), steps.part("status", 2)
    part.stop = lambda: fail(OSError("no"))
    stopped = Lone(part, status, (), None).stop()
    assert steps.begun == [Health(False, "stopping"), "stop status"]
    steps.ends[0].callback(None)
    failed: list[Any] = []
    stopped.addErrback(failed.append)
    assert failed[0].check(OSError)


def test_a_part_that_does_not_start_shows_nothing() -> None:
    steps = Steps()
    part, status = steps.part("part", 1), steps.part("status", 2)
    part.start, status.start = lambda: fail(OSError("no")), lambda: succeed(None)
    failed: list[Any] = []
    Lone(part, status, (), None, pytest.fail).start().addErrback(failed.append)
    assert failed[0].check(OSError)
    assert steps.begun == []
