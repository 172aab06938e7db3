"""
Timer messages and recalls under faults: pairs, sets in controller mode, DLedger groups.

Messages are put and recalled straight at the master's store. At the end the master's log alone
decides whether the promises hold (`tests/sim_kit/timer_promises.py`).
"""

from collections.abc import Callable
from random import Random
from typing import Any

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Address, BrokerMessage, PutMessageResult
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.store_format.timer_times import out_for
from rmq_ha.server.store.timer import delivery
from rmq_ha.server.store.timer.scan import scan
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.table import TimerTable
from rmq_ha.testing.cluster import StoreNode
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import World
from rmq_ha.testing.workload import TOPICS
from tests.sim_kit.controlled import ControlledBrokers, NotInTime, accepts
from tests.sim_kit.group import BrokerGroup
from tests.sim_kit.pair import HAPair, PairOptions
from tests.sim_kit.planting import Patches
from tests.sim_kit.timer_promises import timer_breaches

PAIR, CONTROLLED, GROUP = "timers of a pair", "timers of a set", "timers of a group"
KINDS = (PAIR, CONTROLLED, GROUP)
HOST = Address(b"\x0a\0\0\1", 10911)
WAITS_MS = (1, 20, 300, 1000, 1000, 3000, 8000, 70_000)
HOUR_MS = 3_600_000
FAULTS = (
    *("kill", "busy", "busy", "power", "clock", "stop", "move", "slave"),
    *("roll", "clean", "flight", "flight", "alone"),
)
FAULTS_OF_GROUP = (*FAULTS, "alone", "alone", "flight")
QUIET_S = 60.0
CLEANING_ROUNDS = 3
SMALL_RUN = 3


def enable(configuration: Any) -> None:
    """Give a broker timer messages, and frontiers in quick succession."""
    configuration.ours.timer_wheel_enable = True
    configuration.ours.timer_progress_interval_ms = 300
    configuration.store.file_reserved_time = 0
    configuration.store.delete_when = ""  # the cleaner runs in the fault `clean` alone


class TimerLoad:
    """
    Puts timer messages at the master, and recalls some of them.

    :param master: returns the node that takes puts; None while there is none.
    :ivar recalled: the sources of messages whose recall was acknowledged.
    """

    def __init__(
        self, world: World, random: Random, master: Callable[[], StoreNode | None]
    ) -> None:
        self._clock = world.clock
        self._random = random
        self._master = master
        self._running = False
        self._sent: list[tuple[TimerSource, dict[str, str]]] = []
        self.count = 0
        self.recalled: set[str] = set()

    def start(self) -> None:
        """Begin."""
        self._running = True
        self._tick()

    def stop(self) -> None:
        """Begin no more puts; results still come."""
        self._running = False

    def _tick(self) -> None:
        if not self._running:
            return
        self._clock.call_at(self._clock.seconds() + self._random.expovariate(25), self._tick)
        node = self._master()
        store = None if node is None else node.open_store
        if node is None or store is None:
            return
        if self._random.random() < 0.2 and self._sent:
            self._recall(store)
        else:
            for _ in range(self._random.choice((1, 1, 4))):
                self._put(store, node.host.now_ms())

    def put_calmly(self, store: Any, now_ms: int) -> None:
        """Put some messages that are due soon, of which none is recalled."""
        for _ in range(6):
            self._put(store, now_ms, now_ms + self._random.randint(200, 1500))

    def _put(self, store: Any, now_ms: int, due: int | None = None) -> None:
        self.count += 1
        by_java = due is None and self._random.random() < 0.1
        if due is None:
            due = now_ms + self._random.randint(1, self._random.choice(WAITS_MS))
            if self._random.random() < 0.3:  # several are due in the same ms
                due += 250 - due % 250
        java_out = due - 1000 if due % 1000 == 0 else due - due % 1000
        properties = {
            "UNIQ_KEY": f"t{self.count:06d}",
            "TIMER_DELIVER_MS": str(due),
            "TIMER_OUT_MS": str(java_out if by_java else out_for(due)),
            "REAL_TOPIC": self._random.choice(TOPICS),
            "REAL_QID": "0",
        }
        message = timer_message(properties, b"x" * self._random.choice((1, 200)))
        store.put_message(message).addCallback(self._stored, properties)

    def _stored(self, result: PutMessageResult, properties: dict[str, str]) -> None:
        if result.append is not None:
            place = TimerSource(result.append.physical_offset, result.append.queue_offset)
            self._sent.append((place, properties))

    def _recall(self, store: Any) -> None:
        source, properties = self._random.choice(self._sent[-30:])
        try:
            if not store.timers.is_ready or not store.timers.begin_recall(source):
                return
        except StoreError:
            return
        topic, key = properties["REAL_TOPIC"], properties["UNIQ_KEY"]
        recall = properties | {"TIMER_DEL_UNIQKEY": f"{topic}+{key}", "TIMER_SRC": source.text}
        store.put_message(timer_message(recall, b"0")).addCallback(self._told, store, source)

    def _told(self, result: PutMessageResult, store: Any, source: TimerSource) -> None:
        if result.append is None:
            store.timers.undo_recall(source)
        elif result.status.is_stored:
            self.recalled.add(source.text)


def timer_message(properties: dict[str, str], body: bytes) -> BrokerMessage:
    """A record of the timer topic."""
    return BrokerMessage(
        TIMER_TOPIC,
        0,
        body,
        HOST,
        HOST,
        7,
        properties=properties,
        properties_string=encode_properties(properties),
    )


def records_of(store: Any) -> list[Record]:
    """The records of the timer topics and of the real topics, in the order of the log."""
    records: list[Record] = []
    for topic in (TIMER_TOPIC, TIMER_PROGRESS_TOPIC, *TOPICS):
        queue = store.queues.get(topic, 0)
        for number in range(queue.min_offset, queue.max_offset) if queue is not None else ():
            place = queue.unit(number)[0]
            data = store.record_at(place)
            if data is None and place < store.log.min_offset:
                continue  # a queue keeps its last units, although the file is deleted
            assert data is not None
            records.append(decode_record(data))
    return sorted(records, key=lambda record: record.physical_offset)


def _has_run_in_flight(node: StoreNode) -> bool:
    store = node.open_store
    service = None if store is None else store.timers._delivery
    return service is not None and bool(service.in_flight)


class TimerStorm:
    """
    One cluster with a load, and faults one after the other.

    :param write: takes a line for each fault.
    :ivar history: the faults.
    """

    def __init__(
        self, seed: int, kind: str, write: Callable[[str], None] = lambda line: None
    ) -> None:
        self.kind = kind
        self.random = Random(f"{seed}/{kind}")
        self.history: list[str] = []
        self.faults: set[str] = set()
        self._write = write
        self.cluster: Any
        if kind == PAIR:
            role = self.random.choice((BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER))
            self.cluster = HAPair(seed, PairOptions(role, file_size=1 << 15))
            for node in self.nodes:
                enable(node.configuration)
        elif kind == CONTROLLED:
            self.cluster = ControlledBrokers(2, 1, enable, seed)
        else:
            self.cluster = BrokerGroup(seed, 3, enable)
        self.world: World = self.cluster.world
        self.findings: Findings = self.cluster.findings
        self.load = TimerLoad(self.world, self.world.random("timers"), self.master)
        self._small_runs = self.random.random() < 0.5
        self._deleted: list[Record] = []

    @property
    def count(self) -> int:
        """How many messages were put."""
        return self.load.count

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.world.clock.seconds()

    @property
    def nodes(self) -> list[StoreNode]:
        """All brokers."""
        if self.kind == PAIR:
            return [self.cluster.master, self.cluster.slave]
        return list(self.cluster.nodes if self.kind == CONTROLLED else self.cluster.members)

    def master(self) -> StoreNode | None:
        """The broker that takes puts."""
        if self.kind == PAIR:
            return self.cluster.master if self.cluster.master.state == "running" else None
        if self.kind == CONTROLLED:
            return next((node for node in self.cluster.nodes if accepts(node)), None)
        node: StoreNode | None = self.cluster.master()
        return node

    def run(self) -> None:
        """
        From nothing to the end. In half of the storms a run has few deliveries, and each has a
        frontier.
        """
        patches = Patches()
        if self._small_runs:
            patches.put(delivery, "_MOST_MESSAGES", SMALL_RUN)
            for node in self.nodes:
                node.configuration.ours.timer_progress_interval_ms = 1
        try:
            self._run()
        finally:
            patches.undo()

    def _run(self) -> None:
        if self.kind != CONTROLLED:
            self.cluster.start()
        self._go_on(5.0)
        self.load.start()
        for _ in range(self.random.randint(2, 6)):
            self._go_on(self.random.random() * 3)
            self._fault()
            self._look()
        self.load.stop()
        self._heal()
        self._go_on(8.0)
        self._finish(self._calm_messages())

    def _go_on(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    # Faults

    def _fault(self) -> None:
        name = self.random.choice(FAULTS if self.kind != GROUP else FAULTS_OF_GROUP)
        master = self.master()
        if master is None:
            return
        victim = master
        if name == "slave":
            victim = next(node for node in self.nodes if node is not master)
        self.faults.add(name)
        self.history.append(f"{self.now:.3f} s: {name} {victim.host.name}")
        self._write(self.history[-1])
        if name == "roll":
            victim.store.timers.releases(victim.store.log.max_offset)
        elif name == "clean":
            self._clean(victim)
        elif name == "clock":
            victim.host.step_clock(self.random.choice((-HOUR_MS, HOUR_MS, -2000, 700)))
        elif name == "move" and self.kind == PAIR:
            self.cluster.fail_over(1.0)
            self._go_on(8.0)
        elif name == "alone":
            self._leave_alone(victim)
        elif victim.state == "running":
            if name == "flight":  # it dies between the put of a delivery and its dispatch
                self.world.clock.run_while(lambda: not _has_run_in_flight(victim), 3)
                if self.kind != PAIR:  # some of the others have the delivery, some do not yet
                    self._go_on(self.random.random() * 0.008)
            if name == "busy":  # puts are refused for a moment, and perhaps it dies soon after
                victim.store.slow_until = self.now + 0.05 + self.random.random() * 0.1
                self._go_on(self.random.random() * 0.25)
                if self.random.random() < 0.5:
                    return
            if name == "stop":
                victim.stop()
                self.world.clock.run_while(lambda: victim.state == "stopping", 60)
            else:
                is_dark = name == "power" or (name == "flight" and self.random.random() < 0.5)
                victim.crash(is_dark)
            self._go_on(self.random.random() * self.random.choice((0.5, 6.0)))
            self._boot(victim)

    def _leave_alone(self, node: StoreNode) -> None:
        """Kill all others for some seconds."""
        others = [other for other in self.nodes if other is not node and other.state == "running"]
        for other in others:
            other.crash(False)
        self._go_on(0.5 + self.random.random() * 9)
        for other in others:
            self._boot(other)

    def _clean(self, node: StoreNode) -> None:
        """Have the cleaner delete all files but the last that no waiting message keeps."""
        store = node.open_store
        for _ in range(CLEANING_ROUNDS):
            if store is None or node.open_store is not store:
                return
            before = records_of(store)
            store.cleaner._manual_rounds = 1
            store._service.clean()
            last = max((record.physical_offset for record in self._deleted), default=-1)
            self._deleted += [
                record for record in before if last < record.physical_offset < store.log.min_offset
            ]
            self._go_on(1.0)

    def _boot(self, node: StoreNode) -> None:
        if node.state != "down":
            return
        if self.kind == PAIR:
            self.cluster.restart(node.host.name)
        else:
            node.load()
            node.start()

    def _heal(self) -> None:
        for node in self.nodes:
            self._boot(node)
        self.world.clock.run_while(lambda: self.master() is None, 60)

    # What must hold

    def _look(self) -> None:
        """The table of each replica is the one that a start makes of the same log."""
        for node in self.nodes:
            store = node.open_store
            table = None if store is None else store.timers._table
            if store is None or table is None:
                continue
            made: list[TimerTable] = []
            access, tail = store.timers._log, store.timers._tail
            for _ in scan(access, tail, lambda s=store: s.dispatcher.position, made.append):  # type: ignore[misc]
                pass
            waiting, scanned = set(table.waiting), set(made[0].waiting)
            if waiting != scanned:
                more, less = len(waiting - scanned), len(scanned - waiting)
                text = f"{node.host.name} has {more} messages too many, and lacks {less}"
                self.findings.violation(self.now, "timer table", text)

    def _calm_messages(self) -> int:
        """
        Put messages while nothing disturbs the master; they are due within 1.5 s.

        :returns: the physical offset before them.
        """
        master = self.master()
        if master is None:
            raise NotInTime("there is no master after the faults")
        end = int(master.store.log.max_offset)
        self.load.put_calmly(master.store, master.host.now_ms())
        self._go_on(4.0)
        return end

    def _finish(self, calm_from: int) -> None:
        self._look()
        master = self.master()
        if master is None:
            raise NotInTime("there is no master at the end")
        master.host.step_clock(3 * HOUR_MS)
        self.world.clock.run_while(lambda: master.store.timers.waiting > 0, QUIET_S)
        self._go_on(1.0)
        self._look()
        # Lost power, or a slave that lagged, may lose an acknowledged recall, as any other message.
        may_lose = bool({"power", "flight"} & self.faults) or (
            self.kind == PAIR and "move" in self.faults
        )
        recalled = set[str]() if may_lose else self.load.recalled
        least = master.store.log.min_offset
        deleted = [record for record in self._deleted if record.physical_offset < least]
        records = [*deleted, *records_of(master.store)]
        for breach in timer_breaches(records, recalled, calm_from):
            self.findings.violation(self.now, breach.kind, breach.text)
