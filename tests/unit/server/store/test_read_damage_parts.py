"""Where `ReadDamage` looks for a message, to the byte: queues and logs of a few records each."""

import pytest
from twisted.logger import capturedLogs

from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.consumequeue import FILLER, FILLER_SIZE
from rmq_ha.server.store.reading import damage as read_damage
from rmq_ha.server.store.reading.damage import ReadDamage
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import record

ZEROS = (0, 0, 0)
SIZE = 1 << 20


def numbered(queue_offset: int, physical_offset: int, **of) -> bytes:
    return record(physical_offset, b"body", queue_offset=queue_offset, **of)


class Queue:
    """A consume queue by its units."""

    topic, queue_id = "T", 0

    def __init__(self, units, first=0):
        self.known = dict(enumerate(units, first))
        self.min_offset = first
        self.mended = []

    def units(self, queue_offset, count):
        numbers = range(queue_offset, queue_offset + count)
        return [self.known[number] for number in numbers if number in self.known]

    def mend(self, queue_offset, unit):
        self.mended.append((queue_offset, unit))
        self.known[queue_offset] = unit


class World:
    """A log of `count` messages of one queue, from `begin` on; the queue has their units."""

    def __init__(self, count=5, begin=0, first=0, checks_body=False):
        self.log = MemoryLog(SIZE, begin)
        self.log.delay_levels = [1000]
        self.units = []
        for number in range(first, first + count):
            self.add(number)
        self.queue = Queue(self.units, first)
        self.damage = ReadDamage(self.log, checks_body)

    def add(self, queue_offset, **of):
        data = numbered(queue_offset, self.log.max_offset, **of)
        self.units.append((self.log.max_offset, len(data), 0))
        self.log.put(data)

    def find(self, queue_offset):
        found = self.damage.find(self.queue, queue_offset, self.queue.known[queue_offset])
        return None if found is None else decode_record(found)

    def bytes_at(self, unit):
        return self.log.read(unit[0], unit[1])


def test_nothing_was_looked_for_yet():
    damage = World().damage
    assert (damage.searches, damage.lost, damage.mended) == (0, 0, 0)


def test_a_body_is_judged_where_that_is_wanted():
    for checks in (False, True):
        world = World(checks_body=checks)
        start = world.units[2][0]
        world.log.data[world.log.data.index(b"body", start)] ^= 1
        data = world.bytes_at(world.units[2])
        judge = world.damage.checks_for(world.queue)
        place, size, _ = world.units[2]
        assert judge((data,), (place,), (size,), (2,)) == (not checks)
        assert world.damage.is_sound(data, world.units[2][0]) is not checks


@pytest.mark.parametrize("at", range(5))
def test_a_message_is_looked_for_between_its_neighbours(at):
    world = World()
    right = world.queue.known[at]
    world.queue.known[at] = ZEROS
    assert world.find(at).physical_offset == right[0]
    assert world.queue.mended == [(at, right)]
    assert world.damage.searches == 1


def test_only_between_them():
    """A record with that number that lies elsewhere is another one."""
    world = World(3)
    world.log.put(numbered(1, world.log.max_offset))
    world.add(3)
    world.queue.known[3] = world.units[3]
    world.log.data[world.units[1][0] + 4] ^= 1
    assert world.find(1) is None
    assert world.damage.lost == 1
    world.log.data[world.units[1][0] + 4] ^= 1
    world.log.data[world.units[2][0] + 4] ^= 1
    assert world.find(2) is None
    assert world.damage.lost == 2


@pytest.mark.parametrize("number", [0, 7, 99])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_sound_record_with_another_number_has_that_of_its_place(number, at):
    """It may fill all that lies between its neighbours, and be the first or last of the log."""
    world = World()
    start, size, _ = world.queue.known[at]
    world.log.data[start : start + size] = numbered(number, start)
    assert world.find(at).queue_offset == at
    assert not world.queue.mended
    assert world.damage.searches == 0


@pytest.mark.parametrize("of", [{"topic": "U"}, {"queue_id": 1}])
def test_a_record_of_another_queue_is_not_of_this(of):
    world = World()
    start, size, _ = world.queue.known[2]
    world.log.data[start : start + size] = numbered(2, start, **of)
    assert world.find(2) is None


def test_a_record_beyond_the_next_one_is_not_this():
    """Sound, of this queue, and known to another unit: consumers would get it twice."""
    world = World()
    world.queue.known[1] = world.queue.known[3]
    found = world.find(1)
    assert found.physical_offset == world.units[1][0]
    world = World()
    world.queue.known[3] = world.queue.known[1]
    assert world.find(3).physical_offset == world.units[3][0]


@pytest.mark.parametrize("size", [-1, 0, 1, 90])
def test_a_size_that_is_none(size):
    world = World()
    right = world.queue.known[2]
    world.queue.known[2] = (right[0], size, 0)
    assert world.find(2).physical_offset == right[0]
    assert world.queue.known[2] == right


def lost(begin, unit, **neighbours):
    """What becomes of a unit whose record is not there: how many messages count as lost."""
    world = World(3, begin=begin, first=10)
    world.queue.known = {10: unit, 11: world.units[1], 12: world.units[2]} | neighbours
    world.log.data[: len(numbered(10, begin))] = numbered(10, begin, topic="U")
    world.queue.min_offset = 10
    assert world.find(10) is None
    return world.damage.lost


@pytest.mark.parametrize(
    ("unit", "is_lost"),
    [
        ((900, 100, 0), False),  # ends where the log begins now
        ((900, 99, 0), False),
        ((999, 1, 0), False),
        ((999, 2, 0), False),
        ((1000, 100, 0), True),
        ((950, 100, 0), False),
        ((2000, FILLER_SIZE, 0), False),
        ((2000, 100, FILLER_SIZE), True),
        ((1001, 1, 0), True),
        ((0, FILLER_SIZE, 0), False),
        ((0, 1, 0), False),
        ((-1, 1, 0), False),
    ],
)
def test_what_the_log_had_once_has_expired(unit, is_lost):
    assert lost(1000, unit) == is_lost


def test_each_place_counts_once():
    """That of the record, wherever the unit stands; or the unit, if it points to nowhere."""
    world = World()
    low, high = world.log.min_offset, world.log.max_offset
    place = world.damage._place
    assert place(world.queue, 1, (low, 10, 0)) == low
    assert place(world.queue, 1, (high - 1, 1, 0)) == high - 1
    for unit in (
        (high, 1, 0),
        (high + 1, 1, 0),
        (-1, 1, 0),
        (5, 0, 0),
        (5, FILLER_SIZE, 0),
        FILLER,
    ):
        assert place(world.queue, 1, unit) == ("T", 0, 1)


def test_neighbours_that_expired_say_that_it_may_have(monkeypatch):
    world = World(5, begin=1000, first=10)
    world.queue.known[10] = (800, 100, 0)
    world.queue.known[11] = (900, 100, 0)
    world.queue.known[12] = ZEROS
    low = world.damage._low
    assert low(world.queue, 12) == (True, 1000)
    assert low(world.queue, 11) == (True, 1000)
    assert low(world.queue, 10) == (True, 1000), "nothing is before it"
    assert low(world.queue, 14) == (False, world.units[3][0] + world.units[3][1])
    world.queue.known[10] = ZEROS
    world.queue.known[11] = (1000, 7, 0)
    assert low(world.queue, 12) == (True, 1000), "the queue begins so near"
    world.queue.known[10] = world.units[0]
    assert low(world.queue, 12) == (False, world.units[1][0]), "the one before says nothing"
    monkeypatch.setattr(read_damage, "_MOST_NEIGHBOURS", 1)
    assert low(world.queue, 12) == (False, 1000)


def test_the_last_search_says_where_a_long_stretch_begins(monkeypatch):
    monkeypatch.setattr(read_damage, "_MOST_NEIGHBOURS", 2)
    world = World(9, begin=1000, first=10)
    for number in range(13, 18):
        world.queue.known[number] = ZEROS
    queue, begin = world.queue, world.units[3][0]
    assert world.damage._low(queue, 15) == (False, 1000)
    assert world.damage.find(queue, 13, ZEROS)
    world.queue.known[13] = ZEROS
    for number, low in ((14, begin), (15, begin), (16, 1000)):
        assert world.damage._low(queue, number) == (False, low)
    queue.queue_id = 1
    assert world.damage._low(queue, 15) == (False, 1000)
    queue.queue_id = 0
    world.log.min_offset = begin + 50
    assert world.damage._low(queue, 15) == (False, begin + 50)


def test_what_is_left_out_is_said_by_its_place():
    world = World()
    world.log.data[world.units[2][0] + 4] ^= 1
    world.queue.known[2] = (*world.units[2][:2], 77)
    with capturedLogs() as events:
        assert world.find(2) is None
    assert events[0]["physical_offset"] == world.units[2][0]


def test_high_is_the_next_good_one_or_the_end():
    world = World(5, begin=1000, first=10)
    high = world.damage._high
    assert high(world.queue, 11, False) == world.units[2][0]
    world.queue.known[12] = (900, 100, 0)
    assert high(world.queue, 11, False) == world.units[3][0]
    assert high(world.queue, 11, True) == 900
    assert high(world.queue, 14, False) == world.log.max_offset
    world.queue.known[12] = (950, 100, 0)
    assert high(world.queue, 11, True) == world.units[3][0]
    world.queue.known[12] = (1001, 0, 0)
    assert high(world.queue, 11, True) == world.units[3][0]


def test_what_a_search_found_is_used_for_those_behind(monkeypatch):
    """One search of the log for a stretch of damaged units, also over several pulls."""
    monkeypatch.setattr(read_damage, "_MOST_NEIGHBOURS", 4)
    world = World(12)
    for number in range(3, 9):
        world.queue.known[number] = ZEROS
    for number in range(3, 9):
        assert world.find(number).physical_offset == world.units[number][0]
    assert world.damage.searches == 2


def test_another_queues_search_says_nothing_of_this(monkeypatch):
    monkeypatch.setattr(read_damage, "_MOST_NEIGHBOURS", 2)
    world = World(2)
    other = Queue([], 0)
    other.queue_id = 1
    for number in range(3):
        start = world.log.max_offset
        data = numbered(number, start, queue_id=1)
        other.known[number] = ZEROS
        world.log.put(data)
    world.queue.known = {0: ZEROS, 1: ZEROS}
    assert world.find(0).physical_offset == world.units[0][0]
    assert decode_record(world.damage.find(other, 0, ZEROS)).queue_id == 1
    assert world.find(1).physical_offset == world.units[1][0]
    assert decode_record(world.damage.find(other, 2, ZEROS)).queue_id == 1


def test_nothing_between_neighbours_is_no_search():
    world = World(3)
    del world.log.data[world.units[1][0] : world.units[2][0]]
    world.queue.known[2] = (world.units[1][0], world.units[2][1], 0)
    world.log.data[world.units[1][0] :] = numbered(2, world.units[1][0])
    world.queue.known[1] = ZEROS
    assert world.find(1) is None
    assert (world.damage.searches, world.damage.lost) == (0, 1)
