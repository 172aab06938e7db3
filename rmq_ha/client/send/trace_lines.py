"""Reads traces of messages, which RocketMQ's clients write into a trace topic.

The first field of a line, and the number of fields, tell its form. Later versions add fields at the
end of a line.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.send.tracing import END, FIELD

_RETURNS = ("success", "too late", "exception", "null", "comes again")


class TraceEvent(NamedTuple):
    """
    One event in the life of a message.

    :ivar what: `sent`, `consuming` or `consumed`.
    :ivar at_ms: when it happened, in ms since the epoch; 0 if not known.
    :ivar by: the producer group or consumer group.
    :ivar client: address of the client that wrote the trace.
    :ivar took_ms: how long it took, in ms; None if the trace does not say.
    """

    what: str
    at_ms: int
    by: str
    client: str
    took_ms: int | None
    status: str


def traces_of(msg_id: str, messages: Iterable[MessageExt]) -> list[TraceEvent]:
    """Return the events of one message, in order of time, from messages of a trace topic."""
    traces = []
    for message in messages:
        client = str(message.born_host)
        for line in message.body.decode("utf-8", "replace").split(END):
            traced = _parse_event(msg_id, line.split(FIELD), client)
            if traced is not None:
                traces.append(traced)
    return sorted(traces, key=lambda item: item.at_ms)


def _parse_event(msg_id: str, fields: list[str], client: str) -> TraceEvent | None:
    """Return the event of a line; None if it is about another message or has another form."""
    try:
        match fields:
            case ["Pub", at, _, group, _, ids, _, _, _, _, took, *rest] if msg_id in ids.split(","):
                ok = next((text for text in rest if text in ("true", "false")), "true")
                status = "stored" if ok == "true" else "not SEND_OK"
                return TraceEvent("sent", int(at), group, client, int(took), status)
            case ["SubBefore", at, _, group, _, known, times, *_] if known == msg_id:
                status = f"attempt {int(times) + 1}"
                return TraceEvent("consuming", int(at), group, client, None, status)
            case ["SubAfter", _, known, took, success, _, *rest] if known == msg_id:
                code, at, group = (*rest[:3], *("", "0", "")[len(rest) :])
                return TraceEvent(
                    "consumed", int(at), group, client, int(took), _end(success, code)
                )
    except ValueError:  # a field that has to be a number is none
        return None
    return None


def _end(success: str, code: str) -> str:
    if code.isdecimal() and int(code) < len(_RETURNS):
        return _RETURNS[int(code)]
    return "success" if success == "true" else "failed"
