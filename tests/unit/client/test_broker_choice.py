"""Whom to pull from."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.broker_choice import BrokerChoice

QUEUE = MessageQueue("T", "b", 0)
BOTH = {0: "master", 1: "slave"}


class Clock:
    now = 0.0

    def seconds(self) -> float:
        return self.now


def test_the_broker_suggests_and_the_next_one_is_asked() -> None:
    choice = BrokerChoice(Clock().seconds)
    assert choice.address(QUEUE, BOTH) == ("master", 0)
    choice.suggest(QUEUE, 1)
    assert choice.address(QUEUE, BOTH) == ("slave", 1)
    assert choice.address(QUEUE, {0: "master"}) == ("master", 0)
    assert choice.address(QUEUE, {0: "master", 2: "second"}) == ("second", 2)
    assert choice.address(msgspec.structs.replace(QUEUE, queue_id=1), BOTH) == ("master", 0)
    choice.suggest(QUEUE, 2)
    assert choice.address(QUEUE, {0: "master", 3: "third"}) == ("third", 3)
    assert choice.address(QUEUE, {0: "master", 1: "slave", 4: "fourth"}) == ("master", 0)
    choice.suggest(QUEUE, 0)
    assert choice.address(QUEUE, BOTH) == ("master", 0)
    assert choice.address(QUEUE, {1: "slave"}) == ("slave", 1)
    assert choice.address(QUEUE, {}) is None


def test_who_cannot_be_reached_is_passed_over_for_a_while() -> None:
    clock = Clock()
    choice = BrokerChoice(clock.seconds)
    choice.failed("master")
    assert choice.address(QUEUE, BOTH) == ("slave", 1)
    assert choice.address(QUEUE, {0: "master"}) == ("master", 0)
    clock.now = 5.0
    assert choice.address(QUEUE, BOTH) == ("master", 0)
    choice.failed("master")
    choice.answered("master")
    assert choice.address(QUEUE, BOTH) == ("master", 0)
    choice.failed("master")
    choice.failed("slave")
    assert choice.is_avoided("master")
    assert choice.is_avoided("slave")
    assert choice.address(QUEUE, BOTH) == ("master", 0)


def test_a_user_s_choice_stands() -> None:
    choice = BrokerChoice(Clock().seconds, connect_broker_by_user=True, default_broker_id=1)
    choice.suggest(QUEUE, 0)
    choice.failed("slave")
    assert choice.address(QUEUE, BOTH) == ("slave", 1)


@given(
    addresses=st.dictionaries(st.integers(0, 4), st.sampled_from("abcde")),
    suggested=st.integers(0, 6),
    failed=st.lists(st.sampled_from("abcde")),
)
def test_some_address_is_chosen_whenever_there_is_one(
    addresses: dict[int, str], suggested: int, failed: list[str]
) -> None:
    choice = BrokerChoice(Clock().seconds)
    choice.suggest(QUEUE, suggested)
    for address in failed:
        choice.failed(address)
    found = choice.address(QUEUE, addresses)
    assert (found is None) == (not addresses)
    if found is not None:
        assert addresses[found[1]] == found[0]
        if set(addresses.values()) - set(failed):
            assert found[0] not in failed


def test_of_those_that_answer_the_one_with_the_lowest_id_is_asked() -> None:
    """The master, if it is one of them, and else the first slave."""
    choice, addresses = BrokerChoice(lambda: 0.0), {2: "c", 0: "a", 1: "b", 3: "d"}
    queue = MessageQueue("T", "a", 0)
    asked = [choice.address(queue, addresses)]
    for address in "abcd":
        choice.failed(address)
        asked.append(choice.address(queue, addresses))
    assert asked == [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("a", 0)]
    choice.suggest(queue, 3)
    choice.answered("b")
    assert choice.address(queue, addresses) == ("b", 1)
