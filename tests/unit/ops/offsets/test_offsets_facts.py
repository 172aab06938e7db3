"""Tables as facts, and which samples of a master a slave is held against: at each edge."""

from collections.abc import Callable, Iterable, Mapping

import pytest

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.codes import MEANINGS
from rmq_ha.ops.offsets.findings import Outcome, Severity
from rmq_ha.ops.offsets.model import (
    DELAY,
    LOG,
    NUMBERS,
    OFFSET,
    QUEUE,
    TEXTS,
    TOPIC,
    Fact,
    FactKey,
    Snapshot,
)
from rmq_ha.ops.offsets.pairing import (
    Forecast,
    Pairing,
    cases,
    caught_up,
    ends,
    forecast,
    is_pair,
    is_right,
    pair,
    predict,
)
from rmq_ha.ops.offsets.rules import Case, Ruling, judge
from rmq_ha.ops.offsets.verdict import Limits, answer, decided, head_findings, not_compared

ALL = frozenset({*NUMBERS, *TEXTS})


def side(
    place: str, *facts: Fact, began: int = 0, ended: int | None = None, **more: object
) -> Snapshot:
    given = {"broker": "b", "broker_id": int(place != "m"), "role": None, "kinds": ALL} | more
    took = began if ended is None else ended
    return Snapshot(place, is_resting=True, began=began, ended=took, facts=facts, **given)  # type: ignore[arg-type]


# Tables


def test_the_offsets_of_a_table_are_its_facts_and_come_back() -> None:
    table = {"t@g": {0: 5, 3: -1}, "%RETRY%g@g": {0: 7}, "nobody": {0: 9}, "u@h@i": {1: 2}}
    facts = list(model.offset_facts(table))
    assert [(one.kind, *one.key[1:], one.value) for one in facts] == [
        (OFFSET, "t", "g", 0, 5),
        (OFFSET, "t", "g", 3, -1),
        (OFFSET, "%RETRY%g", "g", 0, 7),
        (OFFSET, "u", "h@i", 1, 2),
    ]
    del table["nobody"]
    others = (
        model.queue_fact("t", 0, 1, 8),
        Fact(OFFSET, "t", "g", 9),
        Fact(DELAY, "d", None, 1, 4),
    )
    assert side("m", *facts, *others).offsets() == table
    assert side("m", Fact(OFFSET, "t", "g", value=4)).offsets() == {"t@g": {0: 4}}


def test_bounds_are_those_of_queues() -> None:
    snapshot = side(
        "m",
        model.queue_fact("t", 2, 1, 8),
        Fact(QUEUE, "t", queue_id=3),
        model.log_fact(5, 9),
        Fact(OFFSET, "t", "g", 7, 7),
    )
    assert snapshot.bounds() == {("t", 2): (1, 8), ("t", 3): (0, 0)}
    assert ends(snapshot) == {"t": 4}
    turned = side(
        "m", model.queue_fact("t", 4, 0, 1), model.queue_fact("t", 1, 0, 1), Fact(QUEUE, "u")
    )
    assert ends(turned) == {"t": 5, "u": 1}
    assert ends(side("m", Fact(QUEUE), Fact(OFFSET, "t", "g", 7, 7))) == {}


@pytest.mark.parametrize(
    ("queue_id", "offset", "is_one"),
    [
        (0, 0, True),
        ((1 << 31) - 1, (1 << 63) - 1, True),
        (1, -(1 << 63), True),
        (-1, 0, False),
        (1 << 31, 0, False),
        (0, 1 << 63, False),
        (0, -(1 << 63) - 1, False),
    ],
)
def test_numbers_are_javas(queue_id: int, offset: int, is_one: bool) -> None:
    tables: list[Callable[[], Iterable[Fact]]] = [
        lambda: model.offset_facts({"t@g": {queue_id: offset}}),
        lambda: model.delay_facts({queue_id: offset}),
    ]
    for facts in tables:
        if is_one:
            assert [one.value for one in facts()] == [offset]
        else:
            with pytest.raises(ValueError, match=str(offset)):
                list(facts())


def test_each_delay_level_is_a_queue_of_its_own() -> None:
    facts = model.delay_facts({1: 5, 18: 7})
    assert [(one.kind, one.topic, one.queue_id, one.value) for one in facts] == [
        (DELAY, "SCHEDULE_TOPIC_XXXX", 0, 5),
        (DELAY, "SCHEDULE_TOPIC_XXXX", 17, 7),
    ]


@pytest.mark.parametrize(("read", "write"), [(3, 8), (8, 3)])
def test_a_topic_has_as_many_queues_as_are_read_or_written(read: int, write: int) -> None:
    def table(**queues: int) -> TopicTable:
        topic = TopicConfig("t", **queues)
        return TopicTable(DataVersion(), {"a": TopicConfig("a"), "t": topic})

    found = table(read_queue_nums=read, write_queue_nums=write)
    assert model.queue_numbers(found)["t"] == 8
    assert model.queue_numbers(table(write_queue_nums=1 << 16))["t"] == 1 << 16
    with pytest.raises(ValueError, match="topic t has 65537 queues"):
        list(model.topic_facts(table(read_queue_nums=(1 << 16) + 1)))


def test_equal_content_has_equal_text() -> None:
    assert model.canonical({"b": "ä", "a": 1}) == '{"a":1,"b":"ä"}'
    groups = {name: SubscriptionGroupConfig(name) for name in ("g", "h")}
    *facts, version = model.group_facts(GroupTable(DataVersion(1, 2), groups))
    assert [one.group for one in facts] == ["g", "h"]
    turned = dict(reversed(groups.items()))
    assert list(model.group_facts(GroupTable(DataVersion(1, 2), turned)))[-1] == version


# Windows


def offset(value: int, group: str = "g") -> Fact:
    return Fact(OFFSET, "t", group, 0, value)


def test_the_sample_before_is_the_last_one_that_ended_before_the_slave_was_read() -> None:
    masters = [side("m", began=at, ended=at + 5) for at in (0, 10, 20)]
    for began, index in ((4, 0), (14, 0), (15, 1), (24, 1), (25, 2), (99, 2)):
        assert Pairing(masters, side("s", began=began), True).sample_before == index


@pytest.mark.parametrize(
    ("began", "skew", "first", "is_proven"),
    [
        (24, 10, 0, True),  # the second ended a millisecond too late
        (25, 10, 10, True),
        (25, 20, 0, True),
        (25, 21, 0, False),
        (4, 0, 0, True),  # nothing may differ: the first is as good as any
        (4, -1, 0, True),
        (4, 1, 0, False),
        (15, 0, 10, True),
    ],
)
def test_a_window_proves_something_when_its_first_sample_is_old_enough(
    began: int, skew: int, first: int, is_proven: bool
) -> None:
    masters = [side("m", began=at, ended=at + 5) for at in (0, 10, 20)]
    found = pair(masters, side("s", began=began), skew)
    assert (found.masters[0].began, found.is_proven) == (first, is_proven)


def test_what_the_master_had_in_some_samples_only_is_not_steady() -> None:
    text = Fact(TOPIC, "t", value=8, low=8, text="a")
    rows: Mapping[str, list[list[Fact]]] = {
        "steady": [[text], [text]],
        "new": [[], [text]],
        "changed": [[text._replace(text="b")], [text]],
    }
    for name, samples in rows.items():
        (case,) = cases(Pairing([side("m", *facts) for facts in samples], side("s"), True))
        assert case.is_steady is (name == "steady"), name


def test_a_forecast_adds_up_what_each_key_means() -> None:
    def of(kind: str, *codes: str, **sums: int) -> tuple[Case, Ruling]:
        (case,) = cases(Pairing([side("m", Fact(kind, "t", "g", 0, 1))], side("s"), True))
        return case, Ruling(codes, **sums)

    rows = [
        of(OFFSET, "STALE", "BELOW_MIN", repeats=1, skipped=10),
        of(OFFSET, "UNSETTLED", repeats=2),
        of(DELAY, "DELAY_LAG", repeats=100),
        of(QUEUE, "NOT_REPLICATED", lost=1000),
        of(QUEUE, "UNSETTLED", lost=2000),
        of(LOG, "LAGGING"),
    ]
    severe = ("STALE", "BELOW_MIN", "DELAY_LAG", "NOT_REPLICATED")
    errors = sum(MEANINGS[code].severity is Severity.ERROR for code in severe)
    assert forecast(rows) == Forecast(3, 10, 3000, 100, errors, 2)


QUEUE_OF_TEN = model.queue_fact("t", 0, 0, 10)


@pytest.mark.parametrize(
    ("master", "slave", "is_it_right", "is_caught_up"),
    [
        ([offset(5)], [offset(5)], True, True),
        ([offset(5)], [offset(4)], False, False),
        ([offset(5)], [offset(6)], False, False),
        ([offset(5), offset(5, "h")], [offset(5)], False, False),
        ([offset(5), offset(5, "h")], [offset(5), offset(4, "h")], False, False),
    ],
)
def test_a_slave_is_right_when_it_has_all_that_the_first_sample_had(
    master: list[Fact], slave: list[Fact], is_it_right: bool, is_caught_up: bool
) -> None:
    one, other = side("m", QUEUE_OF_TEN, *master), side("s", QUEUE_OF_TEN, *slave)
    assert is_right([one], other) is is_it_right
    assert caught_up([one], other) is is_caught_up


@pytest.mark.parametrize(
    ("kind", "first", "last", "slave", "is_caught_up"),
    [
        # Commits of the last seconds are no reason to wait.
        (OFFSET, 5, 7, 6, True),
        (OFFSET, 5, 7, 5, True),
        (OFFSET, None, 7, None, False),  # a group that the slave does not know yet
        (QUEUE, 5, 7, 6, False),  # messages that are on their way
        (LOG, 5, 7, 6, True),
        (TOPIC, None, 7, None, False),
    ],
)
def test_what_a_slave_may_lack_without_anybody_waiting_for_it(
    kind: str, first: int | None, last: int, slave: int | None, is_caught_up: bool
) -> None:
    def facts(value: int | None) -> list[Fact]:
        mine = [] if value is None else [Fact(kind, "t", "g", 0, value, text=str(value))]
        return mine if kind == QUEUE else [QUEUE_OF_TEN, *mine]

    masters = [side("m", *facts(first)), side("m", *facts(last), began=2)]
    assert caught_up(masters, side("s", *facts(slave), began=5)) is is_caught_up


@pytest.mark.parametrize(
    ("master", "slave", "is_one"),
    [
        (("b", 0), ("b", 1), True),
        (("b", 0), ("c", 1), False),
        (("b", 0), ("b", 0), False),
        (("b", None), ("b", None), True),  # nobody says which
        ((None, 0), ("c", 0), True),
        (("b", 0), (None, 0), True),
    ],
)
def test_who_is_a_pair(
    master: tuple[str | None, int | None], slave: tuple[str | None, int | None], is_one: bool
) -> None:
    names = [dict(zip(("broker", "broker_id"), one, strict=True)) for one in (master, slave)]
    assert is_pair(Pairing([side("m", **names[0])], side("s", **names[1]), True)) is is_one


# Rules, where nobody knows where a queue begins or ends

CASE = Case(
    FactKey(OFFSET, "t", "g", 0), True, True, False, True, True, True, 5, 5, 5, 5, None, None,
    True, 5, None, None, 0, 10, 0, 10,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "ruling"),
    [
        ({}, Ruling()),
        ({"slave": 0}, Ruling(("STALE",), 5)),
        ({"slave": 0, "slave_end": None}, Ruling(("STALE",))),  # no queue: nothing to repeat
        ({"slave": 9, "slave_end": 1}, Ruling(("SLAVE_AHEAD", "BEYOND_MAX"))),
        ({"slave_first": 6}, Ruling(("BELOW_MIN",), 0, 1)),
        ({"slave_first": 5}, Ruling()),
        ({"slave_first": 6, "master_end": None}, Ruling()),
        ({"slave_first": None, "slave": 4}, Ruling(("STALE",), 1)),
        ({"slave_first": 8, "master_first": 7}, Ruling(("BELOW_MIN",), 0, 1)),
        ({"slave_first": 8, "master_first": None}, Ruling(("BELOW_MIN",), 0, 3)),
        (
            {"slave_first": 2, "master_first": None, "slave": 0}
            | dict.fromkeys(("master", "lowest", "highest"), 0),
            Ruling(("BELOW_MIN",), 0, 2),
        ),
        ({"slave": None, "slave_first": 6}, Ruling(("MISSING_ON_SLAVE", "BELOW_MIN"), 0, 4 + 1)),
        ({"on_master": False, "master": None, "slave": 1}, Ruling(("SLAVE_AHEAD",), 0, 1)),
        ({"on_master": False, "master": None, "slave": 0}, Ruling(("ORPHAN_ON_SLAVE",))),
        ({"is_proven": False, "slave": 4}, Ruling(("LAGGING",), 1)),
        (
            {"on_master": False, "master": None, "is_deleted": True},
            Ruling(("TOPIC_DELETED",)),
        ),
    ],
)  # fmt: skip
def test_an_offset_at_the_edges_of_its_queue(change: dict[str, object], ruling: Ruling) -> None:
    assert judge(CASE._replace(**change)) == ruling  # type: ignore[arg-type]


EXTENT = CASE._replace(
    key=FactKey(QUEUE, "t", None, 0),
    master_first=None,
    master_end=None,
    slave_first=None,
    slave_end=None,
)


@pytest.mark.parametrize(
    ("change", "max_lag", "ruling"),
    [
        ({}, 0, Ruling()),
        ({"slave": 4}, 0, Ruling(("NOT_REPLICATED",), lost=1)),
        ({"slave": 4}, 1, Ruling(("LAGGING",), lost=1)),
        ({"slave": 3}, 1, Ruling(("NOT_REPLICATED",), lost=2)),
        ({"slave": 6}, 0, Ruling(("QUEUE_AHEAD",))),
        ({"slave": 1, "highest": None, "before": None}, 0, Ruling(("ORPHAN_ON_SLAVE",))),
        ({"slave": 0, "highest": None, "before": None}, 0, Ruling()),
        ({"slave": None, "highest": None, "before": None, "lowest": None}, 0, Ruling()),
        ({"slave": 0, "before": None, "lowest": None}, 0, Ruling()),
        ({"slave": None, "is_proven": False}, 0, Ruling(("UNSETTLED",), lost=5)),
        ({"slave": 4, "lowest": 4}, 0, Ruling(("LAGGING",), lost=1)),
        ({"slave": 4, "lowest": 4}, 1, Ruling(("LAGGING",), lost=1)),
        ({"slave": 3, "lowest": 3}, 1, Ruling(("UNSETTLED",), lost=2)),
        ({"slave_low": 1}, 0, Ruling(("MIN_DRIFT",))),
        ({"slave_low": 1, "has_messages": True}, 0, Ruling(("QUEUE_CUT",))),
        ({"slave_low": 1, "master_low": 1}, 0, Ruling()),
        (
            {"slave": 1, "highest": None, "before": None, "is_deleted": True},
            0,
            Ruling(("TOPIC_DELETED",)),
        ),
        ({"slave_low": 1, "on_slave": False}, 0, Ruling()),
        ({"key": FactKey(LOG), "highest": None, "slave": 1}, 0, Ruling(("LOG_AHEAD",))),
        (
            {"key": FactKey(LOG), "highest": None, "slave": 0, "before": None, "lowest": None},
            0,
            Ruling(),
        ),
        ({"key": FactKey(LOG), "slave": 4}, 0, Ruling(("LOG_BEHIND",))),
        ({"key": FactKey(LOG), "slave": 4}, 1, Ruling(("LAGGING",))),
        ({"key": FactKey(LOG), "slave": 4, "is_proven": False}, 0, Ruling(("UNSETTLED",))),
    ],
)  # fmt: skip
def test_the_ends_of_queues_and_logs(
    change: dict[str, object], max_lag: int, ruling: Ruling
) -> None:
    assert judge(EXTENT._replace(**change), max_lag) == ruling  # type: ignore[arg-type]


# The answer


def test_what_is_wrong_with_a_replica_itself_counts_for_those_that_it_concerns() -> None:
    """A damaged table of the master: nobody knows what any slave should hold."""
    fault = ("TABLE_DAMAGED", "consumerOffset.json")
    master, slaves = side("m"), [side("s", began=1), side("s2", began=1, broker_id=2)]
    for harmed, errors in ((None, [0, 0]), ("s", [1, 0]), ("m", [1, 1])):
        mine = [
            Snapshot(**{**one.__dict__, "faults": (fault,) if one.place == harmed else ()})
            for one in (master, *slaves)
        ]
        facts = [Fact(LOG, value=5, low=0)]
        mine = [Snapshot(**{**one.__dict__, "facts": tuple(facts)}) for one in mine]
        told = answer([Pairing(mine[:1], one, True) for one in mine[1:]], Limits())
        assert [one.errors for one in told.by_slave.values()] == errors
        found = [one for one in told.findings if one.code == fault[0]]
        assert [one.broker for one in found] == [harmed] * bool(harmed)
        assert all(one.detail.startswith("consumerOffset.json: ") for one in found)
        assert told.numbers["safe"] is (harmed != "m")


def test_a_damaged_store_of_the_master_is_a_warning_and_of_the_slave_an_error() -> None:
    faults = (("STORE_DAMAGED", "queue 1 of t"), ("TABLE_DAMAGED", "topics.json"))
    for places in (("m",), ("s",), ("m", "s")):
        sides = [side(name, faults=faults if name in places else ()) for name in "ms"]
        found = head_findings(Pairing(sides[:1], sides[1], True))
        assert [(one.broker, one.code, one.severity) for one in found] == [
            told
            for name in places
            for told in (
                (name, "STORE_DAMAGED", "WARN" if name == "m" else "ERROR"),
                (name, "TABLE_DAMAGED", "ERROR"),
            )
        ]


@pytest.mark.parametrize(
    ("broker", "broker_id", "expected", "actual"),
    [("c", 1, "b", "c"), ("b", 0, "another id than 0", "b, id 0")],
)
def test_who_is_no_pair_is_told_what_was_expected(
    broker: str, broker_id: int, expected: str, actual: str
) -> None:
    slave = side("s", broker=broker, broker_id=broker_id)
    (one,) = head_findings(Pairing([side("m")], slave, True))
    assert (one.broker, one.expected, one.actual) == ("s", expected, actual)


def test_the_line_names_what_else_happens() -> None:
    outcome, line = decided({"s": Forecast(delay_repeats=4)}, [], Limits(), 0)
    assert (outcome, line) == (
        Outcome.HOLDS,
        "safe to fail over: yes; 0 messages would be repeated, 0 skipped, 0 lost; 4 delayed "
        "messages delivered again",
    )
    assert decided({"s": Forecast(errors=1)}, [], Limits(max_lag=1), 0)[0] is Outcome.VIOLATED
    one = decided({"s": Forecast(unsettled=1)}, [], Limits(), 1)[0]
    assert one is Outcome.VIOLATED  # what a history holds is not undone by waiting


def test_what_one_side_does_not_tell_is_named() -> None:
    pairing = Pairing([side("m")], side("s", kinds=ALL - {DELAY, OFFSET}), True)
    assert not_compared(pairing) == [DELAY, OFFSET]
    assert predict(pairing) == Forecast()


def test_of_the_groups_that_suffer_ten_are_in_the_summary() -> None:
    facts = [offset(5, f"g{number}") for number in range(12)]
    told = answer(
        [Pairing([side("m", QUEUE_OF_TEN, *facts)], side("s", QUEUE_OF_TEN), True)], Limits()
    )
    assert len(told.worst) == 12
    assert len(told.numbers["worst"]) == 10
