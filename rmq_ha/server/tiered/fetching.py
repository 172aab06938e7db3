"""Fills an empty store with files of the log from the tier."""

from collections.abc import Callable
from zlib import crc32

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.seams import Disk
from rmq_ha.server.tiered.objects import ObjectStore, TierError
from rmq_ha.server.tiered.segments import SegmentKeys, TierSegment, decode_segment
from rmq_ha.server.tiered.uploading import PART


def segments_to_fetch(objects: ObjectStore, keys: SegmentKeys, since_ms: int) -> list[TierSegment]:
    """
    Return the newest segments of the tier that follow each other.

    :param since_ms: segments whose last message is older are left out, but for the newest one.
    :raises CannotDecide: the tier has no segments of this broker.
    :raises TierError: the object store cannot be read.
    """
    chosen: list[TierSegment] = []
    for start in reversed(keys.starts(objects.keys(keys.segments))):
        key = keys.segment(start)
        try:
            segment = decode_segment(objects.get(key))
        except ValueError as error:
            raise TierError(f"{key}: {error}") from error
        if chosen and (segment.end != chosen[0].start or segment.last_ms < since_ms):
            break
        chosen.insert(0, segment)
    if not chosen:
        raise CannotDecide(
            f"the object store has nothing below {keys.segments}: are tiered.bucket, "
            "tiered.prefix, brokerClusterName and brokerName those of the master?"
        )
    return chosen


def fetch_segments(
    objects: ObjectStore,
    keys: SegmentKeys,
    segments: list[TierSegment],
    disk: Disk,
    root: str,
    log: str,
    tell: Callable[[int], object],
) -> None:
    """
    Write the log files of segments into an empty store. Its first start reads every record, and
    builds queues and index.

    :param root: the store's directory.
    :param log: the directory of the log.
    :param tell: called with the number of bytes that were just written.
    :raises CannotDecide: the directories are not empty, or the disk has no room.
    :raises TierError: an object cannot be read, or has other bytes than it should.
    """
    occupied = [path for path in (log, f"{root}/config") if disk.list_dir(path)]
    if occupied or disk.exists(f"{root}/checkpoint"):
        raise CannotDecide(f"{(occupied or [root])[0]} is not empty: fetch into a new store")
    for segment in segments:
        file = disk.open(f"{log}/{segment.start:020d}", segment.size)
        crc = 0
        try:
            for position in range(0, segment.size, PART):
                data = objects.get(keys.log(segment.start), position, PART)
                file.pwrite(data, position)
                crc = crc32(data, crc)
                tell(len(data))
            file.sync()
        finally:
            file.close()
        if crc != segment.crc:
            disk.remove(f"{log}/{segment.start:020d}")
            raise TierError(
                f"{keys.log(segment.start)} has not the CRC-32 that its segment names: remove "
                f"{log}, and fetch from a good copy of the object, or let the slave copy the log "
                "from its master"
            )
    # Without the next file the log would end before the filler of the last segment, at a place that
    # the master may have deleted.
    last = segments[-1]
    disk.open(f"{log}/{last.end:020d}", last.size).close()
    # The mark of a crash makes the start read all of the log, and trust no other file.
    disk.replace(f"{root}/abort", b"")
