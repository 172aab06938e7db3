"""Who has to leave the replication port. Spec: ha.md, section 14.2."""

from types import SimpleNamespace
from typing import Any

from rmq_ha.ha.refused import whom_to_turn_away


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
