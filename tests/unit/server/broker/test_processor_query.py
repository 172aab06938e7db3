"""Messages by key and by offset. Spec: remoting.md, section 7.8."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.store.reading.reads import QueryResult
from tests.unit.server.broker.processor_kit import FakeChannel, Kit

QUERY = {
    "topic": "TopicA",
    "key": "k1",
    "maxNum": 10,
    "beginTimestamp": 0,
    "endTimestamp": 9999999999999,
}


def test_by_key() -> None:
    kit = Kit()
    kit.store.found = QueryResult([b"one", b"two"], 1700, 99)
    answer = kit.request(12, QUERY)
    assert (answer.code, answer.body) == (0, b"onetwo")
    assert answer.ext == {"indexLastUpdatePhyoffset": "99", "indexLastUpdateTimestamp": "1700"}
    assert kit.store.queries == [("TopicA", "k1", 10, 0, 9999999999999)]


def test_by_unique_key_looks_for_more() -> None:
    """`defaultQueryMaxNum` takes the place of the client's number."""
    kit = Kit()
    kit.request(12, {**QUERY, "maxNum": 1, "_UNIQUE_KEY_QUERY": "true"})
    assert kit.store.queries[0][2] == 32


def test_nothing_found() -> None:
    answer = Kit().request(12, QUERY)
    assert (answer.code, answer.body) == (22, None)
    assert answer.ext == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}


def test_a_long_query_is_answered_turns_later() -> None:
    """What its connection asks next waits for it; of one that is gone nobody hears."""
    kit = Kit()
    kit.store.found, kit.store.slices = QueryResult([b"one"], 1700, 99), 2
    channel, gone = HoldingChannel(), HoldingChannel()
    answers: list[Any] = []
    for it in (gone, channel):
        kit.routes[12](it, RemotingCommand(12, {k: str(v) for k, v in QUERY.items()})).addCallback(
            answers.append
        )
    assert channel.held == [False]
    gone.holding[0].cancel()
    assert answers == [None]
    for _ in range(4):
        kit.clock.advance(0)
    assert answers[1].body == b"one"
    assert channel.held == [True]
    assert len(answers) == 2


class HoldingChannel(FakeChannel):
    """:ivar holding: what requests that take several turns have given it."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        super().__init__()
        self.holding: list[Deferred[None]] = []

    def hold(self, size: int, held: "Deferred[None]") -> None:
        self.holding.append(held)

    @property
    def held(self) -> list[bool]:
        """Of each, whether it is done."""
        return [held.called for held in self.holding]


@pytest.mark.parametrize("name", list(QUERY))
def test_missing_fields(name: str) -> None:
    answer = Kit().request(12, {key: value for key, value in QUERY.items() if key != name})
    assert answer.code == 1
    assert name in answer.remark


def test_by_offset() -> None:
    kit = Kit()
    kit.store.put("TopicA", body=b"first")
    second = kit.store.put("TopicA", body=b"second")
    assert kit.request(33, {"offset": second}).body == kit.store.records[second]
    assert kit.request(33, {"offset": 0}).body == kit.store.records[0]


@pytest.mark.parametrize("offset", [-(2**63), -1, 1, 4, 10**12, 2**63 - 1, "x", "", None])
def test_an_offset_that_is_no_start_of_a_record(offset: Any) -> None:
    """Java answers with garbage or an exception; we with code 1."""
    kit = Kit()
    kit.store.put("TopicA")
    ext = {} if offset is None else {"offset": offset}
    assert kit.request(33, ext).code == 1


def test_a_body_that_looks_like_a_record_is_none() -> None:
    """The record has to say that it is where it is."""
    kit = Kit()
    kit.store.put("TopicA", body=b"inner")
    offset = kit.store.put("TopicA", body=kit.store.log)
    inside = kit.store.log.index(kit.store.records[0], offset)
    assert kit.request(33, {"offset": inside}).code == 1
