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
