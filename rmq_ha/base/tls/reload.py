"""New certificates without a restart: on demand, and when a file changed."""

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.tls.files import certificate_text

WATCH_SECONDS = 1.0
_Print = tuple[str, int | None, int | None]
"""A file, and when and how large it was; None: it was not there."""


class Part(Protocol):
    @property
    def subject(self) -> str: ...

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it was read from."""

    def reload(self) -> None:
        """:raises ConfigurationError: something does not fit; what there was stays."""


class TlsReload:
    """
    Reads the TLS files of a server again; connections that there are go on as they are.

    A change is read when nothing has changed for a second more, so that key and certificate may
    be written one after the other.
    """

    log = Logger()

    def __init__(self, host: Host, parts: Sequence[Part]) -> None:
        """:param parts: each keeps what it had when its new files do not fit."""
        self._disk = host.disk
        self._worker = host.worker
        self._parts = parts
        self._seen = self._look()
        self._has_changed = False
        self._watch = Periodic(host.clock, "watching TLS files", self._check, WATCH_SECONDS)

    def certificates(self) -> dict[tuple[str, str], int]:
        """When the certificates in use end, in seconds since 1970: by setting, and by who it is."""
        ends: dict[tuple[str, str], int] = {}
        for part in self._parts:
            for setting, certificate in getattr(part, "certificates", ()):
                place = (setting, certificate_text(certificate))
                end = int(certificate.not_valid_after_utc.timestamp())
                ends[place] = min(end, ends.get(place, end))
        return ends

    def start(self) -> None:
        """Watch the files, if there are any."""
        if self._paths():
            self._watch.start()

    def stop(self) -> "Deferred[None]":
        return self._watch.stop()

    def reload(self) -> bool:
        """
        Read everything now.

        :returns: all fits and is in use; what does not is in the log, and what it would replace
            stays in use.
        """
        is_good = True
        for part in self._parts:
            try:
                part.reload()
            except ConfigurationError as error:
                is_good = False
                self.log.error(
                    "{subject} stays as it was: {error}", subject=part.subject, error=error
                )
        self._seen = self._look()
        self._has_changed = False
        if is_good:
            self.log.info("TLS settings and certificates read again: for new connections")
        return is_good

    def _check(self) -> "Deferred[None]":
        """A directory may be on another machine: the reactor does not wait for it."""
        return self._worker.call(self._look).addCallback(self._looked)

    def _looked(self, now: list[_Print]) -> None:
        if now != self._seen:
            self._seen = now
            self._has_changed = True
        elif self._has_changed:
            self.reload()

    def _paths(self) -> list[str]:
        return list(dict.fromkeys(path for part in self._parts for path in part.files))

    def _look(self) -> list[_Print]:
        return [self._fingerprint(path) for path in self._paths()]

    def _fingerprint(self, path: str) -> _Print:
        try:
            return path, self._disk.mtime_ms(path), self._disk.size(path)
        except OSError:
            return path, None, None
