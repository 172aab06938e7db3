"""LeaseQueue: the popped messages of one place that are not answered yet.

Spec: pop.md, sections 2.1 and 2.8.
"""

from collections.abc import Callable, Iterable, Sequence

from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.process_queue import ProcessQueue


class LeaseQueue(ProcessQueue):
    """
    The messages that were popped from one place, a queue or all queues of a broker. Unlike the
    messages of a `ProcessQueue`, they have leases, and two may have the same offset.

    :param has_room: called when a message was answered or its lease has ended.
    """

    def __init__(self, now_ms: int, has_room: Callable[[], object]) -> None:
        super().__init__(now_ms)
        self._has_room = has_room
        self._out: dict[int, tuple[MessageExt, int]] = {}

    @property
    def count(self) -> int:
        """How many messages are popped and not answered, including those with the listener."""
        return len(self._out)

    def unanswered(self) -> list[MessageExt]:
        """Return the messages that are popped and not answered."""
        return [message for message, _ in self._out.values()]

    def lease(self, messages: Iterable[MessageExt], until_ms: int) -> None:
        """
        Add popped messages.

        :param until_ms: when their leases end, in ms of a steady clock.
        """
        for message in messages:
            self._out[id(message)] = message, until_ms

    def still_leased(self, messages: Sequence[MessageExt], now_ms: int) -> list[MessageExt]:
        """Drop messages whose leases have ended, as they come again; return the others."""
        gone = 0
        ended = [
            message
            for message in messages
            if self._out.get(id(message), (message, gone))[1] <= now_ms
        ]
        if not ended:
            return list(messages)
        self.end(ended)
        dropped = {id(message) for message in ended}
        return [message for message in messages if id(message) not in dropped]

    def end(self, messages: Iterable[MessageExt]) -> None:
        """Forget messages that were answered."""
        for message in messages:
            self._out.pop(id(message), None)
        self._has_room()
