"""Puts that wait for the brokers in sync, and the status that each of them ends with.

Spec: controller.md, section 8.6 and chapter 14, hazard 2.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rmq_ha.base.model.status import Decided, PutMessageStatus


class _Put(NamedTuple):
    """
    Somebody waits for a place in the log to be kept.

    :ivar came: when the put came, in seconds.
    """

    end: int
    came: float
    deadline: float
    decided: Decided


class WaitingPuts:
    """
    In the order of their places in the log, which is that of their deadlines.

    A producer of RocketMQ takes FLUSH_SLAVE_TIMEOUT (12) for a success and does not send again.
    So a put gets 12 only while the controllers say that this broker leads: the message is in the
    log and stays there unless this broker dies. All other puts that cannot be kept get
    SERVICE_NOT_AVAILABLE (14): the next master cuts them off, and the producer sends again.
    """

    def __init__(self) -> None:
        self._puts: deque[_Put] = deque()

    def __len__(self) -> int:
        return len(self._puts)

    def add(self, end: int, came: float, seconds: float, decided: Decided) -> None:
        """Wait for that place, for so many seconds at most."""
        self._puts.append(_Put(end, came, came + seconds, decided))

    @property
    def deadline(self) -> float | None:
        """When the time of the first put is over; None: no put waits."""
        return self._puts[0].deadline if self._puts else None

    def settle(self, is_kept: Callable[[int], bool], led_until: float, now: float) -> None:
        """
        End the puts that are kept, and those whose time is over.

        :param is_kept: whether enough brokers hold the log up to a place.
        :param led_until: up to when the controllers' answers prove that nobody else was elected.
        """
        puts = self._puts
        while puts and is_kept(puts[0].end):
            puts.popleft().decided(PutMessageStatus.PUT_OK, now)
        while puts and puts[0].deadline <= now:
            put = puts.popleft()
            status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            if led_until < put.came:
                status = PutMessageStatus.SERVICE_NOT_AVAILABLE
            put.decided(status, now)

    def give_up(self, now: float) -> None:
        """This broker leads no more: nobody will say that the others have what it wrote."""
        waiting, self._puts = self._puts, deque()
        for put in waiting:
            put.decided(PutMessageStatus.SERVICE_NOT_AVAILABLE, now)
