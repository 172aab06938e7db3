"""From what the user wrote to a replica that can be looked at."""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from rmq_ha.admin.options import current_options
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.errors import BrokerRefused, MQClientError
from rmq_ha.client.settings import ClientConfig
from rmq_ha.errors import RemotingError
from rmq_ha.spark.host.clock import now_ms
from rmq_ha.spark.host.files import listing
from rmq_ha.spark.host.waiting import pause
from rmq_ha.spark.offsets.history import kept_pairing
from rmq_ha.spark.offsets.live import LiveReplica
from rmq_ha.spark.offsets.model import Snapshot
from rmq_ha.spark.offsets.pairing import Pairing
from rmq_ha.spark.offsets.sampling import Patience, Source, sample
from rmq_ha.spark.offsets.stored import StoredReplica
from rmq_ha.spark.places import (
    BrokerPlace,
    NamesrvPlace,
    Place,
    SnapshotPlace,
    StorePlace,
    parse_place,
)
from rmq_ha.spark.result import CannotDecide, WrongUsage
from rmq_ha.spark.running import Job
from rmq_ha.wire.command import RemotingCommand


def seen(job: Job, master: str, slaves: Sequence[str], patience: Patience) -> list[Pairing]:
    """
    Look at a master and its slaves.

    :raises WrongUsage: one of them is no place.
    :raises CannotDecide: one of them cannot be read.
    """
    places = [job.place(text) for text in (master, *slaves)]
    kept = [place.uri for place in places if isinstance(place, SnapshotPlace)]
    if kept:
        if len(kept) < len(places) or len(kept) > 2:
            raise WrongUsage(
                "snapshots are compared with snapshots: one --master snapshot:DIR and one --slave"
                " snapshot:DIR, which may be the same directory"
            )
        return [kept_pairing(kept[0], kept[1], patience.skew_ms)]
    if len({_plain(place) for place in places}) < len(places):
        raise WrongUsage("master and slaves are different places; one was given twice")
    with opened(job.client, now_ms, job.note) as source:
        replicas = [source(place, is_slave=index > 0) for index, place in enumerate(places)]
        return sample(replicas[0], replicas[1:], patience, now_ms, pause, job.note)


def _plain(place: Place) -> Place:
    """Two ways to write one directory are equal."""
    if not isinstance(place, StorePlace):
        return place
    uri = place.uri.removeprefix("file://")
    return StorePlace(posixpath.normpath(uri) if "://" not in uri else uri.rstrip("/"))


def look(text: str, *, is_slave: bool) -> Snapshot:
    """One replica as it is now, with the options of the command line; raises as `seen`."""
    place = parse_place(text)
    with opened(current_options().client_config(), now_ms) as source:
        return source(place, is_slave=is_slave).snapshot()


@contextmanager
def opened(
    client: ClientConfig,
    now_ms: Callable[[], int],
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Callable[..., Source]]:
    """A function `place, is_slave` to source; connections are closed at the end."""
    with ExitStack() as stack:

        def source(place: Place, *, is_slave: bool) -> Source:
            if isinstance(place, SnapshotPlace):
                raise WrongUsage(f"{place} is no replica")
            if isinstance(place, StorePlace):
                from rmq_ha.spark.store.directory import open_store

                return StoredReplica(open_store, listing, place.uri, now_ms, note)
            return _live(stack, client, place, now_ms, is_slave=is_slave)

        yield source


def _live(
    stack: ExitStack,
    config: ClientConfig,
    place: BrokerPlace | NamesrvPlace,
    now_ms: Callable[[], int],
    *,
    is_slave: bool,
) -> Source:
    servers = place.addresses if isinstance(place, NamesrvPlace) else place.address
    client = stack.enter_context(BlockingClient(replace(config, namesrv_addr=servers)))
    address = _address(client, place, is_slave=is_slave)

    def call(command: RemotingCommand) -> RemotingCommand:
        answer: RemotingCommand = _answered(place, lambda: client.call(address, command))
        return answer

    return LiveReplica(call, str(place), now_ms)


def _address(client: BlockingClient, place: BrokerPlace | NamesrvPlace, *, is_slave: bool) -> str:
    """:raises CannotDecide: the name server does not know it."""
    if isinstance(place, BrokerPlace):
        return place.address
    try:
        brokers = _answered(place, client.cluster).brokers
    except BrokerRefused as refused:
        raise CannotDecide(f"{place}: {refused}") from None
    route = brokers.get(place.broker_name)
    if route is None:
        known = ", ".join(sorted(brokers)) or "none"
        raise CannotDecide(
            f"{place}: the name server knows no broker {place.broker_name!r}, only: {known}"
        )
    ids = sorted(route.addresses)
    wanted = place.broker_id
    if wanted is None:
        wanted = next((number for number in ids if number > 0), -1) if is_slave else 0
    if wanted not in route.addresses:
        what = "a slave" if wanted < 0 else f"id {wanted}"
        raise CannotDecide(
            f"{place}: {what} is not registered, only {ids}. Is it down? Then give its store's"
            " directory instead"
        )
    address: str = route.addresses[wanted]
    return address


def _answered(place: Place, ask: Callable[[], Any]) -> Any:
    """:raises CannotDecide: nobody answers, or it refuses."""
    try:
        return ask()
    except BrokerRefused:
        raise
    except (RemotingError, MQClientError) as error:
        raise CannotDecide(
            f"{place}: {error}. If the broker is off, give its store's directory instead"
        ) from None
