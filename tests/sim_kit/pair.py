"""A master and a slave under faults: the smallest cluster that can lose a message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.testing.cluster import HA_PORT, ROOT, Life, StoreNode, small_configuration
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import SimHost, World
from rmq_ha.testing.trace import Trace
from rmq_ha.testing.workload import TOPICS, Attempt, DirectProducer, Load, ProducerLoad
from tests.sim_kit.damage import spoil
from tests.sim_kit.ending import Ending
from tests.sim_kit.faults import MASTER
from tests.sim_kit.judge import Judge

PROBE_SECONDS = 0.25
RETRY_START_SECONDS = 2.0
AWAY_AT_MOST_SECONDS = 10.0
"""How long a master that was replaced stays away, so that there is time to heal."""
MADE_AGAIN = TOPICS[1]
MACHINES = ("a", "b")


@dataclass
class PairOptions:
    """
    The settings of a pair.

    :ivar file_size: bytes of a file of the commit log.
    :ivar transfer_size: largest body of a replication frame, bytes; small ones end within records.
    """

    role: BrokerRole = BrokerRole.SYNC_MASTER
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    file_size: int = 32768
    transfer_size: int = 32768

    @classmethod
    def draw(cls, random: Random) -> "PairOptions":
        """Draw any settings."""
        return cls(
            random.choice(
                (BrokerRole.SYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER)
            ),
            random.choice((FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH)),
            random.choice((16384, 32768, 65536)),
            random.choice((61, 1000, 32768)),
        )

    def __str__(self) -> str:
        return (
            f"{self.role.name}, {self.flush.name}, files of {self.file_size}, "
            f"frames of {self.transfer_size}"
        )


class HAPair:
    """
    Two stores, their HA services, and the judge of both.

    :ivar findings: the broken promises and hazards that the judge found.
    :ivar judge: remembers the promises that were given to producers.
    :ivar is_parted: whether the slave does not follow its master at the end, for any reason.
    """

    def __init__(
        self, seed: int, options: PairOptions | None = None, trace: Trace | None = None
    ) -> None:
        self.is_parted = False
        self.world = World(seed, trace)
        self.options = options or PairOptions()
        self.findings = Findings()
        self.fail_overs = 0
        self._random = self.world.random("operator")
        self._leader = MACHINES[0]
        self._is_moving = False
        self._was_damaged = False
        self._nodes: dict[str, StoreNode] = {}
        self._make_machines()
        self.judge = Judge(
            self.findings,
            self._nodes,
            self.options.role,
            self.options.flush,
            lambda: self._leader,
            self.world.clock.seconds,
            self.world.random("judge"),
        )

    def _make_machines(self) -> None:
        random = self.world.random("pair")
        for name in MACHINES:
            host = self.world.add(name, random.randint(-2000, 2000))
            self._nodes[name] = self._node(host)

    def _node(self, host: SimHost) -> StoreNode:
        configuration = small_configuration(
            host.ip,
            self.options.role,
            self.options.flush,
            file_size=self.options.file_size,
        )
        configuration.store.ha_transfer_batch_size = self.options.transfer_size
        configuration.ours.ha_transfer_batch_max = self.options.transfer_size
        return self._make_node(host, configuration)

    def _make_node(self, host: SimHost, configuration: BrokerConfiguration) -> StoreNode:
        return StoreNode(host, configuration, self.findings)

    def producer(self, number: int, pause: float) -> ProducerLoad:
        """Return a further producer, whose attempts the judge watches."""
        random = self.world.random(f"producer {number}")
        return DirectProducer(
            f"p{number}", self.world.clock, random, lambda: self.master, self, pause
        )

    def others(self) -> Sequence[Load]:
        """Return the other clients of the pair, beside the producers."""
        return ()

    @property
    def attempts(self) -> dict[str, Attempt]:
        """All attempts, by unique id."""
        return self.judge.attempts

    @property
    def master(self) -> StoreNode:
        """The machine that is the master, or will be when it comes back."""
        return self._nodes[self._leader]

    @property
    def slave(self) -> StoreNode:
        """The machine that is not the master."""
        return self._nodes[self._follower]

    @property
    def _follower(self) -> str:
        return next(name for name in MACHINES if name != self._leader)

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.world.clock.seconds()

    def start(self) -> None:
        """Start both machines and the judge."""
        self.restart(self._leader)
        self.restart(self._follower)
        self._probe()

    def answered(self, attempt: Attempt) -> None:
        """Hand the judge an attempt whose result came just now."""
        self.judge.answered(attempt)

    # Victims

    def machine(self, part: str) -> str:
        """Return the name of the machine that has a role at the moment."""
        return self._leader if part == MASTER else self._follower

    def machines(self) -> list[str]:
        """Return the names of both machines, the master's first."""
        return [self._leader, self._follower]

    def host(self, machine: str) -> SimHost:
        """Return a machine by its name."""
        return self._nodes[machine].host

    def crash(self, machine: str, power: bool) -> None:
        """Stop a machine at once; harmless when it is down."""
        node = self._nodes[machine]
        if node.state == "down":
            return
        self.judge.crashes(machine, power)
        node.crash(power)

    def restart(self, machine: str) -> None:
        """Start a machine again; harmless when it is up."""
        node = self._nodes[machine]
        if node.state != "down":
            return
        part = self._give_part(machine)
        before = node.log_image()
        try:
            node.load()
        except Exception as error:
            needs_hands = self.judge.refused(machine, error)
            node.crash(False)
            if needs_hands:
                self._replace(machine)
            self._at(RETRY_START_SECONDS, self.restart, machine)
            return
        self.judge.recovered(machine, part, before)
        node.start()

    def _at(self, seconds: float, function: Callable[..., None], *args: object) -> None:
        self.world.clock.call_at(self.now + seconds, function, *args)

    def _give_part(self, machine: str) -> BrokerRole:
        if machine == self._leader:
            self._nodes[machine].take_part(self.options.role, None)
            return self.options.role
        self._nodes[machine].take_part(BrokerRole.SLAVE, f"{self.master.host.ip}:{HA_PORT}")
        return BrokerRole.SLAVE

    def stop_and_restart(self, machine: str) -> None:
        """Restart a machine in an orderly way, as an operator does."""
        self._stop_then(machine, self.restart)

    def _stop_then(self, machine: str, then: Callable[[str], None]) -> None:
        node = self._nodes[machine]
        if node.state == "running":
            node.stop().addCallback(self._stopped, machine, node.life, then)

    def _stopped(self, _: object, machine: str, life: Life, then: Callable[[str], None]) -> None:
        """Continue after an orderly stop, unless the machine has crashed or started meanwhile."""
        if self._nodes[machine].life == life and self._nodes[machine].state == "down":
            then(machine)

    # An operator's hands

    def fail_over(self, seconds: float) -> None:
        """
        Kill the master, start its slave as the master, and later the old master as its slave.

        Before that the link may be cut while the master goes on, so that the ends of the logs
        differ. An operator does not promote a slave that began with an empty store and has only the
        end of the log.

        :param seconds: seconds until the old master returns.
        """
        if self._is_moving or self.slave.state != "running" or not self._is_whole(self.slave):
            return
        self._is_moving = True
        self.fail_overs += 1
        cut = self._random.choice((0.0, 0.0, 0.3, 1.5))
        if cut:
            self.world.network.partition(*MACHINES)
        self._at(cut, self._depose, min(seconds, AWAY_AT_MOST_SECONDS))

    def _is_whole(self, node: StoreNode) -> bool:
        """
        Return whether a slave's log begins where the master's log begins, or the master's log is
        empty.
        """
        own, other = node.log_image(), self.master.log_image()
        return own.start <= other.start and (own.end > own.start or other.end == other.start)

    def _depose(self, away: float) -> None:
        old, new = self._leader, self._follower
        how = self._random.random()
        if how < 0.2:
            self._stop_then(old, lambda machine: None)
        else:
            self.crash(old, power=how < 0.5)
        self._leader = new
        self.world.network.heal()
        self._at(self._random.random() * 1.5, self._promote, new, old)
        self._at(away + 2.0, self._return, old)

    def _promote(self, machine: str, old: str) -> None:
        """
        Make a machine the master. It may still run as a slave, or have crashed meanwhile.

        The old master is down by then, or back as a slave: two masters at once would be a mistake
        of the operator.
        """
        is_master = self.judge.parts[old] is not BrokerRole.SLAVE
        if is_master and self._nodes[old].state not in ("down", "failed"):
            self._at(0.1, self._promote, machine, old)
        elif self._nodes[machine].state == "running" and self._random.random() < 0.5:
            self._stop_then(machine, self.restart)
        else:
            self.crash(machine, False)
            self.restart(machine)

    def _return(self, machine: str) -> None:
        if self._nodes[machine].state == "stopping":
            self._at(0.5, self._return, machine)
            return
        self._is_moving = False
        self.restart(machine)

    def make_again(self) -> None:
        """Delete a topic on the master; the next put creates it again."""
        store = self.master.open_store
        if store is not None and self._leader not in self.judge.damages:
            self.judge.deleted(MADE_AGAIN, store.log.max_offset)
            store.clean_unused_topics(set(TOPICS) - {MADE_AGAIN})

    def damage(self, machine: str, seconds: float) -> None:
        """Stop a machine, damage its store, and start it after a number of seconds."""
        if self._was_damaged or self._is_moving or self._nodes[machine].state != "running":
            return
        self._was_damaged = True
        if self._random.random() < 0.5:
            self._stop_then(machine, lambda _: self._spoil(machine, seconds))
        else:
            self.crash(machine, False)
            self._spoil(machine, seconds)

    def _spoil(self, machine: str, seconds: float) -> None:
        good = self._nodes[machine].log_image()
        done = spoil(self.host(machine).disk, ROOT, self._random)
        if done is not None:
            self.judge.damaged(machine, done, good)
        self._at(seconds, self.restart, machine)

    def _replace(self, machine: str) -> None:
        """
        Move a damaged store away: the other machine becomes the master, and this one begins with an
        empty store.
        """
        disk = self.host(machine).disk
        for path in disk.paths(ROOT):
            disk.damage(path, None)
        self.judge.wiped(machine)
        if machine == self._leader:  # the other one may be refused, too: this one is empty by then
            self._leader = self._follower
            self.judge.forced = self._leader
            self._promote(self._leader, machine)

    # Watching

    def _probe(self) -> None:
        """Have the judge look, and check that the replicated offset is not beyond the log."""
        self._at(PROBE_SECONDS, self._probe)
        self.judge.look()
        if self.master.state != "running":
            return
        end = self.master.store.log.max_offset
        replicated = self.master.replication.replicated_offset()
        if replicated > end:
            text = f"replicated up to {replicated}, but the log ends at {end}"
            self.findings.violation(self.now, "watermark", text)
        for slave in self.master.replication.statistics().slaves:
            if slave.lag < 0:
                self.findings.violation(self.now, "lag", f"a slave is {slave.lag} behind")

    # The end

    def check_end(self) -> None:
        """Check after a quiet time that both members run, are equal, and have all messages."""
        ending = Ending(self.findings, self.judge, self.now)
        ending.check(self.master, self.slave)
        self.is_parted = ending.is_parted
        for failure in self.world.clock.failures:
            self.findings.violation(self.now, "exception", failure.getTraceback())

    def stop(self) -> None:
        """
        Stop both members in an orderly way, the slave first, and check that no timer or connection
        is left.
        """
        for node in (self.slave, self.master):
            if node.state == "running":
                node.stop()
                self.world.clock.run_while(lambda node=node: node.state == "stopping", 60)  # type: ignore[misc]
                if node.state != "down":
                    text = f"{node.host.name} is still {node.state} after 60 s"
                    self.findings.violation(self.now, "stop", text)
