"""Numbers as Java has them, for declared members, and the number of items that a body may have."""

from typing import Annotated

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""
An `int`. Larger integers of a peer are refused before they become keys: any number of them have
the same hash in Python, and a set of them takes the square of its size.
"""
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A `long`: an integer of 64 bits; a larger one of a peer is refused."""

MOST_ITEMS = 5000
"""Most groups, subscriptions or queues of one request; no setting raises this."""
