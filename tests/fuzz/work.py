"""How much a reader does, measured so that it is the same on every machine."""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

#: Calls for an input that is read at all, each value of it taken up some ten times.
MOST_WORK = 1_000_000


class WorkTooLong(Exception):
    """A reader called more functions than it may."""


def profiled(count: Callable[[FrameType, str, Any], None], run: Callable[[], Any]) -> Any:
    """Run it with `sys.setprofile`."""
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return run()
    finally:
        sys.setprofile(before)


def work_of(run: Callable[[], Any], most: int = MOST_WORK) -> tuple[int, Any]:
    """
    How many functions are called, ours and C's, and what comes of it.

    :raises WorkTooLong: more than `most`.
    """
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > most:
            raise WorkTooLong

    found = profiled(count, run)
    return calls, found


def codes_of(run: Callable[[], Any]) -> set[CodeType]:
    """Which functions of Python's are called."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    profiled(note, run)
    return codes
