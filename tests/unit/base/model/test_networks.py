"""Lists of addresses and networks."""

import pytest

from rmq_ha.base.model.networks import Networks, canonical, is_loopback


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.7", ["10.0.0.7", "::ffff:10.0.0.7"], ["10.0.0.8", "10.0.0.70", "n0", ""]),
        ("10.1.0.0/16, fd00::/8", ["10.1.255.1", "fd00::1", "[fd12::9]"], ["10.2.0.1", "fe80::1"]),
        ("10.0.0.7/24", ["10.0.0.1"], ["10.0.1.1"]),
        ("localhost", ["127.0.0.1", "127.0.1.1"], ["10.0.0.1"]),
        ("*", ["10.0.0.7", "::1", "what is no address"], []),
        ("", [], ["10.0.0.7", "127.0.0.1"]),
    ],
)
def test_who_belongs_to_a_list(text: str, inside: list[str], outside: list[str]) -> None:
    networks = Networks(text)
    for _ in range(2):  # remembered answers are the same
        assert [host for host in inside if host not in networks] == []
        assert [host for host in outside if host in networks] == []
    assert bool(networks) == bool(text)


@pytest.mark.parametrize("text", ["broker-a", "10.0.0.*", "10.0.0.0/33", "10.0.0.1:10911", "1,x"])
def test_what_is_no_network_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="is neither an address nor a network"):
        Networks(text)


def test_names_are_compared_where_they_may_be() -> None:
    networks = Networks("broker-a.example, 10.0.0.7", with_names=True)
    assert "Broker-A.example" in networks
    assert "10.0.0.7" in networks
    assert "broker-b.example" not in networks
    for text in ("10.0.0.*", "10.0.0.300", "a:1", ""):
        assert text not in networks
    with pytest.raises(ValueError, match="neither an address"):
        Networks("broker-a:10911", with_names=True)


def test_strangers_do_not_fill_the_memory() -> None:
    networks = Networks("10.0.0.0/8")
    for number in range(10_000):
        assert f"11.0.{number // 256}.{number % 256}" not in networks
    assert len(networks._known) <= 4096


def test_addresses_have_one_spelling() -> None:
    assert canonical("::ffff:10.0.0.1") == canonical("10.0.0.1") == "10.0.0.1"
    assert canonical("FD00:0::1") == "fd00::1"
    assert canonical("n0") is None
    assert [is_loopback(host) for host in ("127.0.1.1", "::1", "::ffff:127.0.0.1")] == [True] * 3
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("n0")
