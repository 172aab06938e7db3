"""A fault that is there twice is said twice; long lists are cut, and it is said that they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from io import StringIO
from typing import Any

from rich.console import Console

from rmq_ha.ops.admin.doctor.command import show
from rmq_ha.ops.admin.doctor.facts import ClusterFacts, GroupFacts, NotLooked
from rmq_ha.ops.admin.doctor.findings import DoctorFinding, judge
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import Session
from rmq_ha.testing.host import World
from tests.unit.ops.admin.doctor_facts import healthy, master, slave
from tests.unit.ops.admin.test_doctor_rules import CASES, local


def another(value: Any, words: dict[str, str]) -> Any:
    """The same, with other words in all texts of it, and nothing in common with it."""
    if isinstance(value, str):
        for word, other in words.items():
            value = value.replace(word, other)
        return value
    if isinstance(value, dict):
        return {another(key, words): another(item, words) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(another(item, words) for item in value))
    if isinstance(value, list | tuple | frozenset | set):
        return type(value)(another(item, words) for item in value)
    if is_dataclass(value):
        names = [item.name for item in fields(value)]
        return type(value)(**{name: another(getattr(value, name), words) for name in names})
    return value


OF_ALL = {"one-name-server", "no-broker", "name-servers-differ", "auto-create", "no-controller"}
"""What is said of all that there is together."""
SEVERAL = (
    "name_servers",
    "brokers",
    "controllers",
    "leaderless",
    "groups",
    "pops",
    "unreadable_queues",
    "dead_letters",
    "certificates",
)
OTHER_NAMES = {
    "10.0.0.": "10.0.9.",
    "10.0.1.": "10.0.8.",
    "pair": "twin",
    "Pair": "Twin",
    "workers": "others",
    "DefaultCluster": "OtherCluster",
}


def test_a_fault_that_is_there_twice_is_said_twice() -> None:
    """Of two clusters of one visit."""
    for rule in RULES:
        facts = healthy()
        CASES[rule.code](facts)
        if rule.code in OF_ALL or facts.local is not None:  # there is one file
            continue
        twin = another(facts, OTHER_NAMES)
        expected = [*rule.look(facts), *rule.look(twin)]
        for name in SEVERAL:
            getattr(facts, name).extend(getattr(twin, name))
        assert sorted(rule.look(facts)) == sorted(expected), rule.code


def test_what_is_wrong_with_two_slaves_is_said_of_both() -> None:
    words = {"10.0.0.2": "10.0.0.7"}
    seen = 0
    for rule in RULES:
        facts = healthy()
        CASES[rule.code](facts)
        of_slave = [said for said in rule.look(facts) if "10.0.0.2" in said.about]
        if of_slave:
            seen += 1
            facts.brokers.insert(0, another(slave(facts), words))
            assert {*of_slave, *another(of_slave, words)} <= set(rule.look(facts)), rule.code
    assert seen > 9


def texts(code: str, spoil: Callable[[ClusterFacts], Any]) -> list[str]:
    facts = healthy()
    spoil(facts)
    return [item.text for item in judge(facts, [rule for rule in RULES if rule.code == code])]


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def lacks(count: int) -> Callable[[ClusterFacts], None]:
    def spoil(facts: ClusterFacts) -> None:
        master(facts).topics = frozenset(names(count))
        slave(facts).topics = frozenset()
        slave(facts).replication["tables_seconds"] = 21.0

    return spoil


def test_no_more_than_five_are_named() -> None:
    five = "t0, t1, t2, t3, t4"
    assert texts("slave-lacks-topics", lacks(5)) == [f"it lacks 5 topics of its master: {five}"]
    assert texts("slave-lacks-topics", lacks(6)) == [f"it lacks 6 topics of its master: {five} ..."]
    (kept,) = texts("set-aside-left", local(set_aside=names(5)))
    assert kept.endswith(five)
    (kept,) = texts("set-aside-left", local(set_aside=names(6)))
    assert kept.endswith(f"{five} ...")


def lagging(*lags: float) -> Callable[[ClusterFacts], None]:
    def spoil(facts: ClusterFacts) -> None:
        (known,) = master(facts).replication["slaves"]
        master(facts).replication["slaves"] = [
            {**known, "address": f"s{number}", "lag": 7, "lag_seconds": lag}
            for number, lag in enumerate(lags)
        ]

    return spoil


def test_each_slave_of_a_master_is_measured() -> None:
    assert texts("slave-behind", lagging(4.0, 9.0, 5.0, 6.4)) == [
        "s1 lacks 7 bytes, for 9 s",
        "s3 lacks 7 bytes, for 6 s",
    ]


def shown(facts: ClusterFacts, findings: list[DoctorFinding], **more: Any) -> str:
    out = StringIO()
    session = Session(
        World(0).add("x").seams, Options(), Output(False, Console(file=out, width=200))
    )
    show(session, facts, findings, **more)
    return out.getvalue()


def test_people_are_told_what_was_found_what_to_do_and_what_was_not_looked_at() -> None:
    """Each advice once; parts without a line are left out."""
    facts = healthy()
    facts.groups = [GroupFacts(name="g")]
    assert shown(facts, []).splitlines() == [
        "",
        f"nothing to do: 0 errors, 0 warnings; {len(RULES)} rules looked at 2 name servers, "
        "2 brokers and 1 group",
    ]
    facts.not_looked = [NotLooked("this", "of that")]
    fault = DoctorFinding("error", "a-code", "broker", "is bad", "mend it")
    lines = shown(facts, [fault, fault._replace(about="other")], rules=7).splitlines()
    assert [line.rstrip() for line in lines] == [
        "findings",
        "severity  code    about   finding",
        "error     a-code  broker  is bad",
        "error     a-code  other   is bad",
        "",
        "what to do",
        "  a-code: mend it",
        "",
        "not looked at, because",
        "  this: of that",
        "",
        "2 errors, 0 warnings; 7 rules looked at 2 name servers, 2 brokers and 1 group",
    ]
