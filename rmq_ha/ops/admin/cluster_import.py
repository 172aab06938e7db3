"""`rmqha-admin cluster import`: gives brokers the topics, groups and settings of an export."""

import json
from typing import Any, NamedTuple

import click

from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.administration import change_config, put_group, put_topic
from rmq_ha.client.lookup.brokers import broker_config, group_configs, topic_configs
from rmq_ha.ops.admin.cluster_plan import (
    BROKER,
    GROUP,
    SETTING,
    TOPIC,
    ExportedBroker,
    ImportStep,
    read_export,
    steps_for,
)
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.losses import deleted_by_retention, unread_messages
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, ChangeRefused, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, masters, targets

COLUMNS = ("broker", "kind", "name", "before", "after", "action")


class ImportPlan(NamedTuple):
    """
    The differences of one broker from the document.

    :ivar target: the broker; None: no master of this name is registered.
    :ivar wish: the broker as the document has it.
    :ivar present: the broker as it runs.
    """

    target: BrokerTarget | None
    wish: ExportedBroker
    present: ExportedBroker
    steps: list[ImportStep]

    @property
    def to_set(self) -> list[ImportStep]:
        return [step for step in self.steps if not step.refusal]

    @property
    def is_refused(self) -> bool:
        """Whether a step is refused that does not belong to the broker's own file."""
        return any(step.refusal and not step.is_local for step in self.steps)


@click.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.option("--on", "which", default="", metavar="BROKER|CLUSTER", help="Only these brokers.")
@sure_options
@common_options
def import_(file: str, which: str, **sure: bool) -> None:
    """
    Give the brokers the topics, groups and settings that FILE has for their names. FILE is a
    document of `cluster export`.

    The command shows all differences, asks, and changes the masters. Topics and groups that FILE
    does not have stay. It does not set what a running broker cannot change, what would take
    messages from consumers, secrets and offsets; it says why. A second run finds no difference that
    it can set.

    Exit code 1: something was not set, apart from keys that belong to a broker's own file, such as
    addresses.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        try:
            document = json.loads(session.host.disk.read_bytes(file))
        except (ValueError, RecursionError) as error:
            raise ChangeRefused(
                f"{file} is no JSON ({error}): give the file that `rmqha-admin cluster export FILE`"
                " wrote"
            ) from None
        return await import_document(session, document, which, **sure)

    run(work)


async def import_document(
    session: Session, document: Any, which: str = "", **sure: bool
) -> int | None:
    """
    Show the differences, ask, change the brokers, and look whether they have the changes.

    :param document: the parsed document of `cluster export`.
    :param which: a broker's name or a cluster; empty: all brokers of the document.
    :returns: the exit code.
    :raises ChangeRefused: it is no document of `cluster export`.
    """
    wishes = read_export(document)
    plans = await _plans(session, wishes, which)
    rows = [_row(step) for plan in plans for step in plan.steps]
    count = sum(len(plan.to_set) for plan in plans)
    session.output.table("differences", COLUMNS, rows, to_set=count, done=not count)
    is_refused = any(plan.is_refused for plan in plans)
    if not count:
        session.output.say("nothing to set")
        return FAILED if is_refused else None
    if not is_wanted(f"Set {count} differences?", **sure):
        return FAILED if is_refused else None
    asker = Asker(await session.client())
    for plan in session.output.track("changing brokers", plans):
        if plan.target is not None:
            await _carry_out(asker, plan.target.address, plan)
    left = [step for plan in await _plans(session, wishes, which) for step in plan.to_set]
    for step in left:
        text = f"{step.broker} has not taken {step.kind} {step.name}: {step.after}"
        session.output.error(text, exit_code=FAILED)
    session.output.line(f"{count - len(left)} of {count} set", {"set": count - len(left)})
    return FAILED if left or is_refused else None


def _row(step: ImportStep) -> list[Any]:
    action = f"not set: {step.refusal}" if step.refusal else "change" if step.before else "create"
    return [*(item or None for item in step[:5]), action]


async def _plans(session: Session, wishes: list[ExportedBroker], which: str) -> list[ImportPlan]:
    asker, brokers = await targets(session, which)
    present = {target.name: target for target in masters(brokers)}
    plans = []
    for wish in session.output.track("asking brokers", wishes):
        target = present.get(wish.name)
        if target is not None:
            plans.append(await _plan(asker, session, target, wish))
        elif not which:
            refusal = "no master of this name is registered: start it, or leave it out by --on"
            step = ImportStep(wish.name, BROKER, wish.name, "", "", refusal)
            plans.append(ImportPlan(None, wish, wish, [step]))
    if not plans:
        names = ", ".join(wish.name for wish in wishes)
        raise ChangeRefused(f"the document has no broker of these (it has: {names})")
    return plans


async def _plan(
    asker: Asker, session: Session, target: BrokerTarget, wish: ExportedBroker
) -> ImportPlan:
    here = target.address
    present = ExportedBroker(
        target.cluster,
        target.name,
        await asker.run(broker_config(here)),
        await asker.run(topic_configs(here)),
        await asker.run(group_configs(here)),
    )
    steps = []
    for step in steps_for(wish, present):
        loss = ""
        if not step.refusal and step.kind == TOPIC and step.before:
            before, after = present.topics[step.name], wish.topics[step.name]
            loss = await unread_messages(asker, target, before, after)
            way = f"`topic update {step.name} --drop-unread`"
        elif not step.refusal and step.kind == SETTING:
            change = {step.name: step.after}
            now_ms = session.host.now_ms()
            loss = await deleted_by_retention(asker, here, present.config, change, now_ms)
            way = f"`broker config set {target.name} {step.name}={step.after} --drop-old`"
        steps.append(step._replace(refusal=f"{loss}; {way} does it") if loss else step)
    return ImportPlan(target, wish, present, steps)


async def _carry_out(asker: Asker, address: str, plan: ImportPlan) -> None:
    """
    Change one broker.

    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer.
    """
    settings = {step.name: step.after for step in plan.to_set if step.kind == SETTING}
    for step in plan.to_set:
        if step.kind == TOPIC:
            before = plan.present.topics.get(step.name)
            await asker.run(put_topic(address, plan.wish.topics[step.name], before))
        elif step.kind == GROUP:
            await asker.run(put_group(address, plan.wish.groups[step.name]))
    if settings:
        await asker.run(change_config(address, settings))
