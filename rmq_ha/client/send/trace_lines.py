"""Traces of messages, as RocketMQ's clients write them into their topic: who sent, who consumed.

Java's decoder knows a line by its first field and by how many there are; fields that later versions
add stand behind the others.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.send.tracing import END, FIELD

_RETURNS = ("success", "too late", "exception", "null", "comes again")


class TraceEvent(NamedTuple):
    """
    One thing that happened to a message.

    :ivar what: `sent`, `consuming` or `consumed`.
    :ivar at_ms: when, ms since the epoch; 0 unknown.
    :ivar by: the group.
    :ivar client: address of the client that wrote it.
    :ivar took_ms: None: it does not say.
    """

    what: str
    at_ms: int
    by: str
    client: str
    took_ms: int | None
    status: str


def traces_of(msg_id: str, messages: Iterable[MessageExt]) -> list[TraceEvent]:
    """What the messages of a trace topic say about one message, in order of time."""
    traces = []
    for message in messages:
        client = str(message.born_host)
        for line in message.body.decode("utf-8", "replace").split(END):
            traced = _traced(msg_id, line.split(FIELD), client)
            if traced is not None:
                traces.append(traced)
    return sorted(traces, key=lambda item: item.at_ms)


def _traced(msg_id: str, fields: list[str], client: str) -> TraceEvent | None:
    """None: it is about another message, or has another form."""
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
    except ValueError:  # a number that is none
        return None
    return None


def _end(success: str, code: str) -> str:
    if code.isdecimal() and int(code) < len(_RETURNS):
        return _RETURNS[int(code)]
    return "success" if success == "true" else "failed"
