"""Topics, messages and consumers for tests on `SimCluster`."""

from collections import Counter
from typing import Any

from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig
from tests.unit.client.sim_cluster import SimCluster

TOPIC = "topic"
GROUP = "group"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Consuming(SimCluster):
    """A cluster with a topic, whom to send with, and all that listeners got."""

    def __init__(self, *names: str, queues: int = 4, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.sender = self.client("sender")
        self.wait(self.sender.start())
        self.sent = 0
        self.got: dict[str, list[str]] = {}
        for name in names:
            self.create(name, TOPIC, queues)

    def create(self, broker: str, topic: str, queues: int) -> None:
        """Create a topic on one broker."""
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
        answer = self.wait(self.sender.invoke(self.address(broker), command, 3000))
        assert answer.code == 0, answer.remark
        self.run(0.5)

    def send(
        self, broker: str, count: int = 1, queue_id: int | None = None, **properties: str
    ) -> list[str]:
        """Send messages to a broker's queues in turn; their bodies."""
        bodies = []
        for _ in range(count):
            body = f"m{self.sent}"
            queue = self.sent % 4 if queue_id is None else queue_id
            self.sent += 1
            text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
            now = self.hosts["sender"].now_ms()
            command = send_request("producers", TOPIC, queue, body.encode(), text, now)
            try:
                answer = self.wait(self.sender.invoke(self.address(broker), command, 3000))
            except RemotingConnectError:  # of the connection from before a crash
                answer = self.wait(self.sender.invoke(self.address(broker), command, 3000))
            assert answer.code == 0, answer
            bodies.append(body)
        return bodies

    def consumer(
        self,
        name: str = "c1",
        listener: Any = None,
        *,
        orderly: bool = False,
        group: str = GROUP,
        expression: Any = "*",
        client: Any = None,
        more: dict[str, Any] | None = None,
        **config: Any,
    ) -> PushConsumer:
        """A push consumer on its own machine, started."""
        config.setdefault("consume_from_where", FIRST)
        client = client or self.client(name)
        consumer = PushConsumer(client, group, PushConsumerConfig(**config), **(more or {}))
        consumer.subscribe(TOPIC, expression)
        consumer.register_message_listener(listener or self.note(name), orderly=orderly)
        self.wait(consumer.start())
        return consumer

    def note(self, name: str) -> Any:
        """A listener that writes down what it gets."""
        got = self.got.setdefault(name, [])

        def listener(messages: Any, context: Any) -> None:
            got.extend(message.body.decode() for message in messages)

        return listener

    def all_got(self) -> Counter[str]:
        """How often each body came, anywhere."""
        return Counter(body for got in self.got.values() for body in got)

    def committed(self, broker: str, group: str = GROUP) -> dict[int, int]:
        """A group's offsets at a broker."""
        return dict(self.brokers[broker].consumer_offsets.queues(group, TOPIC))


def queue(broker: str, number: int) -> MessageQueue:
    """Of `TOPIC`."""
    return MessageQueue(TOPIC, broker, number)
