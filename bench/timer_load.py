"""The load of `bench/timers.py`: timer messages at a steady rate, recalls, and a reader.

Load and reader know of brokers only the client protocol: they ask a name server for routes, and
send, recall and pull. Message 7 has the body `00000007` and padding, and is sent once: a send that
fails is not repeated, so each message may be stored once at most.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, route_request, send_request
from tests.interop.wire import PULL_FOUND, Refused, Wire

TOPIC = "Timers"
QUEUES = 4
RECALL_MESSAGE = 370
_STORED_UNSURELY = (10, 11, 12)
_NOT_WAITING = 604
_OFFSET_MOVED = 21
_NOTHING_NEW = (19, 20)
_ANSWER_S = 12.0
_HOLD_MS = 5000
_MOST_AT_ONCE = 100
_DIGITS = 8

# The fates of a message.
UNKNOWN, ACKNOWLEDGED, REFUSED, RECALLED, MAYBE_RECALLED = range(5)


class Delivery(NamedTuple):
    """A message that was pulled: its number, and the store time that its broker gave it."""

    number: int
    stored_ms: int


class Book:
    """
    What was sent and answered, and what came. Several threads use it.

    :ivar dues: the due time of each message, ms.
    :ivar fates: what the answers said of each message.
    :ivar came: when the reader got each message first, ms; 0: not yet.
    :ivar codes: how often each code was the answer to a send or a recall.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.dues = array("q")
        self.came = array("q")
        self.fates = bytearray()
        self.codes: Counter[str] = Counter()
        self.acknowledged_at = 0.0

    def begin(self, dues: list[int]) -> range:
        """Note messages that are about to be sent; return their numbers."""
        with self._lock:
            first = len(self.dues)
            self.dues.extend(dues)
            self.came.extend([0] * len(dues))
            self.fates.extend(bytes([UNKNOWN]) * len(dues))
            return range(first, first + len(dues))

    def settle(self, number: int, fate: int, said: str) -> None:
        """Note an answer."""
        with self._lock:
            self.fates[number] = fate
            self.codes[said] += 1
            if fate == ACKNOWLEDGED:
                self.acknowledged_at = time.time()

    def arrive(self, found: list[Delivery], now_ms: int) -> None:
        """Note messages that the reader got."""
        with self._lock:
            for delivery in found:
                if not self.came[delivery.number]:
                    self.came[delivery.number] = now_ms

    def waiting(self) -> int:
        """Return about how many messages wait at the brokers."""
        now = time.time() * 1000
        with self._lock:
            return sum(1 for due in self.dues[-400_000:] if due > now)


class Route:
    """
    The master of a topic, as the name server knows it.

    :ivar broker_name: its name; empty until `master` has returned.
    """

    def __init__(self, namesrv: str, topic: str = TOPIC) -> None:
        self._namesrv, self._topic = namesrv, topic
        self.broker_name = ""

    def master(self) -> str:
        """
        Return its address.

        :raises OSError: the name server knows no master now.
        """
        with Wire(self._namesrv, 5) as wire:
            (answer,) = wire.exchange([route_request(self._topic)])
        if answer.code == 0:
            for broker in fastjson.parse(answer.body or b"{}").get("brokerDatas", ()):
                address = broker["brokerAddrs"].get("0") or broker["brokerAddrs"].get(0)
                if address:
                    self.broker_name = str(broker["brokerName"])
                    return str(address)
        raise ConnectionError("the name server knows no master")


class Worker(threading.Thread):
    """Talks to the master again and again, and asks for the route when it fails."""

    def __init__(self, route: Route) -> None:
        super().__init__(daemon=True)
        self._route = route
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Wire(self._route.master(), _ANSWER_S) as wire:
                    self.talk(wire)
            except (OSError, Refused, ValueError):
                self._stopping.wait(0.1)

    def talk(self, wire: Wire) -> None:
        """Use one connection until it fails or the worker stops."""
        raise NotImplementedError

    def stop(self) -> None:
        """End; what is under way ends first."""
        self._stopping.set()
        self.join(_ANSWER_S + 5)


class Sender(Worker):
    """
    Sends messages at a rate, and recalls some of them.

    :param lead_s: a message is due so long after it was sent, give or take a fifth.
    :param recalls: the share of messages that are recalled.
    """

    def __init__(
        self, book: Book, route: Route, rate: float, lead_s: float, recalls: float, random: Random
    ) -> None:
        super().__init__(route)
        self._book, self._rate, self._lead_s = book, rate, lead_s
        self._recalls, self._random = recalls, random
        self._to_recall: list[tuple[float, int, str]] = []
        self._began, self._sent = time.monotonic(), 0

    def talk(self, wire: Wire) -> None:
        while not self._stopping.is_set():
            owed = int((time.monotonic() - self._began) * self._rate) - self._sent
            if owed > self._rate:  # it stood still: what was not sent then is not sent now
                self._sent += owed - _MOST_AT_ONCE
            count = min(owed, _MOST_AT_ONCE)
            if count <= 0:
                self._stopping.wait(0.01)
                continue
            self._sent += count
            self._send(wire, count)
            self._recall(wire)

    def _send(self, wire: Wire, count: int) -> None:
        now, random = int(time.time() * 1000), self._random
        dues = [now + int(self._lead_s * random.uniform(800, 1200)) for _ in range(count)]
        numbers = self._book.begin(dues)
        requests = []
        for number, due in zip(numbers, dues, strict=True):
            key = f"{number:032X}"
            text = f"UNIQ_KEY\x01{key}\x02TIMER_DELIVER_MS\x01{due}"
            body = body_of(number)
            requests.append(send_request("timers", TOPIC, number % QUEUES, body, text, now))
        refused = None
        for number, answer in zip(numbers, wire.exchange(requests), strict=True):
            said = f"send {answer.code}"
            if answer.code == 0:
                self._book.settle(number, ACKNOWLEDGED, said)
                self._plan_recall(number, (answer.ext or {}).get("recallHandle"))
            elif answer.code in _STORED_UNSURELY:
                self._book.settle(number, UNKNOWN, said)
            else:
                self._book.settle(number, REFUSED, said)
                refused = answer
        if refused is not None:
            raise Refused(refused)

    def _plan_recall(self, number: int, handle: str | None) -> None:
        if handle and self._random.random() < self._recalls:
            # Until a second before it is due: then a recall is in time at Java's brokers, too.
            left = self._book.dues[number] / 1000 - time.time() - 2
            at = time.monotonic() + max(0.0, left) * self._random.random()
            heapq.heappush(self._to_recall, (at, number, handle))

    def _recall(self, wire: Wire) -> None:
        due: list[tuple[int, str]] = []
        while self._to_recall and self._to_recall[0][0] <= time.monotonic():
            _, number, handle = heapq.heappop(self._to_recall)
            due.append((number, handle))
        if not due:
            return
        requests = []
        for number, handle in due:
            self._book.fates[number] = MAYBE_RECALLED
            ext = {"topic": TOPIC, "recallHandle": handle, "producerGroup": "timers"}
            requests.append(RemotingCommand(RECALL_MESSAGE, ext))
        for (number, _), answer in zip(due, wire.exchange(requests), strict=True):
            fate = {0: RECALLED, _NOT_WAITING: ACKNOWLEDGED}.get(answer.code, MAYBE_RECALLED)
            self._book.settle(number, fate, f"recall {answer.code}")


class Reader(Worker):
    """Pulls one queue as a consumer does, held by the broker until something comes."""

    def __init__(self, book: Book, route: Route, queue_id: int) -> None:
        super().__init__(route)
        self._book, self._queue_id, self._offset = book, queue_id, 0

    def talk(self, wire: Wire) -> None:
        while not self._stopping.is_set():
            request = pull_request("timers", TOPIC, self._queue_id, self._offset, 32, _HOLD_MS)
            (answer,) = wire.exchange([request])
            now_ms = int(time.time() * 1000)
            if answer.code == PULL_FOUND:
                self._book.arrive(list(deliveries(answer.body or b"")), now_ms)
            elif answer.code not in (*_NOTHING_NEW, _OFFSET_MOVED):
                raise Refused(answer)
            self._offset = int((answer.ext or {}).get("nextBeginOffset", self._offset))


def body_of(number: int) -> bytes:
    """Return the body of a message: 100 bytes."""
    return b"%08d" % number + b"x" * 92


def all_deliveries(address: str) -> list[Delivery]:
    """Pull the whole topic from one broker."""
    found: list[Delivery] = []
    with Wire(address, 60) as wire:
        for queue_id in range(QUEUES):
            start = wire.min_offset(TOPIC, queue_id)
            found += deliveries(wire.pull_bytes(TOPIC, queue_id, start))
    return found


def deliveries(data: bytes) -> Iterator[Delivery]:
    """
    Read number and store time of the messages in the body of a pull's answer.

    Spec: remoting.md, section 5.4.
    """
    place = 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        flags = int.from_bytes(data[place + 36 : place + 40], "big")
        born_host = 20 if flags & 16 else 8
        store_host = 20 if flags & 32 else 8
        at = place + 48 + born_host
        stored_ms = int.from_bytes(data[at : at + 8], "big")
        at += 8 + store_host + 12
        body = data[at + 4 : at + 4 + int.from_bytes(data[at : at + 4], "big")]
        if body[:_DIGITS].isdigit():
            yield Delivery(int(body[:_DIGITS]), stored_ms)
        place += size
