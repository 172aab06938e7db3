"""The files of controller mode that a broker keeps beside its store.

Spec: controller.md, sections 4.1 and 4.2.
"""

from collections.abc import Callable
from typing import TypeVar

from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, StoreError
from rmq_ha.base.seams import Disk
from rmq_ha.server.replication.epochs.epochs import Epochs, decode_epochs, encode_epochs
from rmq_ha.server.replication.epochs.roles.identity import (
    Identity,
    decode_identity,
    encode_identity,
)

T = TypeVar("T")


class EpochFile:
    """
    The file epochFileCheckpoint, which keeps the epochs of the log.

    Differs from 5.3.3 on purpose: the file is replaced as a whole, and is on the disk when `write`
    returns. The file epochFileCheckpoint.crashed beside it remembers a crash, which no later clean
    stop undoes.

    :ivar epochs: the epochs in the file.
    :ivar crashed_in: the newest epoch of which this log may have lost bytes that other brokers
        have; -1: none.
    """

    log = Logger()

    def __init__(self, disk: Disk, path: str) -> None:
        self.epochs = Epochs()
        self.crashed_in = -1
        self._disk = disk
        self._path = path
        self._crash_path = path + ".crashed"
        self._keeps_backup = True

    def load(self) -> None:
        """
        Read the file, or its backup if it is missing or damaged. If both are missing, there are no
        epochs.

        :raises StoreError: they are damaged, and nobody can tell which master wrote the log.
        """
        faults = []
        for path in (self._path, self._path + ".bak"):
            try:
                epochs = _read(self._disk, path, decode_epochs)
            except ProtocolViolation as error:
                faults.append(f"{path} is damaged ({error})")
                continue
            if epochs is not None:
                if path != self._path:
                    self.log.warn(
                        "{path} was loaded instead of {first}", path=path, first=self._path
                    )
                    self._keeps_backup = False
                self.epochs = epochs
                self.crashed_in = self._last_crash()
                return
        if faults:
            raise StoreError(
                f"{'; '.join(faults)}: who wrote which part of the log is not known. Move the "
                "whole store away to begin as a new replica"
            )

    def _last_crash(self) -> int:
        newest = self.epochs.last_epoch
        try:
            noted = int(self._disk.read_bytes(self._crash_path))
        except FileNotFoundError:
            return -1
        except ValueError:
            return newest  # nobody knows in which epoch the crash was
        return min(noted, newest)

    def note_crash(self) -> None:
        """
        Note that the log may have lost bytes of the newest epoch. Blocks, so call it in the worker.

        :raises OSError: the disk refuses.
        """
        newest = self.epochs.last_epoch
        if newest > self.crashed_in:
            self._disk.replace(self._crash_path, str(newest).encode())
            self.crashed_in = newest

    def write(self, epochs: Epochs) -> None:
        """
        Write the epochs to the disk. Blocks, so call it in the worker.

        :raises OSError: the disk refuses.
        """
        self._disk.replace(self._path, encode_epochs(epochs), backup=self._keeps_backup)
        self._keeps_backup = True
        self.epochs = epochs


class IdentityFiles:
    """
    The files brokerIdentity and brokerIdentity-temp.

    Each step of an application is on the disk before the next request, so that a crash between any
    two of them ends with the same id.

    :ivar identity: the identity that a controller gave; None: none has given one.
    :ivar application: the id for which this broker applies, with its check code; None: it applies
        for none.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.identity: Identity | None = None
        self.application: Identity | None = None
        self._disk = disk
        self._path = path
        self._temp = path + "-temp"

    def load(self, cluster_name: str, broker_name: str) -> None:
        """
        Read both files.

        :raises StoreError: the identity cannot be read, or is that of another broker.
        """
        try:
            self.identity = _read(self._disk, self._path, decode_identity)
        except ProtocolViolation as error:
            raise StoreError(
                f"{self._path}: {error}. Remove it, and the broker applies for a new id"
            ) from None
        try:
            applied = _read(self._disk, self._temp, decode_identity)
        except ProtocolViolation:
            applied = None  # a crash of Java's broker tore it; another id is asked for
        if self.identity is None and applied is not None and applied.check_code is not None:
            self.application = applied
        for known in (self.identity, self.application):
            if known is not None and known[:2] != (cluster_name, broker_name):
                raise StoreError(
                    f"{self._path} is of {known.cluster_name}#{known.broker_name}, but this is "
                    f"{cluster_name}#{broker_name}: whose store is it?"
                )

    def apply(self, application: Identity) -> None:
        """
        Save an application. Blocks, so call it in the worker.

        :raises OSError: the disk refuses.
        """
        self._disk.replace(self._temp, encode_identity(application))
        self.application = application

    def accept(self, identity: Identity) -> None:
        """
        Save the given identity and remove the application. Blocks, so call it in the worker.

        :raises OSError: the disk refuses.
        """
        self._disk.replace(self._path, encode_identity(identity))
        self.identity = identity
        self.withdraw()

    def withdraw(self) -> None:
        """Remove the application. Blocks, so call it in the worker."""
        self._disk.remove(self._temp)
        self.application = None


def _read(disk: Disk, path: str, decode: Callable[[bytes], T]) -> T | None:
    """Decode a file; None if it is missing or empty."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode(data) if data else None
