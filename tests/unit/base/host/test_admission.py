"""Who may connect: nobody takes all places, and none is taken from the disk."""

import resource
from types import SimpleNamespace

import pytest

from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.host.admission import (
    _FEWEST_FOR_FILES,
    _MOST_FOR_FILES,
    BY_ADDRESS,
    IN_ALL,
    MOST_KNOWN,
    Admission,
)


def admission(descriptors=1024, in_all=0, by_address=0, known=()):
    limits = SimpleNamespace(max_connections=in_all, max_connections_per_ip=by_address)
    return Admission(limits, descriptors, known)


def come(gate, host, count=1):
    """Try so often; how many were let in."""
    let_in = 0
    for _ in range(count):
        if gate.why_not(host) is None:
            gate.connection_made(host)
            let_in += 1
    return let_in


@pytest.mark.parametrize(
    ("descriptors", "in_all", "places"),
    [
        (1024, 0, 768),
        (256, 0, 160),
        (160, 0, 80),
        (65, 0, 33),
        (1, 0, 1),
        (1 << 20, 0, (1 << 20) - 16_384),
        (1024, 100, 100),
        (1024, 5000, 768),
        (resource.RLIM_INFINITY, 0, None),
        (resource.RLIM_INFINITY, 70, 70),
    ],
)
def test_places(descriptors, in_all, places):
    """A part of the descriptors is never anybody's."""
    assert admission(descriptors, in_all).places == places


def test_one_address_takes_half_of_them():
    gate = admission(1024)
    assert come(gate, "10.0.0.1", 2000) == 384
    assert gate.refused == {IN_ALL: 0, BY_ADDRESS: 1616}
    assert come(gate, "10.0.0.2", 5) == 5


def test_many_addresses_leave_the_last_places_to_this_machine_and_known_brokers():
    gate = admission(1024, known=["10.9.9.8", "broker.example", "10.9.9.9"])
    assert sum(come(gate, f"10.0.{n // 200}.{n % 200}") for n in range(1000)) == 768 - 64
    assert gate.refused[IN_ALL] == 1000 - 704
    assert come(gate, "127.0.0.1", 10) == come(gate, "10.9.9.9", 10) == 10
    gate.know("10.0.0.250")
    assert come(gate, "10.0.0.250", 60) == 44
    assert gate.taken == 768
    assert come(gate, "127.0.0.1") == 0


def test_of_few_places_an_eighth_is_kept():
    gate = admission(160, by_address=1)
    assert sum(come(gate, f"10.0.0.{n}") for n in range(200)) == 80 - 10


def test_who_leaves_makes_room():
    gate = admission(1024, by_address=2)
    assert come(gate, "10.0.0.1", 3) == 2
    gate.connection_lost("10.0.0.1")
    assert come(gate, "10.0.0.1", 3) == 1
    gate.connection_lost("10.0.0.1")
    gate.connection_lost("10.0.0.1")
    assert gate.taken == 0
    assert gate._by_address == {}


def test_limits_change_while_it_runs():
    limits = SimpleNamespace(max_connections=0, max_connections_per_ip=1)
    gate = Admission(limits, 1024)
    assert come(gate, "10.0.0.1", 3) == 1
    limits.max_connections_per_ip = 2
    assert come(gate, "10.0.0.1", 3) == 1


def test_without_any_limit():
    gate = admission(resource.RLIM_INFINITY)
    assert come(gate, "10.0.0.1", 5000) == 5000


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::2:3:4:5", True),
        ("2001:db8:0:0:1::", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("2001::3:4:5:6:7:8", "2001:0:3:4::", True),
        ("1:2::4:5:6:7:8", "1:2:0:4::", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "10.0.0.2", False),
        ("::1", "::ffff:10.0.0.1", False),
        ("::", "::1", True),
    ],
)
def test_what_counts_as_one_address(one, other, is_same):
    gate = admission(1024, by_address=1)
    assert come(gate, one) == 1
    assert come(gate, other) == (not is_same)


def test_the_known_are_bounded():
    gate = admission()
    for number in range(9999):
        gate.know(f"10.0.{number // 250}.{number % 250}")
    assert len(gate._known) == MOST_KNOWN


def test_the_meaning_of_the_key_names_the_reserve_for_files() -> None:
    """It named other numbers once, and operators counted with them."""
    meaning = keys_of(NettyServerConfig)["maxConnections"].meaning
    assert f"{_FEWEST_FOR_FILES} to {_MOST_FOR_FILES}, is kept for files" in meaning
