"""`rmqha-admin store`: look into a store that no broker has open, and mend what can be mended."""

import click

from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.client.rules.messages import message_of
from rmq_ha.ops.admin.confirm import must_be_askable, sure_options
from rmq_ha.ops.admin.message_text import message_line, message_values
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, Session, run
from rmq_ha.ops.admin.store_files import locked, opened, show_findings, verified
from rmq_ha.ops.admin.store_repair import RepairOptions, repair_store
from rmq_ha.ops.offline.records import Damage, records
from rmq_ha.ops.offline.verify import INDEX, QUEUES

_DIRECTORY = click.Path(exists=True, file_okay=False, resolve_path=True)
_commit_log = click.option(
    "--commit-log", metavar="DIR[,DIR]", help="The storePathCommitLog of the broker, if it is set."
)


@click.group()
@common_options
def store() -> None:
    """
    Stores that no broker has open: each command refuses while one has.

    DIR is what storePathRootDir names.
    """


@store.command()
@click.argument("root", metavar="DIR", type=_DIRECTORY)
@_commit_log
@common_options
def verify(root: str, commit_log: str | None) -> None:
    """
    Read all of the log, and compare queues, index, checkpoint and tables with it.

    It changes nothing. Exit code 0: nothing, or what the next start mends by itself; 1: faults, or
    a broker has it open.
    """

    async def work(session: Session) -> int | None:
        return show_faults(session, root, commit_log)

    run(work)


def show_faults(session: Session, root: str, commit_log: str | None = None) -> int | None:
    """
    Show the faults of a store.

    :returns: the exit code.
    """
    with locked(session.host.disk, root):
        report = verified(session, root, commit_log)
    show_findings(session, root, report)
    return FAILED if any(item.is_fault for item in report.findings) else None


@store.command()
@click.argument("root", metavar="DIR", type=_DIRECTORY)
@_commit_log
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    default=0,
    metavar="OFFSET",
    help="Begin with the first message at or after this physical offset of the log.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this number of messages.")
@click.option("--topic", "-t", help="Print messages of this topic only.")
@common_options
def dump(root: str, commit_log: str | None, start: int, count: int | None, topic: str) -> None:
    """
    Messages of the log as JSON, one a line; so are places that hold none (member `damage`).

    Exit code 1: there is damage, or a broker has it open.
    """

    async def work(session: Session) -> int | None:
        session.output.as_json = True
        return dump_records(session, root, commit_log, start, count, topic)

    run(work)


def dump_records(
    session: Session,
    root: str,
    commit_log: str | None = None,
    start: int = 0,
    count: int | None = None,
    topic: str | None = None,
) -> int | None:
    """
    Print the messages of a log as JSON.

    :returns: the exit code.
    """
    output, code, shown = session.output, None, 0
    with locked(session.host.disk, root):
        for piece in records(opened(root, commit_log), start):
            if session.interrupted.called:
                break
            if isinstance(piece, Damage):
                code = FAILED
                output.line("", {"damage": piece._asdict()})
            elif topic in (None, piece.request.topic):
                message = message_of(decode_record(piece.data))
                where = {"physical_offset": piece.request.physical_offset}
                output.line(message_line(message), {**where, **message_values(message)})
                shown += 1
                if shown == count:
                    break
    return code


@store.command()
@click.option(
    "--config",
    "-c",
    required=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="The broker's properties file. It names the store and the sizes of its files.",
)
@click.option(
    "--part",
    "parts",
    type=click.Choice([QUEUES, INDEX]),
    multiple=True,
    help="Rebuild this part even if it agrees with the log; repeatable.",
)
@sure_options
@common_options
def repair(config: str, parts: tuple[str, ...], **sure: bool) -> None:
    """
    Build queues, index and checkpoint anew from the log, where `verify` finds them wrong.

    What was there is kept in `setaside`. The log and the tables are never touched: what is damaged
    there has to come from a replica.

    Exit code 1: it is refused, or something is wrong afterwards.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        how = RepairOptions(real_surroundings("."), frozenset(parts), **sure)
        return await repair_store(session, config, how)

    run(work)
