"""The state that a page shows of any server: history, events and timeline, updated by one timer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.seams import Host
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.timing.slices import Lane
from rmq_ha.ops.app.build import build_labels
from rmq_ha.ops.app.page.events import EventKind, Events, EventSeverity, Timeline
from rmq_ha.ops.app.page.history import FINE_S, RINGS, History, Point, Ring
from rmq_ha.ops.app.page.values import Certificate, EventPage, Overview, PageNotice, Series, Tone
from rmq_ha.ops.app.page.watch import ServerState, Watch
from rmq_ha.ops.app.status.health import Health

LOOK_S = 2.0
CERTIFICATE_S = 14 * 86400
MOST_CERTIFICATES = 20
SPANS = ("1h", "12h", "7d", "30d")
"""The spans of the plots: that of the finest points, and those of `RINGS`."""


class Board:
    """
    The board of one server; a subclass knows which kind of server it is.

    :param started_ms: when the server was started.
    :param peaks: see `History`.
    :param keep: see `History`.
    :ivar events: the events; other modules may add some.
    :ivar is_restoring: the points of an earlier run are being read.
    """

    kind = ""

    def __init__(
        self,
        host: Host,
        started_ms: int,
        peaks: Sequence[str] = (),
        keep: Callable[[int, Point], object] = lambda *_: None,
    ) -> None:
        self.host = host
        self.events = Events()
        self.timeline = Timeline()
        self.watch = Watch(self.events, self.timeline)
        self.past = History(peaks, keep)
        self.lane = Lane(host.clock)
        self.is_restoring = False
        self._started_ms = started_ms
        self._looks = 0
        self._last: Mapping[str, float | None] = {}
        self._timer = Periodic(host.clock, "a look for the page", self.look, LOOK_S, 0.0)

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> "Deferred[None]":
        return self._timer.stop()

    def look(self) -> None:
        now_ms = self.host.now_ms()
        self.watch.look(now_ms, self.server_state())
        if self._looks % (FINE_S / LOOK_S) == 0:
            self._last = self.measured()
            self.past.add(now_ms, self._last)
        self._looks += 1

    # ------------------------------------------------------------ for subclasses to implement

    def server_state(self) -> ServerState:
        raise NotImplementedError

    def measured(self) -> Mapping[str, float | None]:
        return {}

    def overview(self) -> Overview:
        raise NotImplementedError

    # ------------------------------------------------------------ common to all servers

    def overview_with(self, name: str, address: str, health: Health, **more: Any) -> Overview:
        """Return the overview with the values that every server has."""
        return Overview(
            now_ms=self.host.now_ms(),
            server=self.kind,
            version=build_labels()["version"],
            started_ms=self._started_ms,
            name=name,
            address=address,
            is_ready=health.is_ready,
            health=health.reason,
            rates={key: value for key, value in self._last.items() if ":" not in key},
            lanes=self.timeline.lanes(),
            members=self.watch.members,
            last_event=self.events.last_number,
            **more,
        )

    def history(self, span: str, after_ms: int, prefix: str = "") -> Series:
        """
        Return the points of the plots.

        :param span: one of `SPANS`.
        :param prefix: only series whose names begin with it; empty: the series of the server as a
            whole.
        """
        ring, step_s = self._ring(span)
        if self.is_restoring and ring is not self.past.fine:
            return Series(step_s, [], {})  # a page that got a part would not ask for the rest
        if prefix:
            names = [name for name in ring.names if name.startswith(prefix)]
        else:
            names = [name for name in ring.names if ":" not in name]
        points = ring.points_after(after_ms, names)
        return Series(step_s, points.at_ms, points.series)

    def _ring(self, span: str) -> tuple[Ring, int]:
        number = SPANS.index(span)
        if not number:
            return self.past.fine, FINE_S
        return self.past.rings[number - 1], RINGS[number - 1].step_s

    def event_page(self, after: int) -> EventPage:
        return EventPage(self.events.last_number, self.events.newer_than(after))

    def note(self, kind: EventKind, severity: EventSeverity, text: str) -> None:
        """Add an event that `Watch` cannot find by comparing states."""
        self.events.add(self.host.now_ms(), kind, severity, text)


def certificates(ends: Mapping[tuple[str, str], int]) -> list[Certificate]:
    """
    Return the certificates that end first.

    :param ends: seconds since the epoch, by setting and subject.
    """
    first = sorted(ends.items(), key=lambda item: item[1])[:MOST_CERTIFICATES]
    return [Certificate(setting, who, end * 1000) for (setting, who), end in first]


def certificate_notices(tls_certificates: Sequence[Certificate], now_ms: int) -> list[PageNotice]:
    """Return notices of certificates that have ended, or end soon."""
    notices = []
    for item in tls_certificates:
        left_s = (item.ends_ms - now_ms) // 1000
        if left_s >= CERTIFICATE_S:
            continue
        days = max(0, left_s // 86400)
        end = "has ended" if left_s < 0 else f"ends in {days} days"
        text = f"{item.setting} ({item.who}) {end}"
        tone = Tone.ERROR if left_s < 0 else Tone.WARN
        notices.append(PageNotice(tone, text, "renew the file; the server needs no restart"))
    return notices
