"""A consume queue in any life: grown, cut, expired, stopped, found again. Spec: store.md, 3."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.store_format.commitlog import RECORD_OVERHEAD
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable
from rmq_ha.testing.disk import SimDisk

SIZE = 100
FILE = 800
UNITS = 40


class Life:
    """A queue, and beside it a plain list of what has to be in it."""

    def __init__(self, first: int) -> None:
        self.disk = SimDisk(Random(1), lambda: 0)
        self.open()
        self.records: list[tuple[int, int]] = []
        self.end = first
        self.reached = 5000
        self.low = 0

    def open(self) -> None:
        self.table = ConsumeQueueTable(self.disk, "/store", FILE)

    @property
    def queue(self) -> ConsumeQueue:
        return self.table.queue("T", 0)

    @property
    def live(self) -> list[tuple[int, int]]:
        return [record for record in self.records if record[1] >= self.low]

    def put(self, count: int) -> None:
        requests = []
        for _ in range(count):
            place = self.reached + self.reached % 3 * 40  # other queues' records lie between
            requests.append(DispatchRequest("T", 0, place, SIZE, 7, 1, self.end, "", "", 0, 0, ""))
            self.records.append((self.end, place))
            self.end, self.reached = self.end + 1, place + SIZE
        self.table.put_requests(requests)
        self.table.put_requests(requests)  # twice is once

    def skip(self, count: int) -> None:
        """The log has lost as many records."""
        if self.records:
            self.end += count
        self.reached += count * RECORD_OVERHEAD

    def leave_out(self, count: int) -> None:
        if self.records:
            self.end += count
            self.queue.leave_out(self.end)

    def place(self, at: int) -> int:
        """Somewhere in the log, in a record that there still is or at its beginning."""
        return self.live[at % len(self.live)][1] + at % 2

    def cut(self, at: int) -> None:
        if len(self.live) < 2:
            return
        place = max(self.place(at), self.live[0][1] + 1)
        kept = [record for record in self.records if record[1] < place]
        if at % 3:
            self.table.truncate(place)
        else:
            self.queue.cut_back(
                lambda number, physical, size: size != FILLER_SIZE and physical < place
            )
        self.end = kept[-1][0] + 1
        self.records = kept

    def cut_all(self) -> None:
        """All of it is gone; the next message may have any number."""
        if self.low or not self.records:
            return
        self.table.truncate(self.records[0][1])
        assert self.queue.max_physical_offset == self.records[0][1]
        assert self.disk.list_dir("/store/consumequeue/T/0") == []
        self.end += 3
        self.records = []

    def expire(self, at: int) -> None:
        if not self.live:
            return
        self.low = self.live[at % len(self.live)][1]
        before = len(self.files())
        deleted = self.table.delete_expired(self.low)
        files = self.files()
        assert len(files) == before - deleted >= 1
        if self.live:
            assert files[0] == self.live[0][0] // UNITS * UNITS, "no file too many, none too few"

    def files(self) -> list[int]:
        return [int(name) // 20 for name in self.disk.list_dir("/store/consumequeue/T/0")]

    def reopen(self, how: int) -> None:
        """After a clean stop, a kill, or lost power; all had been synced."""
        self.table.sync()
        self.disk.open("/other", 1).sync()  # and with it what was removed
        if how == 2:
            self.disk = self.disk.crash()
        self.table.close()
        self.open()
        self.table.load()
        self.table.recover(how == 0)
        assert self.queue.damage == ""
        self.table.correct_min_offsets(self.low)

    def check(self) -> None:
        queue = self.queue
        if not self.records:
            assert (queue.max_offset, queue.min_offset, queue.last_record()) == (0, 0, None)
            return
        last = self.records[-1]
        assert queue.max_physical_offset == last[1] + SIZE
        assert queue.last_record() == (last[1], SIZE)
        assert queue.max_offset == max(self.end, last[0] + 1)
        if not self.live:
            return
        live = dict(self.live)
        first = self.live[0][0]
        assert queue.min_offset == first
        for number in range(first, queue.max_offset):
            unit = queue.units(number, 1)[0]
            if number in live:
                assert unit == (live[number], SIZE, 7)
            else:
                assert unit[1] == FILLER_SIZE
        for number, place in [*self.live[::7], self.live[-1]]:
            assert queue.offset_by_place(place) == number
            behind = next((n for n, other in self.live if other > place), queue.max_offset)
            assert queue.offset_by_place(place + 1) in range(number + 1, behind + 1)
        assert queue.units(queue.max_offset, 1) == queue.units(first - 1, 1) == []


STEPS = st.one_of(
    st.tuples(st.sampled_from(["put", "put", "skip"]), st.sampled_from([1, 2, 39, 40, 41, 130])),
    st.tuples(st.just("leave_out"), st.sampled_from([1, 41])),
    st.tuples(st.sampled_from(["cut", "expire"]), st.integers(0, 400)),
    st.tuples(st.just("reopen"), st.integers(0, 2)),
    st.tuples(st.just("cut_all"), st.none()),
)


@settings(max_examples=60)
@given(st.sampled_from([0, 1, 39, 40, 95]), st.lists(STEPS, max_size=12))
def test_a_queue_has_what_the_log_has_given_it(
    first: int, steps: list[tuple[str, int | None]]
) -> None:
    """Each message at its number and place, nothing behind the end, and no file too many."""
    life = Life(first)
    life.put(3)
    for what, amount in steps:
        step = getattr(life, what)
        if what == "skip":  # only the next record shows it
            step(amount)
            life.put(1)
        elif amount is None:
            step()
        else:
            step(amount)
        life.check()
