"""Stores on a disk that loses what was not synced, with a clock that tests move."""

import shutil
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from twisted.internet.task import Clock

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.seams import Host
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce
from tests.unit.server.store import vouched

HOST_ADDRESS = Address.parse("127.0.0.1", 10911)
NOW_MS = 1_795_300_000_000


class Machine:
    """
    A disk, a clock and a worker; stores can be opened on it again and again.

    Whatever a test is about, `vouched` sees to it that nothing is said to be safe which is not.
    """

    def __init__(self, root, disk=None):
        self.root = str(root)
        self.clock = Clock()
        self.worker = AtOnce()
        self.now_ms = NOW_MS
        self.disk = disk or SimDisk(Random(1), lambda: self.host.now_ms())
        self.stores = []

    @property
    def host(self):
        return Host(
            clock=self.clock,
            now_ms=lambda: self.now_ms + int(self.clock.seconds() * 1000),
            network=None,
            disk=self.disk,
            worker=self.worker,
            random=Random(1),
        )

    def configuration(self, **settings):
        configuration = BrokerConfiguration()
        store = configuration.store
        store.store_path_root_dir = self.root
        store.mapped_file_size_commit_log = 65536
        store.mapped_file_size_consume_queue = 800
        store.max_hash_slot_num = 50
        store.max_index_num = 150
        store.message_delay_level = "1s 2s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
        for name, value in settings.items():
            setattr(store if hasattr(store, name) else configuration.ours, name, value)
        return configuration

    def load(self, **settings):
        store = DefaultMessageStore(self.host, self.configuration(**settings))
        store.dispatcher.gather_s = 0.0
        store.load()
        self.stores.append(store)
        if isinstance(self.disk, SimDisk):
            vouched.watch(self.disk, store)
        return store

    def open(self, **settings):
        store = self.load(**settings)
        self.finish(store.start())
        return store

    def finish(self, deferred):
        """Let time pass until it fires; its result."""
        results = []
        deferred.addBoth(results.append)
        for _ in range(1000):
            if results:
                break
            self.clock.advance(0.01)
        assert results, "it never fires"
        if hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]

    def turn(self, times=3):
        for _ in range(times):
            self.clock.advance(0)
        self.check()

    def stop(self, store):
        self.check()
        self.finish(store.stop())
        self.check()

    def crash(self, store):
        """The machine went down, and the disk lost nothing; tests may change what it has."""
        self.kill(store)
        if isinstance(self.disk, SimDisk):
            self.disk.boot += 1
        else:
            self.disk.remove(f"{self.root}/boot")

    def kill(self, store):
        """The process is gone: nothing is flushed, files and lock are let go."""
        self.check()
        for call in self.clock.getDelayedCalls():
            call.cancel()
        store.close()

    def lose_power(self, store):
        """The machine is gone, too, and with it what was not synced."""
        self.crash(store)
        self.disk = self.disk.crash()

    def check(self):
        """Nothing that the newest store vouches for would be lost with the power."""
        newest = self.stores[-1] if self.stores else None
        if newest is not None and newest.host.disk is self.disk and isinstance(self.disk, SimDisk):
            vouched.check(self.disk, newest)


@pytest.fixture
def machine(request, tmp_path):
    """On real files only where the test is marked `real_disk`."""
    is_real = request.node.get_closest_marker("real_disk")
    made = Machine(tmp_path / "store", RealDisk() if is_real else None)
    yield made
    made.check()
    for store in made.stores:
        store.close()


@pytest.fixture(scope="session")
def make_simulated():
    """Makes machines with a simulated disk, whose calls can be made to fail (`disk.fault`)."""
    return lambda: Machine("/store", SimDisk(Random(1), lambda: NOW_MS))


@pytest.fixture
def simulated(make_simulated):
    """One of them."""
    made = make_simulated()
    yield made
    for store in made.stores:
        store.close()


def make_message(body=b"hello", topic="TopicA", queue_id=0, wait=True, **properties):
    return BrokerMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        born_host=HOST_ADDRESS,
        store_host=HOST_ADDRESS,
        born_timestamp=NOW_MS - 5,
        properties=properties,
        properties_string=encode_properties(properties),
        wait_store_ok=wait,
    )


@pytest.fixture(scope="session")
def message():
    return make_message


@pytest.fixture
def java():
    """Unpacks a store that the Java broker wrote."""
    fixtures = Path(__file__).parents[3] / "fixtures" / "store"

    def unpack(name, root):
        scratch = Path(f"{root}.unpack")
        shutil.unpack_archive(fixtures / f"{name}.tar.gz", scratch)
        found = [path.parent for path in scratch.rglob("checkpoint")]
        shutil.move(str(found[0]), root)

    return SimpleNamespace(unpack=unpack, fixtures=fixtures)


SLAVE = BrokerRole.SLAVE
