"""The limits and the counters of a gRPC port.

Spec: grpc.md, section 14.1.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rmq_ha.server.grpc.http2.budget import BUDGETS

FULL_BYTES = 1 << 22
"""A client gets no more messages by pops while more bytes than these wait until it reads."""
FREE_BYTES = FULL_BYTES // 4
QUEUED_BYTES = "queued bytes"
QUEUED_IN_ALL = "queued bytes in all"
STALLED = "stalled"
LIMITS = (*BUDGETS, QUEUED_BYTES, QUEUED_IN_ALL, STALLED)
"""The names of the limits that close a connection, for metrics."""


class CallLimits(NamedTuple):
    """
    The limits of each connection.

    :ivar message: bytes of the largest message that a client may send.
    :ivar queued: bytes of answers that may wait until the client reads.
    """

    message: int
    queued: int


@dataclass
class GrpcCounters:
    """
    The counters of a gRPC port.

    :ivar accepted: connections that were accepted.
    :ivar ended: calls that ended, by their `grpc-status`; cancelled ones have status 1.
    :ivar closed: connections that were closed because of a limit, by the limit's name.
    :ivar violations: connections that were closed because the client broke a rule of the protocol.
    """

    accepted: int = 0
    ended: Counter[int] = field(default_factory=Counter)
    closed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LIMITS, 0))
    violations: int = 0


class GrpcPort(Protocol):
    """The parts of a server that `protocol.GrpcProtocol`, a connection, calls."""

    @property
    def counters(self) -> GrpcCounters:
        """The counters of the server."""

    def connected(self, protocol: Any) -> None:
        """Count a new connection, and watch its answers that wait."""

    def disconnected(self, protocol: Any) -> None:
        """Note that a connection is gone."""

    def note_queued(self, protocol: Any, size: int) -> None:
        """Note how many bytes of answers wait on a connection."""
