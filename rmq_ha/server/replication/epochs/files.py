"""What a broker in controller mode keeps on its disk beside the store.

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
    The file epochFileCheckpoint.

    Differs from 5.3.3 on purpose: whole or not at all, and on the disk when `write` returns; and
    beside it epochFileCheckpoint.crashed remembers a crash, which no later orderly stop undoes.

    :ivar epochs: what the file says.
    :ivar crashed_in: the newest epoch of which the log may have lost what others have; -1: none.
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
        Read the file, or its backup where it is missing or damaged; without both there are none.

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
            return newest  # nobody knows which one it was
        return min(noted, newest)

    def note_crash(self) -> None:
        """
        The log may have lost what is of the newest epoch. Blocks: for the worker.

        :raises OSError: the disk refuses.
        """
        newest = self.epochs.last_epoch
        if newest > self.crashed_in:
            self._disk.replace(self._crash_path, str(newest).encode())
            self.crashed_in = newest

    def write(self, epochs: Epochs) -> None:
        """
        Put them on the disk. Blocks: for the worker.

        :raises OSError: the disk refuses.
        """
        self._disk.replace(self._path, encode_epochs(epochs), backup=self._keeps_backup)
        self._keeps_backup = True
        self.epochs = epochs


class IdentityFiles:
    """
    The files brokerIdentity and brokerIdentity-temp.

    Each step of an application is on the disk before the next request, so that a crash between
    any two of them ends with the same id.

    :ivar identity: as a controller gave it; None: it has not.
    :ivar application: the id that is being applied for, with its check code.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.identity: Identity | None = None
        self.application: Identity | None = None
        self._disk = disk
        self._path = path
        self._temp = path + "-temp"

    def load(self, cluster_name: str, broker_name: str) -> None:
        """
        Read both.

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
            applied = None  # a crash of Java's while it was written; another id is asked for
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
        Keep what is applied for. Blocks: for the worker.

        :raises OSError: the disk refuses.
        """
        self._disk.replace(self._temp, encode_identity(application))
        self.application = application

    def accept(self, identity: Identity) -> None:
        """
        Keep what was given, and no application any more. Blocks: for the worker.

        :raises OSError: the disk refuses.
        """
        self._disk.replace(self._path, encode_identity(identity))
        self.identity = identity
        self.withdraw()

    def withdraw(self) -> None:
        """Give the application up. Blocks: for the worker."""
        self._disk.remove(self._temp)
        self.application = None


def _read(disk: Disk, path: str, decode: Callable[[bytes], T]) -> T | None:
    """None where there is no such file, or an empty one."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode(data) if data else None
