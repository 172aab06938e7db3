"""What a start does about progress that is older, or newer, than the log. Spec: store.md, 10.5."""

from itertools import pairwise
from random import Random

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.server.store.delay import delivered_messages
from rmq_ha.server.store.delay.delivered_messages import CopiesSince, DeliveredCopies
from rmq_ha.server.store.delay.level import message_of
from tests.unit.server.store.delayed_store import DelayedStore, a_store_that_delivered


def test_progress_that_is_too_old() -> None:
    """What the log has a copy of is not delivered again, however old the file is."""
    made = a_store_that_delivered(30)
    made.put("half-way", 1)
    made.stop()
    for table in ({"1": 3}, {}):
        made.progress(table)
        made.start()
        made.run(4)
        assert sorted(made.delivered() + made.delivered(1)) == sorted(
            [*(f"m{number}" for number in range(30)), "half-way"]
        )
        assert made.store.schedule.offset_table[1] == 31
        made.stop()


def test_progress_that_is_ahead_of_the_log() -> None:
    """A slave that knows of deliveries whose copies never reached it delivers them itself."""
    made = a_store_that_delivered(10)
    for number in range(5):
        made.put(f"lost{number}", 1)
    made.run(0.1)
    made.stop()  # before they are due
    made.progress({"1": 15})
    made.start()
    made.run(4)
    names = made.delivered() + made.delivered(1)
    assert sorted(names) == sorted(
        [*(f"m{number}" for number in range(10)), *(f"lost{number}" for number in range(5))]
    )


@pytest.mark.parametrize("refused", [False, True])
def test_only_those_without_a_copy_come_again(refused: bool) -> None:
    """Also where a gap is between them, as asynchronous delivery of the Java broker leaves it."""
    made = DelayedStore()
    made.store.schedule.stop()
    for name in ("a", "b", "c"):
        made.put(name, 2)
    made.run(6)
    found = made.store.get_message("g", SCHEDULE_TOPIC, 1, 1, 1, None)
    record = decode_record(found.messages[0])
    assert record.properties["KEYS"] == "b"
    made.store.put_message(message_of(record))
    made.run(0.1)
    made.stop()
    made.start()
    if refused:  # so that the level is looked at again and again
        made.store.configuration.store.broker_role = BrokerRole.SLAVE
        made.run(2)
        made.store.configuration.store.broker_role = BrokerRole.ASYNC_MASTER
    made.run(3)
    assert made.delivered() == ["b", "a", "c"]
    assert made.store.schedule.offset_table == {2: 3}


@pytest.mark.parametrize("recorded", range(4))
def test_equal_messages_are_counted(recorded: int) -> None:
    """
    Three that nothing tells apart, two copies: one is still to be delivered.

    Behind the first one, either of the two copies may be its own: then one too many is delivered.
    """
    made = DelayedStore()
    for _ in range(2):
        made.put("same", 1, unique=False)
    made.run(3)
    made.put("same", 1, unique=False)
    made.run(0.1)
    made.stop()
    made.progress({"1": recorded})
    made.start()
    made.run(3)
    assert made.delivered() == ["same"] * (4 if recorded == 1 else 3)


def test_longer_levels_after_a_restart_change_nothing_for_what_waits() -> None:
    """The promised time is in the queue; new messages get the new delay."""
    made = DelayedStore()
    made.put("old", 2)
    made.run(0.1)
    made.stop()
    made.configuration.store.message_delay_level = "1s 60s 90s"
    made.start()
    made.put("new", 2)
    made.run(10)
    assert made.delivered() == ["old"]
    made.run(60)
    assert made.delivered() == ["old", "new"]


def test_fewer_levels_after_a_restart_strand_nothing() -> None:
    """And a new message with a level beyond them gets the highest."""
    made = DelayedStore()
    made.put("old", 2)
    made.run(0.1)
    made.stop()
    made.configuration.store.message_delay_level = "1s"
    made.start()
    made.put("new", 2)
    made.run(1.5)
    assert made.delivered() == ["new"]
    made.run(5)
    assert made.delivered() == ["new", "old"]


@pytest.mark.parametrize("seed", range(3))
def test_targets_are_read_in_pieces(seed: int) -> None:
    """A long queue takes several calls; each copy is found once."""
    made = DelayedStore()
    random = Random(seed)
    for number in range(700):
        made.put(f"m{number}", random.choice((0, 1)))
    made.run(12)
    store = made.store
    copies, since = DeliveredCopies(store.queues, store.record_at), CopiesSince(0, 0)
    queue = store.queues.get(SCHEDULE_TOPIC, 0)
    assert queue is not None
    asked, taken = 0, []
    for offset in range(queue.max_offset):
        physical_offset, size, _ = queue.units(offset, 1)[0]
        record = decode_record(store.record_at(physical_offset, size) or b"")
        while (found := copies.take(record, since)) is None:
            asked += 1
        assert found
        taken.append(record)
    assert asked > 1
    for record in taken:
        while (found := copies.take(record, since)) is None:
            asked += 1
        assert found is False


@pytest.mark.parametrize(("unique", "pieces"), [(True, 1), (False, 4)])
def test_a_message_that_is_unique_has_one_copy(
    monkeypatch: pytest.MonkeyPatch, unique: bool, pieces: int
) -> None:
    """Once it is found, the rest of the queue is left unread."""
    monkeypatch.setattr(delivered_messages, "_RECORDS_A_CALL", 2)
    made = DelayedStore()
    made.put("m", 1, unique=unique)
    made.run(3)
    for number in range(6):
        made.put(f"other{number}")
    made.run(0.1)
    record = the_delayed(made)
    copies, asked = DeliveredCopies(made.store.queues, made.store.record_at), 0
    while (found := copies.take(record, CopiesSince(0, 0))) is None:
        asked += 1
    assert (found, asked) == (True, pieces)


def test_what_the_log_has_no_more_is_no_copy() -> None:
    """A unit of the queue leads to nothing: those behind it are found all the same."""
    made = DelayedStore()
    made.put("gone")
    made.put("m", 1)
    made.run(3)
    store = made.store
    queue = store.queues.get("T", 0)
    assert queue is not None
    gone = queue.units(0, 1)[0][0]
    copies = DeliveredCopies(
        store.queues, lambda at, size: None if at == gone else store.record_at(at, size)
    )
    record = the_delayed(made)
    assert copies.take(record, CopiesSince(0, 0)) is None
    assert copies.take(record, CopiesSince(0, 0)) is True


def the_delayed(made: DelayedStore) -> Record:
    """The first message of level 1."""
    queue = made.store.queues.get(SCHEDULE_TOPIC, 0)
    assert queue is not None
    physical_offset, size, _ = queue.units(0, 1)[0]
    return decode_record(made.store.record_at(physical_offset, size) or b"")


def copies_in_time(made: DelayedStore, seconds: float, step: float = 0.25) -> list[int]:
    """How many messages are delivered, seen every `step`."""
    seen = []
    for _ in range(round(seconds / step)):
        made.run(step)
        seen.append(len(made.delivered()))
    return seen


def test_a_clock_that_is_set_back() -> None:
    """Nothing comes early, nothing late by more than a little, nothing twice; also what is new."""
    made = DelayedStore("1s 20s")
    for number in range(40):
        made.put(f"m{number}", 2)
        made.run(0.25)
    made.host.skew_ms -= 7_200_000
    for number in range(40):
        made.put(f"n{number}", 2)
        made.run(0.25)
    seen = copies_in_time(made, 25)
    assert seen[0] <= 3
    for earlier, later in pairwise(seen):
        assert later - earlier <= 8
    assert made.delivered() == [f"{kind}{number}" for kind in "mn" for number in range(40)]


def test_a_clock_that_is_set_forward() -> None:
    """What is due by it comes within half a minute, in order and once."""
    made = DelayedStore("1s 3600s")
    for number in range(200):
        made.put(f"m{number}", 2)
    made.run(1)
    made.host.skew_ms += 3_600_000
    made.run(31)
    assert made.delivered() == [f"m{number}" for number in range(200)]
    assert made.store.schedule.offset_table == {2: 200}


def taken(copies: DeliveredCopies, record: Record, since: CopiesSince) -> bool:
    """What `take` says in the end."""
    while (found := copies.take(record, since)) is None:
        pass
    return found


def delivered_copies(made: DelayedStore) -> list[int]:
    """Where in the log the messages of queue 0 of T are."""
    queue = made.store.queues.get("T", 0)
    assert queue is not None
    return [unit[0] for unit in queue.units(0, 99)]


def test_a_copy_is_counted_once_from_wherever_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Levels begin at places of their own: what one has read no other reads again."""
    monkeypatch.setattr(delivered_messages, "_RECORDS_A_CALL", 2)
    made = DelayedStore()
    for name in ("a", "b", "c", "same", "d"):
        made.put(name, 1 if name == "same" else 0, unique=False)
        made.run(3)
    record, places = the_delayed(made), delivered_copies(made)
    for begins in ([3, 0], [0, 3], [4, 3, 0], [3, 0, 3]):
        copies = DeliveredCopies(made.store.queues, made.store.record_at)
        found = [taken(copies, record, CopiesSince(places[at], 0)) for at in begins]
        assert found.count(True) == 1
        assert found[begins.index(min(begins, key=lambda at: at == 4))] is True


def test_of_copies_that_are_alike_the_first_is_taken() -> None:
    """The others are left to those whose copies begin later; what has none is delivered again."""
    made = DelayedStore()
    for _ in range(3):
        made.put("same", 1, unique=False)
        made.run(3)
    record, places = the_delayed(made), delivered_copies(made)
    copies = DeliveredCopies(made.store.queues, made.store.record_at)
    assert [taken(copies, record, CopiesSince(at, 0)) for at in (0, *places[1:], 0)] == [
        True,
        True,
        True,
        False,
    ]


def test_a_copy_at_the_place_from_which_they_count_is_one() -> None:
    """One byte later it is not."""
    made = DelayedStore()
    made.put("m", 1, unique=False)
    made.run(3)
    record, (place,) = the_delayed(made), delivered_copies(made)
    copies = DeliveredCopies(made.store.queues, made.store.record_at)
    assert taken(copies, record, CopiesSince(place + 1, 0)) is False
    assert taken(copies, record, CopiesSince(place, 0)) is True


@pytest.mark.parametrize(("most", "is_left"), [(1, True), (9, False)])
def test_what_was_too_much_to_remember_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, most: int, is_left: bool
) -> None:
    """A copy that is not found may be behind the point where reading ended."""
    monkeypatch.setattr(delivered_messages, "_RECORDS_A_CALL", 1)
    monkeypatch.setattr(delivered_messages, "_MOST_COPIES", most)
    made = DelayedStore()
    for name in "abcdef":
        made.put(name, 1)
    made.run(3)
    made.put("g", 1)
    made.run(0.1)
    queue = made.store.queues.get(SCHEDULE_TOPIC, 0)
    assert queue is not None
    physical_offset, size, _ = queue.units(6, 1)[0]
    waiting = decode_record(made.store.record_at(physical_offset, size) or b"")
    copies = DeliveredCopies(made.store.queues, made.store.record_at)
    assert taken(copies, waiting, CopiesSince(0, 0)) is False
    assert copies.may_be_gone(waiting) is is_left


def test_a_queue_that_is_gone_in_the_middle_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic was deleted while it was read."""
    monkeypatch.setattr(delivered_messages, "_RECORDS_A_CALL", 1)
    made = DelayedStore()
    for name in "abc":
        made.put(name, 1)
    made.run(3)
    record = the_delayed(made)._replace(born_timestamp=1)
    copies = DeliveredCopies(made.store.queues, made.store.record_at)
    queue = made.store.queues.get("T", 0)
    assert queue is not None
    assert copies.take(record, CopiesSince(0, 0)) is None
    queue.truncate(delivered_copies(made)[1])
    assert taken(copies, record, CopiesSince(0, 0)) is False
    assert copies.may_be_gone(record)


def test_a_damaged_copy_is_none() -> None:
    """Neither of its own message nor of the one before it."""
    made = DelayedStore()
    for _ in range(2):
        made.put("same", 1, unique=False)
    made.run(3)
    record, (_, second) = the_delayed(made), delivered_copies(made)
    store = made.store

    def damaged(at: int, size: int) -> bytes | None:
        data = store.record_at(at, size)
        return data[:-1] if data and at == second else data

    copies = DeliveredCopies(store.queues, damaged)
    assert taken(copies, record, CopiesSince(0, 0)) is True
    assert taken(copies, record, CopiesSince(0, 0)) is False


def test_a_delayed_message_is_no_copy_of_itself() -> None:
    """Not even one that a client addressed to the topic in which it waits."""
    made = DelayedStore()
    made.store.schedule.stop()
    made.put("m", 1, topic=SCHEDULE_TOPIC)
    made.run(0.1)
    record = the_delayed(made)
    assert record.properties["REAL_TOPIC"] == record.topic
    copies = DeliveredCopies(made.store.queues, made.store.record_at)
    assert copies.glance(record, record.store_timestamp) == delivered_messages.ABSENT
