"""Threads: many calls at once that mostly wait, or one call repeated while a block runs."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(work: Callable[[T], R], items: Iterable[T], most: int) -> list[R]:
    """Call `work` for each item, `most` at a time, and return the results in the items' order."""
    with ThreadPoolExecutor(most) as pool:
        return list(pool.map(work, items))


@contextmanager
def call_every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """
    Repeat a call, in a thread of its own, until the block ends.

    An exception in the call ends the repetition and nothing else.
    """
    ended = threading.Event()

    def tick() -> None:
        with suppress(Exception):
            while not ended.wait(seconds):
                call()

    thread = threading.Thread(target=tick, name="rmq-ha-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(seconds + 5)
