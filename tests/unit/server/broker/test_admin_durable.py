"""Topics and groups that an operator changes are on the disk when the answer says so."""

from typing import Any

import pytest
from twisted.internet.defer import gatherResults

from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import SimBroker

TOPIC = {
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


def make_topic(name: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topic": name})


def make_group(name: str) -> RemotingCommand:
    body = fastjson.encode(SubscriptionGroupConfig(name))
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)


CHANGES = {
    "topic made": (make_topic("New"), "topics", lambda it: it.get("New") is not None),
    "group made": (make_group("new"), "groups", lambda it: it.get("new") is not None),
    "topic deleted": (
        RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Old"}),
        "topics",
        lambda it: it.get("Old") is None,
    ),
    "group deleted": (
        RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "old"}),
        "groups",
        lambda it: it.get("old") is None,
    ),
}


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest) -> Any:
    return CHANGES[request.param]


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    assert broker.call(make_topic("Old")).code == broker.call(make_group("old")).code == 0
    return broker


def test_a_power_loss_right_after_the_answer(broker: SimBroker, change: Any) -> None:
    """The next start knows the change."""
    request, table, is_done = change
    assert broker.call(request).code == 0
    broker.host.crash(power=True)
    broker.host.restart()
    broker.client_host.crash()
    broker.client_host.restart()
    broker.start()
    assert is_done(getattr(broker.broker, table))


def test_a_disk_that_refuses(broker: SimBroker, change: Any) -> None:
    """It is said; with the next change everything is written."""
    request, table, is_done = change
    disk, replace = broker.host.disk, broker.host.disk.replace

    def full(path: str, data: bytes, *, backup: bool = False) -> None:
        raise OSError(28, "No space left on device")

    disk.replace = full
    answer = broker.call(request)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "could not be written" in (answer.remark or "")
    assert is_done(getattr(broker.broker, table))
    disk.replace = replace
    assert broker.call(request).code == 0


def test_what_comes_during_a_write_shares_the_next_one(broker: SimBroker) -> None:
    """A hundred topics that operators make at once are two writes, not a hundred."""
    written = []
    disk, replace = broker.host.disk, broker.host.disk.replace

    def counted(path: str, data: bytes, *, backup: bool = False) -> None:
        written.append(path)
        replace(path, data, backup=backup)

    disk.replace = counted
    asked = [broker.ask(make_topic(f"T{number}")) for number in range(100)]
    answers = broker.wait(gatherResults(asked))
    assert {answer.code for answer in answers} == {0}
    assert len(written) < 20
    assert set(broker.broker.topics.table) >= {f"T{number}" for number in range(100)}


def test_a_stop_writes_what_the_disk_refused(broker: SimBroker) -> None:
    """Its tables are dirty, and nothing else would write them."""
    disk, replace = broker.host.disk, broker.host.disk.replace

    def full(path: str, data: bytes, *, backup: bool = False) -> None:
        raise OSError(28, "No space left on device")

    disk.replace = full
    assert broker.call(make_topic("New")).code == ResponseCode.SYSTEM_ERROR
    assert broker.call(make_group("new")).code == ResponseCode.SYSTEM_ERROR
    disk.replace = replace
    broker.stop()
    broker.start()
    assert broker.broker.topics.get("New") is not None
    assert broker.broker.groups.get("new") is not None


def test_a_topic_made_by_a_send_is_known_after_a_kill(broker: SimBroker) -> None:
    """Of each message that was acknowledged, also those that came after the first."""
    broker.host.worker.delay = (0.5, 0.5)  # a table's write takes its time
    asked = [broker.ask(broker.message(topic="Sent")) for _ in range(3)]
    broker.world.clock.run_for(0.1)
    asked += [broker.ask(broker.message(topic="Sent")) for _ in range(3)]
    for item in asked:
        item.addErrback(lambda _: None)  # the connection that the kill ends
    broker.world.clock.run_while(lambda: not any(item.called for item in asked), 10)
    broker.host.crash()
    broker.host.restart()
    broker.start()
    assert broker.broker.topics.get("Sent") is not None


def test_sends_of_known_topics_do_not_wait_for_a_table_that_cannot_be_written(
    broker: SimBroker,
) -> None:
    disk = broker.host.disk

    def full(path: str, data: bytes, *, backup: bool = False) -> None:
        raise OSError(28, "No space left on device")

    disk.replace = full
    assert broker.call(make_topic("New")).code == ResponseCode.SYSTEM_ERROR
    assert broker.call(broker.message(topic="New")).code == 0
    assert broker.call(broker.message(topic="Old")).code == 0
