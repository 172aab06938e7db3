"""Counts calls of functions, Python's and C's: a measure of work that no machine changes."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def count_calls(run: Callable[[], T]) -> tuple[T, int]:
    """Return the result of a function, and how many calls it made, its own call among them."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    trace = sys.gettrace()  # tests/mutants sets a tracer, whose calls are no work of `run`
    sys.settrace(None)
    sys.setprofile(count)
    try:
        result = run()
    finally:
        sys.setprofile(None)
        sys.settrace(trace)
    return result, calls
