"""
`rmqha-admin cluster export`: the settings, topics, groups and rates of a cluster as one document.
"""

import os.path
from typing import Any

import click

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.members import to_members
from rmq_ha.client.lookup.brokers import (
    broker_config,
    consumer_offsets,
    group_configs,
    runtime_info,
    topic_configs,
)
from rmq_ha.ops.admin.broker import rate
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import NO_ANSWER, Session, run
from rmq_ha.ops.admin.targets import targets

_RATES = {"in_s": "putTps", "out_s": "getTransferedTps"}


@click.command()
@click.argument("file", type=click.Path(dir_okay=False), default="-")
@click.option("--on", "which", default="", metavar="BROKER|CLUSTER|HOST:PORT", help="Only there.")
@click.option("--offsets", is_flag=True, help="How far consumer groups are, too.")
@common_options
def export(file: str, which: str, offsets: bool) -> None:
    """
    Write settings, topics, groups and rates of all brokers into FILE, as JSON; `-`, or nothing:
    stdout. A FILE that is there is refused.

    Exit code 1: FILE is there; 4: a broker does not answer, and is left out.
    """
    path = os.path.abspath(file)
    if file != "-" and RealDisk().exists(path):
        raise click.UsageError(f"{file} is there already: name another one")

    async def work(session: Session) -> int | None:
        document, problems = await gathered(session, which, offsets=offsets)
        if file == "-":
            Output(as_json=True).fields(document)
        else:
            session.host.disk.replace(path, encode(document))
            count = len(document["brokers"])
            session.output.line(f"{count} brokers in {path}", {"brokers": count, "file": path})
        for problem in problems:
            session.output.warn(problem)
        return NO_ANSWER if problems else None

    run(work)


async def gathered(
    session: Session, which: str = "", *, offsets: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Return the document, and a line for each broker that did not answer."""
    asker, brokers = await targets(session, which)
    entries = []
    problems = []
    for target in session.output.track("asking brokers", brokers):
        here = target.address
        try:
            config = await asker.run(broker_config(here))
            info = await asker.run(runtime_info(here))
            topics = await asker.run(topic_configs(here))
            groups = await asker.run(group_configs(here))
            known = await asker.run(consumer_offsets(here)) if offsets else {}
        except RemotingError as error:
            problems.append(f"{target.name} {here} is left out: {error}")
            continue
        about: dict[str, Any] = {
            "cluster": target.cluster,
            "broker": target.name,
            "id": target.broker_id,
            "address": here,
            "version": info.get("brokerVersionDesc"),
            "rates": {name: rate(info.get(key, "")) for name, key in _RATES.items()},
            "config": dict(sorted(config.items())),
            "topics": [to_members(item) for _, item in sorted(topics.items())],
            "groups": [to_members(item) for _, item in sorted(groups.items())],
        }
        if offsets:
            about["offsets"] = {
                key: {str(queue): offset for queue, offset in sorted(table.items())}
                for key, table in sorted(known.items())
            }
        entries.append(about)
    return {"exported": time_text(session.host.now_ms()), "brokers": entries}, problems
