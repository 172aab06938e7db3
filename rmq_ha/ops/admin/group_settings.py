"""`rmqha-admin group create` and `update`: the settings of a consumer group."""

from typing import Any

import click
from msgspec.structs import replace

from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import group_fault
from rmq_ha.client.lookup.administration import put_group
from rmq_ha.client.lookup.brokers import group_configs
from rmq_ha.ops.admin.confirm import dry_run_option, is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import combine_options, common_options, on_option
from rmq_ha.ops.admin.session import ChangeRefused, NothingFound, Session, run
from rmq_ha.ops.admin.targets import Target, masters, targets

COLUMNS = ("group", "broker", "key", "before", "after")


_settings = combine_options(
    on_option,
    click.option(
        "--retries",
        "retry_max_times",
        type=click.IntRange(min=-1),
        help="Attempts before a message goes to the dead letters; 16 at first.",
    ),
    click.option("--retry-queues", "retry_queue_nums", type=click.IntRange(min=1)),
    click.option(
        "--consume/--no-consume",
        "consume_enable",
        default=None,
        help="Whether it gets messages at all.",
    ),
    click.option(
        "--broadcast/--no-broadcast",
        "consume_broadcast_enable",
        default=None,
        help="Members may ask for everything.",
    ),
    click.option(
        "--notify/--no-notify",
        "notify_consumer_ids_changed_enable",
        default=None,
        help="Tell members at once when others come or go.",
    ),
)


@click.command()
@click.argument("name", metavar="GROUP")
@_settings
@dry_run_option
@common_options
def create(name: str, which: str, dry_run: bool, **given: Any) -> None:
    """
    Create GROUP on all masters, or some (nobody is asked).

    Exit code 1: it is there already.
    """

    async def work(session: Session) -> None:
        await change_group(session, name, which, given, is_new=True, yes=True, dry_run=dry_run)

    run(work)


@click.command()
@click.argument("name", metavar="GROUP")
@_settings
@sure_options
@common_options
def update(name: str, which: str, yes: bool, dry_run: bool, **given: Any) -> None:
    """
    Change GROUP where it is; what is not given stays.

    Exit code 3: it is nowhere.
    """
    must_be_askable(yes=yes, dry_run=dry_run)

    async def work(session: Session) -> None:
        await change_group(session, name, which, given, is_new=False, yes=yes, dry_run=dry_run)

    run(work)


async def change_group(
    session: Session, name: str, which: str, given: dict[str, Any], *, is_new: bool, **sure: bool
) -> None:
    """
    Create or change a group on the chosen masters.

    :raises NothingFound: no broker has the group that is to be changed.
    :raises ChangeRefused: the group to be created exists already, or its name is not allowed.
    """
    fault = group_fault(name)
    if fault is not None:
        raise ChangeRefused(fault)
    changes = {key: value for key, value in given.items() if value is not None}
    asker, brokers = await targets(session, which)
    plan: list[tuple[Target, SubscriptionGroupConfig]] = []
    rows: list[list[Any]] = []
    for target in session.output.track("asking brokers", masters(brokers)):
        before = (await asker.run(group_configs(target.address))).get(name)
        if is_new and before is not None:
            raise ChangeRefused(
                f"{target.name or target.address} has {name} already: use group update"
            )
        if not is_new and before is None:
            continue
        plan.append((target, replace(before or SubscriptionGroupConfig(name), **changes)))
        for key, value in changes.items():
            old = getattr(before, key, None)
            rows.append([name, target.name or target.address, key, old, value])
    if not plan:
        raise NothingFound(f"no broker has the group {name}: use group create")
    session.output.table(f"{name} on {len(plan)} brokers", COLUMNS, rows)
    if is_wanted(f"Change {name} on {len(plan)} brokers?", **sure):
        for target, config in session.output.track("changing brokers", plan):
            await asker.run(put_group(target.address, config))
