"""Queues in turn, away from brokers that failed or were slow."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.client.rules.errors import IllegalMessage
from rmq_ha.client.rules.faults import LatencyFaults, absence_ms
from rmq_ha.client.rules.messages import Message, MessageQueue
from rmq_ha.client.rules.queue_choice import QueueChoice, hash_code, select_by_hash
from rmq_ha.client.rules.routes import PublishInfo

QUEUES = tuple(MessageQueue("T", broker, number) for broker in "abc" for number in range(2))
INFO = PublishInfo(QUEUES, {"a": 2, "b": 2, "c": 2})


def test_each_in_turn() -> None:
    """Round and round, from wherever it starts."""
    choice = QueueChoice(10)
    assert [choice.next(INFO) for _ in range(12)] == [QUEUES[(11 + n) % 6] for n in range(12)]


def test_after_a_failure_the_next_queue_of_another_broker_is_taken_and_the_walk_goes_on() -> None:
    for start in range(6):
        for avoid in "abc":
            following = [QUEUES[(start + step) % 6] for step in range(1, 7)]
            places = [at for at, queue in enumerate(following) if queue.broker_name != avoid]
            choice = QueueChoice(start)
            assert choice.next(INFO, avoid) == following[places[0]]
            assert choice.next(INFO) == following[(places[0] + 1) % 6]


@settings(deadline=None)
@given(st.integers(0, 100), st.sampled_from("abc"))
def test_another_broker(start: int, avoid: str) -> None:
    """The broker of the attempt before is left out."""
    assert QueueChoice(start).next(INFO, avoid).broker_name != avoid


def test_the_only_broker_is_taken_again() -> None:
    """Nobody else is there."""
    info = PublishInfo(QUEUES[:2], {"a": 2})
    choice = QueueChoice(0)
    assert [choice.next(info, "a") for _ in range(4)] == [*QUEUES[1::-1]] * 2


def test_faults_keep_a_broker_away_for_its_time() -> None:
    """A failure counts as 30 s, which means 600 s away."""
    faults = LatencyFaults()
    faults.update("a", 5, 0, isolated=True)
    faults.update("b", 5, 0, isolated=False)
    choice = QueueChoice(0)
    chosen = {choice.next_available(INFO, faults, 1).broker_name for _ in range(20)}
    assert chosen == {"b", "c"}
    assert not faults.is_available("a", 599_999)
    assert faults.is_available("a", 600_000)


@pytest.mark.parametrize(
    ("latency", "absence"),
    [
        (0, 0),
        (50, 0),
        (549, 0),
        (550, 30_000),
        (1000, 60_000),
        (2999, 120_000),
        (3000, 180_000),
        (15_000, 600_000),
        (30_000, 600_000),
    ],
)
def test_absence(latency: int, absence: int) -> None:
    """Java's table."""
    assert absence_ms(latency) == absence


def test_who_is_away_gives_his_turn_to_the_next_queue() -> None:
    faults = LatencyFaults()
    faults.update("a", 3000, 0, isolated=False)
    for start in range(6):
        turn = QUEUES.index(QueueChoice(start).next(INFO))
        expected = QUEUES[max(turn, 2)]
        assert QueueChoice(start).next_available(INFO, faults, 1) == expected


def test_all_away() -> None:
    """Then one of the better half; one without queues is forgotten."""
    faults = LatencyFaults()
    for name, latency in (("a", 3000), ("b", 600), ("c", 9000)):
        faults.update(name, latency, 0, isolated=False)
    choice = QueueChoice(0)
    chosen = {choice.next_available(INFO, faults, 1) for _ in range(9)}
    assert chosen == set(QUEUES[2:4])
    for name in "de":
        faults.update(name, 700, 0, isolated=False)
    assert {faults.least_bad(1) for _ in range(4)} == {"b", "d"}
    gone = LatencyFaults()
    assert gone.least_bad(1) is None
    gone.update("a", 600, 0, isolated=False)
    gone.update("z", 550, 0, isolated=False)
    only_a = PublishInfo(QUEUES[:2], {"a": 2})
    assert choice.next_available(only_a, gone, 1).broker_name == "a"
    assert gone.least_bad(1) == "a"


def test_a_broker_that_takes_no_messages_of_the_topic_is_none_to_fall_back_on() -> None:
    """Its share of the table may be 0 or missing; one queue is enough."""
    for counts, broker in (({"a": 1, "z": 0}, "a"), ({"a": 1}, "a"), ({"a": 1, "z": 1}, "z")):
        faults = LatencyFaults()
        faults.update("a", 600, 0, isolated=False)
        faults.update("z", 550, 0, isolated=False)
        info = PublishInfo(QUEUES[:1], counts)
        chosen = QueueChoice(0).next_available(info, faults, 1)
        assert chosen == MessageQueue("T", broker, 0)


def test_brokers_that_are_there_are_walked_over_as_without_a_table() -> None:
    choice, faults = QueueChoice(3), LatencyFaults()
    assert [choice.next_available(INFO, faults, 1) for _ in range(4)] == [
        *(QUEUES[4], QUEUES[5], QUEUES[0], QUEUES[1])
    ]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("TagA", 2598919),
        ("hello world rocketmq", -1179399852),
        ("", 0),
        (7, 7),
        (-7, -7),
        (1 << 40, 256),
        (-(1 << 40), -256),
        ((1 << 63) - 1, -(1 << 31)),
        (-(1 << 31) - 1, -(1 << 31)),
        (-(1 << 63), -(1 << 31)),
        ((1 << 31) - 1, (1 << 31) - 1),
    ],
)
def test_hash_code(key: str | int, code: int) -> None:
    """What Java's String, Integer and Long answered for these."""
    assert hash_code(key) == code


def test_select_by_hash() -> None:
    """A negative hash counts without its sign; other keys are refused."""
    message = Message("T", b"x")
    assert select_by_hash(QUEUES, message, "hello world rocketmq") == QUEUES[1179399852 % 6]
    with pytest.raises(IllegalMessage, match="str or an int"):
        select_by_hash(QUEUES, message, 1.5)  # type: ignore[arg-type]
    with pytest.raises(IllegalMessage, match="64 bits"):
        select_by_hash(QUEUES, message, 1 << 63)
    with pytest.raises(IllegalMessage, match="64 bits"):
        select_by_hash(QUEUES, message, -(1 << 63) - 1)
    with pytest.raises(IllegalMessage, match="not True"):
        select_by_hash(QUEUES, message, True)
