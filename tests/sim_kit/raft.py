"""
Simulates a whole DLedger group from one seed: machines, network, disks, clients and faults.

The members are the product's `Node`; messages are passed as values. A run takes only some 40 ms, so
a test can have thousands of runs.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from typing import Any

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.errors import LedgerFull
from rmq_ha.base.store_format.dledger_values import Entry, MemberRole, TermVote
from rmq_ha.server.dledger.actions import (
    AnswerRequest,
    CommitIndexMoved,
    Persist,
    PutsCompleted,
    RoleChanged,
    SendRequest,
    Sync,
)
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.messages import GroupMessage, LeadershipTransferRequest
from rmq_ha.server.dledger.node import Node
from rmq_ha.testing.trace import CRASHED, DELIVERY, FAULT, NOTE, SYNC, TIMER, WORKED, Trace
from tests.sim_kit.raft_checks import Judge, Put
from tests.sim_kit.raft_faults import RaftFault, cuts, plan_raft_faults, victim
from tests.sim_kit.raft_ledger import MemoryLedger

GROUP = "RaftG"
MILLISECOND = 1000
SECOND = 1_000_000
OPERATOR = -1
CRASHES = {"kill", "power", "blackout"}


@dataclass
class RaftOptions:
    """
    The options of a run.

    :ivar scale: factor of all times in the product's settings; with shorter times more happens in a
        run.
    :ivar busy: number of heartbeat intervals in which clients put entries and faults happen.
    :ivar kinds: weights of the faults; None: all.
    :ivar settings: further values of `DLedgerSettings`.
    """

    nodes: int = 3
    scale: float = 0.1
    busy: int = 20
    put_every: int = 60 * MILLISECOND
    delay: int = 2 * MILLISECOND
    loss: float = 0.0
    duplicates: float = 0.0
    reorders: bool = False
    skew: float = 0.02
    sync_time: int = 2 * MILLISECOND
    kinds: dict[str, int] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def draw(cls, random: Random, nodes: int) -> "RaftOptions":
        """Draw any combination of options."""
        settings: dict[str, Any] = {"sync_before_ack": random.random() < 0.6}
        if random.random() < 0.3:
            settings["is_enable_batch_push"] = True
            settings["max_batch_push_size"] = random.choice((100, 400, 4096))
        delay = random.choice((300, 2000, 15000))
        if random.random() < 0.2 and delay < 2000:
            settings["max_in_flight"] = random.choice((4, 20))
        if random.random() < 0.2:
            settings["preferred_leader_ids"] = ("n1",)
        if random.random() < 0.2:
            settings["sticky_leader"] = 4000
        return cls(
            nodes=nodes,
            put_every=random.choice((25, 50, 100)) * MILLISECOND,
            delay=delay,
            loss=random.choice((0, 0, 0.01, 0.08)),
            duplicates=random.choice((0, 0, 0.03)),
            reorders=random.random() < 0.4,
            skew=random.choice((0, 0.02, 0.15)),
            sync_time=random.choice((300, 2000, 20000)),
            settings=settings,
        )

    def make(self, self_id: str) -> DLedgerSettings:
        """Return the settings of one member."""
        peers = {f"n{n}": f"10.0.0.{n + 1}:40911" for n in range(self.nodes)}
        plain = DLedgerSettings(GROUP, self_id, peers)
        times = {
            name: max(int(getattr(plain, name) * self.scale), 1)
            for name in DLedgerSettings.__dataclass_fields__
            if name.endswith(("_interval", "_pause", "_timeout", "_retry"))
        }
        more = dict(self.settings)
        if "sticky_leader" in more:
            more["sticky_leader"] = int(more["sticky_leader"] * self.scale)
        times["max_wait_ack"] = int(plain.max_wait_ack * self.scale)
        return replace(plain, **{"state_interval": 1, **times, **more})


class Machine:
    """
    One member with its disk and its clock; `node` is None while it is down.

    :ivar pending: puts that the node has not answered.
    """

    def __init__(self, group: "RaftGroup", number: int) -> None:
        self.group = group
        self.number = number
        self.name = f"n{number}"
        self.settings = group.options.make(self.name)
        self.ledger = group.make_ledger()
        self.term_vote = TermVote()
        self.node: Node | None = None
        self.incarnation = 0
        self.pending: deque[Put] = deque()
        self.slow_until = 0
        self.paused_until = 0
        self.refused = 0
        random = group.random
        self._rate = 1 + random.uniform(-1, 1) * group.options.skew
        self._offset = random.randrange(1000 * SECOND)
        self._queue: deque[Any] = deque()
        self._persisting: TermVote | None = None
        self._is_syncing = False
        self._deferred: list[tuple[Callable[[Any], None], Any]] = []
        self._wake = 0
        self._calls: dict[int, str] = {}
        self._deadlines: deque[tuple[int, int]] = deque()
        self._seen_commit = -1

    # Time

    def clock(self) -> int:
        """Return the milliseconds of this machine's clock."""
        return int((self.group.now + self._offset) * self._rate) // MILLISECOND

    def _arm(self) -> None:
        """Make sure that an event comes at the time at which the node asked to be woken."""
        node = self.node
        if node is None:
            return
        wake = node.next_wake
        if wake >= 1 << 61:
            return
        at = max(int(wake * MILLISECOND / self._rate) - self._offset + 1, self.group.now + 1)
        if self._wake <= self.group.now or at < self._wake:
            self._wake = at
            self.group.at(at, self._ring, (self.incarnation, at))

    def _ring(self, context: tuple[int, int]) -> None:
        incarnation, at = context
        if incarnation != self.incarnation or self.node is None or at != self._wake:
            return
        if self._is_paused(self._ring, context):
            return
        self._wake = 0
        now = self.clock()
        if now >= self.node.next_wake:
            self.group.trace.add(TIMER, self.number, self.group.now, self.node.term)
            self.node.tick(now)
        self.turn()

    def _is_paused(self, again: Callable[[Any], None], context: Any) -> bool:
        if self.paused_until > self.group.now:
            self._deferred.append((again, context))
            return True
        return False

    def pause(self, lasts: int) -> None:
        """Stop this machine for a time; messages that arrive meanwhile wait."""
        self.paused_until = self.group.now + lasts
        self.group.at(self.paused_until, self._resume, None)

    def _resume(self, _: None) -> None:
        if self.paused_until <= self.group.now:
            deferred, self._deferred = self._deferred, []
            for again, context in deferred:
                again(context)
            self._wake = 0
            self._arm()

    # Life

    def start(self) -> None:
        """Start the node with the content of the disk."""
        if self.node is not None:
            return
        self.incarnation += 1
        group = self.group
        random = Random(f"{group.seed}/{self.name}/{self.incarnation}")
        self._seen_commit = self.ledger.committed_index
        self.node = Node(self.settings, self.ledger, self.term_vote, random, self.clock())
        self._wake = 0
        self._arm()

    def crash(self, *, power: bool) -> None:
        """
        End the node, which loses its memory and, if the power fails, all writes that were not
        synced.
        """
        if self.node is None:
            return
        self.group.trace.add(CRASHED, self.number, self.group.now, int(power))
        self.node = None
        self.incarnation += 1
        random = self.group.random
        if self._persisting is not None and random.random() < 0.5:
            self.term_vote = self._persisting
        self._persisting, self._is_syncing = None, False
        self.ledger = self.ledger.recovered(random, power=power)
        self._queue.clear()
        self._deferred.clear()
        self.paused_until = 0
        self.pending.clear()
        for call_id in list(self._calls):
            del self._calls[call_id]
        self._deadlines.clear()

    # What the node wants done

    def turn(self) -> None:
        """Take the actions of the node, and do those that need not wait for the disk."""
        node = self.node
        if node is None:
            return
        queue, outbox = self._queue, node.outbox
        while True:
            if outbox:
                queue.extend(outbox)
                outbox.clear()
            if not queue or self._persisting is not None:
                break
            self._act(queue.popleft())
        self._arm()

    def _act(self, action: Any) -> None:
        kind = type(action)
        if kind is SendRequest:
            self._send(action)
        elif kind is AnswerRequest:
            self.group.answer(self, action.token, action.message)
        elif kind is Persist:
            self._persisting = action.state
            self.group.after(self._disk_time(), self._persisted, self.incarnation)
        elif kind is Sync:
            if self._is_syncing:
                self.group.judge.violation("two-syncs", self.name)
            self._is_syncing = True
            context = (self.incarnation, self.ledger, *self.ledger.begin_sync())
            self.group.after(self._disk_time(), self._synced, context)
        elif kind is CommitIndexMoved:
            term = self.node.term if self.node is not None else 0
            self.group.judge.commits(self, self._seen_commit, action.index, term)
            self._seen_commit = max(self._seen_commit, action.index)
        elif kind is PutsCompleted:
            self._completed(action)
        elif kind is RoleChanged:
            self._role_changed(action)

    def _disk_time(self) -> int:
        slow = 30 if self.slow_until > self.group.now else 1
        return int(self.group.options.sync_time * (0.2 + self.group.random.random()) * slow) + 1

    def _persisted(self, incarnation: int) -> None:
        if incarnation != self.incarnation or self._is_paused(self._persisted, incarnation):
            return
        if self._persisting is not None:
            self.term_vote, self._persisting = self._persisting, None
            self.group.trace.add(WORKED, self.number, self.group.now, self.term_vote.term)
            self.turn()

    def _synced(self, context: tuple[int, MemoryLedger, int, int]) -> None:
        incarnation, ledger, count, index = context
        node = self.node
        if incarnation != self.incarnation or node is None:
            return
        if self._is_paused(self._synced, context):
            return
        ledger.end_sync(count)
        self.group.trace.add(SYNC, self.number, self.group.now, index + 1)
        self._is_syncing = False
        node.synced(index, self.clock())
        self.turn()

    def _send(self, action: SendRequest) -> None:
        group = self.group
        self._calls[action.call_id] = action.peer
        if not self._deadlines:
            group.after(action.timeout_ms * MILLISECOND, self._sweep, self.incarnation)
        self._deadlines.append((group.now + action.timeout_ms * MILLISECOND, action.call_id))
        other = group.machines[int(action.peer[1:])]
        token = (self.number, self.incarnation, action.call_id)
        group.transmit(
            self.number, other.number, other.receive, (action.code, action.message, token)
        )

    def _sweep(self, incarnation: int) -> None:
        """Fail the calls that were not answered in time."""
        if incarnation != self.incarnation or self._is_paused(self._sweep, incarnation):
            return
        deadlines, now = self._deadlines, self.group.now
        overdue = []
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1] not in self._calls):
            overdue.append(deadlines.popleft()[1])
        if deadlines:
            self.group.at(deadlines[0][0], self._sweep, incarnation)
        for call_id in overdue:
            self.responded((incarnation, call_id, None))

    def receive(self, context: tuple[int, GroupMessage, Any]) -> None:
        """Hand a request that has arrived to the node."""
        code, message, token = context
        node = self.node
        if node is None:
            self.group.refuse(self, token)
            return
        if self._is_paused(self.receive, context):
            return
        self.group.trace.add(DELIVERY, self.number, self.group.now, code + token[2])
        node.request(code, message, token, self.clock())
        self.turn()

    def responded(self, context: tuple[int, int, GroupMessage | None]) -> None:
        """Hand the node the answer to a call, or its failure."""
        incarnation, call_id, message = context
        node = self.node
        if node is None or incarnation != self.incarnation:
            return
        if self._is_paused(self.responded, context):
            return
        peer = self._calls.pop(call_id, None)
        if peer is not None:
            self.group.trace.add(DELIVERY, self.number, self.group.now, call_id)
            node.response(peer, call_id, message, self.clock())
            self.turn()

    # What the broker would do

    def put(self, count: int) -> None:
        """Put some entries, if this machine is a leader that takes them."""
        node, group = self.node, self.group
        if node is None or self.paused_until > group.now or self._persisting is not None:
            return
        if node.why_not_append() != 200:
            self.refused += 1
            return
        bodies = [
            b"%d/%s" % (group.next_put(), b"x" * group.random.randrange(60)) for _ in range(count)
        ]
        try:
            made = self.ledger.append(node.term, bodies)
        except LedgerFull:
            self.refused += 1
            return
        self.pending.extend(Put(group.now, entry) for entry in made)
        node.appended(made[-1].index, self.clock())
        self.turn()

    def probe(self) -> Entry | None:
        """Put one entry and return it; None: the node refused it."""
        before = self.ledger.end_index
        self.put(1)
        return self.ledger.entry(before + 1)

    def _completed(self, action: PutsCompleted) -> None:
        pending = self.pending
        while pending and pending[0].entry.index <= action.index:
            self.group.judge.completed(self, pending.popleft(), action.code)

    def _role_changed(self, action: RoleChanged) -> None:
        self.group.trace.add(NOTE, self.number, self.group.now, action.term)
        self.group.note(f"{self.name} {action.role} term {action.term} leader {action.leader_id}")
        judge = self.group.judge
        judge.now = self.group.now
        if action.role is MemberRole.LEADER:
            judge.leads(self, action.term)
            self.group.last_leader = self.number
            if self.settings.commit_own_term_only and not self._queue:
                self.put(1)
        elif self.pending:
            judge.violation("unanswered", f"{self.name} stepped down with {len(self.pending)} puts")
            self.pending.clear()


class RaftGroup:
    """
    A group: its machines, the network between them, clients, and faults.

    :ivar struck: the faults that happened.
    :ivar transfers: number of orders to hand over the lead, by the code of the answer.
    :ivar write: takes lines for a person who watches the run.
    :param trace: counts every event.
    """

    def __init__(self, seed: int, options: RaftOptions, trace: Trace | None = None) -> None:
        self.seed = seed
        self.options = options
        self.random = Random(f"{seed}/group")
        self.trace = trace or Trace()
        self.judge = Judge()
        self.now = 0
        self.count = options.nodes
        self.cut: set[tuple[int, int]] = set()
        self.loss = options.loss
        self.late = 1
        self.last_leader: int | None = None
        self.is_faulty = True
        self.transfers: dict[int, int] = {}
        self.struck: list[RaftFault] = []
        self.write: Callable[[str], None] | None = None
        self._events: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._event_count = 0
        self._put_count = 0
        self._last_arrival: dict[tuple[int, int], int] = {}
        self.machines = [Machine(self, number) for number in range(self.count)]

    def make_ledger(self) -> MemoryLedger:
        """Return an empty ledger."""
        return MemoryLedger(2048, loses_unsynced=bool(self.options.settings.get("sync_before_ack")))

    def note(self, text: str) -> None:
        """Write a line for a person who watches the run."""
        if self.write is not None:
            self.write(f"{self.now / SECOND:10.4f} {text}")

    # Events

    def at(self, time: int, function: Callable[[Any], None], context: Any) -> None:
        """Call a function at a time, in microseconds."""
        self._event_count += 1
        heappush(self._events, (time, self._event_count, function, context))

    def after(self, time: int, function: Callable[[Any], None], context: Any) -> None:
        """Call a function after a time, in microseconds."""
        self.at(self.now + time, function, context)

    def run_until(self, time: int) -> None:
        """Run all events up to a time, in microseconds."""
        events, judge = self._events, self.judge
        while events and events[0][0] <= time:
            self.now, _, function, context = heappop(events)
            judge.now = self.now
            function(context)
        self.now = judge.now = time

    # Network

    def transmit(
        self, source: int, target: int, function: Callable[[Any], None], context: Any
    ) -> None:
        """Deliver a message after a delay. The network may lose, delay or double it."""
        if (source, target) in self.cut:
            return
        random, options = self.random, self.options
        chance = random.random()
        if chance < self.loss:
            return
        delay = int(options.delay * (0.3 + random.random()) * self.late)
        if options.reorders and self.is_faulty and random.random() < 0.1:
            delay *= random.choice((3, 10, 40))
        arrival = self.now + delay
        if not options.reorders:
            link = (source, target)
            arrival = max(arrival, self._last_arrival.get(link, 0))
            self._last_arrival[link] = arrival
        self.at(arrival, function, context)
        if chance > 1 - options.duplicates and self.is_faulty:
            self.at(arrival + int(random.expovariate(1 / 100000)), function, context)

    def answer(self, source: Machine, token: Any, message: GroupMessage) -> None:
        """Send an answer back to the machine that asked, or count it if an operator asked."""
        number, incarnation, call_id = token
        if number == OPERATOR:
            self.transfers[message.code] = self.transfers.get(message.code, 0) + 1
            return
        target = self.machines[number]
        self.transmit(source.number, number, target.responded, (incarnation, call_id, message))

    def refuse(self, source: Machine, token: Any) -> None:
        """
        Refuse a call to a machine that is down: half of these calls fail at once, the others only
        time out.
        """
        number, incarnation, call_id = token
        if number != OPERATOR and self.random.random() < 0.5:
            target = self.machines[number]
            self.transmit(source.number, number, target.responded, (incarnation, call_id, None))

    # Clients and operators

    def next_put(self) -> int:
        """Return a number that no other put has."""
        self._put_count += 1
        return self._put_count

    def _client(self, _: None) -> None:
        if self.is_faulty:
            for machine in self.machines:
                if machine.node is not None and machine.node.role is MemberRole.LEADER:
                    machine.put(self.random.choice((1, 1, 1, 2, 5)))
            self.after(
                int(self.options.put_every * (0.5 + self.random.random())), self._client, None
            )

    def leader_number(self) -> int | None:
        """Return the number of the machine that leads, or that led last."""
        return self.last_leader

    def order_transfer(self) -> None:
        """Order each leader to hand over its lead, as an operator does."""
        for machine in self.machines:
            node = machine.node
            if (
                node is not None
                and node.role is MemberRole.LEADER
                and not machine.paused_until > self.now
            ):
                chosen = self.random.choice(node.settings.others)
                order = LeadershipTransferRequest(
                    group=GROUP,
                    remote_id=machine.name,
                    transfer_id=machine.name,
                    transferee_id=chosen,
                    term=node.term,
                )
                token = (OPERATOR, 0, 0)
                node.request(DLedgerRequestCode.LEADERSHIP_TRANSFER, order, token, machine.clock())
                machine.turn()

    # Faults

    def strike(self, fault: RaftFault) -> None:
        """Make a fault happen."""
        if not self.is_faulty:
            return
        number = victim(self, fault.pick)
        machine = self.machines[number]
        self.trace.add(FAULT, number, self.now, fault.lasts)
        self.note(f"fault {fault.kind} n{number} {fault.lasts / SECOND:.3f} s")
        self.struck.append(fault)
        self.judge.logs_match(self.machines)
        kind = fault.kind
        if kind in CRASHES:
            self._crash(kind, machine, fault.lasts)
        elif kind in ("isolate", "half", "ring", "one_way", "bridge"):
            self.cut = cuts(self, kind, number)
            self.after(fault.lasts, self._mend, None)
        elif kind == "lossy":
            self.loss = max(self.loss, 0.3)
            self.after(fault.lasts, self._mend, None)
        elif kind == "late":
            self.late = 30
            self.after(fault.lasts, self._mend, None)
        elif kind == "slow_disk":
            machine.slow_until = self.now + fault.lasts
        elif kind == "pause":
            machine.pause(fault.lasts)
        elif kind == "disk_full":
            machine.ledger.is_full = True
            self.after(fault.lasts, self._empty_disk, machine)
        elif kind == "expire":
            machine.ledger.expire(machine.ledger.end_index - 2)
        elif kind == "transfer":
            self.order_transfer()

    def _crash(self, kind: str, machine: Machine, lasts: int) -> None:
        power = kind != "kill" and bool(self.options.settings.get("sync_before_ack"))
        for fallen in self.machines if kind == "blackout" else [machine]:
            fallen.crash(power=power)
            delay = lasts + self.random.randrange(50 * MILLISECOND)
            self.after(delay, lambda up: up.start(), fallen)

    def _mend(self, _: None) -> None:
        self.cut = set()
        self.loss, self.late = self.options.loss if self.is_faulty else 0.0, 1

    @staticmethod
    def _empty_disk(machine: Machine) -> None:
        machine.ledger.is_full = False

    # A run

    @property
    def unit(self) -> int:
        """Return the heartbeat interval in microseconds."""
        return self.machines[0].settings.heart_beat_interval * MILLISECOND

    def run(self, faults: list[RaftFault] | None = None) -> None:
        """Run the group from its first start to its last check."""
        busy = self.options.busy * self.unit
        plan = faults
        if plan is None:
            plan = plan_raft_faults(
                Random(f"{self.seed}/faults"), busy, self.unit, self.options.kinds
            )
        for fault in plan:
            self.at(fault.at + self.unit, self.strike, fault)
        for machine in self.machines:
            self.at(self.random.randrange(20 * MILLISECOND), lambda up: up.start(), machine)
        self._client(None)
        self.run_until(busy + self.unit)
        self._heal()
        self._settle()
        self.judge.at_the_end(self.machines)

    def _heal(self) -> None:
        self.is_faulty = False
        self._mend(None)
        for machine in self.machines:
            machine.start()
            machine.ledger.is_full = False
            machine.slow_until = 0
            if machine.paused_until > self.now:
                machine.pause(0)

    def _settle(self) -> None:
        """Check that within a bounded time the group agrees, and takes and commits a new put."""
        last = self.now + 30 * self.unit
        step = max(self.unit // 8, 2 * self.options.delay)
        probe = None
        while self.now < last:
            self.run_until(self.now + step)
            leaders = [m for m in self.machines if m.node and m.node.role is MemberRole.LEADER]
            if len(leaders) != 1:
                continue
            if probe is None or leaders[0].ledger.entry(probe.index) is not probe:
                probe = leaders[0].probe()
            elif self._agrees(probe.index):
                self.note(f"settled after {30 - (last - self.now) / self.unit:.1f} heartbeats")
                return
        state = "; ".join(
            f"{m.name} {m.node.role} term {m.node.term} leader {m.node.leader_id} "
            f"ledger {m.ledger.begin_index}..{m.ledger.end_index} "
            f"committed {m.ledger.committed_index}"
            for m in self.machines
            if m.node
        )
        self.judge.violation(
            "progress", f"no agreement 30 heartbeats after the last fault: {state}"
        )

    def _agrees(self, probe: int) -> bool:
        ends = {(m.ledger.end_index, m.ledger.committed_index) for m in self.machines}
        end, committed = next(iter(ends))
        is_done = len(ends) == 1 and end == committed >= probe
        return is_done and not any(machine.pending for machine in self.machines)
