"""`docs/mistakes.md` says what is said; the quick mistakes are made at every run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.mistakes.book import ROOT, TABLE, make, mistakes, recorded, render
from tests.mistakes.forks import Forks
from tests.mistakes.mistake import Mistake

EVERY = list(mistakes())
ALL = bool(os.environ.get("RMQ_HA_MISTAKES"))
SLOW = pytest.mark.skipif(not ALL, reason="some minutes: set RMQ_HA_MISTAKES=1")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(item, id=item.name, marks=() if item.is_quick else (SLOW,)) for item in EVERY],
)
def test_it_is_said(mistake: Mistake, forks: Forks) -> None:
    """As well as the document says, or better."""
    answer = make(mistake, forks)
    assert answer.grade <= recorded()[mistake.name].grade, answer.said


def test_the_table_is_generated() -> None:
    assert list(recorded()) == [item.name for item in EVERY], "run python -m tests.mistakes"
    assert TABLE.read_text() == render(recorded()), "run python -m tests.mistakes"


def test_there_are_no_c_and_at_most_three_b() -> None:
    grades = [answer.grade for answer in recorded().values()]
    assert grades.count("C") == 0
    assert grades.count("B") <= 3


def test_there_are_the_trials_forty_and_twenty_new_ones() -> None:
    assert sum(bool(item.then) for item in EVERY) >= 40
    assert sum(not item.then for item in EVERY) >= 20
    assert len({item.name for item in EVERY}) == len(EVERY)


def test_whoever_is_too_slow_names_a_test_that_there_is() -> None:
    for item in EVERY:
        if item.held:
            path, _, name = item.held.partition("::")
            assert (ROOT / path).exists(), item.held
            assert f"def {name}(" in (ROOT / path).read_text(), item.held
