"""What the status port serves: /metrics and /healthz, and beside them the page."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from twisted.logger import Logger
from twisted.web.http import Request, datetimeToString
from twisted.web.pages import notFound
from twisted.web.resource import Resource
from twisted.web.server import Site

from rmq_ha.app.page.port import PagePort
from rmq_ha.app.status.health import Health
from rmq_ha.seams import Host

IDLE_S = 60
_TEXT = b"text/plain; charset=utf-8"
_INDEX = b"/metrics: Prometheus\n/healthz: ready, or why not\n"


class _Metrics(Resource):
    isLeaf = True
    log = Logger()

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._last_error = ""

    def render_GET(self, request: Request) -> bytes:
        """Everything, read now."""
        try:
            text = generate_latest(self._registry)
        except Exception as error:  # a metric that fails must not fail what it measures
            if repr(error) != self._last_error:
                self.log.failure("metrics cannot be collected")
            self._last_error = repr(error)
            request.setResponseCode(500)
            return _say(request, _TEXT, b"metrics cannot be collected; the log says why\n")
        self._last_error = ""
        return _say(request, CONTENT_TYPE_PLAIN_0_0_4.encode(), text)


class _Healthz(Resource):
    isLeaf = True

    def __init__(self, health: Callable[[], Health], now_ms: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._health = health
        self._now_ms = now_ms

    def render_GET(self, request: Request) -> bytes:
        """One line, and 200 or 503."""
        health = self._health()
        request.setResponseCode(200 if health.is_ready else 503)
        date = datetimeToString(self._now_ms() / 1000)  # type: ignore[no-untyped-call]
        request.responseHeaders.setRawHeaders(b"date", [date])
        return _say(request, _TEXT, health.line().encode("utf-8", "replace"))


class _Index(Resource):
    def getChild(self, path: bytes, request: Request) -> Any:
        """Itself for the root."""
        return self if path == b"" else notFound()

    def render_GET(self, request: Request) -> bytes:
        """What there is."""
        return _say(request, _TEXT, _INDEX)


class _QuietSite(Site):
    """No log line for each scrape."""

    noisy = False
    displayTracebacks = False

    def log(self, request: Any) -> None:
        """Nothing."""


def make_site(
    registry: CollectorRegistry,
    health: Callable[[], Health],
    host: Host,
    page: PagePort | None = None,
) -> Site:
    """
    The factory to listen with.

    :param health: asked at each request.
    :param host: whose clock is the date of /healthz: `doctor` sees by it whose clock is wrong.
    :param page: None: the root says what else there is.
    """
    root = _Index()  # type: ignore[no-untyped-call]
    root.putChild(b"metrics", _Metrics(registry))
    root.putChild(b"healthz", _Healthz(health, host.now_ms))
    if page is not None:
        page.put_into(root)
    site: Site = _QuietSite(root, timeout=IDLE_S, reactor=host.clock)  # type: ignore[no-untyped-call]
    return site


def _say(request: Request, content_type: bytes, text: bytes) -> bytes:
    headers = request.responseHeaders
    headers.setRawHeaders(b"content-type", [content_type])
    headers.setRawHeaders(b"cache-control", [b"no-store"])
    return text
