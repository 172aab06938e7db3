"""`docs/museum.md` names what is shown, and says what was measured."""

from __future__ import annotations

import pytest

from tests.museum.gallery import ROOMS, TABLE, exhibits, measured, render
from tests.museum.hanging import WHAT_TO_DO


def test_the_table_is_generated() -> None:
    """Exactly the exhibits that exist, and what the last run of the command saw."""
    found = measured()
    assert list(found) == [exhibit.name for exhibit in exhibits()], WHAT_TO_DO
    assert TABLE.read_text() == render(found), WHAT_TO_DO


def test_everything_is_measured() -> None:
    """On both sides, but where Java cannot be driven into it."""
    found = measured()
    for exhibit in exhibits():
        sides = {"ours"} if exhibit.not_java else {"ours", "java"}
        assert set(found[exhibit.name]) == sides, exhibit.name


def test_names_are_unique() -> None:
    names = [exhibit.name for exhibit in exhibits()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("room", ROOMS)
def test_ours_has_none_but_on_purpose(room: str) -> None:
    """What ours has it keeps for a reason that `docs/differences.md` tells of."""
    found = measured()
    ours = {exhibit.name for exhibit in ROOMS[room].exhibits if found[exhibit.name]["ours"].has}
    kept = {exhibit.name for exhibit in ROOMS[room].exhibits if exhibit.kept}
    assert ours - kept == set()
    assert kept <= ours, "these are kept no longer"
