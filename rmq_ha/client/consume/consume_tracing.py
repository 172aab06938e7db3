"""Traces of the messages that a listener was shown and of its answers, for RocketMQ's tools.

Each message gets one line before the listener is called (SubBefore) and one line after the call
(SubAfter). Both lines have the same request id.

Wire: TraceDataEncoder and ConsumeMessageTraceHookImpl of the 4.9 client.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.consume_service import ConsumeMessageContext
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.namespaces import unwrap
from rmq_ha.client.rules.unique_id import UniqueIds
from rmq_ha.client.send.tracing import END, FIELD, Tracer, TraceRecord

MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
_NOTE = "trace"
_NO_KEYS = "null"  # Java's decoder drops an empty last field, and then misreads the line
_SUCCESS, _EXCEPTION, _FAILED = 0, 2, 4


class ConsumeTrace(NamedTuple):
    """
    One call of a listener with messages that want a trace.

    :ivar group: the consumer group, without namespace.
    :ivar started_ms: when the call began, in ms since the epoch.
    :ivar messages: the messages of the call that want a trace.
    :ivar began_ms: when the call began, in ms of a steady clock.
    """

    request_id: str
    group: str
    started_ms: int
    messages: Sequence[MessageExt]
    began_ms: int = 0


def before_records(trace: ConsumeTrace) -> list[TraceRecord]:
    """Return the trace records that are sent before the call."""
    region = trace.messages[-1].properties.get(MSG_REGION, "")
    return [
        _record(
            message,
            "SubBefore",
            str(trace.started_ms),
            region,
            trace.group,
            trace.request_id,
            message.msg_id,
            str(message.reconsume_times),
            message.keys or _NO_KEYS,
        )
        for message in trace.messages
    ]


def after_records(
    trace: ConsumeTrace, now_ms: int, took_ms: int, code: int, *, success: bool
) -> list[TraceRecord]:
    """
    Return the trace records that are sent after the call.

    :param took_ms: the time per message, in ms.
    :param code: Java's ConsumeReturnType: 0 success, 1 too late, 2 exception, 4 to come again.
    """
    return [
        _record(
            message,
            "SubAfter",
            trace.request_id,
            message.msg_id,
            str(took_ms),
            "true" if success else "false",
            message.keys or _NO_KEYS,
            str(code),
            str(now_ms),
            trace.group,
        )
        for message in trace.messages
    ]


class ConsumeTracer:
    """
    A `ConsumeHook` that sends traces through a `Tracer`. Several consumers may share one tracer.

    Start the tracer before the consumers and stop it after them.
    """

    def __init__(self, instance: ClientInstance, tracer: Tracer) -> None:
        """:param instance: the client that the consumer belongs to."""
        self._tracer = tracer
        self._now_ms = instance.host.now_ms
        self._steady_ms = instance.host.steady_ms
        self._ids = UniqueIds(
            instance.settings.client_ip or instance.process.address,
            instance.process.pid,
            instance.host.random.getrandbits(32),
        )

    def before_consume(self, context: ConsumeMessageContext) -> None:
        """Trace the messages that the listener is about to be shown."""
        messages = [message for message in context.messages if self._is_traced(message)]
        if not messages:
            return
        now = self._now_ms()
        group = unwrap(context.namespace, context.consumer_group)
        trace = ConsumeTrace(self._ids.next(now), group, now, messages, self._steady_ms())
        context.properties[_NOTE] = trace
        for record in before_records(trace):
            self._tracer.append(record)

    def after_consume(self, context: ConsumeMessageContext) -> None:
        """Trace how the listener's call ended."""
        trace = context.properties.get(_NOTE)
        if trace is None:
            return
        now = self._now_ms()
        code = _SUCCESS if context.success else _FAILED
        if context.status == "EXCEPTION":
            code = _EXCEPTION
        took = (self._steady_ms() - trace.began_ms) // len(context.messages)
        for record in after_records(trace, now, took, code, success=context.success):
            self._tracer.append(record)

    def _is_traced(self, message: MessageExt) -> bool:
        """
        Whether a message is traced. Messages of the trace topic are not: traces of consumed traces
        would never end.
        """
        if message.topic == self._tracer.topic:
            return False
        return message.properties.get(TRACE_SWITCH) != "false"


def _record(message: MessageExt, *fields: str) -> TraceRecord:
    return TraceRecord(FIELD.join(fields) + END, (message.msg_id, message.keys))
