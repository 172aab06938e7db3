"""
Lines of which each is typed as programs and as people type it, for a small cluster.

What they say is held against what was agreed to (`conftest.py`), which is all that is asserted.
"""

from __future__ import annotations

import pytest

from rmq_ha.model.status import BrokerRole
from tests.unit.admin.typing_kit import Typist
from tests.unit.client.sim_cluster import SimCluster

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
    for line in LINES + CHANGES:
        typed(line)
        typed.as_typed(line)
    cluster.crash("two", power=True)
    for line in ("broker list", "group list", "ha status", "cluster list", "topic status Orders"):
        typed(line)
