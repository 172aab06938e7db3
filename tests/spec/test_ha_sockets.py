"""Master and slave in one process over real sockets."""

import random
import time
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.host.real import make_host
from rmq_ha.base.model.status import BrokerRole, PutMessageStatus
from rmq_ha.server.replication.classic.service import HAService
from tests.unit.server.replication.memory_log import MemoryLog

CATCH_UP_SIZE = 64 << 20


class ChainedLog(MemoryLog):
    """Tells its service once a turn that it grew, as a store does."""

    service: HAService | None = None
    poked = False

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        super().append_raw(physical_offset, data)
        if not self.poked and self.service is not None:
            self.poked = True
            self.service._host.clock.callLater(0, self._tell)

    def _tell(self) -> None:
        self.poked = False
        if self.service is not None:
            self.service.appended()


def make_service(log: MemoryLog, role: BrokerRole, master: HAService | None = None) -> HAService:
    from twisted.internet import reactor

    configuration = BrokerConfiguration()
    configuration.server.listen_port = 0
    configuration.ours.bind_address = "127.0.0.1"
    configuration.store.broker_role = role
    if master is not None:
        configuration.store.ha_master_address = f"127.0.0.1:{master.listener.port}"
    return HAService(make_host(reactor), configuration, log)


async def until(condition: Any, seconds: float = 20.0) -> None:
    """Let the reactor turn until it holds."""
    from twisted.internet import reactor

    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it takes too long"
        await deferLater(reactor, 0.001)  # type: ignore[arg-type]


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
@pytest_twisted.ensureDeferred
async def test_a_slave_catches_up(role: BrokerRole) -> None:
    """64 MiB in 16 files; the speed is printed, not judged: both ends share one thread here."""
    data = random.Random(1).randbytes(1 << 20) * (CATCH_UP_SIZE >> 20)
    master_log, slave_log = MemoryLog(4 << 20, 0, data), MemoryLog(4 << 20, 0, data[:1])
    master = make_service(master_log, role)
    await master.start()
    slave = make_service(slave_log, BrokerRole.SLAVE, master)
    began = time.monotonic()
    await slave.start()
    await until(lambda: slave_log.max_offset == len(data))
    seconds = time.monotonic() - began
    print(f"{role.value}: {len(data) / seconds / 1e6:.0f} MB/s")
    assert slave_log.data == master_log.data
    await until(lambda: master.replicated_offset() == len(data))
    await slave.stop()
    await master.stop()


@pytest_twisted.ensureDeferred
async def test_puts_through_a_chain_of_slaves_and_a_lost_connection() -> None:
    """Master, slave and a slave of the slave; the first link breaks and heals by itself."""
    logs = MemoryLog(65536, 0, b""), ChainedLog(65536), ChainedLog(65536)
    master = make_service(logs[0], BrokerRole.SYNC_MASTER)
    await master.start()
    middle = make_service(logs[1], BrokerRole.SLAVE, master)
    logs[1].service = middle
    await middle.start()
    last = make_service(logs[2], BrokerRole.SLAVE, middle)
    await last.start()
    await until(lambda: master.statistics().slaves and middle.statistics().slaves)
    await until(lambda: master.statistics().slaves[0].requested == 0)

    async def put(count: int) -> None:
        for number in range(count):
            start = logs[0].max_offset
            waiter = master.wait_replicated(logs[0].put(number.to_bytes(8, "big") * 128), start)
            master.appended()
            status = await waiter if isinstance(waiter, Deferred) else waiter
            assert status is PutMessageStatus.PUT_OK

    await put(100)
    for connection in master._feeds:
        connection.transport.abortConnection()
    await until(lambda: not master.statistics().slaves)
    assert master.wait_replicated(logs[0].put(b"x"), 0) is PutMessageStatus.SLAVE_NOT_AVAILABLE
    await until(lambda: master.replicated_offset() == logs[0].max_offset)
    await put(100)
    await until(lambda: logs[2].max_offset == logs[0].max_offset)
    assert logs[0].data == logs[1].data == logs[2].data
    for service in (last, middle, master):
        await service.stop()
