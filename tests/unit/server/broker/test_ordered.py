"""Ordered consumption on a whole broker: locks and connections. Spec: remoting.md, section 7.3."""

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import LockBatch, MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


class Member:
    """A consumer with a connection of its own."""

    def __init__(self, broker: SimBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.connect()

    def connect(self) -> None:
        self.client = RemotingClient(self.broker.client_host.seams, NettyClientConfig())

    def ask(self, code: int, group: str) -> RemotingCommand:
        body = LockBatch(group, self.name, QUEUES).encode()
        address = f"{self.broker.host.ip}:{LISTEN_PORT}"
        request = RemotingCommand(code, body=body)
        answer: RemotingCommand = self.broker.wait(self.client.invoke(address, request, 3000))
        return answer

    def lock(self, group: str = "g") -> int:
        """How many queues it owns now."""
        answer = self.ask(RequestCode.LOCK_BATCH_MQ, group)
        return len(fastjson.parse(answer.body or b"")["lockOKMQSet"])

    def die(self) -> None:
        """Its connection is gone; nothing is unlocked."""
        self.broker.wait(self.client.stop())
        self.broker.world.clock.run_for(0.1)


def test_a_dead_clients_queues_are_free_after_thirty_seconds() -> None:
    """Counted from its last renewal, when it takes the locks for lost itself."""
    broker = SimBroker().start()
    dead, other = Member(broker, "dead"), Member(broker, "other")
    assert dead.lock() == 3
    assert other.lock() == 0
    broker.world.clock.run_for(20)
    assert dead.lock() == 3
    dead.die()
    broker.world.clock.run_for(29)
    assert other.lock() == 0
    broker.world.clock.run_for(1.5)
    assert other.lock() == 3
    other.die()
    broker.stop()


def test_a_client_that_comes_back_keeps_its_queues() -> None:
    """Its next renewal, over a new connection, counts as any."""
    broker = SimBroker().start()
    member, other = Member(broker, "member"), Member(broker, "other")
    assert (member.lock("g"), member.lock("h")) == (3, 3)
    member.die()
    member.connect()
    assert member.lock("g") == 3
    broker.world.clock.run_for(31)
    assert other.lock("g") == 0
    assert other.lock("h") == 3
    member.die()
    other.die()
    broker.stop()


def test_a_new_connection_beside_the_old_one_keeps_the_locks() -> None:
    """Only with the last connection that locked for a client are its locks orphans."""
    broker = SimBroker().start()
    member, again, other = (Member(broker, name) for name in ("member", "member", "other"))
    assert (member.lock(), again.lock()) == (3, 3)
    member.die()
    broker.world.clock.run_for(45)
    assert other.lock() == 0
    assert again.lock() == 3
    again.die()
    broker.world.clock.run_for(31)
    assert other.lock() == 3
    other.die()
    broker.stop()


def test_with_javas_setting_a_connection_does_not_matter() -> None:
    """lockMaxLiveTimeWithoutConnection=60000."""
    broker = SimBroker()
    broker.configuration.ours.lock_max_live_time_without_connection = 60_000
    broker.start()
    dead, other = Member(broker, "dead"), Member(broker, "other")
    assert dead.lock() == 3
    dead.die()
    broker.world.clock.run_for(59)
    assert other.lock() == 0
    broker.world.clock.run_for(1.5)
    assert other.lock() == 3
    broker.stop()


def test_one_that_unlocks_leaves_nothing_behind() -> None:
    """As a client does when it is shut down or loses a queue to another."""
    broker = SimBroker().start()
    member, other = Member(broker, "member"), Member(broker, "other")
    assert member.lock() == 3
    assert other.ask(RequestCode.UNLOCK_BATCH_MQ, "g").code == 0
    assert other.lock() == 0
    assert member.ask(RequestCode.UNLOCK_BATCH_MQ, "g").code == 0
    assert other.lock() == 3
    broker.stop()


def test_order_configuration_of_the_name_server() -> None:
    """
    ORDER_TOPIC_CONFIG reaches the broker with its registration: such a topic is `order`, and a
    broker without WRITE refuses sends to it; with the last key gone it is as any again.
    """
    broker = SimBroker()
    name_server = NamesrvNode(broker.world.add("names"))
    name_server.start()
    broker.configuration.broker.namesrv_addr = name_server.address
    broker.configuration.broker.register_name_server_period = 10_000
    broker.start()

    def kv(code: int, **ext: str) -> int:
        request = RemotingCommand(code, {"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC, **ext})
        answer = broker.wait(broker.client.invoke(name_server.address, request, 3000))
        return int(answer.code)

    topics = broker.broker.topics
    broker.world.clock.run_for(11)
    assert not topics.is_order(TOPIC)
    assert kv(RequestCode.PUT_KV_CONFIG, value="broker-a:8") == 0
    broker.world.clock.run_for(31)
    assert topics.is_order(TOPIC)
    broker.configuration.broker.broker_permission = 4
    assert broker.send().code == ResponseCode.NO_PERMISSION
    assert kv(RequestCode.DELETE_KV_CONFIG) == 0
    broker.world.clock.run_for(31)
    assert not topics.is_order(TOPIC)
    assert broker.send().code == 0
    broker.stop()
