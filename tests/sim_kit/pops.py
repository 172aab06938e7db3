"""
Pops, acknowledgements and changes under faults: pairs, sets in controller mode, DLedger groups.

Consumers call the POP consumption of the master straight. At the end the history of all consumers
and the master's log decide whether the promises hold (`tests/sim_kit/pop_history.py`).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.pop_topics import retry_topic
from rmq_ha.base.model.properties import POP_SRC, TAGS, UNIQ_KEY, encode_properties
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topics import DLQ_PREFIX
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.server.pop import snapshots
from rmq_ha.server.pop.face import (
    LeaseChange,
    LeaseStatus,
    PopAnswer,
    PopPart,
    PopQueue,
    PopStatus,
    PopWish,
    Receipt,
)
from rmq_ha.server.pop.journal import PopJournal
from rmq_ha.server.pop.replica import PopReplica
from rmq_ha.server.pop.service import PopService
from rmq_ha.server.pop.state import PopState
from rmq_ha.server.pop.terms import PopTerms
from rmq_ha.server.store.reading.tag_filter import TagFilter
from rmq_ha.testing.cluster import ROOT, StoreNode
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import SimHost, World
from tests.sim_kit.controlled import ControlledBrokers, NotInTime, accepts
from tests.sim_kit.group import BrokerGroup
from tests.sim_kit.pair import HAPair, PairOptions
from tests.sim_kit.planting import Patches
from tests.sim_kit.pop_history import TWICE, Delivery, PopHistory, not_consumed
from tests.sim_kit.promises import Breach

PAIR, CONTROLLED, GROUP = "pops of a pair", "pops of a set", "pops of a group"
KINDS = (PAIR, CONTROLLED, GROUP)
HOST = Address(b"\x0a\0\0\1", 10911)
TOPIC = "Popped"
QUEUES = 2
ALL, SOME, ORDERLY = "GAll", "GSome", "GOrder"
GROUPS = (ALL, SOME, ORDERLY)
RETRIES = 5
INVISIBLE_MS = (300, 1000, 2500, 5000)
FAULTS = (
    "kill",
    "kill",
    "busy",
    "busy",
    "power",
    "clock",
    "stop",
    "move",
    "slave",
    "images",
    "retention",
)
QUIET_S = 90.0
_ONLY = TagFilter(SubscriptionData.for_tags(TOPIC, "yes"))


def enable(configuration: Any) -> None:
    """Give a broker POP consumption."""
    configuration.ours.pop_enable = True
    configuration.ours.pop_failover_grace = 3000
    configuration.broker.auto_create_subscription_group = True


class PopNode(StoreNode):
    """A store with POP consumption, and with tables that live as long as the machine."""

    def __init__(self, host: SimHost, configuration: Any, findings: Findings) -> None:
        super().__init__(host, configuration, findings)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.topics: list[str] = []
        self.pops: Any = None

    def load(self) -> None:
        """Begin a life."""
        super().load()
        offsets = self.offsets

        def commit(group: str, topic: str, queue_id: int, offset: int) -> None:
            offsets[group, topic, queue_id] = offset

        terms = PopTerms(
            lambda: 3000,
            lambda: 200,
            lambda: 10_000,
            lambda: True,
            lambda: False,
            lambda group: RETRIES,
            lambda: self.topics,
            lambda topic: None,
            lambda *key: offsets.get(key, -1),
            commit,
        )
        self.pops = PopService(self.store, terms, f"{ROOT}/popState", is_enabled=True)
        self.pops.follow(self.store)


class PopPair(HAPair):
    """A pair whose stores have POP consumption."""

    def _make_node(self, host: SimHost, configuration: Any) -> StoreNode:
        return PopNode(host, configuration, self.findings)


def pops_of(node: Any) -> Any:
    """Return the POP consumption of a node that runs."""
    return node.pops if isinstance(node, PopNode) else node.broker.pops


class PopLoad:
    """
    Puts messages at the master, pops them, and acknowledges or changes what was popped.

    :param master: returns the node that takes puts; None while there is none.
    """

    def __init__(
        self, world: World, random: Random, master: Callable[[], Any], history: PopHistory
    ) -> None:
        self._clock = world.clock
        self._random = random
        self._master = master
        self.history = history
        self._is_putting = self._is_consuming = self._drains = False
        self._lives: dict[tuple[str, int], int] = {}
        self._attempts: dict[int, tuple[str, int]] = {}
        self.kept: set[str] = set()
        self.count = self.found = 0

    @property
    def _now(self) -> float:
        return self._clock.seconds()

    def start(self) -> None:
        """Begin."""
        self._is_putting = self._is_consuming = True
        self._put_soon()
        for number in range(3):
            for group in GROUPS:
                self._pop_soon(group, number)

    def drain(self) -> None:
        """Put no more, and acknowledge everything from now on."""
        self._is_putting, self._drains = False, True

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_consuming = False

    def _later(self, mean: float, function: Callable[..., None], *args: Any) -> None:
        at = self._now + self._random.expovariate(1 / mean)
        self._clock.call_at(at, function, *args)

    def _node(self) -> Any:
        node = self._master()
        return None if node is None or node.open_store is None else node

    # Messages

    def _put_soon(self) -> None:
        self._later(0.1, self._put)

    def _put(self) -> None:
        if not self._is_putting:
            return
        self._put_soon()
        node = self._node()
        if node is None:
            return
        for _ in range(self._random.choice((1, 2, 6))):
            self.count += 1
            key = f"m{self.count:05d}"
            tag = self._random.choice(("yes", "no"))
            properties = {UNIQ_KEY: key, TAGS: tag}
            body = f"{key} {tag} ".encode() + bytes(self._random.choice((1, 300)))
            self.history.bodies[key] = body
            message = BrokerMessage(
                TOPIC,
                self._random.randrange(QUEUES),
                body,
                HOST,
                HOST,
                7,
                properties=properties,
                properties_string=encode_properties(properties),
            )
            node.open_store.put_message(message)

    # Pops

    def _pop_soon(self, group: str, number: int) -> None:
        self._later(0.15 if self._drains else 0.3, self._pop, group, number)

    def _pop(self, group: str, number: int) -> None:
        if not self._is_consuming:
            return
        self._pop_soon(group, number)
        node = self._node()
        pops = None if node is None else pops_of(node)
        if pops is None or not pops.is_leading:
            return
        wish = self._wish(group, number)
        self.history.calls += 1
        life = node.life
        self._lives[life] = self._lives.get(life, 0) + 1
        asked = self._now
        pops.pop(wish).addCallback(self._popped, wish, asked, life)

    def _wish(self, group: str, number: int) -> PopWish:
        message_filter = _ONLY if group == SOME else None
        random = self._random
        if group == ORDERLY:
            queue_id = random.randrange(QUEUES)
            attempt, uses = self._attempts.get(number, ("", 0))
            if not uses:
                attempt, uses = (
                    f"a{number}-{random.randrange(1 << 40)}",
                    random.choice((1, 1, 2, 3)),
                )
            self._attempts[number] = attempt, uses - 1
            queues = [PopQueue(TOPIC, queue_id)]
        else:
            attempt = ""
            queues = [PopQueue(TOPIC, queue_id, message_filter) for queue_id in range(QUEUES)]
            random.shuffle(queues)
            retry = PopQueue(retry_topic(group, TOPIC), 0)
            queues.insert(random.choice((0, len(queues))), retry)
        most = 32 if self._drains else random.choice((1, 3, 8, 32))
        invisible_ms = 3000 if self._drains else random.choice(INVISIBLE_MS)
        return PopWish(group, queues, most, invisible_ms, False, group == ORDERLY, attempt)

    def lost_lives(self, is_alive: Callable[[tuple[str, int]], bool]) -> None:
        """Count the calls that brokers that died will never answer."""
        self.history.unanswered_lives = sum(
            count for life, count in self._lives.items() if not is_alive(life)
        )

    def _answered(self, life: tuple[str, int]) -> None:
        self.history.answers += 1
        self._lives[life] -= 1

    def _popped(
        self, answer: PopAnswer, wish: PopWish, asked: float, life: tuple[str, int]
    ) -> None:
        self._answered(life)
        if answer.status is not PopStatus.FOUND:
            return
        for part in answer.parts:
            self._take(part, answer, wish, asked)

    def _take(self, part: PopPart, answer: PopAnswer, wish: PopWish, asked: float) -> None:
        deliveries: list[Delivery] = []
        for offset, data in zip(part.offsets, part.records, strict=True):
            record = decode_record(data)
            self.found += 1
            deliveries.append(
                Delivery(
                    wish.group,
                    record.properties[UNIQ_KEY],
                    part.topic,
                    part.queue_id,
                    offset,
                    answer.pop_ms,
                    asked,
                    self._now,
                    asked + wish.invisible_ms / 1000,
                    record.reconsume_times,
                    record.body,
                    wish.attempt_id,
                )
            )
        self.history.deliveries += deliveries
        if self._drains:
            self._later(0.05, self._ack, deliveries, 0)
            return
        share = self._random.choice((0.5, 0.8, 1.0))
        wanted = [item for item in deliveries if self._random.random() < share]
        if self._random.random() < 0.4:
            self._later(0.2, self._ack, wanted, 1)
        else:
            for item in wanted:
                if self._random.random() < 0.15:
                    self._later(0.2, self._change, item)
                else:
                    mean = self._random.choice((0.1, 0.4, 3.0))
                    self._later(mean, self._ack, [item], 1)

    # Acknowledgements and changes

    def _receipts(self, deliveries: Sequence[Delivery]) -> list[Receipt]:
        return [
            Receipt(item.group, item.topic, item.queue_id, item.pop_ms, (item.offset,))
            for item in deliveries
        ]

    def _ack(self, deliveries: Sequence[Delivery], again: int) -> None:
        node = self._node()
        if node is None or not deliveries:
            return
        self.history.calls += 1
        life = node.life
        self._lives[life] = self._lives.get(life, 0) + 1
        for item in deliveries:
            item.is_due_sure = False  # it may count from now on, whatever is answered
            item.asks += 1
        done = pops_of(node).ack(self._receipts(deliveries))
        done.addCallback(self._acked, deliveries, life)
        if again and self._random.random() < 0.1:
            self._later(1.0, self._ack, deliveries, again - 1)

    def _acked(
        self, status: LeaseStatus, deliveries: Sequence[Delivery], life: tuple[str, int]
    ) -> None:
        self._answered(life)
        is_one = len(deliveries) == 1
        for item in deliveries:
            if is_one or status is not LeaseStatus.DONE:
                item.acks.append((self._now, status))
            else:  # one answer for several: each may count
                item.acks.append((self._now, LeaseStatus.NOT_KEPT))
        if status is LeaseStatus.NOT_KEPT and self._random.random() < 0.5:
            self._later(0.5, self._ack, deliveries, 0)

    def _change(self, item: Delivery) -> None:
        node = self._node()
        if node is None:
            return
        self.history.calls += 1
        life = node.life
        self._lives[life] = self._lives.get(life, 0) + 1
        (receipt,) = self._receipts([item])
        invisible_ms = self._random.choice((0, 500, 3000))
        asked = self._now
        item.is_due_sure = False
        done = pops_of(node).change(receipt, invisible_ms)
        done.addCallback(self._changed, item, asked, life)

    def _changed(
        self, change: LeaseChange, item: Delivery, asked: float, life: tuple[str, int]
    ) -> None:
        self._answered(life)
        if change.status is not LeaseStatus.DONE:
            return
        if item.group != ORDERLY and self._random.random() < 0.2:
            # The old receipt must not count any more.
            stale = Delivery(*[getattr(item, name) for name in item.__slots__][:13])
            stale.acks, stale.asks = [], 0
            self._later(0.3, self._stale_ack, stale)
        item.pop_ms = change.pop_ms
        if self._random.random() < 0.5:
            self._later(0.3, self._ack, [item], 1)

    def _stale_ack(self, item: Delivery) -> None:
        node = self._node()
        if node is None:
            return
        self.history.calls += 1
        life = node.life
        self._lives[life] = self._lives.get(life, 0) + 1
        pops_of(node).ack(self._receipts([item])).addCallback(lambda _: self._answered(life))


def records_of(store: Any, topics: Sequence[tuple[str, int]]) -> list[Record]:
    """Return the records of queues, in the order of the log."""
    records: list[Record] = []
    for topic, queue_id in topics:
        queue = store.queues.get(topic, queue_id)
        for number in range(queue.min_offset, queue.max_offset) if queue is not None else ():
            data = store.record_at(queue.unit(number)[0])
            if data is not None:
                records.append(decode_record(data))
    return sorted(records, key=lambda record: record.physical_offset)


class PopStorm:
    """
    One cluster with a load, and faults one after the other.

    :param write: takes a line for each fault.
    :ivar events: the faults.
    """

    def __init__(
        self, seed: int, kind: str, write: Callable[[str], None] = lambda line: None
    ) -> None:
        self.kind = kind
        self.random = Random(f"{seed}/{kind}")
        self.events: list[str] = []
        self.history = PopHistory()
        self._write = write
        self.cluster: Any
        self.is_async = False
        self.deleted: set[tuple[str, str]] = set()
        self.low: dict[tuple[str, int], int] = {}
        if kind == PAIR:
            role = self.random.choice((BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER))
            self.is_async = role is BrokerRole.ASYNC_MASTER
            self.cluster = PopPair(seed, PairOptions(role, file_size=1 << 15))
        elif kind == CONTROLLED:
            self.cluster = ControlledBrokers(2, 1, enable, seed)
        else:
            self.cluster = BrokerGroup(seed, 3, enable)
        self.world: World = self.cluster.world
        self.findings: Findings = self.cluster.findings
        self.load = PopLoad(self.world, self.world.random("pops"), self.master, self.history)

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.world.clock.seconds()

    @property
    def nodes(self) -> list[Any]:
        """All brokers."""
        if self.kind == PAIR:
            return [self.cluster.master, self.cluster.slave]
        return list(self.cluster.nodes if self.kind == CONTROLLED else self.cluster.members)

    def master(self) -> Any:
        """The broker that takes puts."""
        if self.kind == PAIR:
            return self.cluster.master if self.cluster.master.state == "running" else None
        if self.kind == CONTROLLED:
            return next((node for node in self.cluster.nodes if accepts(node)), None)
        return self.cluster.master()

    def run(self) -> None:
        """From nothing to the end."""
        patches = Patches()
        patches.put(snapshots, "_EVERY_S", 1.0)
        try:
            self._run()
        finally:
            patches.undo()

    def _run(self) -> None:
        if self.kind != CONTROLLED:
            self.cluster.start()
        self._go_on(5.0)
        self._make_groups()
        self.load.start()
        for _ in range(self.random.randint(2, 6)):
            self._go_on(1 + self.random.random() * 4)
            self._fault()
            self._look()
        self._heal()
        self._go_on(1.0)
        self.load.drain()
        self._finish()

    def _make_groups(self) -> None:
        if self.kind != PAIR:
            master = self.master()
            for group in GROUPS:
                config = master.broker.groups.find(group)
                assert config is not None
                config.retry_max_times = RETRIES
            self._go_on(12.0)

    def _go_on(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    # Faults

    def _fault(self) -> None:
        name = self.random.choice(FAULTS)
        master = self.master()
        if master is None:
            return
        victim = master
        if name == "slave":
            victim = next(node for node in self.nodes if node is not master)
        self.events.append(f"{self.now:.3f} s: {name} {victim.host.name}")
        self._write(self.events[-1])
        store = victim.open_store
        if name == "images":
            if store is not None:
                pops_of(victim).releases(store.log.max_offset)
        elif name == "retention":
            if store is not None:
                self._retain(victim, store)
        elif name == "clock":
            self.history.has_steps = True
            victim.host.step_clock(self.random.choice((-10_000, 10_000, -2000, 700)))
        elif name == "move" and self.kind == PAIR:
            self.history.is_lossy |= self.is_async
            self.history.troubles.append(self.now)
            self.cluster.fail_over(1.0)
            self._go_on(8.0)
            self.history.troubles.append(self.now)
        elif victim.state == "running":
            self._hurt(name, victim)

    def _hurt(self, name: str, victim: Any) -> None:
        self.history.troubles.append(self.now)
        if name == "busy":  # puts are refused for a moment, and perhaps it dies soon after
            victim.store.slow_until = self.now + 0.05 + self.random.random() * 0.1
            self._go_on(self.random.random() * 0.25)
            if self.random.random() < 0.5:
                return
        if name == "stop":
            victim.stop()
            self.world.clock.run_while(lambda: victim.state == "stopping", 60)
        else:
            # In a pair, and with one controller, lost power may lose what one disk alone had.
            self.history.is_lossy |= name == "power"
            victim.crash(name == "power")
        self._go_on(self.random.random() * self.random.choice((0.5, 6.0)))
        self._boot(victim)
        self.history.troubles.append(self.now)

    def _retain(self, victim: Any, store: Any) -> None:
        """Delete old files, as if they had expired. What is gone need not be consumed."""
        config = victim.configuration.store
        before = self._held(store)
        kept, config.file_reserved_time = config.file_reserved_time, 0
        for _ in range(3):
            store.clean_expired_files()
            store._service.clean()
            self._go_on(0.5)
        config.file_reserved_time = kept
        if victim.open_store is store:
            self.deleted |= before - self._held(store)
            for topic, queue_id in _queue_names():
                low = max(
                    self.low.get((topic, queue_id), 0), store.min_offset_in_queue(topic, queue_id)
                )
                self.low[topic, queue_id] = low
                if topic == TOPIC:
                    self.history.low[queue_id] = low

    def _held(self, store: Any) -> set[tuple[str, str]]:
        """Return the messages of each group that a log has."""
        held: set[tuple[str, str]] = set()
        keys = [
            record.properties[UNIQ_KEY]
            for record in records_of(store, [(TOPIC, queue_id) for queue_id in range(QUEUES)])
        ]
        for group in GROUPS:
            held.update((group, key) for key in keys)
            retries = records_of(store, [(retry_topic(group, TOPIC), 0)])
            held.update((f"retry {group}", record.properties[UNIQ_KEY]) for record in retries)
        return held

    def _deleted_of(self, store: Any) -> set[tuple[str, str]]:
        """Return the messages of each group that retention deleted in the log of a master."""
        gone = set(self.deleted)
        for record in records_of(store, _queue_names()):
            if record.queue_offset < self.low.get((record.topic, record.queue_id), 0):
                key = record.properties[UNIQ_KEY]
                gone.update((group, key) for group in GROUPS if record.topic == TOPIC)
                gone.update(
                    (f"retry {group}", key)
                    for group in GROUPS
                    if record.topic == retry_topic(group, TOPIC)
                )
        return gone

    def _boot(self, node: Any) -> None:
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
        if self.kind == PAIR:
            self._replace_strange_slave()

    def _replace_strange_slave(self) -> None:
        """Let a slave whose log is no part of its master's, and so does not follow, begin anew."""
        master, slave = self.cluster.master, self.cluster.slave
        if master.open_store is None or slave.state != "running":
            return
        own, other = slave.log_image(), master.log_image()
        begin = max(own.start, other.start)
        if own.slice(begin, own.end) != other.slice(begin, min(own.end, other.end)):
            self.cluster.crash(slave.host.name, power=False)
            self.cluster._replace(slave.host.name)
            self.cluster.restart(slave.host.name)

    # What must hold

    def _violation(self, breach: Breach) -> None:
        self.findings.violation(self.now, breach.kind, breach.text)

    def _look(self) -> None:
        """C7 and C10: each replica has the state that its journal says."""
        for node in self.nodes:
            store = node.open_store
            pops = None if store is None else pops_of(node)
            if pops is None or pops._replica.state is None or not pops._writer.is_idle:
                continue
            replica = pops._replica
            if replica.next != PopJournal(store.queues, store.record_at).end:
                continue  # the last record is not dispatched yet
            state, name = replica.state, node.host.name
            for what, path in (("snapshot and journal", replica._path), ("journal", "/none")):
                again = _loaded(store, path)
                if again is not None and again.digest() != state.digest():
                    text = f"{name}: {_difference(again, state)}"
                    self.findings.violation(self.now, f"C7 {what} differs", text)
            out = sum(leases.out for leases in state.queues.values())
            counted = sum(1 for leases in state.queues.values() for _ in leases.leases())
            if not out == counted == state.out:
                text = f"{name}: {state.out} are out, but {out} and {counted} are counted"
                self.findings.violation(self.now, "C10 counts differ", text)

    def _finish(self) -> None:
        master = self.master()
        if master is None:
            raise NotInTime("there is no master at the end")
        for _ in range(3):  # a copy may be on its way to its queue
            self.world.clock.run_while(lambda: not self._is_drained(), QUIET_S)
            self._go_on(1.0)
        self.load.stop()
        self._go_on(4.0)
        self._look()
        for breach in self.history.breaches(ORDERLY):
            self._violation(breach)
        self._check_log(self.master() or master)
        self.load.lost_lives(
            lambda life: any(node.life == life and node.state == "running" for node in self.nodes)
        )
        unanswered = self.history.unanswered()
        if unanswered is not None:
            self._violation(unanswered)

    def _is_drained(self) -> bool:
        """Whether all groups have consumed all."""
        master = self.master()
        pops = None if master is None or master.open_store is None else pops_of(master)
        if pops is None or not pops.is_leading or pops.counters().out:
            return False
        store = master.open_store
        return all(
            pops.next_offset(group, topic, queue_id) >= store.max_offset_in_queue(topic, queue_id)
            for group, topic, queue_id in _all_queues()
        )

    def _check_log(self, master: Any) -> None:
        store, pops = master.open_store, pops_of(master)
        state = pops._replica.state
        for group, topic, queue_id in _all_queues():
            end = store.max_offset_in_queue(topic, queue_id)
            leases = None if state is None else state.find(group, topic, queue_id)
            if end and (leases is None or leases.committed != end):
                committed = None if leases is None else leases.committed
                text = f"{group} {topic} {queue_id}: consumed to {committed} of {end}"
                self.findings.violation(self.now, "C2 queue not consumed", text)
        sources: set[str] = set()
        dead: set[tuple[str, str]] = set()
        for group in GROUPS:
            topics = [(retry_topic(group, TOPIC), 0), (DLQ_PREFIX + group, 0)]
            for record in records_of(store, topics):
                source = record.properties[POP_SRC]
                if source in sources:
                    self._violation(Breach(TWICE, f"{source} of {group}", (source,)))
                sources.add(source)
                if record.topic.startswith(DLQ_PREFIX):
                    dead.add((group, record.properties[UNIQ_KEY]))
        consumed: set[tuple[str, str]] = set()
        for item in self.history.deliveries:
            if item.may_be_acked:
                consumed.add((item.group, item.key))
        gone = self._deleted_of(store)
        messages = records_of(store, [(TOPIC, queue_id) for queue_id in range(QUEUES)])
        for group in GROUPS:
            missing = [
                key
                for record in messages
                if (group, key := record.properties[UNIQ_KEY]) not in consumed | dead
                and not {(group, key), (f"retry {group}", key)} & gone
                and (group != SOME or record.properties[TAGS] == "yes")
            ]
            if missing and not self.history.is_lossy:
                self._violation(not_consumed(missing, group))


def _queue_names() -> list[tuple[str, int]]:
    return sorted({(topic, queue_id) for _, topic, queue_id in _all_queues()})


def _all_queues() -> list[tuple[str, str, int]]:
    queues = [(group, TOPIC, queue_id) for group in GROUPS for queue_id in range(QUEUES)]
    return queues + [(group, retry_topic(group, TOPIC), 0) for group in (ALL, SOME)]


def _loaded(store: Any, path: str) -> PopState | None:
    """Return the state that a start would make of a log."""
    replica = PopReplica(store.host, PopJournal(store.queues, store.record_at), path, lambda: None)
    try:
        for _ in replica._load(replica._loads):
            pass
    except StoreError:
        return None
    return replica.state


def _difference(one: PopState, other: PopState) -> str:
    """Describe how two states differ."""
    if (one.next_name, one.least_pop_ms) != (other.next_name, other.least_pop_ms):
        return f"{one.next_name, one.least_pop_ms} is not {other.next_name, other.least_pop_ms}"
    ours = {image[:4]: image for image in one.images()}
    theirs = {image[:4]: image for image in other.images()}
    return "; ".join(
        f"{ours.get(key)} is not {theirs.get(key)}"
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    )
