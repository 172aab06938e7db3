"""`rmqha-admin broker clean`: have brokers do now what they do in time."""

from typing import Any

import click

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.lookup.administration import clean as have_cleaned
from rmq_ha.client.lookup.brokers import broker_config, runtime_info, topic_configs
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.pair import fullness
from rmq_ha.ops.admin.session import Session, run
from rmq_ha.ops.admin.targets import targets

COLUMNS = ("broker", "address", "log_begin", "log_end", "disk", "hours", "topics")
KINDS = {
    "files": RequestCode.DELETE_EXPIRED_COMMITLOG,
    "queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "topics": RequestCode.CLEAN_UNUSED_TOPIC,
}
MEANINGS = {
    "files": "files of the log older than fileReservedTime are deleted with their messages",
    "queues": "files of queues whose messages the log no longer has are deleted",
    "topics": "queues of topics that the broker does not have (any more) are deleted",
}


@click.command()
@click.argument("which", metavar="BROKER|CLUSTER|HOST:PORT")
@click.argument("what", type=click.Choice(sorted(KINDS)))
@sure_options
@common_options
def clean(which: str, what: str, **sure: bool) -> None:
    """
    Have brokers do now what they do in time: delete files of the log that have expired
    (`files`; else at the hour of deleteWhen), files of queues whose messages are gone (`queues`),
    or the queues of topics that are deleted (`topics`).

    Nothing goes that would not go by itself. Brokers do it after their answer; `broker list` and
    `topic status` show it.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> None:
        await clean_brokers(session, which, what, **sure)

    run(work)


async def clean_brokers(session: Session, which: str, what: str, **sure: bool) -> None:
    """Show the disk and log of the brokers, ask, and have them clean up."""
    asker, brokers = await targets(session, which)
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", brokers):
        info = await asker.run(runtime_info(target.address))
        config = await asker.run(broker_config(target.address))
        topics = await asker.run(topic_configs(target.address))
        disk = fullness(info)
        ends = [int(info.get(key, "0")) for key in ("commitLogMinOffset", "commitLogMaxOffset")]
        hours = config.get("fileReservedTime")
        rows.append([target.name or None, target.address, *ends, disk, hours, len(topics)])
    session.output.table(MEANINGS[what], COLUMNS, rows, done=False)
    if not is_wanted(f"Have {len(brokers)} brokers do this now?", **sure):
        return
    for target in session.output.track("telling brokers", brokers):
        await asker.run(have_cleaned(target.address, KINDS[what]))
    session.output.line(f"{len(brokers)} brokers were told", {"done": True})
