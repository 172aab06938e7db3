"""`stepped_client.py NAMESRV TOPIC GROUP`: a consumer in an application with a reactor of its own.

The reactor is Twisted's, which counts by the time of day; the client has to get along with it: a
tick shows that what is periodic in it goes on.
"""

import sys

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.client.connecting import connect
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig

NAMESRV, TOPIC, GROUP = sys.argv[1:]


def consume(messages, context):
    for _ in messages:
        print("consumed", flush=True)


async def main() -> None:
    client = connect(reactor, NAMESRV)
    config = PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(client, GROUP, config)
    consumer.subscribe(TOPIC)
    consumer.register_message_listener(consume)
    await consumer.start()
    print("READY {}", flush=True)
    Periodic(client.host.clock, "tick", lambda: print("tick", flush=True), 0.5).start()


def failed(failure):
    failure.printTraceback(sys.stderr)
    reactor.stop()


reactor.callWhenRunning(lambda: Deferred.fromCoroutine(main()).addErrback(failed))
reactor.run()
