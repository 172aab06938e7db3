"""A broker with its name server, on real sockets, in a thread of this process."""

from asyncio import get_running_loop
from itertools import count
from pathlib import Path
from typing import Any

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.host.loop import LoopReactor
from rmq_ha.base.host.loop_thread import LoopThread
from rmq_ha.base.host.ports import free_ports
from rmq_ha.base.host.real import make_host
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.client import (
    BlockingClient,
    BlockingConsumer,
    ConsumeFromWhere,
    Message,
    PushConsumerConfig,
)
from rmq_ha.client.aio_pull import Futures
from rmq_ha.client.lookup.administration import put_topic
from rmq_ha.server.broker.broker import Broker
from rmq_ha.server.namesrv.namesrv import Namesrv
from rmq_ha.testing.cluster import small_configuration

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Bench:
    """A broker with its name server, and one who sends; each test has names of its own."""

    def __init__(self, directory: Path) -> None:
        self.base = free_ports(4)
        self.thread = LoopThread("broker")
        self.stops = self.thread.run(self._serve(directory))
        self.namesrv_addr = f"127.0.0.1:{self.base + 1}"
        self.client = BlockingClient(self.namesrv_addr)
        self._numbers = count()

    async def _serve(self, directory: Path) -> Any:
        loop = get_running_loop()
        reactor, futures = LoopReactor(loop), Futures(loop)
        host = make_host(reactor)
        names = Namesrv(
            host,
            NamesrvConfig(kv_config_path=str(directory / "kv.json")),
            NettyServerConfig(listen_port=self.base + 1),
            interface="127.0.0.1",
        )
        await futures.make(names.start())
        configuration = small_configuration(
            "127.0.0.1", BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH
        )
        configuration.broker.namesrv_addr = f"127.0.0.1:{self.base + 1}"
        configuration.server.listen_port = self.base + 2
        configuration.store.store_path_root_dir = str(directory)
        configuration.store.store_path_commit_log = str(directory / "commitlog")
        configuration.store.ha_listen_port = self.base + 3
        configuration.broker.transaction_time_out = 50
        configuration.broker.transaction_check_interval = 200
        broker = Broker(host, configuration)
        await futures.make(broker.start())

        async def stop() -> None:
            await futures.make(broker.stop())
            await futures.make(names.stop())
            reactor.close()

        return stop

    def close(self) -> None:
        self.client.close()
        self.thread.run(self.stops())
        self.thread.stop()

    def topic(self, queues: int = 1) -> str:
        name = f"T{next(self._numbers)}"
        config = TopicConfig(name, queues, queues)
        self.client.run(put_topic(f"127.0.0.1:{self.base + 2}", config))
        return name

    def send(self, topic: str, *texts: bytes) -> None:
        for text in texts:
            self.client.send(Message(topic, text))

    def consumer(self, topic: str, *, orderly: bool = False, **config: Any) -> BlockingConsumer:
        made = PushConsumerConfig(consume_from_where=FIRST, **config)
        consumer = BlockingConsumer(f"g-{topic}", self.namesrv_addr, made, orderly=orderly)
        consumer.subscribe(topic)
        return consumer

    def committed(self, topic: str) -> list[int | None]:
        return [self.client.committed(f"g-{topic}", queue) for queue in self.client.queues(topic)]

    def dead(self, topic: str) -> list[bytes]:
        (queue,) = self.client.queues(f"%DLQ%g-{topic}")
        return [
            found.body for found in self.client.messages(queue, 0, self.client.max_offset(queue))
        ]
