"""Rules by name, findings that are ignored, and the states of Nagios."""

from __future__ import annotations

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.admin.doctor.command import examine, examine_for_nagios
from rmq_ha.ops.admin.doctor.findings import DoctorFinding
from rmq_ha.ops.admin.doctor.gather import DoctorScope
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.admin.doctor.selection import nagios_state, selection_of
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.doctor.fleet import Fleet, whole_pair

BILLING = DoctorFinding("warning", "no-members", "billing", "9 messages wait", "start a member")
TESTS = BILLING._replace(about="test-1")
SLAVE = DoctorFinding("error", "no-slave", "broker-a", "no slave follows", "start the slave")
NOTE = DoctorFinding("note", "no-copy", "broker-a", "no slave", "add one")


def test_findings_are_ignored_by_code_by_name_and_by_pattern() -> None:
    found = [SLAVE, BILLING, TESTS]
    for ignored, left in (
        (["no-members"], [SLAVE]),
        (["no-members:billing"], [SLAVE, TESTS]),
        (["no-members:test-*", "no-slave:broker-a"], [BILLING]),
        (["no-members:Billing"], found),
    ):
        selection = selection_of([], ignored, RULES)
        shown, left_out = selection.split(found)
        assert shown == left
        assert len(shown) + len(left_out) == len(found)
        assert selection.idle_entries(found) == (ignored if shown == found else [])


def test_only_the_named_rules_are_asked() -> None:
    chosen = selection_of(["two-masters,no-slave", "no-master"], [], RULES).rules_of(RULES)
    assert sorted(rule.code for rule in chosen) == ["no-master", "no-slave", "two-masters"]
    assert selection_of([], [], RULES).rules_of(RULES) == list(RULES)


@pytest.mark.parametrize(
    ("only", "ignored", "said"),
    [
        (["two-master"], [], "no rule two-master: did you mean two-masters"),
        ([], ["nomembers:billing"], "no rule nomembers: did you mean no-members"),
        (["xyzzy"], [], "no rule xyzzy: docs/doctor.md lists all rules"),
        ([""], [], "no rule (empty)"),
    ],
)
def test_an_unknown_code_is_refused_with_the_nearest(
    only: list[str], ignored: list[str], said: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        selection_of(only, ignored, RULES)
    assert said in str(refusal.value)


def test_states_of_nagios() -> None:
    assert nagios_state([NOTE]) == (
        0,
        "DOCTOR OK - 0 errors, 0 warnings, 1 note | errors=0 warnings=0",
    )
    code, line = nagios_state([BILLING])
    assert (code, line.split(" | ")[1]) == (1, "errors=0 warnings=1")
    assert line.startswith("DOCTOR WARNING - 0 errors, 1 warning: no-members billing")
    assert nagios_state([SLAVE, BILLING]).code == 2
    piped = nagios_state([SLAVE._replace(about="a|b")]).line
    assert piped.count("|") == 1, "what stands behind the first | are numbers"
    code, line = nagios_state([BILLING], is_known=False)
    assert (code, line.split(" - ")[0]) == (3, "DOCTOR UNKNOWN")
    many = [BILLING._replace(about=str(n)) for n in range(5)]
    assert "no-members 2 and 2 more" in nagios_state(many).line


def test_doctor_asks_one_rule_of_a_pair_and_says_how_many_errors_there_are() -> None:
    """A pair whose slave stops has one error, which can be ignored, and then nothing is to do."""
    fleet = whole_pair()
    fleet.stop("b")
    scope = DoctorScope(again_s=0)

    def typed(only: list[str], ignored: list[str], as_json: bool = False) -> tuple[int, str]:
        selection = selection_of(only, ignored, RULES)
        said = say(fleet, lambda s: examine(s, scope, selection), as_json=as_json)
        return said.code, said.out + said.err

    code, text = typed(["two-masters"], [])
    assert code == 0
    assert "nothing to do: 0 errors, 0 warnings; 1 rule looked at" in text.splitlines()[-1]
    every = say(fleet, lambda s: examine(s, scope)).json
    assert every["errors"] + every["warnings"] > 0
    bad = sorted({item["code"] for item in every["findings"] if item["severity"] != "note"})
    code, text = typed([], [*bad, "no-members:nobody"])
    last = next(line for line in text.splitlines() if "looked at 1" in line)
    assert (code, "0 errors, 0 warnings" in last, " ignored;" in last) == (0, True, True)
    assert "--ignore no-members:nobody matches no finding" in text
    nagios = say(fleet, lambda s: examine_for_nagios(s, scope, (), ()), as_json=False)
    assert nagios.code == (2 if every["errors"] else 1)
    assert nagios.out.startswith("DOCTOR ")
    assert f"errors={every['errors']} warnings={every['warnings']}" in nagios.out.splitlines()[0]


def test_doctor_that_fails_is_unknown_to_nagios() -> None:
    fleet = Fleet("a")
    scope = DoctorScope(again_s=0)
    silent = say(
        fleet, lambda s: examine_for_nagios(s, scope, (), ()), as_json=False, namesrv="10.9.9.9:1"
    )
    assert (silent.code, silent.out.startswith("DOCTOR UNKNOWN - no server answers")) == (3, True)
    for words in ((("two-master",), ()), ((), ("nobody",))):
        wrong = say(
            fleet, lambda s, words=words: examine_for_nagios(s, scope, *words), as_json=False
        )
        assert (wrong.code, wrong.out.startswith("DOCTOR UNKNOWN - doctor has no rule")) == (3, 1)
    unnamed = say(fleet, lambda s: examine_for_nagios(s, scope, (), ()), namesrv="")
    assert (unnamed.code, unnamed.json["exit_code"]) == (3, 3)
