"""Who waits for a broker, who tries, and after which pauses."""

from random import Random

from rmq_ha.client.rules.resting import Pauses, Resting


def resting() -> Resting[str]:
    return Resting(Pauses(Random(3), 100, 1000))


def test_pauses_grow_to_their_limit_and_differ() -> None:
    """Clients that lost one broker at one moment must not come back at one moment."""
    one, other = Pauses(Random(1), 100, 1000), Pauses(Random(2), 100, 1000)
    for number in (0, 1, 2, 3, 4, 50, 5000):
        longest = min(0.1 * 2**number, 1.0) if number < 50 else 1.0
        found = [pauses.seconds(number) for pauses in (one, other) for _ in range(20)]
        assert all(longest / 2 <= pause <= longest for pause in found)
        assert len(set(found)) == len(found)
        assert max(found) > 0.9 * longest


def test_one_tries_at_a_time_and_the_others_wait_for_what_it_finds() -> None:
    rests = resting()
    assert [rests.add(name, "T", 0.0) for name in "abc"] == [True, False, False]
    first = rests.next_due()
    assert first is not None
    assert 0.05 <= first <= 0.1
    assert rests.due(first - 0.001) == []
    assert rests.due(first) == ["a"]
    assert (rests.due(99.0), rests.next_due()) == ([], None)
    assert (rests.holds("a", "T"), rests.holds("b", "T"), rests.holds("new", "T")) == (
        False,
        True,
        True,
    )
    assert not rests.holds("b", "U")
    assert not rests.add("a", "T", 10.0)
    second = rests.next_due()
    assert second is not None
    assert 10.1 <= second <= 10.2
    assert rests.due(second) == ["b"]  # in turn: one that cannot be sent stops nobody for long
    assert rests.holds("a", "T")
    assert rests.back("b", "T", 12.5) == (["c", "a"], 12.5)
    assert (rests.rests, rests.count, rests.next_due()) == ({}, 0, None)


def test_things_that_are_away_do_not_wait_for_each_other() -> None:
    rests = resting()
    rests.add("a", "T", 0.0)
    rests.add("b", "U", 5.0)
    first = rests.next_due()
    assert first is not None
    assert first <= 0.1
    assert rests.due(1.0) == ["a"]
    assert rests.back("x", "U", 6.0) == (["b"], 1.0)
    assert "T" in rests.rests
    assert rests.items() == []


def test_who_tries_and_goes_away_leaves_it_to_the_next() -> None:
    """Else all would wait for him until their time is over."""
    rests = resting()
    for name in "ab":
        rests.add(name, "T", 0.0)
    assert rests.due(1.0) == ["a"]
    rests.ended("b", 1.0)  # not the one who tries
    assert rests.next_due() is None
    rests.ended("a", 1.0)
    assert rests.due(2.0) == ["b"]
    rests.ended("b", 2.0)
    assert (rests.rests, rests.next_due()) == ({}, None)


def test_who_still_tries_when_another_was_answered_tries_for_nobody_any_more() -> None:
    """Else it would be let through beside the one whose turn it is the next time."""
    rests = resting()
    rests.add("a", "T", 0.0)
    assert rests.due(1.0) == ["a"]
    rests.back("early", "T", 1.5)
    rests.add("b", "T", 2.0)
    assert rests.holds("a", "T")
    assert rests.due(3.0) == ["b"]
    rests.ended("a", 3.0)
    assert rests.next_due() is None


def test_who_waits_no_more_is_forgotten() -> None:
    rests = resting()
    for name in "ab":
        rests.add(name, "T", 0.0)
    assert (rests.forget("a"), rests.forget("a"), rests.count) == (True, False, 1)
    assert rests.due(1.0) == ["b"]
    assert not rests.forget("b")
    rests.add("c", "T", 1.0)
    assert rests.forget("c")
    assert rests.holds("c", "T")  # b still tries
    rests.add("b", "T", 1.0)
    assert rests.forget("b")
    assert rests.rests == {}


def test_who_finds_out_on_the_way_what_it_waits_for() -> None:
    """It had no route, so no queue; now it has one, whose broker is away."""
    rests = resting()
    rests.add("a", ("T",), 0.0)
    rests.add("b", ("T",), 0.0)
    assert rests.due(1.0) == ["a"]
    assert rests.add("a", "broker", 1.0)
    assert rests.due(1.05) == []
    assert set(rests.due(2.0)) == {"a", "b"}
    rests.add("b", ("T",), 2.0)
    assert rests.due(9.0) == ["b"]
    rests.add("c", ("T",), 9.0)
    assert rests.back("b", "other", 9.5) == (["c"], 9.5)
    assert rests.back("a", "broker", 9.5) == ([], 8.5)
    assert rests.rests == {}


def test_who_is_answered_elsewhere_lets_all_go_on_who_wait_for_either() -> None:
    """It tried for those without a route, and met the broker of its queue."""
    rests = resting()
    for name, key in (("a", "T"), ("b", "broker"), ("c", "T")):
        rests.add(name, key, 0.0)
    assert rests.due(1.0) == ["a", "b"]
    rests.add("b", "broker", 1.0)
    assert rests.back("a", "broker", 2.0) == (["c", "b"], 2.0)
    assert (rests.rests, rests.count) == ({}, 0)
