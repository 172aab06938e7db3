"""`rmq_ha.broker.master_seeker`."""

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from rmq_ha.broker.master_seeker import MasterSeeker


class Asked:
    """Name servers that answer when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.times: list[float] = []
        self.known: str | None = None
        self.answers: Deferred[None] | None = None
        self.seeker = MasterSeeker(self.clock, self.ask)  # type: ignore[arg-type]

    def ask(self) -> Deferred[None]:
        self.times.append(self.clock.seconds())
        if self.answers is not None:
            return self.answers
        self.seeker.learned(self.known)
        return succeed(None)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)


def test_nobody_knows_the_master() -> None:
    """After a second, then less and less often, 10 s at most, until somebody does."""
    asked = Asked()
    asked.seeker.learned(None)
    asked.pass_time(60)
    gaps = [later - time for time, later in zip(asked.times, asked.times[1:], strict=False)]
    assert 0.99 < asked.times[0] < 1.2
    assert gaps == sorted(gaps)
    assert 9.9 < gaps[-1] < 10.2
    asked.known = "10.0.0.1:10911"
    asked.pass_time(11)
    count = len(asked.times)
    asked.pass_time(60)
    assert len(asked.times) == count
    asked.seeker.learned(None)
    asked.pass_time(1.2)
    assert len(asked.times) == count + 1


def test_a_round_that_nobody_answers_is_followed_by_another() -> None:
    asked = Asked()
    asked.answers = Deferred()
    asked.seeker.learned(None)
    asked.pass_time(20)
    assert len(asked.times) == 1
    asked.answers.callback(None)
    asked.answers = None
    asked.pass_time(2)
    assert len(asked.times) == 2


def test_stop() -> None:
    asked = Asked()
    asked.seeker.learned(None)
    asked.seeker.stop()
    asked.seeker.learned(None)
    assert not asked.clock.getDelayedCalls()
