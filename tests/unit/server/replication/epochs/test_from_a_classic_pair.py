"""
A classic pair becomes one in controller mode on its own stores, and is a classic pair again.

Spec: controller.md, chapter 12 and hazard 13.
"""

from __future__ import annotations

from functools import partial

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import DivergedLog, NothingInCommon
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs, decode_epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers, accepts
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import copy_of, extend, record_log

BODIES = [b"%03d" % number for number in range(20)]
BEFORE = Epochs([Epoch(0, 0)])


def led(log: MemoryLog) -> EpochFeed:
    """The master's half: its log is a classic one up to now, and it leads epoch 1."""
    settings = ReplicationSettings()
    state = SyncState(1, log, BEFORE.led(1, log.max_offset), SyncStateSet((1,), 1), settings, 0.0)
    return EpochFeed(log, state, settings, 0.0)


def follow(
    feed: EpochFeed, log: MemoryLog, epochs: Epochs = BEFORE, confirm: int = 1
) -> EpochReplica:
    """Until neither says more; cuts are made."""
    replica = EpochReplica(2, log, epochs, confirm, ReplicationSettings(), 0.0)
    answer = replica.connected(0.0)
    for _ in range(100):
        feed.receive_data(answer, 0.0)
        data = b"".join(iter(lambda: feed.next_frame(0.0), b""))
        answer = replica.receive_data(data, 0.0)
        while replica.task is not None:
            if isinstance(replica.task, Cut):
                del log.data[replica.task.end - log.base :]
            answer = replica.done(0.0)
        if not (answer or data):
            break
    return replica


def test_a_slave_that_lacks_the_end_gets_it() -> None:
    master, starts = record_log(BODIES)
    slave = copy_of(master, starts[15])
    feed = led(master)
    extend(master, [b"new"])
    replica = follow(feed, slave)
    assert slave.data == master.data
    assert replica.epochs == Epochs([Epoch(0, 0), Epoch(1, starts[-1] + starts[1])])
    assert feed.acked == master.max_offset
    again = follow(led_again(master, replica.epochs), slave, replica.epochs)
    assert again.is_following


def led_again(log: MemoryLog, epochs: Epochs) -> EpochFeed:
    state = SyncState(1, log, epochs, SyncStateSet((1,), 1), ReplicationSettings(), 0.0)
    return EpochFeed(log, state, ReplicationSettings(), 0.0)


def test_what_a_slave_has_beyond_the_new_beginning_is_set_aside() -> None:
    slave, starts = record_log(BODIES)
    master = copy_of(slave, starts[15])
    feed = led(master)
    extend(master, [b"other"])
    follow(feed, slave)
    assert slave.data == master.data


@pytest.mark.parametrize("where", [0, 14, 15])
def test_two_logs_of_the_same_length_are_not_one(where: int) -> None:
    """Other messages in the same places; nothing is cut, and nothing is followed."""
    master, _ = record_log(BODIES)
    other = [*BODIES]
    other[where] = b"xyz"
    slave, _ = record_log(other[:16], stamp=1 if where == 15 else 2)
    before = bytes(slave.data)
    with pytest.raises(DivergedLog, match="not the logs of one pair"):
        follow(led(master), slave)
    assert bytes(slave.data) == before


def test_a_log_that_ends_within_a_record_is_not_taken() -> None:
    master, starts = record_log(BODIES)
    with pytest.raises(NothingInCommon, match="no record of this slave's log ends at"):
        follow(led(master), copy_of(master, starts[15] + 20))


@pytest.mark.parametrize("confirm", [0, 1])
def test_java_that_led_first_and_knows_of_no_epoch_before_is_refused(confirm: int) -> None:
    """5.3.3 forgets what was before its first epoch; so it cannot vouch for that."""
    master, _ = record_log(BODIES)
    slave = copy_of(master)
    feed = led_again(master, Epochs([Epoch(1, master.max_offset)]))
    with pytest.raises(NothingInCommon):
        follow(feed, slave, confirm=confirm)


def classic(role: BrokerRole, configuration: BrokerConfiguration) -> None:
    configuration.controlled.enable_controller_mode = False
    configuration.was_slave = False
    configuration.store.broker_role = role
    configuration.broker.broker_id = int(role is BrokerRole.SLAVE)


def controlled(configuration: BrokerConfiguration) -> None:
    """As `apply_controller_mode` does."""
    configuration.was_slave = configuration.store.broker_role is BrokerRole.SLAVE
    configuration.controlled.enable_controller_mode = True
    configuration.store.broker_role = BrokerRole.ASYNC_MASTER
    configuration.broker.broker_id = -1


def pair() -> tuple[ControlledBrokers, BrokerNode, BrokerNode]:
    """A classic one, with ten messages; controllers wait."""
    brokers = ControlledBrokers(brokers=0)
    for name, role in (("a", BrokerRole.SYNC_MASTER), ("b", BrokerRole.SLAVE)):
        brokers.add(brokers.world.add(name), partial(classic, role))
    master, slave = brokers.nodes
    brokers.until(lambda: brokers.send(master, b"first") == 0)
    assert [brokers.send(master, body) for body in BODIES] == [0] * len(BODIES)
    return brokers, master, slave


def end(brokers: ControlledBrokers, node: BrokerNode) -> None:
    node.stop()
    brokers.until(lambda: node.state == "down")


def test_the_old_master_leads_and_the_slave_follows_and_back() -> None:
    brokers, first, second = pair()
    sent = [b"first", *BODIES]
    end(brokers, first)
    controlled(first.configuration)
    brokers.boot(first)
    assert brokers.leader() is first
    assert brokers.send(first, b"alone") == 0
    end(brokers, second)
    controlled(second.configuration)
    brokers.boot(second)
    assert brokers.in_sync() is first
    assert brokers.send(first, b"both") == 0
    sent += [b"alone", b"both"]
    brokers.run(6.0)
    brokers.holds(first, sent)
    brokers.holds(second, sent)
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.send(second, b"elected") == 0
    brokers.boot(first)
    assert brokers.in_sync() is second
    brokers.run(6.0)
    sent.append(b"elected")

    for node in (first, second):
        end(brokers, node)
        for name in ("brokerIdentity", "epochFileCheckpoint", "epochFileCheckpoint.bak"):
            node.host.disk.remove(f"{node.configuration.store.store_path_root_dir}/{name}")
    classic(BrokerRole.SYNC_MASTER, second.configuration)
    classic(BrokerRole.SLAVE, first.configuration)
    brokers.boot(second)
    brokers.boot(first)
    brokers.until(lambda: brokers.send(second, b"probe") == 0)
    found = brokers.bodies(second)
    assert found[: len(sent)] == sent
    brokers.holds(first, found)
    assert not brokers.findings.violations


def test_what_was_before_is_on_the_disk_before_there_is_an_id() -> None:
    """Who has an id and no epochs has lost them, and follows nobody."""
    brokers, first, _ = pair()
    end(brokers, first)
    controlled(first.configuration)
    first.load()
    first.start()
    root, disk = first.configuration.store.store_path_root_dir, first.host.disk
    brokers.world.clock.run_while(
        lambda: not any("brokerIdentity" in path for path in disk.paths(root)), 10.0
    )
    assert any("brokerIdentity" in path for path in disk.paths(root))
    first.crash(power=True)
    assert decode_epochs(first.host.disk.read_bytes(f"{root}/epochFileCheckpoint")) == BEFORE
    brokers.boot(first)
    brokers.until(lambda: accepts(first))


def test_the_slave_does_not_lead_first() -> None:
    """It may lack what was answered 11: the master is started, or the operator decides."""
    brokers, first, second = pair()
    end(brokers, second)
    assert brokers.send(first, b"the slave has it not") == 11
    end(brokers, first)
    controlled(second.configuration)
    brokers.boot(second)
    brokers.run(30.0)
    assert brokers.master() is None
    assert "brokerRole=SLAVE" in second.replication.why_no_puts()
    controlled(first.configuration)
    brokers.boot(first)
    assert brokers.in_sync() is first
    brokers.run(6.0)
    brokers.holds(second, [b"first", *BODIES, b"the slave has it not"])


def test_who_is_told_that_the_master_is_lost_leads() -> None:
    brokers, first, second = pair()
    first.crash(power=True)
    end(brokers, second)
    controlled(second.configuration)
    second.configuration.was_slave = False
    brokers.boot(second)
    assert brokers.leader() is second
    brokers.holds(second, [b"first", *BODIES])
