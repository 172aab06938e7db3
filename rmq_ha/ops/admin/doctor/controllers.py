"""Rules: the controllers of brokers in controller mode, who elect masters."""

from collections.abc import Iterator

from rmq_ha.ops.admin.doctor.facts import Facts
from rmq_ha.ops.admin.doctor.findings import Rule, Said, Severity


def _leads(facts: Facts) -> bool:
    """One of those that answer knows who leads them all."""
    return any(item.leader for item in facts.controllers)


def _none_leads(facts: Facts) -> Iterator[Said]:
    if facts.controllers and not _leads(facts):
        told = "; ".join(
            f"{item.address}: {item.problem or 'it knows no leader'}" for item in facts.controllers
        )
        yield Said("controllers", told)


def _silent(facts: Facts) -> Iterator[Said]:
    """While they elect all the same; else `no-controller` names them."""
    for item in facts.controllers if _leads(facts) else ():
        if item.problem is not None:
            yield Said(item.address, f"the controller does not answer: {item.problem}")


RULES = (
    Rule(
        "no-controller",
        Severity.ERROR,
        "no controller leads, as most of them are away: if a master dies, nobody elects another",
        "start them, and open their ports (those of `controllerDLegerPeers`) between them and to "
        "the brokers; compare `controllerAddr` of the brokers with where they are",
        _none_leads,
    ),
    Rule(
        "controller-silent",
        Severity.WARNING,
        "a controller does not answer: the others elect, and one more may be too many",
        "start it, or look whether a firewall is between; take it out of `controllerAddr` if it "
        "is gone for good",
        _silent,
    ),
)
