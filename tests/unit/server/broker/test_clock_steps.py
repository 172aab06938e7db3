"""A whole broker whose machine's wall clock is set by an hour, in either direction."""

import pytest

from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import LockBatch, MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker
from tests.unit.server.broker.sim_client import SimClient
from tests.unit.server.broker.transaction_kit import TransactionBroker

HOUR_MS = 3_600_000
BOTH_WAYS = pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
QUEUES = [MessageQueue("T", "broker-a", 0)]


def lock(member: SimClient) -> int:
    """How many queues are the member's now."""
    body = LockBatch("g", member.client_id, QUEUES).encode()
    answer = member.ask(RemotingCommand(RequestCode.LOCK_BATCH_MQ, body=body))
    return len(fastjson.parse(answer.body or b"")["lockOKMQSet"])


@BOTH_WAYS
def test_a_lock_is_nobody_elses_before_its_time_nor_for_ever(step_ms: int) -> None:
    """Else two members consume one queue, or nobody does for an hour."""
    broker = SimBroker().start()
    owner, other = SimClient(broker, "owner"), SimClient(broker, "other")
    assert lock(owner) == 1
    broker.host.step_clock(step_ms)
    broker.world.clock.run_for(15)  # a look for expired locks
    assert lock(other) == 0
    broker.world.clock.run_for(46)
    assert lock(other) == 1


@BOTH_WAYS
def test_members_live_as_long_as_they_do(step_ms: int) -> None:
    """Their connections are closed neither an hour too early nor too late."""
    broker = SimBroker().start()
    SimClient(broker, "silent")
    broker.host.step_clock(step_ms)
    broker.world.clock.run_for(60)
    assert broker.broker.consumers.client_ids("g") == ["silent"]
    broker.world.clock.run_for(80)
    assert broker.broker.consumers.client_ids("g") == []


def test_a_slow_disk_refuses_no_sends_for_an_hour() -> None:
    """The clock is set back in the second of a write that took too long."""
    broker = SimBroker().start()
    append = broker.broker.store.log.append_group

    def slowly(*arguments):
        broker.world.clock._now += 1.5
        return append(*arguments)

    broker.broker.store.log.append_group = slowly
    assert broker.send().code == 0
    broker.broker.store.log.append_group = append
    assert broker.broker.store.is_page_cache_busy()
    broker.host.step_clock(-HOUR_MS)
    broker.world.clock.run_for(2)
    assert not broker.broker.store.is_page_cache_busy()
    assert broker.send().code == 0


@BOTH_WAYS
def test_a_delayed_message_keeps_its_promise(step_ms: int) -> None:
    """By the time of day when that is set forward, and never later than its delay."""
    broker = SimBroker().start()
    broker.world.clock.run_for(2)
    level = 4 if step_ms < 0 else 18  # 30 s, 2 h
    assert broker.call(broker.message(DELAY=str(level))).code == 0
    broker.world.clock.run_for(5)
    broker.host.step_clock(step_ms)
    pull = pull_request("consumers", TOPIC, 0, 0)
    if step_ms > 0:
        assert broker.call(pull).code == ResponseCode.PULL_NOT_FOUND
        broker.host.step_clock(step_ms)
        broker.world.clock.run_for(2)
    else:
        broker.world.clock.run_for(20)
        assert broker.call(pull).code == ResponseCode.PULL_NOT_FOUND
        broker.world.clock.run_for(10)
    assert broker.call(pull).code == 0


@BOTH_WAYS
def test_a_delayed_message_after_the_step(step_ms: int) -> None:
    """The log's stamps do not go back with the clock; the delay is what was asked for."""
    broker = SimBroker().start()
    assert broker.call(broker.message(topic="Other")).code == 0
    broker.host.step_clock(step_ms)
    assert broker.call(broker.message(DELAY="3")).code == 0  # 10 s
    pull = pull_request("consumers", TOPIC, 0, 0)
    broker.world.clock.run_for(9.5)
    assert broker.call(pull).code == ResponseCode.PULL_NOT_FOUND
    broker.world.clock.run_for(1.5)
    assert broker.call(pull).code == 0


@BOTH_WAYS
def test_what_is_periodic_goes_on(step_ms: int) -> None:
    """Offsets reach the file, and rates have a number."""
    broker = SimBroker().start()
    for _ in range(7):
        assert broker.send().code == 0
    broker.host.step_clock(step_ms)
    commit = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": "7"}
    assert broker.call(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext=commit)).code == 0
    broker.world.clock.run_for(16)
    path = broker.broker.consumer_offsets.path
    assert b"{0:7" in broker.host.disk.read_bytes(path)
    table = broker.broker.store.runtime_info()
    assert table["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, 1")


@BOTH_WAYS
def test_open_transactions_are_asked_about(step_ms: int) -> None:
    """Those from before the step, stamped an hour ahead perhaps, and those from after it."""
    broker = TransactionBroker().start()
    broker.connect()
    broker.half("before")
    broker.host.step_clock(step_ms)
    broker.half("after")
    broker.run(12)
    assert {key for key, _ in broker.asked} == {"before", "after"}
