"""What a store vouches for must be safe: not in the page cache, but on the disk.

Three things vouch: `flushed_offset` and the answers to puts under SYNC_FLUSH for the log; the file
`checkpoint`, by its offset and times, for the log and the queues; and the file `abort`, by its
absence, for everything.
"""

from struct import Struct

from rmq_ha.base.model.status import FlushDiskType, PutMessageStatus
from rmq_ha.base.store_format.checkpoint import CheckpointTimes, CompletePositions
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.base.store_format.index import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, IndexHeader

UNIT = Struct(">qiq")
STORED_AT = Struct(">q")


def check(disk, store):
    """All that this store vouches for now."""
    check_flushed(disk, store)
    root = store.configuration.store.store_path_root_dir
    check_checkpoint(disk, store, f"{root}/checkpoint")
    if not disk.paths(f"{root}/abort"):
        unsafe = [path for path in disk.paths(root) if not disk.is_safe(path)]
        assert not unsafe, f"no abort file: the next start believes {unsafe}, which is not synced"


def check_flushed(disk, store):
    """The log up to `flushed_offset`."""
    log = store.log
    for start in log.row.starts:
        assert is_log_safe(disk, log, start, min(start + log.row.file_size, log.flushed_offset)), (
            f"flushed_offset is {log.flushed_offset}, but {log.row.path(start)} is not synced"
        )


def check_checkpoint(disk, store, path):
    """
    Whatever is older than the checkpoint's times: records in the log, units in the queues.

    A record that shares its millisecond with the newest one may come later; recovery goes three
    seconds back for it. It also writes queues anew, and will do so again until the next checkpoint.
    """
    if not disk.paths(path) or store.queue_flusher.is_broken:
        return
    page = disk.content(path)
    times, whole = CheckpointTimes.decode(page), CompletePositions.decode(page, disk.place_of(path))
    if times == store.found_times:
        return
    assert disk.is_safe(path), "the checkpoint was written and not synced"
    for index_path in disk.paths(f"{store.configuration.store.store_path_root_dir}/index"):
        newest = IndexHeader.decode(disk.content(index_path)[:HEADER_SIZE]).end_timestamp
        if 0 < newest <= times.index_msg_timestamp:
            assert disk.is_safe(index_path), f"{index_path} ends at {newest}"
        if int(index_path.rpartition("/")[2]) == whole.index_file:
            items = HEADER_SIZE + SLOT_SIZE * store.configuration.store.max_hash_slot_num
            end = items + ITEM_SIZE * whole.index_count
            assert disk.is_safe(index_path, items, end), f"{index_path}: {whole}"
    log = store.log
    for start in log.row.starts:
        end = min(start + log.row.file_size, max(times.flushed_offset, whole.offset))
        assert is_log_safe(disk, log, start, end), f"the checkpoint says {times.flushed_offset}"
    content = {start: disk.content(log.row.path(start)) for start in log.row.starts}
    for unit_path in disk.paths(f"{store.configuration.store.store_path_root_dir}/consumequeue"):
        units = disk.content(unit_path)
        for position in range(0, len(units), UNIT.size):
            offset, size, _ = UNIT.unpack_from(units, position)
            start = log.row.start_of(offset)
            is_message = 0 < size < FILLER_SIZE and log.min_offset <= offset < log.max_offset
            if not is_message or not content.get(start):
                continue
            stored = STORED_AT.unpack_from(content[start], offset - start + 56)[0]
            place = f"{unit_path} at {position}"
            if offset + size <= whole.offset:
                assert disk.is_safe(unit_path, position, position + UNIT.size), place
            if stored < times.physic_msg_timestamp:
                assert is_log_safe(disk, log, offset, offset + size), f"the record of {place}"
            if stored < times.logics_msg_timestamp:
                assert disk.is_safe(unit_path, position, position + UNIT.size), place


def is_log_safe(disk, log, start, end):
    """A range within one file; what a test took away is not the store's fault."""
    base = log.row.start_of(start)
    path = log.row.path(base)
    return start >= end or not disk.paths(path) or disk.is_safe(path, start - base, end - base)


def watch(disk, store):
    """From now on PUT_OK for a message that waits means under SYNC_FLUSH: it is on the disk."""
    root = store.configuration.store.store_path_root_dir
    store.found_times = CheckpointTimes.decode(disk.content(f"{root}/checkpoint"))
    put_many = store.put_many

    def watched(messages, done):
        def answered(results):
            if store.configuration.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
                for message, result in zip(messages, results, strict=True):
                    if message.wait_store_ok and result.status is PutMessageStatus.PUT_OK:
                        place = result.append
                        start, end = place.physical_offset, place.next_offset
                        assert is_log_safe(disk, store.log, start, end), f"{place} is not synced"
            done(results)

        put_many(messages, answered)

    store.put_many = watched
