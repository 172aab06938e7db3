"""
Consumers of ours, many in one process; told what to do on stdin, one JSON line per event on stdout.

Each order is a word, a name and JSON with what else it needs; see `Program`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred
from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from rmq_ha.base.host.real import make_host
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.lite_pull_consumer import LitePullConsumer
from rmq_ha.client.consume.pull_consumer import PullConsumer
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import (
    ConsumeFromWhere,
    LitePullConsumerConfig,
    MessageModel,
    PushConsumerConfig,
)
from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmq_ha.client.rules.messages import MessageQueue
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.client.rules.subscriptions import MessageSelector

reactor: Any = installed


def tell(event: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


class Program:
    """One method an order."""

    def __init__(self, namesrv: str, folder: str) -> None:
        self.namesrv = namesrv
        self.folder = folder
        self.consumers: dict[str, Any] = {}

    def instance(self, name: str) -> ClientInstance:
        config = ClientConfig(
            namesrv_addr=self.namesrv,
            instance_name=name,
            poll_name_server_interval_ms=1000,
            heartbeat_broker_interval_ms=1000,
            persist_consumer_offset_interval_ms=500,
        )
        return ClientInstance(make_host(reactor), config)

    async def start(
        self,
        name: str,
        *,
        group: str,
        topic: str,
        tags: str = "*",
        sql: str = "",
        orderly: bool = False,
        broadcast: bool = False,
        begin: str = "FIRST_OFFSET",
        time: str = "",
        fail: int = 0,
        most: int = -1,
    ) -> None:
        """A push consumer; `fail`: so many times each message is to come again."""
        config = PushConsumerConfig(
            message_model=MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere["CONSUME_FROM_" + begin],
            consume_timestamp=time,
            local_offset_store_dir=self.folder,
            max_reconsume_times=most,
            suspend_current_queue_time_ms=200,
        )
        consumer = self.consumers[name] = PushConsumer(self.instance(name), group, config)
        consumer.subscribe(topic, MessageSelector.by_sql(sql) if sql else tags)
        tries: dict[str, int] = {}

        async def listener(messages: Any, context: Any) -> Any:
            for message in messages:
                body = message.body.decode()
                tries[body] = tries.get(body, 0) + 1
                tell(
                    "got",
                    by=name,
                    body=body,
                    queue=message.queue_id,
                    times=message.reconsume_times,
                    topic=message.topic,
                )
                if tries[body] <= fail and orderly:
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                if tries[body] <= fail:
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER
            return None

        consumer.register_message_listener(listener, orderly=orderly)
        await consumer.start()

    async def stop(self, name: str) -> None:
        await self.consumers.pop(name).stop()

    async def owned(self, name: str, *, topic: str) -> None:
        queues = [queue for queue in self.consumers[name].assignment() if queue.topic == topic]
        tell("owned", by=name, queues=[queue.queue_id for queue in queues])

    async def pull(self, name: str, *, group: str, topic: str, broker: str) -> None:
        """Everything of queue 0 from offset 2 on, then what comes while it waits."""
        consumer = self.consumers[name] = PullConsumer(self.instance(name), group)
        await consumer.start()
        queues = await consumer.fetch_subscribe_message_queues(topic)
        queue = queues[0]
        assert queue == MessageQueue(topic, broker, 0), queues
        offset, most = 2, await consumer.max_offset(queue)
        while offset < most:
            result = await consumer.pull(queue, "*", offset, 4)
            for message in result.msg_found_list:
                tell("got", by=name, body=message.body.decode())
            offset = result.next_begin_offset
        tell("waiting", by=name)
        result = await consumer.pull_block_if_not_found(queue, "*", offset, 4)
        for message in result.msg_found_list:
            tell("got", by=name, body=message.body.decode())
        consumer.update_consume_offset(queue, result.next_begin_offset)
        await consumer.stop()
        del self.consumers[name]

    async def lite(self, name: str, *, group: str, topic: str, count: int) -> None:
        """Poll so many messages of our share, commit, leave."""
        config = LitePullConsumerConfig(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, auto_commit=False
        )
        consumer = LitePullConsumer(self.instance(name), group, config)
        consumer.subscribe(topic)
        await consumer.start()
        while count > 0:
            for message in await consumer.poll(1000):
                count -= 1
                tell("got", by=name, body=message.body.decode())
        await consumer.commit_sync()
        await consumer.stop()

    async def assign(self, name: str, *, group: str, topic: str, broker: str) -> None:
        """Queue 1 from offset 3, then from the beginning, then what is at its end."""
        consumer = LitePullConsumer(self.instance(name), group)
        queue = MessageQueue(topic, broker, 1)
        consumer.assign([queue])
        await consumer.start()
        for place in (3, None):
            if place is None:
                await consumer.seek_to_begin(queue)
            else:
                await consumer.seek(queue, place)
            while messages := await consumer.poll(1000):
                for message in messages:
                    tell("got", by=f"{name}-{place}", body=message.body.decode())
        await consumer.seek_to_end(queue)
        assert not await consumer.poll(300)
        await consumer.stop()


class Orders(LineReceiver):
    """Lines of stdin."""

    delimiter = b"\n"

    def __init__(self, program: Program) -> None:
        self.program = program

    def lineReceived(self, line: bytes) -> None:
        word, _, rest = line.decode().partition(" ")
        name, _, more = rest.partition(" ")
        if word == "quit":
            Deferred.fromCoroutine(self.quit())
            return
        order = getattr(self.program, word)(name, **(json.loads(more) if more else {}))
        Deferred.fromCoroutine(order).addCallbacks(
            lambda _: tell("done", command=word, name=name), self.failed
        )

    def failed(self, failure: Failure) -> None:
        failure.printTraceback(sys.stderr)
        tell("failed", why=failure.getErrorMessage())

    async def quit(self) -> None:
        for consumer in self.program.consumers.values():
            await consumer.stop()
        reactor.stop()


def main() -> None:
    StandardIO(Orders(Program(sys.argv[1], sys.argv[2])))
    reactor.callWhenRunning(tell, "ready")
    reactor.run()


if __name__ == "__main__":
    main()
