"""The entries of the controllers' log: the changes of their tables.

Spec: controller.md, section 10.2. Only rmq-ha's controllers read this format.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.printable import words_of

_Id = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
_Epoch = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class SyncStateSetAltered(msgspec.Struct, frozen=True, tag="set", tag_field="event"):
    """The sync state set of a broker name changed."""

    broker_name: str
    members: tuple[_Id, ...]


class BrokerIdApplied(msgspec.Struct, frozen=True, tag="id", tag_field="event"):
    """
    A broker has got its id, for life.

    :ivar check_code: the code with which this broker may apply for the id again.
    """

    cluster_name: str
    broker_name: str
    broker_id: _Id
    address: str
    check_code: str


class MasterElected(msgspec.Struct, frozen=True, tag="master", tag_field="event"):
    """
    A new epoch has begun.

    Unlike RocketMQ's event, this one carries the epoch, so that the first epoch can be above those
    that brokers know.

    :ivar master_id: id of the master; None: nobody could be elected, and the set stays.
    :ivar silence_ms: time for which the master may be silent, as it said itself, in milliseconds.
    """

    broker_name: str
    master_id: _Id | None
    master_epoch: _Epoch
    silence_ms: int = 0


class BrokerDataCleaned(msgspec.Struct, frozen=True, tag="clean", tag_field="event"):
    """
    Brokers are forgotten.

    :ivar broker_ids: ids of the brokers; empty: the whole set is forgotten.
    """

    broker_name: str
    broker_ids: tuple[_Id, ...] = ()


class AddressUpdated(msgspec.Struct, frozen=True, tag="address", tag_field="event"):
    broker_name: str
    broker_id: _Id
    address: str


Event = SyncStateSetAltered | BrokerIdApplied | MasterElected | BrokerDataCleaned | AddressUpdated

_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()


def encode_event(event: Event) -> bytes:
    return _encoder.encode(event)


def decode_event(body: bytes) -> Event:
    """
    Decode an event.

    :raises CorruptRecord: it is no event that this version knows.
    """
    try:
        event: Event = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptRecord(f"an entry of the controllers cannot be read: {error}") from None
    return event


def event_text(event: Event) -> str:
    """Return an event as people read it in the log."""
    name = event.broker_name
    if isinstance(event, SyncStateSetAltered):
        return f"in sync of {name} are now the brokers {words_of(event.members)}"
    if isinstance(event, BrokerIdApplied):
        return f"{event.address} is now broker {event.broker_id} of {name}"
    if isinstance(event, AddressUpdated):
        return f"broker {event.broker_id} of {name} is now at {event.address}"
    if isinstance(event, MasterElected):
        who = "nobody" if event.master_id is None else f"broker {event.master_id}"
        return f"{who} leads {name} in epoch {event.master_epoch}"
    gone = f"the brokers {words_of(event.broker_ids)}" if event.broker_ids else "all brokers"
    return f"{gone} of {name} are forgotten"
