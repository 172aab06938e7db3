"""
Java's kinds of numbers, for declared members of bodies, and the number of items that a body may
have.
"""

from typing import Annotated

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""
Java's `int`. Larger integers of a peer are refused before they become keys: many large integers
have the same hash in Python, and making a set of them takes quadratic time.
"""
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's `long`: an integer of 64 bits; a larger one of a peer is refused."""

MOST_ITEMS = 5000
"""Most groups, subscriptions or queues of one request; no setting raises this."""
INT64_DIGITS = 19
"""Digits of the largest `long`. A number with fewer digits fits in any case."""
