"""`rmqha-admin stats`: counts messages sent, read and waiting, by topic and group."""

from collections import defaultdict
from typing import Any

import click

from rmq_ha.base.model.topics import BUILT_IN_GROUPS, is_system
from rmq_ha.client.lookup.brokers import topic_configs
from rmq_ha.client.lookup.traffic import GROUP_GETS, TOPIC_PUTS, TrafficCount, growth, waiting
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NothingFound, Session, run
from rmq_ha.ops.admin.targets import masters, targets

COLUMNS = ("topic", "group", "in_s", "in_day", "out_s", "out_day", "waiting")


@click.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--topic", "-t", default="", help="Show this topic only.")
@click.option(
    "--all", "show_all", is_flag=True, help="Show RocketMQ's own topics and idle topics, too."
)
@common_options
def stats(which: str, topic: str, show_all: bool) -> None:
    """
    Show how many messages were sent to each topic and read by each group: a second, over the last
    minute, and in the last 24 hours. Also show how many wait for each group. A broker counts from
    its last start on.

    Exit code 3: there are no such topics.
    """

    async def work(session: Session) -> None:
        await show_stats(session, which, topic, show_all=show_all)

    run(work)


async def show_stats(
    session: Session, which: str = "", only: str = "", *, show_all: bool = False
) -> None:
    """
    Show the rates of topics and groups.

    :raises NothingFound: no such topic exists.
    """
    asker, brokers = await targets(session, which)
    comes: dict[str, TrafficCount] = defaultdict(TrafficCount)
    goes: dict[tuple[str, str], list[Any]] = {}
    with session.output.progress("asking brokers", None) as steps:
        for target in masters(brokers):
            here = target.address
            for name in await asker.run(topic_configs(here), steps.advance):
                if only in ("", name) and (show_all or only or not is_system(name)):
                    puts = await asker.run(growth(here, TOPIC_PUTS, name), steps.advance)
                    comes[name] = _sum(comes[name], puts)
            for (name, group), count in (await asker.run(waiting(here), steps.advance)).items():
                if name in comes and (show_all or group not in BUILT_IN_GROUPS):
                    key = f"{name}@{group}"
                    gets = await asker.run(growth(here, GROUP_GETS, key), steps.advance)
                    before, waits = goes.get((name, group), (TrafficCount(), 0))
                    goes[name, group] = [_sum(before, gets), waits + count]
    if not comes:
        raise NothingFound(f"no broker has {only or 'topics'}")
    rows = _rows(comes, goes, every=show_all or bool(only))
    session.output.table("messages", COLUMNS, rows)


def _sum(first: TrafficCount, second: TrafficCount) -> TrafficCount:
    return TrafficCount(first.per_second + second.per_second, first.day + second.day)


def _rows(
    comes: dict[str, TrafficCount], goes: dict[tuple[str, str], list[Any]], *, every: bool
) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for name, put in sorted(comes.items()):
        own = [name, None, round(put.per_second, 1), put.day, None, None, None]
        groups = sorted(item for item in goes.items() if item[0][0] == name)
        for (_, group), (read, waits) in groups:
            rows.append([*own[:1], group, *own[2:4], round(read.per_second, 1), read.day, waits])
        if not groups and (put.day or every):
            rows.append(own)
    return rows
