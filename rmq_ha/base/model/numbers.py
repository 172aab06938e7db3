"""Numbers as Java has them."""

from typing import Any

_INT_END = 1 << 31


def java_int(value: Any) -> int:
    """
    A number, or a string of one, as an `int` of Java.

    Besides what it says about the peer, a larger one is no harmless key: any number of integers
    have the same hash in Python, and a set of them takes the square of its size.

    :raises ValueError: it does not fit 32 bits, or is no number.
    :raises TypeError: it is neither.
    """
    number = int(value)
    if -_INT_END <= number < _INT_END:
        return number
    raise ValueError(f"{number} is not a 32-bit integer")


def java_ints(values: Any) -> set[int]:
    """
    As `java_int`, of each; in one go where all are numbers.

    :raises ValueError: one does not fit 32 bits, or is no number.
    :raises TypeError: one is neither.
    """
    if set(map(type, values)) == {int} and min(values) >= -_INT_END and max(values) < _INT_END:
        return set(values)
    return set(map(java_int, values))
