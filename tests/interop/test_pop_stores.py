"""RocketMQ 5.3.3 is killed, and rmq-ha opens its store with messages that pop consumers hold."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.interop.rig import Rig, Server
from tests.interop.test_controller import PEER5, pytestmark  # noqa: F401
from tests.interop.wire import Wire

TOPIC, GROUP = "Out", "GOut"
ORDERED, ORDERLY = "Ordered", "GOrder"
INVISIBLE_MS = 8_000
CONF = """\
brokerClusterName=Pops
brokerName=broker-t
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=5000
maxIndexNum=20000
"""


class Popped(NamedTuple):
    """A message that is out: its record, and what its receipt says."""

    record: Record
    topic: str
    receipt: str

    @property
    def body(self) -> str:
        return self.record.body.decode()


class Broker:
    """One store, and the broker that has it."""

    def __init__(self, rig: Rig, name: str = "store-of-both") -> None:
        self.rig = rig
        self.name = name
        self.namesrv = rig.namesrv()
        self._conf = rig.directory / f"{name}.conf"
        self._conf.write_text(CONF)
        self._port = rig.ports(4) + 2
        self.server: Server

    @property
    def store(self) -> Path:
        return self.rig.directory / self.name / "store"

    def java(self, **settings: Any) -> None:
        """RocketMQ 5.3.3 opens the store."""
        directory = self.rig.directory / self.name
        directory.mkdir(exist_ok=True)
        command = [str(PEER5), "broker", "--quick", "--conf", str(self._conf)]
        command += ["--dir", str(directory), "--namesrv", self.namesrv]
        # On a busy machine Java refuses requests that waited 200 ms, and comes late.
        patience = {"waitTimeMillsInSendQueue": 10000, "osPageCacheBusyTimeOutMills": 10000}
        for key, value in {"listenPort": self._port, **patience, **settings}.items():
            command += ["--set", f"{key}={value}"]
        address = f"127.0.0.1:{self._port}"
        self.server = self.rig._start(command, address, directory, java=True)

    def ours(self, *, wait: bool = True, **settings: Any) -> None:
        """A broker of rmq-ha opens it."""
        self.server = self.rig.broker(
            str(self._conf),
            self.name,
            namesrv=self.namesrv,
            port=self._port,
            wait=wait,
            **{"popEnable": "true", **settings},
        )

    def wire(self) -> Wire:
        return Wire(self.server.address)

    def send(self, topic: str, *bodies: str) -> None:
        """Send messages to queue 0 of a topic, which is empty, and wait until they can be read."""
        with self.wire() as wire:
            for body in bodies:
                text = f"UNIQ_KEY\x01{body:0>32}"
                (answer,) = wire.exchange([send_request("p", topic, 0, body.encode(), text, 1)])
                assert answer.code == 0, answer.remark
            self.rig.until(
                lambda: wire.max_offset(topic, 0) == len(bodies), 20, "the queue", self.server
            )

    def pop(self, most: int, group: str = GROUP, topic: str = TOPIC, **more: Any) -> list[Popped]:
        """Pop once, without waiting."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": -1,
            "maxMsgNums": most,
            "invisibleTime": INVISIBLE_MS,
            "pollTime": 0,
            "bornTime": int(time.time() * 1000),
            "initMode": 0,
            **more,
        }
        ext = {name: str(value) for name, value in fields.items()}
        with self.wire() as wire:
            (answer,) = wire.exchange([RemotingCommand(RequestCode.POP_MESSAGE, ext)])
        if answer.code != 0:
            assert answer.code in (209, 210), (answer.code, answer.remark)
            return []
        return _popped(answer, group, topic)

    def ack(self, message: Popped, group: str = GROUP) -> int:
        """Acknowledge a message; return the code."""
        return int(self._settle(RequestCode.ACK_MESSAGE, message, group).code)

    def change(self, message: Popped, invisible_ms: int, group: str = GROUP) -> str:
        """Give a message a new invisible time; return the new receipt."""
        answer = self._settle(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, message, group, invisibleTime=invisible_ms
        )
        ext = answer.ext or {}
        assert answer.code == 0, answer.remark
        parts = message.receipt.split(" ")
        parts[0] = str(message.record.queue_offset)
        parts[1:4] = ext["popTime"], ext["invisibleTime"], ext["reviveQid"]
        return " ".join(parts)

    def _settle(self, code: int, message: Popped, group: str, **more: Any) -> RemotingCommand:
        fields = {
            "consumerGroup": group,
            "topic": message.topic,
            "queueId": message.record.queue_id,
            "offset": message.record.queue_offset,
            "extraInfo": message.receipt,
            **more,
        }
        with self.wire() as wire:
            (answer,) = wire.exchange(
                [RemotingCommand(code, {name: str(value) for name, value in fields.items()})]
            )
        return answer

    def until_popped(self, count: int, seconds: float, group: str = GROUP) -> list[Popped]:
        """Pop and acknowledge until so many messages came, and then once more."""
        came: list[Popped] = []

        def is_enough() -> bool:
            for message in self.pop(32, group):
                assert self.ack(message, group) == 0
                came.append(message)
            return len(came) >= count

        self.rig.until(is_enough, seconds, f"{count} messages, not only {len(came)}", self.server)
        is_enough()
        return came


def _popped(answer: RemotingCommand, group: str, topic: str) -> list[Popped]:
    """Read an answer: the messages with their receipts, which the client builds from two fields."""
    ext = answer.ext or {}
    kinds = {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}
    starts: dict[tuple[str, int], str] = {}
    named: dict[tuple[int, int], str] = {}
    for entry in ext["startOffsetInfo"].split(";"):
        kind, queue_id, start = entry.split(" ")
        starts[kind, int(queue_id)] = start
    found: list[Popped] = []
    for entry in ext["msgOffsetInfo"].split(";"):
        kind, queue_id, offsets = entry.split(" ")
        for offset in offsets.split(","):
            named[int(queue_id), int(offset)] = kind
    for record in decode_records(answer.body or b""):
        kind = named[record.queue_id, record.queue_offset]
        start = starts[kind, record.queue_id]
        receipt = record.properties.get("POP_CK") or (
            f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} {kind} "
            f"broker-t {record.queue_id} {record.queue_offset}"
        )
        found.append(Popped(record, kinds[kind], receipt))
    return found


def _hand_out(broker: Broker) -> dict[str, Popped]:
    """
    Let consumers of Java's broker hold messages in every way.

    :returns: the last handing out of each message, by body.
    """
    with broker.wire() as wire:
        for topic in (TOPIC, ORDERED):
            wire.create_topic(topic, 1)
        for group in (GROUP, ORDERLY):
            wire.create_group(group)
    broker.send(ORDERED, *(f"o{number}" for number in range(6)))
    in_order = broker.pop(4, ORDERLY, ORDERED, order="true", attemptId="a")
    assert [message.body for message in in_order] == ["o0", "o1", "o2", "o3"]
    for message in (in_order[0], in_order[2]):
        assert broker.ack(message, ORDERLY) == 0
    # Java writes this file every 10 s. After it, only the log says what is out.
    orders = broker.store / "config" / "consumerOrderInfo.json"
    broker.rig.until(
        lambda: orders.exists() and '"cm":5' in orders.read_text(), 30, "the orderly pop"
    )
    broker.send(TOPIC, *(f"m{number}" for number in range(12)))
    out = {message.body: message for message in broker.pop(8)}
    assert sorted(out) == [f"m{number}" for number in range(8)]
    for body in ("m0", "m1", "m4"):
        assert broker.ack(out[body]) == 0
    out["m6"] = out["m6"]._replace(receipt=broker.change(out["m6"], 1000))
    out["m7"] = out["m7"]._replace(receipt=broker.change(out["m7"], INVISIBLE_MS))
    assert broker.ack(out["m7"]) == 0
    return {**out, **{message.body: message for message in in_order}}


def test_what_is_out_with_consumers_of_java_is_out_with_ours(rig: Rig) -> None:
    broker = Broker(rig)
    broker.java()
    out = _hand_out(broker)
    broker.server.kill()

    # A broker that serves no pops would lose the messages.
    broker.ours(popEnable="false", wait=False)
    assert broker.server.process.wait(30) != 0
    assert "have not acknowledged (6)" in broker.server.output.read_text()
    broker.ours()
    # Messages that nobody had come at once, and the receipts of Java's broker count.
    fresh = broker.pop(32)
    assert [message.body for message in fresh] == [f"m{number}" for number in range(8, 12)]
    assert broker.ack(out["m2"]) == 0
    assert broker.pop(32, ORDERLY, ORDERED, order="true") == []
    again = broker.pop(32, ORDERLY, ORDERED, order="true", attemptId="a")
    assert [message.body for message in again] == ["o1", "o3"]
    for message in fresh:
        assert broker.ack(message) == 0
    came = broker.until_popped(3, 40)
    assert sorted(message.body for message in came) == ["m3", "m5", "m6"]
    assert {message.record.reconsume_times for message in came} == {1}
