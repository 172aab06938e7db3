"""What may wait for clients is bounded. Spec: remoting.md, section 7.6."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RemotingTimeout, RequestRejected
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.client_calls import ClientCalls
from tests.kits.channel import FakeChannel


class AskedChannel(FakeChannel):
    """Remembers what it was asked."""

    is_full = False

    def __init__(self, port: int = 5000) -> None:
        super().__init__(port)
        self.waiting: list[Deferred[Any]] = []

    def invoke(self, command: RemotingCommand, timeout_ms: float) -> "Deferred[Any]":
        later: Deferred[Any] = Deferred()
        self.waiting.append(later)
        return later


def invoke(calls: ClientCalls, channel: Any) -> "Deferred[Any]":
    return calls.invoke(channel, RemotingCommand(307), 1000)


def test_one_client_may_hold_up_a_quarter() -> None:
    """An answer or a failure makes room."""
    calls, one, other = ClientCalls(8, "questions"), AskedChannel(1), AskedChannel(2)
    results: list[Any] = []
    for _ in range(2):
        invoke(calls, one).addBoth(results.append)
    with pytest.raises(RequestRejected) as refused:
        invoke(calls, one)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert "2 questions wait for 127.0.0.1:1" in refused.value.remark
    invoke(calls, other).addBoth(results.append)
    assert len(calls) == 3
    one.waiting[0].callback("yes")
    one.waiting[1].errback(RemotingTimeout("late"))
    assert results[0] == "yes"
    assert results[1].check(RemotingTimeout)
    for _ in range(2):  # as much as before
        invoke(calls, one)
    assert len(calls) == 3


def test_all_together_are_bounded() -> None:
    calls, channels = ClientCalls(4, "questions"), [AskedChannel(port) for port in range(5)]
    for channel in channels[:4]:
        invoke(calls, channel)
    with pytest.raises(RequestRejected, match="4 questions wait"):
        invoke(calls, channels[4])


@pytest.mark.parametrize("most", [1, 3, 4, 7])
def test_a_quarter_is_one_call_at_least_and_is_rounded_down(most: int) -> None:
    calls, asked = ClientCalls(most, "questions"), AskedChannel()
    invoke(calls, asked)
    with pytest.raises(RequestRejected, match="1 questions wait for"):
        invoke(calls, asked)
    assert len(asked.waiting) == len(calls) == 1


def test_a_client_that_does_not_read_is_not_sent_more() -> None:
    """Its transport buffers already."""
    channel = AskedChannel()
    channel.is_full = True
    with pytest.raises(RequestRejected, match="does not read"):
        invoke(ClientCalls(4, "questions"), channel)
    assert channel.waiting == []
