"""`rmqha-admin doctor`: finds the faults of a cluster, their causes and remedies."""

from collections import Counter
from typing import Any

import click

from rmq_ha.base.host.process import local_address
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.printable import counted
from rmq_ha.ops.admin.doctor.facts import ClusterFacts
from rmq_ha.ops.admin.doctor.findings import DoctorFinding, DoctorSeverity, is_healthy, judge
from rmq_ha.ops.admin.doctor.gather import DoctorScope, gather
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, Session, run

COLUMNS = ("severity", "code", "about", "finding")


@click.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option(
    "--look-again",
    "again_s",
    type=click.FloatRange(min=0),
    default=6.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds until a second look, which finds values that grow and offsets that stand still. "
    "0: no second look.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Also check this properties file of a broker on this machine, its store and certificates.",
)
@click.option(
    "--store",
    type=click.Path(file_okay=False, resolve_path=True),
    help="Also check this store on this machine. Default: the store of --config.",
)
@common_options
def doctor(which: str, again_s: float, config: str | None, store: str | None) -> None:
    """
    Look at every server that can be reached, and list the faults with their causes and remedies.

    Doctor changes nothing. It names each server and file that it could not look at. docs/doctor.md
    describes all codes.

    Exit code 0: no findings, or notes only; 1: findings; 4: no server answers.
    """

    scope = DoctorScope(
        which, local_address(), again_s, config or "", store or "", real_surroundings(".")
    )

    async def work(session: Session) -> int | None:
        return await examine(session, scope)

    run(work)


async def examine(session: Session, scope: DoctorScope) -> int | None:
    """
    Gather the facts, judge them, and show the findings.

    :returns: the exit code.
    """
    with session.output.progress("asking brokers", None) as steps:
        facts = await gather(session, scope, steps.advance)
    findings = judge(facts, RULES)
    show(session, facts, findings)
    asked = facts.brokers or facts.name_servers
    if asked and not (facts.answering() or any(item.answers for item in facts.name_servers)):
        return NO_ANSWER
    return None if is_healthy(findings) else FAILED


def show(
    session: Session, facts: ClusterFacts, findings: list[DoctorFinding], rules: int = len(RULES)
) -> None:
    """
    Show the findings as a table, the remedy for each code in it, and the things that could not be
    looked at.
    """
    output = session.output
    if output.as_json:
        output.fields(
            {
                "healthy": is_healthy(findings),
                "findings": [item._asdict() for item in findings],
                "not_looked_at": [item._asdict() for item in facts.not_looked],
                **_looked_at(facts, rules),
            }
        )
        return
    if findings:
        rows = [[item.severity, item.code, item.about, item.text] for item in findings]
        output.table("findings", COLUMNS, rows)
        output.say("")
        output.say("what to do")
        for code, fix in dict.fromkeys((item.code, item.fix) for item in findings):
            output.say(f"  {code}: {fix}")
    if facts.not_looked:
        output.say("")
        output.say("not looked at, because")
        for item in facts.not_looked:
            output.say(f"  {item.what}: {item.why}")
    output.say("")
    output.say(
        f"{_sum_of(findings)}; {rules} rules looked at "
        f"{counted(len(facts.name_servers), 'name server')}, "
        f"{counted(len(facts.brokers), 'broker')} and {counted(len(facts.groups), 'group')}"
    )


def _sum_of(findings: list[DoctorFinding]) -> str:
    """Return `1 error, 2 warnings`, or that nothing is to be done."""
    counts = Counter(item.severity for item in findings)
    parts = [
        counted(counts[item.value], item.value) for item in DoctorSeverity if counts[item.value]
    ]
    return ", ".join(parts) if not is_healthy(findings) else ", ".join(["nothing to do", *parts])


def _looked_at(facts: ClusterFacts, rules: int) -> dict[str, Any]:
    return {
        "rules": rules,
        "name_servers": len(facts.name_servers),
        "brokers": len(facts.brokers),
        "groups": len(facts.groups),
    }
