"""A broker's identity for the controllers, and the files that keep it (BrokerMetadata).

Spec: controller.md, section 4.2.
"""

from typing import NamedTuple

from rmq_ha.base.errors import ConfigurationError, ProtocolViolation, StoreError
from rmq_ha.base.seams import Disk
from rmq_ha.base.wire.text import to_bytes
from rmq_ha.server.replication.epochs.epochs import read_decoded, read_number

_SEPARATOR = "#"
_PARTS = 3
_PARTS_OF_APPLICATION = 4


class Identity(NamedTuple):
    """
    The content of the file brokerIdentity, or of brokerIdentity-temp, which precedes it.

    :ivar broker_id: the id that the controller gave, 1 or more; it never changes.
    :ivar check_code: the code with which this broker applies for the id (`host:port;milliseconds`);
        None: the id is given.
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    check_code: str | None = None


class KnownIds(NamedTuple):
    """
    A broker's knowledge of its own id at its start.

    :ivar identity: the identity that a controller gave; None: none has given one.
    :ivar application: the id for which this broker applies, with its check code; None: it applies
        for none.
    """

    identity: Identity | None = None
    application: Identity | None = None


def encode_identity(identity: Identity) -> bytes:
    """
    Encode an identity as one line without its end.

    :raises ConfigurationError: a name contains the separator or a line end, or is empty.
    """
    parts = [identity.cluster_name, identity.broker_name, str(identity.broker_id)]
    if identity.check_code is not None:
        parts.append(identity.check_code)
    for part in parts:
        if not part or _SEPARATOR in part or "\n" in part:
            raise ConfigurationError(
                f"{part!r} cannot be a name in controller mode: it is written between "
                f"{_SEPARATOR} into brokerIdentity"
            )
    return to_bytes(_SEPARATOR.join(parts))


def decode_identity(data: bytes) -> Identity:
    """
    Decode an identity.

    :raises ProtocolViolation: the data are not such a line.
    """
    try:
        parts = data.decode().strip().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise ProtocolViolation(f"it is no text: {error}") from None
    if len(parts) not in (_PARTS, _PARTS_OF_APPLICATION) or not all(parts):
        raise ProtocolViolation(f"{data[:80]!r} is not cluster#broker#id")
    number = read_number(parts[2].encode())
    if not number:
        raise ProtocolViolation("0 is no id of a controller")
    return Identity(parts[0], parts[1], number, *parts[3:])


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
            self.identity = read_decoded(self._disk, self._path, decode_identity)
        except ProtocolViolation as error:
            raise StoreError(
                f"{self._path}: {error}. Remove it, and the broker applies for a new id"
            ) from None
        try:
            applied = read_decoded(self._disk, self._temp, decode_identity)
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
