"""A broker's identity for the controllers, and the files that keep it (BrokerMetadata).

Spec: controller.md, section 4.2.
"""

from typing import NamedTuple

from rmq_ha.base.errors import ConfigurationError, ProtocolViolation
from rmq_ha.base.wire.text import to_bytes
from rmq_ha.server.replication.epochs.epochs import read_number

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
