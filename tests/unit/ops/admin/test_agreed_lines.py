"""What lines say of a small cluster, as was agreed to once (`tests/kits/agreed.py`)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from tests.kits.agreed import must_be_agreed
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Answer, Typist

LINES = [
    "broker config get one brokerName brokerRole fileReservedTime",
    "broker list",
    "broker status one",
    "cluster export --offsets",
    "cluster list",
    "cluster ping --count 1",
    "connections",
    "dlq list",
    "dlq list --fail-above 0",
    "dlq show g",
    "group clients g",
    "group list",
    "group show g",
    "ha status",
    "kv list",
    "lag g",
    "lag g --fail-above 5",
    "message show --key k1 --topic Orders",
    "namesrv config get",
    "route Orders",
    "stats",
    "stats --all",
    "tail Orders --since earliest --no-follow",
    "top --count 1",
    "topic allocate Orders m1 m2 m3",
    "topic list",
    "topic list --all",
    "topic status Orders",
    "doctor",
]
CHANGES = [
    "broker clean one topics --dry-run",
    "broker config set one fileReservedTime=12 flushDiskType=SYNC_FLUSH --dry-run",
    "broker writes one off --dry-run",
    "group clone g other --dry-run",
    "group delete g --dry-run",
    "group update g --retries 3 --dry-run",
    "kv set colour green --dry-run",
    "reset-offset Orders -g g --to earliest --dry-run",
    "topic delete Orders --dry-run",
    "topic update Orders --queues 8 --dry-run",
]
_CHANGING = re.compile(
    r"[0-9A-F]{24,32}|1[67]\d{11}|\d+\.\d+|\d\d:\d\d:\d\d(?:\.\d+)?|\b\d{5}@\S+|\d+ ms"
)
"""Ids, moments, and what takes as long as a simulated packet takes."""
_COLUMN = re.compile(r" {2,}(?=#)")
"""A column that changes is as wide as its widest value of the moment."""
_OF_BOTH = ("message show", "tail")
"""Their lines come from two brokers, in the order in which these answer."""
_RULES = re.compile(r"by \d+ rules")


def said(told: Answer) -> list[object]:
    """Its exit code and its lines, without what changes."""
    return [told.code, *map(steady_line, (told.out + told.err).splitlines())]


def steady_line(line: str) -> object:
    """A line of JSON as the object that it is: a key more is a line more of the sheet."""
    return steady(json.loads(line)) if line.startswith("{") else steady(line)


def steady(value: Any) -> Any:
    """Without what changes with the machine, the moment, or the number of rules."""
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items()}
    if isinstance(value, list):
        return [steady(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = _CHANGING.sub("#", str(value))
        return "#" if "#" in text else value
    if not isinstance(value, str):
        return value
    return _RULES.sub("by # rules", _COLUMN.sub("  ", _CHANGING.sub("#", value)))


def test_what_is_said_was_agreed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimCluster("one", "two")
    cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "one", "broker_id": 1})
    cluster.run(12)
    typed = Typist(cluster, monkeypatch)
    typed.does("topic create Orders --queues 2")
    typed.does("topic create %DLQ%g --queues 1")
    typed.does("produce Orders --quiet --key k1 --tags red", given="a\nb\nc\nd\n")
    typed.does("produce Orders e --quiet --count 9 --tags blue")
    typed.does("produce %DLQ%g dead --quiet --count 2")
    typed.does("consume Orders -g g --count 3")
    typed.does("kv set size large --yes")
    cluster.run(61)
    found: dict[str, object] = {}
    for line in LINES + CHANGES:
        for how in (["--json"], []):
            code, *lines = said(typed.as_typed(line, *how))
            if line.startswith(_OF_BOTH):
                lines.sort(key=json.dumps)
            found[" ".join([line, *how])] = [code, *lines]
        if found[line] == found[f"{line} --json"]:
            found[line] = "as with --json"
    cluster.crash("two", power=True)
    for line in ("broker list", "group list", "ha status", "cluster list", "topic status Orders"):
        found[f"{line}, two is silent"] = said(typed(line))
    must_be_agreed("admin", found)
