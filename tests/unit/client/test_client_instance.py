"""Routes, heartbeats and pushes of a whole client on simulated machines."""

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.remoting.signing import SIGNATURE, SIGNED_TIME, Credentials, sign
from rmq_ha.base.store_format.commitlog import Record, decode_record, encode_record
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import ConsumerData
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import BrokerRoute, TopicRoute
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.pushes import Pushes
from rmq_ha.client.connection.route_cache import all_addresses
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoRoute, NotStarted
from rmq_ha.client.rules.messages import Message, MessageExt, MessageQueue, decode_messages
from rmq_ha.client.rules.settings import (
    ClientConfig,
    Process,
    ProducerConfig,
    client_id,
    name_servers,
)
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.request_reply import Requests
from tests.unit.client.scripted import MASTER, OTHER, ROUTE, SLAVE, Scripted
from tests.unit.client.sim_cluster import SimCluster


class Part:
    """A consumer that only notes what it is told."""

    def __init__(self, group: str = "CG") -> None:
        self.group = group
        self.changes = 0
        self.resets: list[tuple[str, dict[MessageQueue, int]]] = []
        self.consumed: list[MessageExt] = []

    def heartbeat_data(self) -> ConsumerData:
        subscription = SubscriptionData.for_tags("T", "*", 1)
        return ConsumerData(
            self.group,
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_FIRST_OFFSET",
            [subscription],
        )

    def on_group_changed(self) -> None:
        self.changes += 1

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.resets.append((topic, dict(offsets)))

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {MessageQueue(topic, "a", 1): 17}

    def running_info(self, want_stack: bool) -> Mapping[str, Any]:
        return {"jstack": "stack" if want_stack else None, "properties": {"mine": "1"}}

    def consume_directly(self, message: MessageExt) -> Any:
        self.consumed.append(message)
        return succeed({"consumeResult": "CR_SUCCESS", "order": False})


def started(cluster: SimCluster, name: str = "client", **settings: Any) -> ClientInstance:
    instance = cluster.client(name, **settings)
    cluster.wait(instance.start())
    return instance


def ask(cluster: SimCluster, instance: ClientInstance, code: int, **ext: str) -> RemotingCommand:
    """What an operator's tool asks of broker a."""
    later = instance.invoke(cluster.address("a"), RemotingCommand(code, ext), 10_000)
    answer: RemotingCommand = cluster.wait(later)
    return answer


def test_a_new_broker_gets_a_heartbeat_at_once() -> None:
    """Not only after 30 s: it may have something to ask."""
    cluster = SimCluster("a")
    instance = started(cluster)
    instance.register_consumer("CG", Part())
    cluster.run(5)
    assert cluster.brokers["a"].consumers.group("CG") is None
    cluster.wait(instance.route("TBW102"))
    cluster.run(0.1)
    assert cluster.brokers["a"].consumers.client_ids("CG") == [instance.client_id]
    assert instance.broker_version(cluster.address("a")) == 407
    cluster.add("b")
    cluster.run(31)
    assert cluster.brokers["b"].consumers.client_ids("CG") == [instance.client_id]


def test_heartbeats_go_on_and_one_round_at_a_time() -> None:
    """Registrations outlive their expiry; who asks for a round during one gets the next."""
    cluster = SimCluster("a")
    instance = started(cluster)
    cluster.wait(instance.route("TBW102"))
    instance.register_consumer("CG", Part())
    rounds = [instance.heartbeat_now() for _ in range(3)]
    for later in rounds:
        cluster.wait(later)
    cluster.run(300)
    assert cluster.brokers["a"].consumers.client_ids("CG") == [instance.client_id]
    cluster.wait(instance.unregister_consumer("CG"))
    assert cluster.brokers["a"].consumers.group("CG") is None
    cluster.wait(instance.heartbeat_now())


def test_a_silent_broker_does_not_hold_up_others() -> None:
    """A round ends when the slowest has timed out; the next one comes in time."""
    cluster = SimCluster("a", "b")
    instance = started(cluster)
    cluster.wait(instance.route("TBW102"))
    instance.register_consumer("CG", Part())
    cluster.run(1)
    cluster.crash("a", power=True)
    before = cluster.clock.seconds()
    cluster.wait(instance.heartbeat_now())
    assert cluster.clock.seconds() - before == pytest.approx(3, abs=0.1)
    cluster.run(200)
    assert cluster.brokers["b"].consumers.client_ids("CG") == [instance.client_id]


def test_a_broker_that_takes_no_heartbeats_is_told_of_once_until_it_takes_one_again() -> None:
    """Every thirty seconds a line that says the same would hide all others."""
    scripted = Scripted()
    scripted.wait(scripted.instance.start())
    scripted.wait(scripted.instance.route("T"))
    scripted.down.add(MASTER)
    with capturedLogs() as events:
        scripted.instance.register_producer("PG", object())  # type: ignore[arg-type]
    assert [formatEvent(event) for event in events] == [
        f"{MASTER} takes no heartbeat: {MASTER}: refused"
    ]
    scripted.down.clear()

    def heard(answer: RemotingCommand) -> list[str]:
        scripted.answers[RequestCode.HEART_BEAT] = lambda address, _: (
            answer if address == MASTER else RemotingCommand(0, version=400)
        )
        with capturedLogs() as events:
            for _ in range(3):
                scripted.wait(scripted.instance.heartbeat_now())
        return [formatEvent(event) for event in events if "heartbeat" in formatEvent(event)]

    refused = RemotingCommand(16, remark="no permission")
    assert heard(refused) == []
    assert scripted.instance.broker_version(MASTER) == 0
    assert scripted.instance.broker_version(OTHER) == 400
    assert heard(RemotingCommand(0, version=407)) == [f"{MASTER} answers heartbeats again"]
    assert scripted.instance.broker_version(MASTER) == 407
    complaint = [f"{MASTER} takes no heartbeat: NO_PERMISSION (16): no permission"]
    assert heard(refused) == complaint
    gone = scripted.instance.routes.brokers.pop("a")
    assert heard(refused) == []
    scripted.instance.routes.brokers["a"] = gone  # another one, perhaps
    assert heard(refused) == complaint


def test_routes_are_fetched_once_and_refreshed() -> None:
    """Callers share one question; changes reach the watchers; unknown topics say so."""
    cluster = SimCluster("a")
    instance = started(cluster)
    changes: list[str] = []
    instance.on_route_change(lambda topic, route: changes.append(topic))
    both = [instance.route("TBW102") for _ in range(2)]
    assert cluster.wait(both[0]) is cluster.wait(both[1])
    assert changes == ["TBW102"]
    with pytest.raises(NoRoute, match="nowhere"):
        cluster.wait(instance.route("nowhere"))
    cluster.run(65)
    assert changes == ["TBW102"]
    cluster.add("b")
    cluster.run(31)
    assert changes == ["TBW102", "TBW102"]
    assert set(instance.routes.brokers) == {"a", "b"}
    cluster.wait(cluster.brokers.pop("b").stop())
    cluster.run(65)
    assert set(instance.routes.brokers) == {"a"}


def test_a_route_that_nobody_uses_is_forgotten() -> None:
    """Unless somebody watches it, as often as it was asked to be watched."""
    cluster = SimCluster("a")
    instance = started(cluster, route_idle_ms=60_000)
    for topic in ("TBW102", "BenchmarkTest"):
        cluster.wait(instance.route(topic))
    instance.watch_topic("TBW102")
    instance.watch_topic("TBW102")
    instance.unwatch_topic("TBW102")
    cluster.run(200)
    assert instance.routes.cached("TBW102") is not None
    assert instance.routes.cached("BenchmarkTest") is None
    instance.unwatch_topic("TBW102")
    cluster.run(200)
    assert instance.routes.cached("TBW102") is None


def test_a_route_is_kept_for_as_long_as_it_may_be_idle() -> None:
    client = Scripted(route_idle_ms=60_000)
    client.know()
    routes = client.instance.routes
    for pause, is_known in ((60, True), (0.001, False)):
        client.clock.run_for(pause)
        client.wait(routes.refresh())
        assert ("T" in routes._known) is is_known


def test_routes_are_asked_for_again_one_after_the_other_whatever_becomes_of_one() -> None:
    client = Scripted()
    for topic in ("T", "U", "V"):
        client.know(topic)
    waiting: list[Deferred[RemotingCommand]] = []

    def asked(*_: Any) -> Deferred[RemotingCommand]:
        waiting.append(Deferred())
        return waiting[-1]

    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = asked
    refreshed = Deferred.fromCoroutine(client.instance.routes.refresh())
    for number in range(1, 4):
        assert (len(waiting), refreshed.called) == (number, False)
        waiting[-1].callback(RemotingCommand(ResponseCode.TOPIC_NOT_EXIST))
    client.wait(refreshed)
    assert sorted(client.instance.routes._known) == ["T", "U", "V"]


def test_a_route_that_is_looked_at_is_kept() -> None:
    cluster = SimCluster("a")
    instance = started(cluster, route_idle_ms=60_000)
    cluster.wait(instance.route("TBW102"))
    for _ in range(5):
        cluster.run(50)
        assert instance.routes.cached("TBW102") is not None


def test_a_broker_is_known_as_long_as_any_route_mentions_it() -> None:
    scripted = Scripted()
    routes = scripted.instance.routes
    first, second = ROUTE.brokers
    for topic, broker in (("A", first), ("B", second), ("C", second)):
        routes.adopt(topic, TopicRoute([], [broker]))
    routes.drop_offline()
    assert routes.brokers == {"a": {0: MASTER, 1: SLAVE}, "b": {0: OTHER}}
    routes.adopt("A", TopicRoute([], [BrokerRoute("C", "a", {1: SLAVE})]))
    routes.adopt("B", TopicRoute([], []))
    routes.drop_offline()
    assert routes.brokers == {"a": {1: SLAVE}, "b": {0: OTHER}}
    routes.adopt("C", TopicRoute([], []))
    routes.drop_offline()
    assert routes.brokers == {"a": {1: SLAVE}}


def test_only_addresses_that_some_route_mentions_are_kept() -> None:
    """A slave that was taken away would be asked for ever."""
    scripted = Scripted()
    scripted.know()
    routes = scripted.instance.routes
    routes.brokers.update({"a": {0: MASTER, 1: SLAVE, 2: "old:1"}, "gone": {0: "old:2"}})
    routes.drop_offline()
    assert routes.brokers == {"a": {0: MASTER, 1: SLAVE}, "b": {0: OTHER}}
    kept = routes.brokers["a"]
    routes.drop_offline()
    assert routes.brokers["a"] is kept
    assert all_addresses(routes.brokers.values(), slaves=True) == [MASTER, SLAVE, OTHER]
    assert all_addresses(routes.brokers.values(), slaves=False) == [MASTER, OTHER]


def test_name_servers_gone_and_back() -> None:
    """What was known stays usable."""
    cluster = SimCluster("a")
    instance = started(cluster)
    cluster.wait(instance.route("TBW102"))
    cluster.namesrv.host.crash()
    with capturedLogs() as events:
        cluster.run(100)
    assert any("routes are not refreshed" in formatEvent(event) for event in events)
    assert instance.broker_address("a") == (cluster.address("a"), 0, False)
    cluster.namesrv.start()
    cluster.run(65)
    assert cluster.wait(instance.route("BenchmarkTest")).queues


def test_name_servers_are_asked_in_turn_and_the_one_that_answers_again() -> None:
    client = Scripted(namesrv_addr="n1:1;n2:1;n3:1")
    names = client.instance.routes._name_servers
    names._current = 0
    client.down = {"n1:1", "n2:1"}
    for _ in range(2):
        client.wait(names.ask(RemotingCommand(1), 1000))
    client.down = {"n3:1"}
    client.wait(names.ask(RemotingCommand(1), 1000))
    assert [address for address, _ in client.asked] == [
        *("n1:1", "n2:1", "n3:1", "n3:1", "n3:1", "n1:1")
    ]


def test_slaves() -> None:
    """A consumer's heartbeats reach them; `broker_address` finds them when the master is gone."""
    cluster = SimCluster("a")
    cluster.add("s", BrokerRole.SLAVE, broker={"broker_name": "a", "broker_id": 1})
    cluster.run(1)
    instance = started(cluster)
    cluster.wait(instance.route("TBW102"))
    instance.register_consumer("CG", Part())
    cluster.run(2)
    assert cluster.brokers["s"].consumers.client_ids("CG") == [instance.client_id]
    slave = (cluster.address("s"), 1, True)
    assert instance.broker_address("a", 1) == slave
    assert instance.broker_address("a", 5) == (cluster.address("a"), 0, False)
    assert instance.broker_address("a", 5, True) is None
    cluster.crash("a")
    cluster.run(65)
    assert instance.broker_address("a") == slave
    assert instance.broker_address("a", 0, True) is None
    assert instance.broker_address("nobody") is None


@pytest.fixture
def consuming() -> tuple[SimCluster, ClientInstance, ClientInstance, Part]:
    """A client with a consumer of a topic with four messages, and an operator's."""
    cluster = SimCluster("a")
    instance = started(cluster)
    producer = Producer(instance, ProducerConfig(producer_group="PG"))
    cluster.wait(producer.start())
    queue = MessageQueue("T", "a", 0)
    for n in range(4):
        cluster.wait(producer.send(Message("T", b"%d" % n), queue=queue))
    part = Part()
    instance.register_consumer("CG", part)
    cluster.run(1)
    return cluster, instance, started(cluster, "operator"), part


Consuming = tuple[SimCluster, ClientInstance, ClientInstance, Part]


def test_members_come_and_go(consuming: Consuming) -> None:
    """The group is told."""
    cluster, _, operator, part = consuming
    before = part.changes
    assert before >= 1
    cluster.wait(operator.route("T"))
    operator.register_consumer("CG", Part())
    cluster.run(1)
    assert part.changes == before + 1
    cluster.wait(operator.stop())
    cluster.run(1)
    assert part.changes == before + 2


def test_what_operators_ask(consuming: Consuming) -> None:
    """Running info, status, reset and a message to consume, relayed by the broker."""
    cluster, instance, operator, part = consuming
    me = {"consumerGroup": "CG", "clientId": instance.client_id}
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    info = fastjson.parse(ask(cluster, operator, code, **me, jstackEnable="true").body or b"")
    assert info["jstack"] == "stack"
    assert info["properties"]["mine"] == "1"
    assert info["properties"]["PROP_NAMESERVER_ADDR"] == cluster.namesrv.address
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = ask(cluster, operator, code, topic="T", group="CG", clientAddr="")
    assert b"17" in (answer.body or b"")
    committed = {"topic": "T", "consumerGroup": "CG", "commitOffset": "0"}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    for number in range(4):
        assert ask(cluster, operator, code, **committed, queueId=str(number)).code == 0
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    answer = ask(cluster, operator, code, topic="T", group="CG", timestamp="0", isForce="true")
    assert answer.code == 0
    cluster.run(0.1)
    assert part.resets == [("T", {MessageQueue("T", "a", n): 0 for n in range(4)})]
    found = cluster.brokers["a"].store.get_message("x", "T", 0, 2, 1, None)
    offset_id = decode_record(found.messages[0], 0).msg_id
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    answer = ask(cluster, operator, code, **me, msgId=offset_id)
    assert fastjson.parse(answer.body or b"")["consumeResult"] == "CR_SUCCESS"
    assert [message.offset_msg_id for message in part.consumed] == [offset_id]


def test_an_unknown_group_is_said_so(consuming: Consuming) -> None:
    """Not every question has somebody to answer it here."""
    cluster, instance, operator, _ = consuming
    instance.consumers.clear()
    me = {"consumerGroup": "CG", "clientId": instance.client_id}
    answer = ask(cluster, operator, RequestCode.GET_CONSUMER_RUNNING_INFO, **me)
    assert answer.code == 1
    assert "CG" in (answer.remark or "")


ACL = """
accounts:
- {accessKey: adminadmin, secretKey: adminsecret, admin: true}
- {accessKey: useruser, secretKey: usersecret, topicPerms: [T=PUB|SUB]}
"""


def test_signing() -> None:
    """Sends and heartbeats of an account pass; the refusal of a wrong one is told."""
    cluster = SimCluster()
    host = cluster.world.add("a")
    cluster.hosts["a"] = host
    host.disk.replace("/conf/plain_acl.yml", ACL.encode())
    cluster.add(
        "a", broker={"acl_enable": True}, ours={"acl_plug_in": "plain", "acl_directory": "/conf"}
    )
    user = started(cluster, "user", credentials=Credentials("useruser", "usersecret"))
    producer = Producer(user, ProducerConfig(producer_group="PG"))
    cluster.wait(producer.start())
    for _ in range(3):
        cluster.wait(producer.send(Message("T", b"x")))
    cluster.wait(producer.send_oneway(Message("T", b"x")))
    cluster.run(2)
    assert cluster.brokers["a"].producers.clients("PG")
    stranger = Producer(
        started(cluster, "stranger", credentials=Credentials("useruser", "wrongsecret")),
        ProducerConfig(producer_group="PG", retry_times_when_send_failed=0),
    )
    cluster.wait(stranger.start())
    with pytest.raises(BrokerRefused, match="signature"):
        cluster.wait(stranger.send(Message("T", b"x")))


def test_what_is_signed_again_has_nothing_of_the_first_signature() -> None:
    """A broker would judge it by the old one, and refuse it."""
    account = Credentials("key", "secret")
    old = RemotingCommand(1, {"topic": "T", SIGNATURE: "old", SIGNED_TIME: "old"})
    assert sign(old, account) == sign(RemotingCommand(1, {"topic": "T"}), account)
    assert old.ext == {"topic": "T", SIGNATURE: "old", SIGNED_TIME: "old"}


def test_life() -> None:
    """Started twice, stopped twice; with the last part it stops; it does not start again."""
    cluster = SimCluster("a")
    instance = started(cluster)
    cluster.wait(instance.start())
    producer = Producer(instance)
    cluster.wait(producer.start())
    instance.register_consumer("CG", Part())
    with pytest.raises(MQClientError, match="already"):
        instance.register_consumer("CG", Part())
    cluster.wait(producer.stop())
    assert instance.is_running
    cluster.wait(instance.stop())
    cluster.wait(instance.stop())
    with pytest.raises(NotStarted):
        cluster.wait(instance.start())
    cluster.run(100)


def test_stop_while_a_route_is_asked_for() -> None:
    """Everything that waits fails; nothing hangs."""
    cluster = SimCluster("a")
    cluster.namesrv.host.crash(power=True)
    instance = started(cluster)
    waiting: Deferred[Any] = instance.route("T")
    cluster.wait(instance.stop())
    with pytest.raises(MQClientError):
        cluster.wait(waiting)


def test_vip() -> None:
    """Two below the broker's port, when asked for."""
    cluster = SimCluster("a")
    plain, vip = cluster.client("one"), cluster.client("two", vip_channel_enabled=True)
    assert plain.vip("h:10911") == "h:10911"
    assert vip.vip("h:10911") == "h:10909"
    producer = Producer(vip)
    cluster.wait(producer.start())
    cluster.wait(producer.send(Message("T", b"x")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", ["a:1"]),
        ("a:1;b", ["a:1", "b:9876"]),
        (" a:1 ; ;a:1;", ["a:1"]),
        ("http://ns:9876/", ["ns:9876"]),
        ("[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_name_server_lists(text: str, found: list[str]) -> None:
    """`;` between them, the port may be left out, twice counts once."""
    assert name_servers(text) == found


@pytest.mark.parametrize("text", ["", " ; ", "a:b", "a:0", "a:70000", "a:65536", ":1"])
def test_name_server_lists_that_do_not_fit(text: str) -> None:
    """The message says what to set."""
    with pytest.raises(ConfigurationError, match="namesrv_addr"):
        name_servers(text)


def test_client_ids() -> None:
    """As Java's."""
    process = Process(7, "10.0.0.1")
    assert client_id(ClientConfig(), process, 99) == "10.0.0.1@7#99"
    named = ClientConfig(instance_name="i", unit_name="u", client_ip="1.2.3.4")
    assert client_id(named, process, 99) == "1.2.3.4@i@u"


def test_the_environment_names_servers() -> None:
    """NAMESRV_ADDR, when the settings say nothing."""
    cluster = SimCluster()
    process = Process(1, "127.0.0.1", {"NAMESRV_ADDR": cluster.namesrv.address})
    instance = cluster.client("c", namesrv_addr="", process=process)
    assert instance.routes is not None
    with pytest.raises(ConfigurationError, match="NAMESRV_ADDR"):
        cluster.client("d", namesrv_addr="")


def test_a_group_leaves_only_after_the_heartbeat_that_still_names_it() -> None:
    """Read the other way round they would make it a member that consumes nothing for 2 min."""
    cluster = SimCluster("a")
    instance = cluster.client()
    cluster.wait(instance.start())
    instance.register_consumer("CG", Part())
    cluster.wait(instance.route("TBW102"))
    cluster.run(2)
    codes: list[int] = []
    answers: list[Deferred[RemotingCommand]] = []

    class Slow:
        def invoke(self, address: str, command: RemotingCommand, _: int) -> Any:
            codes.append(command.code)
            answers.append(Deferred())
            return answers[-1]

    instance._heartbeats._calls = Slow()  # type: ignore[assignment]
    instance.heartbeat_now()
    again = instance.heartbeat_now()
    left = instance.unregister_consumer("CG")
    assert codes == [RequestCode.HEART_BEAT]
    answers[0].callback(RemotingCommand(0))
    assert codes == [RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT]
    assert again.called
    answers[1].callback(RemotingCommand(0))
    assert left.called


def test_all_who_wait_for_a_route_get_it() -> None:
    """One of them asks; the others would wait for ever."""
    scripted = Scripted()
    answer: Deferred[RemotingCommand] = Deferred()
    scripted.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = answer
    waiting = [scripted.instance.route("T") for _ in range(3)]
    answer.callback(RemotingCommand(0, {}, ROUTE.encode()))
    assert [scripted.wait(later) for later in waiting] == [ROUTE] * 3
    assert len(scripted.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1


def test_a_connection_that_is_closed_is_made_anew_by_the_next_call(consuming: Consuming) -> None:
    cluster, client = consuming[:2]
    address = cluster.address("a")
    first = client.open_channel(address)
    assert first is not None
    client.close(address)
    cluster.run(0.1)
    assert client.open_channel(address) is None
    assert not first.is_open
    cluster.wait(client.heartbeat_now())
    assert client.open_channel(address) not in (None, first)


def test_a_security_token_is_sent_and_signed() -> None:
    """Accounts that are lent for an hour have one; nobody may take it out."""
    command = RemotingCommand(10, {"a": "b"})
    token = sign(command, Credentials("key", "secret", security_token="token")).ext or {}
    without = sign(command, Credentials("key", "secret")).ext or {}
    assert token["SecurityToken"] == "token"
    assert "SecurityToken" not in without
    assert token[SIGNATURE] != without[SIGNATURE]


def test_a_broker_that_is_known_gets_no_heartbeat_because_of_a_route() -> None:
    """Each new topic would be a round of heartbeats to all brokers."""
    scripted = Scripted()
    scripted.instance.routes.adopt("T", ROUTE)
    assert scripted.of(RequestCode.HEART_BEAT) == []  # there is no group
    scripted.instance.register_producer("g", Part())
    beaten = len(scripted.of(RequestCode.HEART_BEAT))
    assert beaten
    scripted.instance.routes.adopt("U", ROUTE)
    assert len(scripted.of(RequestCode.HEART_BEAT)) == beaten


def test_a_client_that_stops_leaves_its_groups_and_never_starts_again() -> None:
    """Brokers would keep its queues from the others of the group for two minutes."""
    scripted = Scripted()
    instance = scripted.instance
    scripted.wait(instance.start())
    scripted.know()
    for group in ("CG", "CG2"):
        instance.register_consumer(group, Part(group))
    instance.register_producer("PG", Part())
    scripted.wait(instance.stop())
    left = [
        (address, ext.get("consumerGroup") or ext["producerGroup"])
        for address, ext in scripted.of(RequestCode.UNREGISTER_CLIENT)
    ]
    groups = [
        ("CG", (MASTER, SLAVE, OTHER)),
        ("CG2", (MASTER, SLAVE, OTHER)),
        ("PG", (MASTER, OTHER)),
    ]
    assert left == [(address, group) for group, addresses in groups for address in addresses]
    never = Scripted().instance
    scripted.wait(never.stop())
    for stopped in (instance, never):
        with pytest.raises(NotStarted):
            scripted.wait(stopped.start())


def test_a_producer_starts_its_client_and_tells_whom_it_could_send_to() -> None:
    scripted = Scripted()
    producer = Producer(scripted.instance, ProducerConfig(producer_group="PG"))
    scripted.wait(producer.start())
    assert scripted.instance.is_running
    queues = scripted.wait(producer.fetch_publish_message_queues("T"))
    assert [queue.broker_name for queue in queues] == ["a", "a", "b", "b"]
    refused = producer.fetch_publish_message_queues("a b")
    with pytest.raises(MQClientError):
        scripted.wait(refused)


def test_an_answer_of_a_name_server_that_cannot_be_read_is_no_route() -> None:
    scripted = Scripted()
    scripted.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = RemotingCommand(0, {}, b'{"a')
    with pytest.raises(NoRoute, match="cannot be read"):
        scripted.wait(scripted.instance.route("T"))
    for answer in (RemotingCommand(0, {}), RemotingCommand(1, {}, ROUTE.encode())):
        scripted.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = answer
        with pytest.raises(BrokerRefused):
            scripted.wait(scripted.instance.route("T"))


def test_a_hook_sees_of_a_batch_that_was_split_what_goes_together() -> None:
    scripted, seen = Scripted(), []

    class Hook:
        def before_send(self, context: Any) -> None:
            seen.append([message.body for message in context.messages])

        def after_send(self, context: Any) -> None:
            """Nothing."""

    scripted.answers[RequestCode.SEND_BATCH_MESSAGE] = RemotingCommand(
        0, {"queueId": "0", "queueOffset": "1", "msgId": "A"}
    )
    config = ProducerConfig(producer_group="PG", max_batch_size=3000)
    producer = Producer(scripted.instance, config, [Hook()])
    scripted.wait(producer.start())
    bodies = [b"%d" % number * 1000 for number in range(5)]
    scripted.wait(producer.send_batch([Message("T", body) for body in bodies]))
    assert seen == [bodies[:2], bodies[2:4], bodies[4:]]


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_a_stop_waits_until_brokers_know_that_the_groups_are_gone(kind: str) -> None:
    """A connection that is closed before brings the group back with the next start only."""
    scripted = Scripted()
    scripted.wait(scripted.instance.start())
    scripted.know()
    if kind == "consumer":
        scripted.instance.register_consumer("CG", Part())
    else:
        scripted.instance.register_producer("PG", Part())
    answer: Deferred[RemotingCommand] = Deferred()
    scripted.answers[RequestCode.UNREGISTER_CLIENT] = lambda address, _: (
        answer if address == OTHER else RemotingCommand(0, {})
    )
    stopped = Deferred.fromCoroutine(scripted.instance.stop())
    assert not stopped.called
    answer.callback(RemotingCommand(0, {}))
    scripted.wait(stopped)


def test_what_brokers_said_who_are_gone_is_forgotten() -> None:
    scripted = Scripted()
    scripted.instance.register_producer("PG", Part())
    scripted.know()
    scripted.instance._heartbeats.versions.update({"x:1": 1, "y:1": 2})
    scripted.wait(scripted.instance.heartbeat_now())
    assert set(scripted.instance._heartbeats.versions) == {MASTER, OTHER}


def test_a_producer_that_was_stopped_stays_so_and_a_one_way_send_wants_no_answer() -> None:
    scripted = Scripted()
    producer = Producer(scripted.instance, ProducerConfig(producer_group="PG"))
    scripted.wait(producer.start())
    scripted.know()
    scripted.wait(producer.send_oneway(Message("T", b"x")))
    assert len(scripted.of(RequestCode.SEND_MESSAGE_V2)) == 1
    assert scripted.timeouts == []
    scripted.wait(producer.stop())
    with pytest.raises(NotStarted):
        scripted.wait(producer.start())


def test_a_producer_that_was_stopped_does_not_come_back_though_its_client_runs_on() -> None:
    scripted = Scripted()
    names = ("PG", "OTHER")
    producer, other = (
        Producer(scripted.instance, ProducerConfig(producer_group=name)) for name in names
    )
    scripted.wait(other.start())
    scripted.wait(producer.start())
    scripted.wait(producer.fetch_publish_message_queues("T"))
    assert set(scripted.instance.routes._watched) == {"T"}
    scripted.wait(producer.stop())
    assert scripted.instance.is_running
    assert scripted.instance.routes._watched == {}, "its topics are asked for on and on"
    with pytest.raises(NotStarted, match="make a new one"):
        scripted.wait(producer.start())
    assert set(scripted.instance.producers) == {"OTHER"}


def test_who_waits_for_a_reply_hears_that_the_producer_is_stopped() -> None:
    """Nobody would bring it any more, and the time of a request may be long."""
    scripted = Scripted()
    producer = Producer(scripted.instance, ProducerConfig(producer_group="PG"))
    scripted.wait(producer.start())
    stored = {"queueId": "0", "queueOffset": "1", "msgId": "A"}
    scripted.answers[RequestCode.SEND_MESSAGE_V2] = RemotingCommand(0, stored)
    reply = producer.request(Message("T", b"anyone?"), 60_000)
    scripted.wait(producer.stop())
    with pytest.raises(NotStarted, match="before a reply came"):
        scripted.wait(reply)


def test_a_request_that_cannot_be_sent_fails_at_once_and_is_forgotten() -> None:
    scripted = Scripted()
    config = ProducerConfig(producer_group="PG", delivery_timeout_ms=0)
    producer = Producer(scripted.instance, config)
    scripted.wait(producer.start())
    scripted.answers[RequestCode.SEND_MESSAGE_V2] = RemotingCommand(ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(BrokerRefused):
        scripted.wait(producer.request(Message("T", b"anyone?"), 60_000))
    assert len(producer._requests) == 0


def test_a_reply_wakes_who_waits_for_it_and_what_comes_after_it_nobody() -> None:
    scripted = Scripted()
    requests = Requests(scripted.instance.host.clock, Random(1), "me")
    first, reply = requests.open(Message("T", b"x"), 1000)
    second, other = requests.open(Message("T", b"y"), 1000)
    came: list[Any] = []
    reply.addCallback(came.append)
    answer: Any = object()
    found = [requests.resolve(answer, each) for each in (first, first, "nobody")]
    assert (found, came, len(requests)) == ([True, False, False], [answer], 1)
    requests.fail(first, NotStarted("too late"))
    requests.fail_all(NotStarted("all"))
    with pytest.raises(NotStarted, match="all"):
        scripted.wait(other)
    requests.fail(second, NotStarted("again"))
    assert (len(came), len(requests)) == (1, 0)


def test_a_request_says_how_long_its_reply_is_of_use() -> None:
    scripted = Scripted()
    requests = Requests(scripted.instance.host.clock, Random(1), "me")
    asked = Message("T", b"x")
    correlation_id, reply = requests.open(asked, 1500.5)
    reply.addErrback(lambda _: None)
    wanted = {"CORRELATION_ID": correlation_id, "REPLY_TO_CLIENT": "me", "TTL": "1500"}
    assert wanted.items() <= asked.properties.items()
    assert UUID(correlation_id).version == 4  # of a random number, as it is
    assert len(requests) == 1
    scripted.clock.run_for(2)
    assert len(requests) == 0


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        ({}, (0, 0, "ID", "ID", "OFF")),
        (
            {
                "tranStateTableOffset": "3",
                "commitLogOffset": "4",
                "msgId": "M",
                "transactionId": "X",
                "offsetMsgId": "O",
            },
            (3, 4, "M", "X", "O"),
        ),
    ],
)
def test_a_question_about_a_transaction_names_the_message(
    ext: dict[str, str], expected: tuple[Any, ...]
) -> None:
    """As the broker does, or else as the message itself does."""
    asked: list[Any] = []
    part: Any = SimpleNamespace(check_transaction=lambda _, header, __: asked.append(header))
    pushes = Pushes({"PG": part}, {}, lambda: 0, lambda command: command, dict)
    check = pushes.handlers()[RequestCode.CHECK_TRANSACTION_STATE]
    channel: Any = SimpleNamespace(remote_text="b:1")
    here = Address(b"\x7f\0\0\1", 1)
    text = "PGROUP\x01PG\x02UNIQ_KEY\x01ID"
    body = encode_record(Record(*(0, 1, 0, 0, 0, 0, 0, 5, here, 6, here, 7, 8, b"x", "T", text)))
    check(channel, RemotingCommand(39, ext, body))
    (header,) = asked
    found = decode_messages(body)[0].offset_msg_id
    assert tuple(header)[:5] == tuple(found if item == "OFF" else item for item in expected)
    assert header[5] == "b:1"
    for wrong in (
        RemotingCommand(39, ext, body + body),
        RemotingCommand(39, ext, b"rubbish"),
        RemotingCommand(39, ext | {"commitLogOffset": "many"}, body),
    ):
        with pytest.raises(RequestRejected):
            check(channel, wrong)
