"""New certificates without a restart."""

from types import SimpleNamespace
from typing import Any

import pytest
from material import Files, now_ms, talk
from twisted.internet.defer import execute
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher

from rmq_ha.tls.client import ClientTls
from rmq_ha.tls.reload import TlsReload
from rmq_ha.tls.server import ServerTls

REAL = {"tls.test.mode.enable": "false"}
AT_ONCE = SimpleNamespace(call=execute)


class WatchedFiles(Files):
    """Each change of a file has a time."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, int] = {}

    def __setitem__(self, path: str, data: bytes) -> None:
        super().__setitem__(path, data)
        self.times[path] = self.times.get(path, 0) + 1

    def mtime_ms(self, path: str) -> int:
        self.read_bytes(path)
        return self.times[path]

    def size(self, path: str) -> int:
        return len(self.read_bytes(path))


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


def test_a_file_that_is_away_for_a_moment(place: Place) -> None:
    data = place.files.pop("/tls.server.pem")
    place.clock.advance(1.0)
    place.files["/tls.server.pem"] = data
    place.clock.advance(1.0)
    place.clock.advance(1.0)
    assert place.errors == []
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
