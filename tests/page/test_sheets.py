"""
All that the page and a scrape show of a small cluster, number by number, as was agreed to once
(`agreed.py`): a rate that is another one, a row too many or a figure that is left out is seen here.
"""

from typing import Any

import msgspec
import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.app.page.server_boards import ControllerBoard
from tests.kits.agreed import is_ours, must_be_agreed
from tests.page.cluster import PageCluster
from tests.page.test_api import Asking
from tests.unit.server.controller.controllers import Controllers

PATHS = [
    "/api/overview",
    "/api/history",
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
    beat = HeartbeatData(
        "maker@1", [ConsumerData("late", "CONSUME_PASSIVELY")], [ProducerData("makers")]
    )
    command = RemotingCommand(RequestCode.HEART_BEAT, None, beat.encode())
    made.wait(made.sender.invoke(made.address("broker-a"), command, 3000))
    wrong = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "7"})
    made.wait(made.sender.invoke(made.address("broker-a"), wrong, 3000))
    made.run(25)
    return made


@pytest.mark.usefixtures("asking_takes_no_time")
def test_everything_shown_is_what_was_agreed_to() -> None:
    made = filled()
    found: dict[str, Any] = {}
    for name in ("broker-a", "broker-b"):
        ask = Asking(made, made.hosts[name])
        ask.get("/api/overview")
        made.run(11)
        for path in PATHS:
            status, _, answer = ask(path)
            found[f"{name} {path}"] = [status, answer]
        lines = ask("/metrics")[2].splitlines()
        scrape = [line for line in lines if not line.startswith("#") and is_ours(line)]
        found[f"{name} /metrics"] = sorted(scrape)
        found[f"{name} /healthz"] = [ask("/healthz")[2]]
    must_be_agreed("pair", found)


def test_every_controller_shows_who_leads() -> None:
    desk = Controllers(3)
    desk.pair()
    boards = {service.group.settings.self_id: service for service in desk.services}
    found: dict[str, Any] = {}
    for moment in ("both", "one is dead"):
        for name, service in sorted(boards.items()):
            host = desk.hosts[desk.services.index(service)]
            board = ControllerBoard(host.seams, service)
            board.start()
            desk.world.clock.run_for(3)
            found[f"{name}, {moment}"] = {
                "overview": msgspec.to_builtins(board.overview()),
                "measured": dict(board.measured()),
                "seen": msgspec.to_builtins(board.server_state()._asdict()),
            }
            board.stop()
        if moment == "both":
            desk.brokers[1].host.crash()
            desk.world.clock.run_for(30)
    must_be_agreed("controllers", found)
