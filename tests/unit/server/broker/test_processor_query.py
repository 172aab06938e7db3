"""Messages by key and by offset. Spec: remoting.md, section 7.8."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.store.reading.reads import QueryResult
from tests.kits.channel import FakeChannel
from tests.unit.server.broker.asked_broker import AskedBroker

QUERY = {
    "topic": "TopicA",
    "key": "k1",
    "maxNum": 10,
    "beginTimestamp": 0,
    "endTimestamp": 9999999999999,
}


def test_by_key() -> None:
    kit = AskedBroker()
    for key in ("k1", "other", "k1"):
        kit.put("TopicA", KEYS=key)
    first, _, last = kit.messages
    answer = kit.request(12, QUERY)
    assert answer.code == 0
    assert sorted(decode_records(answer.body)) == [first, last]
    assert answer.ext == {
        "indexLastUpdatePhyoffset": str(last.physical_offset),
        "indexLastUpdateTimestamp": str(last.store_timestamp),
    }
    times = {"beginTimestamp": last.store_timestamp + 1000, "endTimestamp": 9999999999999}
    assert kit.request(12, {**QUERY, **times}).code == 22
    assert decode_records(kit.request(12, {**QUERY, "maxNum": 1}).body) == [last]


def test_by_unique_key_looks_for_more() -> None:
    """`defaultQueryMaxNum` takes the place of the client's number."""
    kit = AskedBroker()
    for _ in range(40):
        kit.put("TopicA", KEYS="k1")
    answer = kit.request(12, {**QUERY, "maxNum": 1, "_UNIQUE_KEY_QUERY": "true"})
    assert len(decode_records(answer.body)) == 32


def test_nothing_found() -> None:
    answer = AskedBroker().request(12, QUERY)
    assert (answer.code, answer.body) == (22, None)
    assert answer.ext == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}


def test_a_long_query_is_answered_turns_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its connection asks next waits for it; of one that is gone nobody hears."""
    kit = AskedBroker()

    def in_slices(*query: Any) -> Iterator[None]:
        yield from [None] * 2
        query[-1](QueryResult([b"one"], 1700, 99))

    monkeypatch.setattr(kit.store, "query_in_slices", in_slices)
    channel, gone = FakeChannel(), FakeChannel()
    answers: list[Any] = []
    for it in (gone, channel):
        kit.routes[12](it, RemotingCommand(12, {k: str(v) for k, v in QUERY.items()})).addCallback(
            answers.append
        )
    assert [held.called for held in channel.holding] == [False]
    gone.holding[0].cancel()
    assert answers == [None]
    kit.advance(0.01)
    assert answers[1].body == b"one"
    assert [held.called for held in channel.holding] == [True]
    assert len(answers) == 2


@pytest.mark.parametrize("name", list(QUERY))
def test_missing_fields(name: str) -> None:
    answer = AskedBroker().request(12, {key: value for key, value in QUERY.items() if key != name})
    assert answer.code == 1
    assert name in answer.remark


def test_by_offset() -> None:
    kit = AskedBroker()
    kit.put("TopicA", body=b"first")
    second = kit.put("TopicA", body=b"second")
    assert kit.request(33, {"offset": second}).body == kit.record("TopicA", 0, 1)
    assert kit.request(33, {"offset": 0}).body == kit.record("TopicA", 0, 0)


@pytest.mark.parametrize("offset", [-(2**63), -1, 1, 4, 10**12, 2**63 - 1, "x", "", None])
def test_an_offset_that_is_no_start_of_a_record(offset: Any) -> None:
    """Java answers with garbage or an exception; we with code 1."""
    kit = AskedBroker()
    kit.put("TopicA")
    ext = {} if offset is None else {"offset": offset}
    assert kit.request(33, ext).code == 1


def test_a_body_that_looks_like_a_record_is_none() -> None:
    """The record has to say that it is where it is."""
    kit = AskedBroker()
    kit.put("TopicA", body=b"inner")
    offset = kit.put("TopicA", body=kit.log)
    inside = kit.log.index(kit.record("TopicA", 0, 0), offset)
    assert kit.request(33, {"offset": inside}).code == 1
