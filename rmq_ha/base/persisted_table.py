"""PersistedTable: a small table that lives in memory and is written to one JSON file.

Spec: store.md, section 12.1.
"""

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import ProtocolViolation, StoreError
from rmq_ha.base.seams import Disk, Worker

_UNREADABLE = "cannot be read"
_MISSING = "is missing or empty"


class PersistedTable:
    """
    A table that loads from `path` or its `.bak`, and writes whole files, one at a time, in the
    worker.

    A subclass converts its content to bytes (`encode`) and back (`decode`).

    :param path: the file; empty for a table in memory only.
    :cvar without_file: says in an error what the table does if it starts without its file.
    :ivar is_dirty: whether the file may differ from the memory.
    """

    log = Logger()
    without_file = "forgets what they held"

    def __init__(self, disk: Disk, worker: Worker, path: str) -> None:
        self.path = path
        self.is_dirty = False
        self._disk = disk
        self._worker = worker
        self._keep_backup = True
        self._writing = False
        self._written: list[Deferred[bool]] = []  # for the write under way
        self._wanted: list[Deferred[bool]] = []  # for the one after it

    def encode(self) -> bytes:
        """Encode the whole content that the file shall have next."""
        raise NotImplementedError

    def decode(self, data: bytes) -> None:
        """
        Take over a file's content: all of it, or nothing when it raises.

        :raises ProtocolViolation: the data does not have the table's form.
        """
        raise NotImplementedError

    def load(self) -> None:
        """
        Read the file, or its backup if the file is missing or damaged. If there is no backup, the
        defaults stay.

        :raises StoreError: the file is missing or damaged, and the backup is damaged.
        """
        fault = self._load_one(self.path) if self.path else None
        if fault is None:
            return
        backup = self.path + ".bak"
        backup_fault = self._load_one(backup)
        if backup_fault is None:
            # The damaged file must not become the backup of the next write.
            self._keep_backup = False
            self.log.warn(
                "{path} {fault}: loaded {backup}", path=self.path, fault=fault, backup=backup
            )
        elif backup_fault == _MISSING:
            if fault != _MISSING:
                self.log.error(
                    "{path} {fault} and there is no {backup}: starting with defaults",
                    path=self.path,
                    fault=fault,
                    backup=backup,
                )
        elif fault.startswith(_UNREADABLE):
            raise StoreError(
                f"{self.path} {fault}: correct its path (storePathRootDir, or the key that names "
                "it), or give the user of this process the right to it"
            )
        else:
            raise StoreError(
                f"{self.path} {fault}, and {backup} {backup_fault}. Repair one of them (any JSON "
                "editor will do) or copy them from another replica; or move both away to start "
                f"with defaults, which {self.without_file}"
            )

    def persist(self) -> "Deferred[bool]":
        """
        Write the present content; calls during a write share the next one.

        :returns: fires with whether the content is on the disk; never fails. After a failed write
            the table stays dirty, for `persist_if_dirty`.
        """
        if not self.path:
            return succeed(True)
        self.is_dirty = True
        done: Deferred[bool] = Deferred()
        self._wanted.append(done)
        if not self._writing:
            self._write()
        return done

    def persist_if_dirty(self) -> "Deferred[bool]":
        """Persist the content if it is dirty; else wait for the write under way."""
        if self.is_dirty:
            return self.persist()
        if not self._writing:
            return succeed(True)
        done: Deferred[bool] = Deferred()
        self._written.append(done)
        return done

    def _load_one(self, path: str) -> str | None:
        """Load a file; return None, or say what is wrong with it."""
        try:
            data = self._disk.read_bytes(path)
        except FileNotFoundError:
            return _MISSING
        except OSError as error:
            return f"{_UNREADABLE} ({error.strerror or error})"
        if not data:
            return _MISSING
        try:
            self.decode(data)
        except ProtocolViolation as error:
            return f"is damaged ({error})"
        return None

    def _write(self) -> None:
        self._written, self._wanted = self._wanted, []
        self._writing = True
        self.is_dirty = False
        try:
            data, backup = self.encode(), self._keep_backup
        except ProtocolViolation:
            self._write_failed(None)
            return
        self._worker.call(self._replace, data, backup).addCallbacks(
            self._write_done, self._write_failed
        )

    def _replace(self, data: bytes, backup: bool) -> None:
        self._disk.replace(self.path, data, backup=backup)

    def _write_done(self, _: None) -> None:
        self._keep_backup = True
        self._finish(True)

    def _write_failed(self, failure: Failure | None) -> None:
        self.is_dirty = True
        self.log.failure(
            "cannot write {path}; its content is kept in memory and tried again with the next "
            "change: check the disk's space and permissions",
            failure,
            path=self.path,
        )
        self._finish(False)

    def _finish(self, is_written: bool) -> None:
        written, self._written = self._written, []
        self._writing = False
        if self._wanted:
            self._write()
        for done in written:
            done.callback(is_written)
