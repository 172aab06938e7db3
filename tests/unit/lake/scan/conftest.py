"""Stores that several files of tests read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.lake.spark.golden_stores import java as java

if TYPE_CHECKING:
    from tests.sim_kit.store_faults.image import StoreImage


@pytest.fixture(scope="module")
def image(java: Path) -> StoreImage:
    """What Java's store has, as its broker reads it."""
    # Not above: who has no pyarrow can still collect this room.
    from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, image_of

    return image_of(java, LEVELS_OF_JAVA)
