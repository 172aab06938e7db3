"""Targets: which brokers a command is about."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.route_bodies import ClusterInfo
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Asking
from rmq_ha.client.lookup.lookups import cluster_info
from rmq_ha.client.rules.settings import name_servers
from rmq_ha.ops.admin.session import NothingFound, Session

T = TypeVar("T")


class Target(NamedTuple):
    """One broker; `cluster` and `name` are empty, and `broker_id` None, if only it is known."""

    cluster: str
    name: str
    broker_id: int | None
    address: str


def targets_of(info: ClusterInfo) -> list[Target]:
    """All that a name server knows, masters before their slaves."""
    return [
        Target(broker.cluster, name, number, address)
        for name, broker in sorted(info.brokers.items())
        for number, address in sorted(broker.addresses.items())
    ]


async def targets(session: Session, which: str = "") -> tuple[Asker, list[Target]]:
    """
    Find them.

    :param which: a broker's name or `host:port`, or a cluster; all, when it is empty.
    :raises NothingFound: there is none.
    """
    if ":" in which:
        return Asker(await session.direct()), [Target("", "", None, which)]
    asker = Asker(await session.client())
    known = targets_of(await asker.run(cluster_info()))
    brokers = [item for item in known if which in ("", item.name, item.cluster)]
    if not known:
        raise NothingFound("no broker has registered at the name servers yet")
    if not brokers:
        names = ", ".join(sorted({item.name for item in known}))
        raise NothingFound(f"no broker is called {which} (known: {names})")
    return asker, brokers


async def ask_name_servers(
    session: Session, question: Callable[[str], Asking[T]]
) -> tuple[dict[str, T], bool]:
    """What each name server says that answers, and whether one does not, which is told."""
    asker = Asker(await session.client())
    answers: dict[str, T] = {}
    is_silent = False
    for server in session.output.track("asking", name_servers(session.options.namesrv)):
        try:
            answers[server] = await asker.run(question(server))
        except RmqHaError as error:
            is_silent = True
            session.output.warn(f"{server}: {error}")
    return answers, is_silent


def masters(brokers: list[Target]) -> list[Target]:
    """
    Those that may be changed: masters, and whatever was named by its address.

    :raises NothingFound: there is none.
    """
    chosen = [item for item in brokers if item.broker_id in (MASTER_ID, None)]
    if not chosen:
        raise NothingFound(
            "none of these brokers is a master, and slaves take no changes: see docs/failover.md"
        )
    return chosen


def first_of_each(brokers: list[Target]) -> list[Target]:
    """The master of each name, or a slave where there is none: for those who only ask."""
    chosen = {item.name: item for item in reversed(brokers)}
    return [chosen[name] for name in sorted(chosen)]
