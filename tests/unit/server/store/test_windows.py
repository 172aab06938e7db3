"""What the pulls of several queues read of the log together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.server.store.log.windows import MAX_GAP, WINDOW_SIZE, LogWindows

RECORD = 1000
SIZE = 3 * WINDOW_SIZE
QUEUES = 8
DATA = b"".join(number.to_bytes(8, "big") for number in range(SIZE // 8))


class Log:
    """Bytes that tell where they are; counts reads."""

    file_size = 2 * WINDOW_SIZE
    min_offset = flushed_offset = cuts = 0

    def __init__(self, max_offset=SIZE):
        self.data = DATA
        self.max_offset = max_offset
        self.reads = []

    def read(self, physical_offset, limit):
        self.reads.append((physical_offset, limit))
        file_end = physical_offset - physical_offset % self.file_size + self.file_size
        return self.data[physical_offset : min(physical_offset + limit, file_end, self.max_offset)]


def pull(queue, batch, count=32):
    """The places of one pull from one of `QUEUES` whose records take turns."""
    first = (batch * count * QUEUES + queue) * RECORD
    return [first + number * QUEUES * RECORD for number in range(count)]


def records(windows, places, size=RECORD):
    return windows.records(places, [size] * len(places))


def right(log, places, size=RECORD):
    return [log.data[place : place + size] for place in places]


def test_the_pulls_of_all_queues_read_each_byte_about_once():
    """The first one for itself, as nobody knows whether others come; then window by window."""
    log = Log()
    windows = LogWindows(log)
    for batch in range(7):
        for queue in range(QUEUES):
            places = pull(queue, batch)
            assert records(windows, places) == right(log, places)
    assert len(log.reads) <= 32 + 3
    assert sum(size for _, size in log.reads) < 1.3 * SIZE


def test_a_pull_alone_reads_its_records_and_nothing_else():
    log = Log()
    windows = LogWindows(log)
    for batch in range(7):
        records(windows, pull(3, batch))
    assert {size for _, size in log.reads} == {RECORD}


def test_records_far_from_each_other_open_no_window():
    log = Log()
    windows = LogWindows(log)
    places = [0, WINDOW_SIZE, 2 * WINDOW_SIZE]
    for _ in range(4):
        assert records(windows, places) == right(log, places)
    assert {size for _, size in log.reads} == {RECORD}


def test_what_was_cut_is_read_anew():
    """Another record may be there, with the same number in the same queue."""
    log = Log()
    windows = LogWindows(log)
    for queue in range(3):
        records(windows, pull(queue, 0))
    places = pull(3, 0)
    log.data = bytes(SIZE)
    assert records(windows, places) != right(log, places), "out of the window"
    log.cuts += 1
    assert records(windows, places) == right(log, places)
    log.reads.clear()
    for batch in range(4):
        for queue in range(QUEUES):
            records(windows, pull(queue, batch))
    assert len(log.reads) <= 2 * 32 + 3, "windows are opened again"


def test_a_window_ends_where_the_log_ends():
    """What is not there yet is not remembered as missing."""
    log = Log(max_offset=pull(QUEUES - 1, 0)[-1] + RECORD)
    windows = LogWindows(log)
    for queue in range(QUEUES):
        assert records(windows, pull(queue, 0)) == right(log, pull(queue, 0))
    log.max_offset = SIZE
    for batch in range(1, 4):
        for queue in range(QUEUES):
            assert records(windows, pull(queue, batch)) == right(log, pull(queue, batch))


def test_a_reader_that_jumps_about_costs_a_window_and_no_more():
    """Four are remembered: more readers than that read for themselves, or a window each time."""
    log = Log()
    windows = LogWindows(log)
    for _ in range(3):
        for batch in range(6):
            assert records(windows, pull(0, batch)) == right(log, pull(0, batch))
    assert max(size for _, size in log.reads) <= WINDOW_SIZE
    assert len(windows._windows) <= 4


@pytest.mark.parametrize("gap", [0, MAX_GAP, MAX_GAP + 1])
def test_neighbours_are_read_together_up_to_a_gap(gap):
    log = Log()
    places = [100, 100 + RECORD + gap, SIZE - RECORD]
    assert records(LogWindows(log), places) == right(log, places)
    assert len(log.reads) == (3 if gap > MAX_GAP else 2)


@given(data=st.data())
def test_whatever_is_asked_for_comes_as_it_is_in_the_log(data):
    """In whatever order, over the ends of files, and where a damaged queue says nonsense."""
    log = Log()
    windows = LogWindows(log)
    centres = st.sampled_from([0, WINDOW_SIZE, log.file_size, SIZE])
    place = st.builds(lambda centre, by: max(0, centre + by), centres, st.integers(-9000, 9000))
    for _ in range(data.draw(st.integers(1, 6))):
        units = data.draw(st.lists(st.tuples(place, st.integers(1, 3000)), min_size=1, max_size=9))
        is_rising = data.draw(st.booleans())
        units = sorted(units) if is_rising else units
        places, sizes = zip(*units, strict=True)
        found = windows.records(places, sizes)
        for (at, size), one in zip(units, found, strict=True):
            file_end = at - at % log.file_size + log.file_size
            wanted = log.data[at : min(at + size, file_end)]
            if is_rising:
                assert one == wanted or (size > file_end - at and one[: len(wanted)] == wanted)
            assert len(one) <= size
