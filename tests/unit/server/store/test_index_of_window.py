"""A new index knows what was stored in the window for duplicates, by whole files of the log."""

import pytest

from tests.unit.server.store.test_boot import places_of, put

HOUR = 3_600_000
MESSAGES = 1200


@pytest.fixture
def machine(make_simulated):
    return make_simulated()


@pytest.fixture
def starts(machine, message):
    """Of the log's files; each has messages of the hour after the one in which it begins."""
    store = machine.open(message_index_enable=False)
    for first in range(0, MESSAGES, 300):
        put(machine, store, message, 300, first)
        machine.now_ms += HOUR
    starts = [start for start in store.log.row.starts if start < store.log.max_offset]
    machine.stop(store)
    assert len(starts) == 3
    return starts


def first_known(store):
    """The first place that the index knows; None: nothing."""
    known = [places_of(store, "ABC"[n % 3], f"U{n}") for n in range(MESSAGES)]
    places = [place for found in known for place in found]
    assert len(places) in {0, sum(1 for found in known if found)}
    return min(places, default=None)


@pytest.mark.parametrize(("hours", "file"), [(0.5, 2), (1, 1), (2.5, 1), (3.5, 0), (9, 0)])
def test_as_far_back_as_that(machine, starts, hours, file):
    store = machine.open(duplicate_window_millis=int(hours * HOUR))
    assert first_known(store) == starts[file]


def test_without_a_window_only_what_is_new(machine, starts):
    assert first_known(machine.open()) is None


def test_no_farther_back_than_the_log(machine, starts):
    machine.disk.remove(f"{machine.root}/commitlog/{0:020d}")
    store = machine.open(duplicate_window_millis=9 * HOUR)
    assert first_known(store) == store.log.min_offset == starts[1]


def test_what_is_known_is_not_looked_for_again(machine, message, starts):
    store = machine.open()
    put(machine, store, message, 1, MESSAGES)
    machine.stop(store)
    assert first_known(machine.open(duplicate_window_millis=9 * HOUR)) is None
