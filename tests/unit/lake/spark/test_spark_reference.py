"""The pages docs/reference/spark-*.md name every code, its severity, every option and column."""

import re
from pathlib import Path

import pytest

from rmq_ha.lake.spark.audit.rules import SEVERITIES
from rmq_ha.lake.spark.source.option_names import ALIASES
from rmq_ha.lake.spark.source.options import SOURCE_NAMES
from rmq_ha.lake.spark.source.schema import COLUMNS, TABLE_COLUMNS
from rmq_ha.lake.spark.source.sink_options import OTHER_NAMES, SINK_COLUMNS, SINK_NAMES
from rmq_ha.ops.checks import codes as replica
from rmq_ha.ops.offsets import codes as offsets

REFERENCE = Path(__file__).parents[4] / "docs" / "reference"
FINDINGS = (REFERENCE / "spark-findings.md").read_text()
SOURCE = (REFERENCE / "spark-source.md").read_text()
FLEET = {
    "DIGEST_DIFFERS", "WINDOW_CHANGED", "SAME_STORE", "GRID_DIFFERS", "NOT_COMPARED", "NO_REPLICA",
    "NO_MASTER", "FACTS_DAMAGED", "FACTS_OLD", "LOOK_OLD", "ALONE",
}  # fmt: skip


def section(name: str) -> str:
    return FINDINGS.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def documented_severities(name: str) -> dict[str, str]:
    """Code to severity, of the rows of one section."""
    return dict(re.findall(r"^\| `([A-Z_]+)` \| (\w+) \|", section(name), re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("verify-offsets", {code: m.severity for code, m in offsets.MEANINGS.items()}),
        (
            "verify-replica",
            {code: m.severity for code, m in replica.MEANINGS.items() if code not in FLEET},
        ),
        ("verify-fleet", {code: replica.MEANINGS[code].severity for code in FLEET}),
        ("audit-messages", {str(code): severity for code, severity in SEVERITIES.items()}),
    ],
)
def test_each_code_of_a_job_is_documented_with_its_severity(
    name: str, expected: dict[str, object]
) -> None:
    assert documented_severities(name) == {
        code: str(severity) for code, severity in expected.items()
    }


def words_in_code(text: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", text))


def test_each_option_and_each_spelling_of_it_is_documented() -> None:
    assert {*SOURCE_NAMES, *SINK_NAMES, *ALIASES} - words_in_code(SOURCE) == set()


def test_each_column_of_messages_and_of_the_sink_is_documented() -> None:
    assert {*COLUMNS, *SINK_COLUMNS, *OTHER_NAMES} - words_in_code(SOURCE) == set()


@pytest.mark.parametrize("table", TABLE_COLUMNS)
def test_each_table_is_documented_with_its_columns_in_their_order(table: str) -> None:
    (row,) = re.findall(rf"^\| `{table}` \| (.*) \|$", SOURCE, re.MULTILINE)
    found = re.findall(r"`(\w+)`", row)
    assert ["brokerName", *found] == list(TABLE_COLUMNS[table])
