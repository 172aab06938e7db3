"""Requests that wait for messages to pop. Spec: pop.md, sections 2.7 and 13.4."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.server.broker.pop_hold import ALL_QUEUES, MAX_EXPRESSIONS, HeldPoll, PopHold, Release
from rmq_ha.server.store.reading.tag_filter import TagFilter
from tests.kits.channel import FakeChannel

RETRIES = ALL_QUEUES


class Waiting:
    """A hold, and which of the requests it released, by their names."""

    def __init__(self, most_of_key: int = 100, most: int = 1000) -> None:
        self.clock = Clock()
        self.hold = PopHold(self.clock, lambda: most_of_key, lambda: most)
        self.released: list[tuple[str, Release]] = []

    def poll(
        self,
        name: str,
        queue_id: int = ALL_QUEUES,
        most: int = 1,
        *,
        group: str = "G",
        topic: str = "T",
        seconds: float = 15,
        tags: str = "",
        channel: FakeChannel | None = None,
    ) -> HeldPoll:
        return HeldPoll(
            channel or FakeChannel(),  # type: ignore[arg-type]
            group,
            topic,
            queue_id,
            most,
            self.clock.seconds() + seconds,
            lambda reason: self.released.append((name, reason)),
            TagFilter(SubscriptionData.for_tags(topic, tags)) if tags else None,
            ("TAG", tags) if tags else ("", ""),
        )

    def add(self, *args: Any, **settings: Any) -> HeldPoll:
        poll = self.poll(*args, **settings)
        assert self.hold.hold(poll)
        return poll

    def arrive(self, *tags: str, queue_id: int = 0, topic: str = "T") -> list[str]:
        """Messages arrive in a queue; the names of the requests that they woke."""
        rows = [arrival(at, tag, queue_id, topic) for at, tag in enumerate(tags)]
        self.hold.on_arrival(rows_of(rows))
        return self.told()

    def told(self) -> list[str]:
        names, self.released = [name for name, _ in self.released], []
        return names


def arrival(offset: int, tag: str, queue_id: int = 0, topic: str = "T") -> DispatchRequest:
    (code,) = SubscriptionData.for_tags(topic, tag).code_set or {0}
    return DispatchRequest(topic, queue_id, 0, 100, code, 0, offset, "", "", 0, 0, "")


def test_as_many_are_woken_as_the_messages_suffice_for_and_the_oldest_first() -> None:
    waiting = Waiting()
    for name in ("a", "b", "c"):
        waiting.add(name, most=2)
    assert waiting.arrive("", "", "") == ["a", "b"]
    assert waiting.arrive("") == ["c"]
    assert len(waiting.hold) == 0
    assert waiting.arrive("") == []


def test_a_queue_wakes_who_wants_it_and_who_wants_all_queues() -> None:
    waiting = Waiting()
    waiting.add("second queue", 1)
    waiting.add("first queue", 0)
    waiting.add("all queues")
    assert waiting.arrive("", "", "") == ["first queue", "all queues"]
    assert waiting.arrive("", queue_id=2) == []
    assert waiting.arrive("", queue_id=1) == ["second queue"]


def test_each_group_is_woken_and_no_other_topic() -> None:
    waiting = Waiting()
    waiting.add("G")
    waiting.add("H", group="H")
    waiting.add("another topic", topic="U")
    assert sorted(waiting.arrive("")) == ["G", "H"]
    assert waiting.arrive("", topic="V") == []


def test_filters_share_the_messages_out() -> None:
    waiting = Waiting()
    waiting.add("wants a", tags="a", most=2)
    waiting.add("wants a, too", tags="a")
    waiting.add("wants b", tags="b")
    waiting.add("wants all")
    assert waiting.arrive("c", "c") == ["wants all"]
    assert waiting.arrive("a", "c", "a", "a") == ["wants a", "wants a, too"]
    assert waiting.arrive("a", "c") == []
    assert waiting.arrive("b") == ["wants b"]


def test_messages_of_a_retry_topic_wake_any_request_of_the_topic() -> None:
    waiting = Waiting()
    waiting.add("first queue", 0)
    waiting.add("all queues", most=3)
    waiting.add("second queue", 1)
    waiting.hold.wake("G", "T", RETRIES, 4)
    assert waiting.told() == ["first queue", "all queues"]
    waiting.hold.wake("H", "T", RETRIES, 4)
    waiting.hold.wake("G", "T", 0, 4)
    assert waiting.told() == []
    waiting.hold.wake("G", "T", 1, 1)
    assert waiting.told() == ["second queue"]


def test_time_ends_each_wait_once() -> None:
    waiting = Waiting()
    first, second = waiting.add("first", seconds=1), waiting.add("second", seconds=2)
    waiting.clock.advance(1)
    assert waiting.released == [("first", Release.TIME)]
    assert (first.is_held, second.is_held) == (False, True)
    waiting.clock.advance(5)
    assert waiting.told() == ["first", "second"]
    assert waiting.clock.getDelayedCalls() == []


def test_who_woke_in_vain_waits_behind_the_others_for_the_rest_of_its_time() -> None:
    waiting = Waiting()
    first = waiting.add("first", seconds=2)
    waiting.add("second", seconds=20)
    assert waiting.arrive("") == ["first"]
    assert waiting.hold.hold(first)
    assert waiting.arrive("") == ["second"]
    waiting.clock.advance(2)
    assert waiting.released == [("first", Release.TIME)]


def test_limits_are_by_key_and_for_all() -> None:
    waiting = Waiting(most_of_key=1, most=2)
    waiting.add("first")
    assert not waiting.hold.hold(waiting.poll("one too many of the key"))
    waiting.add("second", 0)
    assert not waiting.hold.hold(waiting.poll("one too many of all", 1))
    assert waiting.hold.count("G", "T", 0) == waiting.hold.count("G", "T", ALL_QUEUES) == 1
    assert waiting.hold.count("G", "T", 1) == 0
    assert waiting.arrive("") == ["first"]
    waiting.add("third", 1)


def test_long_filters_are_not_held_beyond_their_budget() -> None:
    waiting = Waiting()
    long = "a" * (MAX_EXPRESSIONS // 2)
    waiting.add("first", tags=long)
    waiting.add("second", tags=long)
    assert not waiting.hold.hold(waiting.poll("third", tags="a"))
    assert waiting.arrive(long) == ["first"]
    waiting.add("third", tags="a")


def test_a_lost_connection_forgets_its_requests() -> None:
    waiting = Waiting()
    channel = FakeChannel()
    waiting.add("lost", channel=channel)
    waiting.add("kept")
    channel.close()
    assert len(waiting.hold) == 1
    assert waiting.arrive("", "") == ["kept"]
    closed = FakeChannel()
    closed.is_open = False
    assert not waiting.hold.hold(waiting.poll("closed", channel=closed))


def test_the_end_answers_all_and_holds_no_more() -> None:
    waiting = Waiting()
    waiting.add("first")
    waiting.add("second", 3, group="H")
    waiting.hold.release_all()
    assert waiting.released == [("first", Release.END), ("second", Release.END)]
    waiting.add("third")
    waiting.hold.stop()
    assert waiting.told() == ["first", "second", "third"]
    assert not waiting.hold.hold(waiting.poll("fourth"))
    assert waiting.clock.getDelayedCalls() == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(-1, 2), st.integers(1, 3)),
            st.tuples(st.just("arrive"), st.integers(0, 2), st.integers(1, 4)),
            st.tuples(st.just("wake"), st.integers(-1, 2), st.integers(1, 4)),
            st.tuples(st.just("time"), st.integers(1, 3), st.just(0)),
        ),
        max_size=60,
    )
)
def test_each_request_is_released_once_and_none_waits_for_what_it_wants(
    steps: list[tuple[str, int, int]],
) -> None:
    """Beside a list of those that wait, which is searched from its beginning."""
    waiting = Waiting()
    model: list[HeldPoll] = []
    names: dict[HeldPoll, str] = {}
    told: list[str] = []
    for number, (what, where, many) in enumerate(steps):
        expected: list[HeldPoll] = []
        if what == "add":
            poll = waiting.add(str(number), where, many, seconds=3)
            model.append(poll)
            names[poll] = str(number)
        elif what == "time":
            waiting.clock.advance(where)
            expected = [poll for poll in model if poll.deadline <= waiting.clock.seconds()]
        else:
            left = many
            for poll in model:
                if left > 0 and (where == ALL_QUEUES or poll.queue_id in (ALL_QUEUES, where)):
                    expected.append(poll)
                    left -= poll.most
            if what == "arrive":
                waiting.hold.on_arrival(rows_of([arrival(at, "", where) for at in range(many)]))
            else:
                waiting.hold.wake("G", "T", where, many)
        released = waiting.told()
        assert released == [names[poll] for poll in expected]
        told += released
        model = [poll for poll in model if poll not in expected]
        assert len(waiting.hold) == len(model)
    assert len(told) == len(set(told))


def test_a_request_that_fails_keeps_no_other_from_its_answer() -> None:
    waiting = Waiting()
    broken = waiting.poll("broken")
    broken.resume = lambda reason: 1 / 0  # type: ignore[assignment,return-value]
    assert waiting.hold.hold(broken)
    waiting.add("second")
    with capturedLogs() as logged:
        assert waiting.arrive("", "") == ["second"]
    assert [event["log_failure"].type for event in logged] == [ZeroDivisionError]
