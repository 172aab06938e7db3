"""For how long nobody is followed."""

from rmq_ha.base.timing.masterless_time import TOLD_AFTER_SECONDS, MasterlessTime
from rmq_ha.testing.host import World


def test_it_is_said_once_when_it_has_been_too_long_and_counted_from_the_first_moment_on() -> None:
    world, told = World(1), []
    clock = world.add("slave").seams.clock
    alone = MasterlessTime(clock, lambda: told.append(alone.seconds))
    assert alone.seconds is None
    for _ in range(2):
        alone.begin()
        world.clock.run_for(TOLD_AFTER_SECONDS - 1)
        alone.begin()  # for longer already
        assert told == []
        world.clock.run_for(100)
        assert told == [TOLD_AFTER_SECONDS]
        assert alone.seconds == TOLD_AFTER_SECONDS + 99
        alone.end()
        assert alone.seconds is None
        told.clear()
    alone.begin()
    alone.end()
    world.clock.run_for(100)
    assert told == []
    assert not clock.getDelayedCalls()
