"""Who a broker is to the controllers, and the files that keep it (BrokerMetadata).

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
    The file brokerIdentity, or what will be it: brokerIdentity-temp.

    :ivar broker_id: what the controller gave, 1 or more; for life.
    :ivar check_code: with what the id is applied for (`host:port;milliseconds`); None: it is ours.
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    check_code: str | None = None


class KnownIds(NamedTuple):
    """
    What a broker knows of its own id when it starts.

    :ivar identity: as a controller gave it; None: it has not.
    :ivar application: the id that is being applied for, with its check code.
    """

    identity: Identity | None = None
    application: Identity | None = None


def encode_identity(identity: Identity) -> bytes:
    """
    One line without its end.

    :raises ConfigurationError: a name cannot be told from the rest of the line.
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
    The same, read.

    :raises ProtocolViolation: it is not such a line.
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
