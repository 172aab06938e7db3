"""`docs/doctor.md` says what the rules say, and each rule has a test that makes its fault."""

from __future__ import annotations

import re

from rmq_ha.ops.admin.doctor.rules import RULES
from tests.unit.ops.admin.doctor.document import (
    CODES,
    MET,
    NOT_PROVOKED,
    PROVOKED,
    provoking_tests,
    rows,
    written,
)


def test_the_document_has_every_code_with_its_cause_and_fix() -> None:
    """If not: `python -m tests.unit.ops.admin.doctor.document`."""
    assert written(CODES) == rows(CODES)
    assert written(PROVOKED) == rows(PROVOKED)


def test_each_fault_is_made_or_it_is_said_why_not() -> None:
    """What is made is not excused, and nothing is found that there is no rule for."""
    codes = {rule.code for rule in RULES}
    made = set(provoking_tests())
    assert made | set(NOT_PROVOKED) == codes
    assert not made & set(NOT_PROVOKED)


def test_what_users_met_is_made() -> None:
    """Each fault that the issue and our users name has a code, whose fault a test makes."""
    made = provoking_tests()
    met = written(MET)
    assert len(met) > 45
    for row in met:
        codes = re.findall("`([a-z-]+)`", row.rpartition("|")[2])
        assert codes, row
        assert not [code for code in codes if code not in made], row
