"""The HTTP resources of the status port: /metrics, /healthz, /readyz, /livez, and the page."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.http import Request, datetimeToString
from twisted.web.pages import notFound
from twisted.web.resource import Resource
from twisted.web.server import Site

from rmq_ha.base.model.printable import one_line
from rmq_ha.base.runs.maker import CHOICE
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.ops.app.page.port import PagePort
from rmq_ha.ops.app.page.resources import name_asked
from rmq_ha.ops.app.status.channel import IDLE_S, PortTurns, StatusChannel, StatusRequest
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.names import KEY, AllowedHostNames

KEPT_S = 0.5
_TEXT = b"text/plain; charset=utf-8"
_INDEX = (
    b"/metrics: Prometheus\n/healthz: ready, or why not\n"
    b"/readyz: ready and in sync, or why not\n/livez: the process lives\n"
)


class Scrape:
    """
    The text of /metrics, which is collected anew after half a second, so that many clients cost no
    more than one.

    :ivar text: the text; None: it cannot be collected.
    """

    log = Logger()

    def __init__(self, registry: CollectorRegistry, clock: IReactorTime) -> None:
        self._registry = registry
        self._clock = clock
        self._until: float | None = None
        self._text: bytes | None = None
        self._last_error = ""

    @property
    def text(self) -> bytes | None:
        """The text, collected at most half a second ago."""
        now = self._clock.seconds()
        if self._until is None or now >= self._until:
            self._text = self._read()
            self._until = now + KEPT_S
        return self._text

    def forget(self) -> None:
        """Drop the text, because the sources have changed."""
        self._until = None

    def _read(self) -> bytes | None:
        try:
            text = generate_latest(self._registry)
        except Exception as error:  # a metric that fails must not fail the server
            if repr(error) != self._last_error:
                self.log.failure("metrics cannot be collected")
            self._last_error = repr(error)
            return None
        self._last_error = ""
        return text


class _Metrics(Resource):
    isLeaf = True
    log = Logger()

    def __init__(self, scrape: Scrape, names: AllowedHostNames, clock: IReactorTime) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scrape = scrape
        self._names = names
        self._refusals = Refusals(clock)

    def render_GET(self, request: Request) -> bytes:
        """Return all metrics; refuse a request whose Host header is foreign (DNS rebinding)."""
        name = name_asked(request)
        if name not in self._names:
            return self._refuse(request, name)
        text = self._scrape.text
        if text is None:
            request.setResponseCode(int(HTTPStatus.INTERNAL_SERVER_ERROR))
            return _say(request, _TEXT, b"metrics cannot be collected; the log says why\n")
        return _say(request, CONTENT_TYPE_PLAIN_0_0_4.encode(), text)

    def _refuse(self, request: Request, name: str) -> bytes:
        why = f"metrics are not served to who asks for {one_line(name[:100])}: add it to {KEY}"
        more = self._refusals.admit("", name[:100])
        if more is not None:
            self.log.warn("{why} (docs/operations.md){more}", why=why, more=more)
        request.setResponseCode(int(HTTPStatus.MISDIRECTED_REQUEST))
        return _say(request, _TEXT, f"{why}\n".encode())


class _Healthz(Resource):
    isLeaf = True

    def __init__(self, health: Callable[[], Health], now_ms: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._health = health
        self._now_ms = now_ms

    def render_GET(self, request: Request) -> bytes:
        """Return one line, with status 200 or 503."""
        health = self._health()
        request.setResponseCode(200 if health.is_ready else 503)
        date = datetimeToString(self._now_ms() / 1000)  # type: ignore[no-untyped-call]
        request.responseHeaders.setRawHeaders(b"date", [date])
        request.responseHeaders.setRawHeaders(b"x-rmqha-kernel", [CHOICE.text()])
        return _say(request, _TEXT, health.line().encode("utf-8", "replace"))


class _Livez(Resource):
    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        """Return 200: the reactor of this process turns, whatever its server can do."""
        return _say(request, _TEXT, b"alive\n")


class _IndexPage(Resource):
    def getChild(self, path: bytes, request: Request) -> Any:
        return self if path == b"" else notFound()

    def render_GET(self, request: Request) -> bytes:
        return _say(request, _TEXT, _INDEX)


class StatusSite(Site):
    """
    Makes all connections of the port; writes no log line for each scrape.

    :ivar turns: the turns in which the connections are served.
    """

    noisy = False
    displayTracebacks = False
    protocol = StatusChannel  # type: ignore[assignment]
    requestFactory = StatusRequest

    def __init__(self, root: Resource, clock: IReactorTime) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            root, timeout=IDLE_S, reactor=clock, parsePOSTFormSubmission=False
        )
        self.turns = PortTurns(clock)

    def log(self, request: Any) -> None:
        pass


def make_site(
    scrape: Scrape,
    health: Callable[[], Health],
    host: Host,
    names: AllowedHostNames,
    page: PagePort | None = None,
) -> StatusSite:
    """
    Return the factory to listen with.

    :param health: called at each request.
    :param host: its clock gives the date of /healthz, by which `doctor` finds wrong clocks.
    :param names: host names by which /metrics may be asked for.
    :param page: the page; None: the root lists the other resources.
    """
    root = _IndexPage()  # type: ignore[no-untyped-call]
    root.putChild(b"metrics", _Metrics(scrape, names, host.clock))
    root.putChild(b"healthz", _Healthz(health, host.now_ms))
    root.putChild(b"readyz", _Healthz(lambda: health().placed(), host.now_ms))
    root.putChild(b"livez", _Livez())  # type: ignore[no-untyped-call]
    if page is not None:
        page.put_into(root)
    return StatusSite(root, host.clock)


def _say(request: Request, content_type: bytes, text: bytes) -> bytes:
    headers = request.responseHeaders
    headers.setRawHeaders(b"content-type", [content_type])
    headers.setRawHeaders(b"cache-control", [b"no-store"])
    return text
