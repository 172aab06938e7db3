"""The load of `bench/pops.py`: senders, consumers that pop, and what consumers saw.

It knows of brokers only the client protocol (pop.md, section 2). Message 7 has the body `00000007`
and padding, and is sent once. A consumer acknowledges most messages within their invisible time,
gives some another invisible time, and leaves the others alone.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timer_load import Route, Worker, body_of

from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_headers import (
    AckHeader,
    ChangeInvisibleHeader,
    PopAnswerHeader,
    PopHeader,
)
from rmq_ha.base.wire.pop_places import parse_start_offsets
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client.lookup.requests import send_request
from tests.interop.wire import Refused, Wire

TOPIC, GROUP = "Popped", "PopsG"
QUEUES = 4
_STORED_UNSURELY = (10, 11, 12)
_NO_MESSAGE = (209, 210)
_GONE = 208
_HOLD_MS = 2000
_MOST_AT_ONCE = 32
_DIGITS = 8


@dataclass(slots=True)
class Delivery:
    """
    A message in the answer of a pop. Times are ms since the epoch.

    :ivar number: that of the body; -1 if it has none.
    :ivar popped: when the broker chose it, which names the lease.
    :ivar due: until when it is hidden, as the answers say.
    :ivar first_popped: when a broker first chose it, as retries say.
    :ivar acked: when an acknowledgement was answered with success; 0 if none was.
    :ivar asks: number of acknowledgements that were sent and not refused.
    :ivar is_sure: whether `due` is known: no change and no acknowledgement is open or failed.
    """

    number: int
    receipt: PopReceipt
    popped: int
    due: int
    reconsumed: int
    first_popped: int = 0
    acked: int = 0
    asks: int = 0
    is_sure: bool = True


class Plan(NamedTuple):
    """
    What a consumer will do with a delivery.

    :ivar at: when, seconds since the epoch.
    :ivar invisible_ms: of a change; 0 for an acknowledgement.
    """

    at: float
    serial: int
    delivery: Delivery
    invisible_ms: int


class PopBook:
    """
    What was sent and answered, and what came. Several threads use it.

    :ivar kept: numbers of the messages whose send was answered with success.
    :ivar unsure: numbers of those that may be stored.
    :ivar deliveries: by number, in the order of the answers.
    :ivar codes: how often each code was the answer.
    :ivar is_draining: whether consumers acknowledge everything at once.
    """

    def __init__(self, seed: int, invisible_ms: int) -> None:
        self._lock = threading.Lock()
        self._random = Random(f"{seed}/fates")
        self._invisible_ms = invisible_ms
        self._plans: list[Plan] = []
        self._serial = self._sent = 0
        self.kept: set[int] = set()
        self.unsure: set[int] = set()
        self.deliveries: dict[int, list[Delivery]] = {}
        self.codes: Counter[str] = Counter()
        self.acknowledged_at = 0.0
        self.came_at = 0.0
        self.is_draining = False

    def begin(self, count: int) -> range:
        """Return numbers for messages that are about to be sent."""
        with self._lock:
            first, self._sent = self._sent, self._sent + count
            self.unsure.update(range(first, self._sent))
            return range(first, self._sent)

    def sent(self, number: int, code: int) -> None:
        """Note the answer to a send."""
        with self._lock:
            self.codes[f"send {code}"] += 1
            if code not in _STORED_UNSURELY:
                self.unsure.discard(number)
            if code == 0:
                self.kept.add(number)
                self.acknowledged_at = time.time()

    def popped(self, found: list[Delivery]) -> None:
        """Note messages that came, and plan what becomes of them."""
        now, random = time.time(), self._random
        with self._lock:
            self.came_at = now
            for delivery in found:
                self.deliveries.setdefault(delivery.number, []).append(delivery)
                fate = random.random()
                left = max(0.0, delivery.due / 1000 - now)
                if self.is_draining:
                    self._plan(now, delivery, 0)
                elif fate < 0.85:
                    self._plan(now + random.random() * left * 0.9, delivery, 0)
                elif fate < 0.92:
                    invisible_ms = random.choice((1000, 3000, 10_000))
                    self._plan(now + random.random() * left * 0.5, delivery, invisible_ms)

    def _plan(self, at: float, delivery: Delivery, invisible_ms: int) -> None:
        self._serial += 1
        heapq.heappush(self._plans, Plan(at, self._serial, delivery, invisible_ms))

    def again(self, plans: list[Plan]) -> None:
        """Repeat acknowledgements that were not answered, in half a second."""
        with self._lock:
            for plan in plans:
                self._plan(time.time() + 0.5, plan.delivery, plan.invisible_ms)

    def due_plans(self) -> list[Plan]:
        """Take what is to be done now."""
        with self._lock:
            taken = []
            while self._plans and self._plans[0].at <= time.time() and len(taken) < 64:
                plan = heapq.heappop(self._plans)
                plan.delivery.is_sure = False  # it may count from now on
                plan.delivery.asks += plan.invisible_ms == 0
                taken.append(plan)
            return taken

    def settle(self, plan: Plan, answer: RemotingCommand) -> None:
        """Note the answer to an acknowledgement or a change."""
        delivery, now_ms = plan.delivery, int(time.time() * 1000)
        with self._lock:
            name = "change" if plan.invisible_ms else "ack"
            self.codes[f"{name} {answer.code}"] += 1
            if plan.invisible_ms:
                if answer.code == 0:
                    header = PopAnswerHeader.read(answer.ext)
                    delivery.due = header.pop_time + header.invisible_time
                    delivery.is_sure = True
            elif answer.code == 0:
                delivery.acked = delivery.acked or now_ms
            elif answer.code == _GONE:
                delivery.asks -= 1

    def out(self) -> int:
        """Return how many messages are out, as the consumers know it."""
        now_ms = time.time() * 1000
        with self._lock:
            lasts = [items[-1] for items in self.deliveries.values()]
        return sum(1 for last in lasts if not last.acked and last.due > now_ms)

    def open(self) -> int:
        """Return how many kept messages no acknowledgement has ended."""
        with self._lock:
            ended = sum(
                number in self.kept and any(item.acked for item in items)
                for number, items in self.deliveries.items()
            )
            return len(self.kept) - ended


class PopSender(Worker):
    """Sends messages at a rate."""

    def __init__(self, book: PopBook, route: Route, rate: float) -> None:
        super().__init__(route)
        self._book, self._rate = book, rate
        self._began, self._sent = time.monotonic(), 0

    def talk(self, wire: Wire) -> None:
        while not self._stopping.is_set():
            owed = int((time.monotonic() - self._began) * self._rate) - self._sent
            if owed > self._rate:  # it stood still: what was not sent then is not sent now
                self._sent += owed - _MOST_AT_ONCE
            count = min(owed, _MOST_AT_ONCE)
            if count <= 0:
                self._stopping.wait(0.02)
                continue
            self._sent += count
            now = int(time.time() * 1000)
            numbers = self._book.begin(count)
            requests = [
                send_request("pops", TOPIC, n % QUEUES, body_of(n), f"UNIQ_KEY\x01{n:032X}", now)
                for n in numbers
            ]
            answers = wire.exchange(requests)
            for number, answer in zip(numbers, answers, strict=True):
                self._book.sent(number, answer.code)
            for answer in answers:
                if answer.code not in (0, *_STORED_UNSURELY):
                    raise Refused(answer)


class Consumer(Worker):
    """Pops messages of all queues, held by the broker until something comes."""

    def __init__(self, book: PopBook, route: Route, invisible_ms: int) -> None:
        super().__init__(route)
        self._book, self._invisible_ms = book, invisible_ms

    def talk(self, wire: Wire) -> None:
        while not self._stopping.is_set():
            header = PopHeader(
                GROUP,
                TOPIC,
                -1,
                _MOST_AT_ONCE,
                self._invisible_ms,
                _HOLD_MS,
                int(time.time() * 1000),
            )
            (answer,) = wire.exchange([RemotingCommand(RequestCode.POP_MESSAGE, header.ext())])
            self._book.codes[f"pop {answer.code}"] += 1
            if answer.code == 0:
                self._book.popped(popped_messages(answer, self._route.broker_name))
            elif answer.code not in _NO_MESSAGE:
                raise Refused(answer)


class Acknowledger(Worker):
    """Acknowledges and changes what the book has planned, many requests at a time."""

    def __init__(self, book: PopBook, route: Route) -> None:
        super().__init__(route)
        self._book = book

    def talk(self, wire: Wire) -> None:
        while not self._stopping.is_set():
            plans = self._book.due_plans()
            if not plans:
                self._stopping.wait(0.02)
                continue
            try:
                answers = wire.exchange([_request_of(plan) for plan in plans])
            except OSError:
                self._book.again([plan for plan in plans if not plan.invisible_ms])
                raise
            for plan, answer in zip(plans, answers, strict=True):
                self._book.settle(plan, answer)
            refused = [
                plan
                for plan, answer in zip(plans, answers, strict=True)
                if answer.code not in (0, _GONE) and not plan.invisible_ms
            ]
            if refused:
                self._book.again(refused)
                raise ConnectionError("the broker takes no acknowledgement now")


def _request_of(plan: Plan) -> RemotingCommand:
    receipt = plan.delivery.receipt
    retry = {0: "", 1: f"%RETRY%{GROUP}_", 2: f"%RETRY%{GROUP}+"}[receipt.kind]
    topic, text = retry + TOPIC, receipt.encode()
    if plan.invisible_ms:
        change = ChangeInvisibleHeader(
            GROUP, topic, receipt.queue_id, text, receipt.offset, plan.invisible_ms
        )
        return RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change.ext())
    ack = AckHeader(GROUP, topic, receipt.queue_id, text, receipt.offset)
    return RemotingCommand(RequestCode.ACK_MESSAGE, ack.ext())


def popped_messages(answer: RemotingCommand, broker_name: str) -> list[Delivery]:
    """Read the answer of a pop, as RocketMQ's client does."""
    header = PopAnswerHeader.read(answer.ext)
    starts = parse_start_offsets(header.start_offset_info or "")
    found = []
    for record in decode_records(answer.body or b""):
        text = record.properties.get("POP_CK")
        if text is None:
            receipt = PopReceipt(
                starts[0, record.queue_id],
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                0,
                broker_name,
                record.queue_id,
                record.queue_offset,
            )
        else:
            receipt = PopReceipt.parse(text)
        digits = record.body[:_DIGITS]
        found.append(
            Delivery(
                int(digits) if digits.isdigit() else -1,
                receipt,
                receipt.pop_time,
                receipt.pop_time + receipt.invisible_ms,
                record.reconsume_times,
                int(record.properties.get("1ST_POP_TIME", receipt.pop_time)),
            )
        )
    return found
