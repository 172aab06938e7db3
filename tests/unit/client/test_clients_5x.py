"""docs/clients-5x.md: what 5.3.3's remoting client asks is answered as by Java 4.9.7."""

import re
from pathlib import Path

from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.send.producer import Producer
from tests.unit.client.sim_cluster import SimCluster

DOCUMENT = (Path(__file__).parents[3] / "docs" / "clients-5x.md").read_text()
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (?:([^|]+) \| )?([^|]+) \| ([^|]+) \|$", re.MULTILINE)
RECORDED = {int(row[1]): row for row in ROW.finditer(DOCUMENT) if row[3]}
NEW = {int(row[1]): row for row in ROW.finditer(DOCUMENT) if not row[3]}
SERVED = {
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    *range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1),
}
"""Codes of 5.x that a broker serves with default settings."""
OF_CLIENTS = {RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}


def answers(cluster: SimCluster, address: str, codes: list[int]) -> dict[int, int]:
    """Of a server that is asked with nothing but the code."""
    client = cluster.client()
    producer = Producer(client)
    cluster.wait(producer.start())
    cluster.wait(producer.send(Message("T", b"x")))
    found = {}
    for code in codes:
        asked = client.invoke(address, RemotingCommand(code, {}), 3000)
        found[code] = cluster.wait(asked).code
    return found


def test_the_document_has_what_was_recorded() -> None:
    """Both columns say the same, but for the codes that are served."""
    assert len(RECORDED) == 19
    assert len(NEW) == 57
    for code, row in (RECORDED | NEW).items():
        assert (row[4] == row[5]) is (code not in SERVED)
    assert {code: row[2] for code, row in RECORDED.items()} == {
        code: RequestCode(code).name for code in RECORDED
    }


def test_what_4_9_does_not_know_is_refused_by_its_code() -> None:
    """A client of 5.x sees that this is a broker of 4.9: no silence, no answer of another kind."""
    cluster = SimCluster("a")
    codes = [code for code in NEW if code not in SERVED]
    found = answers(cluster, cluster.address("a"), codes)
    assert found == dict.fromkeys(codes, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def test_what_is_asked_is_served() -> None:
    """Each recorded code has somebody who answers it, if only that its fields are missing."""
    cluster = SimCluster("a")
    route = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    codes = [code for code in RECORDED if code not in OF_CLIENTS and code != route]
    found = answers(cluster, cluster.address("a"), codes)
    found |= answers(cluster, cluster.namesrv.address, [route])
    assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED not in found.values(), found
