"""A master and a slave under faults: the smallest cluster that can lose something."""

from dataclasses import dataclass
from random import Random

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.model.status import BrokerRole, FlushDiskType, PutMessageStatus
from rmq_ha.testing.checkers import (
    Findings,
    check_attempts,
    check_index,
    check_numbering,
    check_queues,
    check_reading,
    compare_logs,
)
from rmq_ha.testing.cluster import HA_PORT, ROOT, StoreNode, small_configuration
from rmq_ha.testing.faults import MASTER, SLAVE
from rmq_ha.testing.host import SimHost, World
from rmq_ha.testing.images import LogImage, read_queues
from rmq_ha.testing.trace import Trace
from rmq_ha.testing.workload import Attempt, DirectProducer, Producer

PROBE_SECONDS = 0.25
RETRY_START_SECONDS = 2.0


@dataclass
class PairOptions:
    """
    What kind of pair it is.

    :ivar file_size: of the commit log, bytes.
    :ivar transfer_size: largest body of a replication frame, bytes; small ones end within records.
    """

    role: BrokerRole = BrokerRole.SYNC_MASTER
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    file_size: int = 32768
    transfer_size: int = 32768

    @classmethod
    def draw(cls, random: Random) -> "PairOptions":
        """Any kind."""
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
    Two stores, their HA services, and one who watches both.

    :ivar findings: what the watching found.
    :ivar is_ahead: since when the slave has bytes that the master lost; None: it has not.
    """

    def __init__(
        self, seed: int, options: PairOptions | None = None, trace: Trace | None = None
    ) -> None:
        self.world = World(seed, trace)
        self.options = options or PairOptions()
        self.findings = Findings()
        self.attempts: dict[str, Attempt] = {}
        self.is_ahead: float | None = None
        self._lost_power: dict[str, float] = {}
        self._make_machines()
        self._nodes = {MASTER: self.master, SLAVE: self.slave}

    def _make_machines(self) -> None:
        random = self.world.random("pair")
        master_host = self.world.add("master-host", random.randint(-2000, 2000))
        slave_host = self.world.add("slave-host", random.randint(-2000, 2000))
        self.master = self._node(master_host, self.options.role, None)
        self.slave = self._node(slave_host, BrokerRole.SLAVE, f"{master_host.ip}:{HA_PORT}")

    def _node(self, host: SimHost, role: BrokerRole, address: str | None) -> StoreNode:
        configuration = small_configuration(
            host.ip,
            role,
            self.options.flush,
            broker_id=0 if address is None else 1,
            file_size=self.options.file_size,
        )
        configuration.store.ha_transfer_batch_size = self.options.transfer_size
        configuration.ours.ha_transfer_batch_max = self.options.transfer_size
        return self._make_node(host, configuration, address)

    def _make_node(
        self, host: SimHost, configuration: BrokerConfiguration, address: str | None
    ) -> StoreNode:
        return StoreNode(host, configuration, self.findings, address)

    def producer(self, number: int, pause: float) -> Producer:
        """One more who puts messages; its attempts are to be watched."""
        random = self.world.random(f"producer {number}")
        return DirectProducer(f"p{number}", self.world.clock, random, self.master, self, pause)

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.world.clock.seconds()

    def start(self) -> None:
        """Start both, and the watching."""
        self.restart(MASTER)
        self.restart(SLAVE)
        self._probe()

    # Victims

    def host(self, machine: str) -> SimHost:
        """A machine by its part."""
        return self._nodes[machine].host

    def crash(self, machine: str, power: bool) -> None:
        """It stops at once; harmless when it is down."""
        node = self._nodes[machine]
        if node.state == "down":
            return
        node.crash(power)
        if power:
            self._lost_power[machine] = self.now

    def restart(self, machine: str) -> None:
        """It comes back; harmless when it is up."""
        node = self._nodes[machine]
        if node.state != "down":
            return
        before = node.log_image()
        try:
            node.load()
        except Exception as error:
            text = f"{machine} cannot load its store: {type(error).__name__}: {error}"
            if node.host.disk.is_full:
                self.findings.hazard(self.now, "full-disk", text)
            else:
                self.findings.violation(self.now, "load", text)
            node.crash(False)
            self.world.clock.at(self.now + RETRY_START_SECONDS, self.restart, machine)
            return
        self._check_recovery(machine, before)
        node.start()

    def stop_and_restart(self, machine: str) -> None:
        """An operator restarts it in an orderly way."""
        node = self._nodes[machine]
        if node.state == "running":
            node.stop().addCallback(self._restart_if, machine, node.boots)

    def _restart_if(self, _: object, machine: str, boot: int) -> None:
        """It may have crashed meanwhile."""
        if self._nodes[machine].boots == boot:
            self.restart(machine)

    # Watching

    def _check_recovery(self, machine: str, before: LogImage) -> None:
        """A machine came back: what did it lose, and was it allowed to?"""
        node = self._nodes[machine]
        end = node.store.log.max_offset
        whole = 0
        for record in before.records():
            whole = record.offset + record.size
        if end < whole:
            text = f"{machine} came back with {end}, but its records were whole up to {whole}"
            self.findings.violation(self.now, "recovery", text)
        power = self._lost_power.get(machine, -1.0)
        for attempt in self.attempts.values():
            if attempt.status is None or not attempt.status.is_stored or attempt.end <= end:
                continue
            if machine == SLAVE or MASTER in attempt.lost_on:
                continue
            attempt.lost_on[machine] = self.now
            text = f"{machine} lost {attempt.unique_id}, which ended {attempt.status.name}"
            if power < attempt.asked_at:
                self.findings.violation(self.now, "lost-by-kill", text)
            elif (
                attempt.status is PutMessageStatus.PUT_OK
                and self.options.flush is FlushDiskType.SYNC_FLUSH
            ):
                self.findings.violation(self.now, "lost-after-flush", text)
            else:
                self._check_other_copy(attempt)
        if machine == MASTER:
            self._check_ahead(end)

    def _check_other_copy(self, attempt: Attempt) -> None:
        """The master lost a message: with PUT_OK of a SYNC_MASTER the slave must have it."""
        if (
            self.options.role is not BrokerRole.SYNC_MASTER
            or attempt.status is not PutMessageStatus.PUT_OK
            or self._lost_power.get(SLAVE, -1.0) >= attempt.asked_at
        ):
            return
        if attempt.unique_id.encode() not in self.slave.log_image().data:
            text = f"{attempt.unique_id} was acknowledged, and the loss of one machine lost it"
            self._blame(self.now, "lost-with-one-machine", text)

    def _check_ahead(self, end: int) -> None:
        slave_end = self.slave.log_image().end
        if slave_end > end and self.slave.boots:
            self.is_ahead = self.now
            text = f"the master came back with {end}, the slave has {slave_end}"
            self.findings.hazard(self.now, "slave-ahead", text)

    def _blame(self, time: float, kind: str, text: str) -> None:
        """A violation, unless the logs had parted before."""
        if self.is_ahead is None:
            self.findings.violation(time, kind, text)
        else:
            self.findings.hazard(time, kind, text)

    def answered(self, attempt: Attempt) -> None:
        """PUT_OK of a SYNC_MASTER: the slave has the same bytes now."""
        if (
            attempt.status is not PutMessageStatus.PUT_OK
            or self.options.role is not BrokerRole.SYNC_MASTER
            or self._lost_power.get(SLAVE, -1.0) > attempt.asked_at
        ):
            return
        if self.slave.state == "down":
            held = self.slave.log_image()
            same = held.slice(attempt.offset, attempt.end)
        else:
            same = self._read(self.slave, attempt.offset, attempt.end)
        if same != self._read(self.master, attempt.offset, attempt.end):
            text = f"{attempt.unique_id} ({attempt.offset} to {attempt.end}) ended PUT_OK"
            self._blame(self.now, "acknowledged-without-replica", text)

    def _read(self, node: StoreNode, start: int, end: int) -> bytes:
        data = b""
        while start < end:
            piece = node.store.log.read(start, end - start)
            if not piece:
                break
            data += piece
            start += len(piece)
        return data

    def _probe(self) -> None:
        """Now and then: nobody is believed to have more than there is."""
        self.world.clock.at(self.now + PROBE_SECONDS, self._probe)
        if self.master.state != "running":
            return
        end = self.master.store.log.max_offset
        replicated = self.master.replication.replicated_offset()
        if replicated > end:
            text = f"replicated up to {replicated}, but the log ends at {end}"
            self.findings.violation(self.now, "watermark", text)
        for slave in self.master.replication.statistics()["slaves"]:
            if slave["lag"] < 0:
                self.findings.violation(self.now, "lag", f"a slave is {slave['lag']} behind")

    # The end

    def check_end(self) -> None:
        """After a quiet time, with both running: do they agree, and is all in place?"""
        for failure in self.world.clock.failures:
            text = failure.getTraceback()
            self.findings.violation(self.now, "exception", text)
        for machine, node in self._nodes.items():
            if node.state != "running":
                self.findings.violation(self.now, "not running", f"{machine} is {node.state}")
        if self.findings.violations and any(n.state != "running" for n in self._nodes.values()):
            return
        master, slave = self.master.log_image(), self.slave.log_image()
        difference = compare_logs(master, slave)
        if difference is not None:
            self._blame(self.now, "diverged", f"the logs differ from {difference} on")
        if slave.end != master.end:
            text = f"the master's log ends at {master.end}, the slave's at {slave.end}"
            self._blame(self.now, "not caught up", text)
        parted = difference is not None or slave.end != master.end
        self._check_node(MASTER, master)
        if not parted:
            self._check_node(SLAVE, slave)
        logs = {MASTER: {record.unique_id: record for record in master.records()}}
        check_attempts(self.attempts.values(), self.findings, self.now, logs, self.master.crashed)

    def _check_node(self, machine: str, image: LogImage) -> None:
        node = self._nodes[machine]
        records = list(image.records())
        readable = image.readable_end()
        problems = {
            "unreadable": (
                None if readable == image.end else f"readable to {readable}, ends at {image.end}"
            ),
            "numbering": check_numbering(records),
            "queues": check_queues(
                records, read_queues(node.host.disk, f"{ROOT}/consumequeue"), image.start
            ),
        }
        problems["reading"] = check_reading(node.store, records)
        if not node.crashed:
            problems["index"] = check_index(node.store, records)
        for kind, problem in problems.items():
            if problem is not None:
                self.findings.violation(self.now, kind, f"{machine}: {problem}")

    def stop(self) -> None:
        """Stop both in an orderly way, the slave first; nothing may be left."""
        for node in (self.slave, self.master):
            if node.state == "running":
                node.stop()
                self.world.clock.run_while(lambda node=node: node.state == "stopping", 60)  # type: ignore[misc]
                if node.state != "down":
                    text = f"{node.host.name} is still {node.state} after 60 s"
                    self.findings.violation(self.now, "stop", text)
