"""Lists of pairs: what a file and a name server say."""

import pytest

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.wire.route_bodies import BrokerRoute, ClusterInfo
from rmq_ha.ops.offsets.pair_lists import addresses_and_cluster, pairs_in, pairs_of
from rmq_ha.ops.offsets.places import parse_place

ONE, TWO, THREE = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
KNOWN = ClusterInfo(
    {
        "a": BrokerRoute("east", "a", {0: ONE, 2: THREE, 1: TWO}),
        "b": BrokerRoute("west", "b", {0: ONE}),
    },
    {"east": ["a"], "west": ["b", "gone"]},
)


def test_a_line_is_a_pair() -> None:
    text = "/m /s  # by day\n\n# none\nbroker://a:1 broker://b:1\t/c\n"
    assert pairs_in(text) == [["/m", "/s"], ["broker://a:1", "broker://b:1", "/c"]]


@pytest.mark.parametrize(
    ("text", "why"), [("", "no pair in it"), ("# /m /s", "no pair"), ("/m /s\n/m", "line 2")]
)
def test_what_is_no_list_is_wrong_usage(text: str, why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        pairs_in(text)


def test_every_broker_of_a_cluster_is_a_pair_with_all_its_slaves() -> None:
    first, second = pairs_of("ns:1", KNOWN)
    assert first == [f"namesrv://ns:1/a?id={number}" for number in (0, 1, 2)]
    # Who has no slave is not left out: it says that none is registered.
    assert second == ["namesrv://ns:1/b?id=0", "namesrv://ns:1/b"]
    assert pairs_of("ns:1", KNOWN, "west") == [second]
    assert [str(parse_place(place)) for place in first] == first


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(CannotDecide, match="no broker of cluster 'north', only of: east, west"):
        pairs_of("ns:1", KNOWN, "north")


def test_name_servers_and_a_cluster() -> None:
    assert addresses_and_cluster("namesrv://a:1;b:2/east") == ("a:1;b:2", "east")
    assert addresses_and_cluster("namesrv://a:1") == ("a:1", "")
    with pytest.raises(WrongUsage, match="not host:port"):
        addresses_and_cluster("nowhere")
