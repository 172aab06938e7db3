"""Ports for real processes; each test file has a range of its own, as files run side by side."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack


def free_ports(count: int, bases: Iterable[int]) -> list[int]:
    """The first bases of four neighbouring ports each that are all free on loopback."""
    found: list[int] = []
    for base in bases:
        with ExitStack() as stack:
            try:
                for port in range(base, base + 4):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(base)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")
