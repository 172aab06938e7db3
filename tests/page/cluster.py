"""A simulated cluster with status ports and traffic, and a way for a real browser to reach it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from math import sin
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig
from rmq_ha.ops.app.broker_server import BrokerServer
from rmq_ha.testing.cluster import small_configuration
from rmq_ha.testing.host import SimHost
from tests.unit.client.sim_cluster import SimCluster

STATUS_PORT = 5557
TOKEN = "look-and-see-what-is-there"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
_BATCH = {
    "a": "producers", "c": "TBW102", "d": "4", "f": "0", "g": "0", "h": "0", "i": "", "j": "0",
    "m": "true",
}  # fmt: skip


class PageCluster(SimCluster):
    """Brokers with everything that twistd would start, a page included."""

    def __init__(self, subnet: str = "127.0.0") -> None:
        super().__init__(subnet=subnet)
        self.servers: dict[str, BrokerServer] = {}
        self.looker = self.world.add("looker")
        self.sender = self.client("sender")
        self.wait(self.sender.start())

    def add(self, name: str, role: BrokerRole = BrokerRole.SYNC_MASTER, **changes: Any) -> Any:
        """Start a broker; a slave of `of`, if that is given."""
        host = self.hosts.get(name) or self.world.add(name)
        if not host.is_running:
            host.restart()
        self.hosts[name] = host
        number = 1 if role is BrokerRole.SLAVE else 0
        configuration = small_configuration(
            host.ip, role, FlushDiskType.ASYNC_FLUSH, number, file_size=1 << 22
        )
        configuration.broker.namesrv_addr = self.namesrv.address
        configuration.broker.broker_name = changes.pop("of", name)
        configuration.store.mapped_file_size_consume_queue = 6000 * 20
        configuration.store.max_hash_slot_num, configuration.store.max_index_num = 5000, 20000
        configuration.ours.metrics_port = STATUS_PORT
        configuration.ours.metrics_address = host.ip
        for key, value in changes.items():
            setattr(configuration.ours, key, value)
        server = self.servers[name] = BrokerServer(host.seams, configuration)
        self.wait(server.start())
        self.brokers[name] = server._broker
        return server._broker

    def topic(self, broker: str, name: str, queues: int = 4) -> None:
        """Make one, as hostile as its name may be."""
        self.brokers[broker].topics.update(TopicConfig(name, queues, queues, 6))

    def send(
        self, broker: str, topic: str, count: int, queues: int = 4, body: bytes = b"", **more: str
    ) -> None:
        """Messages, a batch to each queue; waits for the answers."""
        for command in self._batches(topic, count, queues, body, more):
            answer = self.wait(self.sender.invoke(self.address(broker), command, 9000))
            assert answer.code in (0, 10, 11, 12), answer.remark

    def begin_to_send(self, broker: str, topic: str, count: int, queue_id: int) -> None:
        """A batch to one queue, whatever becomes of it."""
        ext = {**_BATCH, "b": topic, "e": str(queue_id)}
        command = RemotingCommand(320, ext, encode_batch([(0, b"x" * 180, "")] * count))
        self.begin(self.sender.invoke(self.address(broker), command, 9000))

    def begin(self, later: Any) -> None:
        """Nobody waits for it."""
        started = later if isinstance(later, Deferred) else Deferred.fromCoroutine(later)
        started.addErrback(lambda _: None)

    def _batches(
        self, topic: str, count: int, queues: int, body: bytes, more: dict[str, str]
    ) -> Iterator[RemotingCommand]:
        text = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
        for queue_id in range(min(queues, count)):
            part = count // queues + (queue_id < count % queues)
            if part:
                ext = {**_BATCH, "b": topic, "e": str(queue_id)}
                members = [(0, body or b"x" * 180, text)] * part
                yield RemotingCommand(320, ext, encode_batch(members))

    def send_one(self, broker: str, topic: str, body: bytes, properties: str) -> str:
        """One message; the id of its place."""
        now = self.hosts["sender"].now_ms()
        command = send_request("producers", topic, 0, body, properties, now)
        answer = self.wait(self.sender.invoke(self.address(broker), command, 9000))
        assert answer.code == 0, answer.remark
        return str((answer.ext or {})["msgId"])

    def beat(self, broker: str, group: str) -> None:
        """A producer's heartbeat."""
        client_id = f"{self.hosts['sender'].ip}@{group}"
        body = {"clientID": client_id, "producerDataSet": [{"groupName": group}]}
        command = RemotingCommand(34, {}, json.dumps(body).encode())
        self.begin(self.sender.invoke(self.address(broker), command, 9000))

    def consume(self, name: str, group: str, *topics: str, listener: Any = None) -> PushConsumer:
        """A real consumer on its own machine."""
        consumer = PushConsumer(
            self.client(name), group, PushConsumerConfig(consume_from_where=FIRST)
        )
        for topic in topics:
            consumer.subscribe(topic, "*")
        consumer.register_message_listener(listener or (lambda messages, context: None))
        self.wait(consumer.start())
        return consumer


class _Reader(Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.done: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:
        self.done.callback(self.data)


class Bridge:
    """
    A real port that leads to a simulated one; its time goes on when somebody asks.

    :ivar port: on 127.0.0.1.
    :ivar is_down: connections are closed at once, as those of a dead server are.
    """

    def __init__(self, cluster: PageCluster, host: SimHost, port: int = STATUS_PORT) -> None:
        self._cluster = cluster
        self.host = host
        self._to = port
        self._lock = threading.Lock()
        self._at = time.monotonic()
        self.is_down = False
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def hold(self) -> threading.Lock:
        """For whoever changes something in the simulation: nobody asks meanwhile."""
        return self._lock

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20)
            try:
                request = _request(connection)
                if request and not self.is_down:
                    self.asked.append(request.split(b"\r\n", 1)[0].decode())
                    connection.sendall(self.exchange(request))
            except OSError:
                return

    def exchange(self, request: bytes) -> bytes:
        """What the simulated server says to this."""
        with self._lock:
            cluster, now = self._cluster, time.monotonic()
            cluster.run(min(6.0, now - self._at))
            self._at = now
            endpoint = cluster.looker.seams.network.client(self.host.ip, self._to)
            reader = cluster.wait(endpoint.connect(Factory.forProtocol(_Reader)))
            reader.transport.write(request)
            data: bytes = cluster.wait(reader.done)
            return data


def _request(connection: socket.socket) -> bytes:
    """Whole, and such that the server closes behind its answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    size = 0
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    while len(body) < size:
        body += connection.recv(65536)
    return b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body


class Traffic:
    """Of a shop; it goes on for as long as the simulation does."""

    def __init__(self, cluster: PageCluster) -> None:
        self._cluster = cluster
        self._random = cluster.world.random("traffic")
        self._clock = cluster.hosts["sender"].clock
        self._steps = 0
        self._on_time()

    def _on_time(self) -> None:
        """Every five seconds, a queue of each topic in turn."""
        cluster, step = self._cluster, self._steps
        self._steps += 1
        wave = 1 + 0.5 * sin(step / 90) + self._random.random() * 0.15
        cluster.begin_to_send("broker-a", "orders", int(120 * wave), step % 8)
        cluster.begin_to_send("broker-a", "payments", int(35 * wave), step % 4)
        cluster.begin_to_send("broker-a", "audit-trail", int(45 * wave), step % 4)
        cluster.begin_to_send("broker-b", "price-updates", int(60 * wave), step % 4)
        if step % 3 == 0:
            cluster.begin_to_send("broker-a", "shipments", int(30 * wave), step % 4)
        if step % 6 == 0:
            for name in ("checkout", "pricing"):
                cluster.beat("broker-a", name)
        self._clock.callLater(5, self._on_time)


def believable(minutes: int = 62, subnet: str = "127.0.0") -> PageCluster:
    """
    A pair and a broker beside it, an hour of traffic, a group that falls behind, a slave that was
    away, messages that nobody can process.
    """
    cluster = PageCluster(subnet)
    cluster.add("broker-a", page_token=TOKEN)
    cluster.add("broker-a-slave", BrokerRole.SLAVE, of="broker-a", page_token=TOKEN)
    cluster.add("broker-b", BrokerRole.ASYNC_MASTER, page_token=TOKEN)
    for topic in ("orders", "payments", "shipments", "audit-trail"):
        cluster.topic("broker-a", topic, 8 if topic == "orders" else 4)
    cluster.topic("broker-b", "price-updates")
    cluster.run(40)
    cluster.consume("shop-1", "fulfilment", "orders")
    cluster.consume("shop-2", "fulfilment", "orders")
    cluster.consume("ledger-1", "ledger", "orders", "payments")
    tired = cluster.consume("reports-1", "reporting", "audit-trail")
    Traffic(cluster)
    part = minutes * 60 / 6
    cluster.topic("broker-a", "%DLQ%ledger", 1)
    cluster.run(2 * part)
    cluster.hosts["broker-a-slave"].crash(power=True)
    cluster.run(75)
    cluster.add("broker-a-slave", BrokerRole.SLAVE, of="broker-a", page_token=TOKEN)
    cluster.run(part)
    cluster.send("broker-a", "%DLQ%ledger", 2, 1)
    cluster.run(part)
    cluster.wait(tired.stop())
    cluster.run(part)
    cluster.send("broker-a", "%DLQ%ledger", 1, 1)
    cluster.run(part - 75)
    for number in range(3):
        cluster.send_one(
            "broker-a",
            "orders",
            b'{"order": 4711%d, "customer": "c-118", "total": "59.90", "currency": "EUR"}' % number,
            f"KEYS\x01order-4711{number} c-118\x02TAGS\x01placed\x02"
            f"UNIQ_KEY\x010A1400031A2C18B4AAC21F5{number:05}0000\x02",
        )
    cluster.run(12)
    return cluster
