"""Each fact about a configuration key stands in its row, and code asks the row."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import rmq_ha
from rmq_ha.base.config.all_keys import ALL_KEYS, CONFIG_CLASSES
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.fields import FirstReader, Key, keys_of
from rmq_ha.base.config.unserved_keys import UNSERVED

PACKAGE = Path(rmq_ha.__file__).parent
TOLD_APART = ("meaning", "attribute", "since", "is_optional", "needs")
"""What may differ where two servers read one key: `aclEnable` is RocketMQ's in a broker only."""
RULES = [
    ("rmq_ha/base/config/controller_mode.py", ("brokerRole", "brokerId", "haMasterAddress")),
    ("rmq_ha/ops/offsets/live.py", ("brokerName", "brokerClusterName", "msgTraceTopicName")),
]
"""What an election overwrites, and which topics a broker makes: no facts about the keys."""


def named_keys(node: ast.AST) -> tuple[str, ...]:
    """The keys that a literal lists, if it lists nothing else."""
    parts: list[ast.expr | None] = []
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = list(node.elts)
    elif isinstance(node, ast.Dict):
        parts = list(node.keys)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        parts = [ast.Constant(word) for word in node.value.split()]
    names = [part.value for part in parts if isinstance(part, ast.Constant)]
    if len(names) == len(parts) and all(name in ALL_KEYS for name in names):
        return tuple(str(name) for name in names)
    return ()


def tables(source: str) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(ast.parse(source)):
        found = named_keys(node)
        if len(found) >= 3:
            yield found


def test_a_table_of_keys_is_found() -> None:
    assert list(tables('A = ("brokerId", "deleteWhen", "aclEnable")')) == [
        ("brokerId", "deleteWhen", "aclEnable")
    ]
    assert list(tables('A = "brokerId deleteWhen aclEnable".split()')) != []
    assert list(tables('A = {"brokerId": 1, "deleteWhen": 2, "other": 3}')) == []


def test_no_second_table_of_keys_exists() -> None:
    """Three names or more in one literal are a table; `unserved_keys.py` has the only one."""
    found = [
        (str(path.relative_to(PACKAGE.parent)), names)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "unserved_keys.py"
        for names in tables(path.read_text())
    ]
    assert found == RULES


def test_a_key_that_two_servers_read_has_one_set_of_facts() -> None:
    facts = [item.name for item in fields(Key) if item.name not in TOLD_APART]
    seen: dict[str, Key] = {}
    for each in CONFIG_CLASSES:
        for name, row in keys_of(each).items():
            first = seen.setdefault(name, row)
            differing = [fact for fact in facts if getattr(first, fact) != getattr(row, fact)]
            assert differing == [], name


def test_a_key_is_declared_or_unserved() -> None:
    declared = {name for each in CONFIG_CLASSES for name in keys_of(each)}
    assert declared & UNSERVED.keys() == set()


def test_every_fact_that_names_a_key_names_one_that_exists() -> None:
    switches = {row.needs for row in ALL_KEYS.values() if row.needs.isidentifier()}
    assert switches
    assert all(ALL_KEYS[name].kind is bool for name in switches)


def test_every_row_has_a_meaning_or_a_reason() -> None:
    """A meaning that repeats the name says nothing."""
    for name, row in ALL_KEYS.items():
        if name not in UNSERVED:
            assert len(row.meaning.split()) > 2, name


def test_a_key_that_changes_at_run_time_may_be_changed_by_a_request() -> None:
    for name, row in ALL_KEYS.items():
        assert not (row.is_mutable and row.local), name


def test_unserved_keys_are_no_attributes_of_the_configuration() -> None:
    configuration = BrokerConfiguration()
    shown = keys_of(configuration.unserved)
    assert len(shown) > 75
    assert all(row.since is FirstReader.RMQ_4 for row in shown.values())
