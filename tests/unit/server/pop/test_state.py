"""The state of POP consumption: a pure function of its journal."""

from rmq_ha.server.pop.entries import (
    AckEntry,
    ChangeEntry,
    DropEntry,
    MoveEntry,
    MoveReason,
    NameEntry,
    PopEntry,
    ResetEntry,
    SkipEntry,
)
from rmq_ha.server.pop.leases import MOST_SPAN, LeaseMatch, QueueLeases
from rmq_ha.server.pop.records import decode_entries, encode_entries
from rmq_ha.server.pop.state import PopState
from tests.unit.server.pop.samples import NOW, RandomJournal


def begun(offset: int = 0) -> tuple[PopState, QueueLeases]:
    state = PopState()
    state.apply_all([NameEntry(1, "G", "T"), ResetEntry(1, 0, offset)])
    return state, state.queues[1, 0]


def pop(offsets: list[int], pop_ms: int = NOW, **more: object) -> PopEntry:
    values = {"invisible_ms": 5000, "start": offsets[0], "end": offsets[-1] + 1} | more
    return PopEntry(1, 0, offsets=offsets, pop_ms=pop_ms, **values)  # type: ignore[arg-type]


def test_the_offset_of_a_group_is_the_first_message_that_is_not_acknowledged() -> None:
    state, queue = begun()
    state.apply(pop(list(range(32))))
    assert (queue.committed, queue.next, queue.out) == (0, 32, 32)
    state.apply(AckEntry(1, 0, NOW, [1, 31]))
    assert (queue.committed, queue.next, queue.out, state.out) == (0, 32, 30, 30)
    state.apply(AckEntry(1, 0, NOW, [0]))
    assert queue.committed == 2
    state.apply(AckEntry(1, 0, NOW, list(range(2, 32))))
    assert (queue.committed, queue.out, queue.slots) == (32, 0, 0)


def test_an_acknowledgement_counts_once_and_only_by_the_name_of_the_lease() -> None:
    state, queue = begun()
    state.apply(pop([0, 1]))
    assert queue.match(0, NOW) is LeaseMatch.CURRENT
    assert queue.match(0, NOW + 1) is LeaseMatch.UNKNOWN
    assert queue.match(2, NOW) is LeaseMatch.UNKNOWN
    assert state.apply(AckEntry(1, 0, NOW + 1, [0])) == 0
    assert state.apply(AckEntry(1, 0, NOW, [1])) == 1
    assert queue.match(1, NOW) is LeaseMatch.REPEATED
    assert state.apply(AckEntry(1, 0, NOW, [1])) == 0
    assert state.ignored == 2


def test_a_changed_lease_has_a_new_name_and_an_acknowledged_message_has_none() -> None:
    state, queue = begun()
    state.apply(pop([0, 1]))
    assert state.apply(ChangeEntry(1, 0, 0, NOW, NOW + 7, NOW + 900)) == 1
    assert queue.lease(0) == (NOW + 7, NOW + 900)
    assert queue.match(0, NOW) is LeaseMatch.UNKNOWN
    assert queue.match(0, NOW + 7) is LeaseMatch.CURRENT
    state.apply(AckEntry(1, 0, NOW, [1]))
    assert state.apply(ChangeEntry(1, 0, 1, NOW, NOW + 9, NOW + 900)) == 0
    assert queue.lease(1) is None


def test_an_acknowledgement_after_the_move_is_unknown_also_below_the_groups_offset() -> None:
    state, queue = begun()
    state.apply(pop([0, 1]))
    assert state.apply(MoveEntry(1, 0, MoveReason.RETRY, [(0, NOW)])) == 1
    assert queue.committed == 1
    assert queue.match(0, NOW) is LeaseMatch.UNKNOWN
    state.apply(AckEntry(1, 0, NOW, [1]))
    assert [queue.match(offset, NOW) for offset in (0, 1)] == [
        LeaseMatch.UNKNOWN,
        LeaseMatch.REPEATED,
    ]
    # So many moves are not remembered one by one, and nothing below them is confirmed.
    for number in range(2, 1200):
        state.apply(pop([number], NOW + number))
        state.apply(MoveEntry(1, 0, MoveReason.RETRY, [(number, NOW + number)]))
    assert queue.match(1, NOW) is LeaseMatch.UNKNOWN


def test_messages_that_nobody_wants_are_passed_but_no_lease_is() -> None:
    state, queue = begun(5)
    assert state.apply(SkipEntry(1, 0, 5, 900)) == 895
    assert (queue.committed, queue.next, queue.slots) == (900, 900, 0)
    state.apply(pop([900, 905], end=910))
    state.apply(SkipEntry(1, 0, 910, 950))
    assert (queue.committed, queue.next) == (900, 950)
    state.apply(AckEntry(1, 0, NOW, [900]))
    assert queue.committed == 905
    state.apply(AckEntry(1, 0, NOW, [905]))
    assert queue.committed == 950


def test_every_place_of_a_pop_of_32_can_be_acknowledged_alone() -> None:
    for place in range(32):
        state, queue = begun()
        state.apply(pop(list(range(32))))
        assert state.apply(AckEntry(1, 0, NOW, [place])) == 1
        assert [offset for offset, _, _ in queue.leases()] == [
            other for other in range(32) if other != place
        ]


def test_lease_names_grow_even_when_the_clock_does_not() -> None:
    state, queue = begun()
    assert state.apply(pop([0]))
    assert not state.apply(pop([1]))
    assert state.apply(pop([1], NOW + 1))
    assert queue.last_pop_ms == NOW + 1
    state.apply_all([DropEntry(1), NameEntry(2, "G", "T"), ResetEntry(2, 0, 0)])
    assert state.queues[2, 0].last_pop_ms == NOW + 1
    assert state.out == 0


def test_a_reset_ends_all_leases() -> None:
    state, queue = begun()
    state.apply(pop([0, 1, 2]))
    state.apply(ResetEntry(1, 0, 1))
    assert (queue.committed, queue.next, queue.out, state.out) == (1, 1, 0, 0)
    assert queue.match(1, NOW) is LeaseMatch.UNKNOWN
    assert state.apply(pop([1, 2], NOW + 1)) == 2


def test_an_orderly_pop_again_counts_and_a_repeated_attempt_does_not() -> None:
    state, queue = begun()
    state.apply(pop([0, 1], is_orderly=True, attempt_id="a"))
    assert (queue.counts, queue.batch_pop_ms) == ({}, NOW)
    state.apply(pop([0, 1], NOW + 1, is_orderly=True, is_again=True, attempt_id="a"))
    assert queue.counts == {}
    assert queue.match(0, NOW) is LeaseMatch.CURRENT  # the answer may have been lost, or not
    state.apply(AckEntry(1, 0, NOW, [0]))
    state.apply(pop([1, 2], NOW + 2, is_orderly=True, attempt_id="b"))
    assert (queue.counts, queue.committed, queue.next) == ({1: 1}, 1, 3)
    assert queue.match(1, NOW + 1) is LeaseMatch.UNKNOWN
    state.apply(AckEntry(1, 0, NOW + 2, [2, 1]))
    assert (queue.counts, queue.committed) == ({}, 3)


def test_an_entry_of_nonsense_changes_nothing() -> None:
    state, queue = begun()
    state.apply(pop([0]))
    before = state.digest()
    for entry in (
        AckEntry(9, 0, NOW, [0]),
        PopEntry(1, 7, 0, 1, [0], NOW + 5, 1),
        pop([0], NOW + 5),
        PopEntry(1, 0, 5, 4, [5], NOW + 5, 1),
        PopEntry(1, 0, 1, MOST_SPAN * 4, [1], NOW + 5, 1),
        SkipEntry(1, 0, 1, 1),
        MoveEntry(1, 0, MoveReason.GONE, [(0, NOW + 1), (8, NOW)]),
        DropEntry(3),
        ResetEntry(3, 0, 0),
        NameEntry(1, "G", "U"),
    ):
        ignored = state.ignored
        assert state.apply(entry) == 0
        assert state.ignored == ignored + 1, entry
        assert state.digest() == before, entry
    assert queue.out == 1


def test_a_million_messages_out_take_16_bytes_each() -> None:
    state, queue = begun()
    for start in range(0, 1_000_000, 10_000):
        state.apply(pop(list(range(start, start + 10_000)), NOW + start))
    assert queue.slots == queue.out == 1_000_000
    assert queue._pops.itemsize + queue._dues.itemsize == 16


def test_replicas_are_equal_from_the_beginning_and_from_images() -> None:
    for seed in range(4):
        journal = RandomJournal(seed)
        whole, restored = PopState(), PopState()
        for _ in range(200):
            entries = [journal.entry() for _ in range(journal.random.randint(1, 4))]
            data = encode_entries(entries, NOW)
            whole.apply_all(entries)
            restored.apply_all(decode_entries(data))
            if journal.random.random() < 0.05:
                images = decode_entries(encode_entries(whole.images(), 0))
                again = PopState()
                again.next_name, again.least_pop_ms = whole.next_name, whole.least_pop_ms
                again.apply_all(images)
                # Names without a queue have no image; they mean nothing until they are reset.
                for name, known in whole.names.items():
                    again.apply(NameEntry(name, *known))
                restored = again
            assert restored.digest() == whole.digest()
            assert restored.out == whole.out == sum(q.out for q in whole.queues.values())


class Model:
    """Leases of one queue in plain dictionaries, for comparison."""

    def __init__(self) -> None:
        self.out: dict[int, int] = {}
        self.next = 0

    @property
    def committed(self) -> int:
        return min(self.out, default=self.next)


def test_a_queue_does_what_a_simple_model_does() -> None:
    for seed in range(3):
        journal = RandomJournal(1000 + seed)
        random = journal.random
        state, queue = begun()
        model, now = Model(), NOW
        for _ in range(300):
            now += 1
            choice = random.random()
            if choice < 0.4:
                start = model.next
                end = start + random.randint(1, 40)
                offsets = sorted(random.sample(range(start, end), min(end - start, 32)))
                state.apply(PopEntry(1, 0, start, end, offsets, now, 1000))
                model.out |= dict.fromkeys(offsets, now)
                model.next = end
            elif model.out:
                taken = random.sample(sorted(model.out), min(len(model.out), random.randint(1, 9)))
                for offset in taken:
                    name = model.out.pop(offset)
                    state.apply(AckEntry(1, 0, name, [offset]))
            assert (queue.committed, queue.next) == (model.committed, model.next)
            assert {offset: name for offset, name, _ in queue.leases()} == model.out
            assert queue.out == len(model.out)
