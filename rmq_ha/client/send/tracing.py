"""Tracer: sends traces of sends, in the form that RocketMQ's tools read.

A trace is a line of fields, ended by U+0002. One message of the trace topic has many traces in its
body; its keys are the ids and keys of the traced messages.

Wire: TraceDataEncoder of the 4.9 client; field-tested by `mqadmin queryMsgTraceById`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.model.properties import DELAY, TRAN_MSG
from rmq_ha.base.model.topics import TRACE_TOPIC
from rmq_ha.base.model.unserved_properties import asks_for_timer
from rmq_ha.base.timing.timer import rearm
from rmq_ha.client.connection.hooks import SendContext
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.messages import Message, SendStatus
from rmq_ha.client.rules.namespaces import unwrap
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer

FIELD = "\x01"
END = "\x02"
GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
_BATCH = 100
_MAX_BODY = 118_000
_DELAY_S = 0.5
_SEND_TIMEOUT_MS = 5000
_NORMAL, _HALF, _DELAYED = 0, 1, 3


class TraceRecord(NamedTuple):
    """
    One line of a trace.

    :ivar keys: ids and keys by which the trace can be queried.
    """

    text: str
    keys: tuple[str, ...]


def sent_record(context: SendContext, namespace: str) -> TraceRecord | None:
    """Return the trace of a send; None if no broker answered it, or its broker wants no traces."""
    result = context.result
    if result is None or not result.trace_on:
        return None
    message = context.messages[0]
    count = len(context.messages)
    kind = _NORMAL
    if message.properties.get(TRAN_MSG) == "true":
        kind = _HALF
    elif DELAY in message.properties or asks_for_timer(message.properties):
        kind = _DELAYED
    fields = (
        "Pub",
        str(context.started_ms),
        result.region_id,
        unwrap(namespace, context.producer_group),
        result.message_queue.topic,
        result.msg_id,
        message.tags,
        message.keys,
        context.broker_address,
        str(sum(len(item.body) for item in context.messages)),
        str(int(context.elapsed_ms) // count),
        str(kind),
        result.offset_msg_id,
        "true" if result.send_status is SendStatus.SEND_OK else "false",
    )
    return TraceRecord(FIELD.join(fields) + END, (*result.msg_id.split(","), message.keys))


class Tracer:
    """
    A hook for producers that sends traces. Start it before the producers, and stop it after them.

    Traces are sent half a second later, up to 100 in a message. Traces that cannot be sent are
    dropped, also if the tracer's own producer has no place for them (`max_in_flight`,
    `max_waiting`).

    :ivar dropped: how many traces were dropped.
    :ivar topic: the topic that traces are sent to.
    """

    log = Logger()

    def __init__(self, instance: ClientInstance, topic: str = TRACE_TOPIC) -> None:
        """:param topic: the trace topic; brokers with `traceTopicEnable` have the default topic."""
        self.dropped = 0
        self._clock = instance.host.clock
        self._namespace = instance.settings.namespace
        self.topic = topic
        number = instance.host.random.getrandbits(32)
        config = ProducerConfig(
            producer_group=f"{GROUP_PREFIX}-{number:08x}",
            send_msg_timeout_ms=_SEND_TIMEOUT_MS,
            delivery_timeout_ms=0,
        )
        self._producer = Producer(instance, config)
        self._records: list[TraceRecord] = []
        self._timer: IDelayedCall | None = None
        self._complained = False

    async def start(self) -> None:
        """Start the tracer's own producer."""
        await self._producer.start()

    async def stop(self) -> None:
        """Send the waiting traces, and stop the tracer's own producer."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._flush()
        await self._producer.stop()

    def before_send(self, context: SendContext) -> None:
        """Do nothing: a trace is made after the attempt."""

    def after_send(self, context: SendContext) -> None:
        """Trace a send that a broker has answered."""
        record = sent_record(context, self._namespace)
        if record is not None:
            self.append(record)

    def append(self, record: TraceRecord) -> None:
        """Add a trace to the next message of traces."""
        self._records.append(record)
        if len(self._records) >= _BATCH:
            self._flush()
        else:
            deadline = self._clock.seconds() + _DELAY_S
            self._timer = rearm(self._clock, self._timer, deadline, self._flush)

    def _flush(self) -> None:
        records, self._records = self._records, []
        for part in _parts(records):
            body = "".join([record.text for record in part]).encode("utf-8", "replace")
            keys = sorted({key for record in part for key in record.keys if key})
            sent = self._producer.send(Message(self.topic, body, keys=keys))
            sent.addErrback(self._failed, len(part))

    def _failed(self, failure: Failure, lost: int) -> None:
        self.dropped += lost
        if not self._complained:
            self._complained = True
            self.log.warn("traces cannot be sent: {reason}", reason=failure.getErrorMessage())


def _parts(records: Sequence[TraceRecord]) -> Iterable[list[TraceRecord]]:
    """Group traces into as few messages as their number and size allow."""
    part: list[TraceRecord] = []
    size = 0
    for record in records:
        if part and (len(part) >= _BATCH or size + len(record.text) > _MAX_BODY):
            yield part
            part, size = [], 0
        part.append(record)
        size += len(record.text)
    if part:
        yield part
