"""A broker that keeps its ticket for sends answers as one that asks all policies at each run."""

from errno import ENOSPC
from random import Random
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport

from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.broker.broker import Broker
from rmq_ha.server.broker.processors.send_ticket import SendTicket, SendTickets
from rmq_ha.testing.cluster import HA_PORT, small_configuration
from rmq_ha.testing.host import World
from tests.unit.server.broker.test_send_runs import frames

TOPICS = ("TopicA", "TopicB", "TopicC")
STRANGERS = ("unknown0", "unknown1", "unknown2", "%RETRY%g")
PROPERTIES = (
    *(["UNIQ_KEY\x010A\x02WAIT\x01true"] * 6),
    "UNIQ_KEY\x010A\x02WAIT\x01false",
    "DELAY\x012",
    "KEYS\x01k",
)
SETTINGS: dict[str, tuple[object, ...]] = {
    "brokerPermission": (6, 6, 4),
    "slaveTimeout": (50, 500, 3000),
    "haSlaveFallbehindMax": (1000, 1 << 28),
    "maxMessageSize": (100, 4_194_304),
    "sendThreadPoolQueueCapacity": (3, 10_000),
    "brokerFastFailureEnable": ("true", "false"),
    "autoCreateTopicEnable": ("true", "false"),
    "traceOn": ("true", "false"),
    "syncFlushTimeout": (20, 500),
    "startAcceptSendRequestTimeStamp": (0, 1),
}


class NothingKept(SendTickets):
    """Makes a new ticket whenever one is asked for."""

    def renew(self) -> SendTicket:
        ticket = super().renew()
        self.current = None
        return ticket


class Pair:
    """
    A synchronous master, its slave, and two connections of producers.

    :ivar renewals: how many tickets were made.
    """

    def __init__(self, *, keeps: bool) -> None:
        self.world = World(7)
        self.hosts = [self.world.add(name) for name in ("master", "slave")]
        ip = self.hosts[0].ip
        role, flush = BrokerRole.SYNC_MASTER, FlushDiskType.ASYNC_FLUSH
        self.configuration = small_configuration(ip, role, flush)
        self.master = Broker(self.hosts[0].seams, self.configuration)
        self._run(self.master.start())
        self.slave: Broker | None = None
        self.start_slave()
        self.tickets: SendTickets = self.master.dispatcher.routes[310].__self__._tickets  # type: ignore[attr-defined]
        if not keeps:
            self.tickets.__class__ = NothingKept
        self.renewals = 0
        renew = self.tickets.renew

        def counted() -> SendTicket:
            self.renewals += 1
            return renew()

        self.tickets.renew = counted  # type: ignore[method-assign]
        self.ends = []
        for port in (1, 2):
            protocol = self.master.main_server.build_protocol()
            transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.9", port))
            protocol.makeConnection(transport)  # type: ignore[arg-type]
            self.ends.append((protocol, transport))

    def _run(self, later: Any) -> None:
        results: list[Any] = []
        later.addBoth(results.append)
        self.world.clock.run_while(lambda: not results, 60)
        assert results == [None]

    def start_slave(self) -> None:
        host = self.hosts[1]
        seams = host.seams if host.is_running else host.restart()
        role, flush = BrokerRole.SLAVE, FlushDiskType.ASYNC_FLUSH
        configuration = small_configuration(host.ip, role, flush, broker_id=1)
        configuration.store.ha_master_address = f"{self.hosts[0].ip}:{HA_PORT}"
        self.slave = Broker(seams, configuration)
        self._run(self.slave.start())

    # What may happen; equal random numbers make equal events

    def send(self, random: Random) -> None:
        sends = []
        for _ in range(random.choice((1, 1, 2, 5))):
            send: dict[str, Any] = {
                "b": random.choice((*TOPICS[:1] * 4, *TOPICS, *STRANGERS)),
                "e": str(random.choice((0, 0, 1, 3, 9, -1))),
                "i": random.choice(PROPERTIES),
                "oneway": random.random() < 0.05,
                "body": bytes(random.choice((10, 50, 120))),
            }
            sends.append(send)
        protocol, _ = random.choice(self.ends)
        protocol.dataReceived(frames(False, *sends))

    def set_role(self, random: Random) -> None:
        self.configuration.store.broker_role = random.choice(list(BrokerRole))

    def set_flush(self, random: Random) -> None:
        self.configuration.store.flush_disk_type = random.choice(list(FlushDiskType))

    def change_settings(self, random: Random) -> None:
        keys = random.sample(sorted(SETTINGS), 3)
        body = "".join([f"{key}={random.choice(SETTINGS[key])}\n" for key in keys]).encode()
        request = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, {}, body, opaque=900)
        self.ends[0][0].dataReceived(encode_frame(request))

    def begin_later(self, random: Random) -> None:
        later = self.hosts[0].now_ms() + random.choice((0, 300))
        self.configuration.broker.start_accept_send_request_time_stamp = later

    def hoist(self, random: Random) -> None:
        self.master.store.flags.hoist(random.choice(list(Flag)), "a test")

    def fill_disk(self, random: Random) -> None:
        def fault(operation: str, path: str) -> int | None:
            return ENOSPC if operation == "pwrite" and "/commitlog/" in path else None

        self.hosts[0].disk.fault = fault

    def cure(self, random: Random) -> None:
        """Have everything but the slave in order again."""
        for flag in Flag:
            self.master.store.flags.lower(flag)
        self.hosts[0].disk.fault = lambda operation, path: None
        self.hosts[0].worker.delay = (0.001, 0.001)
        self.master.store.cleaner.check_disk()
        self.configuration.store.broker_role = BrokerRole.SYNC_MASTER

    def sync_slowly(self, random: Random) -> None:
        self.hosts[0].worker.delay = (0.3, 0.3)

    def be_slow(self, random: Random) -> None:
        self.master.store.slow_until = self.world.clock.seconds() + 0.2

    def lose_slave(self, random: Random) -> None:
        if self.hosts[1].is_running:
            self.hosts[1].crash(silent=random.random() < 0.5)

    def get_slave(self, random: Random) -> None:
        if not self.hosts[1].is_running:
            self.start_slave()

    def make_topic(self, random: Random) -> None:
        name, queues = random.choice(TOPICS), random.choice((1, 2, 4))
        self.master.topics.update(TopicConfig(name, queues, queues))

    def delete_topic(self, random: Random) -> None:
        self.master.topics.delete(random.choice((*TOPICS, *STRANGERS)))

    def order_topics(self, random: Random) -> None:
        self.master.topics.update_order(random.sample(TOPICS, 1))

    def pass_time(self, random: Random) -> None:
        self.world.clock.run_for(random.choice((0.001, 0.02, 0.3, 4.0)))

    def play(self, seed: int, steps: int) -> None:
        random = Random(seed)
        events = [
            self.set_role, self.set_flush, self.change_settings, self.begin_later, self.hoist,
            self.fill_disk, self.be_slow, self.lose_slave, self.make_topic, self.delete_topic,
            self.order_topics, self.sync_slowly, self.change_settings,
        ]  # fmt: skip
        self.make_topic(random)
        for _ in range(steps):
            chance = random.random()
            if chance < 0.6:
                self.send(random)
            elif chance < 0.75:
                self.pass_time(random)
            elif chance < 0.87:
                random.choice(events)(random)
            elif chance < 0.95:
                self.cure(random)
            else:
                self.get_slave(random)
        self.hosts[0].disk.fault = lambda operation, path: None
        self.world.clock.run_for(30)

    def answers(self) -> list[bytes]:
        """Return the bytes that each producer got."""
        return [transport.value() for _, transport in self.ends]

    def log(self) -> bytes:
        log, found = self.master.store.log, b""
        while data := log.read(len(found), 1 << 20):
            found += data
        return found

    def end(self) -> None:
        for protocol, _ in self.ends:
            protocol.connectionLost()
        self.get_slave(Random(0))
        for broker in (self.master, self.slave):
            assert broker is not None
            self._run(broker.stop())


SEEDS = range(12)


def test_a_kept_ticket_answers_like_a_new_one() -> None:
    codes = set[int]()
    for seed in SEEDS:
        keeping, asking = Pair(keeps=True), Pair(keeps=False)
        for pair in (keeping, asking):
            pair.play(seed, 120)
        assert keeping.answers() == asking.answers()
        assert keeping.log() == asking.log()
        assert keeping.renewals < asking.renewals / 2
        for answers in keeping.answers():
            found = FrameReader().receive_data(answers)
            codes |= {int(decode_frame(*frame).code) for frame in found}
        for pair in (keeping, asking):
            pair.end()
    # Stored, stored less safely, refused for the disk or the role, for a topic, and for load.
    assert codes >= {0, 1, 2, 10, 11, 12, 13, 14, 16, 17}
