"""What producers notice when the master of a pair in controller mode is killed under load."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.model.process import Process
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.send.producer import Producer
from tests.sim_kit.controlled import TOPIC, ControlledBrokers

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
        self._until_done(Deferred.fromCoroutine(self.producer.start()))
        self.sent = 0
        self.acked: dict[bytes, float] = {}
        self.failed: list[object] = []

    def _until_done(self, waiting: "Deferred[Any]") -> None:
        self.brokers.until(lambda: bool(waiting.called))

    def consume(self) -> dict[bytes, float]:
        """A push consumer of all that comes; when it got what."""
        got: dict[bytes, float] = {}
        host = self.brokers.world.add("reader")
        settings = ClientConfig(
            namesrv_addr=self.brokers.name_server.address, process=Process(4712, host.ip)
        )
        consumer = PushConsumer(
            ClientInstance(host.seams, settings),
            "readers",
            PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        )
        consumer.subscribe(TOPIC)

        def listener(messages: Any, context: Any) -> None:
            got.update(dict.fromkeys([each.body for each in messages], self.clock.seconds()))

        consumer.register_message_listener(listener)
        self._until_done(consumer.start())
        return got

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
    queues = range(second.broker.topics.get(TOPIC).write_queue_nums)
    stored = {body for queue in queues for body in brokers.bodies(second, queue)}
    assert load.acked.keys() <= stored
    assert not brokers.findings.violations


@pytest.mark.parametrize("how", ["killed", "handed over"])
def test_clients_follow_at_once(how: str) -> None:
    """Producer and push consumer: by the first refusal, not with the next look at routes (30 s)."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    load = Load(brokers)
    got = load.consume()
    load.run(BETWEEN_S)
    brokers.until(lambda: load.acked.keys() <= got.keys())
    began = load.clock.seconds()
    if how == "killed":
        first.crash(power=False)
    else:
        answer = brokers.desk.ask(
            1002, {"brokerName": "b", "brokerId": "2", "designateElect": "true"}
        )
        assert answer.code == 0, answer.remark
    number = load.sent
    load.run(BETWEEN_S)
    brokers.until(lambda: brokers.master() is second)
    load.run(BETWEEN_S)
    load.finish()
    assert load.failed == []
    new = {b"%d" % each for each in range(number, load.sent)}
    brokers.until(lambda: new <= got.keys())
    assert min(got[body] for body in new) - began < 1.5
    assert max(got[body] for body in new) - began < 4.0
    assert max(load.acked.values()) < 1.5
    assert not brokers.findings.violations
