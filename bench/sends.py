"""Sends of 1 KiB at several numbers in flight: rate, latency, processor time a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from measure import Ends, Figures, Window, alone, rig_of, scratch

from tests.interop.rig import Rig

LEVELS = ((1, 1), (4, 4), (4, 16), (4, 64))
_WARM_OURS_S = 2


class Bench(NamedTuple):
    """
    What all parts are given.

    :ivar repeats: windows at each level.
    :ivar seconds: of a window.
    :ivar warm: seconds that Java gets at each level before it is measured.
    :ivar mebibytes: log size for catch-up, pull and start.
    """

    figures: Figures
    work: Path
    repeats: int
    seconds: float
    warm: float
    mebibytes: int

    @property
    def sides(self) -> tuple[str, ...]:
        """Java and what is compared with it."""
        return self.figures.sides

    def warm_s(self, side: str) -> float:
        """Nothing of ours is compiled."""
        return self.warm if side == "java" else min(self.warm, _WARM_OURS_S)


class Kind(NamedTuple):
    """
    What sends go to.

    :ivar make: starts it; every put waits for what the label says.
    :ivar pauses: it stands being stopped for some seconds, so that both sides can live at once and
        be measured in turn. One that elects a leader does not.
    :ivar aims: by number in flight.
    """

    label: str
    make: Callable[[Rig, str, Path], Ends]
    pauses: bool
    aims: Mapping[int, float]


def send_part(bench: Bench, kind: Kind) -> None:
    """All levels, sides in turn."""
    if kind.pauses:
        _all_levels(bench, kind, bench.sides, bench.repeats)
        return
    for _ in range(bench.repeats):
        for side in bench.sides:
            _all_levels(bench, kind, (side,), 1)


def _all_levels(bench: Bench, kind: Kind, sides: tuple[str, ...], repeats: int) -> None:
    with ExitStack() as stack:
        live: dict[str, Ends] = {}
        for side in sides:
            directory = stack.enter_context(scratch(bench.work))
            live[side] = kind.make(stack.enter_context(rig_of(side, directory)), side, directory)
        for conns, window in LEVELS:
            load = ("--create", "--size", 1024, "--conns", conns, "--inflight", window)
            for side, ends in live.items():
                with alone(side, live):
                    ends.load("send", *load, "--duration", f"{bench.warm_s(side)}s")
            for number in range(repeats):
                for side in sides[:: -1 if number % 2 else 1]:
                    _window(bench, kind, live, side, conns * window, load)


def _window(
    bench: Bench,
    kind: Kind,
    live: Mapping[str, Ends],
    side: str,
    level: int,
    load: tuple[object, ...],
) -> None:
    def attempt() -> tuple[tuple[dict[str, Any], dict[str, float]], Window]:
        ends = live[side]
        with alone(side, live), Window(ends.servers) as window:
            result = ends.load("send", *load, "--duration", f"{bench.seconds}s")
        return (result, window.cpu), window

    figures = bench.figures
    (result, cpu), others = figures.quietly(attempt)
    name = f"{kind.label}, {level} in flight"
    figures.add(
        f"{name}: sends", "msgs/s", side, result["tps"], others,
        more_is_better=True, aim=kind.aims.get(level),
    )  # fmt: skip
    for what, aim in (("p50", None), ("p99", 1.0)):
        figures.add(f"{name}: {what}", "ms", side, result["latencyMs"][what], others, aim=aim)
    for who, seconds in cpu.items():
        cost = seconds / result["responses"] * 1e6
        figures.add(f"{name}: CPU a message, {who}", "us", side, cost, others)
