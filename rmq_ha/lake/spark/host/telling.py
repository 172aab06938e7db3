"""Lets errors of rmq-ha in Spark's workers arrive as their sentence, without a traceback."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any

from rmq_ha.base.errors import CannotDecide, RmqHaError, WrongUsage


class InSentences:
    """
    Base of classes that workers of pyspark call.

    An error that a public method raises on purpose is reported without a traceback, because its
    text names the cause and the next step.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _hide_traces_of(method))


def _hide_traces_of(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method, or generator, so that errors raised on purpose have no traceback."""

    def call(*given: Any, **named: Any) -> Any:
        with _without_trace():
            return method(*given, **named)

    def steps(*given: Any, **named: Any) -> Any:
        with _without_trace():
            yield from method(*given, **named)

    return wraps(method)(steps if isgeneratorfunction(method) else call)


@contextmanager
def _without_trace() -> Iterator[None]:
    """Set the variable that a worker of pyspark reads when it reports an error and ends."""
    try:
        yield
    except (RmqHaError, WrongUsage, CannotDecide):
        if any(name.startswith("PYTHON_WORKER_FACTORY") for name in os.environ):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
