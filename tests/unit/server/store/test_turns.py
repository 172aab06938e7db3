"""How long requests wait before this process gets to them."""

from rmq_ha.server.store.turns import TurnWatch


def test_turns() -> None:
    """Three long turns with a queue count, for as long as the last one took."""
    watch = TurnWatch()
    assert watch.waiting_ms(10.0) == 0
    for seconds, now in ((0.5, 10.0), (0.6, 10.6)):
        watch.count_sends("c", 2)
        watch.end_turn(seconds, now)
        assert watch.waiting_ms(now) == 0
    watch.count_sends("c", 1)
    assert watch.count_sends("c", 1)
    watch.end_turn(0.4, 11.0)
    assert watch.waiting_ms(11.0) == 400
    assert watch.waiting_ms(11.41) == 0
    watch.count_sends("c", 2)
    watch.end_turn(0.01, 12.0)
    assert watch.waiting_ms(12.0) == 10


def test_turns_without_a_queue() -> None:
    """However many they are: each sender waits for its answer, and the machine is slow."""
    watch = TurnWatch()
    for turn in range(10):
        assert {watch.count_sends(sender, 1) for sender in range(500)} == {False}
        watch.end_turn(0.9, float(turn))
        assert watch.waiting_ms(float(turn)) == 0
    assert not watch.count_sends(0, 0)
    assert not watch.count_sends(0, 1)
    assert watch.count_sends(0, 1)


def test_a_queue_counts_for_its_own_turn() -> None:
    watch = TurnWatch()
    watch.count_sends("c", 2)
    watch.end_turn(0.5, 1.0)
    watch.end_turn(0.6, 2.0)
    watch.count_sends("c", 2)
    watch.end_turn(0.7, 3.0)
    assert watch.waiting_ms(3.0) == 0


def test_the_first_turn_has_a_queue_only_if_somebody_came() -> None:
    watch = TurnWatch()
    watch.end_turn(0.5, 1.0)
    for now in (2.0, 3.0):
        watch.count_sends("c", 2)
        watch.end_turn(0.6, now)
    assert watch.waiting_ms(3.0) == 0
