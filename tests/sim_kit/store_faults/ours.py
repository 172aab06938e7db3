"""Makes the stores of a master and a slave of rmq-ha, with all their tables."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import DELAY, KEYS, TAGS, UNIQ_KEY, encode_properties
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.testing.cluster import ROOT, StoreNode, small_configuration
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import World
from tests.sim_kit.pair import PairOptions
from tests.sim_kit.simcluster import SimCluster

INDEX_SLOTS = 50
"""The value of `maxHashSlotNum` with which the stores are written."""
_FILE_SIZE = 65536
_HOST = Address.parse("10.1.2.3", 40000)
_GIVE_UP = 60.0
_CONNECTS = 45.0
_COPIES_TABLES = 50.0
"""
Seconds in which all delayed messages become due, and the slave copies its master's tables
afterwards.
"""


def write_our_pair(
    master: Path, slave: Path, seed: int, topics: int = 6, queues: int = 2, messages: int = 40
) -> None:
    """
    Have a master and a slave work together on simulated machines, stop them, and write their disks.

    :param messages: number of messages of each queue; one in twenty is delayed.
    """
    options = PairOptions(BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH, _FILE_SIZE, 32768)
    cluster = SimCluster(seed, options)
    cluster.start()
    clock = cluster.world.clock
    clock.run_while(lambda: cluster.master.open_store is None, _GIVE_UP)
    clock.run_for(_CONNECTS)  # a slave that comes later begins with the master's last file
    broker: Any = getattr(cluster.master, "broker", None)
    random = Random(seed)
    names = [f"Orders{number}" for number in range(topics)]
    for name in names:
        broker.topics.update(TopicConfig(name, queues, queues))
        broker.groups.update(SubscriptionGroupConfig(f"CG_{name}"))
    number = 0
    for round_ in range(messages):
        for name in names:
            for queue_id in range(queues):
                number += 1
                born = cluster.master.host.now_ms()
                message = _message(random, name, queue_id, number, born, round_ % 20 == 9)
                message.store_host = cluster.master.store_host
                _wait(clock, broker.store.put_message(message))
        clock.run_for(0.05)
    clock.run_for(5.0)
    for name in names:
        for queue_id in range(queues):
            end = broker.store.max_offset_in_queue(name, queue_id)
            broker.consumer_offsets.commit(f"CG_{name}", name, queue_id, end * 2 // 3)
    clock.run_for(_COPIES_TABLES)
    cluster.stop()
    for node, folder in ((cluster.master, master), (cluster.slave, slave)):
        write_disk(node.host.disk, folder)


def write_our_slave(master: Path, slave: Path, delay_levels: str) -> None:
    """
    Let a slave build queues and index of another master's log, and write its disk.

    :param delay_levels: `messageDelayLevel`.
    """
    world = World(1)
    host = world.add("slave-host")
    logs = sorted((master / "commitlog").iterdir())
    configuration = small_configuration(
        host.ip, BrokerRole.SLAVE, FlushDiskType.ASYNC_FLUSH, 1, logs[0].stat().st_size
    )
    configuration.store.message_delay_level = delay_levels
    for path in logs:
        place = f"{ROOT}/commitlog/{path.name}"
        host.disk.make_dirs(f"{ROOT}/commitlog")
        host.disk.open(place, path.stat().st_size).pwrite(path.read_bytes(), 0)
    node = StoreNode(host, configuration, Findings())
    node.load()
    _wait(world.clock, node.start())
    world.clock.run_for(5.0)
    _wait(world.clock, node.stop())
    write_disk(host.disk, slave)


def write_disk(disk: SimDisk, folder: Path) -> None:
    """Write the store of a simulated disk to a directory."""
    for path, data in _files(disk, ROOT):
        place = folder / path.removeprefix(f"{ROOT}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def _message(
    random: Random, topic: str, queue_id: int, number: int, born: int, delayed: bool
) -> BrokerMessage:
    properties = {UNIQ_KEY: f"0A0102030000000000000000{number:08X}"}
    if number % 3:
        properties[TAGS] = random.choice(("TagA", "TagB", "größer"))
    if number % 2:
        properties[KEYS] = f"order-{number} customer-{number % 17}"
    if delayed:
        properties[DELAY] = str(random.choice((1, 2, 4)))
    return BrokerMessage(
        topic,
        queue_id,
        random.randbytes(random.randrange(1, 400)),
        _HOST,
        _HOST,
        born_timestamp=born,
        flag=number % 5,
        properties=properties,
        properties_string=encode_properties(properties),
    )


def _wait(clock: Any, later: "Deferred[Any]") -> None:
    clock.run_while(lambda: not later.called, _GIVE_UP)


def _files(disk: SimDisk, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of every file below a directory."""
    for name in disk.list_dir(path):
        below = f"{path}/{name}"
        if disk.is_dir(below):
            yield from _files(disk, below)
        else:
            yield below, disk.read_bytes(below)
