"""What queues lack is found, and taken from the log. Spec: store.md, sections 3.4 and 6."""

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.server.store.local.rebuild import QueueRebuild
from rmq_ha.server.store.queues.ends import QueueEnd, QueueEnds

FILE = 16384


@pytest.fixture
def filled(machine, message):
    """A store of three files with 30 messages in each of two queues, and how they lie."""
    store = machine.open(mapped_file_size_commit_log=FILE)
    results = []
    for number in range(60):
        store.put_many([message(b"x" * 600, queue_id=number % 2)], results.extend)
    machine.turn(10)
    return store, [result.append for result in results]


def rebuilt(store, ends=None, end=None, *, is_exact=True):
    """What a start does with its notes, or without any; what it says of queues."""
    rebuild = QueueRebuild(store.log, store.queues, store.index)
    with capturedLogs() as events:
        rebuild.look()
        if ends is not None:
            rebuild.compare(ends, is_exact=is_exact)
        elif end is not None:
            rebuild.audit(end)
        is_needed = rebuild._from is not None
        rebuild.run(store.log.max_offset)
        rebuild.leave_out()
    told = [formatEvent(event) for event in events]
    return rebuild.begin if is_needed else None, told


def noted(store, **changes):
    """The notes of a clean stop now, for the queue 0 with these changes."""
    queues = {
        key: QueueEnd(queue.first_offset, queue.max_offset, queue.max_physical_offset)
        for key, queue in store.queues.items()
    }
    queues["TopicA", 0] = queues["TopicA", 0]._replace(**changes)
    return QueueEnds(store.log.min_offset, store.log.max_offset, None, queues)


def cut(queue, end):
    """Its messages from a number on are gone."""
    queue.cut_back(lambda queue_offset, offset, size: queue_offset < end)


def lose_first_file(store):
    """The log begins with its second file, and the queues do not know it yet."""
    store.log.row.delete(0)
    assert store.log.min_offset == FILE


def places(queue):
    return [queue.units(number, 1)[0][0] for number in range(queue.min_offset, queue.max_offset)]


def test_a_queue_that_lacks_its_end_gets_that_and_nothing_is_read_that_it_has(filled):
    store, appended = filled
    queue = store.queues.get("TopicA", 0)
    ends, before = noted(store), places(queue)
    cut(queue, 25)
    begin, told = rebuilt(store, ends)
    assert begin == appended[48].next_offset
    assert places(queue) == before
    (line,) = told
    assert "TopicA 0 ends at 25, and ended at 30" in line
    assert f"from {begin} on: it goes from 0 to 30 now" in line


def test_of_several_queues_that_lack_something_each_gets_all(filled):
    """The log is read from where the first of them ends, whichever is found first."""
    store, appended = filled
    queues = [store.queues.get("TopicA", queue_id) for queue_id in (0, 1)]
    ends, before = noted(store), [places(queue) for queue in queues]
    for first, second in ((25, 20), (20, 25)):
        cut(queues[0], first)
        cut(queues[1], second)
        begin, told = rebuilt(store, ends)
        assert begin == appended[38 if first == 20 else 39].next_offset
        assert [places(queue) for queue in queues] == before
        assert len(told) == 2


def test_a_queue_that_knows_a_place_and_has_no_message_is_built_from_where_the_log_begins(filled):
    store, _ = filled
    queue = store.queues.get("TopicA", 0)
    ends, before = noted(store), places(queue)
    queue.truncate(0)
    queue.max_physical_offset = store.log.max_offset - 1000
    begin, _ = rebuilt(store, ends)
    assert begin == 0
    assert places(queue) == before


@pytest.mark.parametrize("end", [3, 9])
def test_a_queue_whose_messages_have_all_expired_begins_where_the_log_does(filled, end):
    """What lies between is in nobody's log: no fillers stand for it."""
    store, appended = filled
    queue = store.queues.get("TopicA", 0)
    ends = noted(store)
    cut(queue, end)
    lose_first_file(store)
    first = next(n // 2 for n in range(0, 60, 2) if appended[n].physical_offset >= FILE)
    begin, _ = rebuilt(store, ends)
    assert begin == FILE
    assert (queue.min_offset, queue.max_offset) == (first, 30)
    assert places(queue) == [appended[2 * n].physical_offset for n in range(first, 30)]


def test_a_queue_of_which_the_log_has_nothing_any_more_costs_no_start(filled):
    """It ended where the log begins now, or before; still its numbers are not given again."""
    store, appended = filled
    ends = noted(store, end=40)
    last = appended[58].next_offset
    for reached, is_read in ((FILE, False), (FILE - 1, False), (last, True)):
        store.queues.get("TopicA", 0).empty()
        if store.log.min_offset == 0:
            lose_first_file(store)
        ends.queues["TopicA", 0] = QueueEnd(0, 40, reached)
        begin, _ = rebuilt(store, ends)
        assert (begin is not None) is is_read
        assert store.queues.get("TopicA", 0).max_offset == 40


def test_a_queue_with_the_last_message_before_the_log_begins_goes_on_from_there(filled):
    """Its units are not forgotten: without a message behind them their numbers would be given."""
    store, appended = filled
    queue = store.queues.get("TopicA", 0)
    last = max(n for n in range(0, 60, 2) if appended[n].next_offset <= FILE)
    cut(queue, last // 2 + 1)
    store.log.row.delete(0)
    queue.max_physical_offset = FILE  # as if its record filled the file
    queue.damage = "has a scratch"
    rebuilt(store)
    assert (queue.min_offset, queue.max_offset) == (0, 30)


def test_a_queue_with_more_than_was_noted_loses_that_after_a_clean_stop_only(filled):
    """After a crash it has grown since."""
    store, _ = filled
    queue = store.queues.get("TopicA", 0)
    ends = noted(store, end=28, reached=queue.units(27, 1)[0][0] + queue.units(27, 1)[0][1])
    assert rebuilt(store, ends, is_exact=False) == (None, [])
    assert queue.max_offset == 30
    assert rebuilt(store, ends) == (None, [])
    assert queue.max_offset == 28


def test_a_queue_that_points_elsewhere_at_its_end_is_cut_to_what_fits(filled):
    """And no farther: the last message that is its own stays where it is."""
    store, _ = filled
    queue = store.queues.get("TopicA", 0)
    ends, before = noted(store), places(queue)
    for number in (28, 29):
        queue.mend(number, (before[3], 5, 0))
    queue.max_physical_offset = before[3] + 5
    begin, told = rebuilt(store, ends)
    assert begin == before[28] - (before[28] - before[27] - queue.units(27, 1)[0][1])
    assert places(queue) == before
    assert f"pointed to {ends.queues['TopicA', 0].reached} at its end" in told[0]


def test_without_notes_a_queue_is_asked_for_what_the_log_has_at_both_of_its_ends(filled):
    """All of the log is what the queues should have: the first message of it, and the last one."""
    store, _ = filled
    queue = store.queues.get("TopicA", 1)
    before = places(queue)
    assert rebuilt(store, end=store.log.max_offset) == (None, [])
    cut(queue, 29)
    begin, told = rebuilt(store, end=store.log.max_offset)
    assert begin == before[28] + queue.units(28, 1)[0][1]
    assert places(queue) == before
    assert len(told) == 1
    queue.empty()
    store.queues.queue("TopicA", 1).leave_out(20)
    begin, told = rebuilt(store, end=store.log.max_offset)
    assert begin == 0
    assert places(queue) == before


def test_a_queue_that_lacks_both_ends_is_whole_again_and_told_of_once(machine, message):
    store = machine.open(mapped_file_size_consume_queue=200)
    store.put_many([message() for _ in range(30)], lambda results: None)
    machine.turn(10)
    queue = store.queues.get("TopicA", 0)
    ends, before = noted(store), places(queue)
    queue.delete_expired(before[10])
    cut(queue, 25)
    assert (queue.first_offset, queue.max_offset) == (10, 25)
    _, told = rebuilt(store, ends)
    assert places(queue) == before
    assert len([line for line in told if "what it lacks was taken" in line]) == 1


def test_what_the_log_lost_is_left_out_and_said(filled):
    store, _ = filled
    queue = store.queues.get("TopicA", 0)
    ends = noted(store, end=33)
    _, told = rebuilt(store, ends)
    assert queue.max_offset == 33
    assert [unit[1] for unit in queue.units(30, 9)] == [0x7FFFFFFF] * 3
    assert any("ends at 30, and ended at 33: the log has lost these" in line for line in told)
    _, told = rebuilt(store, ends)
    assert not any("has lost these" in line for line in told)


def test_an_index_that_is_whole_is_not_built_again(filled):
    store, _ = filled
    store.index.damage = "one of its files is short"
    begin, told = rebuilt(store)
    assert begin == max(store.index.reached, 0)
    assert told[0].startswith("one of its files is short; it is removed")
    store.index.damage = ""
    assert rebuilt(store) == (None, [])
