"""UPDATE_BROKER_CONFIG on a broker that runs: what changes, does; what cannot says why."""

import pytest

from rmq_ha.base.config import load
from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.replication.classic.feed import Feed
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker


def started() -> SimBroker:
    broker = SimBroker()
    broker.start()
    return broker


def change(broker: SimBroker, **settings: object) -> RemotingCommand:
    body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
    return broker.call(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, {}, body))


def test_what_may_change_is_there() -> None:
    """Each of the keys takes the value that it has."""
    broker = started()
    values = dict(line.split("=", 1) for line in load.render(broker.configuration))
    mutable = [
        key
        for target in broker.configuration.own_objects
        for key, row in keys_of(target).items()
        if row.is_mutable
    ]
    assert len(mutable) > 60
    settings = {key: values[key] for key in mutable if values[key]}
    assert change(broker, **settings).code == 0
    broker.stop()


def test_what_counts_as_page_cache() -> None:
    """accessMessageInMemoryMaxRatio decides from the next pull on."""
    broker = started()
    broker.send()
    broker.send()
    store = broker.broker.store
    assert not store.is_in_disk(TOPIC, 0, 0)
    assert change(broker, accessMessageInMemoryMaxRatio=0).code == 0
    assert store.is_in_disk(TOPIC, 0, 0)
    assert change(broker, accessMessageInMemoryMaxRatio=101).code == 1
    broker.stop()


def test_how_often_the_log_is_flushed() -> None:
    """flushIntervalCommitLog, LeastPages and ThoroughInterval hold from the next append on."""
    broker = started()
    answer = change(
        broker,
        flushIntervalCommitLog=60_000,
        flushCommitLogLeastPages=0,
        flushCommitLogThoroughInterval=60_000,
    )
    assert answer.code == 0
    log, clock = broker.broker.store.log, broker.world.clock
    clock.run_for(2)  # a timer that runs already goes on
    broker.send()
    clock.run_for(0.8)
    assert log.flushed_offset < log.max_offset
    broker.stop()
    broker = started()
    log, clock = broker.broker.store.log, broker.world.clock
    answer = change(broker, flushIntervalCommitLog=10, flushCommitLogLeastPages=0)
    assert answer.code == 0
    clock.run_for(2)
    broker.send()
    clock.run_for(0.1)
    assert log.flushed_offset == log.max_offset
    broker.stop()


def test_how_long_the_ends_of_the_replication_are_patient() -> None:
    """haSendHeartbeatInterval and haHousekeepingInterval are asked for at every turn."""
    broker = started()
    feed = Feed(broker.broker.store.log, broker.configuration, 100.0)
    assert feed.deadline() == 120
    assert change(broker, haHousekeepingInterval=7000, haSendHeartbeatInterval=1500).code == 0
    assert feed.deadline() == 107
    broker.stop()


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("sendMessageThreadPoolNums", "rmq-ha serves requests in one thread"),
        ("registerNameServerPeriod", "it is read at the start; edit its properties file"),
        ("flushDiskType", "it is read at the start; edit its properties file"),
    ],
)
def test_what_cannot_change_says_why(key: str, reason: str) -> None:
    broker = started()
    value = "SYNC_FLUSH" if key == "flushDiskType" else 11_000
    answer = change(broker, slaveReadEnable="true", **{key: value})
    assert answer.code == 1
    assert reason in (answer.remark or "")
    assert (answer.remark or "").endswith("nothing was changed")
    assert not broker.configuration.broker.slave_read_enable
    broker.stop()


def test_a_value_with_a_line_break_changes_nothing() -> None:
    """L2: GET_BROKER_CONFIG showed a line of its own."""
    broker = SimBroker().start()
    change = RemotingCommand(25, {}, b"regionId=x \\u000aaclEnable=true\n")
    answer = broker.call(change)
    assert answer.code == 1
    assert "must not contain line breaks" in (answer.remark or "")
    shown = (broker.call(RemotingCommand(26)).body or b"").decode()
    assert "aclEnable=true" not in shown
    broker.stop()
