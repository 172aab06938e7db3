"""What a difference between a master and a slave means."""

from typing import Any

import pytest

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.codes import MEANINGS
from rmq_ha.ops.offsets.model import Fact, Snapshot
from rmq_ha.ops.offsets.pairing import Pairing, cases, caught_up, pair, predict
from rmq_ha.ops.offsets.rules import judge

ALL = frozenset(model.NUMBERS + model.TEXTS)


def snapshot(
    *facts: Fact, at: int = 0, place: str = "m", kinds: frozenset[str] = ALL, **more: Any
) -> Snapshot:
    return Snapshot(place, None, None, None, False, at, at, kinds, facts, **more)


def offset(value: int, group: str = "g", queue_id: int = 0) -> Fact:
    return Fact(model.OFFSET, "t", group, queue_id, value)


def queue(low: int, end: int) -> Fact:
    return model.queue_fact("t", 0, low, end)


def topics(*configs: TopicConfig, counter: int = 1) -> list[Fact]:
    table = TopicTable(DataVersion(5, counter), {item.topic_name: item for item in configs})
    return list(model.topic_facts(table))


def ruled(master: list[Fact], slave: list[Fact], *, proven: bool = True, max_lag: int = 0) -> Any:
    """Codes by kind, and the sums of repeats, skips and losses."""
    pairing = Pairing([snapshot(*master)], snapshot(*slave, place="s"), proven)
    codes: dict[str, tuple[str, ...]] = {}
    sums = [0, 0, 0]
    for case in cases(pairing):
        ruling = judge(case, max_lag)
        if ruling.codes:
            codes[case.key.kind] = codes.get(case.key.kind, ()) + ruling.codes
        sums = [a + b for a, b in zip(sums, ruling[1:], strict=True)]
    return codes, tuple(sums)


def test_equal_is_in_sync() -> None:
    facts = [offset(7), queue(0, 10), *topics(TopicConfig("t")), model.log_fact(0, 99)]
    assert ruled(facts, facts) == ({}, (0, 0, 0))


@pytest.mark.parametrize(
    ("master", "slave", "expected"),
    [
        ([offset(9)], [offset(4)], ({"offset": ("STALE",)}, (5, 0, 0))),
        ([offset(4)], [offset(9)], ({"offset": ("SLAVE_AHEAD",)}, (0, 5, 0))),
        ([offset(9)], [], ({"offset": ("MISSING_ON_SLAVE",)}, (9, 0, 0))),
        ([], [offset(9)], ({"offset": ("ORPHAN_ON_SLAVE",)}, (0, 0, 0))),
        ([offset(10)], [offset(10)], ({}, (0, 0, 0))),
        (
            [offset(12)],
            [offset(12)],
            ({"offset": ("BEYOND_MAX", "MASTER_BEYOND_MAX")}, (0, 0, 0)),
        ),
        # -1 is no offset: nothing was consumed, or all is consumed again.
        ([offset(-1)], [], ({"offset": ("MISSING_ON_SLAVE",)}, (0, 0, 0))),
        ([offset(9)], [offset(-1)], ({"offset": ("STALE",)}, (9, 0, 0))),
        # Beyond the end, only what exists can be repeated or skipped.
        ([offset(9)], [offset(15)], ({"offset": ("SLAVE_AHEAD", "BEYOND_MAX")}, (0, 1, 0))),
    ],
)
def test_offsets_in_a_queue_of_ten(master: list[Fact], slave: list[Fact], expected: Any) -> None:
    assert ruled([*master, queue(0, 10)], [*slave, queue(0, 10)]) == expected


def group(name: str = "g") -> Fact:
    return Fact(model.GROUP, None, name, text="{}")


@pytest.mark.parametrize(
    ("slave", "expected"),
    [
        (offset(9), ({"offset": ("SLAVE_AHEAD",)}, (0, 9, 0))),
        (offset(15), ({"offset": ("SLAVE_AHEAD",)}, (0, 10, 0))),
        (offset(0), ({"offset": ("ORPHAN_ON_SLAVE",)}, (0, 0, 0))),
        (offset(-1), ({"offset": ("ORPHAN_ON_SLAVE",)}, (0, 0, 0))),
    ],
)
def test_a_group_without_an_entry_on_the_master_is_at_0_there(slave: Fact, expected: Any) -> None:
    """ "Safe: yes, 0 skipped" was said of a group that would have skipped 90 messages."""
    assert ruled([group(), queue(0, 10)], [group(), slave, queue(0, 10)]) == expected
    own = slave._replace(group="CID_RMQ_SYS_TRANS")
    assert ruled([queue(0, 10)], [own, queue(0, 10)]) == expected
    deleted = {"offset": ("ORPHAN_ON_SLAVE",)}, (0, 0, 0)
    assert ruled([queue(0, 10)], [slave, queue(0, 10)]) == deleted
    assert ruled([group()], [group(), slave]) == deleted
    unknown = ALL - {model.GROUP}
    masters = [snapshot(queue(0, 10), kinds=unknown)]
    pairing = Pairing(masters, snapshot(slave, queue(0, 10), place="s"), True)
    assert predict(pairing).skipped == expected[1][1]


def test_a_damaged_number_of_the_master_is_not_the_slaves_fault() -> None:
    assert ruled([offset(-5), queue(0, 10)], [offset(9), queue(0, 10)]) == (
        {"offset": ("MASTER_DAMAGED",)},
        (0, 0, 0),
    )


def test_a_queue_of_a_topic_that_the_master_deleted_is_no_divergence() -> None:
    """Slaves keep its files; what a master has lost, its log and its topics tell."""
    assert ruled([], [queue(0, 10)]) == ({"queue": ("ORPHAN_ON_SLAVE",)}, (0, 0, 0))
    assert ruled([queue(0, 0)], [queue(0, 10)])[0] == {"queue": ("QUEUE_AHEAD",)}
    assert ruled([], [queue(0, 0)]) == ({}, (0, 0, 0))


def test_what_is_retried_begins_at_the_beginning_without_an_offset() -> None:
    topic = "%RETRY%g"

    def facts(low: int) -> list[Fact]:
        return [model.queue_fact(topic, 0, low, 20)]

    master = [Fact(model.OFFSET, topic, "g", 0, 15), *facts(5)]
    assert ruled(master, facts(5)) == ({"offset": ("MISSING_ON_SLAVE",)}, (10, 0, 0))


def test_what_a_live_broker_leaves_out_is_left_out_of_a_store() -> None:
    live = snapshot(*topics(TopicConfig("t")), own=frozenset({"broker-a"}))
    store = snapshot(*topics(TopicConfig("t"), TopicConfig("broker-a")), place="s")
    assert [
        code for case in cases(Pairing([live], store, True)) for code in judge(case).codes
    ] == []


def test_a_brokers_own_progress_repeats_no_message() -> None:
    def own(value: int) -> list[Fact]:
        return [offset(value, "CID_RMQ_SYS_TRANS"), queue(0, 10)]

    assert ruled(own(9), own(4)) == ({"offset": ("STALE",)}, (0, 0, 0))


def test_what_every_broker_has_by_itself_is_no_difference() -> None:
    table = {name: SubscriptionGroupConfig(name) for name in ("TOOLS_CONSUMER", "CID_ONSAPI_PULL")}
    built_in = list(model.group_facts(GroupTable(DataVersion(1, 1), table)))
    assert ruled(list(model.group_facts(GroupTable(DataVersion(1, 1), {}))), built_in)[0] == {}
    table["TOOLS_CONSUMER"].consume_enable = False
    changed = list(model.group_facts(GroupTable(DataVersion(2, 1), table)))
    assert ruled(changed, built_in)[0]["group"] == ("MISSING_GROUP",)


def test_messages_that_may_be_missing_make_the_log_no_fault() -> None:
    master = [queue(0, 10), model.log_fact(0, 900)]
    slave = [queue(0, 8), model.log_fact(0, 700)]
    assert set(ruled(master, slave)[0].values()) == {("NOT_REPLICATED",), ("LOG_BEHIND",)}
    codes, sums = ruled(master, slave, max_lag=2)
    assert codes == {"queue": ("LAGGING",), "log": ("LAGGING",)}
    assert sums == (0, 0, 2)


def test_more_than_may_be_missing_is_not_safe_while_it_is_on_its_way() -> None:
    masters = [snapshot(queue(0, 2)), snapshot(queue(0, 100), at=1), snapshot(queue(0, 100), at=9)]
    slave = snapshot(queue(0, 10), at=5, place="s")
    (case,) = cases(Pairing(masters, slave, True))
    assert judge(case, 5).codes == ("UNSETTLED",)
    assert judge(case, 90).codes == ("LAGGING",)


def test_a_crashed_master_may_have_written_an_older_offset() -> None:
    """It writes every 5 s; its slave copies from memory."""
    pairing = Pairing(
        [snapshot(offset(4), queue(0, 10), is_crashed=True)],
        snapshot(offset(9), queue(0, 10), place="s"),
        True,
    )
    rulings = [judge(case) for case in cases(pairing)]
    assert [code for ruling in rulings for code in ruling.codes] == ["MASTER_OLDER"]
    assert sum(ruling.skipped for ruling in rulings) == 0


def test_repeats_are_counted_in_messages_that_the_slave_has() -> None:
    codes, sums = ruled([offset(9), queue(0, 10)], [offset(2), queue(0, 6)])
    assert codes["offset"] == ("STALE",)
    assert sums == (4, 0, 4)


def test_an_offset_is_beyond_a_slave_that_is_behind() -> None:
    codes, sums = ruled([offset(9), queue(0, 10)], [offset(9), queue(0, 6)])
    assert codes == {"offset": ("BEYOND_MAX",), "queue": ("NOT_REPLICATED",)}
    assert sums == (0, 0, 4)


def test_without_an_offset_a_group_begins_at_the_end_of_a_queue_that_is_not_whole() -> None:
    codes, sums = ruled([offset(7), queue(3, 10)], [queue(3, 10)])
    assert codes == {"offset": ("MISSING_ON_SLAVE",)}
    assert sums == (0, 3, 0)


def test_old_messages_that_a_group_still_needs() -> None:
    """A slave that came with an empty store has no old messages: some groups need them."""
    codes, sums = ruled([offset(2), queue(0, 10)], [offset(2), queue(5, 10)])
    assert codes == {"offset": ("BELOW_MIN",), "queue": ("MIN_DRIFT",)}
    assert sums == (0, 3, 0)
    codes, sums = ruled([offset(6), queue(0, 10)], [offset(6), queue(5, 10)])
    assert codes == {"queue": ("MIN_DRIFT",)}
    assert sums == (0, 0, 0)


def test_offsets_of_a_topic_that_is_gone_on_both_sides_are_no_fault() -> None:
    assert ruled([offset(12)], [offset(12)]) == ({}, (0, 0, 0))


def test_delay_levels() -> None:
    at = [model.queue_fact("SCHEDULE_TOPIC_XXXX", 2, 0, 10)]
    nine, four = (list(model.delay_facts({3: value})) for value in (9, 4))
    assert ruled(nine + at, four + at) == ({"delay": ("DELAY_LAG",)}, (5, 0, 0))
    assert ruled(four + at, nine + at) == ({"delay": ("DELAY_AHEAD",)}, (0, 5, 0))
    assert ruled(nine + at, at) == ({"delay": ("DELAY_LAG",)}, (9, 0, 0))
    # A level without an entry is delivered from 0 on: 9 messages would never be.
    assert ruled(at, nine + at) == ({"delay": ("DELAY_AHEAD",)}, (0, 9, 0))


def test_queues_and_logs() -> None:
    ten, six = [queue(0, 10), model.log_fact(0, 1000)], [queue(0, 6), model.log_fact(0, 600)]
    behind = {"queue": ("NOT_REPLICATED",), "log": ("LOG_BEHIND",)}
    assert ruled(ten, six) == (behind, (0, 0, 4))
    assert ruled(six, ten) == ({"queue": ("QUEUE_AHEAD",), "log": ("LOG_AHEAD",)}, (0, 0, 0))
    assert ruled(ten[:1], []) == ({"queue": ("NOT_REPLICATED",)}, (0, 0, 10))
    assert ruled(ten[:1], six[:1], max_lag=4) == ({"queue": ("LAGGING",)}, (0, 0, 4))


def test_topics() -> None:
    one, other = TopicConfig("a"), TopicConfig("b")
    missing = {"topic": ("MISSING_TOPIC_CONFIG",), "version": ("STALE_TABLE",)}
    assert ruled(topics(one, other, counter=2), topics(one))[0] == missing
    orphan = {"topic": ("ORPHAN_ON_SLAVE",), "version": ("STALE_TABLE",)}
    assert ruled(topics(one), topics(one, other, counter=2))[0] == orphan
    fewer = TopicConfig("a", read_queue_nums=4)
    assert ruled(topics(one), topics(fewer))[0] == {"topic": ("QUEUE_NUM_DRIFT",)}
    closed = TopicConfig("a", perm=4)
    assert ruled(topics(one), topics(closed))[0] == {"topic": ("CONTENT_DRIFT",)}
    assert ruled(topics(one), topics(one, counter=2))[0] == {"version": ("VERSION_DRIFT",)}


def test_topics_that_brokers_make_for_themselves_are_not_compared() -> None:
    table = TopicTable(DataVersion(), {"TBW102": TopicConfig("TBW102"), "me": TopicConfig("me")})
    assert [fact.kind for fact in model.topic_facts(table, ["me"])] == ["version"]


def test_groups() -> None:
    with_group = list(
        model.group_facts(GroupTable(DataVersion(1, 1), {"g": SubscriptionGroupConfig("g")}))
    )
    without = list(model.group_facts(GroupTable(DataVersion(1, 0), {})))
    missing = {"group": ("MISSING_GROUP",), "version": ("STALE_TABLE",)}
    assert ruled(with_group, without)[0] == missing


def test_what_may_still_be_on_its_way_is_no_fault() -> None:
    master = [offset(9), queue(0, 10), *topics(TopicConfig("a"), counter=2), model.log_fact(0, 9)]
    slave = [offset(4), queue(0, 6), *topics(), model.log_fact(0, 6)]
    codes, sums = ruled(master, slave, proven=False)
    assert {code for found in codes.values() for code in found} == {"LAGGING", "UNSETTLED"}
    assert sums == (5 - 3, 0, 4)
    assert ruled([offset(4)], [offset(9)], proven=False)[0] == {"offset": ("UNSETTLED",)}
    assert ruled([offset(4)], [], proven=False)[0] == {"offset": ("UNSETTLED",)}


# Windows


def window(*values: int) -> list[Snapshot]:
    return [
        snapshot(offset(value), queue(0, 100), at=10_000 * index)
        for index, value in enumerate(values)
    ]


def at(value: int, ms: int) -> Snapshot:
    return snapshot(offset(value), queue(0, 100), at=ms, place="s")


@pytest.mark.parametrize(
    ("values", "slave", "code"),
    [
        ((10, 20, 30, 40), 40, None),
        ((10, 20, 30, 40), 20, "LAGGING"),
        ((10, 20, 30, 40), 10, "LAGGING"),
        ((10, 20, 30, 40), 9, "STALE"),
        ((10, 20, 30, 40), 41, "SLAVE_AHEAD"),
        # A reset on the master, which the slave has not copied yet.
        ((50, 50, 10, 10), 50, None),
        ((50, 50, 10, 10), 51, "SLAVE_AHEAD"),
        ((50, 50, 10, 10), 9, "STALE"),
    ],
)
def test_a_slave_may_have_what_the_master_had_in_the_window(
    values: tuple[int, ...], slave: int, code: str | None
) -> None:
    pairing = pair(window(*values), at(slave, 29_000), 20_000)
    assert pairing.is_proven
    assert len(pairing.masters) == 4
    codes = [found for case in cases(pairing) for found in judge(case).codes]
    assert codes == ([code] if code else [])


def test_the_window_begins_with_the_newest_sample_that_is_old_enough() -> None:
    pairing = pair(window(10, 20, 30, 40), at(15, 39_000), 20_000)
    assert [item.began for item in pairing.masters] == [10_000, 20_000, 30_000]
    assert pairing.sample_before == 2


def test_a_short_window_proves_nothing() -> None:
    pairing = pair(window(10, 20), at(5, 9_000), 20_000)
    assert not pairing.is_proven
    assert predict(pairing).errors == 0
    assert predict(pairing).repeats == 15


def test_a_slave_that_has_what_the_first_sample_had_is_proven_right_at_once() -> None:
    masters = window(10, 20)
    assert caught_up(masters, at(10, 9_000))
    assert not caught_up(masters, at(9, 9_000))


def test_what_one_side_cannot_tell_is_not_compared() -> None:
    """The delay offsets of a live Java slave are those of its start."""
    delays = list(model.delay_facts({1: 5}))
    slave = snapshot(place="s", kinds=ALL - {model.DELAY})
    assert list(cases(Pairing([snapshot(*delays)], slave, True))) == []


def test_every_code_has_a_meaning() -> None:
    for meaning in MEANINGS.values():
        assert meaning.sentence.format(repeats=1, skipped=2, lost=3)
