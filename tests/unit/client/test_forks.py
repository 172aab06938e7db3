"""Connections in a process that is a fork of the one that made them."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection import forks
from rmq_ha.client.connection.forks import OwnConnections
from rmq_ha.client.rules.errors import ForkedClient


class Below:
    """In the place of a `RemotingClient`: what was asked of it is written down."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*_: Any) -> Any:
            self.asked.append(name)
            return name if name == "open_channel" else succeed(name)

        return ask


def test_a_child_leaves_its_parents_connections_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both wrote to one of them would be of no use to either."""
    below: Any = Below()
    own = OwnConnections(below)
    command = RemotingCommand(RequestCode.HEART_BEAT)

    def use() -> list[Any]:
        calls: list[Deferred[Any]] = [own.invoke("a:1", command, 9), own.oneway("a:1", command)]
        own.close("a:1")
        outcomes: list[Any] = [own.open_channel("a:1")]
        for later in (*calls, own.stop()):
            later.addBoth(lambda found: outcomes.append(getattr(found, "type", found)))
        return outcomes

    assert use() == ["open_channel", "invoke", "oneway", "stop"]
    assert below.asked == ["invoke", "oneway", "close", "open_channel", "stop"]
    below.asked.clear()
    monkeypatch.setattr(forks, "process_id", lambda: -1)
    assert use() == [None, ForkedClient, ForkedClient, None]
    assert below.asked == []
