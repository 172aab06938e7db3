"""The places where the jobs find a broker: its store, its port, a name server, or a snapshot."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.model.host_port import parse_host_port

FORMS = (
    "/path/of/a/store (or file:///..., s3://..., hdfs://...)",
    "broker://host:port",
    "namesrv://host:port[;host:port]/brokerName[?id=1]",
    "snapshot:DIRECTORY",
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True)
class StorePlace:
    """
    A store directory (`storePathRootDir`): a path, or the URI of one.

    :ivar copy_of: the place that was copied to this directory for reading.
    """

    uri: str
    copy_of: str = ""

    def __str__(self) -> str:
        return self.copy_of or self.uri


@dataclass(frozen=True)
class BrokerPlace:
    """A running broker, `host:port`."""

    address: str

    def __str__(self) -> str:
        return f"broker://{self.address}"


@dataclass(frozen=True)
class NamesrvPlace:
    """
    A running broker that is found through name servers.

    :ivar addresses: `host:port`, separated by `;`.
    :ivar broker_id: 0 for the master; None: the master, or where a slave is wanted its lowest id.
    """

    addresses: str
    broker_name: str
    broker_id: int | None = None

    def __str__(self) -> str:
        number = "" if self.broker_id is None else f"?id={self.broker_id}"
        return f"namesrv://{self.addresses}/{self.broker_name}{number}"


@dataclass(frozen=True)
class SnapshotPlace:
    """A directory that `rmqha-spark snapshot` writes."""

    uri: str

    def __str__(self) -> str:
        return f"snapshot:{self.uri}"


Place = StorePlace | BrokerPlace | NamesrvPlace | SnapshotPlace


def parse_place(text: str) -> Place:
    """
    Parse a place, which has one of four forms.

    :raises WrongUsage: the text has none of these forms.
    """
    if text.startswith("snapshot:") and len(text) > len("snapshot:"):
        return SnapshotPlace(text.removeprefix("snapshot:"))
    if text.startswith("broker://"):
        return BrokerPlace(
            addresses_of(text.removeprefix("broker://").rstrip("/"), text, single=True)
        )
    if text.startswith("namesrv://"):
        return _namesrv(text)
    # `host:10911` is no path, whatever the working directory has; `./host:10911` is one.
    is_path = text.startswith(("/", "./", "../")) or (text and ":" not in text)
    if text.startswith(("http:", "https:", "broker:", "namesrv:")) or not (
        is_path or _SCHEME.match(text)
    ):
        raise _none_of_them(text)
    return StorePlace(text)


def addresses_of(listed: str, shown: str, *, single: bool = False) -> str:
    """
    Check `host:port[;host:port]`.

    :param shown: what the user wrote, for the error.
    :raises WrongUsage: the text has another form.
    """
    parts = [part.strip() for part in listed.split(";")]
    for part in parts:
        try:
            parse_host_port(part)
        except ValueError as error:
            raise WrongUsage(f"{shown}: {error}") from None
    if single and len(parts) > 1:
        raise WrongUsage(f"{shown}: names {len(parts)} brokers; write one place for each")
    return ";".join(parts)


def _namesrv(text: str) -> NamesrvPlace:
    """Parse `namesrv://...`, or raise WrongUsage."""
    rest, _, query = text.removeprefix("namesrv://").partition("?")
    listed, _, name = rest.partition("/")
    addresses = addresses_of(listed, text)
    if not name or "/" in name:
        raise WrongUsage(f"{text}: write the broker's name behind the address: {FORMS[2]}")
    given = dict(parse_qsl(query, keep_blank_values=True))
    number = given.pop("id", None)
    if given:
        raise WrongUsage(f"{text}: {next(iter(given))!r} means nothing here: {FORMS[2]}")
    if number is None:
        return NamesrvPlace(addresses, name)
    if not number.isascii() or not number.isdigit():
        raise WrongUsage(f"{text}: the broker's id is a number, 0 for the master: not {number!r}")
    return NamesrvPlace(addresses, name, int(number))


def _none_of_them(text: str) -> WrongUsage:
    return WrongUsage(f"{text!r} is no place of a broker. Write one of: {'; '.join(FORMS)}")
