"""SlaveSynchronize. Spec: remoting.md, chapter 8; ha.md, section 10."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, RemotingTimeout
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.store_flags import RunningFlags
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.assembly import replication_info
from rmq_ha.server.broker.slave import SlaveCopies, TableCopy, fast_address
from rmq_ha.server.broker.standing import Standing
from rmq_ha.server.broker.tables.promotions import Promotions
from rmq_ha.testing.worker import AtOnce
from tests.unit.server.broker.slave_tables import DELAYS, FAST, GROUPS, MAIN, TOPICS, TableSet


class SlaveTests(SynchronousTestCase):
    def setUp(self) -> None:
        made = TableSet()
        self.clock, self.master, self.disk = made.clock, made.master, made.disk
        self.topics, self.groups = made.topics, made.groups
        self.offsets, self.delays = made.offsets, made.delays
        self.made, self.slave = made, made.slave

    def copy(self) -> SlaveCopies:
        self.slave.set_master_address(MAIN)
        self.successResultOf(self.slave.synchronize())
        return self.slave.statistics()

    def test_all_four(self) -> None:
        """In this order, topics at the port two below; all adopted and on disk."""
        self.copy()
        self.assertEqual(self.master.asked, [(FAST, 21), (MAIN, 43), (MAIN, 45), (MAIN, 201)])
        self.assertEqual(list(self.topics.table), ["TopicA"])
        self.assertEqual(self.topics.data_version, DataVersion(1700000000000, 3))
        self.assertEqual(self.offsets.table, {"TopicA@CG": {0: 5, 1: 7}})
        self.assertEqual(list(self.groups.table), ["CG"])
        self.assertEqual(self.disk.read_bytes("/c/delayOffset.json"), DELAYS)
        for name in ("topics", "subscriptionGroup", "consumerOffset"):
            self.assertTrue(self.disk.exists(f"/c/{name}.json"), name)

    def test_schedule(self) -> None:
        """After 3 s, then every 10 s; nothing while the master is unknown or oneself."""
        self.slave.start()
        self.clock.advance(3)
        self.slave.set_master_address("s:10911")
        self.clock.advance(10)
        self.assertEqual(self.master.asked, [])
        self.slave.set_master_address(MAIN)
        self.clock.advance(9.9)
        self.assertEqual(self.master.asked, [])
        self.clock.advance(0.1)
        self.assertEqual(len(self.master.asked), 4)
        self.slave.set_master_address(None)
        self.clock.advance(10)
        self.assertEqual(len(self.master.asked), 4)
        self.successResultOf(self.slave.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unknown_topic(self) -> None:
        """A message of a topic that the slave lacks makes it copy the tables at once, once."""
        record = DispatchRequest("TopicA", 0, 0, 100, 0, 9, 0, "", "", 0, 0, "")
        self.slave.start()
        self.slave.on_arrival(rows_of([record]))
        self.clock.advance(1)
        self.assertEqual(self.master.asked, [], "no master is known yet")
        self.slave.set_master_address(MAIN)
        self.slave.on_arrival(rows_of([record, record]))
        self.clock.advance(0.05)
        self.assertEqual(len(self.master.asked), 4)
        self.assertIn("TopicA", self.topics.table)
        self.slave.on_arrival(rows_of([record]))
        self.clock.advance(1)
        self.assertEqual(len(self.master.asked), 4)
        self.successResultOf(self.slave.stop())

    def test_unknown_topic_everywhere(self) -> None:
        """A topic that the master does not have either is asked for once between two passes."""
        record = DispatchRequest("Gone", 0, 0, 100, 0, 9, 0, "", "", 0, 0, "")
        self.slave.set_master_address(MAIN)
        self.slave.start()
        for _ in range(20):
            self.slave.on_arrival(rows_of([record]))
            self.clock.advance(0.05)
        self.assertLessEqual(len(self.master.asked), 8)
        self.successResultOf(self.slave.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_topic_that_is_still_unknown_is_asked_for_again_after_each_pass(self) -> None:
        """The master may have made it meanwhile; until the next pass nobody could read it here."""
        record = DispatchRequest("Gone", 0, 0, 100, 0, 9, 0, "", "", 0, 0, "")
        self.slave.set_master_address(MAIN)
        self.slave.start()
        for passes in (1, 2):
            self.clock.advance(10)
            before = len(self.master.asked)
            self.slave.on_arrival(rows_of([record]))
            self.clock.advance(0.05)
            self.assertEqual(len(self.master.asked), before + 4, passes)

    def slave_of_a_master_without_topic_a(self) -> list[str]:
        """It has the topic still, from before; what it drops comes into the list."""
        self.copy()
        newer = TOPICS.replace(b"TopicA", b"TopicB").replace(b'"counter":3', b'"counter":4')
        self.master.bodies[FAST, 21] = newer
        return self.made.dropped

    def test_a_topic_whose_messages_still_come_is_not_dropped(self) -> None:
        """Though the master's newer table has it no more: its log may be behind that table."""
        dropped = self.slave_of_a_master_without_topic_a()
        record = DispatchRequest("TopicA", 0, 0, 100, 0, 9, 0, "", "", 0, 0, "")
        for _ in range(10):
            self.copy()
            self.slave.on_arrival(rows_of([record]))
            self.clock.advance(10)
        self.assertEqual(dropped, [])
        for _ in range(10):
            self.copy()
            self.clock.advance(10)
        self.assertEqual(dropped, ["TopicA"])

    def test_a_topic_that_the_master_has_only_forgotten_is_not_dropped(self) -> None:
        """It lost topics.json and made others: its queues have the messages still."""
        dropped = self.slave_of_a_master_without_topic_a()
        self.master.end = 200
        with capturedLogs() as events:
            for _ in range(10):
                self.copy()
                self.clock.advance(10)
        self.assertEqual(dropped, [])
        told = [formatEvent(event) for event in events]
        (lost,) = [text for text in told if "has lost its settings of TopicA" in text]
        self.assertIn("Make the topic again", lost)
        self.assertEqual(self.master.asked.count((MAIN, 30)), 1)

    def test_whether_a_topic_is_deleted_is_asked_until_the_master_answers(self) -> None:
        dropped = self.slave_of_a_master_without_topic_a()
        answer, self.master.bodies[MAIN, 30] = self.master.bodies[MAIN, 30], None
        for _ in range(10):
            self.copy()
            self.clock.advance(10)
        self.assertEqual(dropped, [])
        self.master.bodies[MAIN, 30] = lambda command: command.response(ext={})
        self.copy()
        self.assertEqual(dropped, [])
        self.master.bodies[MAIN, 30] = answer
        self.copy()
        self.assertEqual(dropped, ["TopicA"])

    def test_a_disk_that_refuses_to_drop_a_topic_is_not_asked_again(self) -> None:
        self.slave_of_a_master_without_topic_a()
        self.made.queues.does_refuse = True
        with capturedLogs() as events:
            for _ in range(10):
                self.copy()
                self.clock.advance(10)
        told = [formatEvent(event) for event in events]
        self.assertEqual(len([text for text in told if "cannot drop the queues" in text]), 1)

    def test_the_tables_of_another_log_are_not_copied(self) -> None:
        """The master's disk was replaced: its empty table would take the topics away."""
        self.copy()
        self.made.has_masters_log = False
        asked = len(self.master.asked)
        self.master.bodies[FAST, 21] = TOPICS.replace(b"TopicA", b"TopicB")
        self.copy()
        self.assertEqual(len(self.master.asked), asked)
        self.assertEqual(list(self.topics.table), ["TopicA"])

    def test_a_table_that_comes_after_the_log_proved_to_be_another_does_not_count(self) -> None:
        self.copy()
        held: Deferred[RemotingCommand] = Deferred()
        self.master.held[FAST, 21] = held
        self.slave.synchronize()
        self.made.has_masters_log = False
        held.callback(RemotingCommand(0, body=TOPICS.replace(b"TopicA", b"TopicB")))
        self.assertEqual(list(self.topics.table), ["TopicA"])

    def test_what_a_former_master_deleted_the_next_one_may_have(self) -> None:
        """It had not heard of that when it became the master, or has the topic made again."""
        dropped = self.slave_of_a_master_without_topic_a()
        self.copy()
        self.slave.set_master_address("other:10911")
        for _ in range(10):
            self.clock.advance(10)
            self.copy()
        self.assertEqual(dropped, [])

    def test_nothing_is_asked_after_a_stop(self) -> None:
        """Neither by a pass that a new topic wanted, nor in time."""
        record = DispatchRequest("TopicA", 0, 0, 100, 0, 9, 0, "", "", 0, 0, "")
        self.slave.start()
        self.slave.set_master_address(MAIN)
        self.slave.on_arrival(rows_of([record]))
        self.successResultOf(self.slave.stop())
        self.clock.advance(30)
        self.assertEqual(self.master.asked, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_stop_waits_for_a_pass_that_a_topic_wanted(self) -> None:
        """Else a table may be written while the store is closed, or by a master."""
        record = DispatchRequest("TopicA", 0, 0, 100, 0, 9, 0, "", "", 0, 0, "")
        held = self.master.held[FAST, 21] = Deferred()
        self.slave.start()
        self.slave.set_master_address(MAIN)
        self.slave.on_arrival(rows_of([record]))
        self.clock.advance(0.05)
        stopped = self.slave.stop()
        self.assertNoResult(stopped)
        held.errback(RemotingTimeout("3000 ms"))
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_pass_whose_time_has_come_during_another_one_ends_with_it(self) -> None:
        """And the next ones come in time, or the tables would stay as they are for ever."""
        record = DispatchRequest("TopicA", 0, 0, 100, 0, 9, 0, "", "", 0, 0, "")
        self.slave.start()
        self.slave.set_master_address(MAIN)
        held = self.master.held[FAST, 21] = Deferred()
        self.clock.advance(2.9)
        self.slave.on_arrival(rows_of([record]))
        self.clock.advance(0.05)
        self.clock.advance(0.1)
        self.assertEqual(self.master.asked, [(FAST, 21)])
        del self.master.held[FAST, 21]
        held.callback(RemotingCommand(0, body=TOPICS))
        self.assertEqual(len(self.master.asked), 4)
        self.clock.advance(10)
        self.assertEqual(len(self.master.asked), 8)
        self.successResultOf(self.slave.stop())

    def test_nothing_is_written_twice(self) -> None:
        """Equal content costs no write."""
        self.copy()
        self.disk.remove_tree("/c")
        self.copy()
        self.assertEqual(self.disk.list_dir("/c"), [])

    def test_a_local_change_is_wiped(self) -> None:
        self.copy()
        self.topics.create_in_send_back("Mine")
        self.copy()
        self.assertEqual(list(self.topics.table), ["TopicA"])

    def test_topics_from_the_main_port(self) -> None:
        """Where the port two below does not answer."""
        self.master.bodies[MAIN, 21] = self.master.bodies.pop((FAST, 21))
        self.copy()
        self.assertEqual(self.master.asked[:2], [(FAST, 21), (MAIN, 21)])
        self.assertEqual(list(self.topics.table), ["TopicA"])

    def test_each_step_is_isolated(self) -> None:
        """One that fails is counted and tells why; the others go on."""
        for kind, code, address in (
            ("topics", 21, FAST),
            ("consumer_offsets", 43, MAIN),
            ("delay_offsets", 45, MAIN),
            ("groups", 201, MAIN),
        ):
            self.setUp()
            self.master.bodies[address, code] = None
            found = self.copy()
            self.clock.advance(4)
            found = self.slave.statistics()
            self.assertEqual(found.tables[kind].failures, 1)
            self.assertIsNone(found.tables[kind].age_seconds)
            self.assertIn("3000 ms", found.tables[kind].last_error)
            others = {"topics", "consumer_offsets", "delay_offsets", "groups"} - {kind}
            for other in others:
                self.assertEqual(found.tables[other], TableCopy(4, 0, ""))

    def test_what_fails_again_and_again_is_told_once(self) -> None:
        """Not every ten seconds; another reason is."""
        with capturedLogs() as events:
            for remark in ("busy", "busy", "gone"):
                refusal = RemotingCommand(1, remark=remark)
                self.master.bodies[MAIN, 45] = lambda _, answer=refusal: answer  # type: ignore
                self.copy()
        told = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
        self.assertEqual(len(told), 2)
        for text, reason in zip(told, ("busy", "gone"), strict=True):
            self.assertIn(f"cannot copy delay_offsets of master {MAIN}", text)
            self.assertIn(reason, text)

    def test_recovery(self) -> None:
        """The last error goes with the first success."""
        self.master.bodies[MAIN, 201] = None
        self.copy()
        self.master.bodies[MAIN, 201] = GROUPS
        self.assertEqual(self.copy().tables["groups"], TableCopy(0, 1, ""))

    def test_damaged_answers_destroy_nothing(self) -> None:
        """Cut short, empty, of the wrong shape, or without a single entry: we keep ours."""
        self.copy()
        before = (dict(self.topics.table), dict(self.groups.table), dict(self.offsets.table))
        files = {name: self.disk.read_bytes(f"/c/{name}") for name in self.disk.list_dir("/c")}
        for code in (21, 43, 45, 201):
            key = (FAST if code == 21 else MAIN, code)
            good = self.master.bodies[key]
            assert good is not None
            empty = b'{"dataVersion":{"counter":9,"timestamp":9}}'
            for bad in (good[:-9], b"", b"[]", b"\0", b'{"offsetTable":[1]}', empty):
                self.master.bodies[key] = bad
                self.copy()
            self.master.bodies[key] = good
        after = (dict(self.topics.table), dict(self.groups.table), dict(self.offsets.table))
        self.assertEqual(after, before)
        self.assertEqual(
            {name: self.disk.read_bytes(f"/c/{name}") for name in self.disk.list_dir("/c")}, files
        )

    def test_the_disk_refuses(self) -> None:
        """The memory follows the master; the file is written when the disk takes it again."""
        self.disk.is_full = True
        found = self.copy()
        self.assertEqual(found.tables["topics"].failures, 1)
        self.assertIn("disk", found.tables["topics"].last_error)
        self.assertEqual(list(self.topics.table), ["TopicA"])
        self.flushLoggedErrors(OSError)
        self.disk.is_full = False
        found = self.copy()
        self.assertEqual(found.tables["topics"].age_seconds, 0)
        self.assertTrue(self.disk.exists("/c/topics.json"))

    def test_the_late_answer_of_a_former_master_changes_nothing(self) -> None:
        """By now this broker may be the master itself, and have newer offsets and topics."""
        for late in ((FAST, 21), (MAIN, 43), (MAIN, 45), (MAIN, 201)):
            for successor in (None, "other:10911"):
                with self.subTest(late=late, successor=successor):
                    self.setUp()
                    self.slave.set_master_address(MAIN)
                    held = self.master.held[late] = Deferred()
                    passed = self.slave.synchronize()
                    self.offsets.commit("CG", "TopicA", 0, 99)
                    before = self.content()
                    self.slave.set_master_address(successor)
                    asked = len(self.master.asked)
                    held.callback(RemotingCommand(0, body=self.master.bodies[late]))
                    self.successResultOf(passed)
                    self.assertEqual(self.content(), before)
                    code = late[1]
                    after = [address for address, _ in self.master.asked[asked:]]
                    self.assertFalse({MAIN, FAST} & set(after), f"asked after {code}")

    def test_what_comes_after_the_end_is_not_taken(self) -> None:
        """A broker that has become the master meanwhile would lose its own topics and offsets."""
        late: Deferred[RemotingCommand] = Deferred()
        at_once = self.master.invoke

        def invoke(address: str, command: RemotingCommand, timeout: int) -> Deferred[Any]:
            found = at_once(address, command, timeout)
            return late.addCallback(lambda _: found) if command.code == 21 else found

        before = self.content()
        self.master.invoke = invoke  # type: ignore[method-assign]
        self.slave.set_master_address(MAIN)
        self.slave.synchronize()
        self.slave.stop()
        late.callback(None)  # type: ignore[arg-type]
        self.assertEqual(self.content(), before)
        self.assertEqual(self.master.asked, [(FAST, 21)])
        self.assertEqual(self.slave.statistics().tables["topics"].failures, 0)

    def content(self) -> tuple[object, ...]:
        """Of all tables, in memory and on the disk."""
        files = {name: self.disk.read_bytes(f"/c/{name}") for name in self.disk.list_dir("/c")}
        offsets = {key: dict(queues) for key, queues in self.offsets.table.items()}
        return dict(self.topics.table), dict(self.groups.table), offsets, files


def test_fast_address() -> None:
    assert fast_address("10.0.0.1:10911") == "10.0.0.1:10909"
    for bad in ("", "host", ":1", "h:x"):
        with pytest.raises(ProtocolViolation):
            fast_address(bad)


def test_the_age_of_the_oldest_copy_is_told_of_a_slave() -> None:
    """None until each table was copied once; a master has no copies."""
    made, role = TableSet(), SimpleNamespace(is_slave=True, electorate=None)
    journal: Any = SimpleNamespace(role=role, info=lambda: {"slaves": []})
    configuration, standing = BrokerConfiguration(), Standing(journal, RunningFlags())
    promotions = Promotions(made.disk, AtOnce(), "/c")
    promotions.count = 3

    def told() -> dict[str, Any]:
        return replication_info(configuration, journal, made.slave, standing, promotions)

    both = {"role": "ASYNC_MASTER", "slaves": [], "promotions": 3}
    assert told() == {**both, "tables_seconds": None}
    made.slave.set_master_address(MAIN)
    made.slave.synchronize()
    made.clock.advance(4.26)
    assert told()["tables_seconds"] == 4.3
    role.is_slave = False
    assert told() == both
    standing.stand_aside(MAIN)
    assert told()["stands_aside_for"] == MAIN
