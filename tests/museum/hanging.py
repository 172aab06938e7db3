"""
Tests of a room: ours at every run, Java where it is quick.

RMQ_HA_MUSEUM_JAVA=1 looks at all of Java's.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.interop.rig import PEER, missing
from tests.museum.exhibit import NotHere
from tests.museum.gallery import ROOMS, SIDES, measured

ALL_OF_JAVA = bool(os.environ.get("RMQ_HA_MUSEUM_JAVA"))
WHAT_TO_DO = "run `tox -e museum` and look at what changed in docs/museum.md"


def hang(name: str) -> Callable[..., None]:
    """The test of a room: each exhibit is what the table says."""
    cases = [
        pytest.param(exhibit, java, id=f"{exhibit.name}-{SIDES[java]}")
        for exhibit in ROOMS[name].exhibits
        for java in SIDES
        if not java or exhibit.quick_java or (ALL_OF_JAVA and not exhibit.not_java)
    ]

    @pytest.mark.interop
    @pytest.mark.parametrize(("exhibit", "java"), cases)
    def test_exhibit(exhibit, java, facts):
        reason = missing() if java else None
        if reason or not PEER.exists():
            pytest.skip(reason or f"no RocketMQ peer rig at {PEER}")
        try:
            fact = facts(exhibit, java)
        except NotHere as error:
            pytest.skip(str(error))
        told = measured()[exhibit.name][SIDES[java]]
        assert fact.has == told.has, f"{fact}, the table says {told}: {WHAT_TO_DO}"

    return test_exhibit
