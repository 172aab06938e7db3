"""Machines that run parts of the product: a master and a slave, their stores and their link."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.server.replication.classic.journal import ClassicJournal
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import SimHost
from rmq_ha.testing.images import LogImage, read_log

LISTEN_PORT = 10911
HA_PORT = 10912
ROOT = "/store"

Life = tuple[str, int]


def small_configuration(
    ip: str, role: BrokerRole, flush: FlushDiskType, broker_id: int = 0, file_size: int = 32768
) -> BrokerConfiguration:
    """
    Return the settings of a broker with small files and short intervals, so that much happens in
    little time.

    :param file_size: size of a file of the commit log, in bytes.
    """
    configuration = BrokerConfiguration()
    broker, store = configuration.broker, configuration.store
    broker.broker_ip1 = broker.broker_ip2 = ip
    broker.broker_name = "broker-a"
    broker.broker_id = broker_id
    store.store_path_root_dir = ROOT
    store.store_path_commit_log = f"{ROOT}/commitlog"
    store.broker_role = role
    store.flush_disk_type = flush
    store.mapped_file_size_commit_log = file_size
    store.mapped_file_size_consume_queue = 50 * 20
    store.max_hash_slot_num = 50
    store.max_index_num = 150
    store.flush_consume_queue_thorough_interval = 3000
    store.flush_commit_log_thorough_interval = 2000
    configuration.ours.check_crc_on_read = True
    configuration.server.listen_port = LISTEN_PORT
    store.ha_listen_port = HA_PORT
    return configuration


class StoreNode:
    """
    A message store and its HA service on a simulated machine. A life of it lasts from a start of
    its process to the stop or crash of that process.

    :ivar boots: number of lives so far, which is the number of the present or last one.
    :ivar crashed: the lives that ended in a crash.
    :ivar is_indexed: false after a life that ended so that the next one repairs the store: a repair
        begins the index anew in the middle of the log, as in 4.9 (`messageIndexSafe`).
    :ivar state: down, starting, running or stopping.
    """

    log = Logger()

    def __init__(
        self,
        host: SimHost,
        configuration: BrokerConfiguration,
        findings: Findings,
        master_address: str | None = None,
    ) -> None:
        self.host = host
        self.configuration = configuration
        self.boots = 0
        self.crashed: set[Life] = set()
        self.is_indexed = True
        self.state = "down"
        self.store: Any = None
        self.replication: Any = None
        self._findings = findings
        self._master_address = master_address
        self._now = host.clock.seconds

    @property
    def life(self) -> Life:
        """Name of the machine, and the number of its present life."""
        return self.host.name, self.boots

    def take_part(self, role: BrokerRole, master_address: str | None) -> None:
        """
        Set the role for the next life.

        :param master_address: host and replication port of its master; None: it is the master.
        """
        self.configuration.store.broker_role = role
        self.configuration.broker.broker_id = 1 if role is BrokerRole.SLAVE else 0
        self._master_address = master_address

    @property
    def open_store(self) -> Any:
        """The store while it is running; None otherwise."""
        return self.store if self.state == "running" else None

    @property
    def store_host(self) -> Address:
        """The address that is written into records."""
        return Address.parse(self.host.ip, LISTEN_PORT)

    def _begin(self) -> None:
        if not self.host.is_running:
            self.host.restart()
        self.boots += 1
        self.state = "starting"

    def load(self) -> None:
        """Begin a life: open the store and recover."""
        self._begin()
        seams = self.host.seams
        journal = ClassicJournal(seams, self.configuration)
        self.store = DefaultMessageStore(seams, self.configuration, journal)
        self.replication = journal.service
        self.store.load()

    def start(self) -> "Deferred[None]":
        """Run the store that was loaded."""
        boot = self.boots
        started = Deferred.fromCoroutine(self._start())
        return started.addCallbacks(self._started, self._failed, (boot,), {}, (boot,))

    async def _start(self) -> None:
        await self.store.start()
        if self._master_address is not None:
            self.replication.set_master_address(self._master_address)

    def _started(self, _: object, boot: int) -> None:
        if boot == self.boots and self.state == "starting":
            self.state = "running"

    def _failed(self, failure: Failure, boot: int) -> None:
        if boot == self.boots and self.state in ("starting", "stopping"):
            text = failure.getTraceback()
            self._findings.violation(self._now(), f"{self.state} failed", text)
            self.state = "failed"

    def stop(self) -> "Deferred[None]":
        """End this life in an orderly way."""
        boot = self.boots
        self.state = "stopping"
        stopped = Deferred.fromCoroutine(self._stop())
        return stopped.addCallbacks(self._stopped, self._failed, (boot,), {}, (boot,))

    async def _stop(self) -> None:
        await self.store.stop()

    def _stopped(self, _: object, boot: int) -> None:
        if boot == self.boots and self.state == "stopping":
            self.state = "down"
            self.is_indexed = self.is_indexed and not self.host.disk.paths(f"{ROOT}/abort")
            self._check_leftovers()

    def _check_leftovers(self) -> None:
        """Check that after a stop no timer, connection, port or call is left."""
        host = self.host
        left = {
            "timers": [repr(call.function) for call in host.clock.getDelayedCalls()],  # type: ignore[attr-defined]
            "connections": [str(end.getPeer()) for end in host.network.connections],
            "ports": list(host.network.ports),
            "worker calls": list(range(host.worker.outstanding)),
        }
        for what, values in left.items():
            if values:
                self._findings.violation(
                    self._now(), "left after stop", f"{host.name}: {what}: {values}"
                )

    def crash(self, power: bool) -> None:
        """
        End this life at once.

        :param power: whether the whole machine loses power; else only the process ends.
        """
        self.crashed.add(self.life)
        self.is_indexed = False
        self.state = "down"
        self.host.crash(power=power)

    @property
    def log_directory(self) -> str:
        """Directory of the commit log."""
        return self.configuration.store.store_path_commit_log or ""

    def log_image(self) -> LogImage:
        """
        Return the commit log: up to the store's end while there is a store, else as far as it can
        be read.
        """
        end = self.store.log.max_offset if self.state != "down" else None
        size = self.configuration.store.mapped_file_size_commit_log
        return read_log(self.host.disk, self.log_directory, size, end)
