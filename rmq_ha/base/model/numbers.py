"""Numbers as Java has them, for members that are declared."""

from typing import Annotated

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""
An `int`. Larger integers of a peer are refused before they become keys: any number of them have
the same hash in Python, and a set of them takes the square of its size.
"""
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A `long`."""
