"""What the pages of a name server and of a controller show."""

import pytest

from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.app.namesrv_server import NamesrvServer
from rmq_ha.ops.app.page.server_boards import ControllerBoard
from rmq_ha.ops.app.page.values import Tone
from rmq_ha.testing.brokers import NAMESRV_PORT
from tests.kits.agreed import must_be_agreed
from tests.page.cluster import STATUS_PORT, PageCluster
from tests.page.test_api import Asking
from tests.unit.server.controller.controllers import Controllers


@pytest.mark.usefixtures("asking_takes_no_time")
def test_a_name_server_shows_who_is_registered() -> None:
    cluster = PageCluster()
    host = cluster.world.add("names")
    configuration = NamesrvConfiguration()
    configuration.server.listen_port = NAMESRV_PORT
    configuration.namesrv.metrics_port, configuration.namesrv.metrics_address = STATUS_PORT, host.ip
    configuration.namesrv.kv_config_path = "/namesrv/kv.json"
    server = NamesrvServer(host.seams, configuration)
    cluster.wait(server.start())
    cluster.namesrv.host, before = host, cluster.namesrv.host
    cluster.add("broker-a")
    cluster.add("broker-b", BrokerRole.SLAVE, of="broker-a")
    cluster.run(5)
    ask = Asking(cluster, host)
    sheet = ask.get("/api/overview")
    assert sheet["server"] == "namesrv"
    assert [(item["set_name"], item["broker_id"]) for item in sheet["machines"]] == [
        ("broker-a", 0),
        ("broker-a", 1),
    ]
    assert sheet["notices"] == []
    both = sheet
    cluster.crash("broker-a", power=False)
    cluster.run(3)
    sheet = ask.get("/api/overview")
    assert [item["text"] for item in sheet["notices"]] == [
        "broker-a has no master: it takes no messages"
    ]
    texts = [event["text"] for event in ask.get("/api/events")["events"]]
    assert any("not registered any more" in text for text in texts)
    assert ask("/api/topics")[0] == 404
    cluster.run(10)
    assert ask.get("/api/history")["series"]["brokers"] == [0.0, 1.0]
    must_be_agreed("namesrv", {"both": both, "one is gone": sheet})
    cluster.namesrv.host = before
    cluster.wait(server.stop())


def test_a_broker_that_stands_alone_says_so_where_that_costs_safety() -> None:
    cluster = PageCluster("127.0.9")
    found = {}
    for name, role in (("one", BrokerRole.SYNC_MASTER), ("two", BrokerRole.ASYNC_MASTER)):
        cluster.add(name, role)
        cluster.run(3)
        sheet = Asking(cluster, cluster.hosts[name]).get("/api/overview")
        found[name] = [item["text"] for item in sheet["notices"]]
    alone = "no slave is connected: new messages are on this machine only"
    assert found == {"one": [alone], "two": []}


def test_a_controller_shows_who_leads_and_who_is_in_sync() -> None:
    desk = Controllers()
    desk.pair()
    board = ControllerBoard(desk.hosts[0].seams, desk.services[0])
    board.start()
    desk.world.clock.run_for(3)
    sheet = board.overview()
    found = [(item.broker_id, item.role, item.note, item.tone) for item in sheet.machines]
    assert found == [
        (1, "master", "in sync", Tone.GOOD),
        (2, "slave", "in sync", Tone.GOOD),
    ]
    assert (sheet.role, sheet.notices) == ("LEADER", [])
    assert [(item.role, item.state) for item in sheet.members] == [("leader", "decides")]
    desk.brokers[1].host.crash()
    desk.world.clock.run_for(5)
    masters = [item.broker_id for item in board.overview().machines if item.role == "master"]
    assert masters == [2]
    desk.world.clock.run_for(30)
    assert [item.tone for item in board.overview().machines] == [Tone.ERROR, Tone.GOOD]
    board.stop()
