"""Delayed messages when stamps say nothing: the clock was set, and the broker was killed. 10.5."""

from collections import Counter
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest

from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.server.store.delay.delivered_messages import CopiesSince, DeliveredCopies, Unit
from rmq_ha.server.store.delay.level import DelayLevel, message_of
from rmq_ha.server.store.delay.lookback import LookBack
from rmq_ha.server.store.message_store import DefaultMessageStore
from tests.unit.server.store.delayed_store import DelayedStore, a_store_that_delivered

HOUR_MS = 3_600_000


def each_once(made: DelayedStore, names: list[str]) -> None:
    assert sorted(made.delivered() + made.delivered(1)) == sorted(names)


def through_a_step(made: DelayedStore, back_s: float = 20) -> list[str]:
    """The clock goes an hour forward and, a little later, back, while messages come and go."""
    names = made.flow("before", 5)
    made.host.skew_ms += HOUR_MS
    names += made.flow("ahead", 3)
    made.host.skew_ms -= HOUR_MS
    return names + made.flow("back", back_s)


@pytest.mark.parametrize("progress", ["as it was", "older", "lost", "ahead"])
def test_a_kill_after_a_clock_step(progress: str) -> None:
    """Stamps stand still in the future; each message is delivered once, also at later starts."""
    made = DelayedStore()
    names = through_a_step(made)
    for life in range(4):
        ends = {
            str(level): made.store.queues.queue(SCHEDULE_TOPIC, level - 1).max_offset
            for level in (1, 2)
        }
        made.kill()
        if progress != "as it was":
            older = {level: end // 3 for level, end in ends.items()}
            made.progress({"older": older, "lost": {}, "ahead": ends}[progress])
        made.start()
        names += made.flow(f"life{life}-", 8)
    made.run(8)
    each_once(made, names)


@pytest.mark.parametrize("back", [False, True])
def test_progress_ahead_of_a_log_whose_stamps_jumped(back: bool) -> None:
    """A slave's log ends before copies that its progress counts: all of them are delivered."""
    made = DelayedStore()
    names = made.flow("before", 10)
    made.run(6)
    names += [f"waits{number}" for number in range(300)]
    for name in names[-300:]:
        made.put(name, 2)
    made.host.skew_ms += HOUR_MS
    made.store.schedule.stop()
    made.put("jump")
    if back:
        made.run(0.1)
        made.host.skew_ms -= HOUR_MS
        names += (late := [f"late{number}" for number in range(300)])
        for name in late:
            made.put(name, 2)
    made.run(1)
    made.kill()
    made.progress({"1": 50, "2": 10_000})
    made.start()
    made.run(8)
    each_once(made, [*names, "jump"])


def test_a_topic_that_was_deleted_is_not_delivered_to_again() -> None:
    """Its copies cannot be found any more; what was recorded as delivered stays so."""
    made = DelayedStore()
    names = made.flow("gone", 10)
    made.run(7)
    each_once(made, names)
    assert made.store.clean_unused_topics(["other"]) == 2
    made.run(1)  # until it is noted
    made.kill()
    made.progress({"1": 50, "2": 50})
    made.start()
    names = made.flow("new", 3)
    made.run(7)
    each_once(made, names)


@pytest.mark.parametrize("twin_at", ["before the end", "at the end"])
def test_a_second_try_of_a_client_vouches_for_nobody_between(twin_at: str) -> None:
    """It is like the first one, whose copy is there; the copies of those between are not."""
    made = DelayedStore()
    made.put("first", 1)
    made.run(0.5)
    for number in range(20):
        made.put(f"between{number}", 1)
    made.run(0.1)
    made.put("first", 1)
    if twin_at == "before the end":
        made.put("last", 1)
    made.run(0.6)
    assert made.delivered() == ["first"]
    made.kill()
    made.progress({"1": 23})
    made.start()
    made.run(4)
    assert {f"between{number}" for number in range(20)} <= set(made.delivered())


def test_a_kill_at_any_time_after_a_step() -> None:
    """Whatever was delivered by then, and whatever the file says."""
    for tenths in range(5, 70, 9):
        made = DelayedStore()
        names = through_a_step(made, tenths / 10)
        made.kill()
        made.start()
        made.run(8)
        each_once(made, names)


def settled(made: DelayedStore, number: int, recorded: int) -> DelayLevel:
    """A level at the beginning, when the log was asked."""
    store = made.store
    level = DelayLevel(number, store.delay_levels[number - 1], recorded)
    look_back = LookBack(store.queues, store.record_at, lambda level, unit: unit[2])
    look_back.begin([level], store.log.last_store_timestamp)
    while not look_back.find_beginning(level):
        pass
    return level


def delayed(made: DelayedStore, level: int, offset: int) -> Record:
    queue = made.store.queues.queue(SCHEDULE_TOPIC, level - 1)
    physical_offset, size, _ = queue.units(offset, 1)[0]
    return decode_record(made.store.record_at(physical_offset, size) or b"")


def test_a_start_takes_up_the_progress_that_was_written() -> None:
    """Before anything is delivered: the log is asked about what lies behind it only."""
    made = a_store_that_delivered(10)
    made.stop()
    store = DefaultMessageStore(made.host.seams, made.configuration)
    store.load()
    assert store.schedule.offset_table[1] == 10
    store.close()


def test_what_is_delivered_is_asked_for_no_more() -> None:
    """At once where all was recorded, else when the last one of before was reached."""
    made = a_store_that_delivered(10)
    store = made.store
    levels = [DelayLevel(1, store.delay_levels[0], recorded) for recorded in (10, 4)]
    for level in levels:
        asked: list[int] = []

        def noted(offset: int, size: int, asked: list[int] = asked) -> bytes | None:
            asked.append(offset)
            return store.record_at(offset, size)

        look_back = LookBack(store.queues, noted, lambda level, unit: unit[2])
        look_back.begin([level], store.log.last_store_timestamp)
        while not look_back.find_beginning(level):
            pass
        assert (level.unsure_until == 0) == (level.recorded == 10)
        look_back.note_progress(level, 9)
        assert (level.unsure_until == 0) == (level.recorded == 10)
        look_back.note_progress(level, 10)
        assert level.unsure_until == 0
        asked.clear()
        assert look_back.is_delivered(level, 9, delayed(made, 1, 9)) is False
        assert asked == []


def test_where_a_level_begins() -> None:
    """At what is recorded, unless the log proves that something below was not delivered."""
    made = DelayedStore()
    for number in range(100):
        made.put(f"m{number}", 1, topic="U" if number == 98 else "T")
    made.run(1.05)
    made.store.schedule.stop()
    made.put("late", 1)
    made.run(2)
    for recorded in range(101):
        assert settled(made, 1, recorded).offset == recorded
    assert settled(made, 1, 101).offset == 100
    for _ in range(30):
        made.put("more", 1)
    made.run(0.1)
    assert settled(made, 1, 131).offset == 100
    assert made.store.clean_unused_topics(["T"]) == 1  # nothing says of m98 whether it was
    assert settled(made, 1, 99).offset == 99
    assert settled(made, 1, 131).offset <= 100
    assert made.store.clean_unused_topics([]) == 1
    assert settled(made, 1, 100).offset == 100
    assert settled(made, 1, 1).offset == 1


def test_steps_back_grow() -> None:
    """Thousands that were not delivered cost a start no turn each."""
    made = DelayedStore()
    made.store.schedule.stop()
    for number in range(300):
        made.put(f"m{number}", 1)
    made.run(2)
    level = DelayLevel(1, made.store.delay_levels[0], 300)
    look_back = LookBack(made.store.queues, made.store.record_at, lambda level, unit: unit[2])
    look_back.begin([level], made.store.log.last_store_timestamp)
    turns = 0
    while not look_back.find_beginning(level):
        turns += 1
    assert level.offset == 0
    assert turns < 30


def test_of_a_deleted_topic_those_that_were_recorded_stay_delivered() -> None:
    """Although others below the recorded progress were not, and are now."""
    made = DelayedStore()
    for number in range(4):
        made.put(f"gone{number}", 1, topic="U")
    made.run(1.05)
    made.store.schedule.stop()
    for number in range(4):
        made.put(f"lost{number}", 1)
    made.run(0.1)
    made.store.clean_unused_topics(["T"])
    made.run(1)
    made.kill()
    made.progress({"1": 8})
    made.start()
    made.run(4)
    assert made.delivered() == [f"lost{number}" for number in range(4)]
    assert made.store.max_offset_in_queue("U", 0) == 0


def test_a_second_copy_does_not_hide_those_before_it() -> None:
    """What an older version delivered twice in bulk is no reason to deliver the next ones twice."""
    made = DelayedStore()
    names = [f"m{number}" for number in range(20)]
    for name in names:
        made.put(name, 1)
    made.run(2)
    for offset in range(5):
        made.store.put_message(message_of(delayed(made, 1, offset)))
    made.run(1)
    made.kill()
    made.progress({"1": 5})
    made.start()
    made.run(3)
    assert made.delivered() == names + names[:5]


def test_copies_of_this_life_stand_for_none_of_the_last() -> None:
    made = DelayedStore()
    made.put("other")
    made.store.schedule.stop()
    made.put("m", 1)
    made.run(0.1)
    copies = DeliveredCopies(made.store.queues, made.store.record_at)
    made.store.put_message(message_of(delayed(made, 1, 0)))
    made.run(0.1)
    assert made.delivered() == ["other", "m"]
    while (found := copies.take(delayed(made, 1, 0), CopiesSince(0, 0))) is None:
        pass
    assert found is False


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were read in search of copies, at each call."""
    counts: list[int] = []
    read = DeliveredCopies._copies_among

    def counted(self: DeliveredCopies, units: list[Unit]) -> Iterable[tuple[int, str]]:
        counts.append(len(units))
        return read(self, units)

    monkeypatch.setattr(DeliveredCopies, "_copies_among", counted)
    return counts


@pytest.mark.parametrize("progress", ["as it was", "lost"])
def test_little_is_read(progress: str, reads: list[int]) -> None:
    """A start reads of other messages what may hold copies, and no more; a piece at a time."""
    made = DelayedStore()
    names = [f"m{number}" for number in range(20)]
    for name in names:
        made.put(name, 2)
    made.put("long ago", 1)
    made.run(3)
    for number in range(3000):
        made.put(f"other{number}")
    made.run(9)  # until it is in the file
    made.put("waits", 1)
    made.run(0.5)
    made.kill()
    if progress == "lost":
        made.progress({})
    made.start()
    made.run(8)
    each_once(made, ["long ago", *names, *(f"other{n}" for n in range(3000)), "waits"])
    assert max(reads) <= 256
    assert sum(reads) <= (3100 if progress == "lost" else 4 * 30)


def test_behind_the_last_copy_only(reads: list[int]) -> None:
    """The next one waited while thousands came; it cannot have been delivered before the last."""
    made = DelayedStore()
    made.put("last", 2)
    made.run(4.9)
    made.put("next", 2)
    for number in range(3000):
        made.put(f"other{number}")
    made.run(0.3)
    assert made.delivered()[-1] == "last"
    made.kill()
    made.progress({"2": 1})
    made.start()
    made.run(7)
    assert made.delivered().count("next") == 1
    assert made.delivered()[-1] == "next"
    assert sum(reads) <= 3 * 256


@pytest.mark.parametrize("step", [False, True])
def test_very_much_behind_a_place(
    step: bool, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then stamps may leave some of it out; not where the clock stands behind them."""
    monkeypatch.setattr("rmq_ha.server.store.delay.delivered_messages._MOST_BY_PLACE", 1000)
    made = DelayedStore("1s 20s")
    if step:
        made.host.skew_ms += HOUR_MS
        made.put("jump")
        made.host.skew_ms -= HOUR_MS
    made.put("delivered", 2)
    made.put("waits", 2)
    for number in range(3000):
        made.put("other")
        if number % 100 == 0:
            made.run(0.5)
    made.run(4.9)
    made.store.schedule.stop()
    made.put("waits too", 2)
    made.store.put_message(message_of(delayed(made, 2, 0)))
    made.run(0.5)
    made.kill()
    made.progress({})
    made.start()
    made.run(45)
    assert Counter(made.delivered()) == {
        "delivered": 1, "waits": 1, "waits too": 1, "other": 3000, **({"jump": 1} if step else {})
    }  # fmt: skip
    assert sum(reads) > 3000 if step else sum(reads) < 600


def test_a_search_ends_where_it_finds(reads: list[int]) -> None:
    """Thousands that came later, with the same stamp, are not read."""
    made = DelayedStore()
    made.host.skew_ms += HOUR_MS
    made.put("jump")
    made.host.skew_ms -= HOUR_MS
    for number in range(300):
        made.put(f"before{number}")
    made.put("m", 1)
    made.run(2)
    for number in range(3000):
        made.put(f"after{number}")
    made.run(10)  # until it is in the file
    made.kill()
    made.start()
    made.run(4)
    assert made.delivered().count("m") == 1
    assert 50 < sum(reads) <= 300


def test_what_another_level_had_read_does_not_count() -> None:
    """It is older, and has copies of messages that are alike."""
    made = DelayedStore("2s 5s")
    made.put("older", 2)
    for _ in range(2):
        made.put("same", 1, unique=False)
    made.run(6)
    made.put("same", 1, unique=False)
    made.run(0.1)
    made.kill()
    made.progress({"1": 2})
    made.start()
    made.run(4)
    assert made.delivered() == ["same", "same", "older", "same"]


def test_when_all_is_settled_the_log_is_not_asked_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies that were read are let go of, and it is said once what was found."""
    said: list[tuple[int, int, int]] = []

    class Told:
        def info(self, text: str, delay_level: int, found: int, again: int) -> None:
            said.append((delay_level, found, again))

    made = a_store_that_delivered(6)
    made.kill()
    made.progress({"1": 2})
    monkeypatch.setattr(LookBack, "log", Told())
    made.start()
    made.run(2)
    look_back = made.store.schedule._look_back
    assert look_back._copies is None
    assert said == [(1, 4, 0)]
    made.put("next", 1)
    made.run(3)
    assert len(made.delivered()) == 4
    assert len(said) == 1


def test_what_was_recorded_and_not_delivered_is_told() -> None:
    """An operator learns that the progress file was ahead of the log, and by how much."""
    made = with_copies_of(7, [number for number in range(7) if number not in (4, 5)])
    said: list[tuple[int, int]] = []
    look_back, level = looked_back(made, 7)
    look_back.log = SimpleNamespace(  # type: ignore[assignment]
        info=lambda text, delay_level, found, again: said.append((found, again))
    )
    for offset in range(level.offset, 7):
        while look_back.is_delivered(level, offset, delayed(made, 1, offset)) is None:
            pass
    look_back.note_progress(level, 7)
    assert (level.offset, said) == (3, [(2, 2)])


def test_the_first_message_of_a_level_was_never_delivered() -> None:
    """Where nothing is recorded nothing was; that its topic was deleted meanwhile says nothing."""
    made = DelayedStore()
    made.put("now")
    made.put("late", 2)
    made.run(1)
    assert made.store.clean_unused_topics(["other"]) == 1
    made.run(1)  # until it is noted
    made.kill()
    made.start()
    made.run(8)
    assert made.delivered() == ["late"]


def test_progress_outside_its_queue_becomes_the_nearest_end() -> None:
    """Of every level, and before the store starts: a slave's copy of it may be anything."""
    made = a_store_that_delivered(10)
    made.put("waits", 2)
    made.run(0.1)
    made.stop()
    for told, wanted in ((10**6, {1: 10, 2: 1}), (-5, {1: 0, 2: 0}), (1, {1: 1, 2: 1})):
        made.progress({"1": told, "2": told})
        store = DefaultMessageStore(made.host.seams, made.configuration)
        store.load()
        assert store.schedule.offset_table == wanted
        store.close()
    made.progress({"4": 9})
    store = DefaultMessageStore(made.host.seams, made.configuration)
    store.load()
    assert store.schedule.runtime_info() == {"scheduleMessageOffset_4": "9,0"}
    store.close()


def with_copies_of(count: int, delivered: Iterable[int]) -> DelayedStore:
    """A store with delayed messages, of which these have copies, in this order."""
    made = DelayedStore()
    made.store.schedule.stop()
    for number in range(count):
        made.put(f"m{number}", 1)
    made.run(2)
    for number in delivered:
        made.store.put_message(message_of(delayed(made, 1, number)))
    made.run(0.1)
    return made


def looked_back(
    made: DelayedStore,
    recorded: int,
    record_at: Callable[[int, int], bytes | None] | None = None,
) -> tuple[LookBack, DelayLevel]:
    store = made.store
    level = DelayLevel(1, store.delay_levels[0], recorded)
    look_back = LookBack(store.queues, record_at or store.record_at, lambda level, unit: unit[2])
    look_back.begin([level], store.log.last_store_timestamp)
    while not look_back.find_beginning(level):
        pass
    return look_back, level


def test_one_that_is_missing_between_delivered_ones_is_not_passed_over() -> None:
    """Three side by side are what a level may begin behind: each of them is looked at."""
    for missing in (4, 5):
        made = with_copies_of(7, [number for number in range(7) if number != missing])
        assert looked_back(made, 7)[1].offset == missing


def test_copies_that_lie_in_another_order_count() -> None:
    """A put that failed and came later: what was delivered before it was delivered."""
    made = with_copies_of(4, [0, 1, 3, 2])
    look_back, level = looked_back(made, 3)
    while (found := look_back.is_delivered(level, 3, delayed(made, 1, 3))) is None:
        pass
    assert (level.offset, found) == (3, True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: None,
        lambda data: data[:-1],
        lambda data: data.replace(b"REAL_TOPIC", b"REAL_TOPIX"),
    ],
    ids=["gone", "cut", "without its topic"],
)
def test_a_delayed_message_that_says_nothing_is_passed_over(
    spoil: Callable[[bytes], bytes | None],
) -> None:
    """Nobody can deliver it; those before it say where the level begins."""
    made = with_copies_of(6, range(6))
    spoiled = delayed(made, 1, 5).physical_offset

    def record_at(offset: int, size: int) -> bytes | None:
        data = made.store.record_at(offset, size)
        return spoil(data) if data and offset == spoiled else data

    assert looked_back(made, 6, record_at)[1].offset == 6


def test_after_the_end_nothing_is_asked_and_a_new_beginning_is_one() -> None:
    """A master that became a slave, and leads again: what it knew then does not count."""
    made = with_copies_of(4, [0, 1])
    look_back, level = looked_back(made, 0)
    assert level.unsure_until == 4
    look_back.end()
    assert look_back.find_beginning(level)
    assert look_back.is_delivered(level, 0, delayed(made, 1, 0)) is False
    made.store.put_message(message_of(delayed(made, 1, 2)))
    made.run(0.1)
    again = DelayLevel(1, level.delay_ms, 0)
    look_back.begin([again], made.store.log.last_store_timestamp)
    while not look_back.find_beginning(again):
        pass
    found = []
    for offset in range(4):
        while (one := look_back.is_delivered(again, offset, delayed(made, 1, offset))) is None:
            pass
        found.append(one)
    assert found == [True, True, True, False]
    look_back.note_progress(again, 4)
    assert look_back._copies is None
