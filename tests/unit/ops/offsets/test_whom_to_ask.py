"""Which broker of a name is asked for a master's and for a slave's tables; which samples count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.ops.offsets.model import Snapshot
from rmq_ha.ops.offsets.opening import _address, look_at_pair, opened, pairs_of_cluster
from rmq_ha.ops.offsets.pairing import pair
from rmq_ha.ops.offsets.places import BrokerPlace, NamesrvPlace, SnapshotPlace
from rmq_ha.ops.offsets.sampling import Patience


def knowing(*ids: int) -> Any:
    """A client of a name server that knows these brokers of `b`."""
    route = SimpleNamespace(addresses={number: f"h{number}:1" for number in ids})
    return SimpleNamespace(cluster=lambda: SimpleNamespace(brokers={"b": route, "c": route}))


@pytest.mark.parametrize(
    ("ids", "wanted", "is_slave", "address"),
    [
        ((0, 1, 2), None, False, "h0:1"),
        ((0, 1, 2), None, True, "h1:1"),
        ((0, 7), None, True, "h7:1"),
        ((0, 1, 2), 2, False, "h2:1"),
        ((1,), None, False, "id 0 is not registered, only id 1"),
        ((0,), None, True, "a slave is not registered, only id 0"),
    ],
)
def test_a_master_is_id_0_and_a_slave_the_first_other_one(
    ids: tuple[int, ...], wanted: int | None, is_slave: bool, address: str
) -> None:
    place = NamesrvPlace("ns:1", "b", wanted)
    try:
        found = _address(knowing(*ids), place, is_slave=is_slave)
    except CannotDecide as error:
        found = str(error)
    assert address in found


def test_who_is_not_known_is_said_with_those_who_are() -> None:
    with pytest.raises(CannotDecide, match="knows no broker 'x', only: b, c"):
        _address(knowing(0), NamesrvPlace("ns:1", "x"), is_slave=False)
    assert _address(knowing(), BrokerPlace("h:9"), is_slave=True) == "h:9"


def test_a_cluster_that_does_not_answer_is_named() -> None:
    """Nothing listens at port 1."""
    with pytest.raises(CannotDecide, match=r"namesrv://127.0.0.1:1/c: .*"):
        pairs_of_cluster(ClientConfig(), "namesrv://127.0.0.1:1/c")
    with pytest.raises(WrongUsage):
        pairs_of_cluster(ClientConfig(), "broker://127.0.0.1:1")


def test_a_history_is_no_replica() -> None:
    with (
        opened(ClientConfig(), lambda: 0) as source,
        pytest.raises(WrongUsage, match="snapshot:/x is no replica"),
    ):
        source(SnapshotPlace("/x"), is_slave=False)


def at(moment: int) -> Snapshot:
    return Snapshot("p", None, None, None, False, moment, moment + 1, frozenset(), ())


@pytest.mark.parametrize(
    ("skew_ms", "kept", "is_proven"),
    [
        (0, [30, 40], True),  # ended before the slave's began
        (10, [20, 30, 40], True),
        (30, [0, 10, 20, 30, 40], False),
        (1, [30, 40], True),
    ],
)
def test_a_window_begins_with_the_newest_sample_that_is_old_enough(
    skew_ms: int, kept: list[int], is_proven: bool
) -> None:
    masters = [at(moment) for moment in (0, 10, 20, 30, 40)]
    slave = at(32)
    if skew_ms == 30:
        slave = at(30)
    found = pair(masters, slave, skew_ms)
    assert ([item.began for item in found.masters], found.is_proven) == (kept, is_proven)


@pytest.mark.parametrize(("skew_ms", "is_proven"), [(0, True), (1, False)])
def test_two_that_are_at_rest_need_no_older_sample(skew_ms: int, is_proven: bool) -> None:
    found = pair([at(50)], at(40), skew_ms)
    assert (len(found.masters), found.is_proven) == (1, is_proven)


@pytest.mark.parametrize(
    ("places", "error"),
    [
        ([SnapshotPlace("/nothing/a"), SnapshotPlace("/nothing/b")], CannotDecide),
        ([SnapshotPlace("/nothing/a")] * 2, CannotDecide),
        ([SnapshotPlace("/nothing/a")] * 3, WrongUsage),
        ([SnapshotPlace("/nothing/a"), BrokerPlace("h:1")], WrongUsage),
    ],
)
def test_two_snapshots_are_compared_and_nothing_else_with_one(places: Any, error: Any) -> None:
    with pytest.raises(error):
        look_at_pair(ClientConfig(), places, Patience())
