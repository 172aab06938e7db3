"""From the log to the queues. Spec: store.md, section 6; ha.md, section 6."""

from errno import EIO

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.runs.run import SLICE
from rmq_ha.base.store_flags import Flag
from rmq_ha.server.store.log.dispatch import ENOUGH, GATHER_S
from rmq_ha.server.store.message_store import KEYS_AT_ONCE

SLAVE = {"broker_role": BrokerRole.SLAVE}


def log_of(machine, message, count=6, size=200, **settings):
    """The bytes of a log with some records, made on a machine of their own."""
    store = machine.open(**settings)
    results = []
    for _ in range(count):
        store.put_many([message(b"m" * size)], results.extend)
    data = store.log.read(0, 1 << 20)
    machine.stop(store)
    machine.disk.remove_tree(machine.root)
    return data, [result.append for result in results]


def test_a_slave_dispatches_what_is_whole(machine, message):
    """A record in pieces is waited for without a timer, and never skipped."""
    data, results = log_of(machine, message)
    store = machine.open(**SLAVE)
    for offset in range(0, len(data), 50):
        store.log.append_raw(offset, data[offset : offset + 50])
        machine.turn()
        whole = sum(result.next_offset <= store.log.max_offset for result in results)
        assert store.max_offset_in_queue("TopicA", 0) == whole
        assert store.dispatcher.position == (results[whole - 1].next_offset if whole else 0)
    assert store.statistics.put_times == len(results)
    assert store.statistics.put_size == results[-1].next_offset
    assert store.checkpoint.logics == results[-1].store_timestamp


def test_who_waits_for_the_end_waits_for_its_last_byte(machine, message):
    """A slave has the first byte of a record: what was in the log then is not all dispatched."""
    data, results = log_of(machine, message)
    store = machine.open(**SLAVE)
    store.log.append_raw(0, data[: results[2].next_offset + 1])
    done = store.dispatcher.reached_end()
    machine.turn()
    assert store.dispatcher.bytes_behind == 1
    assert not done.called
    store.log.append_raw(results[2].next_offset + 1, data[results[2].next_offset + 1 :])
    machine.turn()
    assert done.called


def test_a_slave_waits_at_unreadable_bytes(machine, message):
    """It stays there, without work, however much follows."""
    data, results = log_of(machine, message)
    end = results[2].next_offset
    store = machine.open(**SLAVE)
    store.log.append_raw(0, data[:end] + b"\xff" * 30 + data[end + 30 :])
    machine.turn(10)
    assert store.dispatcher.position == end
    assert store.max_offset_in_queue("TopicA", 0) == 3
    store.log.append_raw(len(data), b"more")
    machine.turn(10)
    assert store.dispatcher.position == end


def test_a_slave_follows_over_the_end_of_a_file(machine, message):
    """A blank is jumped over, also when the bytes behind it are not there yet."""
    data, results = log_of(machine, message, count=3, size=30000)
    first_file = data[:65536]
    store = machine.open(**SLAVE)
    blank_at = results[1].next_offset
    store.log.append_raw(0, first_file[: blank_at + 4])
    machine.turn()
    assert store.dispatcher.position == blank_at
    store.log.append_raw(blank_at + 4, first_file[blank_at + 4 : blank_at + 20])
    machine.turn()
    assert store.dispatcher.position == 65536
    assert store.dispatcher.bytes_behind < 0
    store.log.append_raw(blank_at + 20, first_file[blank_at + 20 :])
    machine.turn()
    assert store.dispatcher.bytes_behind == 0
    assert store.max_offset_in_queue("TopicA", 0) == 2


def test_a_large_record(machine, message):
    """A record larger than one read is read whole."""
    sizes = {"mapped_file_size_commit_log": 1 << 23}
    store = machine.open(**sizes)
    store.put_many([message(), message(b"x" * 3_000_000), message()], lambda results: None)
    end = store.log.max_offset
    store.log.pending.clear()
    machine.turn(5)
    assert store.dispatcher.position == end
    assert store.max_offset_in_queue("TopicA", 0) == 3
    data = store.log.read(0, 1 << 23)
    machine.stop(store)
    machine.disk.remove_tree(machine.root)
    slave = machine.open(**SLAVE, **sizes)
    for offset in range(0, len(data), 100_000):
        slave.log.append_raw(offset, data[offset : offset + 100_000])
        machine.turn()
    assert slave.dispatcher.position == end
    assert slave.max_offset_in_queue("TopicA", 0) == 3


def test_a_master_skips_what_nobody_can_read(machine, message):
    """The damaged record only: those behind it keep their numbers."""
    store = machine.open()
    for _ in range(3):  # one by one: the last write would be read from memory
        store.put_many([message()], lambda results: None)
    store.log.pending.clear()
    size = store.log.max_offset // 3
    store.log.row.file(0).pwrite(b"\xff" * 30, size)
    machine.turn(5)
    assert store.dispatcher.position == store.log.max_offset
    assert [unit[0] for unit in store.queues.queue("TopicA", 0).units(0, 9)] == [0, 0, 2 * size]
    store.put_many([message()], lambda results: None)
    machine.turn()
    assert store.dispatcher.bytes_behind == 0
    assert store.queues.queue("TopicA", 0).units(3, 1)[0][0] == 3 * size


def test_many_records_take_several_turns(machine, message):
    """A slice a turn: others get their turn in between."""
    store = machine.open()
    slices = []
    store.on_arrival(lambda requests: slices.append(len(requests)))
    store.put_many([message() for _ in range(600)], lambda results: None)
    machine.turn(3)
    assert slices == [256, 256, 88]


def test_after_a_stop_it_goes_on_where_it_was(machine, message):
    """As when a slave's tail is cut: the turn that was due is none, and is not waited for."""
    store = machine.open()
    store.put_many([message() for _ in range(600)], lambda results: None)
    store.dispatcher.run()
    store.dispatcher.stop()
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == 256
    store.dispatcher.start()
    store.dispatcher.run()
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == 600


def test_too_many_for_the_memory(machine, message, monkeypatch):
    """What append could not leave behind is read from the log."""
    monkeypatch.setattr("rmq_ha.base.runs.run._MAX_PENDING", 10)
    store = machine.open()
    for _ in range(100):
        store.put_many([message() for _ in range(7)], lambda results: None)
    machine.turn(20)
    assert store.max_offset_in_queue("TopicA", 0) == 700
    assert not store.log.pending


def test_work_left_at_the_stop(simulated, message):
    """`abort` stays, so that the next start repairs the queues."""
    machine = simulated
    store = machine.open()
    machine.disk.fault = lambda operation, path: EIO if "/consumequeue/" in path else None
    store.put_many([message()], lambda results: None)
    machine.turn()
    machine.stop(store)
    assert machine.disk.exists(f"{machine.root}/abort")
    machine.disk.fault = lambda operation, path: None
    again = machine.open()
    assert again.max_offset_in_queue("TopicA", 0) == 1


@pytest.mark.parametrize("count", [1, 30_000])
def test_catching_up_at_the_start(machine, message, count):
    """Queues that are gone are rebuilt before the store opens."""
    store = machine.open(mapped_file_size_commit_log=1 << 23, message_index_enable=False)
    for _ in range(0, count, 300):
        store.put_many([message() for _ in range(min(count, 300))], lambda results: None)
    machine.turn(200)
    machine.stop(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue")
    again = machine.open(mapped_file_size_commit_log=1 << 23, message_index_enable=False)
    assert again.max_offset_in_queue("TopicA", 0) == count
    results = []
    again.put_many([message()], results.extend)
    assert results[0].append.queue_offset == count


def test_a_slice_that_failed_is_tried_again_by_one_timer(simulated, message):
    """However often it fails meanwhile; and by none while nobody runs the dispatcher."""
    machine = simulated
    store = machine.open()
    store.dispatcher.stop()
    store.put_many([message()], lambda results: None)
    machine.turn()
    before = len(machine.clock.getDelayedCalls())
    machine.disk.fault = lambda operation, path: (
        EIO if operation == "pwrite" and "/consumequeue/" in path else None
    )
    assert not store.dispatcher.run_slice()
    assert "Input/output error" in store.dispatcher.trouble
    assert len(machine.clock.getDelayedCalls()) == before
    store.dispatcher.start()
    for _ in range(3):
        store.dispatcher.run_slice()
        assert len(machine.clock.getDelayedCalls()) == before + 1
    machine.disk.fault = lambda operation, path: None
    machine.clock.advance(1)
    assert (store.dispatcher.bytes_behind, store.dispatcher.trouble) == (0, "")


def test_a_record_of_very_many_keys_takes_several_turns(machine, message):
    """So that others get an answer in between; in the end all of them are in the index."""
    store = machine.open(max_index_num=7000)
    store.dispatcher.stop()
    keys = [f"{n:x}" for n in range(6000)]
    store.put_many([message(KEYS=" ".join(keys)), message()], lambda results: None)
    for _ in range(len(keys) // KEYS_AT_ONCE):
        assert store.dispatcher.run_slice()
        assert store.dispatcher.bytes_behind == store.log.max_offset
    assert store.dispatcher.run_slice()
    assert not store.dispatcher.run_slice()
    assert store.dispatcher.bytes_behind == 0
    for key in (keys[0], keys[KEYS_AT_ONCE - 1], keys[KEYS_AT_ONCE], keys[-1]):
        assert len(store.query("TopicA", key, 8, 0, 1 << 62).records) == 1
    assert store.max_offset_in_queue("TopicA", 0) == 2


def test_who_waits_where_nothing_is_left_hears_at_once(machine, message):
    """Of an empty log, and of one that is dispatched to its last byte, but not of one byte less."""
    data, _ = log_of(machine, message, count=1)
    store = machine.open(**SLAVE)
    assert store.dispatcher.reached_end().called
    store.log.append_raw(0, data)
    machine.turn()
    assert store.dispatcher.reached_end().called
    store.log.append_raw(len(data), data[:1])
    machine.turn()
    assert store.dispatcher.bytes_behind == 1
    assert not store.dispatcher.reached_end().called


def test_each_who_waits_hears_when_its_own_end_is_reached(machine, message):
    """In a slice that ends there to the byte, and not only with the last one."""
    store = machine.open()
    store.dispatcher.stop()
    waiting = []
    for _ in range(2):
        store.put_many([message() for _ in range(256)], lambda results: None)
        waiting.append(store.dispatcher.reached_end())
    store.dispatcher.run_slice()
    assert [done.called for done in waiting] == [True, False]
    store.dispatcher.run_slice()
    assert [done.called for done in waiting] == [True, True]


def test_who_waits_for_what_was_cut_off_waits_no_more(machine, message):
    """The log ends before what it waits for: all that is left is dispatched."""
    store = machine.open()
    store.dispatcher.stop()
    store.put_many([message()], lambda results: None)
    end = store.log.max_offset
    store.put_many([message()], lambda results: None)
    done = store.dispatcher.reached_end()
    store.log.pending.clear()
    store.log.recovered(end, 0)
    store.dispatcher.run_slice()
    assert (store.dispatcher.position, done.called) == (end, True)


@pytest.mark.parametrize("number", [None, EIO])
def test_a_stop_leaves_no_turn_of_the_dispatcher(simulated, message, number):
    """Neither the next slice nor the second try of one that failed."""
    machine = simulated
    store = machine.open()
    before = len(machine.clock.getDelayedCalls())
    machine.disk.fault = lambda operation, path: number if "/consumequeue/" in path else None
    store.put_many([message() for _ in range(600)], lambda results: None)
    store.dispatcher.run()
    assert len(machine.clock.getDelayedCalls()) > before
    ours = [
        call for call in machine.clock.getDelayedCalls() if call.func.__self__ is store.dispatcher
    ]
    assert len(ours) == 1
    store.dispatcher.stop()
    assert not ours[0].active()


def test_only_failures_in_a_row_refuse_puts(simulated, message, monkeypatch):
    """Two now and two later are not the three for which an index has patience."""
    said = []
    log = type("Log", (), {"info": lambda self, text, **fields: said.append(fields["what"])})
    log.error = lambda *_, **__: None
    monkeypatch.setattr("rmq_ha.server.store.log.dispatch.Dispatcher.log", log())
    machine = simulated
    store = machine.open()
    for failures in (2, 2, 3):
        left = [failures]

        def fault(operation, path, left=left):
            if operation != "reserve" or "/index/" not in path or not left[0]:
                return None
            left[0] -= 1
            return EIO

        machine.disk.fault = fault
        keys = " ".join(f"k{number}" for number in range(140))
        store.put_many([message(KEYS=keys)], lambda results: None)
        machine.turn()
        for _ in range(failures - 1):
            machine.clock.advance(1)
        assert not left[0]
        assert store.is_writable is (failures < 3)
        assert said == []
        machine.clock.advance(1)
        assert store.dispatcher.bytes_behind == 0
        assert store.is_writable
    assert said == [Flag.INDEX_FILE.value]


def test_what_comes_soon_after_a_slice_waits_a_moment(machine, message):
    """A slice of several costs little more than one of a single record."""
    store = machine.open()
    store.dispatcher.gather_s = GATHER_S
    ends = []
    for _ in range(3):
        store.put_many([message()], lambda results: None)
        machine.turn()
        ends.append(store.queues.get("TopicA", 0).max_offset)
    assert ends == [1, 1, 1]
    machine.clock.advance(GATHER_S)
    assert store.max_offset_in_queue("TopicA", 0) == 3
    machine.clock.advance(GATHER_S)
    store.put_many([message()], lambda results: None)
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == 4


def test_nothing_waits_where_somebody_waits_for_it(machine, message):
    store = machine.open()
    store.dispatcher.gather_s = GATHER_S
    store.put_many([message()], lambda results: None)
    machine.turn()
    store.dispatcher.is_awaited = lambda: True
    store.put_many([message()], lambda results: None)
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == 2
    store.dispatcher.is_awaited = lambda: False
    store.put_many([message()], lambda results: None)
    machine.turn()
    assert store.queues.get("TopicA", 0).max_offset == 2
    assert store.dispatcher.reached_end().called


def test_a_slave_waits_but_not_for_much(machine, message):
    """Its consumers see no difference: what they ask for is dispatched before."""
    settings = {"mapped_file_size_commit_log": 1 << 20}
    data, results = log_of(machine, message, count=800, **settings)
    store = machine.open(**SLAVE, **settings)
    store.dispatcher.gather_s = GATHER_S

    def copy(end):
        store.log.append_raw(store.log.max_offset, data[store.log.max_offset : end])
        machine.turn()
        return store.queues.get("TopicA", 0).max_offset

    ends = [result.next_offset for result in results]
    assert [copy(end) for end in ends[:3]] == [1, 1, 1]
    machine.clock.advance(GATHER_S * 0.8)
    assert copy(ends[3]) == 1
    machine.clock.advance(GATHER_S * 0.2)
    assert copy(ends[4]) == 4
    assert store.max_offset_in_queue("TopicA", 0) == 5
    assert copy(ends[5]) == 5
    enough = next(count for count, end in enumerate(ends) if end - ends[4] >= ENOUGH)
    assert copy(ends[enough - 1]) == 5
    assert copy(ends[enough]) == enough + 1


def test_a_master_waits_for_no_more_than_a_slice_either(machine, message):
    store = machine.open(mapped_file_size_commit_log=1 << 20)
    store.dispatcher.gather_s = GATHER_S
    for body, seen in ((1, 1), (ENOUGH - 5_000, 1), (5_000, 3), (1, 3)):
        store.put_many([message(bytes(body))], lambda results: None)
        machine.turn()
        assert store.queues.get("TopicA", 0).max_offset == seen


def test_whoever_reads_sees_what_is_gathered(machine, message):
    store = machine.open()
    store.dispatcher.gather_s = GATHER_S
    reads = [
        lambda: store.max_offset_in_queue("TopicA", 0),
        lambda: store.get_message("g", "TopicA", 0, 0, 32, None).max_offset,
        lambda: 2 + len(store.query("TopicA", "key", 32, 0, 1 << 60).records),
        lambda: store.offset_by_time("TopicA", 0, 1 << 60),
        lambda: 4 + (store.store_timestamp_at("TopicA", 0, 4) > 0),
    ]
    for count, read in enumerate(reads, 1):
        store.put_many([message(KEYS="key") if count == 3 else message()], lambda results: None)
        machine.turn()
        assert store.queues.get("TopicA", 0).max_offset == max(count - 1, 1)
        assert read() == count


def test_whoever_reads_sees_all_that_is_gathered_were_it_more_than_a_slice(machine, message):
    store = machine.open()
    store.dispatcher.gather_s = GATHER_S
    store.put_many([message()], lambda results: None)
    machine.turn()
    store.put_many([message(b"") for _ in range(2 * SLICE + 1)], lambda results: None)
    machine.turn()
    assert store.queues.get("TopicA", 0).max_offset == 1
    assert store.max_offset_in_queue("TopicA", 0) == 2 * SLICE + 2


def test_what_is_more_than_a_slice_does_not_wait_between_them(machine, message):
    store = machine.open()
    store.dispatcher.gather_s = GATHER_S
    store.put_many([message() for _ in range(5 * SLICE)], lambda results: None)
    machine.turn(7)
    assert store.max_offset_in_queue("TopicA", 0) == 5 * SLICE
