"""How a server's process is started and told to end or to read again, without being one."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.scripts import twistd

from rmq_ha.ops.app import foreground
from rmq_ha.ops.app.process import ProcessEnd


class Reactor:
    """Runs, until it is stopped."""

    def __init__(self) -> None:
        self.running, self.stops = True, 0

    def stop(self) -> None:
        self.stops += 1

    def callFromThread(self, function: Callable[..., object], *given: Any) -> None:
        function(*given)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_signal_stops_it_once_and_another_has_files_read_again() -> None:
    reactor, reads = Reactor(), list[int]()
    end = ProcessEnd(reactor)
    end.catch_sigterm()
    end.catch_sighup(lambda: reads.append(1))
    os.kill(os.getpid(), signal.SIGHUP)
    assert (reads, reactor.stops) == ([1], 0)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    assert (reads, reactor.stops) == ([1], 1)


def test_what_does_not_run_is_not_stopped() -> None:
    reactor = Reactor()
    reactor.running = False
    ProcessEnd(reactor).stop()
    assert reactor.stops == 0


@pytest.mark.parametrize("is_good", [True, False])
def test_a_start_that_failed_is_an_exit_code(
    is_good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leaves so has said all that was printed: nobody flushes it later."""
    left: list[tuple[int, bytes]] = []
    pipe = io.BytesIO()
    monkeypatch.setattr(os, "_exit", lambda code: left.append((code, pipe.getvalue())))
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(pipe))
        print(f"said on {name}", file=getattr(sys, name))
    end = ProcessEnd(Reactor())
    if not is_good:
        end.fail()
    end._leave()
    assert left == ([] if is_good else [(1, b"said on stdout\nsaid on stderr\n")])


@pytest.mark.parametrize(
    ("program", "plugin"),
    [
        (foreground.broker, "rmqha"),
        (foreground.namesrv, "rmqnamesrv"),
        (foreground.controller, "rmqcontroller"),
    ],
)
def test_a_program_is_its_plugin_in_the_foreground(
    program: Callable[[], object],
    plugin: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines: list[list[str]] = []
    monkeypatch.setattr(twistd, "run", lambda: lines.append(sys.argv))
    monkeypatch.setattr(sys, "argv", ["program", "--config", "FILE"])
    with pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == 0
    assert lines == [["program", "--nodaemon", "--pidfile=", plugin, "--config", "FILE"]]
    monkeypatch.setattr(sys, "argv", ["program", "--version"])
    with pytest.raises(SystemExit):
        program()
    assert len(lines) == 1
    assert "rmq-ha" in capsys.readouterr().out
