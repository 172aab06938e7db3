"""What is told of very many, and how long a turn is: bounds of a scrape and of the page."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.ops.app.journals.classic import collect_replication
from rmq_ha.ops.app.journals.controller_mode import SetView
from rmq_ha.ops.app.page.events import EventKind, EventSeverity
from rmq_ha.ops.app.page.rows import AT_ONCE, MOST_QUEUES, PageRows
from rmq_ha.ops.app.page.search import (
    MOST_FOUND,
    Searches,
    SearchRefused,
    beginning,
    consumption_of,
)
from rmq_ha.ops.app.page.server_boards import NamesrvBoard
from rmq_ha.ops.app.page.values import Tone
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.ops.app.status.server import ReactorLag, _ProcessMetrics
from rmq_ha.ops.app.status.traffic import MOST_CLIENT_KINDS, Traffic
from rmq_ha.server.broker.tables.door_consumers import DoorConsumers
from rmq_ha.server.replication.statistics import (
    ReplicationStatistics,
    SetStatistics,
    SlaveStatistics,
)
from rmq_ha.testing.host import World
from tests.kits.scrapes import scraped


def test_a_hundred_slaves_are_told_by_name_and_all_are_counted() -> None:
    slaves = [
        SlaveStatistics(
            address=f"10.0.{number}.2:4000", requested=0, stage="caught up", lag=number, acked=7
        )
        for number in range(101)
    ]

    def tell(samples: Samples) -> None:
        collect_replication(samples, ReplicationStatistics(slaves=slaves), is_slave=False)

    assert [value for _, value in scraped(tell)["rmqha_replication_lag_bytes"]] == [*range(100)]
    assert [value for _, value in scraped(tell)["rmqha_replication_slaves"]] == [101]


def clients(count: int, group: str) -> list[Any]:
    """Each in a language of its own, but for two of the first."""
    kinds = [f"{group}{max(0, number - 1)}" for number in range(count)]
    return [SimpleNamespace(language=kind, version=0, sdk="") for kind in kinds]


@pytest.mark.parametrize("more", [0, 3])
def test_kinds_of_clients_are_bounded_and_the_rest_is_one(more: int) -> None:
    members = clients(MOST_CLIENT_KINDS + 1 + more, "c")
    info = SimpleNamespace(
        consume_type="CONSUME_PASSIVELY", members=dict(enumerate(members)), message_model=""
    )
    broker: Any = SimpleNamespace(
        producers=SimpleNamespace(
            groups=lambda: ["none", "p"],
            clients=lambda group: clients(MOST_CLIENT_KINDS + 1 + more, "p") * (group == "p"),
        ),
        consumers=SimpleNamespace(groups=lambda: ["g"], group=lambda _: info),
        door_consumers=DoorConsumers(),
    )
    tell = Traffic(broker, 10)._collect_clients
    for name, first, modes in (
        ("rocketmq_producer_connections", "p0", {}),
        ("rocketmq_consumer_connections", "c0", {"consume_mode": "push"}),
    ):
        found = scraped(tell)[name]
        assert (found[0][0]["language"], found[0][1]) == (first, 2)
        assert found[0][0].items() >= modes.items()
        assert len(found) == MOST_CLIENT_KINDS + bool(more)
        assert sum(value for _, value in found) == MOST_CLIENT_KINDS + 1 + more
        if more:
            labels, value = found[-1]
            assert value == more
            assert {labels[name] for name in ("language", "version", *modes)} == {"(other)"}


def searches(**broker: Any) -> Any:
    return Searches(SimpleNamespace(**broker), None, None)  # type: ignore[arg-type]


def test_a_search_rests_at_each_fourth_message_and_at_each_step_without_one() -> None:
    """And it looks up the groups of a topic once."""
    asked = list[str]()

    def groups_with(topic: str, found: list[str]) -> Any:
        asked.append(topic)
        found += ["b", "a"]
        return iter(())

    made = searches()
    made._rows = SimpleNamespace(groups_with=groups_with)
    made._found_message = lambda message, groups: (message.topic, groups)
    message = SimpleNamespace(topic="T")
    steps: list[Any] = [message, None, *[message] * (MOST_FOUND + 5)]
    taken = list[int]()

    def counted() -> Any:
        for number, step in enumerate(steps):
            taken.append(number)
            yield step

    found = list[Any]()
    rests = [taken[-1] for _ in made._judge_messages(counted(), found)]
    assert rests == [1, *range(3, MOST_FOUND, 4)]
    assert found == [("T", ["a", "b"])] * MOST_FOUND
    assert asked == ["T"]


def test_a_search_in_a_store_that_fails_says_so() -> None:
    def steps() -> Any:
        yield None
        raise StoreError("the disk is gone")

    turns = searches()._judge_messages(steps(), [])
    next(turns)
    with pytest.raises(SearchRefused, match="the store cannot be read: the disk is gone"):
        next(turns)


@pytest.mark.parametrize(
    ("tags", "known", "kind", "state"),
    [
        ("x", {"x", "y"}, "TAG", "passed"),
        ("z", {"x", "y"}, "TAG", "not wanted"),
        ("z", set(), "TAG", "passed"),
        ("z", {"x"}, "SQL92", "passed"),
        ("z", None, "", "passed"),
    ],
)
def test_who_subscribed_to_other_tags_does_not_want_it(
    tags: str, known: set[str] | None, kind: str, state: str
) -> None:
    item = SimpleNamespace(expression_type=kind, tags_set=known)
    info = None if known is None else SimpleNamespace(subscriptions={"T": item})
    broker = SimpleNamespace(
        consumer_offsets=SimpleNamespace(query=lambda *_: 8),
        consumers=SimpleNamespace(group=lambda _: info),
    )
    message: Any = SimpleNamespace(topic="T", queue_id=0, queue_offset=7, tags=tags)
    found = consumption_of(broker, message, "g")
    assert (found.group, found.state, found.committed) == ("g", state, 8)
    message.queue_offset = 8
    assert consumption_of(broker, message, "g").state in (state, "waiting")
    assert (consumption_of(broker, message, "g").state == "waiting") is (state == "passed")


def test_the_beginning_of_a_body_may_end_within_a_character() -> None:
    whole = "a\U0001f600".encode()
    for cut in (len(whole) - 1, len(whole) - 2, len(whole) - 3):
        assert beginning(whole[:cut], 0) == ("a", "text")
    assert beginning("\U0001f600".encode()[:3], 0) == ("", "text")
    assert beginning(b"\xff\xff\xff\xff", 0)[1] == "hex"
    assert beginning(b"a\0", 0)[1] == "hex"
    assert beginning(b"", 0) == ("", "text")


def test_a_sheet_of_a_group_rests_after_each_fifty_queues_and_is_bounded() -> None:
    offsets: dict[str, dict[int, int]] = {"A@g": dict.fromkeys(range(MOST_QUEUES + 4), 3)}
    offsets["A@other"] = {0: 0}
    broker: Any = SimpleNamespace(
        consumer_offsets=SimpleNamespace(
            table=offsets, queues=lambda group, topic: offsets[f"{topic}@{group}"]
        ),
        store=SimpleNamespace(
            max_offset_in_queue=lambda *_: 5, store_timestamp_at=lambda *_: 1_000
        ),
        groups=SimpleNamespace(table={}),
        consumers=SimpleNamespace(group=lambda _: None),
        door_consumers=DoorConsumers(),
        pops=SimpleNamespace(is_enabled=False),
        topics=SimpleNamespace(table={}),
        stats=SimpleNamespace(group_get_rate=lambda *_: 0.5),
    )
    found: list[Any] = []
    rests = list(PageRows(broker).group_sheet("g", {("A", 1): "me"}, 3_500, found))
    assert len(rests) == MOST_QUEUES // AT_ONCE
    (sheet,) = found
    assert (len(sheet.queues), sheet.left_out) == (MOST_QUEUES, 4)
    assert (sheet.queues[1].lag, sheet.queues[1].behind_s) == (2, 2.5)
    assert [queue.member for queue in sheet.queues[:3]] == [None, "me", None]
    assert list(PageRows(broker).group_sheet("nobody", {}, 0, found)) == []
    assert len(found) == 1


@pytest.mark.parametrize(("epoch", "text"), [(-1, 0), (0, 0), (3, 3)])
def test_a_set_has_no_epoch_before_its_first_one(epoch: int, text: int) -> None:
    journal = SimpleNamespace(statistics=lambda: SetStatistics(epoch=epoch))
    assert SetView(SimpleNamespace(journal=journal)).mode() == f"controller mode, epoch {text}"


@pytest.mark.parametrize(("age", "tone"), [(59.9, Tone.GOOD), (60.0, Tone.WARN)])
def test_a_broker_that_missed_a_registration_is_said_to_be_late(age: float, tone: Tone) -> None:
    host = World(1).add("names").seams
    route = SimpleNamespace(cluster="c", addresses={1: "b:1"})
    routes = SimpleNamespace(
        cluster_info=lambda: SimpleNamespace(brokers={"b": route}),
        registrations=lambda: {"b:1": host.clock.seconds() - age},
    )
    board = NamesrvBoard(host, SimpleNamespace(routes=routes), lambda: Health(True, ""))  # type: ignore[arg-type]
    (machine,) = board._machines()
    assert (machine.tone, machine.role) == (tone, "slave")
    assert machine.note == ("" if tone is Tone.GOOD else "it has not registered in time")


def test_what_the_log_says_is_among_the_events() -> None:
    host = World(1).add("names").seams
    board = NamesrvBoard(host, SimpleNamespace(), lambda: Health(True, ""))  # type: ignore[arg-type]
    board.note(EventKind.LOG, EventSeverity.WARN, "the disk is slow")
    (event,) = board.event_page(0).events
    assert (event.at_ms, event.kind, event.severity, event.text) == (
        host.now_ms(), EventKind.LOG, EventSeverity.WARN, "the disk is slow"
    )  # fmt: skip
    assert board.event_page(event.number).events == []


def test_delayed_messages_are_told_by_each_level_and_never_below_zero() -> None:
    ends, firsts = {0: 10, 4: 9, 17: 4}, {4: 2}
    broker = SimpleNamespace(
        store=SimpleNamespace(
            max_offset_in_queue=lambda topic, number: ends.get(number, 0),
            min_offset_in_queue=lambda topic, number: firsts.get(number, 0),
            schedule=SimpleNamespace(levels=[*range(1, 19)]),
            timers=SimpleNamespace(is_enabled=False),
            older=None,
        ),
        delay_offset_table=lambda: {18: 5, 1: 7},
        transaction_checks=SimpleNamespace(open_transactions=lambda: None),
    )
    part: Any = SimpleNamespace(_broker=broker)
    part.waiting_by_level = lambda: BrokerStatus.waiting_by_level(part)
    found = scraped(lambda samples: BrokerStatus._collect_delayed(part, samples))
    delayed = found["rmqha_delayed_messages"]
    told = [(labels["level"], value) for labels, value in delayed]
    assert told == [("1", 3), ("5", 7), ("18", 0)], "nothing of level 5 was delivered yet"


@pytest.mark.parametrize("places", [None, 10])
def test_connections_are_told_with_why_some_were_refused(places: int | None) -> None:
    clock: Any = World(1).add("b").seams.clock
    connections: Any = SimpleNamespace(taken=3, places=places, refused={"full": 2, "slow": 1})
    tell = _ProcessMetrics("rmqha", ReactorLag(clock), connections).collect
    assert [value for _, value in scraped(tell)["rmqha_open_connections"]] == [3]
    refused = scraped(tell)["rmqha_refused_connections"]
    assert {labels["reason"]: value for labels, value in refused} == {"full": 2, "slow": 1}
    assert ("rmqha_connection_places" in scraped(tell)) is (places is not None)
