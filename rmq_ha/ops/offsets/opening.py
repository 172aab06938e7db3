"""Opens the replica that a user's text names."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any

from rmq_ha.base.errors import CannotDecide, RemotingError, WrongUsage
from rmq_ha.base.host.blocking import now_ms, pause
from rmq_ha.base.host.files import files_of, is_same_directory, listing
from rmq_ha.base.model.printable import words_of
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offsets.live import LiveReplica
from rmq_ha.ops.offsets.model import Snapshot
from rmq_ha.ops.offsets.pair_lists import Pair, addresses_and_cluster, pairs_of
from rmq_ha.ops.offsets.pairing import Pairing
from rmq_ha.ops.offsets.places import (
    BrokerPlace,
    NamesrvPlace,
    Place,
    SnapshotPlace,
    StorePlace,
)
from rmq_ha.ops.offsets.sampling import Patience, Snapshots, sample
from rmq_ha.ops.offsets.snapshot_history import kept_pairing
from rmq_ha.ops.offsets.store_snapshot import StoredReplica


def look_at_pair(
    client: ClientConfig,
    places: Sequence[Place],
    patience: Patience,
    note: Callable[[str], None] = lambda _: None,
) -> list[Pairing]:
    """
    Look at a master and its slaves.

    :raises WrongUsage: the places are not a master and its slaves.
    :raises CannotDecide: a replica cannot be read.
    """
    kept = [place.uri for place in places if isinstance(place, SnapshotPlace)]
    if kept:
        if len(kept) < len(places) or len(kept) > 2:
            raise WrongUsage(
                "snapshots are compared with snapshots: one --master snapshot:DIR and one --slave"
                " snapshot:DIR, which may be the same directory"
            )
        return [kept_pairing(kept[0], kept[1], patience.skew_ms)]
    for place, other in combinations(places, 2):
        if _is_same(place, other):
            raise WrongUsage(f"{place} and {other} are the same place: no pair, nothing to compare")
    with opened(client, now_ms, note) as source:
        replicas = [source(place, is_slave=index > 0) for index, place in enumerate(places)]
        return sample(replicas[0], replicas[1:], patience, now_ms, pause, note)


def _is_same(place: Place, other: Place) -> bool:
    if isinstance(place, StorePlace) and isinstance(other, StorePlace):
        return is_same_directory(str(place), str(other))
    return place == other


def pairs_of_cluster(client: ClientConfig, text: str) -> list[Pair]:
    """
    Return every broker that name servers know, as pairs.

    :param text: `namesrv://host:port[/cluster]`.
    :raises WrongUsage: the text has another form.
    :raises CannotDecide: the name servers do not answer.
    """
    servers, cluster = addresses_and_cluster(text)
    with BlockingClient(replace(client, namesrv_addr=servers)) as asking:
        return pairs_of(servers, _ask_place(text, asking.cluster), cluster)


def look(client: ClientConfig, place: Place, *, is_slave: bool) -> Snapshot:
    """Take a snapshot of one replica; raises like `look_at_pair`."""
    with opened(client, now_ms) as source:
        return source(place, is_slave=is_slave).snapshot()


def store_of(uri: str) -> StoreFiles:
    """
    Open a store's directory.

    :raises CannotDecide: the directory has no commit log.
    """
    store = StoreFiles(uri, *files_of(uri), damaged=True)
    store.log_files()
    return store


@contextmanager
def opened(
    client: ClientConfig,
    now_ms: Callable[[], int],
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Callable[..., Snapshots]]:
    """
    Give a function that opens a replica, `source(place, is_slave=...)`, and close it at the end.
    """
    with ExitStack() as stack:

        def source(place: Place, *, is_slave: bool) -> Snapshots:
            if isinstance(place, SnapshotPlace):
                raise WrongUsage(f"{place} is no replica")
            if isinstance(place, StorePlace):
                return StoredReplica(store_of, listing, place.uri, now_ms, note)
            return _live(stack, client, place, now_ms, is_slave=is_slave)

        yield source


def _live(
    stack: ExitStack,
    config: ClientConfig,
    place: BrokerPlace | NamesrvPlace,
    now_ms: Callable[[], int],
    *,
    is_slave: bool,
) -> Snapshots:
    """Connect to a broker; `stack` closes the connection."""
    servers = place.addresses if isinstance(place, NamesrvPlace) else place.address
    client = stack.enter_context(BlockingClient(replace(config, namesrv_addr=servers)))
    address = _address(client, place, is_slave=is_slave)

    def call(command: RemotingCommand) -> RemotingCommand:
        answer: RemotingCommand = _ask_place(place, lambda: client.call(address, command))
        return answer

    return LiveReplica(call, str(place), now_ms)


def _address(client: BlockingClient, place: BrokerPlace | NamesrvPlace, *, is_slave: bool) -> str:
    """
    Return the `host:port` of a broker.

    Without an id in the place it is the master's, or with `is_slave` that of the lowest slave id.

    :raises CannotDecide: the name server does not know the broker.
    """
    if isinstance(place, BrokerPlace):
        return place.address
    try:
        brokers = _ask_place(place, client.cluster).brokers
    except BrokerRefused as refused:
        raise CannotDecide(f"{place}: {refused}") from None
    route = brokers.get(place.broker_name)
    if route is None:
        known = ", ".join(sorted(brokers)) or "none"
        raise CannotDecide(
            f"{place}: the name server knows no broker {place.broker_name!r}, only: {known}"
        )
    ids = sorted(route.addresses)
    broker_id = place.broker_id
    if broker_id is None:
        broker_id = next((number for number in ids if number > 0), -1) if is_slave else 0
    if broker_id not in route.addresses:
        what = "a slave" if broker_id < 0 else f"id {broker_id}"
        raise CannotDecide(
            f"{place}: {what} is not registered, only id {words_of(ids)}. Is it down? Then give"
            " its store's directory instead"
        )
    address: str = route.addresses[broker_id]
    return address


def _ask_place(place: Place | str, ask: Callable[[], Any]) -> Any:
    """Call `ask`; its failures become CannotDecide, with a sentence for the user."""
    try:
        return ask()
    except BrokerRefused:
        raise
    except (RemotingError, MQClientError) as error:
        raise CannotDecide(
            f"{place}: {error}. If the broker is off, give its store's directory instead"
        ) from None
