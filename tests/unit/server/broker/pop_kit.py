"""A whole broker that serves pops, on a simulated machine, and a client that pops."""

from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import BatchAck, BatchAckEntry, encode_bit_set
from rmq_ha.base.wire.pop_headers import (
    AckHeader,
    ChangeInvisibleHeader,
    NotificationHeader,
    PeekHeader,
    PollingInfoHeader,
    PopAnswerHeader,
    PopHeader,
)
from rmq_ha.base.wire.pop_places import parse_msg_offsets, parse_start_offsets
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import SimBroker

BROKER = "broker-p"
GROUP, TOPIC = "G", "T"
RETRY = "%RETRY%G_T"
CODE = RequestCode


class Popped(NamedTuple):
    """
    An answer to a pop.

    :ivar receipts: by body, the receipt that RocketMQ's client makes of the answer.
    """

    code: int
    header: PopAnswerHeader
    records: list[Record]
    receipts: dict[bytes, PopReceipt]

    @property
    def bodies(self) -> list[bytes]:
        return [record.body for record in self.records]


def read_popped(answer: RemotingCommand) -> Popped:
    """Read an answer as RocketMQ's client does."""
    header = PopAnswerHeader.read(answer.ext)
    records = decode_records(answer.body or b"")
    starts = parse_start_offsets(header.start_offset_info or "")
    offsets = parse_msg_offsets(header.msg_offset_info or "")
    receipts = {}
    for record in records:
        text = record.properties.get("POP_CK")
        if text is None:
            key = (0, record.queue_id)
            assert record.queue_offset in offsets[key]
            receipt = PopReceipt(
                starts[key],
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                0,
                BROKER,
                record.queue_id,
                record.queue_offset,
            )
        else:
            receipt = PopReceipt.parse(text)
            key = (receipt.kind, receipt.queue_id)
            assert receipt.offset in offsets[key]
            assert receipt.start_offset == starts[key]
            assert receipt.offset == record.queue_offset
        receipts[record.body] = receipt
    assert sum(map(len, offsets.values())) == len(records)
    return Popped(answer.code, header, records, receipts)


class PopBroker(SimBroker):
    """A broker with pops, a topic of two queues, and a client."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        super().__init__(seed)
        self.configuration.broker.broker_name = BROKER
        for name, value in {"pop_enable": True, **settings}.items():
            setattr(self.configuration.ours, name, value)

    def start(self) -> "PopBroker":
        super().start()
        self.add_topic(TOPIC, 2)
        self.broker.groups.update(SubscriptionGroupConfig(GROUP))
        self.wait_for_lead()
        return self

    def wait_for_lead(self) -> None:
        self.world.clock.run_while(lambda: not self.broker.pops.is_leading, 30)
        assert self.broker.pops.is_leading

    def add_topic(self, topic: str, queues: int, perm: int = 6) -> None:
        self.broker.topics.update(TopicConfig(topic, queues, queues, perm))

    def run(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    def put(self, *bodies: str, queue_id: int = 0, topic: str = TOPIC, **properties: str) -> None:
        text = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
        for body in bodies:
            now_ms = self.host.now_ms()
            request = send_request("p", topic, queue_id, body.encode(), text, now_ms)
            assert self.call(request).code == 0

    def header(self, **fields: Any) -> PopHeader:
        given = {"queue_id": -1, "max_msg_nums": 32, "invisible_time": 10_000, **fields}
        given.setdefault("consumer_group", GROUP)
        given.setdefault("topic", TOPIC)
        given.setdefault("born_time", self.client_host.now_ms())
        return PopHeader(**given)

    def ask_pop(self, **fields: Any) -> "Deferred[Popped]":
        """Pop, and go on."""
        request = RemotingCommand(CODE.POP_MESSAGE, self.header(**fields).ext())
        answer: Deferred[Any] = self.client.invoke(f"{self.host.ip}:{LISTEN_PORT}", request, 60_000)
        return answer.addCallback(read_popped)

    def pop(self, **fields: Any) -> Popped:
        popped: Popped = self.wait(self.ask_pop(**fields))
        return popped

    def ack(self, receipt: PopReceipt, *, group: str = GROUP, topic: str = "") -> RemotingCommand:
        topic = topic or (RETRY if receipt.kind else TOPIC)
        header = AckHeader(group, topic, receipt.queue_id, receipt.encode(), receipt.offset)
        return self.call(RemotingCommand(CODE.ACK_MESSAGE, header.ext()))

    def change(self, receipt: PopReceipt, invisible_ms: int, *, topic: str = "") -> RemotingCommand:
        topic = topic or (RETRY if receipt.kind else TOPIC)
        header = ChangeInvisibleHeader(
            GROUP, topic, receipt.queue_id, receipt.encode(), receipt.offset, invisible_ms
        )
        return self.call(RemotingCommand(CODE.CHANGE_MESSAGE_INVISIBLETIME, header.ext()))

    def batch_ack(self, *receipts: PopReceipt, group: str = GROUP) -> RemotingCommand:
        entries = [
            BatchAckEntry(
                group,
                TOPIC,
                str(item.kind),
                item.start_offset,
                item.queue_id,
                item.revive_queue,
                item.pop_time,
                item.invisible_ms,
                encode_bit_set([item.offset - item.start_offset]),
            )
            for item in receipts
        ]
        body = BatchAck(BROKER, entries).encode()
        return self.call(RemotingCommand(CODE.BATCH_ACK_MESSAGE, None, body))

    def peek(self, most: int = 32, queue_id: int = -1) -> Popped:
        header = PeekHeader(GROUP, TOPIC, queue_id, most)
        answer = self.call(RemotingCommand(CODE.PEEK_MESSAGE, header.ext()))
        records = decode_records(answer.body or b"")
        return Popped(answer.code, PopAnswerHeader.read(answer.ext), records, {})

    def ask_notification(self, poll_ms: int = 0, **fields: Any) -> "Deferred[Any]":
        header = NotificationHeader(GROUP, TOPIC, -1, poll_ms, self.client_host.now_ms(), **fields)
        request = RemotingCommand(CODE.NOTIFICATION, header.ext())
        return self.client.invoke(f"{self.host.ip}:{LISTEN_PORT}", request, 60_000)

    def polling(self, queue_id: int = -1) -> int:
        header = PollingInfoHeader(GROUP, TOPIC, queue_id)
        answer = self.call(RemotingCommand(CODE.POLLING_INFO, header.ext()))
        return int((answer.ext or {})["pollingNum"])

    def offset(self, queue_id: int = 0, topic: str = TOPIC, group: str = GROUP) -> int:
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        answer = self.call(RemotingCommand(CODE.QUERY_CONSUMER_OFFSET, ext))
        return int((answer.ext or {})["offset"])
