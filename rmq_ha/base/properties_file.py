"""PropertiesFile: writes settings that a request has changed into their properties file.

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
    A properties file that keeps comments and order when it is changed; `.bak` has its old content.

    :param path: the file; None to keep changes in memory only.
    """

    log = Logger()

    def __init__(self, disk: Disk, worker: Worker, path: str | None) -> None:
        self.path = path
        self._disk = disk
        self._worker = worker
        self._last: Deferred[bool] = succeed(True)

    def change(self, changes: Mapping[str, str]) -> "Deferred[bool]":
        """
        Write changed values into the file, after the changes of earlier calls.

        :returns: fires with whether the file has the values (True without a file); never fails.
        """
        if self.path is None or not changes:
            return succeed(True)
        path, values = self.path, dict(changes)
        self._last.addCallback(
            lambda _: self._worker.call(self._rewrite, path, values).addErrback(self._failed)
        )
        return self.written()

    def written(self) -> "Deferred[bool]":
        """Wait for all changes so far; fires with whether the last change was written."""
        done: Deferred[bool] = Deferred()

        def tell(is_written: bool) -> bool:
            done.callback(is_written)
            return is_written

        self._last.addCallback(tell)
        return done

    def _rewrite(self, path: str, changes: dict[str, str]) -> bool:
        """Write changed values; called in the worker."""
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
