"""What producers notice when the master of a pair in controller mode is killed under load."""

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.client.instance import ClientInstance
from rmq_ha.client.messages import Message, SendResult, SendStatus
from rmq_ha.client.producer import Producer
from rmq_ha.client.settings import ClientConfig, ProducerConfig
from rmq_ha.model.process import Process
from rmq_ha.testing.controlled import TOPIC, ControlledBrokers

EVERY_S = 0.001
BETWEEN_S = 0.5


class Load:
    """A thousand sends a second at defaults, whatever becomes of them."""

    def __init__(self, brokers: ControlledBrokers) -> None:
        self.brokers = brokers
        self.clock = brokers.world.clock
        host = brokers.world.add("load")
        settings = ClientConfig(
            namesrv_addr=brokers.name_server.address, process=Process(4711, host.ip)
        )
        self.producer = Producer(ClientInstance(host.seams, settings), ProducerConfig())
        started = Deferred.fromCoroutine(self.producer.start())
        brokers.until(lambda: started.called)
        self.sent = 0
        self.acked: dict[bytes, float] = {}
        self.failed: list[object] = []

    def send(self) -> None:
        body, began = b"%d" % self.sent, self.clock.seconds()
        self.sent += 1

        def note(outcome: object) -> None:
            if isinstance(outcome, SendResult) and outcome.send_status is SendStatus.SEND_OK:
                self.acked[body] = self.clock.seconds() - began
            else:
                self.failed.append(outcome)

        self.producer.send(Message(TOPIC, body)).addBoth(note)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / EVERY_S)):
            self.send()
            self.clock.run_for(EVERY_S)

    def finish(self) -> None:
        self.brokers.until(lambda: len(self.acked) + len(self.failed) == self.sent, 30.0)


@pytest.mark.parametrize(("power", "longest_s"), [(False, 1.0), (True, 20.0)])
def test_a_master_that_is_killed_costs_no_exception(power: bool, longest_s: float) -> None:
    """
    A controller elects the other one, which has all that was acknowledged.

    With `power` the old one's machine falls silent: nobody refuses, and its heartbeats have to be
    missed first, for 10 s.
    """
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    load = Load(brokers)
    load.run(BETWEEN_S)
    first.crash(power=power)
    load.run(BETWEEN_S)
    brokers.until(lambda: brokers.master() is second)
    load.run(BETWEEN_S)
    load.finish()
    assert load.failed == []
    assert max(load.acked.values()) < longest_s
    queues = range(second.controller.topics.get(TOPIC).write_queue_nums)
    stored = {body for queue in queues for body in brokers.bodies(second, queue)}
    assert load.acked.keys() <= stored
    assert not brokers.findings.violations
