"""Who has to leave the replication port, and what is remembered of whom. Spec: ha.md, 14.2."""

from types import SimpleNamespace
from typing import Any

from rmq_ha.server.replication.classic.refused_slaves import (
    MOST_HOSTS,
    RefusedSlaves,
    SentTo,
    whom_to_turn_away,
)


def connection(host: str, requested: int | None = 0) -> Any:
    return SimpleNamespace(peer_host=host, feed=SimpleNamespace(requested=requested))


def test_nobody_while_there_is_room() -> None:
    assert whom_to_turn_away([connection("a")] * 3, 3) is None


def test_the_newest_of_the_machine_with_the_most() -> None:
    crowd = [connection("b") for _ in range(3)]
    slave, new = connection("a"), connection("c")
    assert whom_to_turn_away([crowd[0], slave, *crowd[1:], new], 4) is crowd[2]


def test_one_of_them_that_never_reported_before_one_that_did() -> None:
    silent = connection("b", None)
    crowd = [connection("b"), silent, connection("b"), connection("b")]
    assert whom_to_turn_away([*crowd, connection("a", None)], 4) is silent


def test_where_all_have_as_many_who_comes_waits_unless_somebody_is_silent() -> None:
    new = connection("d", None)
    assert whom_to_turn_away([connection("a"), connection("b"), new], 2) is new
    silent = connection("b", None)
    assert whom_to_turn_away([connection("a"), silent, new], 2) is silent


def test_of_a_slave_that_was_ahead_again_and_again_the_least_is_believed() -> None:
    """Our log was cut, and grew again: what it may have of ours ends where it was shortest."""
    ahead = RefusedSlaves()
    assert ahead.ceiling("a") is None
    for end in (500, 300, 400):
        ahead.remember("a", end)
    assert ahead.ceiling("a") == 300
    assert ahead.ceiling("b") is None
    ahead.forget("a")
    ahead.forget("a")
    assert ahead.ceiling("a") is None
    assert ahead.hosts == []


def test_the_oldest_of_too_many_machines_is_forgotten() -> None:
    ahead = RefusedSlaves()
    for number in range(MOST_HOSTS):
        ahead.remember(str(number), number)
    ahead.remember("1", 7)  # known already: nobody has to go
    assert ahead.hosts == [str(number) for number in range(MOST_HOSTS)]
    ahead.remember("new", 0)
    assert ahead.ceiling("0") is None
    assert ahead.ceiling("1") == 1
    assert ahead.ceiling("new") == 0
    assert len(ahead.hosts) == MOST_HOSTS


def test_what_a_machine_was_sent_is_the_most_of_all_its_connections() -> None:
    sent = SentTo()
    assert not sent.covers("a", 0)
    for end in (300, 500, 400):
        sent.note("a", end)
    assert sent.covers("a", 500)
    assert not sent.covers("a", 501)
    assert not sent.covers("b", 0)


def test_of_too_many_machines_who_was_sent_something_the_last_ones_stay() -> None:
    sent = SentTo()
    for number in range(MOST_HOSTS):
        sent.note(str(number), 10)
    sent.note("0", 10)  # it is the newest now
    assert all(sent.covers(str(number), 10) for number in range(MOST_HOSTS))
    sent.note("new", 10)
    assert not sent.covers("1", 0)
    assert sent.covers("0", 10)
    assert sent.covers("2", 10)
