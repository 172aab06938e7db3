"""Consume as a member of a group, forever or as many as the first argument says."""

import sys
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from rmq_ha.client import ConsumeFromWhere, MessageExt, PushConsumer, PushConsumerConfig, connect


async def main(reactor: Any, wanted: int) -> None:
    seen: set[str] = set()
    enough: Deferred[None] = Deferred()

    def listen(messages: Sequence[MessageExt], context: Any) -> None:
        for message in messages:  # an exception would bring them back later
            print(message.tags, message.body.decode())
            seen.add(message.msg_id)
        if len(seen) >= wanted and not enough.called:
            enough.callback(None)

    config = PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(connect(reactor), "example-consumers", config)
    consumer.subscribe("Example", "greeting || farewell")
    consumer.register_message_listener(listen)
    await consumer.start()
    reactor.addSystemEventTrigger("before", "shutdown", consumer.stop)  # Ctrl-C leaves the group
    await enough
    await consumer.stop()


react(main, [int(sys.argv[1]) if len(sys.argv) > 1 else sys.maxsize])
