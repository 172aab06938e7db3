"""A store with delayed messages on a simulated machine, which can be stopped and killed."""

import json

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.cluster import small_configuration
from rmq_ha.testing.host import SimHost, World

HOST = Address(b"\x0a\0\0\1", 10911)
PROGRESS = "/store/config/delayOffset.json"


class DelayedStore:
    """A store on a simulated machine, with delay levels of 1 s and 5 s."""

    def __init__(self, levels: str = "1s 5s") -> None:
        self.world = World(1)
        self.host: SimHost = self.world.add("store")
        self.configuration: BrokerConfiguration = small_configuration(
            self.host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH
        )
        self.configuration.store.message_delay_level = levels
        self.start()

    def start(self) -> None:
        self.store = DefaultMessageStore(self.host.seams, self.configuration)
        self.store.load()
        self.store.start()
        self.run(0.1)

    def run(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    def put(
        self, name: str, level: int = 0, queue_id: int = 0, unique: bool = True, topic: str = "T"
    ) -> None:
        properties = {"KEYS": name}
        if unique:
            properties["UNIQ_KEY"] = name
        if level:
            properties["DELAY"] = str(level)
        self.store.put_message(
            BrokerMessage(
                topic, queue_id, b"body", HOST, HOST, 7, properties=properties,
                properties_string=encode_properties(properties),
            )
        )  # fmt: skip

    def stop(self) -> None:
        self.store.stop()
        self.run(3)

    def kill(self) -> None:
        """As kill -9 does: what was written is there, memory is not."""
        self.host.crash()
        self.host.restart()

    def flow(self, prefix: str, seconds: float) -> list[str]:
        """Ten delayed messages a second, of both levels, to two queues."""
        names = [f"{prefix}{number}" for number in range(round(seconds * 10))]
        for number, name in enumerate(names):
            self.put(name, number % 2 + 1, number // 2 % 2)
            self.run(0.1)
        return names

    def progress(self, table: dict[str, int]) -> None:
        self.host.disk.replace(PROGRESS, json.dumps({"offsetTable": table}).encode())

    def delivered(self, queue_id: int = 0) -> list[str]:
        names: list[str] = []
        while True:
            found = self.store.get_message("g", "T", queue_id, len(names), 32, None)
            assert found is not None
            if not found.messages:
                return names
            names += [decode_record(data).properties["KEYS"] for data in found.messages]


def a_store_that_delivered(count: int) -> DelayedStore:
    made = DelayedStore()
    for number in range(count):
        made.put(f"m{number}", 1, number % 2)
        made.run(0.05)
    made.run(3)
    assert len(made.delivered() + made.delivered(1)) == count
    return made
