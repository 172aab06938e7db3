"""Measures how busy the reactor's thread is, which does all the work."""

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.ops.app.status.samples import Samples

EVERY_S = 0.5
WINDOW_S = 60.0


class ReactorLag:
    """
    Measures twice a second how late a timer runs; a request waits about as long before it is
    served.

    :ivar histogram: histogram of the seconds that the timer was late.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.histogram = Histogram()
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._due = 0.0
        self._window_ends = 0.0
        self._worst = self._worst_before = 0.0

    def start(self) -> None:
        self._window_ends = self._clock.seconds() + WINDOW_S
        self._arm()

    def stop(self) -> None:
        """Stop measuring; harmless when it does not measure."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def worst_seconds(self) -> float:
        """The largest delay of the last one to two minutes, in seconds."""
        return max(self._worst, self._worst_before)

    def collect(self, samples: Samples) -> None:
        samples.add_histogram("rmqha_reactor_lag_seconds", self.histogram)
        samples.add("rmqha_reactor_lag_max_seconds", self.worst_seconds)
        samples.add("rmqha_reactor_delayed_calls", len(self._clock.getDelayedCalls()))

    def _arm(self) -> None:
        self._due = self._clock.seconds() + EVERY_S
        self._timer = self._clock.callLater(EVERY_S, self._on_time)

    def _on_time(self) -> None:
        now = self._clock.seconds()
        late = max(0.0, now - self._due)
        self.histogram.add(late)
        if now >= self._window_ends:
            self._worst_before, self._worst = self._worst, 0.0
            self._window_ends = now + WINDOW_S
        self._worst = max(self._worst, late)
        self._arm()
