"""PullRequestHoldService. Spec: remoting.md, section 6.5."""

import gc
import weakref
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.server.broker.hold import (
    MAX_EXPRESSIONS,
    MAX_HOLD_SECONDS,
    HeldPull,
    PullRequestHoldService,
)
from rmq_ha.server.store.reading.tag_filter import TagFilter
from tests.kits.channel import FakeChannel


class Holding:
    """A service with a queue end that tests set, and what it resumed."""

    def __init__(self, capacity: int = 100) -> None:
        self.clock = Clock()
        self.max_offset = 0
        self.resumed: list[HeldPull] = []
        self.service = PullRequestHoldService(self.clock, lambda *_: self.max_offset, capacity)

    def pull(
        self,
        wanted: int = 0,
        suspend_ms: int = 15000,
        tags: str | None = None,
        channel: FakeChannel | None = None,
        queue_id: int = 0,
    ) -> HeldPull:
        message_filter = TagFilter(SubscriptionData.for_tags("T", tags)) if tags else None
        return HeldPull(
            channel or FakeChannel(),  # type: ignore[arg-type]
            "T",
            queue_id,
            wanted,
            suspend_ms,
            message_filter,
            self.resumed.append,
        )

    def hold(self, *args: Any, **kwargs: Any) -> HeldPull:
        pull = self.pull(*args, **kwargs)
        assert self.service.hold(pull)
        return pull


def arrival(offset: int = 0, tag: str = "", queue_id: int = 0) -> DispatchRequest:
    (code,) = SubscriptionData.for_tags("T", tag).code_set or {0}
    return DispatchRequest("T", queue_id, 0, 100, code, 0, offset, "", "", 0, 0, "")


def test_an_arrival_wakes_who_waits_for_that_queue() -> None:
    it = Holding()
    first, second, other = it.hold(), it.hold(), it.hold(queue_id=1)
    it.service.on_arrival(rows_of([arrival()]))
    assert it.resumed == [first, second]
    assert len(it.service) == 1
    it.service.on_arrival(rows_of([arrival()]))
    assert it.resumed == [first, second]
    it.service.on_arrival(rows_of([arrival(queue_id=1)]))
    assert it.resumed == [first, second, other]


def test_each_of_those_who_wait_is_asked_what_it_wants() -> None:
    """One that wants something else does not keep a message from those behind it."""
    it = Holding()
    others = [it.hold(tags="TagA"), it.hold(7)]
    pull = it.hold(tags="TagB")
    it.service.on_arrival(rows_of([arrival(0, "TagB")]))
    assert it.resumed == [pull]
    assert not set(others) & set(it.resumed)


def test_an_arrival_before_the_wanted_offset_is_not_it() -> None:
    it = Holding()
    pull = it.hold(5)
    it.service.on_arrival(rows_of([arrival(3), arrival(4)]))
    assert it.resumed == []
    it.service.on_arrival(rows_of([arrival(5)]))
    assert it.resumed == [pull]


def test_pulls_are_resumed_after_the_whole_batch_was_seen() -> None:
    """A pull that is held again by what resumes another waits for the next batch."""
    it = Holding()
    again = it.pull()
    first = it.hold()
    first.resume = lambda pull: it.service.hold(again) and it.resumed.append(pull)
    it.service.on_arrival(rows_of([arrival(0), arrival(1)]))
    assert it.resumed == [first]
    assert len(it.service) == 1


def test_a_tag_that_does_not_match_wakes_five_seconds_later() -> None:
    """So that the consumer's offset moves past it, as with Java's sweep."""
    it = Holding()
    pull = it.hold(tags="TagA")
    it.clock.advance(2)
    it.max_offset = 1
    it.service.on_arrival(rows_of([arrival(0, "TagB")]))
    it.clock.advance(4.9)
    assert it.resumed == []
    it.clock.advance(0.1)
    assert it.resumed == [pull]
    it.clock.advance(100)
    assert it.resumed == [pull]


def test_a_second_look_that_finds_nothing_leaves_the_limit_as_it_was() -> None:
    """What did not match is cut from the log again: there is nothing to say before the limit."""
    it = Holding()
    pull = it.hold(tags="TagA", suspend_ms=9000)
    it.service.on_arrival(rows_of([arrival(0, "TagB")]))
    it.clock.advance(8.9)
    assert it.resumed == []
    it.clock.advance(0.1)
    assert it.resumed == [pull]


def test_a_matching_tag_wakes_at_once() -> None:
    it = Holding()
    pull = it.hold(tags="TagA")
    it.service.on_arrival(rows_of([arrival(0, "TagB"), arrival(1, "TagA")]))
    assert it.resumed == [pull]
    it.clock.advance(100)
    assert it.resumed == [pull]


def test_the_limit_is_exact() -> None:
    it = Holding()
    late, early = it.hold(suspend_ms=3000), it.hold(suspend_ms=1000)
    it.clock.advance(0.999)
    assert it.resumed == []
    it.clock.advance(0.001)
    assert it.resumed == [early]
    it.clock.advance(2)
    assert it.resumed == [early, late]
    assert len(it.service) == 0


def test_a_message_that_could_not_be_read_is_tried_again() -> None:
    """OFFSET_FOUND_NULL: the queue has more, but nothing arrives."""
    it = Holding()
    it.max_offset = 1
    pull = it.hold()
    it.clock.advance(4.9)
    assert it.resumed == []
    it.clock.advance(0.1)
    assert it.resumed == [pull]


def test_there_is_one_timer() -> None:
    it = Holding()
    for number in range(10):
        it.hold(suspend_ms=1000 + number)
    assert len(it.clock.getDelayedCalls()) == 1
    it.clock.advance(2)
    assert len(it.resumed) == 10
    assert it.clock.getDelayedCalls() == []


def test_hostile_limits() -> None:
    """Negative ones end at once, enormous ones some day."""
    it = Holding()
    pull = it.hold(suspend_ms=-(2**63))
    it.clock.advance(0)
    assert it.resumed == [pull]
    it.hold(suspend_ms=2**63 - 1)
    assert it.clock.getDelayedCalls()[0].getTime() == MAX_HOLD_SECONDS


def test_a_closed_connection_is_forgotten_at_once() -> None:
    it = Holding()
    channel = FakeChannel()
    it.hold(channel=channel)
    it.hold(channel=channel, queue_id=1)
    other = it.hold()
    channel.close()
    assert len(it.service) == 1
    it.service.on_arrival(rows_of([arrival()]))
    assert it.resumed == [other]
    assert not it.service.hold(it.pull(channel=channel))


def test_a_connection_is_asked_once_to_tell_of_its_end() -> None:
    it = Holding()
    channel = FakeChannel()
    for _ in range(5):
        it.hold(channel=channel)
        it.service.on_arrival(rows_of([arrival()]))
    assert channel.close_callbacks == 1


def test_a_full_house_answers_at_once() -> None:
    it = Holding(capacity=2)
    it.hold()
    it.hold()
    assert not it.service.hold(it.pull())


def test_short_lived_pulls_leave_nothing_behind() -> None:
    it = Holding()
    for number in range(1000):
        it.hold(number)
        it.service.on_arrival(rows_of([arrival(number)]))
    assert len(it.resumed) == 1000
    assert len(it.service._heap) <= 130


def test_one_that_waits_among_many_that_went_has_its_limit() -> None:
    """The heap is swept of the others; a pull that it lost would only end with its connection."""
    it = Holding(capacity=300)
    channel = FakeChannel()
    kept = it.hold(suspend_ms=3000)
    for number in range(200):
        it.hold(number, channel=channel)
    channel.close()
    assert len(it.service._heap) == 1
    it.clock.advance(3)
    assert it.resumed == [kept]


def test_one_that_was_looked_at_in_vain_has_its_limit_whatever_went_meanwhile() -> None:
    """What is swept from the heap was its old entry for that limit: it needs a new one."""
    it = Holding(capacity=300)
    kept = it.hold(tags="TagA", suspend_ms=9000)
    it.service.on_arrival(rows_of([arrival(0, "TagB")]))
    channel = FakeChannel()
    for number in range(200):
        it.hold(number, channel=channel)
    channel.close()
    it.clock.advance(8.9)
    assert it.resumed == []
    it.clock.advance(0.1)
    assert it.resumed == [kept]


def test_limits_are_kept_in_order_after_the_heap_was_swept() -> None:
    it = Holding(capacity=1000)
    channel = FakeChannel()
    kept = []
    for number in range(40):
        kept.append(it.hold(suspend_ms=1000 + 977 * number % 40 * 125))
        for _ in range(4):
            it.hold(suspend_ms=1000 + number, channel=channel)
    channel.close()
    for _ in range(50):
        it.clock.advance(0.125)
        now = it.clock.seconds()
        assert {id(pull) for pull in it.resumed} == {id(p) for p in kept if p.deadline <= now}


def test_a_message_whose_properties_are_refused_wakes_nobody_at_once() -> None:
    """One that has none is looked at as it stands in the log, when the pull is run again."""

    class Refusing(TagFilter):
        def matches_properties(self, properties: Any) -> bool:
            return False

    it = Holding()
    pulls = [it.hold(1), it.hold()]
    for pull in pulls:
        pull.message_filter = Refusing(SubscriptionData.for_tags("T", "*"))
    it.service.on_arrival(rows_of([arrival(0)._replace(properties_string="a\x01b\x02")]))
    assert it.resumed == []
    it.service.on_arrival(rows_of([arrival(0)]))
    assert it.resumed == pulls[1:]


def test_stop_answers_everything() -> None:
    it = Holding()
    pulls = [it.hold(), it.hold(queue_id=1)]
    it.service.stop()
    assert it.resumed == pulls
    assert it.clock.getDelayedCalls() == []
    assert not it.service.hold(it.pull())
    it.service.stop()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("hold"), st.integers(0, 3), st.integers(0, 20000)),
            st.tuples(st.just("arrive"), st.integers(0, 5), st.sampled_from(["TagA", "TagB"])),
            st.tuples(st.just("wait"), st.floats(0, 10), st.just(0)),
            st.tuples(st.just("close"), st.integers(0, 2), st.just(0)),
        ),
        max_size=60,
    )
)
def test_every_pull_is_resumed_once_or_its_connection_is_gone(steps: list[Any]) -> None:
    it = Holding()
    channels = [FakeChannel(port) for port in range(3)]
    held: list[HeldPull] = []
    for kind, first, second in steps:
        if kind == "hold":
            channel = channels[(first + second) % 3]
            pull = it.pull(first, second, "TagA" if second % 2 else None, channel)
            if it.service.hold(pull):
                held.append(pull)
        elif kind == "arrive":
            it.max_offset = max(it.max_offset, first + 1)
            it.service.on_arrival(rows_of([arrival(first, second)]))
        elif kind == "wait":
            it.clock.advance(first)
        elif channels[first].is_open:
            channels[first].close()
    for _ in range(10):
        it.clock.advance(5)
    assert len(it.service) == 0
    assert len(it.resumed) == len({id(pull) for pull in it.resumed})
    for pull in held:
        assert pull in it.resumed or not pull.channel.is_open


def test_nothing_of_a_pull_outlives_its_connection() -> None:
    """70 pulls of 15 MiB stayed after their client had left, until somebody else's was held."""
    it = Holding()
    channel = FakeChannel()
    kept: list[weakref.ref[Any]] = []
    for _ in range(70):
        pull = it.pull(tags="a", channel=channel)
        pull.resume = lambda held: None
        kept += (weakref.ref(pull.message_filter), weakref.ref(pull.resume))
        assert it.service.hold(pull)
    del pull
    gc.collect()
    assert all(item() for item in kept)
    channel.close()
    gc.collect()
    assert not any(item() for item in kept)
    assert len(it.service._heap) == 0


def test_an_answered_pull_leaves_nothing_in_the_heap() -> None:
    it = Holding()
    pull = it.hold(tags="a")
    it.service.on_arrival(rows_of([arrival(tag="a")]))
    assert it.resumed == [pull]
    assert pull.message_filter is None
    assert pull.resume != it.resumed.append
    assert it.service._queues == {}
    assert not it.service._channels[pull.channel]


def test_long_expressions_do_not_wait_beyond_their_limit() -> None:
    it = Holding(10_000)
    long = "||".join(f"tag{n}" for n in range(8000))

    def pull(channel: FakeChannel) -> HeldPull:
        made = it.pull(channel=channel)
        made.expression_size = len(long)
        return made

    channels = [FakeChannel(port) for port in range(2)]
    held = 0
    while it.service.hold(pull(channels[held % 2])):
        held += 1
    assert held == MAX_EXPRESSIONS // len(long)
    assert it.service.hold(it.pull()), "others wait as before"
    channels[0].close()
    assert it.service.hold(pull(channels[1]))
    it.service.stop()
    assert it.service._expressions == 0


def test_expressions_may_have_as_many_characters_as_their_limit_says() -> None:
    it = Holding()
    for size, is_held in ((1, True), (MAX_EXPRESSIONS, False), (MAX_EXPRESSIONS - 1, True)):
        pull = it.pull()
        pull.expression_size = size
        assert it.service.hold(pull) is is_held
