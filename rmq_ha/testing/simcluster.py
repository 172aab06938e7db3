"""Name server, master, slave and clients in one process."""

from twisted.internet.defer import Deferred

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.model.topics import DEFAULT_TOPIC
from rmq_ha.testing.brokers import GROUP, BrokerNode, NamesrvNode, RemoteConsumer, RemoteProducer
from rmq_ha.testing.cluster import StoreNode
from rmq_ha.testing.host import SimHost
from rmq_ha.testing.pair import HAPair, PairOptions
from rmq_ha.testing.trace import Trace
from rmq_ha.testing.workload import TOPICS

DRAIN_SECONDS = 20.0


class SimCluster(HAPair):
    """
    As `HAPair`, with whole brokers, a name server, producers and a consumer.

    :ivar consumer: reads from the master all the time.
    """

    def __init__(
        self, seed: int, options: PairOptions | None = None, trace: Trace | None = None
    ) -> None:
        super().__init__(seed, options, trace)
        self.client_host = self.world.add("client-host")
        self.consumer = RemoteConsumer(self.client_host, lambda: self.master)

    def _make_machines(self) -> None:
        self.name_server = NamesrvNode(self.world.add("namesrv-host"))
        super()._make_machines()

    def _make_node(self, host: SimHost, configuration: BrokerConfiguration) -> StoreNode:
        return BrokerNode(host, configuration, self.findings, self.name_server.address)

    def producer(self, number: int, pause: float) -> RemoteProducer:
        """One more client that sends."""
        name = f"p{number}"
        random = self.world.random(f"producer {number}")
        return RemoteProducer(name, self.client_host, random, lambda: self.master, self, pause)

    def start(self) -> None:
        """Start everything; the name server first."""
        self.name_server.start()
        super().start()
        self.consumer.start()

    def check_end(self) -> None:
        """Also: a consumer gets everything from both brokers, and the slave's tables agree."""
        super().check_end()
        self._check_tables()
        judge = self.judge
        if not (judge.lost_power or judge.damages or judge.deletions or self.fail_overs):
            # else numbers may have been given twice
            for problem in self.consumer.problems:
                self.findings.violation(self.now, "consumer", problem)
            self._check_consumption(self.consumer, self.master)
        for node in (self.master, self.slave):
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
        """It got every message of the log, once and in order."""
        expected: dict[tuple[str, int], list[str]] = {}
        for record in node.log_image().records():
            if record.topic in TOPICS:
                key = record.topic, record.queue_id
                expected.setdefault(key, []).append(record.unique_id)
        for key, wanted in expected.items():
            got = consumer.read.get(key, [])
            if got != wanted:
                text = (
                    f"{node.host.name}: {key}: got {len(got)} of {len(wanted)} messages: {got[-3:]}"
                )
                self.findings.violation(self.now, "consumption", text)

    def _check_tables(self) -> None:
        """What the slave copied is what the master has."""
        master, slave = (getattr(n, "controller", None) for n in (self.master, self.slave))
        if master is None or slave is None:
            return
        for topic in (*TOPICS, DEFAULT_TOPIC):
            one, other = master.topics.get(topic), slave.topics.get(topic)
            if one != other:
                self.findings.violation(self.now, "topics", f"{topic}: {one}, slave {other}")
        for topic in TOPICS:
            here = dict(master.consumer_offsets.queues(GROUP, topic))
            there = dict(slave.consumer_offsets.queues(GROUP, topic))
            if here and here != there:  # what the master forgot stays on the slave
                text = f"{topic}: the master has {here}, the slave {there}"
                self.findings.violation(self.now, "consumer offsets", text)

    def _finish(self, stopped: "Deferred[None]") -> None:
        self.world.clock.run_while(lambda: not stopped.called, 30)
        if not stopped.called:
            self.findings.violation(self.now, "stop", "a client did not close within 30 s")

    def stop(self) -> None:
        """Stop clients, brokers and name server."""
        self._finish(self.consumer.stop())
        super().stop()
        self._finish(self.name_server.controller.stop())
