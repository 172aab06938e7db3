"""Whole brokers of ours in controller mode, at controllers of ours, on simulated machines.

Spec: controller.md, chapters 3, 7 and 8.
"""

from __future__ import annotations

import json

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers
from tests.unit.server.broker.test_metrics_dledger import scrape


def test_the_first_one_leads_and_the_second_follows() -> None:
    brokers = ControlledBrokers()
    master = brokers.in_sync()
    slave = brokers.other(master)
    sent = [b"%d" % number for number in range(20)]
    assert [brokers.send(master, body) for body in sent] == [0] * 20
    assert slave.store.journal.info()["master"]["state"] == "following"
    (told,) = master.store.journal.info()["slaves"]
    assert (told["acked"], told["lag"]) == (slave.store.log.max_offset, 0)
    assert slave.store.log.max_offset == master.store.log.max_offset
    brokers.holds(master, sent)
    brokers.run(6.0)
    brokers.holds(slave, sent)
    assert (master.configuration.broker.broker_id, slave.configuration.broker.broker_id) == (0, 2)
    assert brokers.send(slave, b"no") == 14
    assert not brokers.findings.violations


def test_a_slave_is_in_sync_only_when_it_has_what_it_lacked() -> None:
    brokers = ControlledBrokers()
    master = brokers.in_sync()
    slave = brokers.other(master)
    health = {node: BrokerStatus(node.broker).health for node in (master, slave)}
    brokers.run(6.0)
    assert all(health[node]().placed().is_ready for node in (master, slave))
    slave.crash(power=True)
    brokers.in_sync(1)
    assert [brokers.send(master, bytes(30_000)) for _ in range(8)] == [0] * 8
    slave.configuration.controlled.ha_flow_control_enable = True
    master.replication.settings.max_transfer_per_second = 60_000
    brokers.boot(slave)
    health[slave] = BrokerStatus(slave.broker).health
    brokers.until(lambda: slave.replication.is_following)
    brokers.run(0.5)
    assert slave.store.log.max_offset < master.store.log.max_offset
    assert (health[slave]().is_ready, health[slave]().placed().is_ready) == (True, False)
    assert "not in sync" in health[slave]().placed().reason
    brokers.in_sync()
    brokers.run(6.0)
    assert health[slave]().placed().is_ready


def test_ha_status_says_who_follows_and_how_far() -> None:
    """907, in the form that Java's broker gives it."""
    brokers = ControlledBrokers()
    master = brokers.in_sync()
    slave = brokers.other(master)
    brokers.run(2.0)
    assert [brokers.send(master, b"%d" % number) for number in range(20)] == [0] * 20
    brokers.run(1.0)
    ask = RemotingCommand(RequestCode.GET_BROKER_HA_STATUS)
    of_master = json.loads(brokers.ask(master, ask).body or b"")
    end = master.store.log.max_offset
    (connection,) = of_master.pop("haConnectionInfo")
    assert connection.pop("addr").startswith(f"{slave.host.ip}:")
    assert connection.pop("transferredByteInSecond") > 0
    assert connection == {
        "diff": 0,
        "inSync": True,
        "slaveAckOffset": end,
        "transferFromWhere": end,
    }
    nothing = dict.fromkeys(
        (
            "lastReadTimestamp",
            "lastWriteTimestamp",
            "masterFlushOffset",
            "maxOffset",
            "transferredByteInSecond",
        ),
        0,
    )
    assert of_master == {
        "haClientRuntimeInfo": nothing,
        "inSyncSlaveNums": 1,
        "master": True,
        "masterCommitLogMaxOffset": end,
    }
    of_slave = json.loads(brokers.ask(slave, ask).body or b"")
    own = of_slave.pop("haClientRuntimeInfo")
    assert own.pop("transferredByteInSecond") > 0
    assert 0 <= slave.host.now_ms() - own.pop("lastReadTimestamp") < 3000
    assert 0 <= slave.host.now_ms() - own.pop("lastWriteTimestamp") < 3000
    ha_address = f"{master.host.ip}:{LISTEN_PORT + 1}"
    assert own == {"masterAddr": ha_address, "masterFlushOffset": 0, "maxOffset": end}
    assert of_slave == {
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": False,
        "masterCommitLogMaxOffset": 0,
    }


def test_the_slave_leads_after_a_kill_and_has_every_message() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    sent = [b"%d" % number for number in range(10)]
    for body in sent:
        assert brokers.send(first, body) == 0
    first.crash(power=False)
    took = brokers.until(lambda: brokers.master() is second)
    assert took < 3.0
    sent.append(b"after")
    assert brokers.send(second, b"after") == 0
    brokers.holds(second, sent)
    brokers.boot(first)
    assert brokers.in_sync() is second
    sent.append(b"both")
    assert brokers.send(second, b"both") == 0
    brokers.run(6.0)
    brokers.holds(first, sent)
    size = second.store.log.max_offset
    assert first.store.log.read(0, size) == second.store.log.read(0, size)
    assert not brokers.findings.violations


def test_a_diverged_tail_is_set_aside_when_its_master_comes_back() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    brokers.world.network.partition(first.host.name, second.host.name)
    assert brokers.send(first, b"nobody has it") == 12
    assert brokers.bodies(first) == [b"kept"], "what is not confirmed is not read"
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.send(second, b"another") == 0
    brokers.world.network.heal()
    brokers.boot(first)
    brokers.in_sync()
    brokers.run(6.0)
    brokers.holds(first, [b"kept", b"another"])
    assert first.store.statistics.set_aside_messages == 1
    assert not brokers.findings.violations


def test_who_is_elected_with_a_torn_record_at_its_end_gives_that_up() -> None:
    """Or nobody could read what it writes behind it; the torn one was acknowledged by nobody."""

    def slow(configuration: BrokerConfiguration) -> None:
        configuration.controlled.ha_flow_control_enable = True
        configuration.controlled.max_ha_transfer_byte_in_second = 1000

    brokers = ControlledBrokers(change=slow)
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    common = first.store.log.max_offset
    assert second.store.log.max_offset == common
    request = send_request("producers", TOPIC, 0, bytes(5000), "", brokers.now_ms())
    brokers.client.invoke(f"{first.host.ip}:{LISTEN_PORT}", request, 5000).addErrback(bool)
    brokers.until(lambda: second.store.log.max_offset > common, 3.0)
    assert second.store.log.max_offset < first.store.log.max_offset
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.send(second, b"after") == 0
    brokers.holds(second, [b"kept", b"after"])
    assert second.replication.statistics().elections == 2
    brokers.boot(first)
    brokers.in_sync()
    brokers.run(6.0)
    brokers.holds(first, [b"kept", b"after"])
    assert not brokers.findings.violations


def test_a_master_that_hears_of_no_controller_accepts_nothing() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    brokers.desk.crash(0)
    brokers.until(lambda: not first.replication.may_append, 9.0)
    assert brokers.send(first, b"no") == 14
    brokers.desk.restart(0)
    assert brokers.leader() is first
    assert brokers.send(first, b"yes") == 0
    assert not brokers.findings.violations


def test_too_few_in_sync_refuse_puts() -> None:
    def two(configuration: BrokerConfiguration) -> None:
        configuration.controlled.min_in_sync_replicas = 2

    brokers = ControlledBrokers(change=two)
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    brokers.other(first).crash(power=True)
    brokers.until(lambda: len(brokers.desk.info()[1].members) == 1)
    brokers.until(lambda: brokers.send(first, b"no") == 14)
    assert "minInSyncReplicas=2" in first.replication.why_no_puts()
    brokers.boot(brokers.other(first))
    assert brokers.in_sync() is first
    assert brokers.send(first, b"yes") == 0
    assert not brokers.findings.violations


def test_delayed_messages_go_on_at_the_next_master() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"later", DELAY="3") == 0
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second)
    brokers.holds(second, [b"later"])
    assert not brokers.findings.violations


def test_a_stop_leaves_nothing_behind() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    first.stop()
    brokers.until(lambda: first.state == "down")
    brokers.until(lambda: brokers.master() is second)
    second.stop()
    brokers.until(lambda: second.state == "down")
    brokers.boot(second)
    brokers.boot(first)
    brokers.in_sync()
    brokers.holds(brokers.leader(), [b"kept"])
    pulled = brokers.ask(brokers.leader(), pull_request("readers", TOPIC, 0, 0))
    assert pulled.code == 0
    assert not brokers.findings.violations


def test_what_operators_are_told() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"one") == 0
    leads, follows = (BrokerStatus(node.broker) for node in (first, second))
    assert leads.health().line().endswith("id 1, epoch 1: leads; in sync: 1, 2\n")
    assert leads.health().is_ready
    address = f"{first.host.ip}:{LISTEN_PORT}"
    assert follows.health().line().endswith(f"id 2, epoch 1: following {address}\n")
    told = scrape(leads)
    assert told["rmqha_controller_epoch", "0"] == told["rmqha_controller_is_master", "0"] == 1
    assert told["rmqha_controller_in_sync", "0"] == 2
    assert told["rmqha_controller_unconfirmed_bytes", "0"] == 0
    assert scrape(follows)["rmqha_controller_is_master", "2"] == 0
    brokers.desk.crash(0)
    brokers.until(lambda: not first.replication.may_append, 9.0)
    told_why = leads.health()
    assert not told_why.is_ready
    assert "the controllers (10.0.0.1:9878) do not answer" in told_why.line()


def test_tools_are_told_the_epochs_and_only_the_master_where_it_replicates() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    for node, where in ((first, f"{first.host.ip}:10912"), (second, None)):
        answer = brokers.ask(node, RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO))
        assert (answer.code, (answer.ext or {}).get("masterHaAddress")) == (0, where)
    answer = brokers.ask(first, RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE))
    assert json.loads(answer.body or b"")["epochList"] == [
        {"endOffset": (1 << 63) - 1, "epoch": 1, "startOffset": 0}
    ]


def test_a_slave_that_stops_within_a_record_gets_it_anew() -> None:
    """Also where only the properties, which no checksum covers, are not all there."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"one") == 0
    brokers.run(1.0)
    second.replication.confirmed = lambda offset: None  # type: ignore[method-assign]
    assert brokers.send(first, b"two") == 0
    end, store = second.store.log.max_offset, second.configuration.store
    name = f"{store.store_path_commit_log}/{0:020d}"
    file = second.host.seams.disk.open(name, store.mapped_file_size_commit_log)
    second.stop()
    brokers.until(lambda: second.state == "down")
    file.pwrite(bytes(3), end - 3)
    brokers.boot(second)
    brokers.in_sync()
    brokers.run(1.0)
    assert second.store.log.read(0, end) == first.store.log.read(0, end)
    assert not brokers.findings.violations


def test_what_was_confirmed_is_known_after_a_restart() -> None:
    """Java's `confirmPhyOffset` in `checkpoint`; a cut takes it back before anything is cut."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    brokers.run(70.0)
    end = first.store.log.max_offset
    assert first.store.checkpoint.written.confirmed_offset == end
    brokers.world.network.partition(first.host.name, brokers.other(first).host.name)
    assert brokers.send(first, b"nobody has it") == 12
    first.crash(power=False)
    path = f"{first.configuration.store.store_path_root_dir}/checkpoint"
    assert CheckpointTimes.decode(first.host.disk.read_bytes(path)).confirmed_offset == end
    brokers.desk.crash(0)
    first.load()
    assert first.store.log.confirm_offset == end
    first.store.set_tail_aside(50, "a test")
    brokers.run(1.0)
    assert first.store.log.confirm_offset == 50
    assert CheckpointTimes.decode(first.host.disk.read_bytes(path)).confirmed_offset == 50


def test_with_sync_flush_a_put_waits_for_the_disks_of_all_in_sync() -> None:
    """Found by seed 116: a member that lost power had acknowledged what was not on its disk."""

    def sync(configuration: BrokerConfiguration) -> None:
        configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    brokers = ControlledBrokers(change=sync)
    first = brokers.in_sync()
    second = brokers.other(first)
    for slow in (first, second):
        slow.host.worker.delay = (0.7, 0.9)
        began = brokers.world.clock.seconds()
        assert brokers.send(first, b"kept") == 0
        assert brokers.world.clock.seconds() - began > 0.6
        assert second.store.log.flushed_offset == first.store.log.max_offset
        slow.host.worker.delay = slow.host.worker.usual_delay
    second.crash(power=True)
    brokers.boot(second)
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second)
    brokers.holds(second, [b"kept", b"kept"])
    assert not brokers.findings.violations


def test_a_master_that_crashed_leads_no_more_in_its_epoch() -> None:
    """Found by seed 116: what it had lost was on a slave, and had another in its place by then."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    first.crash(power=True)
    brokers.boot(first)
    brokers.run(2.0)
    assert not first.store.log.admits
    assert "was the master when it crashed" in first.replication.why_no_puts()
    second = brokers.other(first)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.in_sync() is second
    brokers.holds(first, [b"kept"])
    assert not brokers.findings.violations


def test_an_orderly_stop_after_a_crash_begins_no_new_life_in_the_same_epoch() -> None:
    """
    Seed 41711: stopped before any controller could replace it, it went on in its epoch, and wrote
    what its slave had something else for. With messages of one size nobody would have seen it.
    """
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    brokers.run(1.0)
    brokers.desk.crash(0)
    first.crash(power=True)
    brokers.boot(first)
    for node in (first, second):
        node.stop()
        brokers.until(lambda node=node: node.state == "down")
    brokers.desk.restart(0)
    brokers.boot(first)
    brokers.run(2.0)
    assert not first.store.log.admits
    assert "was the master when it crashed" in first.replication.why_no_puts()
    brokers.until(lambda: brokers.master() is first, 60.0)
    assert first.replication.statistics().epoch > 1
    brokers.boot(second)
    assert brokers.in_sync() is first
    brokers.until(lambda: brokers.send(first, b"after") == 0)
    brokers.holds(second, [b"kept", b"after"])
    assert not brokers.findings.violations


def test_a_master_that_crashed_alone_leads_anew() -> None:
    brokers = ControlledBrokers(1)
    only = brokers.leader()
    assert brokers.send(only, b"kept") == 0
    only.crash(power=False)
    brokers.boot(only)
    assert brokers.leader() is only
    assert brokers.desk.info()[0]["masterEpoch"] != "1"
    brokers.holds(only, [b"kept"])


def test_what_a_start_takes_back_from_the_queues_is_not_said_to_be_in_them() -> None:
    """
    The checkpoint said so, as all of the log had been dispatched: what came into the queues later
    was not looked for after lost power, and a part of an entry passed for a whole one (seed
    207063).
    """
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    brokers.run(4.0)
    kept_ms = first.store.checkpoint.logics
    assert first.store.log.confirm_offset == first.store.log.max_offset
    brokers.world.network.partition(first.host.name, brokers.other(first).host.name)
    brokers.send(first, b"not confirmed")
    brokers.run(1.0)
    first.crash(power=False)
    brokers.boot(first)
    brokers.run(2.0)
    store = first.store
    assert store.log.confirm_offset < store.log.max_offset
    assert store.checkpoint.logics == kept_ms
    assert store.checkpoint.written.logics_msg_timestamp <= kept_ms
