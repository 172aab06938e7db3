"""TlsReload: reads new certificates without a restart, on demand and when a file has changed."""

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
"""Path, modification time in ms and size in bytes of a file; None if the file does not exist."""


class ReloadablePart(Protocol):
    @property
    def subject(self) -> str: ...

    @property
    def files(self) -> tuple[str, ...]:
        """The files that this part has read."""

    def reload(self) -> None:
        """
        Read all files of this part again, for later connections.

        :raises ConfigurationError: a value or a file is not valid; the old ones stay in use.
        """


class TlsReload:
    """
    Reads the TLS files of a server again; open connections go on unchanged.

    A change is read when no file has changed for another second, so that key and certificate may be
    written one after the other.
    """

    log = Logger()

    def __init__(self, host: Host, parts: Sequence[ReloadablePart]) -> None:
        """:param parts: users of TLS files; each keeps its old files if new ones are not valid."""
        self._disk = host.disk
        self._worker = host.worker
        self._parts = parts
        self._seen = self._look()
        self._has_changed = False
        self._watch = Periodic(host.clock, "watching TLS files", self._check, WATCH_SECONDS)

    def certificates(self) -> dict[tuple[str, str], int]:
        """
        Return when the certificates in use end, in seconds since the epoch: by the setting that
        names the file, and the names in the certificate.
        """
        ends: dict[tuple[str, str], int] = {}
        for part in self._parts:
            for setting, certificate in getattr(part, "certificates", ()):
                place = (setting, certificate_text(certificate))
                end = int(certificate.not_valid_after_utc.timestamp())
                ends[place] = min(end, ends.get(place, end))
        return ends

    def start(self) -> None:
        """Begin to watch the files, if any are in use."""
        if self._paths():
            self._watch.start()

    def stop(self) -> "Deferred[None]":
        return self._watch.stop()

    def reload(self) -> bool:
        """
        Read all files now.

        :returns: whether all files are valid and in use. Faults are logged, and the old files of
            the part stay in use.
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
        """Look at the files in the worker, as a network file system may block."""
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
