"""What /metrics tell: what was since the start, and what happens while `doctor` looks."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus
from rmq_ha.server.replication.classic.frames import encode_report
from rmq_ha.testing.cluster import HA_PORT, LISTEN_PORT
from tests.unit.ops.admin.doctor.fleet import Fleet, whole_pair

MASTER, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
ADMIN = Credentials("adminadmin", "adminsecret")
ACCOUNT = "{accessKey: adminadmin, secretKey: adminsecret, admin: true}"


def one(**changes: Any) -> Fleet:
    """A broker with a status port and a topic; nothing is wrong."""
    fleet = Fleet(watched=True)
    fleet.add("a", **changes)
    fleet.make_topic(queues=1)
    fleet.run(5)
    fleet.is_well()
    return fleet


def consumed(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def test_a_disk_that_tells_other_bytes() -> None:
    """In a message, and in a place of a queue; somebody reads both."""
    fleet = one()
    answers = fleet.send("Work", 6, 100)
    fleet.run(5)
    disk = fleet.hosts["a"].disk
    log = "/store/commitlog/00000000000000000000"
    record = disk.content(log).index(b"m" * 100)
    disk.open(log, 32768).pwrite(b"x", record + 50)
    unit = answers[3].queue_offset * 20
    disk.open("/store/consumequeue/Work/0/00000000000000000000", 1000).pwrite(b"\xff" * 8, unit)
    fleet.member("m1", consumed)
    fleet.run(20)
    fleet.finds("messages-damaged")
    fleet.finds("queues-mended")


def test_a_slave_whose_log_was_another() -> None:
    """It set its end aside and follows; its master remembers."""
    fleet = whole_pair(watched=True)
    fleet.make_topic()
    fleet.send("Work")
    fleet.stop("b")
    fleet.send("Work", 3)
    fleet.crash("a")
    fleet.add("b", MASTER)
    fleet.run(12)
    fleet.send("Work", 5, 40)
    fleet.add("a", SLAVE, broker={"broker_id": 1})
    fleet.run(30)
    fleet.finds("slave-diverged-once")


def test_a_slave_that_comes_as_one_of_java() -> None:
    """It says nothing but where its log ends: within a message that nobody sent it."""
    fleet = one()
    fleet.send("Work", 3, 100)
    host = fleet.hosts["java"] = fleet.world.add("java")
    factory = Factory.forProtocol(lambda: _Stranger(encode_report(100)))
    fleet.wait(host.network.client(fleet.hosts["a"].ip, HA_PORT).connect(factory))
    fleet.run(2)
    fleet.finds("slave-doubtful")


def test_sends_without_a_slave() -> None:
    """Until it is there again."""
    fleet = whole_pair(watched=True)
    fleet.make_topic()
    fleet.again("maker", fleet.sending("maker"))
    fleet.is_well()
    fleet.stop("b")
    assert "(SLAVE_NOT_AVAILABLE)" in fleet.finds("acks-degraded", "no-slave")
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    fleet.is_well()


def test_sends_to_a_full_disk() -> None:
    fleet = one()
    fleet.again("maker", fleet.sending("maker"))
    disk = fleet.hosts["a"].disk
    usage = disk.usage("/store")
    assert usage is not None
    disk.capacity = round(usage.used / 0.95)
    fleet.run(12)
    assert "(SERVICE_NOT_AVAILABLE)" in fleet.finds("puts-refused", "disk-full", "not-ready")
    disk.capacity = 1 << 40
    fleet.run(12)
    fleet.is_well()


def test_a_name_server_that_the_broker_cannot_reach() -> None:
    """Clients do, for a while: it is known there still."""
    fleet = one()
    fleet.world.network.block("ns", 9876, "a")
    for end in fleet.world.network.connections_between("a", "ns"):
        fleet.world.network.half_open(end)
    fleet.run(40)
    fleet.finds("registration-fails")
    fleet.world.network.heal()
    fleet.run(40)
    fleet.is_well()


def guarded() -> Fleet:
    fleet = Fleet(watched=True)
    fleet.add_guarded("a", f"accounts:\n- {ACCOUNT}\n")
    fleet.run(5)
    fleet.is_well(credentials=ADMIN)
    return fleet


def test_a_client_with_another_secret() -> None:
    fleet = guarded()
    wrong = Credentials("adminadmin", "othersecret")
    fleet.again("maker", fleet.sending("maker", topic="TBW102", credentials=wrong))
    fleet.finds("access-refused", credentials=ADMIN)
    fleet.hosts["maker"].crash()
    fleet.run(1)
    fleet.is_well(credentials=ADMIN)


def test_a_client_whose_clock_is_wrong() -> None:
    fleet = guarded()
    fleet.again("maker", fleet.sending("maker", topic="TBW102", credentials=ADMIN))
    fleet.is_well(credentials=ADMIN)
    fleet.hosts["maker"].step_clock(3_600_000)
    fleet.finds("odd-times", credentials=ADMIN)
    fleet.hosts["maker"].step_clock(-3_600_000)
    fleet.run(1)
    fleet.is_well(credentials=ADMIN)


def test_a_slave_that_is_not_allowed() -> None:
    fleet = Fleet(watched=True)
    fleet.add("a", MASTER, ours={"ha_allowed_slaves": "10.9.9.9"})
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    fleet.finds("slave-refused", "not-following", "no-slave")
    fleet.stop("a")
    fleet.add("a", MASTER, ours={"ha_allowed_slaves": fleet.hosts["b"].ip})
    fleet.run(31)
    fleet.is_well()


@pytest.mark.parametrize("made", ["offsets-refused", "topics-not-made"])
def test_a_client_with_an_old_route_and_one_that_makes_topics_up(made: str) -> None:
    fleet = one(ours={"max_topics": 9})
    if made == "offsets-refused":
        ext = {"consumerGroup": "g", "topic": "Work", "queueId": "99", "commitOffset": "5"}
        fleet.again("old", fleet.asking("old", RequestCode.UPDATE_CONSUMER_OFFSET, ext))
        fleet.finds("offsets-refused")
    else:
        numbers = iter(range(1000))
        makes = {n: fleet.sending(f"maker{n}", topic=f"New{n}") for n in range(12)}
        fleet.again("up", lambda: makes[next(numbers) % 12]())
        fleet.run(12)
        fleet.finds("topics-not-made")
    fleet.hosts["old" if made == "offsets-refused" else "up"].crash()
    fleet.run(1)
    fleet.is_well()


def test_a_producer_of_rocketmq_5() -> None:
    """Then it leaves its own delay out."""
    fleet = one()
    ext = {"producerGroup": "P", "topic": "Work", "defaultTopic": "TBW102", "queueId": "0"}
    numbers = {"defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"}
    ext |= {**numbers, "properties": "TIMER_DELAY_SEC\x0160"}
    fleet.again("maker", fleet.asking("maker", RequestCode.SEND_MESSAGE, ext, b"later"))
    assert "TIMER_DELAY_SEC" in fleet.finds("properties-refused")
    fleet.hosts["maker"].crash()
    fleet.run(1)
    fleet.is_well()


class _Stranger(Protocol):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._data)


@pytest.mark.parametrize("kind", ["strangers", "frames-dropped"])
def test_somebody_who_speaks_something_else(kind: str) -> None:
    """HTTP, as a health check at the wrong port; then frames that never end."""
    fleet = one(server={"frame_timeout_seconds": 5})
    data = b"GET /healthz HTTP/1.0\r\n\r\n" if kind == "strangers" else b"\x00\x00\x10\x00\x00"
    host = fleet.hosts["other"] = fleet.world.add("other")
    there = fleet.hosts["a"].ip

    def knock() -> Any:
        factory = Factory.forProtocol(lambda: _Stranger(data))
        return host.network.client(there, LISTEN_PORT).connect(factory)

    fleet.again("other", knock)
    fleet.run(12)
    if kind == "strangers":
        fleet.finds("strangers")
    else:
        fleet.finds("frames-dropped")
    host.crash()
    fleet.run(10)
    fleet.is_well()


def test_more_topics_than_series() -> None:
    fleet = one(ours={"metrics_series_limit": 2})
    for number in range(4):
        fleet.make_topic(f"More{number}", 1)
        fleet.send(f"More{number}")
    fleet.finds("series-left-out")
