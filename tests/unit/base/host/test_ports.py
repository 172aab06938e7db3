"""Ports for servers that are started later."""

import socket
from pathlib import Path

import pytest

from rmq_ha.base.host import ports

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_free_ports_can_be_bound() -> None:
    base = ports.free_ports(3)
    for port in range(base, base + 3):
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


@pytest.mark.skipif(not EPHEMERAL.exists(), reason=f"{EPHEMERAL} is Linux's")
def test_no_outgoing_connection_takes_one_before_its_server_listens() -> None:
    """A demo that started its broker a second later found its port taken, once in CI."""
    first, _ = map(int, EPHEMERAL.read_text().split())
    assert first >= ports._LAST


def test_ports_one_of_which_is_taken_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the search begins."""
    base = ports.free_ports(8)
    monkeypatch.setattr(ports, "_FIRST", base)
    monkeypatch.setattr(ports, "_LAST", base + 9)
    with socket.socket() as server:
        server.bind(("127.0.0.1", base + 1))
        assert not {base, base + 1} & {ports.free_ports(2) for _ in range(50)}


def test_the_error_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda _: False)
    with pytest.raises(OSError, match=r"no 4 neighbouring ports are free on 127\.0\.0\.1"):
        ports.free_ports(4)
