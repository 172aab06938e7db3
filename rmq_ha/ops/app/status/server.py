"""The status port of one server process: a registry of its own, a listener, nothing global."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import LogEvent, Logger

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.base.seams import Connections, Host
from rmq_ha.ops.app.build import build_labels
from rmq_ha.ops.app.page.board import Board
from rmq_ha.ops.app.page.port import PagePort, PageSettings
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.names import HostNames
from rmq_ha.ops.app.status.reactor import ReactorLag
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.ops.app.status.site import Scrape, make_site


class Subject(Protocol):
    def constants(self) -> Mapping[str, str]: ...

    def collect(self, samples: Samples) -> None: ...


class SubjectCollector(Collector):
    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry then does not collect to learn the names."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Once a scrape."""
        samples = Samples(CATALOGUE, self._subject.constants())
        self._subject.collect(samples)
        return samples.families()


class _Process:
    """The part of the reactor and its ports."""

    def __init__(self, server: str, lag: ReactorLag, connections: Connections | None) -> None:
        self._server = server
        self._lag = lag
        self._connections = connections

    def constants(self) -> Mapping[str, str]:
        """Which server of a process this is: `rmqha` or `rmqnamesrv`."""
        return {"server": self._server}

    def collect(self, samples: Samples) -> None:
        """The build, lag and timers, and the connections of all ports."""
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
    Serves /metrics and /healthz, and the page.

    It listens before what it tells of is started, so that /healthz can say why that takes so long.

    :param name: of the server: `rmqha` or `rmqnamesrv`.
    :param page: None: without a page.
    :param names: `metricsHostNames`.
    :ivar page: None: there is none.
    :ivar health: asked at each request; replace it as the server comes up and goes down.
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
        self._names = HostNames(names)
        self._lag = ReactorLag(host.clock)
        self.page = None if page is None else PagePort(host, page, interface)
        self._listening: IListeningPort | None = None
        self._subjects: list[SubjectCollector] = []
        ProcessCollector(registry=self.registry)
        self.registry.register(SubjectCollector(_Process(name, self._lag, host.connections)))

    @property
    def port(self) -> int:
        """Where it listens; 0 while it does not."""
        return 0 if self._listening is None else int(getattr(self._listening.getHost(), "port", 0))

    def add(self, subject: Subject) -> None:
        """Tell of this, too, from the next scrape on."""
        collector = SubjectCollector(subject)
        self.registry.register(collector)
        self._subjects.append(collector)
        self._scrape.forget()

    @property
    def reactor_lag(self) -> Histogram:
        """Seconds that timers ran late."""
        return self._lag.histogram

    def show(self, board: Board) -> None:
        """What the page shows from now on, if there is one."""
        if self.page is not None:
            self.page.show(board)

    def observe(self, event: LogEvent) -> None:
        """A line of the log of this process."""
        if self.page is not None:
            self.page.observe(event)

    def withdraw(self, health: Health) -> None:
        """What was added is going down: tell of the process alone."""
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

        :returns: fires when it does; fails with `CannotListenError`.
        """
        site = make_site(self._scrape, lambda: self.health(), self._host, self._names, self.page)
        endpoint = self._host.network.server(self._port, self._interface)
        return maybeDeferred(endpoint.listen, site).addCallback(self._started)

    def stop(self) -> "Deferred[None]":
        """Close the port; fires when that is done."""
        self._lag.stop()
        listening, self._listening = self._listening, None
        if listening is None:
            return maybeDeferred(lambda: None)
        return maybeDeferred(listening.stopListening).addCallback(lambda _: None)

    def _started(self, listening: IListeningPort) -> None:
        self._listening = listening
        self._lag.start()
        self.log.info("metrics and health on port {port}", port=self.port)
