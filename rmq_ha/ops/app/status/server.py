"""
The status port of one server process, with a registry and a listener of its own; it uses nothing
global.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IListeningPort, IReactorTime
from twisted.logger import LogEvent, Logger

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.base.seams import Connections, Host
from rmq_ha.ops.app.build import build_labels
from rmq_ha.ops.app.page.board import Board
from rmq_ha.ops.app.page.port import PagePort, PageSettings
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.names import AllowedHostNames
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.ops.app.status.site import Scrape, make_site

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


class Subject(Protocol):
    def constants(self) -> Mapping[str, str]: ...

    def collect(self, samples: Samples) -> None: ...


class SubjectCollector(Collector):
    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that a registry does not collect only to learn the names."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return all metrics; called once in a scrape."""
        samples = Samples(CATALOGUE, self._subject.constants())
        self._subject.collect(samples)
        return samples.families()


class _ProcessMetrics:
    """The metrics of the process: reactor and ports."""

    def __init__(self, server: str, lag: ReactorLag, connections: Connections | None) -> None:
        self._server = server
        self._lag = lag
        self._connections = connections

    def constants(self) -> Mapping[str, str]:
        """
        Return the label `server`, whose value is `rmqha`, `rmqnamesrv` or `rmqcontroller`.
        """
        return {"server": self._server}

    def collect(self, samples: Samples) -> None:
        """Add the build, lag and timers, and the connections of all ports."""
        samples.add("rmqha_build_info", 1, **build_labels())
        self._lag.collect(samples)
        connections = self._connections
        if connections is None:
            return
        samples.add("rmqha_open_connections", connections.taken)
        if connections.places is not None:
            samples.add("rmqha_connection_places", connections.places)
        for key, count in connections.refused.items():
            samples.add("rmqha_refused_connections_total", count, reason=key)


class StatusServer:
    """
    Serves /metrics, /healthz and the page.

    It listens before the server itself starts, so that /healthz can say why a start takes long.

    :param name: name of the server: `rmqha`, `rmqnamesrv` or `rmqcontroller`.
    :param page: the page; None: no page.
    :param names: `metricsHostNames`.
    :ivar page: the page; None: no page.
    :ivar health: called at each request; it is replaced as the server starts and stops.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        name: str,
        port: int,
        interface: str,
        page: PageSettings | None = None,
        names: str = "",
    ) -> None:
        self.health: Callable[[], Health] = lambda: Health(False, "starting")
        self.registry = CollectorRegistry(auto_describe=False)
        self._scrape = Scrape(self.registry, host.clock)
        self._host = host
        self._port = port
        self._interface = interface
        self._names = AllowedHostNames(names)
        self._lag = ReactorLag(host.clock)
        self.page = None if page is None else PagePort(host, page, interface)
        self._listening: IListeningPort | None = None
        self._subjects: list[SubjectCollector] = []
        ProcessCollector(registry=self.registry)
        self.registry.register(SubjectCollector(_ProcessMetrics(name, self._lag, host.connections)))

    @property
    def port(self) -> int:
        """Port that it listens on; 0 while it does not listen."""
        return 0 if self._listening is None else int(getattr(self._listening.getHost(), "port", 0))

    def add(self, subject: Subject) -> None:
        """Add a source of metrics, from the next scrape on."""
        collector = SubjectCollector(subject)
        self.registry.register(collector)
        self._subjects.append(collector)
        self._scrape.forget()

    @property
    def reactor_lag(self) -> Histogram:
        """Histogram of the seconds that timers ran late."""
        return self._lag.histogram

    def show(self, board: Board) -> None:
        """Have the page show this board, if there is a page."""
        if self.page is not None:
            self.page.show(board)

    def observe(self, event: LogEvent) -> None:
        """Pass an event of this process's log to the page."""
        if self.page is not None:
            self.page.observe(event)

    def withdraw(self, health: Health) -> None:
        """
        Remove the sources that were added, because the server stops; the metrics of the process
        stay.
        """
        self.health = lambda: health
        if self.page is not None:
            self.page.hide()
        for collector in self._subjects:
            self.registry.unregister(collector)
        self._subjects.clear()
        self._scrape.forget()

    def start(self) -> "Deferred[None]":
        """
        Listen.

        :returns: fires when the port is open; fails with `CannotListenError`.
        """
        site = make_site(self._scrape, lambda: self.health(), self._host, self._names, self.page)
        endpoint = self._host.network.server(self._port, self._interface)
        return maybeDeferred(endpoint.listen, site).addCallback(self._started)

    def stop(self) -> "Deferred[None]":
        """Close the port; the Deferred fires when it is closed."""
        self._lag.stop()
        listening, self._listening = self._listening, None
        if listening is None:
            return maybeDeferred(lambda: None)
        return maybeDeferred(listening.stopListening).addCallback(lambda _: None)

    def _started(self, listening: IListeningPort) -> None:
        self._listening = listening
        self._lag.start()
        self.log.info("metrics and health on port {port}", port=self.port)
