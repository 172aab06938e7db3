"""New certificates without a restart."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import execute
from twisted.internet.task import Clock
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.reload import TlsReload
from rmq_ha.base.tls.server import ServerTls
from tests.unit.base.tls.material import Files, now_ms, talk

REAL = {"tls.test.mode.enable": "false"}
AT_ONCE = SimpleNamespace(call=execute)


class WatchedFiles(Files):
    """Each change of a file has a time."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, int] = {}
        self.reads = 0

    def read_bytes(self, path: str) -> bytes:
        self.reads += 1
        return super().read_bytes(path)

    def __setitem__(self, path: str, data: bytes) -> None:
        super().__setitem__(path, data)
        self.times[path] = self.times.get(path, 0) + 1

    def mtime_ms(self, path: str) -> int:
        super().read_bytes(path)
        return self.times[path]

    def size(self, path: str) -> int:
        return len(super().read_bytes(path))


class Place:
    def __init__(self) -> None:
        self.files = WatchedFiles()
        self.clock = Clock()
        options = REAL | self.files.put_pair("tls.server", "old")
        self.server = ServerTls(options, self.files.read_bytes, now_ms)
        host: Any = SimpleNamespace(clock=self.clock, disk=self.files, worker=AT_ONCE)
        self.reload = TlsReload(host, [self.server])
        self.errors: list[str] = []
        self.reload.start()

    def note(self, event: Any) -> None:
        if event["log_level"] is LogLevel.error:
            self.errors.append(event["log_format"].format(**event))

    def serves(self, name: str) -> bool:
        options = REAL | {"tls.enable": "true"} | self.files.put_root("tls.client")
        client = ClientTls(options, self.files.read_bytes, now_ms).session(name)
        try:
            talk(client, self.server.session())
        except Exception:
            return False
        return True


@pytest.fixture
def place():
    made = Place()
    globalLogPublisher.addObserver(made.note)
    yield made
    globalLogPublisher.removeObserver(made.note)
    made.reload.stop()
    assert made.clock.getDelayedCalls() == []


def test_on_demand(place: Place) -> None:
    place.files.put_pair("tls.server", "new")
    assert place.serves("old")
    assert place.reload.reload()
    assert place.serves("new")
    assert not place.serves("old")


def test_a_change_is_seen_when_it_is_over(place: Place) -> None:
    """Key and certificate come one after the other; in between nothing is said."""
    good = WatchedFiles()
    good.put_pair("tls.server", "new")
    place.clock.advance(1.0)
    place.files["/tls.server.key"] = good["/tls.server.key"]
    place.clock.advance(1.0)
    assert place.serves("old")
    place.files["/tls.server.pem"] = good["/tls.server.pem"]
    place.clock.advance(1.0)
    place.clock.advance(1.0)
    assert place.serves("new")
    assert place.errors == []


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_broken_file_changes_nothing_and_is_told(place: Place, is_asked: bool) -> None:
    place.files["/tls.server.pem"] = b"oops"
    if is_asked:
        assert not place.reload.reload()
    else:
        for _ in range(5):
            place.clock.advance(1.0)
    assert place.serves("old")
    assert len(place.errors) == 1
    assert "TLS stays as it was: tls.server.certPath=/tls.server.pem: no PEM" in place.errors[0]
    place.files.put_pair("tls.server", "new")
    for _ in range(3):
        place.clock.advance(1.0)
    assert place.serves("new")


@pytest.mark.parametrize("is_asked", [True, False])
def test_one_change_is_read_once(place: Place, is_asked: bool) -> None:
    """Not each second from then on, and not again after somebody had it read."""
    place.files.put_pair("tls.server", "new")
    if is_asked:
        place.reload.reload()
    else:
        for _ in range(2):
            place.clock.advance(1.0)
    assert place.serves("new")
    reads = place.files.reads
    for _ in range(5):
        place.clock.advance(1.0)
    assert place.files.reads == reads


def test_one_part_that_does_not_fit_keeps_no_other_back(place: Place) -> None:
    """In whatever order they are read."""
    files = WatchedFiles()
    other = ServerTls(REAL | files.put_pair("tls.server", "x"), files.read_bytes, now_ms)
    files["/tls.server.pem"] = b"oops"
    host: Any = SimpleNamespace(clock=Clock(), disk=place.files, worker=AT_ONCE)
    place.files.put_pair("tls.server", "new")
    assert not TlsReload(host, [other, place.server]).reload()
    assert place.serves("new")
    place.files.put_pair("tls.server", "newer")
    assert not TlsReload(host, [place.server, other]).reload()
    assert place.serves("newer")


def test_without_a_change_nothing_is_read(place: Place) -> None:
    reads = place.files.reads
    for _ in range(3):
        place.clock.advance(1.0)
    assert place.files.reads == reads


@pytest.mark.parametrize("is_good", [True, False])
def test_the_log_says_what_became_of_it(place: Place, logged: list[Any], is_good: bool) -> None:
    """Whoever sends a SIGHUP looks there, and nowhere else."""
    if not is_good:
        place.files["/tls.server.pem"] = b"oops"
    assert place.reload.reload() is is_good
    (event,) = logged
    said = "read again: for new connections" if is_good else "TLS stays as it was"
    assert said in formatEvent(event)


def test_a_file_that_is_away_for_a_moment(place: Place, logged: list[Any]) -> None:
    data = place.files.pop("/tls.server.pem")
    place.clock.advance(1.0)
    place.files["/tls.server.pem"] = data
    place.clock.advance(1.0)
    place.clock.advance(1.0)
    assert [event for event in logged if event["log_level"] >= LogLevel.warn] == []
    assert place.serves("old")


def test_nothing_is_watched_where_nothing_was_read() -> None:
    clock = Clock()
    rules = ServerTls({}, Files().read_bytes, now_ms)
    host: Any = SimpleNamespace(clock=clock, disk=WatchedFiles(), worker=AT_ONCE)
    reload = TlsReload(host, [rules])
    reload.start()
    assert clock.getDelayedCalls() == []
    assert reload.reload()
    reload.stop()
