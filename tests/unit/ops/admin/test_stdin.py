"""Lines of stdin: what waits, what is held back, and what is no line."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport

from rmq_ha.ops.admin import produce
from rmq_ha.ops.admin.produce import StdinLines

MOST_WAITING, LONGEST = 1024, 4 << 20


@pytest.fixture
def pipe() -> StringTransport:
    return StringTransport()


@pytest.fixture
def lines(pipe: StringTransport, monkeypatch: pytest.MonkeyPatch) -> StdinLines:
    monkeypatch.setattr(produce, "StandardIO", lambda it, reactor: it.makeConnection(pipe))
    return StdinLines(None)


def batch(lines: StdinLines, most: int = 10_000) -> Deferred[list[bytes]]:
    return Deferred.fromCoroutine(lines.batch(most))


def test_a_batch_waits_for_the_first_line_and_for_no_more(lines: StdinLines) -> None:
    first = batch(lines)
    assert not first.called
    lines.dataReceived(b"a")
    assert not first.called, "it has no end yet"
    lines.dataReceived(b"b\r\n")
    assert first.result == [b"ab"]
    last = batch(lines)
    lines.connectionLost()
    assert last.result == []


def test_more_than_a_thousand_lines_wait_in_the_pipe(
    lines: StdinLines, pipe: StringTransport
) -> None:
    every = [b"%d" % number for number in range(3 * MOST_WAITING)]
    lines.dataReceived(b"\n".join(every[: MOST_WAITING - 1]) + b"\n")
    assert pipe.producerState == "producing"
    lines.dataReceived(b"\n".join(every[MOST_WAITING - 1 :]) + b"\n")
    assert pipe.producerState == "paused"
    assert batch(lines, 1).result == every[:1]
    assert pipe.producerState == "paused", "another one took its place"
    assert batch(lines).result == every[1 : 1 + MOST_WAITING]
    assert batch(lines).result == every[1 + MOST_WAITING : 1 + 2 * MOST_WAITING]
    assert batch(lines).result == every[1 + 2 * MOST_WAITING :]
    assert pipe.producerState == "producing"


@pytest.mark.parametrize(
    ("given", "found", "is_too_long"),
    [
        (b"a\n", [b"a"], False),
        (b"a\nb", [b"a", b"b"], False),
        (b"a\n" + b"x" * (LONGEST + 1), [b"a"], True),
        (b"a\n" + b"x" * (LONGEST + 1) + b"\nb", [b"a"], True),
    ],
    ids=["whole", "without its end", "too long", "too long, and more"],
)
def test_what_the_end_leaves(
    lines: StdinLines, given: bytes, found: list[bytes], is_too_long: bool
) -> None:
    lines.dataReceived(given)
    lines.connectionLost()
    assert (batch(lines).result, lines.too_long) == (found, is_too_long)
    assert batch(lines).result == []
