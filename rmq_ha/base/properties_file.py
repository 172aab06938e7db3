"""PropertiesFile: settings that were changed from afar go into the file they came from.

Spec: remoting.md, section 7.9; store.md, section 13.1.
"""

from collections.abc import Mapping

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config import properties
from rmq_ha.base.seams import Disk, Worker


class PropertiesFile:
    """
    A properties file, changed in place: comments and order stay, the old content is its `.bak`.

    :param path: None keeps changes in memory only.
    """

    log = Logger()

    def __init__(self, disk: Disk, worker: Worker, path: str | None) -> None:
        self.path = path
        self._disk = disk
        self._worker = worker
        self._last: Deferred[bool] = succeed(True)

    def change(self, changes: Mapping[str, str]) -> "Deferred[bool]":
        """
        Write other values, after the changes before them.

        :returns: fires with whether the file has them, or there is none; never fails.
        """
        if self.path is None or not changes:
            return succeed(True)
        path, values = self.path, dict(changes)
        self._last.addCallback(
            lambda _: self._worker.call(self._rewrite, path, values).addErrback(self._failed)
        )
        return self.written()

    def written(self) -> "Deferred[bool]":
        """Fires when every change so far is written or refused, with whether the last one was."""
        done: Deferred[bool] = Deferred()

        def tell(is_written: bool) -> bool:
            done.callback(is_written)
            return is_written

        self._last.addCallback(tell)
        return done

    def _rewrite(self, path: str, changes: dict[str, str]) -> bool:
        """In the worker."""
        try:
            text = properties.decode(self._disk.read_bytes(path))
        except FileNotFoundError:
            text = ""
        data = properties.with_changes(text, changes).encode("iso-8859-1")
        self._disk.replace(path, data, backup=True)
        return True

    def _failed(self, failure: Failure) -> bool:
        self.log.failure(
            "cannot write {path}; the changes last until the next start", failure, path=self.path
        )
        return False
