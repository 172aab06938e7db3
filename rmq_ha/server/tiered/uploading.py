"""Copies sealed files of the log into the tier, and deletes what the tier keeps no longer."""

from collections.abc import Callable, Iterator
from zlib import crc32

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.model.topics import HOLD_OTHERS, is_of_rocketmq_5
from rmq_ha.base.seams import Disk, Host
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.timing.slices import in_slices
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.tiered.blocks import BlockCache
from rmq_ha.server.tiered.catalogue import Catalogue, read_segment
from rmq_ha.server.tiered.objects import ObjectStore, TierError
from rmq_ha.server.tiered.segments import (
    SegmentKeys,
    TierSegment,
    encode_segment,
    parts_of,
)

PART = 16 << 20
"""Bytes of a part of an upload, which the worker reads and sends in one call."""
_ROUND_S = 10.0
_HOUR_MS = 3_600_000
_QUEUES_A_TURN = 200


class LocalLog:
    """
    The local files of the log, as the uploader needs them.

    :param sealed_to: returns the physical offset up to which the log is on the disk and dispatched.
    :param end: returns the physical offset of the log's end.
    :param store_time: returns the store time of a message by topic, queue id and queue offset, ms.
    """

    def __init__(
        self,
        row: FileRow,
        queues: ConsumeQueueTable,
        sealed_to: Callable[[], int],
        end: Callable[[], int],
        store_time: Callable[[str, int, int], int],
    ) -> None:
        self.row = row
        self.queues = queues
        self.sealed_to = sealed_to
        self.end = end
        self.store_time = store_time

    def sealed(self) -> list[int]:
        """Return the physical offsets of sealed files, rising."""
        sealed_to = self.sealed_to()
        return [start for start in self.row.starts if start + self.row.file_size <= sealed_to]


class Tier:
    """
    Keeps the catalogue as the object store has it. On a master it also uploads and deletes.

    Provides `rmq_ha.server.store.journal.LogState`.

    :param kept_hours: segments whose last message is older are deleted; 0: none.
    :ivar failures: how many rounds have failed.
    :ivar trouble: why the last round failed; empty if it did not.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        objects: ObjectStore,
        keys: SegmentKeys,
        catalogue: Catalogue,
        blocks: BlockCache,
        local: LocalLog,
        kept_hours: int,
    ) -> None:
        self._blocks = blocks
        self._host = host
        self._objects = objects
        self._keys = keys
        self._catalogue = catalogue
        self._local = local
        self._kept_ms = kept_hours * _HOUR_MS
        self._leads = False
        self._is_compared = False
        self._is_known = False
        self._periodic = Periodic(host.clock, "tiered storage", self._round, _ROUND_S, 0.1)
        self.failures = 0
        self.trouble = ""

    def begin(self) -> None:
        self._periodic.start()

    def start(self) -> None:
        self._leads, self._is_compared, self._is_known = True, False, False

    def stop(self) -> None:
        self._leads = False

    async def close(self) -> None:
        self.stop()
        await self._periodic.stop()

    def releases(self, end: int) -> bool:
        """
        Return whether the local files below a physical offset may be deleted.

        The newest file that the tier has stays here. A slave that begins with the tier compares its
        last message with the master's.
        """
        if end >= self._catalogue.end:
            return False
        size = self._local.row.file_size
        below = [start for start in self._local.row.starts if start + size <= end]
        return all(self._catalogue.get(start) is not None for start in below)

    def figures(self) -> dict[str, float]:
        """Return the metrics of the tier, by their names without `rmqha_tier_`."""
        return {
            "size_bytes": self._catalogue.size,
            "waiting_bytes": self.waiting(),
            "failing": bool(self.trouble),
            "read_bytes_total": self._blocks.read_bytes,
        }

    def waiting(self) -> int:
        """Return the bytes of sealed files that the tier does not have yet."""
        missing = [start for start in self._local.sealed() if self._catalogue.get(start) is None]
        return len(missing) * self._local.row.file_size

    def _round(self) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._run())

    async def _run(self) -> None:
        try:
            await self._refresh()
            if self._leads and not self._is_compared:
                await self._compare()
            if self._leads:
                await self._expire()
            for start in self._local.sealed():
                if not self._leads:
                    break
                if self._catalogue.get(start) is None:
                    await self._upload(start)
        except (TierError, OSError) as error:
            self.failures += 1
            if self.trouble != str(error):
                self.log.error(
                    "tiered storage: {error}; trying again every {seconds} s. Local files of the "
                    "log that the object store does not have are not deleted",
                    error=error,
                    seconds=int(_ROUND_S),
                )
            self.trouble = str(error)
        else:
            if self.trouble:
                self.log.info("tiered storage works again")
            self.trouble = ""

    async def _refresh(self) -> None:
        """Read the descriptions of new segments; forget segments that are not there any more."""
        if self._leads and self._is_known:
            return  # only the master changes the tier
        call, keys = self._host.worker.call, self._keys
        starts = keys.starts(await call(self._objects.keys, keys.segments))
        for start in set(self._catalogue.starts).difference(starts):
            self._catalogue.remove(start)
        for start in starts:
            if self._catalogue.get(start) is None:
                self._catalogue.add(await call(read_segment, self._objects, keys, start))
        self._is_known = self._leads

    async def _compare(self) -> None:
        """
        Delete the newest segments, as long as this master's log does not have the same bytes there.

        A former master may have uploaded messages that no slave had. They are not in the log of its
        successor.
        """
        for segment in list(self._catalogue.all())[::-1]:
            if segment.end > self._local.end():
                why = f"the log of this master ends at {self._local.end()}"
            elif segment.start not in self._local.row.starts or await self._is_same(segment):
                break  # logs do not part before a file that they share
            else:
                why = "this master has other bytes there"
            self.log.warn(
                "tiered storage: the segment at {start} is deleted, since {why}: a former master "
                "uploaded it, and lost messages of it in a fail-over",
                start=segment.start,
                why=why,
            )
            await self._delete(segment.start)
        self._is_compared = True

    async def _is_same(self, segment: TierSegment) -> bool:
        path = self._local.row.path(segment.start)
        crc = 0
        for position in range(0, segment.size, PART):
            data = await self._host.worker.call(
                _read, self._host.disk, path, segment.size, position
            )
            crc = crc32(data, crc)
        return crc == segment.crc

    async def _expire(self) -> None:
        """Delete segments that are older than the tier keeps messages."""
        if not self._kept_ms:
            return
        oldest_ms = self._host.now_ms() - self._kept_ms
        for segment in self._catalogue.all():
            # What is here still would be uploaded again.
            if segment.last_ms >= oldest_ms or segment.start in self._local.row.starts:
                return
            self.log.info("tiered storage: deleting the segment at {start}", start=segment.start)
            await self._delete(segment.start)

    async def _delete(self, start: int) -> None:
        self._catalogue.remove(start)
        for key in (self._keys.segment(start), self._keys.log(start), self._keys.units(start)):
            await self._host.worker.call(self._objects.delete, key)

    async def _upload(self, start: int) -> None:
        """Write the objects of a sealed file; its description comes last."""
        row, call = self._local.row, self._host.worker.call
        before = self._catalogue.end
        if self._catalogue.starts and start > before:
            self.log.warn(
                "tiered storage: messages from {before} to {start} of the log are neither here nor "
                "in the object store: they were deleted here while tiered storage was off",
                before=before,
                start=start,
            )
        crc = await self._copy(start, row.path(start), row.file_size)
        if crc is None:
            return
        units: list[tuple[str, int, int, bytes]] = []
        span = [0, 0]
        await in_slices(self._host.clock, self._units(start, units, span))
        parts, data = parts_of(units)
        await call(self._objects.put, self._keys.units(start), data)
        segment = TierSegment(start, row.file_size, crc, span[0], span[1], parts)
        await call(self._objects.put, self._keys.segment(start), encode_segment(segment))
        self._catalogue.add(segment)
        self.log.info(
            "tiered storage has the log from {start} to {end}, {messages} messages of {queues} "
            "queues",
            start=start,
            end=segment.end,
            messages=sum(part.count for part in parts),
            queues=len(parts),
        )

    async def _copy(self, start: int, path: str, size: int) -> int | None:
        """Upload a file in parts; return its CRC-32, or None if this broker stops or follows."""
        call, disk, key = self._host.worker.call, self._host.disk, self._keys.log(start)
        upload = await call(self._objects.begin, key)
        tags: list[str] = []
        crc = 0
        try:
            for position in range(0, size, PART):
                if not self._leads:
                    await call(self._objects.abandon, key, upload)
                    return None
                data = await call(_read, disk, path, size, position)
                crc = crc32(data, crc)
                tags.append(await call(self._objects.put_part, key, upload, len(tags) + 1, data))
            await call(self._objects.finish, key, upload, tags)
        except (TierError, OSError):
            await call(self._objects.abandon, key, upload)
            raise
        return crc

    def _units(
        self, start: int, units: list[tuple[str, int, int, bytes]], span: list[int]
    ) -> Iterator[None]:
        """
        Collect the units of all queues that lie in a file.

        :param span: gets the store times of the first and of the last message.
        """
        end = start + self._local.row.file_size
        first, last = (end, "", 0, 0), (-1, "", 0, 0)
        for at, ((topic, queue_id), queue) in enumerate(list(self._local.queues.items())):
            if at % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
                yield
            if topic in HOLD_OTHERS or is_of_rocketmq_5(topic):
                continue  # only the broker reads these, and only while it has work to do
            low, high = queue.offset_by_place(start), queue.offset_by_place(end)
            data = bytearray()
            while low + len(data) // UNIT_SIZE < high:
                offset = low + len(data) // UNIT_SIZE
                piece = queue.unit_bytes(offset, (high - offset) * UNIT_SIZE)
                if not piece:
                    break
                data += piece
            if not data:
                continue
            units.append((topic, queue_id, low, bytes(data)))
            for offset in (low, high - 1):
                unit = queue.unit(offset)
                if unit is not None and start <= unit[0] < end:
                    here = (unit[0], topic, queue_id, offset)
                    first, last = min(first, here), max(last, here)
        if last[1]:
            span[:] = [self._local.store_time(*first[1:]), self._local.store_time(*last[1:])]


def _read(disk: Disk, path: str, size: int, position: int) -> bytes:
    """Read one part of a file; blocks."""
    file = disk.open(path, size)
    try:
        return file.pread(min(PART, size - position), position)
    finally:
        file.close()
