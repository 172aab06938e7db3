"""
`rmqha-admin top`: shows brokers with rates and roles, and groups with their lag, again and again.
"""

from collections import Counter
from typing import Any, NamedTuple

import click
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.topics import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX
from rmq_ha.client.lookup.administration import lag_by_group
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.broker import rate
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.output import OutputRows
from rmq_ha.ops.admin.pair import fullness, look_at
from rmq_ha.ops.admin.session import NO_ANSWER, Session, run
from rmq_ha.ops.admin.targets import first_of_each, targets

BROKERS = ("broker", "id", "address", "role", "in_s", "out_s", "log_end", "behind", "disk")
GROUPS = ("group", "lag", "per_s")


class Sample(NamedTuple):
    """
    The state of brokers and groups at one moment.

    :ivar at: seconds of this machine's clock.
    :ivar brokers: rows of `BROKERS`.
    :ivar lags: the lag of each group, in messages.
    :ivar problems: a line for each broker that did not answer.
    """

    at: float
    brokers: list[list[Any]]
    lags: dict[str, int]
    problems: list[str]


@click.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this number of looks.")
@click.option("--groups", "most", type=click.IntRange(min=0), default=15, show_default=True)
@common_options
def top(which: str, seconds: float, count: int | None, most: int) -> None:
    """
    Show brokers with role, messages a second, and the bytes that slaves are behind, and groups with
    their lag and its growth a second, until Ctrl-C.

    With --json the command looks once, or as many times as --count says. Exit code 4: a broker does
    not answer.
    """

    async def work(session: Session) -> int | None:
        return await watch(session, which, seconds, count, most)

    run(work)


async def watch(
    session: Session, which: str, seconds: float, count: int | None, most: int
) -> int | None:
    """
    Look again and again until the count is reached or the user interrupts.

    :returns: the exit code of the last look.
    """
    clock: Any = session.host.clock
    left = count or (1 if session.output.as_json else None)
    pause: Deferred[None] = succeed(None)

    def hurry(_: None) -> None:
        pause.cancel()

    session.interrupted.addCallback(hurry)
    before: Sample | None = None
    with session.output.screen() as screen:
        while True:
            now = await look(session, which)
            screen.show(tables_of(now, before, most), now.problems)
            before, left = now, left and left - 1
            if left == 0 or session.interrupted.called:
                return NO_ANSWER if now.problems else None
            pause = deferLater(clock, seconds)
            pause.addErrback(lambda _: None)
            await pause


async def look(session: Session, which: str) -> Sample:
    """
    Ask all brokers once.

    :raises NothingFound: no such broker is registered.
    """
    asker, brokers = await targets(session, which)
    members = [(target, await look_at(asker, target.address)) for target in brokers]
    problems = [f"{m.address}: {m.problem}" for _, m in members if m.problem is not None]
    ends: dict[str, int] = {}
    for target, member in members:
        if member.is_master:
            ends[target.name] = max(member.end, ends.get(target.name, 0))
    rows: list[list[Any]] = []
    for target, member in members:
        info = member.info
        row: list[Any] = [target.name or member.broker_name, target.broker_id, target.address]
        behind = None
        if member.role and not member.is_master and target.name in ends:
            behind = max(0, ends[target.name] - member.end)
        rates = [rate(info.get(key, "")) for key in ("putTps", "getTransferedTps")]
        end = member.end if member.role else None
        rows.append([*row, member.role, *rates, end, behind, fullness(info)])
    lags: Counter[str] = Counter()
    for target in first_of_each([t for t, m in members if m.role is not None]):
        try:
            known = await asker.run(lag_by_group(target.address))
            lags.update({name: lag for name, lag in known.items() if lag or not _is_own(name)})
        except (RemotingError, BrokerRefused) as error:
            problems.append(f"groups at {target.address}: {error}")
    at = session.host.clock.seconds()
    return Sample(at, rows, dict(lags), problems)


def _is_own(group: str) -> bool:
    """Return whether a group is RocketMQ's own; such groups are of interest only when they lag."""
    return group in BUILT_IN_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def tables_of(now: Sample, before: Sample | None, most: int) -> list[OutputRows]:
    """Return the table of brokers, and that of the groups with the largest lags."""
    passed = now.at - before.at if before is not None else 0.0
    groups: list[list[Any]] = []
    for name, lag in sorted(now.lags.items(), key=lambda item: (-item[1], item[0]))[:most]:
        was = before.lags.get(name) if before is not None else None
        change = None if was is None or passed <= 0 else round((lag - was) / passed, 1)
        groups.append([name, lag, change])
    return [OutputRows("brokers", BROKERS, now.brokers), OutputRows("groups", GROUPS, groups)]
