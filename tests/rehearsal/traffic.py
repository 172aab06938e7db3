"""A day of producers: what was acknowledged must be read at the end."""

from __future__ import annotations

import math
import threading
import time

from rmq_ha.base.errors import RmqHaError
from rmq_ha.client import BlockingClient, Message
from rmq_ha.client.rules.errors import MQClientError

HOURS = 24


class Day(threading.Thread):
    """
    Sends all the time, more by day than by night; what fails is sent again until it is taken.

    :ivar kept: bodies that were answered SEND_OK.
    :ivar taken: those that were answered otherwise: on one machine only, perhaps.
    :ivar failures: attempts that failed, by what they said.
    """

    def __init__(self, name_servers: str, topic: str, hour_s: float, busiest: float) -> None:
        super().__init__(daemon=True)
        self.kept: list[str] = []
        self.taken: list[str] = []
        self.failures: dict[str, int] = {}
        self.over = threading.Event()
        self._where, self._topic = name_servers, topic
        self._hour_s, self._busiest = hour_s, busiest

    def rate(self, elapsed: float) -> float:
        """Messages a second; the day begins at midnight and ends where it began."""
        hour = elapsed / self._hour_s % HOURS
        return self._busiest * (0.1 + 0.9 * (1 - math.cos(hour / HOURS * 2 * math.pi)) / 2)

    def run(self) -> None:
        began = time.monotonic()
        number = 0
        with BlockingClient(self._where) as client:
            while not self.over.is_set():
                number += 1
                self._deliver(client, f"message {number}")
                self.over.wait(1 / self.rate(time.monotonic() - began))

    def _deliver(self, client: BlockingClient, body: str) -> None:
        while not self.over.is_set():
            try:
                result = client.send(Message(self._topic, body.encode()))
            except (MQClientError, RmqHaError) as error:
                words = str(error)[:60]
                self.failures[words] = self.failures.get(words, 0) + 1
                self.over.wait(0.3)
                continue
            (self.kept if result.send_status.name == "SEND_OK" else self.taken).append(body)
            return

    def so_many_more(self, count: int, seconds: float = 120.0) -> int:
        """Wait until so many more are SEND_OK; how many there are then."""
        wanted = len(self.kept) + count
        deadline = time.monotonic() + seconds
        while len(self.kept) < wanted:
            assert self.is_alive(), "the producer died"
            assert time.monotonic() < deadline, f"nothing is taken: {self.failures}"
            time.sleep(0.05)
        return len(self.kept)
