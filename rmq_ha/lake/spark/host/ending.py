"""Ends a job on request: any signal that asks for it becomes one interrupt without a traceback."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ASKING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt as Ctrl-C would: Spark's handler, if it has one, cancels its jobs first."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """
    Turn SIGTERM and SIGHUP into a `KeyboardInterrupt` while the block runs.

    A signal that is ignored already stays ignored, as `nohup` wants it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ASKING}
    for number in _ASKING:
        if number != signal.SIGINT and before[number] == signal.SIG_DFL:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_more() -> None:
    """Ignore further interrupts, so that they do not end the clean-up."""
    if threading.current_thread() is threading.main_thread():
        for number in _ASKING:
            signal.signal(number, signal.SIG_IGN)


def quiet_libraries() -> None:
    """Drop the log lines of libraries: an error that matters is raised as an exception as well."""
    for name in ("", "py4j"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
