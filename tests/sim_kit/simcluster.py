"""Name server, master, slave and clients in one process."""

from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.testing.brokers import GROUP, BrokerNode, NamesrvNode, RemoteConsumer, RemoteProducer
from rmq_ha.testing.cluster import LISTEN_PORT, StoreNode
from rmq_ha.testing.host import SimHost
from rmq_ha.testing.trace import Trace
from rmq_ha.testing.workload import TOPICS
from tests.sim_kit.pair import MADE_AGAIN, HAPair, PairOptions
from tests.sim_kit.transacting import TIME_OUT_MS, TransactionClient, check_transactions

DRAIN_SECONDS = 20.0
TRANSACTION_PAUSE = 0.4
ADMIN_TIMEOUT_MS = 3000


class SimCluster(HAPair):
    """
    A pair like `HAPair`, with whole brokers, a name server, producers and a consumer.

    :ivar consumer: reads from the master all the time.
    :ivar transactions: a client whose decisions come late.
    """

    def __init__(
        self, seed: int, options: PairOptions | None = None, trace: Trace | None = None
    ) -> None:
        super().__init__(seed, options, trace)
        self.client_host = self.world.add("client-host")
        self.consumer = RemoteConsumer(self.client_host, lambda: self.master)
        random = self.world.random("transactions")
        self.transactions = TransactionClient(
            self.client_host, random, lambda: self.master, TRANSACTION_PAUSE
        )
        self._admin = RemotingClient(self.client_host.seams, NettyClientConfig())

    def _make_machines(self) -> None:
        self.name_server = NamesrvNode(self.world.add("namesrv-host"))
        super()._make_machines()

    def _make_node(self, host: SimHost, configuration: BrokerConfiguration) -> StoreNode:
        configuration.broker.transaction_time_out = TIME_OUT_MS
        configuration.broker.transaction_check_interval = TIME_OUT_MS
        return BrokerNode(host, configuration, self.findings, self.name_server.address)

    def producer(self, number: int, pause: float) -> RemoteProducer:
        """Return a further client that sends."""
        name = f"p{number}"
        random = self.world.random(f"producer {number}")
        return RemoteProducer(name, self.client_host, random, lambda: self.master, self, pause)

    def start(self) -> None:
        """Start all servers and clients, the name server first."""
        self.name_server.start()
        super().start()
        self.consumer.start()

    def others(self) -> list[TransactionClient]:
        """Return the client of transactions."""
        return [self.transactions]

    def make_again(self) -> None:
        """Delete a topic as an operator does; the next send creates it again."""
        node = self.master
        if node.open_store is None or node.host.name in self.judge.damages:
            return
        request = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": MADE_AGAIN})
        asked = self._admin.invoke(f"{node.host.ip}:{LISTEN_PORT}", request, ADMIN_TIMEOUT_MS)
        asked.addBoth(self._deleted, node, node.store.log.max_offset)

    def _deleted(self, answer: object, node: StoreNode, end: int) -> None:
        """Note that the topic may be deleted, with any answer, or without one."""
        alive = node is self.master and node.open_store is not None
        self.judge.deleted(MADE_AGAIN, node.store.log.max_offset if alive else end)

    def check_end(self) -> None:
        """Check the pair, the consumption from both brokers, and the tables of the slave."""
        super().check_end()
        if not self.is_parted:
            self._check_tables()
        judge = self.judge
        if not (judge.lost_power or judge.damages or self.fail_overs):
            records = self.master.log_image().records()
            for breach in check_transactions(records, self.transactions.ended):
                self.findings.violation(self.now, "transactions", breach.text)
        if not (judge.lost_power or judge.damages or judge.deletions or self.fail_overs):
            # else numbers may have been given twice
            for problem in self.consumer.problems:
                self.findings.violation(self.now, "consumer", problem)
            self._check_consumption(self.consumer, self.master)
        # A slave that stays out may have messages of topics that it has not copied.
        for node in (self.master,) if self.is_parted else (self.master, self.slave):
            if not (judge.damages or judge.deletions):
                self._read_again(node)

    def _read_again(self, node: StoreNode) -> None:
        starts: dict[tuple[str, int], int] = {}
        for record in node.log_image().records():
            starts.setdefault((record.topic, record.queue_id), record.queue_offset)
        consumer = RemoteConsumer(self.client_host, lambda: node, f"again-{node.host.name}", starts)
        consumer.start()
        self.world.clock.run_for(DRAIN_SECONDS)
        self._check_consumption(consumer, node)
        for problem in consumer.problems:
            self.findings.violation(self.now, "consumer", f"{node.host.name}: {problem}")
        self._finish(consumer.stop())

    def _check_consumption(self, consumer: RemoteConsumer, node: StoreNode) -> None:
        """Check that a consumer got every message of the log, once and in order."""
        expected: dict[tuple[str, int], list[str]] = {}
        for record in node.log_image().records():
            if record.topic in TOPICS:
                key = record.topic, record.queue_id
                expected.setdefault(key, []).append(record.unique_id)
        for key, logged in expected.items():
            got = consumer.read.get(key, [])
            if got != logged:
                text = (
                    f"{node.host.name}: {key}: got {len(got)} of {len(logged)} messages: {got[-3:]}"
                )
                self.findings.violation(self.now, "consumption", text)

    def _check_tables(self) -> None:
        """
        Check that the slave's tables equal the master's. A slave that does not follow its master
        copies no tables either, because the offsets would be those of other messages.
        """
        master, slave = (getattr(n, "broker", None) for n in (self.master, self.slave))
        if master is None or slave is None:
            return
        for topic in (*TOPICS, DEFAULT_TOPIC):
            config, copied = master.topics.get(topic), slave.topics.get(topic)
            if config != copied:
                self.findings.violation(self.now, "topics", f"{topic}: {config}, slave {copied}")
        for topic in TOPICS:
            offsets = dict(master.consumer_offsets.queues(GROUP, topic))
            copied_offsets = dict(slave.consumer_offsets.queues(GROUP, topic))
            if offsets and offsets != copied_offsets:  # what the master forgot stays on the slave
                text = f"{topic}: the master has {offsets}, the slave {copied_offsets}"
                self.findings.violation(self.now, "consumer offsets", text)

    def _finish(self, stopped: "Deferred[None]") -> None:
        self.world.clock.run_while(lambda: not stopped.called, 30)
        if not stopped.called:
            self.findings.violation(self.now, "stop", "a client did not close within 30 s")

    def stop(self) -> None:
        """Stop clients, brokers and name server."""
        self._finish(self.consumer.stop())
        self._finish(self.transactions.close())
        self._finish(self._admin.stop())
        super().stop()
        self._finish(self.name_server.namesrv.stop())
