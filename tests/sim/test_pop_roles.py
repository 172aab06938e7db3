"""Pops of whole brokers whose master changes, in a DLedger group and by controllers.

Spec: pop.md, sections 13.4 and 14.
"""

from collections.abc import Callable
from typing import Any

import pytest

from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import RequestMode
from rmq_ha.base.wire.pop_headers import AckHeader, PopHeader
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers
from tests.sim_kit.group import BrokerGroup
from tests.unit.server.broker.pop_kit import Popped, read_popped

TOPIC, GROUP = "TBW102", "G"


def has_pops(configuration: Any) -> None:
    configuration.ours.pop_enable = True


class GroupOfThree:
    """Brokers of a DLedger group."""

    def __init__(self) -> None:
        self.group = BrokerGroup(change=has_pops).start()
        self.run = self.group.run
        self.master = self.group.wait_for_master

    def ask(self, request: RemotingCommand, node: BrokerNode | None = None) -> RemotingCommand:
        return self.group.call(node or self.master(), request)

    def kill(self, node: BrokerNode) -> None:
        self.group.kill(node, power=True)

    def others(self) -> list[BrokerNode]:
        return self.group.slaves()


class PairOfControllers:
    """Two brokers, one of which controllers elect."""

    def __init__(self) -> None:
        self.brokers = ControlledBrokers(change=has_pops)
        self.brokers.in_sync()
        self.run = self.brokers.run
        self.master = self.brokers.leader

    def ask(self, request: RemotingCommand, node: BrokerNode | None = None) -> RemotingCommand:
        return self.brokers.ask(node or self.master(), request)

    def kill(self, node: BrokerNode) -> None:
        self.run(1)
        node.crash(power=True)

    def others(self) -> list[BrokerNode]:
        return [node for node in self.brokers.nodes if node is not self.master()]


def pop_request(**fields: Any) -> RemotingCommand:
    given = {"queue_id": 0, "max_msg_nums": 32, "invisible_time": 5000, **fields}
    return RemotingCommand(
        RequestCode.POP_MESSAGE, PopHeader(consumer_group=GROUP, topic=TOPIC, **given).ext()
    )


def ack_request(receipt: PopReceipt) -> RemotingCommand:
    topic = f"%RETRY%{GROUP}_{TOPIC}" if receipt.kind else TOPIC
    header = AckHeader(GROUP, topic, receipt.queue_id, receipt.encode(), receipt.offset)
    return RemotingCommand(RequestCode.ACK_MESSAGE, header.ext())


@pytest.mark.parametrize("make", [GroupOfThree, PairOfControllers])
def test_acknowledged_messages_never_come_again_and_all_others_do(
    make: Callable[[], Any],
) -> None:
    brokers = make()

    def pop(**fields: Any) -> Popped:
        return read_popped(brokers.ask(pop_request(**fields)))

    for number in range(6):
        assert brokers.ask(send_request("p", TOPIC, 0, b"%d" % number, "", 0)).code == 0
    mode = RequestMode(TOPIC, GROUP, "POP", 0).encode()
    set_mode = RemotingCommand(RequestCode.SET_MESSAGE_REQUEST_MODE, None, mode)
    assert brokers.ask(set_mode).code == 0
    first = pop(max_msg_nums=4)
    assert first.bodies == [b"0", b"1", b"2", b"3"]
    for body in (b"0", b"2"):
        assert brokers.ask(ack_request(first.receipts[body])).code == 0
    refused = brokers.ask(pop_request(), brokers.others()[0])
    assert refused.code == ResponseCode.SYSTEM_BUSY
    brokers.run(12)  # the table of modes is copied every 10 s
    old = brokers.master()
    taken = pop(invisible_time=30_000)
    assert sorted(taken.bodies) == [b"1", b"3", b"4", b"5"]
    assert brokers.ask(ack_request(taken.receipts[b"4"])).code == 0
    brokers.kill(old)
    brokers.run(20)
    assert brokers.master() is not old
    assert brokers.ask(ack_request(taken.receipts[b"5"])).code == 0  # receipts stay good
    assert pop().code == ResponseCode.POLLING_TIMEOUT
    brokers.run(20)
    got: list[bytes] = []
    for _ in range(4):
        popped = pop()
        got += popped.bodies
        for receipt in popped.receipts.values():
            assert brokers.ask(ack_request(receipt)).code == 0
        brokers.run(3)
    assert sorted(got) == [b"1", b"3"]
    told = brokers.ask(RemotingCommand(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
    assert b'"mode":"POP"' in told.body
