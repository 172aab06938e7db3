"""A process that died and a machine that died are told apart, and recovered each in its way.

`vouched` sees to it that nothing counts as safe which is only in the page cache.
"""

import errno
from random import Random

import pytest

from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.base.store_format.index import IndexHeader
from rmq_ha.testing.disk import SimDisk
from tests.unit.server.store.lookup import query


@pytest.fixture
def machine(make_simulated):
    return make_simulated()


def put(machine, store, message, count, first=0, topics=("A", "B", "C")):
    for number in range(first, first + count):
        store.put_message(
            message(
                b"%d" % number,
                topics[number % len(topics)],
                number % 2,
                TAGS=f"t{number % 3}",
                UNIQ_KEY=f"U{number}",
            )
        )
    machine.turn()


def fill(machine, store, message):
    """Several files of the log with 1,200 messages; where they begin, but the last, and that."""
    for first in range(0, 1200, 100):
        put(machine, store, message, 100, first)
    *older, newest = store.log.row.starts[:-1]  # the last file is there ahead
    assert older
    return older, newest


def open_in_full(machine, older, **settings):
    """A start that reads all of the log again."""
    reads = Reads(machine.disk)
    store = machine.open(**settings)
    assert all(reads.bytes_of(f"commitlog/{start:020d}") for start in older)
    return store


def everything(store, count):
    """Each message by queue and by key; fails where one is missing, twice there, or different."""
    found = {}
    for (topic, queue_id), queue in store.queues.items():
        for offset in range(queue.min_offset, queue.max_offset):
            ((physical_offset, size, code),) = queue.units(offset, 1)
            record = store.record_at(physical_offset, size)
            assert record is not None, (topic, queue_id, offset)
            found[physical_offset] = (topic, queue_id, offset, code)
    assert len(found) == count
    return found


def places_of(store, topic, key):
    """Where the index has this very key; the last record may be in it twice after a start."""
    found, _, _ = query(store.index, topic, key, 100, 0, 1 << 62)
    mark = f"UNIQ_KEY\x01{key}".encode()
    return {place for place in found if (store.record_at(place) or b"").endswith(mark)}


def is_marked(machine):
    return machine.disk.exists(f"{machine.root}/boot")


class TestAfterAKill:
    def test_the_log_is_not_read_again(self, machine, message):
        store = machine.open()
        older, newest = fill(machine, store, message)
        before = everything(store, 1200)
        machine.kill(store)
        reads = Reads(machine.disk)
        again = machine.open()
        assert reads.bytes_of(f"commitlog/{newest:020d}")
        assert not [start for start in older if reads.bytes_of(f"commitlog/{start:020d}")]
        assert everything(again, 1200) == before

    def test_what_was_only_in_the_page_cache_is_on_the_disk_before_anything_vouches_for_it(
        self, machine, message
    ):
        store = machine.open()
        put(machine, store, message, 600)
        machine.kill(store)
        assert not machine.disk.is_safe(store.log.row.path(0))
        again = machine.load()
        assert len(again.log.row.starts) > 1
        files = machine.disk.paths(f"{machine.root}/commitlog")
        files += machine.disk.paths(f"{machine.root}/consumequeue/A/0")
        unsafe = [path for path in files if not machine.disk.is_safe(path)]
        assert not unsafe
        machine.finish(again.start())
        assert again.log.flushed_offset == again.log.max_offset
        put(machine, again, message, 10, 600, topics=("D",))
        machine.clock.advance(120)  # rounds: the checkpoint moves on
        machine.turn()
        machine.lose_power(again)
        assert len(everything(machine.open(), 610)) == 610

    def test_what_was_not_dispatched_is(self, machine, message):
        store = machine.open()
        put(machine, store, message, 20)
        store.dispatcher.stop()
        put(machine, store, message, 30, 20)
        machine.kill(store)
        assert len(everything(machine.open(), 50)) == 50

    @pytest.mark.parametrize("is_indexed", [True, False])
    def test_a_slice_that_only_some_queues_got_is_dispatched_again(
        self, machine, message, is_indexed
    ):
        store = machine.open(message_index_enable=is_indexed)
        put(machine, store, message, 30)
        before = len(everything(store, 30))
        queues = store.queues

        def put_some(rows):  # the process dies when it has written some of the queues
            queues.put_requests([row for row in rows if row[0] == "C"])
            raise OSError(errno.EIO, "killed")

        store.dispatcher._targets[0] = (store.dispatcher._targets[0][0], put_some)
        put(machine, store, message, 30, 30)
        ends = [sum(queues.get(topic, n).max_offset for n in (0, 1)) for topic in "ABC"]
        assert ends == [10, 10, 20]
        machine.kill(store)
        again = machine.open(message_index_enable=is_indexed)
        assert before == 30
        assert len(everything(again, 60)) == 60

    def test_a_unit_that_was_written_in_part_is_written_whole(self, machine, message):
        store = machine.open()
        put(machine, store, message, 60)
        before = everything(store, 60)
        last = store.queues.get("C", 1)
        path = f"{machine.root}/consumequeue/C/1/{0:020d}"
        machine.kill(store)
        units = bytearray(machine.disk.content(path))
        end = last.max_offset * UNIT_SIZE % len(units) or len(units)
        assert any(units[end - 4 : end])
        units[end - 8 : end] = bytes(8)  # the tag's hash, over the edge of a page
        machine.disk.damage(path, bytes(units))
        assert everything(machine.open(), 60) == before

    def test_a_record_that_was_written_in_part_goes(self, machine, message):
        store = machine.open()
        put(machine, store, message, 10)
        store.dispatcher.stop()
        end = store.log.max_offset
        put(machine, store, message, 1, 10)
        path = store.log.row.path(0)
        machine.kill(store)
        data = bytearray(machine.disk.content(path))
        data[store.log.max_offset - 12 : store.log.max_offset] = bytes(12)
        machine.disk.damage(path, bytes(data))
        again = machine.open()
        assert again.log.max_offset == end
        assert len(everything(again, 10)) == 10

    def test_keys_that_were_put_in_part_cost_no_older_ones(self, machine, message):
        store = machine.open(max_hash_slot_num=2)
        put(machine, store, message, 40)
        put(machine, store, message, 1, 100)
        (path,) = machine.disk.paths(f"{machine.root}/index")
        header = machine.disk.content(path)[:40]
        put(machine, store, message, 30, 40)
        machine.kill(store)
        data = machine.disk.content(path)
        machine.disk.damage(path, header + data[40:])  # killed before it wrote the header
        again = machine.open(max_hash_slot_num=2)
        assert again.index.damage == "", "all of it would be built anew"
        for number in [*range(70), 100]:
            topic = "ABC"[number % 3]
            assert len(places_of(again, topic, f"U{number}")) == 1, number

    def test_a_header_that_does_not_fit_its_items_costs_the_file_and_no_key(self, machine, message):
        store = machine.open()
        put(machine, store, message, 40)
        (path,) = machine.disk.paths(f"{machine.root}/index")
        machine.kill(store)
        data = machine.disk.content(path)
        header = IndexHeader.decode(data[:40])
        torn = header._replace(index_count=header.index_count - 5)
        machine.disk.damage(path, torn.encode() + data[40:])
        again = machine.open()
        for number in range(40):
            assert len(places_of(again, "ABC"[number % 3], f"U{number}")) == 1, number

    def test_kills_may_follow_each_other(self, machine, message):
        for life in range(5):
            store = machine.open()
            assert store.index.damage == ""
            put(machine, store, message, 20, life * 20)
            machine.kill(store)
        assert len(everything(machine.open(), 100)) == 100


class Reads:
    """Counts what is read of files whose path holds a word."""

    def __init__(self, disk):
        self._sizes = {}
        real = SimDisk.open

        def opened(path, size):
            file = real(disk, path, size)
            pread = file.pread

            def counted(size, position):
                data = pread(size, position)
                self._sizes[path] = self._sizes.get(path, 0) + len(data)
                return data

            file.pread = counted
            return file

        disk.open = opened

    def bytes_of(self, word):
        return sum(size for path, size in self._sizes.items() if word in path)


class TestTheMark:
    """It is there only while queues, index and page cache are as they should be."""

    def test_it_is_set_when_the_store_is_open_and_goes_with_a_clean_stop(self, machine):
        store = machine.load()
        assert not is_marked(machine)
        machine.finish(store.start())
        assert is_marked(machine)
        machine.stop(store)
        assert not is_marked(machine)

    def test_a_loss_of_power_is_none(self, machine, message):
        for seed in range(20):
            machine.disk._random = Random(seed)
            store = machine.open(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
            machine.lose_power(store)
            assert is_marked(machine)
            again = machine.load()
            assert not is_marked(machine)
            machine.crash(again)

    def test_recovery_that_is_killed_before_its_end_is_not_gone_on_with(self, machine, message):
        store = machine.open()
        put(machine, store, message, 30)
        machine.lose_power(store)
        machine.kill(machine.load())
        assert not is_marked(machine)
        again = machine.load()
        machine.finish(again.start())
        assert is_marked(machine)

    @pytest.mark.parametrize("flush", ["commitlog", "consumequeue"])
    def test_a_flush_that_fails_takes_it_away(self, machine, message, flush):
        store = machine.open()
        put(machine, store, message, 10)
        assert is_marked(machine)

        def fails(operation, path):
            return errno.EIO if operation == "sync" and flush in path else None

        machine.disk.fault = fails
        machine.clock.advance(120)
        machine.turn()
        assert not is_marked(machine)

    def test_what_cannot_be_brought_to_the_disk_is_recovered_as_after_a_loss_of_power(
        self, machine, message
    ):
        store = machine.open()
        older, _ = fill(machine, store, message)
        machine.kill(store)
        before = machine.disk.sync_tree

        def fails(path):
            raise OSError(errno.EIO, "Input/output error")

        machine.disk.sync_tree = fails
        again = open_in_full(machine, older)
        machine.disk.sync_tree = before
        assert len(everything(again, 1200)) == 1200

    def test_a_copy_of_the_store_is_another_one(self, machine, message):
        store = machine.open()
        older, _ = fill(machine, store, message)
        machine.kill(store)
        machine.disk.move(machine.root, f"{machine.root}-copy")
        machine.root = f"{machine.root}-copy"
        open_in_full(machine, older)

    def test_another_boot_of_the_machine_believes_nothing(self, machine, message):
        store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        older, _ = fill(machine, store, message)
        machine.lose_power(store)
        assert is_marked(machine)
        open_in_full(machine, older)

    def test_a_key_switches_it_off(self, machine, message):
        store = machine.open(trust_page_cache_after_kill=False)
        assert not is_marked(machine)
        older, _ = fill(machine, store, message)
        machine.kill(store)
        open_in_full(machine, older, trust_page_cache_after_kill=False)

    def test_a_full_disk_costs_the_mark_and_not_the_start(self, machine, message):
        store = machine.open()
        machine.stop(store)
        machine.disk.is_full = True
        machine.open()
        assert not is_marked(machine)
