"""Doing something now and then while a block runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """
    Call it again and again, in a thread of its own, until the block ends.

    What it raises ends the calls and nothing else.
    """
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(seconds):
            call()

    def quietly() -> None:
        try:
            tick()
        except Exception:
            return

    thread = threading.Thread(target=quietly, name="rmq-ha-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(seconds + 5)
