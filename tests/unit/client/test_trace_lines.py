"""Lines of traces: written, and read whoever wrote them."""

from typing import Any

import pytest
from twisted.internet.defer import fail, succeed
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.client.connection.hooks import SendContext
from rmq_ha.client.rules.messages import Message, MessageQueue, SendResult, SendStatus
from rmq_ha.client.send.trace_lines import TraceEvent, traces_of
from rmq_ha.client.send.tracing import END, FIELD, Tracer, TraceRecord, sent_record
from tests.unit.client.scripted import Scripted, message

CLIENT = "127.0.0.1:10911"


def read(*lines: tuple[str, ...]) -> list[TraceEvent]:
    body = "".join(FIELD.join(line) + END for line in lines)
    return traces_of("ID", [message(0, body.encode())])


PUB = ("Pub", "7", "R", "G", "T", "ID", "", "", "b:1", "5", "40", "0", "OFF")
BEFORE = ("SubBefore", "8", "R", "G", "u", "ID")


def after(*rest: str) -> tuple[str, ...]:
    return ("SubAfter", "u", "ID", "3", *rest)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ((*PUB, "true"), ("sent", 7, "G", 40, "stored")),
        ((*PUB, "false"), ("sent", 7, "G", 40, "not SEND_OK")),
        (PUB, ("sent", 7, "G", 40, "stored")),
        ((*PUB[:5], "X,ID,Y", *PUB[6:]), ("sent", 7, "G", 40, "stored")),
        ((*BEFORE, "0", "k"), ("consuming", 8, "G", None, "attempt 1")),
        ((*BEFORE, "2"), ("consuming", 8, "G", None, "attempt 3")),
        (after("true", "k"), ("consumed", 0, "", 3, "success")),
        (after("false", "k"), ("consumed", 0, "", 3, "failed")),
        (after("false", "k", "1"), ("consumed", 0, "", 3, "too late")),
        (after("true", "k", "4", "9"), ("consumed", 9, "", 3, "comes again")),
        (after("true", "k", "5", "9", "G"), ("consumed", 9, "G", 3, "success")),
        (after("true", "k", "0", "9", "G", "more"), ("consumed", 9, "G", 3, "success")),
    ],
)
def test_a_line_is_read_with_as_many_fields_as_its_writer_knew(
    line: tuple[str, ...], expected: tuple[Any, ...]
) -> None:
    assert read(line) == [TraceEvent(*expected[:3], CLIENT, *expected[3:])]


@pytest.mark.parametrize(
    "line",
    [
        (*PUB[:5], "IDX", *PUB[6:]),
        (PUB[0], "soon", *PUB[2:]),
        ("SubBefore", "8", "R", "G", "u", "other", "0"),
        ("SubAfter", "u", "other", "3", "true", "k"),
        ("SubAfter", "u", "ID", "long", "true", "k"),
        ("Pub", "7"),
        ("Recall",),
    ],
)
def test_a_line_about_something_else_is_passed_over(line: tuple[str, ...]) -> None:
    assert read(line, PUB) == read(PUB)


def test_what_happened_is_told_in_the_order_of_time() -> None:
    lines = [("SubBefore", str(at), "R", "G", "u", "ID", "0") for at in (3, 1, 2)]
    assert [traced.at_ms for traced in read(*lines)] == [1, 2, 3]


QUEUE = MessageQueue("T", "a", 0)
SENT = SendResult(SendStatus.SEND_OK, "I,J", QUEUE, 5, "M")


@pytest.mark.parametrize(
    ("properties", "status", "kind"),
    [
        ({}, SendStatus.SEND_OK, ["0", "M", "true"]),
        ({"TRAN_MSG": "true", "DELAY": "1"}, SendStatus.SEND_OK, ["1", "M", "true"]),
        ({"TRAN_MSG": "false"}, SendStatus.SEND_OK, ["0", "M", "true"]),
        ({"DELAY": "1"}, SendStatus.FLUSH_DISK_TIMEOUT, ["3", "M", "false"]),
    ],
)
def test_a_send_says_of_which_kind_it_was_and_its_share_of_the_time(
    properties: dict[str, str], status: SendStatus, kind: list[str]
) -> None:
    messages = (Message("T", b"xx", "tag", "k", properties=properties), Message("T", b"yyy"))
    context = SendContext("G", messages, QUEUE, "b:1", "c", 5)
    context.result, context.elapsed_ms = SENT._replace(send_status=status), 41.9
    record: Any = sent_record(context, "")
    assert record.keys == ("I", "J", "k")
    assert record.text.removesuffix(END).split(FIELD) == [
        *("Pub", "5", "DefaultRegion", "G", "T", "I,J", "tag", "k", "b:1", "5", "20", *kind)
    ]


def test_traces_that_cannot_be_sent_are_counted_and_complained_about_once() -> None:
    tracer: Any = Tracer(Scripted().instance)
    outcomes = [fail(RemotingConnectError("refused")) for _ in range(2)] + [succeed(None)]
    sent: list[Message] = []

    def send(traces: Message) -> Any:
        sent.append(traces)
        return outcomes[len(sent) - 1]

    tracer._producer = type("Producer", (), {"send": staticmethod(send)})()
    with capturedLogs() as events:
        for number in range(3):
            for _ in range(100):
                tracer.append(TraceRecord(f"{number}{END}", ("k", "", "a")))
    assert [formatEvent(event) for event in events if "traces" in str(formatEvent(event))] == [
        "traces cannot be sent: refused"
    ]
    assert tracer.dropped == 200
    assert sent[0].keys.split() == ["a", "k"]
