"""How many files of rmq_ha a message passes: what a reader opens who follows one.

    PYTHONPATH=. python bench/walks.py [--files]

Each walk runs once on simulated machines, after what is done only once: clients know their routes,
the slave has the log. Every file of which a function ran counts, on whichever of the machines it
was; `testing/` does not. What was due in the same moment counts too.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import rmq_ha
from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig
from rmq_ha.client.rules.messages import Message, MessageQueue
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from tests.unit.client.sim_cluster import SimCluster

ROOT = str(Path(rmq_ha.__file__).parent) + "/"
TOPIC = "TopicA"
Passed = set[tuple[str, str, int]]
"""File, function and first line."""


@contextmanager
def followed() -> Iterator[Passed]:
    """Notes each function of rmq_ha that runs meanwhile."""
    passed: Passed = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            file = code.co_filename[len(ROOT) :]
            if not file.startswith("testing/"):
                passed.add((file, code.co_name, code.co_firstlineno))

    sys.setprofile(note)
    try:
        yield passed
    finally:
        sys.setprofile(None)


class Walks:
    """A master with a slave, and a client; or a DLedger group."""

    def __init__(self, *, is_group: bool = False) -> None:
        self.world = SimCluster()
        if is_group:
            peers = ";".join(f"n{number}-127.0.0.{number + 2}:40911" for number in range(3))
            for number in range(3):
                store = {
                    "enable_dleger_commit_log": True,
                    "dleger_group": "g",
                    "dleger_peers": peers,
                    "dleger_self_id": f"n{number}",
                }
                self.world.add(f"n{number}", store=store, broker={"broker_name": "g"})
            self.world.run(30)
        else:
            self.world.add("a", BrokerRole.SYNC_MASTER)
            self.slave()
            self.world.run(15)
        self.client = self.world.client()
        self.producer = Producer(self.client, ProducerConfig(producer_group="producers"))
        self.world.wait(self.producer.start())
        for _ in range(3):
            self.send()
        self.world.run(1)

    def slave(self) -> Any:
        """One that runs, and may not have caught up."""
        return self.world.add("b", BrokerRole.SLAVE, broker={"broker_name": "a", "broker_id": 1})

    def send(self, queue: MessageQueue | None = None) -> None:
        """One message."""
        self.world.wait(self.producer.send(Message(TOPIC, b"body"), queue=queue))

    def sent(self) -> Passed:
        """From the call to the `SendResult`, and what is due in that moment."""
        with followed() as passed:
            self.send()
        return passed

    def catch_up(self) -> Passed:
        """From the connection to the last byte, of a slave that begins with nothing."""
        self.world.crash("b", power=False)
        for _ in range(20):
            self.send()
        slave = self.slave()
        with followed() as passed:
            self.world.clock.run_while(lambda: slave.store.log.max_offset < self.end, 30)
        assert slave.store.log.max_offset == self.end
        return passed

    @property
    def end(self) -> int:
        """Of the master's log."""
        end: int = self.world.brokers["a"].store.log.max_offset
        return end

    def tables(self) -> Passed:
        """The slave fetches topics, offsets, delays and groups."""
        self.world.run(1)
        with followed() as passed:
            self.world.wait(self.world.brokers["b"].slave_synchronize.synchronize())
        return passed

    def held_pull(self) -> Passed:
        """A pull that waits, and what a send does more because of it."""
        end = self.world.brokers["a"].store.max_offset_in_queue(TOPIC, 0)
        caller = RemotingClient(self.world.world.add("reader").seams, NettyClientConfig())
        request = pull_request("readers", TOPIC, 0, end, 32, 15_000)
        with followed() as passed:
            answer = caller.invoke(self.world.address("a"), request, 20_000)
            self.world.run(0.1)
        answers: list[Any] = []
        answer.addCallback(answers.append)
        assert not answers, answers
        without = self.send_to(1)
        passed |= self.send_to(0) - without
        assert answers[0].code == 0, answers
        return passed

    def send_to(self, queue_id: int) -> Passed:
        """Until who waits for it had time to get it."""
        with followed() as passed:
            self.send(MessageQueue(TOPIC, "a", queue_id))
            self.world.run(0.05)
        return passed

    def consume(self) -> Passed:
        """From `start` over the listener to the offset at the broker, once a group is known."""
        got: list[Any] = []
        config = PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = PushConsumer(self.client, "readers", config)
        consumer.subscribe(TOPIC)
        consumer.register_message_listener(lambda messages, _: got.extend(messages))
        with followed() as passed:
            self.world.wait(consumer.start())
            self.world.run(6)
        assert got
        return passed


def is_of_client(file: str) -> bool:
    """Below it lie `remoting/`, `wire/` and so on, as below the broker."""
    return file.startswith("client/")


def walks() -> Iterator[tuple[str, Passed]]:
    """By the names that the table has."""
    pair = Walks()
    send = pair.sent()
    yield "send (SYNC_MASTER), at the brokers", {step for step in send if not is_of_client(step[0])}
    yield "a slave catches up", pair.catch_up()
    yield "a slave fetches tables", pair.tables()
    group = Walks(is_group=True).sent()
    yield "send (DLedger), at the brokers", {step for step in group if not is_of_client(step[0])}
    pull = pair.held_pull()
    yield "a held pull, at the broker", {step for step in pull if not is_of_client(step[0])}
    yield "send, in `client/`", {step for step in send if is_of_client(step[0])}
    consume = pair.consume()
    yield "consume, in `client/`", {step for step in consume if is_of_client(step[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", action="store_true", help="name them")
    options = parser.parse_args()
    print("| walk | files | functions |")
    print("|---|---|---|")
    for name, passed in walks():
        files = sorted({file for file, _, _ in passed})
        print(f"| {name} | {len(files)} | {len(passed)} |")
        if options.files:
            print(*files)


if __name__ == "__main__":
    main()
