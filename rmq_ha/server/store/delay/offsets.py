"""delayOffset.json: the next queue offset of each delay level.

Spec: store.md, section 10.4.
"""

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import decode_delay_offsets


class DelayOffsets(PersistedTable):
    """
    The next queue offset of each level, and its file, which is written some time after a change.

    :param flush_interval_ms: time between the first change and the write.
    :ivar table: next queue offset by level; it has only levels that delivered a message.
    """

    without_file = "delivers all delayed messages in the store once more"

    def __init__(
        self,
        clock: IReactorTime,
        disk: Disk,
        worker: Worker,
        store_path: str,
        flush_interval_ms: int,
    ) -> None:
        super().__init__(disk, worker, f"{store_path}/config/delayOffset.json")
        self._clock = clock
        self._interval = flush_interval_ms / 1000
        self._timer: IDelayedCall | None = None
        self.table: dict[int, int] = {}

    def delivered(self, level: int, next_offset: int) -> None:
        """
        Record the queue offset of the next message of a level, and have the file written soon.
        """
        self.table[level] = next_offset
        self.is_dirty = True
        if self._timer is None:
            self._timer = self._clock.callLater(self._interval, self._on_time)

    def stop(self) -> "Deferred[bool]":
        """
        Write changes that are not written yet.

        Fires when they are on the disk, or when the disk refused.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self.persist_if_dirty()

    def encode(self) -> bytes:
        """Return the text of `delayOffset.json`."""
        return fastjson.pretty({"offsetTable": dict(sorted(self.table.items()))})

    def decode(self, data: bytes) -> None:
        """
        Take over a file's offsets.

        :raises ProtocolViolation: the text does not hold delay offsets.
        """
        self.table.update(decode_delay_offsets(data))

    def _on_time(self) -> None:
        self._timer = None
        self.persist()
