"""Rules: the controllers, which elect the masters of brokers in controller mode."""

from collections.abc import Iterable, Iterator

from rmq_ha.ops.admin.doctor.facts import ClusterFacts, LeaderlessSet, SetMember
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule


def _none_leads(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.controllers and not facts.controllers_lead():
        told = "; ".join(
            f"{item.address}: {item.problem or 'it knows no leader'}" for item in facts.controllers
        )
        if facts.none_registered():
            told += "; no broker is registered, as no controller says which broker leads"
        yield Observation("controllers", told)


def _silent(facts: ClusterFacts) -> Iterator[Observation]:
    """
    Name controllers that do not answer while the others still elect. If none elects,
    `no-controller` names them.
    """
    for item in facts.controllers if facts.controllers_lead() else ():
        if item.problem is not None:
            yield Observation(item.address, f"the controller does not answer: {item.problem}")


def _nobody_leads(facts: ClusterFacts) -> Iterator[Observation]:
    for item in facts.leaderless:
        yield Observation(item.name, f"no master leads this set: {_why_nobody(item)}")


def _why_nobody(item: LeaderlessSet) -> str:
    alive = _texts_of(member for member in item.others if member.alive)
    waiting = f"; {alive} runs, but may not lead, as it may lack messages" if alive else ""
    if not item.in_sync:
        known = _texts_of(item.others)
        return f"none was ever elected, and {known or 'no broker'} is known to the controllers"
    living = [member for member in item.in_sync if member.alive]
    if living:
        return (
            f"{_texts_of(living)} is in sync and runs, and the controllers have not elected it yet"
        )
    if len(item.in_sync) == 1:
        return f"start {item.in_sync[0]}, which alone has all messages and does not run{waiting}"
    return f"start {_texts_of(item.in_sync)}: each of them has all messages, and none runs{waiting}"


def _texts_of(members: Iterable[SetMember]) -> str:
    return " or ".join(map(str, members))


RULES = (
    Rule(
        "nobody-leads",
        DoctorSeverity.ERROR,
        "no broker of a set in controller mode may lead: those that have all messages do not run, "
        "so producers and consumers find no master",
        "start the broker that the finding names, with its store. If it runs already, its log and "
        "`/healthz` say why its heartbeats do not reach the controllers. If its store is lost for "
        "good, `enableElectUncleanMaster=true` at the controllers has another broker elected, "
        "**and loses the messages that only the dead broker has**",
        _nobody_leads,
    ),
    Rule(
        "no-controller",
        DoctorSeverity.ERROR,
        "no controller leads, because most controllers do not answer: if a master dies, no "
        "other broker is elected",
        "start the controllers, and open their ports in `controllerDLegerPeers` between them "
        "and to the brokers; compare `controllerAddr` of the brokers with the controllers' "
        "addresses",
        _none_leads,
    ),
    Rule(
        "controller-silent",
        DoctorSeverity.WARNING,
        "a controller does not answer: the other controllers still elect masters, but may not "
        "if one more fails",
        "start the controller, or check whether a firewall blocks it; if it will not come back, "
        "remove it from `controllerAddr`",
        _silent,
    ),
)
