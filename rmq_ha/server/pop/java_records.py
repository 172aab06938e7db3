"""Reads the records by which RocketMQ 5.3.3 knows what is out with consumers.

RocketMQ stores a *checkpoint* for each pop of a queue, and an acknowledgement for each message or
batch, in topics whose names begin with `rmq_sys_REVIVE_LOG_`. Before a record is due, it waits in
`rmq_sys_wheel_timer`. What is out in order is in the file `consumerOrderInfo.json` instead.

Spec: pop.md, sections 4 and 5.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rmq_ha.base.errors import CorruptRecord, ProtocolViolation
from rmq_ha.base.wire import fastjson

_CHECKPOINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"
_MOST = 1 << 53


class JavaQueue(NamedTuple):
    """A queue that a group pops; the topic of a message that came again is a retry topic."""

    group: str
    topic: str
    queue_id: int


class JavaCheckpoint(NamedTuple):
    """
    A pop of one queue.

    :ivar start: the queue offset from which on the broker looked for messages.
    :ivar offsets: queue offsets of the messages, ascending.
    :ivar acked: those of `offsets` that were acknowledged before the record was stored.
    :ivar pop_ms: the time of the pop, which receipts name.
    :ivar due_ms: when the messages come again.
    :ivar is_again: whether RocketMQ stored the record a second time, because it could not move a
        message. Then `start` is not the one of the receipts.
    """

    queue: JavaQueue
    start: int
    offsets: Sequence[int]
    acked: Sequence[int]
    pop_ms: int
    due_ms: int
    is_again: bool


class JavaAck(NamedTuple):
    """
    Acknowledgements of messages of one pop.

    :ivar start: `start` of the pop's checkpoint.
    :ivar offsets: queue offsets of the messages.
    """

    queue: JavaQueue
    start: int
    offsets: Sequence[int]
    pop_ms: int


class JavaOrder(NamedTuple):
    """
    The last orderly pop of a queue.

    :ivar start: queue offset of its first message.
    :ivar end: the queue offset behind its last message.
    :ivar offsets: queue offsets of the messages that are not acknowledged, ascending.
    :ivar dues: when each of them may be handed out again, ms since the epoch.
    :ivar counts: by queue offset, how often a message was handed out before.
    """

    queue: JavaQueue
    pop_ms: int
    start: int
    end: int
    offsets: Sequence[int]
    dues: Sequence[int]
    counts: Mapping[int, int]
    attempt_id: str


def decode_java_record(tag: str, body: bytes) -> JavaCheckpoint | JavaAck:
    """
    Read the body of a record.

    :param tag: the record's TAGS.
    :raises CorruptRecord: it is no record of a pop or an acknowledgement.
    """
    try:
        values = fastjson.parse(body)
        queue = JavaQueue(_text(values["c"]), _text(values["t"]), _number(values["q"]))
        start, pop_ms = _number(values["so"]), _number(values["pt"])
        if tag == _CHECKPOINT:
            return _checkpoint(values, queue, start, pop_ms)
        if tag == _ACK:
            return JavaAck(queue, start, [_number(values["ao"])], pop_ms)
        if tag == _BATCH_ACK:
            return JavaAck(queue, start, [_number(item) for item in values["aol"]], pop_ms)
    except (KeyError, TypeError, ValueError, ProtocolViolation) as error:
        raise CorruptRecord("it is no record of a pop") from error
    raise CorruptRecord("its tag is unknown")


def _checkpoint(values: Any, queue: JavaQueue, start: int, pop_ms: int) -> JavaCheckpoint:
    count, bits = _number(values["n"]), _number(values["bm"])
    # A checkpoint of an old version has no list: its messages have consecutive offsets.
    steps = values.get("d") or range(count)
    offsets = [start + _number(step) for step in steps]
    if offsets != sorted(set(offsets)):
        raise CorruptRecord("its offsets are not in order")
    acked = [offset for index, offset in enumerate(offsets) if bits >> index & 1]
    due_ms = pop_ms + _number(values["it"])
    return JavaCheckpoint(
        queue, start, offsets, acked, pop_ms, due_ms, bool(int(values.get("rp", 0)))
    )


def decode_java_orders(data: bytes) -> list[JavaOrder]:
    """
    Read `consumerOrderInfo.json`.

    :raises CorruptRecord: the file is damaged.
    """
    orders: list[JavaOrder] = []
    try:
        table = fastjson.parse(data, None)["table"]
        for key, queues in table.items():
            topic, _, group = key.partition("@")
            for queue_id, values in queues.items():
                queue = JavaQueue(_text(group), _text(topic), int(queue_id))
                orders.append(_order(queue, values))
    except (KeyError, TypeError, ValueError, AttributeError, ProtocolViolation) as error:
        raise CorruptRecord("it is no table of orderly pops") from error
    return orders


def _order(queue: JavaQueue, values: Any) -> JavaOrder:
    first, *steps = [_number(item) for item in values["o"]]
    batch = [first, *(first + step for step in steps)]
    if batch != sorted(set(batch)):
        raise CorruptRecord("the offsets of an orderly pop are not in order")
    pop_ms, bits = _number(values["popTime"]), _number(values["cm"])
    due_ms = pop_ms + _number(values.get("i") or 0)
    next_visible = {int(offset): _number(due) for offset, due in (values.get("ot") or {}).items()}
    times = {int(offset): _number(count) for offset, count in (values.get("oc") or {}).items()}
    offsets = [offset for index, offset in enumerate(batch) if not bits >> index & 1]
    return JavaOrder(
        queue,
        pop_ms,
        first,
        batch[-1] + 1,
        offsets,
        [next_visible.get(offset, due_ms) for offset in offsets],
        {offset: times[offset] for offset in offsets if times.get(offset)},
        values.get("a") or "",
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a name is missing")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError("a number is missing")
    return value
