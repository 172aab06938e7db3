"""`--check --live`: applies those rules of `rmqha-admin doctor` that need no running broker."""

from collections.abc import Sequence
from typing import NoReturn

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.ops.admin.doctor.before_start import CODES, judge_before_start, look_before_start
from rmq_ha.ops.admin.doctor.command import show
from rmq_ha.ops.admin.doctor.findings import is_healthy
from rmq_ha.ops.admin.doctor.gather import DoctorScope
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.session import FAILED, Session, run_in_reactor
from rmq_ha.ops.app.descriptors import allow_descriptors


async def examine_before_start(session: Session, scope: DoctorScope) -> int | None:
    """
    Gather the facts and show the findings.

    :returns: the exit code.
    """
    facts = await look_before_start(session, scope)
    findings = judge_before_start(facts, RULES)
    show(session, facts, findings, len(CODES))
    return None if is_healthy(findings) else FAILED


def finish_live_check(
    path: str, surroundings: Surroundings, overrides: Sequence[tuple[str, str]]
) -> NoReturn:
    """
    Ask name servers and ports, print findings, and end the process: with exit code 1 if an operator
    has to mend something.

    :param overrides: keys and values of the command line, which win over the file's.
    """
    scope = DoctorScope(
        config=path,
        surroundings=surroundings,
        overrides=tuple(overrides),
        most_files=allow_descriptors(),
    )
    run_in_reactor(lambda session: examine_before_start(session, scope), Options())
