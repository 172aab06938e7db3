"""Timer messages of whole brokers whose master changes, in a DLedger group and by controllers."""

from collections.abc import Callable
from typing import Any

import pytest

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.recall_handle import RecallHandle
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers
from tests.sim_kit.group import BrokerGroup

TOPIC = "TBW102"
KEY = "7F000001000050360001A222FD9CE7"


def has_timers(configuration: Any) -> None:
    configuration.ours.timer_wheel_enable = True


class GroupOfThree:
    """Brokers of a DLedger group."""

    def __init__(self) -> None:
        self.group = BrokerGroup(change=has_timers).start()
        self.run = self.group.run
        self.bodies = self.group.bodies
        self.master = self.group.wait_for_master

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        return self.group.call(self.master(), request)

    def kill(self, node: BrokerNode) -> None:
        self.group.kill(node, power=True)


class PairOfControllers:
    """Two brokers, one of which controllers elect."""

    def __init__(self) -> None:
        self.brokers = ControlledBrokers(change=has_timers)
        self.brokers.in_sync()
        self.run = self.brokers.run
        self.bodies = self.brokers.bodies
        self.master = self.brokers.leader

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        return self.brokers.ask(self.master(), request)

    def kill(self, node: BrokerNode) -> None:
        self.run(1)
        node.crash(power=True)


@pytest.mark.parametrize("make", [GroupOfThree, PairOfControllers])
def test_a_new_master_delivers_and_recalls_what_waits(make: Callable[[], Any]) -> None:
    """Each message comes once, and handles of the old master are good."""
    brokers = make()

    def recall(handle: str) -> int:
        parsed = RecallHandle.parse(handle)
        assert parsed is not None
        ext = {"topic": parsed.topic, "recallHandle": handle}
        code: int = brokers.ask(RemotingCommand(370, ext)).code
        return code

    handles = []
    for number, seconds in enumerate((5, 50, 55, 60)):
        text = f"TIMER_DELAY_SEC\x01{seconds}\x02UNIQ_KEY\x01{KEY}{number:02}"
        answer = brokers.ask(send_request("PG", TOPIC, 0, b"%d" % number, text, 0))
        assert (answer.code, answer.remark) == (0, None)
        handles.append(answer.ext["recallHandle"])
    brokers.run(10)
    assert recall(handles[2]) == 0
    brokers.kill(brokers.master())
    brokers.run(20)
    assert recall(handles[2]) == 0  # again, at the new master
    assert recall(handles[3]) == 0
    assert recall(handles[0]) == 604
    brokers.run(40)
    assert brokers.bodies(brokers.master()) == [b"0", b"1"]
