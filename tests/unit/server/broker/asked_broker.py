"""A whole broker whose handlers a test asks itself, over channels of its own."""

import json
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.testing.brokers import NamesrvNode
from tests.kits.channel import FakeChannel
from tests.unit.server.broker.sim_broker import SimBroker

CLIENT = Address.parse("10.0.0.9", 77)
CONFIG_FILE = "/broker.conf"


class AskedBroker(SimBroker):
    """
    A broker with `TopicA` of four queues, and its name server; a slave has no master.

    A handler is called as the dispatcher calls it, but on a `FakeChannel`: what the broker sends
    there of its own accord is seen, and the client may have any address and any version.

    :param plugins: are installed beside the others.
    :param ours: fields of `RmqHaConfig`.
    """

    def __init__(
        self,
        role: BrokerRole = BrokerRole.ASYNC_MASTER,
        plugins: Sequence[Any] = (),
        **ours: Any,
    ) -> None:
        super().__init__()
        find = self.find
        self.find = lambda *kind: [
            *find(*kind),
            *(plugin for plugin in plugins if kind[0].providedBy(plugin)),
        ]
        self.configuration.store.broker_role = role
        self.configuration.broker.broker_id = int(role is BrokerRole.SLAVE)
        self.configuration.store.mapped_file_size_commit_log = 1 << 20
        for name, value in ours.items():
            setattr(self.configuration.ours, name, value)
        self.name_server = NamesrvNode(self.world.add("namesrv"))
        self.name_server.start()
        self.configuration.broker.namesrv_addr = self.name_server.address
        self.configuration.config_file = CONFIG_FILE
        self.host.disk.replace(CONFIG_FILE, b"brokerName=broker-a\n")
        self.channel = FakeChannel()
        self.start()
        inner = self.broker
        self.broker_config = self.configuration.broker
        self.store = inner.store
        self.topics, self.groups = inner.topics, inner.groups
        self.offsets, self.client_offsets = inner.consumer_offsets, inner.client_offsets
        self.consumers, self.producers = inner.consumers, inner.producers
        self.filters, self.stats = inner.consumer_filters, inner.stats
        self.hold, self.limits = inner.hold, inner.limits
        self.heartbeats, self.notifier = inner.heartbeats, inner.notifier
        self.routes = inner.dispatcher.routes
        self.topics.update(TopicConfig("TopicA", 4, 4, 6))

    @property
    def address(self) -> Address:
        """Where its messages say that they are stored."""
        return self.configuration.store_host

    @property
    def saved(self) -> dict[str, str]:
        """The keys and values of the broker's configuration file."""
        text = self.host.disk.read_bytes(CONFIG_FILE).decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    def registered(self, topic: str) -> dict[str, Any] | None:
        """The queues of a topic as the name server knows them."""
        request = RemotingCommand(105, {"topic": topic})
        answer = self.wait(self.client.invoke(self.name_server.address, request, 5000))
        if answer.code:
            return None
        (queues,) = json.loads(answer.body)["queueDatas"]
        return dict(queues)

    def advance(self, seconds: float) -> None:
        """Run the simulation for so many seconds of its clock."""
        self.world.clock.run_for(seconds)

    def put(self, topic: str, queue_id: int = 0, body: bytes = b"x", **properties: str) -> int:
        """
        Store a message, and wait until it is in its queue.

        :returns: its physical offset in the commit log.
        """
        message = BrokerMessage(
            topic,
            queue_id,
            body,
            CLIENT,
            self.address,
            123,
            5,
            properties=properties,
            properties_string=encode_properties(properties),
        )
        return self.put_message(message)

    def put_message(self, message: BrokerMessage) -> int:
        """Store a message that the test has made; the rest is as in `put`."""
        result = self.wait(self.store.put_message(message))
        assert result.append is not None, result.status
        self.world.clock.run_while(lambda: self.store.dispatcher.bytes_behind, 60.0)
        return int(result.append.physical_offset)

    @property
    def log(self) -> bytes:
        """The whole commit log, which fits into one file."""
        return bytes(self.store.log.read(0, self.store.log.max_offset))

    @property
    def messages(self) -> list[Record]:
        """What was stored, in order; a message that waits for its delay is in `SCHEDULE_TOPIC`."""
        return decode_records(self.log)

    def record(self, topic: str, queue_id: int, queue_offset: int) -> bytes:
        """The bytes of a record."""
        place = self.store.physical_offset_at(topic, queue_id, queue_offset)
        return bytes(self.store.record_starting_at(place))

    def request(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: Any = None,
        *,
        channel: FakeChannel | None = None,
        oneway: bool = False,
        binary: bool = False,
        version: int = 407,
    ) -> Any:
        """What the handler returns, a refusal's response included; None: it answers later."""
        fields = None if ext is None else {name: str(value) for name, value in ext.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        flag = FLAG_ONEWAY if oneway else 0
        command = RemotingCommand(code, fields, body, 7, flag, version=version, binary=binary)
        return self.handle(command, channel)

    def handle(self, command: RemotingCommand, channel: FakeChannel | None = None) -> Any:
        """Give a command that the test has made to its handler; returns as `request` does."""
        handler = self.routes[int(command.code)]
        try:
            answer = handler(channel or self.channel, command)
            if isinstance(answer, Deferred):
                answer = self.wait(answer)
        except RequestRejected as error:
            return command.response(error.code, error.remark)
        return answer

    def heartbeat(
        self,
        channel: FakeChannel,
        client_id: str,
        group: str,
        *topics: str,
        expression: str = "*",
        version: int = 1,
        model: str = "CLUSTERING",
        kind: str = "TAG",
    ) -> Any:
        """Send the heartbeat of a client with one consumer group and the producer group `PG`."""
        subscriptions = [
            {
                "topic": topic,
                "subString": expression,
                "subVersion": version,
                "expressionType": kind,
                "tagsSet": [],
                "codeSet": [tags_code(tag.strip()) for tag in expression.split("||")],
            }
            for topic in topics
        ]
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        body = {
            "clientID": client_id,
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "PG"}],
        }
        return self.request(34, None, body, channel=channel)
