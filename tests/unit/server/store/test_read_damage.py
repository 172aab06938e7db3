"""Damage at rest: what readers hand out, mend and leave out.

Spec: store.md, sections 2.1, 3.1 and 8.1; RocketMQ hands out whatever a unit points at.
"""

from contextlib import suppress
from errno import EIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.store_format.commitlog import MAX_RECORD_SIZE, MESSAGE_MAGIC, decode_record
from rmq_ha.base.store_format.consumequeue import FILLER
from rmq_ha.base.store_format.record_checks import record_fits

COUNT = 40
LOG = "/store/commitlog/00000000000000000000"
QUEUE = "/store/consumequeue/TopicA/0/00000000000000000000"


def filled(machine, message, count=COUNT, **settings):
    """An open store with messages in two queues, one after the other."""
    store = machine.open(mapped_file_size_consume_queue=2000, **settings)
    for number in range(count):
        store.put_many(
            [
                message(b"body %d" % number * 5, TAGS="t", KEYS=f"k{number}"),
                message(b"other", topic="Other"),
            ],
            lambda results: None,
        )
    machine.turn(5)
    assert store.max_offset_in_queue("TopicA", 0) == count
    return store


def damage(machine, path, position, data):
    """Put other bytes on the disk, behind the store's back."""
    machine.disk.open(path, machine.disk.size(path)).pwrite(data, position)


def pulled(store, topic="TopicA"):
    """What a consumer gets from offset 0 to the end: records by queue offset, and its steps."""
    offset, found, steps = 0, [], 0
    while offset < store.max_offset_in_queue(topic, 0):
        result = store.get_message("g", topic, 0, offset, 8, None)
        assert offset < result.next_begin_offset <= offset + 8 + 32, "no pull jumps"
        assert result.status in (GetMessageStatus.FOUND, GetMessageStatus.MESSAGE_WAS_REMOVING)
        found += result.messages
        offset = result.next_begin_offset
        steps += 1
        assert steps < 400
    return found


@pytest.fixture
def told(monkeypatch):
    """What is said at level error of damage."""
    said = []
    log = type("Log", (), {"error": lambda self, text, **fields: said.append(fields)})
    monkeypatch.setattr("rmq_ha.server.store.reading.damage.ReadDamage.log", log())
    return said


def test_a_unit_with_a_high_bit_hides_nothing(simulated, message, told):
    """867 messages were jumped over: it is mended from the log, and the pull goes on behind it."""
    store = filled(simulated, message)
    before = pulled(store)
    unit = simulated.disk.read_bytes(QUEUE)[200:220]
    damage(simulated, QUEUE, 200, b"\x40")
    assert pulled(store) == before
    assert (store.damage.mended, store.damage.lost) == (1, 0)
    assert len(told) == 1
    assert simulated.disk.read_bytes(QUEUE)[200:220] == unit
    assert pulled(store) == before
    assert store.damage.mended == 1


@pytest.mark.parametrize("first", [0, 17, COUNT - 5])
def test_a_zeroed_stretch_of_a_queue(simulated, message, told, first):
    """At its beginning, in its middle and at its end."""
    store = filled(simulated, message)
    before = pulled(store)
    damage(simulated, QUEUE, first * 20, bytes(100))
    assert pulled(store) == before
    assert (store.damage.mended, store.damage.lost) == (5, 0)


@pytest.mark.parametrize("position", [0, 4, 28, 84, 90], ids=str)
def test_a_record_that_is_none(simulated, message, told, position):
    """It alone is left out, is said once and counted once; who asks for it by id gets nothing."""
    store = filled(simulated, message)
    before = pulled(store)
    at = int.from_bytes(before[7][28:36], "big")
    if position == 90:
        position = len(before[7]) - 30
    damage(simulated, LOG, at + position, bytes([store.log.read(at + position, 1)[0] ^ 0x55]))
    fits = record_fits(store.log.read(at, len(before[7])), at, len(before[7]))
    for _ in range(3):
        left = before[:7] + before[8:]
        assert pulled(store) == left or fits
    if not fits:
        assert (store.damage.mended, store.damage.lost) == (0, 1)
        assert store.record_at(at) is None
        assert not store.query("TopicA", "k7", 9, 0, 1 << 60).records
        assert len(told) == 1


def test_a_body_that_its_crc_does_not_fit(simulated, message, told):
    """With `checkCRCOnRead` it is left out; without it is handed out as it is."""
    for checks in (True, False):
        store = filled(simulated, message, check_crc_on_read=checks)
        before = pulled(store)
        at = int.from_bytes(before[7][28:36], "big")
        damage(simulated, LOG, at + 90, b"\xff")
        assert len(pulled(store)) == COUNT - checks
        assert (store.record_at(at) is None) is checks
        assert store.damage.lost == checks
        simulated.stop(store)
        simulated.disk.remove_tree("/store")


def test_a_delayed_message_whose_unit_is_damaged(simulated, message, told):
    """It is delivered all the same; one whose record is damaged is said to be left out."""
    machine = simulated
    store = machine.open()
    for number in range(4):
        store.put_many([message(b"late %d" % number, DELAY="3")], lambda results: None)
    machine.turn()
    queue = "/store/consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"
    damage(machine, queue, 20, b"\x40")
    at = store.queues.get("SCHEDULE_TOPIC_XXXX", 2).units(2, 1)[0][0]
    damage(machine, LOG, at + 30, b"\x40")
    machine.clock.pump([1] * 30)
    bodies = [decode_record(record).body for record in pulled(store)]
    assert bodies == [b"late 0", b"late 1", b"late 3"]
    assert (store.damage.mended, store.damage.lost) == (1, 1)


def test_fillers_in_the_middle_are_looked_up(simulated, message, told):
    """A queue that was built over a hole of its own: the log has what it lacks."""
    store = filled(simulated, message)
    before = pulled(store)
    damage(simulated, QUEUE, 9 * 20, FILLER * 3)
    assert pulled(store) == before
    assert (store.damage.mended, store.damage.lost) == (3, 0)


def test_what_has_expired_is_no_damage(simulated, message, told):
    """Units of deleted log files are passed over, without a word."""
    machine = simulated
    store = machine.open()
    for number in range(5):
        store.put_many([message(b"%d" % number * 40000)], lambda results: None)
    machine.turn()
    store.log.drop_oldest(3)
    result = store.get_message("g", "TopicA", 0, 0, 32, None)
    assert [decode_record(record).body[:1] for record in result.messages] == [b"3", b"4"]
    assert result.next_begin_offset == 5
    assert not told
    assert store.damage.lost == 0


def test_a_unit_that_points_to_another_whole_record(simulated, message, told):
    """Of the same size, of the same queue or with the same number in another topic."""
    machine = simulated
    store = machine.open()
    for _ in range(9):
        store.put_many([message(b"x"), message(b"y", topic="TopicB")], lambda results: None)
    machine.turn()
    before, size = pulled(store), store.log.max_offset // 18
    units = machine.disk.read_bytes(QUEUE)
    for other in (3 * 2 * size, (4 * 2 + 1) * size):
        damage(machine, QUEUE, 4 * 20, other.to_bytes(8, "big"))
        assert pulled(store) == before
        assert machine.disk.read_bytes(QUEUE) == units
    assert (store.damage.mended, store.damage.lost) == (2, 0)


def test_a_gap_in_the_numbering_is_no_damage(simulated, message, told):
    """As a Java master may leave one: units come one after the other all the same."""
    machine = simulated
    store = machine.open()
    store.put_many([message()] * 3, lambda results: None)
    store.log.encoder.queue_offsets["TopicA", 0] += 2
    store.put_many([message()] * 3, lambda results: None)
    machine.turn()
    found = store.get_message("g", "TopicA", 0, 0, 32, None).messages
    assert [decode_record(record).queue_offset for record in found] == [0, 1, 2, 3, 4, 5]
    assert not told


@pytest.mark.parametrize("number", [0, 20, 39])
@pytest.mark.parametrize("bit", [0, 1, 5, 45, 63])
def test_a_record_with_another_number_has_that_of_its_place(simulated, message, number, bit):
    """A client commits the number that it reads: a flipped bit of it would jump over the rest."""
    machine = simulated
    store = filled(machine, message)
    whole = pulled(store)
    at = store.queues.get("TopicA", 0).units(number, 1)[0][0] + 20
    spoilt = int.from_bytes(whole[number][20:28], "big") ^ 1 << bit
    damage(machine, LOG, at, spoilt.to_bytes(8, "big"))
    assert pulled(store) == whole


def test_a_long_hole_is_searched_in_large_steps(simulated, message, told):
    """Thousands of fillers would each cost a look at 8 MiB of the log, in the reactor's turn."""
    machine, count = simulated, 700
    store = machine.open()
    store.put_many([message()], lambda results: None)
    store.put_many([message(b"x" * 100, topic="Other")] * count, lambda results: None)
    machine.turn()
    store.log.encoder.queue_offsets["TopicA", 0] += count
    store.put_many([message()] * 2, lambda results: None)
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == count + 3
    reads, read = [], store.damage._log.read
    store.damage._log.read = lambda at, size: reads.append(size) or read(at, size)
    assert len(pulled(store)) == 3
    assert store.damage.lost == count
    assert sum(reads) < 10 * count * 130


@pytest.mark.parametrize("offset", [0, 4, 5])
def test_a_negative_size_stops_no_pull(simulated, message, told, offset):
    """It was read along with the units before it, less than nothing: EINVAL for ever."""
    store = filled(simulated, message)
    before = store.get_message("g", "TopicA", 0, offset, 8, None).messages
    damage(simulated, QUEUE, 5 * 20 + 8, b"\x80")
    pull = store.get_message("g", "TopicA", 0, offset, 8, None)
    more = store.get_message("g", "TopicA", 0, pull.next_begin_offset, 8, None).messages
    assert (pull.messages + more)[:8] == before
    assert (store.damage.mended, store.damage.lost) == (1, 0)


def test_two_units_that_seem_to_have_expired(simulated, message, told):
    """Their places are below the log's start, but units before them have not expired."""
    machine = simulated
    store = machine.open()
    for number in range(9):
        store.put_many([message(b"%d" % number * 20000)], lambda results: None)
    machine.turn()
    store.log.drop_oldest(1)
    assert store.log.min_offset > 20000
    before = pulled(store)
    path = "/store/consumequeue/TopicA/0/00000000000000000000"
    for unit in (6, 7):
        damage(machine, path, unit * 20, (1000).to_bytes(8, "big"))
    assert pulled(store) == before
    assert (store.damage.mended, store.damage.lost) == (2, 0)


def test_a_size_that_nobody_wrote_is_not_read(simulated, message, told, monkeypatch):
    """A client's message id may point at bytes that claim to be a record of a gigabyte."""
    store = filled(simulated, message)
    log, limits = store.log, []
    head = (MAX_RECORD_SIZE + 1).to_bytes(4, "big") + MESSAGE_MAGIC.to_bytes(4, "big")
    monkeypatch.setattr(log, "max_offset", 1 << 30)
    monkeypatch.setattr(log, "read", lambda at, limit: limits.append(limit) or head[:limit])
    assert store.record_at(200) is None
    assert max(limits) < 100


def test_what_mends_a_unit_is_judged_as_well(simulated, message, told):
    """The search may have read the last write from memory, while the disk has something else."""
    store = filled(simulated, message)
    before = pulled(store)
    damage(simulated, LOG, int.from_bytes(before[-1][28:36], "big"), b"\x01")
    assert pulled(store) == before[:-1]
    assert (store.damage.mended, store.damage.lost) == (0, 1)


def test_a_light_queue_of_rocketmq(simulated, message, told):
    """Multi dispatch: its units lead to records of another topic, with other numbers."""
    store = filled(simulated, message)
    units = store.queues.get("TopicA", 0).units(3, 9)
    store.queues.put_requests(
        [
            DispatchRequest("%LMQ%light", 0, at, size, code, 1, number, "", "", 0, 0, "")
            for number, (at, size, code) in enumerate(units)
        ]
    )
    assert pulled(store, "%LMQ%light") == pulled(store)[3:12]
    assert not told


def test_a_disk_that_cannot_be_read_is_no_damage(simulated, message, told):
    """The pull fails, and finds all of it later."""
    store = filled(simulated, message)
    damage(simulated, QUEUE, 200, b"\x40")
    simulated.disk.fault = lambda operation, path: EIO if operation == "pread" else None
    with pytest.raises(Exception, match="cannot read"):
        store.get_message("g", "TopicA", 0, 8, 8, None)
    simulated.disk.fault = lambda operation, path: None
    assert len(pulled(store)) == COUNT
    assert store.damage.lost == 0


def test_places_are_bounded(simulated, message, told, monkeypatch):
    """A log that is damaged everywhere costs no memory without end."""
    monkeypatch.setattr("rmq_ha.server.store.reading.damage._MOST_PLACES", 3)
    store = filled(simulated, message)
    end = store.log.max_offset
    damage(simulated, LOG, 0, bytes(end))
    assert pulled(store) == []
    assert store.damage.lost == COUNT
    assert len(store.damage._places) == 3


# Of all bytes


def whole(record):
    """All that a consumer makes of it, but for what no checksum covers (see the docstring)."""
    found = decode_record(record, check_crc=True)
    return found.body, found.queue_id, found.physical_offset, found.size


@given(data=st.data())
def test_any_flipped_byte(make_simulated, message, data):
    """
    No pull answers another body than was put, none leaves out more than the damaged message, each
    that is left out is said; other queues do not notice.

    A record has a checksum of its body only: other fields are covered as far as they say where the
    record is, how long it is, and where its parts are.
    """
    machine = make_simulated()
    store = filled(machine, message, check_crc_on_read=True)
    before, other = pulled(store), pulled(store, "Other")
    at = [int.from_bytes(record[28:36], "big") for record in before]
    path = data.draw(st.sampled_from([LOG, QUEUE]))
    hit = data.draw(st.integers(0, COUNT - 1))
    if path == LOG:
        position = at[hit] + data.draw(st.integers(0, len(before[hit]) - 1))
    else:
        position = 20 * hit + data.draw(st.integers(0, 19))
    flip = data.draw(st.integers(1, 255))
    byte = machine.disk.read_bytes(path)[position]
    damage(machine, path, position, bytes([byte ^ flip]))
    after = pulled(store)
    assert pulled(store, "Other") == other
    if path == QUEUE:
        assert after == before
        assert store.damage.lost == 0
    elif len(after) < COUNT:
        assert after == before[:hit] + before[hit + 1 :]
        assert store.damage.lost == 1
    else:
        assert [whole(record) for record in after] == [whole(record) for record in before]
        assert all(
            one == two for at, (one, two) in enumerate(zip(after, before, strict=True)) if at != hit
        )
    machine.crash(store)


@given(st.binary(max_size=200), st.integers(-5, 300), st.integers(-5, 200))
def test_any_bytes_are_judged(data, physical_offset, size):
    """Whatever is called a record can be decoded as one."""
    if record_fits(data, physical_offset, size):
        with suppress(CorruptRecord):
            decode_record(data)
            return
        raise AssertionError(data)


@pytest.mark.parametrize("position", [2, 7, 11], ids=str)
@pytest.mark.parametrize("unit", [0, 20, COUNT - 2])
def test_damage_that_a_clean_start_meets(simulated, message, told, unit, position):
    """As a museum's exhibit: the store was stopped cleanly, then a byte of a queue was flipped."""
    machine = simulated
    store = filled(machine, message)
    before = pulled(store)
    machine.stop(store)
    path = QUEUE
    byte = machine.disk.read_bytes(path)[20 * unit + position]
    damage(machine, path, 20 * unit + position, bytes([byte ^ 0x40]))
    store = machine.open(mapped_file_size_consume_queue=2000)
    assert pulled(store) == before
    store.put_many([message(b"next")], lambda results: None)
    machine.turn()
    assert len(pulled(store)) == COUNT + 1


def test_zeroed_units_stand_for_no_record(simulated, message, told):
    """They say 0, as the first record's unit does: that this one is lost hides no other."""
    store = filled(simulated, message)
    before = pulled(store)
    damage(simulated, LOG, 4, b"\x01")
    assert pulled(store) == before[1:]
    damage(simulated, QUEUE, 20 * 9, bytes(20 * 7))
    other = QUEUE.replace("TopicA", "Other")
    damage(simulated, other, 20 * 3, bytes(20))
    assert pulled(store) == before[1:]
    assert len(pulled(store, "Other")) == COUNT
    assert (store.damage.mended, store.damage.lost) == (8, 1)


def test_a_record_that_only_a_key_leads_to_is_said_once(simulated, message, told):
    """Nobody has pulled it yet; what lies outside the log is no damage."""
    store = filled(simulated, message)
    at = int.from_bytes(pulled(store)[7][28:36], "big")
    damage(simulated, LOG, at + 4, b"\x01")
    for _ in range(3):
        assert store.query("TopicA", "k7", 9, 0, 1 << 60).records == []
        assert store.damage.lost == 1
    assert [fields["physical_offset"] for fields in told] == [at]
    assert len(store.query("TopicA", "k8", 9, 0, 1 << 60).records) == 1
    end = store.log.max_offset
    store.index.put_requests([DispatchRequest("T", 0, end, 99, 0, 1, 0, "cut", "", 0, 0, "")])
    assert store.query("T", "cut", 9, 0, 1 << 60).records == []
    assert store.damage.lost == 1
    store.log.drop_oldest(1)
    assert store.query("TopicA", "k8", 9, 0, 1 << 60).records == []
    assert store.damage.lost == 1


def test_a_record_without_a_tag_is_counted_once(simulated, message, told):
    """Whether a key leads to it or its place in the queue."""
    store = simulated.open()
    results = []
    store.put_many([message(b"no tag", KEYS=f"k{number}") for number in range(3)], results.extend)
    store.put_many([message(b"what was put last is not read from the disk")], results.extend)
    simulated.turn(5)
    damage(simulated, LOG, results[1].append.physical_offset + 4, b"\x01")
    assert len(pulled(store)) == 3
    assert store.query("TopicA", "k1", 9, 0, 1 << 60).records == []
    assert store.damage.lost == len(told) == 1


def test_a_hole_that_is_longer_than_one_search(simulated, message, told, monkeypatch):
    """The message behind the last one that was looked for is looked for anew."""
    monkeypatch.setattr("rmq_ha.server.store.reading.damage._MOST_NEIGHBOURS", 2)
    store = filled(simulated, message)
    whole = pulled(store)
    damage(simulated, QUEUE, 3 * 20, bytes(7 * 20))
    assert pulled(store) == whole
    assert store.damage.mended == 7


def test_a_pull_goes_on_behind_what_an_earlier_one_found(simulated, message, told):
    """A search ends a pull; what it has found costs nothing any more."""
    store = filled(simulated, message)
    simulated.clock.advance(7)
    damage(simulated, QUEUE, 3 * 20, bytes(40))
    first = store.get_message("g", "TopicA", 0, 3, 8, None)
    assert (len(first.messages), first.next_begin_offset) == (1, 4)
    second = store.get_message("g", "TopicA", 0, 4, 8, None)
    assert (len(second.messages), second.next_begin_offset) == (8, 12)
    assert store.damage.mended == 2


def test_a_search_ends_with_the_last_message_that_it_is_to_find(make_simulated, message):
    """All behind it in a damaged queue would be read for nothing, in the reactor's thread."""
    machine = make_simulated()
    store = machine.open(mapped_file_size_consume_queue=20000)
    store.put_many([message(b"x" * 900, TAGS="t") for _ in range(600)], lambda results: None)
    machine.turn(9)
    damage(machine, QUEUE, 0, bytes(20 * 600))
    asked = []
    machine.disk.fault = lambda operation, path: asked.append(path)
    store.get_message("g", "TopicA", 0, 0, 1, None)
    read = {path for path in asked if "/commitlog/" in path}
    files = store.log.row.starts
    assert read == {store.log.row.path(start) for start in files[: len(read)]}
    assert 256 * 1000 < 65536 * len(read) < 400 * 1000
    machine.crash(store)


UNIT_FAULTS = {
    "zeros": lambda unit: bytes(20),
    "a filler": lambda unit: FILLER,
    "a high bit": lambda unit: bytes([unit[0] | 0x40]) + unit[1:],
    "a negative size": lambda unit: unit[:8] + b"\x80" + unit[9:],
    "another size": lambda unit: unit[:11] + bytes([unit[11] ^ 1]) + unit[12:],
}


@settings(max_examples=25)
@given(data=st.data())
def test_any_damaged_units_and_records(make_simulated, message, data):
    """
    All that the log has is pulled, in order and once, and each record that is none is counted, also
    where others beside it are damaged, some have expired, and the log is long.
    """
    machine = make_simulated()
    store = machine.open(mapped_file_size_consume_queue=2000)
    store.log.append_raw(data.draw(st.sampled_from([0, 1 << 33])), b"")
    for number in range(COUNT):
        body = b"%d" % number * (900 if number % 3 else 2000)
        store.put_many([message(body, TAGS="t"), message(topic="B")], lambda results: None)
    machine.turn(5)
    dropped = data.draw(st.integers(0, len(store.log.row.starts) - 2))
    store.log.drop_oldest(dropped)
    before = pulled(store)
    first = COUNT - len(before)
    assert (store.damage.mended, store.damage.lost) == (0, 0)
    numbers = st.integers(first, COUNT - 1)
    units = data.draw(st.dictionaries(numbers, st.sampled_from(sorted(UNIT_FAULTS)), max_size=8))
    lost = data.draw(st.sets(numbers, max_size=4)) - set(units)
    for number, kind in units.items():
        unit = machine.disk.read_bytes(QUEUE)[20 * number : 20 * number + 20]
        damage(machine, QUEUE, 20 * number, UNIT_FAULTS[kind](unit))
    for number in lost:
        at = int.from_bytes(before[number - first][28:36], "big")
        file = store.log.row.start_of(at)
        damage(machine, store.log.row.path(file), at - file + 4, b"\x01")
    left = [record for number, record in enumerate(before, first) if number not in lost]
    for _ in range(2):
        assert pulled(store) == left
        assert (store.damage.mended, store.damage.lost) == (len(units), len(lost))
    machine.crash(store)


def test_keys_that_lead_to_the_first_and_the_last_record(simulated, message, told):
    """Both lie inside the log: each that is damaged is said."""
    store = filled(simulated, message)
    last = int.from_bytes(pulled(store)[-1][28:36], "big")
    for at, key in ((0, "k0"), (last, f"k{COUNT - 1}")):
        damage(simulated, LOG, at + 4, b"\x01")
        assert store.query("TopicA", key, 9, 0, 1 << 60).records == []
    assert [fields["physical_offset"] for fields in told] == [0, last]
    assert store.damage.lost == 2
