"""Crashes in every step of the transaction check: nothing is lost, and nothing is done twice."""

from collections import Counter
from typing import Any

import pytest
from transaction_kit import COMMIT, ROLLBACK, UNKNOWN, TransactionBroker, started
from twisted.internet.defer import Deferred

from rmq_ha.model.message import Message

KEYS = [f"k{number}" for number in range(8)]


def decide(key: str) -> int:
    """The producer knows a fate for each; one it never knows."""
    number = int(key[1:])
    return UNKNOWN if number == 0 else COMMIT if number % 2 else ROLLBACK


def assert_each_has_one_end(broker: TransactionBroker, keys: list[str]) -> None:
    """Committed: visible once. Never known: discarded once. Rolled back: neither."""
    fates = {key: decide(key) for key in keys}
    assert Counter(broker.visible()) == Counter(k for k, fate in fates.items() if fate == COMMIT)
    assert Counter(broker.discarded()) == Counter(k for k, fate in fates.items() if fate == UNKNOWN)
    assert broker.progress() == broker.ends()


def crash_at_put(broker: TransactionBroker, wanted: int, *, stored: bool) -> list[int]:
    """
    The process is killed at the nth put of the checks, before or after it is stored.

    :returns: how many messages each put had so far.
    """
    parts = broker.controller.transaction_checks._parts
    really = parts.put
    puts: list[int] = []

    def put(messages: list[Message]) -> Any:
        puts.append(len(messages))
        if len(puts) < wanted:
            return really(messages)
        if stored:
            really(messages)
        broker.crash()
        return Deferred()

    object.__setattr__(parts, "put", put)
    return puts


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
def test_killed_at_a_put_of_the_checks(number: int, stored: bool) -> None:
    """
    The first questions, the next ones, the discard: the next life goes on from there, although the
    progress was not written.
    """
    # A question that was lost with the process counts, too.
    broker = started(seed=number, transaction_check_max=3 if number == 4 else 6)
    broker.decide = lambda key: decide(key) if len(broker.asked) > 12 else None
    for key in KEYS:
        broker.half(key)
    puts = crash_at_put(broker, number, stored=stored)
    broker.world.clock.run_while(lambda: broker.host.is_running, 30)
    assert len(puts) == number
    assert not broker.host.is_running
    broker.decide = decide
    broker.restart()
    broker.rounds(12)
    assert set(dict(broker.asked)) == set(KEYS)
    discarded = set(broker.discarded())
    assert not discarded & set(broker.visible())
    if number < 4:
        assert_each_has_one_end(broker, KEYS)
    else:  # by then the producer had been silent for too long
        assert Counter(broker.discarded()) == Counter(discarded)


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_time(seed: int) -> None:
    """Sends, ends, answers and rounds, with a crash every few seconds, some of a whole machine."""
    broker = started(seed)
    broker.decide = decide
    random = broker.world.random("crashes")
    keys: list[str] = []
    for life in range(5):
        for _ in range(6):
            key = f"k{len(keys)}"
            if len(keys) % 7 == 0:
                key = f"k{len(keys) * 2 + 1}"
            if key in keys or key == "k0":
                key = f"k{1000 + len(keys)}"
            keys.append(key)
            place = broker.half(key)
            if random.random() < 0.5:
                broker.end(place, decide(key))
            broker.run(random.random())
        broker.run(random.random() * 6)
        if life % 2:
            broker.stop()
        else:
            broker.crash()
        broker.restart()
    broker.rounds(15)
    assert_each_has_one_end(broker, keys)
