"""Doing several things at once that mostly wait."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def together(work: Callable[[T], R], items: Iterable[T], most: int) -> list[R]:
    """What it gives for each, in their order; `most` at a time."""
    with ThreadPoolExecutor(most) as pool:
        return list(pool.map(work, items))
