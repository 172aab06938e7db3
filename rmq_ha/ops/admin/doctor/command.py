"""`rmqha-admin doctor`: finds the faults of a cluster, their causes and remedies."""

from collections.abc import Sequence
from typing import Any

import click

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.host.process import local_address
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.printable import counted
from rmq_ha.ops.admin.doctor.facts import ClusterFacts
from rmq_ha.ops.admin.doctor.findings import DoctorFinding, is_healthy, judge
from rmq_ha.ops.admin.doctor.gather import DoctorScope, gather
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.admin.doctor.selection import (
    EVERYTHING,
    RuleSelection,
    counts_of,
    nagios_state,
    selection_of,
    sum_of,
)
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, Session, run

COLUMNS = ("severity", "code", "about", "finding")
_UNKNOWN = 3


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
@click.option(
    "--only",
    multiple=True,
    metavar="CODE[,CODE]",
    help="Ask only these rules, like two-masters. Repeatable.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="CODE[:ABOUT]",
    help="Leave out the findings of a rule, or those about one broker, group or file, like "
    "no-members:billing. ABOUT may have `*`. Repeatable.",
)
@click.option(
    "--nagios",
    is_flag=True,
    help="Begin with one line for Nagios, and end with its exit codes: 0 OK, 1 warnings, 2 errors, "
    "3 unknown.",
)
@common_options
def doctor(
    which: str,
    again_s: float,
    config: str | None,
    store: str | None,
    only: tuple[str, ...],
    ignored: tuple[str, ...],
    nagios: bool,
) -> None:
    """
    Look at every server that can be reached, and list the faults with their causes and remedies.

    Doctor changes nothing. It names each server and file that it could not look at. docs/doctor.md
    describes all codes.

    Exit code 0: no findings, or notes only; 1: findings; 4: no server answers. With --nagios 0: no
    findings, or notes only; 1: warnings; 2: errors; 3: no server answers, or doctor failed.
    """

    scope = DoctorScope(
        which, local_address(), again_s, config or "", store or "", real_surroundings(".")
    )

    async def work(session: Session) -> int | None:
        if nagios:
            return await examine_for_nagios(session, scope, only, ignored)
        return await examine(session, scope, selection_of(only, ignored, RULES))

    run(work)


async def examine(
    session: Session,
    scope: DoctorScope,
    selection: RuleSelection = EVERYTHING,
    *,
    for_nagios: bool = False,
) -> int | None:
    """
    Gather the facts, judge them, and show the findings.

    :param for_nagios: begin with a line for Nagios, and return a code of Nagios.
    :returns: the exit code.
    """
    with session.output.progress("asking brokers", None) as steps:
        facts = await gather(session, scope, steps.advance)
    rules = selection.rules_of(RULES)
    everything = judge(facts, rules)
    findings, left_out = selection.split(everything)
    asked = facts.brokers or facts.name_servers
    is_known = not asked or bool(
        facts.answering() or any(item.answers for item in facts.name_servers)
    )
    state = nagios_state(findings, is_known=is_known)
    if for_nagios:
        session.output.say(state.line)
    show(session, facts, findings, len(rules), left_out)
    for item in selection.idle_entries(everything):
        session.output.note(f"--ignore {item} matches no finding")
    if for_nagios:
        return state.code
    if not is_known:
        return NO_ANSWER
    return None if is_healthy(findings) else FAILED


async def examine_for_nagios(
    session: Session, scope: DoctorScope, only: tuple[str, ...], ignored: tuple[str, ...]
) -> int | None:
    """
    Examine the cluster like `examine`. If doctor fails, the state is UNKNOWN.

    :param only: values of the option `--only`.
    :param ignored: values of the option `--ignore`.
    :returns: a code of Nagios.
    """
    try:
        selection = selection_of(only, ignored, RULES)
        return await examine(session, scope, selection, for_nagios=True)
    except RmqHaError as error:
        text = session.with_hint(str(error))
        session.output.line(f"DOCTOR UNKNOWN - {text}", {"error": text, "exit_code": _UNKNOWN})
        return _UNKNOWN


def show(
    session: Session,
    facts: ClusterFacts,
    findings: list[DoctorFinding],
    rules: int = len(RULES),
    left_out: Sequence[DoctorFinding] = (),
) -> None:
    """
    Show the findings as a table, the remedy for each code in it, and the things that could not be
    looked at. The last line says the numbers of errors and warnings.

    :param rules: number of rules that were asked.
    :param left_out: findings that the operator ignores.
    """
    errors, warnings, notes = counts_of(findings)
    output = session.output
    if output.as_json:
        output.fields(
            {
                "healthy": is_healthy(findings),
                "errors": errors,
                "warnings": warnings,
                "notes": notes,
                "findings": [item._asdict() for item in findings],
                "ignored": [item._asdict() for item in left_out],
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
    healthy = "nothing to do: " if is_healthy(findings) else ""
    ignored = f", {counted(len(left_out), 'finding')} ignored" if left_out else ""
    output.say(
        f"{healthy}{sum_of(findings)}{ignored}; {counted(rules, 'rule')} looked at "
        f"{counted(len(facts.name_servers), 'name server')}, "
        f"{counted(len(facts.brokers), 'broker')} and {counted(len(facts.groups), 'group')}"
    )


def _looked_at(facts: ClusterFacts, rules: int) -> dict[str, Any]:
    return {
        "rules": rules,
        "name_servers": len(facts.name_servers),
        "brokers": len(facts.brokers),
        "groups": len(facts.groups),
    }
