"""A client's connection, as processors see it."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.model.message import Address
from rmq_ha.base.model.security import PLAIN
from rmq_ha.base.wire.command import RemotingCommand


class FakeChannel:
    """
    A channel that keeps the commands and raw frames that were sent in `sent`, in order.

    :ivar holding: for each request that takes several turns the Deferred that fires at its end.
    """

    is_full = is_relayed = False
    served_at = 0.0
    security = PLAIN

    def __init__(self, port: int = 5000, host: str = "127.0.0.1") -> None:
        self.remote = Address.parse(host, port)
        self.remote_text = f"{host}:{port}"
        self.host = host
        self.sent: list[Any] = []
        self.holding: list[Deferred[None]] = []
        self.is_open = True
        self._on_close: list[Callable[..., Any]] = []

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def write(self, frames: bytes) -> None:
        self.sent.append(frames)

    def hold(self, size: int, held: "Deferred[None]") -> None:
        self.holding.append(held)

    def on_close(self, callback: Callable[..., Any]) -> None:
        self._on_close.append(callback)

    def close(self) -> None:
        self.is_open = False
        for callback in self._on_close:
            callback(self)

    abort = close

    @property
    def close_callbacks(self) -> int:
        return len(self._on_close)
