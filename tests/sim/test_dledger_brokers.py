"""Three whole brokers of one DLedger group on simulated machines. Spec: dledger.md."""

from typing import Any

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.dledger_values import TERM_TOPIC
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.messages import LeadershipTransferRequest, LeadershipTransferResponse
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import small_configuration
from tests.sim_kit.group import GROUP, PEER_PORT, BrokerGroup


def quiet(group: BrokerGroup) -> None:
    """Nothing went wrong that the test did not do."""
    assert group.findings.violations == []
    assert group.world.clock.failures == []


def master_of(group: BrokerGroup) -> BrokerNode:
    master = group.master()
    assert master is not None
    return master


def send_some(group: BrokerGroup, name: str, count: int) -> list[bytes]:
    bodies = [b"%b-%d" % (name.encode(), number) for number in range(count)]
    for body in bodies:
        assert group.send(body) == 0
    return bodies


def assert_same(group: BrokerGroup) -> None:
    ledgers = {group.ledger_bytes(member) for member in group.members}
    assert len(ledgers) == 1


def test_one_leads_and_all_have_the_same_ledger() -> None:
    """Spec: dledger.md, sections 11.7 and 16.2: ids by role, reads of what is committed."""
    group = BrokerGroup(1).start()
    sent = send_some(group, "a", 30)
    group.run(2)
    ids = {member.host.name: member.configuration.broker.broker_id for member in group.members}
    master = master_of(group)
    for name, broker_id in ids.items():
        assert broker_id == (0 if name == master.host.name else int(name[1:]) + 1)
    for member in group.members:
        assert group.bodies(member) == sent
    roles = [member.configuration.store.broker_role for member in group.members]
    assert sorted(role.name for role in roles) == ["SLAVE", "SLAVE", "SYNC_MASTER"]
    assert_same(group)
    quiet(group)


def test_the_name_server_knows_ids_and_slaves_follow_the_master() -> None:
    """Spec: dledger.md, sections 16.2 and 18.2: the master is known within seconds, not in 30."""
    group = BrokerGroup(2).start()
    group.run(5)
    info = group.name_server.namesrv.routes.cluster_info()
    table = info.brokers["broker-a"].addresses
    assert sorted(table) == sorted(
        {member.configuration.broker.broker_id for member in group.members}
    )
    for slave in group.slaves():
        found = slave.broker.slave_synchronize.statistics()
        assert found.master == table[0]
        assert found.tables["topics"].age_seconds is not None


def test_what_was_acknowledged_survives_the_leader() -> None:
    """Spec: dledger.md, section 8.7: some 6 s later another one serves; the old one comes back."""
    group = BrokerGroup(3).start()
    sent = send_some(group, "before", 40)
    old = master_of(group)
    group.kill(old)
    began = group.now
    new = group.wait_for_master()
    assert new is not old
    assert group.now - began < 9
    assert group.bodies(new) == sent
    sent += send_some(group, "after", 40)
    group.boot(old)
    group.run(5)
    assert old.configuration.store.broker_role is BrokerRole.SLAVE
    for member in group.members:
        assert group.bodies(member) == sent
    assert_same(group)
    quiet(group)


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_is_durable_when_all_lose_power(seed: int) -> None:
    """With SYNC_FLUSH a quorum has it on its disks. Spec: dledger.md, section 18.2."""

    def change(configuration: Any) -> None:
        configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    group = BrokerGroup(100 + seed, change=change).start()
    sent = send_some(group, "a", 25 + seed)
    for member in group.members:
        group.kill(member, power=True)
    for member in group.members:
        group.boot(member)
    new = group.wait_for_master()
    assert group.bodies(new) == sent
    sent += send_some(group, "b", 10)
    group.run(3)
    assert [group.bodies(member) for member in group.members] == [sent] * 3
    assert_same(group)
    quiet(group)


def test_without_a_quorum_a_put_ends_busy_and_then_the_leader_steps_down() -> None:
    """Spec: dledger.md, section 10.5: code 1 after 2.5 s; 8.5: 6 s later it is no leader."""
    group = BrokerGroup(4).start()
    send_some(group, "a", 5)
    master = master_of(group)
    for slave in group.slaves():
        group.kill(slave)
    began = group.now
    answer = group.call(master, group.message(b"late"))
    assert answer.code == 1
    assert "busy" in (answer.remark or "")
    assert 2.4 < group.now - began < 2.7
    group.wait_until(lambda: master.configuration.store.broker_role is BrokerRole.SLAVE, 10)
    assert group.call(master, group.message(b"refused")).code == 14
    quiet(group)


def test_puts_that_wait_are_answered_when_the_leader_is_deposed() -> None:
    """Spec: dledger.md, section 18.1, number 7: upstream never answers them."""
    group = BrokerGroup(5).start()
    send_some(group, "a", 5)
    old = master_of(group)
    network = group.world.network
    for slave in group.slaves():
        network.partition(old.host.name, slave.host.name)
    answers: list[RemotingCommand] = []
    for number in range(60):  # one each 0.1 s, so that some wait when it steps down
        later = group.ask(old, group.message(b"lost %d" % number))
        later.addCallbacks(answers.append, lambda failure: None)
        group.run(0.1)
    group.wait_until(lambda: len(answers) == 60, 10)
    assert {answer.code for answer in answers} <= {1, 14}
    sent = group.bodies(group.wait_for_master())
    network.heal()
    group.run(8)
    assert_same(group)
    assert [group.bodies(member)[: len(sent)] for member in group.members] == [sent] * 3
    quiet(group)


def test_queue_numbers_go_on_over_a_change_of_leaders() -> None:
    """Spec: dledger.md, section 21: queue offsets continuous over a leader change."""
    group = BrokerGroup(6).start()
    for round_ in range(3):
        send_some(group, str(round_), 7)
        old = master_of(group)
        group.kill(old)
        group.wait_for_master()
        group.boot(old)
    send_some(group, "last", 7)
    group.run(3)
    for member in group.members:
        result = member.store.get_message("g", "TBW102", 0, 0, 32, None)
        records = [decode_record(record) for record in result.messages]
        assert [record.queue_offset for record in records] == list(range(28))
    quiet(group)


def test_the_first_record_of_a_term_is_in_no_queue() -> None:
    """Spec: dledger.md, section 18.2: a real record, which no consumer ever sees."""
    group = BrokerGroup(7).start()
    send_some(group, "a", 1)
    group.run(2)
    for member in group.members:
        first = decode_record(member.store.log.ledger.entry(0).body)
        assert first.topic == TERM_TOPIC
        assert {topic for topic, _ in member.store.queues.topic_queue_table()} == {"TBW102"}
        assert TERM_TOPIC not in member.broker.topics.table


def test_delayed_messages_are_delivered_by_the_next_leader() -> None:
    """Once each, whoever leads when they are due."""

    def change(configuration: Any) -> None:
        configuration.store.message_delay_level = "4s 9s"

    group = BrokerGroup(8, change=change).start()
    for number in range(20):
        assert group.send(b"d%d" % number, DELAY=str(1 + number % 2), UNIQ_KEY=f"u{number}") == 0
    group.run(3.9)  # the first level is just about to be delivered
    group.kill(master_of(group))
    group.wait_for_master()
    group.run(12)
    found = group.bodies(master_of(group))
    assert sorted(found) == sorted(b"d%d" % number for number in range(20))
    quiet(group)


def test_consumer_offsets_follow_the_leader() -> None:
    """Spec: dledger.md, section 16.3."""
    group = BrokerGroup(9).start()
    send_some(group, "a", 10)
    master = master_of(group)
    commit = {"consumerGroup": "cg", "topic": "TBW102", "queueId": "0", "commitOffset": "7"}
    assert group.call(master, RemotingCommand(15, commit)).code == 0
    group.run(14)
    group.kill(master)
    new = group.wait_for_master()
    query = {"consumerGroup": "cg", "topic": "TBW102", "queueId": "0"}
    answer = group.call(new, RemotingCommand(14, query))
    assert (answer.code, (answer.ext or {}).get("offset")) == (0, "7")


def transfer(group: BrokerGroup, source: BrokerNode, target: str) -> int:
    """An operator's request; the code of the answer."""
    name = source.host.name
    request = LeadershipTransferRequest(
        group=GROUP,
        remote_id=name,
        transfer_id=name,
        transferee_id=target,
        term=source.replication.node.term,
    )
    frame = RemotingCommand(DLedgerRequestCode.LEADERSHIP_TRANSFER, body=encode_body(request))
    answer = group.wait(group.client.invoke(f"{source.host.ip}:{PEER_PORT}", frame, 5000))
    assert answer.code == 200
    return decode_body(LeadershipTransferResponse, answer.body).code


def operators_everywhere(configuration: Any) -> None:
    configuration.ours.dledger_operator_hosts = "*"


def test_an_operator_hands_leadership_over_in_a_moment() -> None:
    """Spec: dledger.md, section 9."""
    group = BrokerGroup(10, change=operators_everywhere).start()
    sent = send_some(group, "a", 10)
    old = master_of(group)
    target = group.slaves()[0]
    began = group.now
    assert transfer(group, old, target.host.name) == 200
    group.wait_until(lambda: group.master() is target, 2)
    assert group.now - began < 1.5
    sent += send_some(group, "b", 10)
    group.run(3)
    assert [group.bodies(member) for member in group.members] == [sent] * 3
    quiet(group)


def test_only_known_hosts_hand_leadership_over() -> None:
    """Spec: dledger.md, section 18.2."""
    group = BrokerGroup(11).start()
    old = master_of(group)
    assert transfer(group, old, group.slaves()[0].host.name) == 401
    assert group.master() is old


def test_the_preferred_leader_leads() -> None:
    """Spec: dledger.md, section 9."""

    def change(configuration: Any) -> None:
        configuration.store.preferred_leader_id = "n2"

    group = BrokerGroup(12, change=change).start()
    group.wait_until(lambda: group.master() is group.members[2], 20)
    quiet(group)


def test_an_orderly_stop_leaves_nothing_behind_and_loses_nothing() -> None:
    """Ports, timers and connections; the next start needs no repair."""
    group = BrokerGroup(13).start()
    sent = send_some(group, "a", 20)
    group.run(2)
    for member in group.members:
        group.wait(member.stop())
    quiet(group)
    for member in group.members:
        assert not member.host.disk.exists("/store/abort")
        group.boot(member)
    assert group.bodies(group.wait_for_master()) == sent
    quiet(group)


def test_a_member_that_lost_its_disk_copies_the_leaders() -> None:
    """Spec: dledger.md, section 20.5."""
    group = BrokerGroup(14).start()
    sent = send_some(group, "a", 60)
    slave = group.slaves()[0]
    group.kill(slave)
    slave.host.disk.remove_tree("/store")
    sent += send_some(group, "b", 20)
    group.boot(slave)
    group.run(10)
    assert group.bodies(slave) == sent
    assert_same(group)
    quiet(group)


def test_a_classic_log_goes_on_as_a_group_s() -> None:
    """Spec: dledger.md, section 15.4: what is before the divided offset stays where it is."""
    group = BrokerGroup(15)
    first = group.members[0]
    old = BrokerNode(
        first.host,
        small_configuration(first.host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH),
        group.findings,
        group.name_server.address,
    )
    group.name_server.start()
    group.boot(old)
    group.run(1)
    sent = [b"old-%d" % number for number in range(60)]
    for body in sent:
        assert group.call(old, group.message(body + b"x" * 900)).code == 0
    sent = [body + b"x" * 900 for body in sent]
    group.wait(old.stop())
    for member in group.members[1:]:
        copy_files(first.host.disk, member.host.disk, "/store/commitlog")
    files = first.host.disk.list_dir("/store/commitlog")
    assert len(files) > 1
    divided = int(files[-1]) + first.configuration.store.mapped_file_size_commit_log
    group.start()
    sent += send_some(group, "new", 20)
    group.run(3)
    for member in group.members:
        assert member.store.log.ledger.begin_pos == divided
        assert group.bodies(member) == sent
    killed = master_of(group)
    group.kill(killed)
    sent += send_some(group, "later", 5)
    group.boot(killed)
    group.run(5)
    assert [group.bodies(member) for member in group.members] == [sent] * 3
    quiet(group)


def copy_files(source: Any, target: Any, directory: str) -> None:
    for name in source.list_dir(directory):
        path = f"{directory}/{name}"
        size = source.size(path)
        data = source.open(path, size).pread(size, 0)
        target.open(path, size).pwrite(data, 0)


def test_a_classic_log_that_a_crash_ended_has_to_be_repaired_first() -> None:
    """All members need the same files; a start as before makes them whole."""
    group = BrokerGroup(16)
    first = group.members[0]
    first.host.disk.open("/store/commitlog/00000000000000000000", 32768).close()
    first.host.disk.open("/store/abort", 0).close()
    with pytest.raises(StoreError, match="start once without enableDLegerCommitLog"):
        first.load()


@pytest.mark.trials
def test_old_files_expire_on_each_member_for_itself() -> None:
    """Spec: dledger.md, chapter 14: the begin index moves; a follower that missed it is rebuilt."""

    def change(configuration: Any) -> None:
        configuration.store.file_reserved_time = 0  # an hour, as DLedger is told one more
        configuration.store.delete_when = ";".join(str(hour) for hour in range(24))

    group = BrokerGroup(17, change=change).start()
    bodies = [b"%03d" % number + b"x" * 3000 for number in range(60)]
    for body in bodies[:40]:
        assert group.send(body) == 0
    absent = group.slaves()[0]
    group.kill(absent)
    for body in bodies[40:50]:
        assert group.send(body) == 0
    group.run(3700)
    master = group.wait_for_master()
    ledger = master.store.log.ledger
    assert ledger.begin_index > 40
    assert ledger.begin_pos > 0
    absent.host.disk.remove_tree("/store")
    group.boot(absent)
    for body in bodies[50:]:
        assert group.send(body) == 0
    group.run(5)
    kept = [
        decode_record(entry.body).body
        for entry in ledger.entries(ledger.begin_index, 1 << 24, 1000)
    ]
    assert group.bodies(absent) == [body for body in kept if body in bodies]
    assert absent.store.log.min_offset == master.store.log.min_offset
    quiet(group)


def test_a_transaction_is_ended_on_the_next_leader() -> None:
    """Half messages and their ends are records of the ledger like all others."""
    group = BrokerGroup(18).start()
    properties = {"TRAN_MSG": "true", "PGROUP": "tp", "WAIT": "true"}
    places = []
    for key in ("kept", "dropped"):
        request = group.message(key.encode(), "TBW102", UNIQ_KEY=key, **properties)
        answer = group.call(master_of(group), request)
        assert answer.code == 0
        assert answer.ext is not None
        places.append(
            {
                "producerGroup": "tp",
                "tranStateTableOffset": answer.ext["queueOffset"],
                "commitLogOffset": str(int(answer.ext["msgId"][-16:], 16)),
                "msgId": key,
                "transactionId": key,
            }
        )
    group.run(15)
    group.kill(master_of(group))
    new = group.wait_for_master()
    for place, decision in zip(places, (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK), strict=True):
        end = RemotingCommand(37, {**place, "commitOrRollback": str(decision)})
        assert group.call(new, end).code == 0
    group.run(2)
    assert group.bodies(new) == [b"kept"]
    quiet(group)
