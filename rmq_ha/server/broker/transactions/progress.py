"""The progress of the checks in half and op queues, in memory and for the next master."""

from collections.abc import Callable, Mapping

from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.transactions.messages import GROUP


class CheckProgress:
    """
    Keeps the progress of the checks: in memory at once, and in the table of offsets later.

    The table survives a crash and goes to slaves. So progress is written into it only when the log
    up to which the round read survives a crash as well. Otherwise a broker whose log lost its end
    would never look again at a half message whose op message is lost.

    :param is_safe: returns whether the log up to an offset is flushed, and replicated if sends wait
        for that.
    """

    def __init__(self, offsets: ConsumerOffsetManager, is_safe: Callable[[int], bool]) -> None:
        self._offsets = offsets
        self._is_safe = is_safe
        self._known: dict[tuple[str, int], int] = {}
        self._waiting: dict[int, tuple[int, dict[str, int]]] = {}

    def begin(self) -> None:
        """Forget the progress in memory, so that the offset table's is used."""
        self._known.clear()
        self._waiting.clear()

    def query(self, topic: str, queue_id: int) -> int:
        """Return the queue offset where to continue; -1 if there is none."""
        known = self._known.get((topic, queue_id))
        return self._offsets.query(GROUP, topic, queue_id) if known is None else known

    def set_back(self, queue_id: int, starts: Mapping[str, int]) -> None:
        """Set progress back, in memory and in the table."""
        self._waiting.pop(queue_id, None)
        for topic, offset in starts.items():
            self._known[topic, queue_id] = offset
            self._offsets.commit(GROUP, topic, queue_id, offset)

    def commit(self, queue_id: int, progress: Mapping[str, int], log_end: int) -> None:
        """
        Note how far a round of checks got after it had read the log up to `log_end`.

        The progress is written into the offset table once the log is safe up to `log_end`. While
        the progress of an earlier round still waits for that, this one is written with a later
        round.
        """
        for topic, offset in progress.items():
            self._known[topic, queue_id] = offset
        self._settle(queue_id)
        if queue_id not in self._waiting:
            mine = {
                topic: known for (topic, queue), known in self._known.items() if queue == queue_id
            }
            self._waiting[queue_id] = (log_end, mine)
            self._settle(queue_id)

    def _settle(self, queue_id: int) -> None:
        log_end, progress = self._waiting.get(queue_id, (0, {}))
        if not progress or not self._is_safe(log_end):
            return
        del self._waiting[queue_id]
        for topic, offset in progress.items():
            if offset != max(self._offsets.query(GROUP, topic, queue_id), 0):
                self._offsets.commit(GROUP, topic, queue_id, offset)
