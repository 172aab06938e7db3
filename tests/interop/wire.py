"""A small blocking client for brokers, ours or Java's, and a load that remembers every answer."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import pull_request, send_request

STORED = (0, 10, 11, 12)
PULL_FOUND = 0
PULL_BEYOND = (19, 20, 21)


class Refused(Exception):
    """The broker answered with another code than success."""

    def __init__(self, response: RemotingCommand) -> None:
        super().__init__(f"code {response.code}: {response.remark}")
        self.code = response.code


class Wire:
    """
    One connection; a request at a time, or several in one write.

    :param credentials: what every request is signed with; None: it is not.
    """

    def __init__(
        self, address: str, timeout: float = 30, credentials: Credentials | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self._credentials = credentials
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._opaque = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def exchange(self, requests: list[RemotingCommand]) -> list[RemotingCommand]:
        """
        Send them all, then wait for all answers, which come in this order.

        :raises OSError: the connection ended.
        """
        for request in requests:
            self._opaque += 1
            request.opaque = self._opaque
        signed = (
            [sign(item, self._credentials) for item in requests] if self._credentials else requests
        )
        self._socket.sendall(b"".join(map(encode_frame, signed)))
        answers: dict[int, RemotingCommand] = {}
        while len(answers) < len(requests):
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for frame in self._reader.receive_data(data):
                command = decode_frame(*frame)
                if command.is_response:
                    answers[command.opaque] = command
        return [answers[request.opaque] for request in requests]

    def call(self, code: int, body: bytes | None = None, **ext: Any) -> RemotingCommand:
        """
        One request; its successful answer.

        :raises Refused: another code came.
        """
        ext = {name: str(value) for name, value in ext.items()}
        (answer,) = self.exchange([RemotingCommand(code, ext, body)])
        if answer.code != 0:
            raise Refused(answer)
        return answer

    # Administration

    def create_topic(self, topic: str, queues: int = 8) -> None:
        self.call(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )

    def create_group(self, group: str, retries: int = 16) -> None:
        body = fastjson.encode({"groupName": group, "retryMaxTimes": retries})
        self.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.call(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            commitOffset=offset,
        )

    def table(self, code: int) -> Any:
        """The body of an answer that is a JSON table."""
        return fastjson.parse(self.call(code).body or b"{}")

    def log_end(self) -> int:
        return int(self.table(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]["commitLogMaxOffset"])

    def max_offset(self, topic: str, queue_id: int) -> int:
        answer = self.call(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id)
        return int((answer.ext or {})["offset"])

    def min_offset(self, topic: str, queue_id: int) -> int:
        answer = self.call(RequestCode.GET_MIN_OFFSET, topic=topic, queueId=queue_id)
        return int((answer.ext or {})["offset"])

    # Messages

    def delay(self, topic: str, level: int = 1) -> None:
        """Send a message that is delivered later: level 1 in a second, 2 in five."""
        request = send_request(
            "interop", topic, 0, b"later", f"DELAY\x01{level}", int(time.time() * 1000)
        )
        (answer,) = self.exchange([request])
        if answer.code not in STORED:
            raise Refused(answer)

    def pull_bytes(self, topic: str, queue_id: int, start: int = 0) -> bytes:
        """
        Everything in a queue from an offset on, as the log holds it.

        :raises Refused: not a code of a pull (the topic is unknown).
        """
        found = []
        while True:
            request = pull_request("interop", topic, queue_id, start)
            (answer,) = self.exchange([request])
            if answer.code in PULL_BEYOND:
                return b"".join(found)
            if answer.code != PULL_FOUND:
                raise Refused(answer)
            found.append(answer.body or b"")
            start = int((answer.ext or {})["nextBeginOffset"])

    def pull_all(self, topic: str, queue_id: int, start: int = 0) -> list[Record]:
        return decode_records(self.pull_bytes(topic, queue_id, start))

    def view(self, physical_offset: int) -> bytes:
        """The record at an offset: what queryMsgById asks for."""
        return self.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=physical_offset).body or b""

    def query(self, topic: str, key: str, max_nums: int = 32) -> list[Record]:
        """Messages by key."""
        try:
            answer = self.call(
                RequestCode.QUERY_MESSAGE,
                topic=topic,
                key=key,
                maxNum=max_nums,
                beginTimestamp=0,
                endTimestamp=(1 << 63) - 1,
            )
        except Refused:
            return []
        return decode_records(answer.body or b"")


def log_end(address: str) -> int:
    """How far a broker's commit log goes; -1 while it cannot be asked."""
    try:
        with Wire(address) as wire:
            return wire.log_end()
    except (OSError, Refused):
        return -1


class Sent(NamedTuple):
    """An answer to a send: the message is stored there."""

    code: int
    serial: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class Load:
    """
    Sends from threads until it is stopped or the broker goes away; remembers what was answered.

    Every message has a body of its own and the key `serial`.

    :param rate: messages per second at most, so that a slave's absence does not cost gigabytes.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        name: str,
        *,
        connections: int = 3,
        in_flight: int = 16,
        size: int = 1024,
        queues: int = 8,
        rate: float = 2000,
    ) -> None:
        self.topic = topic
        self.stored: list[Sent] = []
        self.codes: Counter[int] = Counter()
        self._name = name
        self._size = size
        self._queues = queues
        self._in_flight = in_flight
        self._pause = connections * in_flight / rate
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(address, number), daemon=True)
            for number in range(connections)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def accepted(self) -> list[Sent]:
        """What was answered SEND_OK."""
        return [sent for sent in self.stored if sent.code == 0]

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Send nothing more; returns when all answers are there."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)
        assert self.is_over, "the load does not end"

    def _run(self, address: str, number: int) -> None:
        count = 0
        with contextlib.suppress(OSError), Wire(address, 20) as wire:
            while not self._stopping.is_set():
                serials = [
                    f"{self._name}-{number}-{serial}"
                    for serial in range(count, count + self._in_flight)
                ]
                count += self._in_flight
                began = time.monotonic()
                self._note(serials, wire.exchange(list(map(self._request, serials))))
                self._stopping.wait(max(0, began + self._pause - time.monotonic()))

    def _request(self, serial: str) -> RemotingCommand:
        properties = f"UNIQ_KEY\x01{unique_id(serial)}\x02KEYS\x01{serial}\x02TAGS\x01A"
        queue_id = int(serial.rpartition("-")[2]) % self._queues
        born = int(time.time() * 1000)
        body = body_of(serial, self._size)
        return send_request("load", self.topic, queue_id, body, properties, born)

    def _note(self, serials: list[str], answers: list[RemotingCommand]) -> None:
        for serial, answer in zip(serials, answers, strict=True):
            self.codes[answer.code] += 1
            if answer.code in STORED:
                ext = answer.ext or {}
                queue_id, queue_offset = int(ext["queueId"]), int(ext["queueOffset"])
                physical = int(re.split(",", ext["msgId"])[0][-16:], 16)
                self.stored.append(Sent(answer.code, serial, queue_id, queue_offset, physical))


def unique_id(serial: str) -> str:
    """As the Java client's: 32 hexadecimal digits."""
    return hashlib.md5(serial.encode(), usedforsecurity=False).hexdigest().upper()


def body_of(serial: str, size: int) -> bytes:
    """A body that no other message has."""
    block = hashlib.sha256(serial.encode()).digest()
    return (serial.encode() + b":" + block * (size // len(block) + 1))[:size]


def what_is_wrong(address: str, load: Load, wanted: list[Sent]) -> str:
    """
    Pull the whole topic from a broker and look for the messages; empty if all are as sent.

    Queues must be numbered without a gap.
    """
    try:
        with Wire(address) as wire:
            for queue_id in range(load._queues):
                records = wire.pull_all(load.topic, queue_id)
                offsets = [record.queue_offset for record in records]
                if offsets != list(range(len(records))):
                    return f"queue {queue_id} has holes: {offsets[:20]}..."
                for sent in wanted:
                    if sent.queue_id != queue_id:
                        continue
                    if sent.queue_offset >= len(records):
                        return f"{sent} is missing: the queue ends at {len(records)}"
                    record = records[sent.queue_offset]
                    if record.physical_offset != sent.physical_offset:
                        return f"{sent} is at {record.physical_offset}"
                    if record.body != body_of(sent.serial, load._size):
                        return f"{sent} has the body {record.body[:40]!r}"
    except (OSError, Refused) as error:
        return repr(error)
    return ""
