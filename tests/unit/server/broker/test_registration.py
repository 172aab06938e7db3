"""Registration and its calls. Spec: remoting.md, sections 9.2 and 9.3, vectors A.5 and A.6."""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_flags import RunningFlags
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import RegisterBrokerBody
from rmq_ha.server.broker import registration as registration_module
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.registration import MasterCallbacks, Registration
from rmq_ha.server.broker.standing import Standing
from rmq_ha.server.broker.succession import Succession
from rmq_ha.server.broker.tables.promotions import Promotions
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.store.journal import Role
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

Answer = Callable[[RemotingCommand], Deferred[RemotingCommand]]
BODY_A5 = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"timestamp"'
    b':1700000000000},"topicConfigTable":{"TopicA":{"order":false,"perm":6,"readQueueNums":8,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"TopicA","topicSysFlag":0,"writeQueueNums":8},'
    b'"TBW102":{"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}}}}'
)


class FakeClient:
    """Records what is sent; answers success unless told otherwise."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, RemotingCommand, int | None]] = []
        self.answers: dict[str, Answer] = {}

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        self.sent.append((address, command, timeout_ms))
        answer = self.answers.get(address)
        return succeed(command.response()) if answer is None else answer(command)

    def take(self) -> list[tuple[str, int]]:
        """Address and code of what was sent since the last look."""
        sent, self.sent = self.sent, []
        return [(address, command.code) for address, command, _ in sent]


def broken(_: RemotingCommand) -> Deferred[RemotingCommand]:
    return fail(RemotingConnectError("no route to host"))


def with_ext(**ext: str) -> Answer:
    return lambda command: succeed(command.response(ext=ext))


class RegistrationTests(SynchronousTestCase):
    def make(self, names: str = "n1:9876;n2:9876", broker_id: int = 0, **settings: Any) -> None:
        self.clock, self.client = Clock(), FakeClient()
        config = BrokerConfig(
            broker_name="broker-a", namesrv_addr=names, auto_create_topic_enable=False, **settings
        )
        disk = SimDisk(Random(1), lambda: 0)
        self.role = Role(MessageStoreConfig())
        self.topics = TopicConfigManager(disk, AtOnce(), "/t.json", config, lambda: 1700000000000)
        self.learned: list[tuple[str, str | None]] = []
        identity = BrokerIdentity(
            "DefaultCluster", "broker-a", broker_id, "127.0.0.1:10911", "127.0.0.1:10912"
        )
        configuration, api = BrokerConfiguration(broker=config), BrokerOuterAPI(self.client)
        configuration.ours.start_beside_another_master = True
        standing = Standing(self, RunningFlags())  # type: ignore[arg-type]
        promotions = Promotions(disk, AtOnce(), "/c")
        self.registration = Registration(
            self.clock,
            config,
            identity,
            self.topics,
            api,
            Succession(
                configuration, identity, api, standing, lambda address: True, 1000, promotions
            ),
            MasterCallbacks(
                lambda address: self.learned.append(("ha", address)),
                lambda address: self.learned.append(("master", address)),
            ),
        )

    def start(self) -> None:
        self.successResultOf(self.registration.start())

    def sent_topics(self, index: int = 0) -> set[str]:
        body = self.client.sent[index][1].body
        return set(RegisterBrokerBody.decode(body).topics)

    def test_golden(self) -> None:
        """A.5: ext and body as the Java broker sends them (the map's order aside)."""
        self.make("n1:9876")
        tables = {
            "TopicA": TopicConfig("TopicA", 8, 8, 6),
            "TBW102": TopicConfig("TBW102", 8, 8, 7),
        }
        self.topics.replace_all(DataVersion(1700000000000, 3), tables)
        self.start()
        _, command, timeout_ms = self.client.sent[0]
        assert command.body is not None
        self.assertEqual(
            RegisterBrokerBody.decode(command.body), RegisterBrokerBody.decode(BODY_A5)
        )
        self.assertEqual(len(command.body), len(BODY_A5))
        crc = command.ext.pop("bodyCrc32") if command.ext else ""
        self.assertEqual(len(crc) and int(crc) > 0, True)
        self.assertEqual(command.ext and command.ext.pop("allTopics"), "true")
        self.assertEqual(
            command.ext,
            {
                "brokerId": "0",
                "clusterName": "DefaultCluster",
                "brokerAddr": "127.0.0.1:10911",
                "haServerAddr": "127.0.0.1:10912",
                "compressed": "false",
                "brokerName": "broker-a",
            },
        )
        self.assertEqual(timeout_ms, 6000)

    def test_nobody_hears_of_a_broker_that_does_not_serve_yet(self) -> None:
        """Topics that come into being, operators and the end of a start that failed."""
        self.make()
        self.topics.on_creation(self.registration.register_new_topic)
        self.topics.create_in_send_back("%RETRY%g")
        self.successResultOf(self.registration.register_topic(TopicConfig("T", 1, 1)))
        self.successResultOf(self.registration.register_all())
        self.clock.advance(30)
        self.successResultOf(self.registration.stop())
        self.assertEqual(self.client.take(), [])

    def test_compressed(self) -> None:
        """A.6: `compressedRegister` sends a zlib stream."""
        self.make("n1:9876", compressed_register=True)
        self.start()
        command = self.client.sent[0][1]
        assert command.body is not None
        self.assertEqual((command.ext or {})["compressed"], "true")
        self.assertEqual(command.body[:2], b"\x78\xda")
        decoded = RegisterBrokerBody.decode(command.body, compressed=True)
        self.assertEqual(set(decoded.topics), set(self.topics.table))

    def test_period(self) -> None:
        """All name servers at start, after 10 s, then every registerNameServerPeriod."""
        self.make()
        self.start()
        both = [("n1:9876", 103), ("n2:9876", 103)]
        self.assertEqual(self.client.take(), both)
        self.clock.advance(9.9)
        self.assertEqual(self.client.take(), [])
        self.clock.advance(0.1)
        self.assertEqual(self.client.take(), both)
        self.clock.advance(29.9)
        self.assertEqual(self.client.take(), [])
        self.clock.advance(0.1)
        self.assertEqual(self.client.take(), both)

    def test_period_is_clamped(self) -> None:
        for given_ms, seconds in ((1, 10), (999_999, 60)):
            self.make("n1:1", register_name_server_period=given_ms)
            self.start()
            self.clock.advance(10)
            self.client.take()
            self.clock.advance(seconds - 0.1)
            self.assertEqual(self.client.take(), [])
            self.clock.advance(0.1)
            self.assertEqual(self.client.take(), [("n1:1", 103)])

    def test_one_name_server_is_down(self) -> None:
        """The others are registered with; the failure is counted, and the next round tries it."""
        self.make()
        self.client.answers["n1:9876"] = broken
        self.start()
        self.assertEqual(self.registration.failures, 1)
        self.assertEqual(len(self.client.take()), 2)
        self.clock.advance(2)
        self.assertEqual(len(self.client.take()), 2)

    def test_each_outage_of_a_name_server_is_told_once(self) -> None:
        """And its end; an operator reads of the second one as of the first."""
        self.make()
        with capturedLogs() as events:
            self.start()
            for answer in (broken, with_ext()) * 2:
                self.client.answers["n1:9876"] = answer
                self.clock.pump([30] * 3)
        told = [formatEvent(event) for event in events]
        begun = "name server n1:9876: no route to host; clients that use only this one do not "
        self.assertEqual(
            [line[: len(begun)] for line in told if "n1:9876" in line],
            [begun, "name server n1:9876 answers again"] * 2,
        )

    def test_all_name_servers_are_down(self) -> None:
        """The start goes on, and nothing is learned or unlearned."""
        self.make()
        self.client.answers = {"n1:9876": broken, "n2:9876": broken}
        self.start()
        self.assertEqual(self.learned, [])

    def test_without_name_servers(self) -> None:
        self.make("")
        self.start()
        self.clock.advance(10)
        self.successResultOf(self.make_topic("T"))
        self.successResultOf(self.registration.stop())
        self.assertEqual(self.client.sent, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_slave_learns(self) -> None:
        self.make("n1:9876", broker_id=1)
        self.client.answers["n1:9876"] = with_ext(masterAddr="m:10911", haServerAddr="m:10912")
        self.start()
        self.assertEqual(self.learned, [("ha", "m:10912"), ("master", "m:10911")])

    def test_a_slave_prefers_an_answer_with_a_master(self) -> None:
        """A name server that has not heard of the master yet does not unlearn it."""
        self.make(broker_id=1)
        self.client.answers["n2:9876"] = with_ext(masterAddr="m:10911", haServerAddr="m:10912")
        self.start()
        self.assertEqual(self.learned, [("ha", "m:10912"), ("master", "m:10911")])

    def test_a_master_that_nobody_knows_is_unlearned(self) -> None:
        self.make(broker_id=1)
        self.start()
        self.assertEqual(self.learned, [("master", None)])

    def test_order_topics(self) -> None:
        self.make("n1:9876")
        self.topics.update(TopicConfig("T"))
        self.client.answers["n1:9876"] = lambda command: succeed(
            command.response(body=b'{"table":{"T":"broker-a:8"}}')
        )
        self.start()
        self.assertTrue(self.topics.is_order("T"))
        self.client.answers["n1:9876"] = lambda command: succeed(command.response(body=b"{broken"))
        self.clock.advance(10)
        self.assertTrue(self.topics.is_order("T"))
        self.assertEqual(self.registration.failures, 0)  # all else in the answer was taken

    def test_permission(self) -> None:
        """A restricted `brokerPermission` is presented as that of every topic."""
        self.make("n1:9876", broker_permission=4)
        self.start()
        body = RegisterBrokerBody.decode(self.client.sent[0][1].body)
        self.assertEqual({item.perm for item in body.topics.values()}, {4})
        self.assertEqual(self.topics.table["SELF_TEST_TOPIC"].perm, 6)

    def test_without_force(self) -> None:
        """Asks first; registers everywhere when any answer says so, or is missing."""
        self.make(force_register=False)
        self.start()
        self.assertEqual([code for _, code in self.client.take()], [103, 103])
        no, yes = with_ext(changed="false"), with_ext(changed="true")
        self.client.answers = {"n1:9876": no, "n2:9876": no}
        self.clock.advance(10)
        self.assertEqual([code for _, code in self.client.take()], [322, 322])
        self.client.answers["n2:9876"] = yes
        self.clock.advance(30)
        self.assertEqual([code for _, code in self.client.take()], [322, 322, 103, 103])
        self.client.answers["n2:9876"] = broken
        self.clock.advance(30)
        self.assertEqual([code for _, code in self.client.take()], [322, 322, 103, 103])

    def make_topic(self, name: str) -> Deferred[None]:
        """As a send does."""
        config = TopicConfig(name, 4, 4)
        self.topics.update(config)
        return self.registration.register_new_topic(config)

    def test_a_new_topic_is_known_before_who_made_it_is_answered(self) -> None:
        """Also the next ones, however soon they come; what came meanwhile goes together."""
        self.make("n1:9876")
        self.start()
        self.client.take()
        asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []

        def later(command: RemotingCommand) -> Deferred[RemotingCommand]:
            asked.append((command, Deferred()))
            return asked[-1][1]

        def answer() -> None:
            command, waiting = asked.pop()
            waiting.callback(command.response(ext={"changed": "true"}))

        self.client.answers["n1:9876"] = later
        first, second, third = (self.make_topic(name) for name in ("T1", "T2", "T3"))
        answer()
        self.assertNoResult(first)
        answer()
        self.successResultOf(first)
        self.assertNoResult(second)
        answer()
        answer()
        self.successResultOf(second)
        self.successResultOf(third)
        self.assertEqual([code for _, code in self.client.take()], [322, 103, 322, 103])

    def test_a_silent_name_server_costs_a_new_topic_a_second(self) -> None:
        """And one that was not there costs nothing: it hears of all when it is asked again."""
        self.make()
        self.start()
        self.client.take()
        silent: Deferred[RemotingCommand] = Deferred()
        self.client.answers["n2:9876"] = lambda _: silent
        made = self.make_topic("T1")
        self.clock.advance(0.9)
        self.assertNoResult(made)
        self.clock.advance(0.1)
        self.successResultOf(made)

        self.client.answers["n2:9876"] = broken
        silent.errback(RemotingTimeout("no answer"))
        self.client.take()
        self.successResultOf(self.make_topic("T2"))
        self.assertEqual(self.client.take(), [("n1:9876", 322), ("n1:9876", 103)])

        del self.client.answers["n2:9876"]
        for number in range(3):  # which do not put it off
            self.clock.advance(0.7)
            self.successResultOf(self.make_topic(f"T{number}"))
        self.assertIn(("n2:9876", 103), self.client.take())
        self.assertEqual(self.registration.failures, 1)

    def test_topics_of_a_slave_are_its_masters_to_tell(self) -> None:
        self.make("n1:9876", broker_id=1)
        self.start()
        self.client.take()
        self.successResultOf(self.make_topic("%RETRY%g"))
        self.assertEqual(self.client.take(), [])

    def test_register_topic(self) -> None:
        """Only the topic where the name server knows the version before; else everything, or a
        name server that missed a change (or restarted) would never hear of the others."""
        for known, is_partial in ((0, True), (-1, False), (1, False), (None, False)):
            self.make("n1:9876")
            self.start()
            self.client.take()
            self.answer_versions(known)
            config = TopicConfig("T", 4, 4)
            self.topics.update(config)
            self.successResultOf(self.registration.register_topic(config))
            self.assertEqual([item.code for _, item, _ in self.client.sent], [322, 103])
            expected = {"T"} if is_partial else set(self.topics.table)
            self.assertEqual(self.sent_topics(1), expected, known)

    def test_a_slave_without_a_master_asks_again(self) -> None:
        """Soon, then later and later; it stops when it knows one."""
        self.make("n1:9876", broker_id=1)
        self.start()
        self.client.take()
        at = []
        for tick in range(120):
            self.clock.advance(0.5)
            if (code := self.client.take()) and code[0][1] == 103:
                at.append((tick + 1) / 2)
        self.assertEqual(at[:3], [2.0, 6.0, 10.0])
        self.assertEqual(max(b - a for a, b in pairwise(at)), 10)
        self.client.answers["n1:9876"] = with_ext(masterAddr="m:10911", haServerAddr="m:10912")
        self.clock.advance(30)
        self.assertEqual(self.registration._again, None)

    def test_a_slave_that_stays_alone_says_so(self) -> None:
        """Once, as long as it lasts: a wrong brokerName else shows nowhere."""
        self.make("n1:9876", broker_id=1)
        with capturedLogs() as events:
            self.start()
            self.clock.pump([0.5] * 6)
            self.assertEqual([item for item in events if item["log_level"] is LogLevel.warn], [])
            self.clock.pump([0.5] * 60)
        (warning,) = [item for item in events if item["log_level"] is LogLevel.warn]
        self.assertIn("no name server knows a master named broker-a", formatEvent(warning))

    def test_who_is_not_answered_knows_nothing_of_its_master(self) -> None:
        """A slave without name servers is not told to look for a wrong brokerName, nor a master."""
        for broker_id, answer in ((1, broken), (0, with_ext())):
            self.make("n1:9876", broker_id=broker_id)
            self.client.answers["n1:9876"] = answer
            with capturedLogs() as events:
                self.start()
                self.clock.pump([1] * 60)
            self.assertFalse([item for item in events if "knows a master" in formatEvent(item)])

    def test_a_name_server_that_does_not_answer_is_asked_again(self) -> None:
        """A broker is found two seconds after its name server is there, not thirty."""
        self.make("n1:9876")
        self.client.answers["n1:9876"] = broken
        self.start()
        self.client.take()
        del self.client.answers["n1:9876"]
        self.clock.advance(1.9)
        self.assertEqual(self.client.take(), [])
        self.clock.advance(0.2)
        self.assertEqual(self.client.take(), [("n1:9876", 103)])
        self.clock.advance(5)
        self.assertEqual(self.client.take(), [])

    def test_a_second_outage_is_as_short_as_the_first(self) -> None:
        """Though the first one ended by another round than the one that was waited for."""
        self.make("n1:9876")
        self.start()
        for _ in range(2):
            self.client.answers["n1:9876"] = broken
            self.registration.register_all()
            del self.client.answers["n1:9876"]
            self.clock.advance(1)
            self.registration.register_all()
        self.client.answers["n1:9876"] = broken
        self.registration.register_all()
        self.client.take()
        self.clock.advance(2)
        self.assertEqual(self.client.take(), [("n1:9876", 103)])

    def test_topics_that_change_together_are_registered_together(self) -> None:
        """One round for what came during the one before; only what each name server lacks."""
        self.make("n1:9876")
        self.start()
        self.client.take()
        held: list[Deferred[RemotingCommand]] = []
        self.client.answers["n1:9876"] = lambda command: held.append(Deferred()) or held[-1]
        done = []
        for number in range(50):
            config = TopicConfig(f"T{number}", 4, 4)
            self.topics.update(config)
            self.registration.register_topic(config).addCallback(done.append)
        self.assertEqual(len(self.client.sent), 1)
        self.answer_versions(0)
        query = self.client.sent[0][1]
        held[0].callback(query.response(ext={"changed": "true"}, body=b'{"counter":0}'))
        self.assertEqual(len(done), 50)
        self.assertEqual([item.code for _, item, _ in self.client.sent], [322, 103, 322, 103])
        everything = {f"T{number}" for number in range(50)}
        self.assertEqual([self.sent_topics(1), self.sent_topics(3)], [everything, everything])
        self.client.take()
        self.answer_versions(47)
        self.registration.register_topic(config)
        self.assertEqual(self.sent_topics(1), {"T47", "T48", "T49"})
        self.client.take()
        self.topics.create_in_send_back("%RETRY%g")
        self.topics.update(config)
        self.registration.register_topic(config)
        self.assertEqual(self.sent_topics(1), set(self.topics.table))

    def test_changes_that_are_remembered_are_bounded(self) -> None:
        """Who knows less than they say is told everything."""
        self.make("n1:9876")
        self.start()
        self.patch(registration_module, "MAX_CHANGES", 3)
        for known, told in ((2, {"T2", "T3", "T4"}), (1, None)):
            for number in range(5):
                config = TopicConfig(f"T{number}", 4, 4)
                self.topics.update(config)
                self.registration.register_topic(config)
            self.client.take()
            counter = self.topics.data_version.counter
            self.answer_versions(counter - 5 + known)
            self.registration.register_topic(config)
            self.assertEqual(self.sent_topics(1), told or set(self.topics.table))

    def test_register_topic_with_a_name_server_down(self) -> None:
        """The others hear of it, and the operator is answered."""
        self.make()
        self.start()
        self.client.take()
        self.client.answers["n1:9876"] = broken
        config = TopicConfig("T", 4, 4)
        self.topics.update(config)
        self.successResultOf(self.registration.register_topic(config))
        self.assertEqual(self.client.take(), [("n1:9876", 322), ("n2:9876", 322), ("n2:9876", 103)])

    def answer_versions(self, counter: int | None) -> None:
        body = None if counter is None else b'{"counter":%d,"timestamp":1}' % counter
        self.client.answers["n1:9876"] = lambda command: succeed(
            command.response(ext={"changed": "true"}, body=body if command.code == 322 else None)
        )

    def test_stop(self) -> None:
        """Says good-bye to all within 3 s; no timer is left."""
        self.make()
        self.start()
        self.client.take()
        self.client.answers["n1:9876"] = broken
        with capturedLogs() as events:
            self.successResultOf(self.registration.stop())
        self.assertEqual(events, [])  # nobody has to look after that name server
        self.assertEqual({ms for _, _, ms in self.client.sent}, {3000})
        self.assertEqual(self.client.take(), [("n1:9876", 104), ("n2:9876", 104)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_our_own_mistake_does_not_end_it(self) -> None:
        """Any exception counts as that name server's failure; the period goes on."""
        self.make("n1:9876")
        self.client.answers["n1:9876"] = lambda command: fail(ZeroDivisionError("on purpose"))
        self.start()
        self.clock.advance(10)
        self.assertGreaterEqual(self.registration.failures, 2)

    def test_nothing_registers_after_the_good_bye(self) -> None:
        """A round that still waits for a version does not bring the broker back."""
        self.make("n1:9876", force_register=False)
        self.start()
        waiting: Deferred[RemotingCommand] = Deferred()
        self.client.answers["n1:9876"] = lambda command: (
            waiting if command.code == 322 else succeed(command.response())
        )
        self.clock.advance(10)
        self.client.take()
        self.successResultOf(self.registration.stop())
        waiting.callback(RemotingCommand(0, ext={"changed": "true"}))
        self.successResultOf(self.make_topic("T"))
        self.clock.advance(60)
        self.assertEqual(self.client.take(), [("n1:9876", 104)])

    def test_a_refusal_is_a_failure(self) -> None:
        self.make("n1:9876")
        self.client.answers["n1:9876"] = lambda command: succeed(command.response(1, "crc32"))
        self.start()
        self.assertEqual(self.registration.failures, 1)
