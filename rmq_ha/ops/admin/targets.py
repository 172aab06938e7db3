"""Targets: the brokers that a command asks or changes."""

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


class BrokerTarget(NamedTuple):
    """
    One broker. If only its address is known, `cluster` and `name` are empty, and `broker_id` is
    None.
    """

    cluster: str
    name: str
    broker_id: int | None
    address: str


def targets_of(info: ClusterInfo) -> list[BrokerTarget]:
    """Return all brokers that a name server knows, masters before their slaves."""
    return [
        BrokerTarget(broker.cluster, name, number, address)
        for name, broker in sorted(info.brokers.items())
        for number, address in sorted(broker.addresses.items())
    ]


async def targets(session: Session, which: str = "") -> tuple[Asker, list[BrokerTarget]]:
    """
    Find the brokers that a command names.

    :param which: a broker's name or `host:port`, or a cluster; empty: all brokers.
    :raises NothingFound: no such broker is registered.
    """
    if ":" in which:
        return Asker(await session.direct()), [BrokerTarget("", "", None, which)]
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
    """
    Ask each name server. A warning is printed for each that does not answer.

    :returns: the answers by name server, and whether one did not answer.
    """
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


def masters(brokers: list[BrokerTarget]) -> list[BrokerTarget]:
    """
    Return the brokers that a command may change: masters, and a broker named by its address.

    :raises NothingFound: none of the brokers is a master.
    """
    chosen = [item for item in brokers if item.broker_id in (MASTER_ID, None)]
    if not chosen:
        raise NothingFound(
            "none of these brokers is a master, and slaves take no changes: see docs/failover.md"
        )
    return chosen


def first_of_each(brokers: list[BrokerTarget]) -> list[BrokerTarget]:
    """
    Return the master of each name, or a slave if it has no master; for commands that only ask.
    """
    chosen = {item.name: item for item in reversed(brokers)}
    return [chosen[name] for name in sorted(chosen)]
