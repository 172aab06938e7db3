"""Producers of a simulation, and the result of each of their attempts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    BrokerMessage,
    MessageBatch,
    PutMessageResult,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.testing.clock import SimClock

TOPICS = ("TopicA", "TopicB")
QUEUES = 3
_BORN = Address(b"\x7f\x00\x00\x09", 50000)


@dataclass
class Attempt:
    """
    One message that a producer tried to put.

    :ivar life: the machine that took it, and the number of that machine's life.
    :ivar fired: how often a result came; 1 at the end, or 0 if that life ended in a crash.
    :ivar end: physical offset of the end of its record; for a batch, of the batch, which is what
        replication waited for.
    :ivar held_by: machines that have it, as far as results said so.
    :ivar excused: why it may be missing; empty: it has to be there.
    """

    unique_id: str
    topic: str
    queue_id: int
    life: tuple[str, int]
    asked_at: float
    fired: int = 0
    status: PutMessageStatus | None = None
    answered_at: float = 0.0
    offset: int = -1
    end: int = -1
    queue_offset: int = -1
    held_by: set[str] = field(default_factory=set)
    excused: str = ""

    def settle(self, status: PutMessageStatus, append: AppendResult | None, now: float) -> None:
        """
        Take one result of this attempt, and count it.

        :param append: the place of the record; None: nothing was stored.
        :param now: simulated seconds.
        """
        self.fired += 1
        self.status = status
        self.answered_at = now
        if append is not None:
            self.offset = append.physical_offset
            self.end = append.next_offset
            self.queue_offset = append.queue_offset


class Target(Protocol):
    """The place where a producer puts: the master of a pair."""

    @property
    def life(self) -> tuple[str, int]:
        """Name of the machine, and the number of its present life."""

    @property
    def open_store(self) -> Any:
        """Its `IMessageStore`; None while it is down."""

    @property
    def store_host(self) -> Address:
        """The address that is written into records."""


class Audience(Protocol):
    """An object that is told of each attempt when its result has come."""

    def answered(self, attempt: Attempt) -> None:
        """Take an attempt whose result came just now."""


class Load(Protocol):
    """A producer or other load on a pair."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Begin no more work; results still come."""


class ProducerLoad(Load, Protocol):
    """
    A load that puts messages.

    :ivar attempts: every message that it tried to put, by unique id.
    """

    attempts: dict[str, Attempt]


class DirectProducer:
    """
    Puts messages straight into a store: single ones, batches, and many at a time.

    :param target: returns the present master.
    :param pause: seconds between puts, on average.
    :ivar attempts: every message that it tried to put, by unique id.
    """

    def __init__(
        self,
        name: str,
        clock: SimClock,
        random: Random,
        target: Callable[[], Target],
        audience: Audience,
        pause: float,
    ) -> None:
        self.attempts: dict[str, Attempt] = {}
        self._name = name
        self._clock = clock
        self._random = random
        self._target = target
        self._audience = audience
        self._pause = pause
        self._running = False
        self._count = 0

    def start(self) -> None:
        """Begin."""
        self._running = True
        self._clock.call_at(self._clock.seconds() + self._random.random() * self._pause, self._tick)

    def stop(self) -> None:
        """Put nothing more; results still come."""
        self._running = False

    def _tick(self) -> None:
        if not self._running:
            return
        pause = self._random.expovariate(1 / self._pause)
        self._clock.call_at(self._clock.seconds() + pause, self._tick)
        store = self._target().open_store
        if store is not None:
            kind = self._random.random()
            if kind < 0.6:
                self._put_one(store)
            elif kind < 0.75:
                self._put_batch(store)
            else:
                self._put_many(store)

    def _attempt(self, topic: str, queue_id: int) -> Attempt:
        self._count += 1
        unique_id = f"{self._name}-{self._count:06d}"
        attempt = Attempt(unique_id, topic, queue_id, self._target().life, self._clock.seconds())
        self.attempts[unique_id] = attempt
        return attempt

    def _message(self) -> tuple[Attempt, BrokerMessage]:
        random = self._random
        attempt = self._attempt(random.choice(TOPICS), random.randrange(QUEUES))
        properties = self._properties(attempt)
        message = BrokerMessage(
            topic=attempt.topic,
            queue_id=attempt.queue_id,
            body=self._body(),
            born_host=_BORN,
            store_host=self._target().store_host,
            born_timestamp=1,
            properties=properties,
            properties_string="\x02".join(f"{k}\x01{v}" for k, v in properties.items()),
        )
        return attempt, message

    def _properties(self, attempt: Attempt) -> dict[str, str]:
        random = self._random
        properties = {"UNIQ_KEY": attempt.unique_id}
        if random.random() < 0.5:
            properties["TAGS"] = random.choice(("red", "green", "blue"))
        if random.random() < 0.3:
            properties["KEYS"] = f"k{random.randrange(20)} k{random.randrange(20)}"
        return properties

    def _body(self) -> bytes:
        size = self._random.choice((0, 10, 100, 100, 300, 1000))
        return self._random.randbytes(1) * size

    def _put_one(self, store: Any) -> None:
        attempt, message = self._message()
        store.put_message(message).addCallback(self._one_done, attempt)

    def _one_done(self, result: PutMessageResult, attempt: Attempt) -> None:
        self._settle(attempt, result.status, result.append)

    def _put_batch(self, store: Any) -> None:
        topic, queue_id = self._random.choice(TOPICS), self._random.randrange(QUEUES)
        attempts = [self._attempt(topic, queue_id) for _ in range(self._random.randint(2, 5))]
        members = [(0, self._body(), f"UNIQ_KEY\x01{attempt.unique_id}") for attempt in attempts]
        batch = MessageBatch(topic, queue_id, _BORN, self._target().store_host, members)
        store.put_batch(batch).addCallback(self._batch_done, attempts)

    def _batch_done(self, result: PutMessageResult, attempts: list[Attempt]) -> None:
        """
        Take the result of a batch. It has only the first message's offset; replication waited for
        the end of the whole batch.
        """
        append = result.append
        for number, attempt in enumerate(attempts):
            self._settle(attempt, result.status, append)
            if append is not None:
                attempt.queue_offset = append.queue_offset + number

    def _put_many(self, store: Any) -> None:
        pairs = [self._message() for _ in range(self._random.randint(1, 12))]
        attempts = [attempt for attempt, _ in pairs]
        store.put_many([message for _, message in pairs], _PutCallback(self, attempts))

    def many_done(self, attempts: list[Attempt], results: list[PutMessageResult]) -> None:
        """Take the results of one `put_many`, in the order of its attempts."""
        for attempt, result in zip(attempts, results, strict=True):
            self._settle(attempt, result.status, result.append)

    def _settle(
        self, attempt: Attempt, status: PutMessageStatus, append: AppendResult | None
    ) -> None:
        attempt.settle(status, append, self._clock.seconds())
        self._audience.answered(attempt)


class _PutCallback:
    """The callback of one `put_many`."""

    def __init__(self, producer: DirectProducer, attempts: list[Attempt]) -> None:
        self._producer = producer
        self._attempts = attempts

    def __call__(self, results: list[PutMessageResult]) -> None:
        self._producer.many_done(self._attempts, results)
