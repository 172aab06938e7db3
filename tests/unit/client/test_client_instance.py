"""Routes, heartbeats and pushes of a whole client on simulated machines."""

from collections.abc import Mapping
from typing import Any

import pytest
from sim_cluster import SimCluster
from twisted.internet.defer import Deferred, succeed

from rmq_ha.client.errors import BrokerRefused, MQClientError, NoRoute, NotStarted
from rmq_ha.client.instance import ClientInstance
from rmq_ha.client.messages import Message, MessageExt, MessageQueue
from rmq_ha.client.producer import Producer
from rmq_ha.client.settings import (
    ClientConfig,
    Process,
    ProducerConfig,
    client_id,
    name_servers,
)
from rmq_ha.client.signing import Credentials
from rmq_ha.errors import ConfigurationError
from rmq_ha.model.status import BrokerRole
from rmq_ha.model.subscription import SubscriptionData
from rmq_ha.store.format.commitlog import decode_record
from rmq_ha.wire import fastjson
from rmq_ha.wire.bodies import ConsumerData
from rmq_ha.wire.codes import RequestCode
from rmq_ha.wire.command import RemotingCommand


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
    instance = started(cluster, route_idle_millis=60_000)
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


def test_name_servers_gone_and_back() -> None:
    """What was known stays usable."""
    cluster = SimCluster("a")
    instance = started(cluster)
    cluster.wait(instance.route("TBW102"))
    cluster.namesrv.host.crash()
    cluster.run(100)
    assert instance.broker_address("a") == (cluster.address("a"), 0, False)
    cluster.namesrv.start()
    cluster.run(65)
    assert cluster.wait(instance.route("BenchmarkTest")).queues


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
    committed = {"topic": "T", "consumerGroup": "CG", "commitOffset": "4"}
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


@pytest.mark.parametrize("text", ["", " ; ", "a:b", "a:0", "a:70000", ":1"])
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
