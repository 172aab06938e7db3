"""
All that the page and a scrape show of a small cluster, number by number, as it was read and agreed
to once: a rate that is another one, a row too many or a figure that is left out is seen here.

`RMQ_HA_SHEETS=1 python -m pytest tests/page/test_sheets.py` writes what is shown now; look at what
changed (`git diff tests/page/data`) before you keep it.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.model.status import BrokerRole
from rmq_ha.wire.bodies import ConsumerData, HeartbeatData
from rmq_ha.wire.codes import RequestCode
from rmq_ha.wire.command import RemotingCommand
from tests.page import cluster as kit
from tests.page.cluster import PageCluster
from tests.page.test_api import Asking

DATA = Path(__file__).parent / "data" / "sheets.json"
PATHS = [
    "/api/overview",
    "/api/history",
    "/api/events",
    "/api/topics?limit=50",
    "/api/topics?sort=messages&limit=2",
    "/api/topics?kind=normal&text=ord",
    "/api/topic?name=orders",
    "/api/topic?name=audit",
    "/api/groups?limit=50",
    "/api/groups?sort=lag&limit=1",
    "/api/group?name=fulfilment",
    "/api/group?name=late",
    "/api/clients?limit=50",
    "/api/search?by=key&topic=orders&value=k1",
    "/api/search?by=time&topic=audit",
]
NOT_OURS = re.compile(
    r"python|twisted|version|process_|build_info|reactor|uptime|_created|_seconds_(sum|bucket)"
)
"""What is of this machine, of this release, or of how long a simulated packet takes."""


def filled() -> PageCluster:
    """A pair: a topic that is read, one whose group is behind, dead letters, delayed messages."""
    made = PageCluster("127.0.8")
    made.add("broker-a")
    made.add("broker-b", BrokerRole.SLAVE, of="broker-a")
    made.run(40)
    for topic, queues in (("orders", 4), ("audit", 2), ("%DLQ%late", 1), ("%RETRY%late", 1)):
        made.topic("broker-a", topic, queues)
    made.consume("shop-1", "fulfilment", "orders")
    made.run(35)
    made.send("broker-a", "orders", 40)
    made.send("broker-a", "audit", 12, queues=2, body=b"who did what")
    made.send("broker-a", "%DLQ%late", 3, queues=1)
    made.send("broker-a", "%RETRY%late", 5, queues=1)
    made.send_one("broker-a", "orders", b"\xff no text", "KEYS\x01k1 k2\x02TAGS\x01t\x02")
    made.send_one("broker-a", "orders", b"later", "DELAY\x0118\x02")
    offsets = made.brokers["broker-a"].consumer_offsets
    for topic, queue_id, offset in (("audit", 0, 2), ("audit", 1, 9), ("%RETRY%late", 0, 1)):
        offsets.commit("late", topic, queue_id, offset)
    beat = HeartbeatData("maker@1", [ConsumerData("late", "CONSUME_PASSIVELY")], ["makers"])
    command = RemotingCommand(RequestCode.HEART_BEAT, None, beat.encode())
    made.wait(made.sender.invoke(made.address("broker-a"), command, 3000))
    wrong = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "7"})
    made.wait(made.sender.invoke(made.address("broker-a"), wrong, 3000))
    made.run(25)
    return made


def agreed(value: Any) -> Any:
    """Without what is not ours to agree to."""
    if isinstance(value, dict):
        return {
            key: item // 10_000 if key.endswith("_ms") and isinstance(item, int) else agreed(item)
            for key, item in value.items()
            if not NOT_OURS.search(key)
        }
    if isinstance(value, list):
        return [agreed(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


def test_everything_shown_is_what_was_agreed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit.time, "monotonic", lambda: 0.0)  # asking takes no simulated time
    made = filled()
    found: dict[str, Any] = {}
    for name in ("broker-a", "broker-b"):
        ask = Asking(made, made.hosts[name])
        ask.get("/api/overview")
        made.run(11)
        for path in PATHS:
            status, _, answer = ask(path)
            found[f"{name} {path}"] = [status, agreed(answer)]
        scrape = [line for line in ask("/metrics")[2].splitlines() if not line.startswith("#")]
        found[f"{name} /metrics"] = sorted(line for line in scrape if not NOT_OURS.search(line))
        found[f"{name} /healthz"] = ask("/healthz")[2]
    text = json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("RMQ_HA_SHEETS"):
        DATA.write_text(text, encoding="utf-8")
    known = json.loads(DATA.read_text(encoding="utf-8"))
    assert found.keys() == known.keys()
    for key, value in json.loads(text).items():
        assert value == known[key], key
