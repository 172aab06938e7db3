"""Threads: several things at once that mostly wait, and one now and then while a block runs."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(work: Callable[[T], R], items: Iterable[T], most: int) -> list[R]:
    """What it gives for each, in their order; `most` at a time."""
    with ThreadPoolExecutor(most) as pool:
        return list(pool.map(work, items))


@contextmanager
def call_every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """
    Call it again and again, in a thread of its own, until the block ends.

    What it raises ends the calls and nothing else.
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
