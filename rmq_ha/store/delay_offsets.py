"""delayOffset.json: how far each delay level was delivered.

Spec: store.md, section 10.4.
"""

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.errors import ProtocolViolation, StoreError
from rmq_ha.seams import Disk, Worker
from rmq_ha.wire import fastjson


class DelayOffsets:
    """
    The next queue offset of each level, and its file, which is written some time after a change.

    :param flush_interval_ms: from the first change to the write.
    :ivar table: next queue offset by level; only levels that delivered something.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        disk: Disk,
        worker: Worker,
        store_path: str,
        flush_interval_ms: int,
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._worker = worker
        self._path = f"{store_path}/config/delayOffset.json"
        self._interval = flush_interval_ms / 1000
        self._is_dirty = False
        self._keeps_backup = True
        self._timer: IDelayedCall | None = None
        self._writing: Deferred[None] = succeed(None)
        self.table: dict[int, int] = {}

    def load(self) -> None:
        """
        Take over the file's offsets; with neither file nor backup nothing changes.

        :raises StoreError: the file is missing or damaged, and its backup is damaged.
        """
        found = fault = None
        for path in (self._path, f"{self._path}.bak"):
            try:
                found = _decode(self._disk.read_bytes(path))
                self._keeps_backup = fault is None  # a damaged file is no backup
                break
            except FileNotFoundError:
                continue
            except (ProtocolViolation, OSError) as error:
                self.log.error("cannot read {path}: {error}", path=path, error=error)
                fault = fault if fault and path == self._path else f"{path}: {error}"
        if found is not None:
            self.table.update(found)
        elif fault is not None and fault.startswith(f"{self._path}.bak"):
            raise StoreError(
                f"{self._path} is of no use, nor is its backup ({fault}); repair one of them, or "
                "remove both to deliver all delayed messages in the store once more"
            )

    def delivered(self, level: int, next_offset: int) -> None:
        """The level goes on at this queue offset."""
        self.table[level] = next_offset
        self._is_dirty = True
        if self._timer is None:
            self._timer = self._clock.callLater(self._interval, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._write()

    def _write(self) -> "Deferred[None]":
        """Write after the write that is under way; fires when done, also when that failed."""
        self._writing.addCallback(self._start_write)
        return self._writing

    def _start_write(self, _: None) -> "Deferred[None]":
        self._is_dirty = False
        data = fastjson.pretty({"offsetTable": dict(sorted(self.table.items()))})
        return self._worker.call(self._replace, data, self._keeps_backup).addCallbacks(
            self._on_written, self._on_failure
        )

    def _replace(self, data: bytes, backup: bool) -> None:
        self._disk.replace(self._path, data, backup=backup)

    def _on_written(self, _: None) -> None:
        self._keeps_backup = True

    def _on_failure(self, failure: Failure) -> None:
        self._is_dirty = True
        self.log.failure("cannot write {path}", failure=failure, path=self._path)

    def stop(self) -> "Deferred[None]":
        """Write what was not written yet; fires when it is on the disk, or was refused."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        done: Deferred[None] = Deferred()
        writing = self._write() if self._is_dirty else self._writing
        writing.addCallback(lambda _: done.callback(None))
        return done


def _decode(data: bytes) -> dict[int, int]:
    """:raises ProtocolViolation: these are no delay offsets."""
    value = fastjson.parse(data)
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if table is None:
        table = {}
    try:
        return {int(level): int(offset) for level, offset in table.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ProtocolViolation(f"offsetTable is not a map of numbers: {error}") from error
