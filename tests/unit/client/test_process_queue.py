"""The cache of a queue: as Java's, and what must always hold."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import Address
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.process_queue import FlowLimits, ProcessQueue

# Recorded with tests/interop/java/ProcessQueueVectors.java
VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/client/process_queue.json").read_text("utf-8")
)
HERE = Address(b"\x7f\0\0\1", 1)


def message(offset: int, size: int = 0) -> MessageExt:
    body = bytes(size)
    return MessageExt("T", body, {}, "b", 0, offset, "", "", 0, 0, HERE, 0, HERE, 0)


def test_it_answers_as_java_s() -> None:
    for steps in VECTORS:
        cache = ProcessQueue()
        known: dict[int, MessageExt] = {}
        for what, given_, answer, (count, span) in steps:
            if what == "put":
                put = [message(o, s) for o, s in zip(given_[::2], given_[1::2], strict=True)]
                known.update((item.queue_offset, item) for item in put)
                assert cache.put(put) == put
            elif what == "remove":
                assert cache.remove([known.pop(offset) for offset in given_]) == answer
            elif what == "take":
                assert [item.queue_offset for item in cache.take(given_)] == answer
            elif what == "commit":
                assert cache.commit() == answer
            else:
                cache.rollback()
            assert cache.count == count
            assert cache.span == span


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "remove", "again"]), st.lists(st.integers(0, 40), max_size=8)
        )
    )
)
def test_the_offset_to_commit_is_that_of_the_first_message_that_is_not_consumed(
    steps: list[tuple[str, list[int]]],
) -> None:
    cache, inside, highest = ProcessQueue(), dict[int, MessageExt](), -1
    for what, offsets in steps:
        if what == "put":
            wanted = [message(offset, offset) for offset in offsets]
            new = cache.put(wanted)
            assert [item.queue_offset for item in new] == [
                o for o in dict.fromkeys(offsets) if o not in inside
            ]
            inside.update((item.queue_offset, item) for item in new)
            highest = max([highest, *offsets])
        else:
            was_empty = not inside
            gone = [inside.pop(o) for o in dict.fromkeys(offsets) if o in inside]
            answer = cache.remove(gone)
            assert answer == (-1 if was_empty else min(inside, default=highest + 1))
        assert cache.count == len(inside)
        assert cache.size == sum(inside)
        assert cache.span == (max(inside) - min(inside) if inside else 0)
        first = cache.first_waiting()
        assert (first and first.queue_offset) == (min(inside) if inside else None)


def test_what_was_taken_comes_back_before_the_rest() -> None:
    cache = ProcessQueue()
    cache.put(message(offset, 10) for offset in range(6))
    taken = cache.take(3)
    assert cache.has_taken
    cache.give_back(taken[1:2])
    assert [item.queue_offset for item in cache.take(9)] == [1, 3, 4, 5]
    cache.rollback()
    assert [item.queue_offset for item in cache.take(9)] == list(range(6))
    assert cache.commit() == 6
    assert cache.commit() == -1
    assert (cache.count, cache.size) == (0, 0)


def test_it_says_why_it_is_full_and_what_operators_see() -> None:
    cache = ProcessQueue(1000)
    cache.put([message(5, 1 << 20), message(9, 1)])
    assert "2 messages" in str(cache.is_full(FlowLimits(messages=1)))
    assert "1 MiB" in str(cache.is_full(FlowLimits(size=1 << 20)))
    assert cache.is_full(FlowLimits(messages=2, size=(1 << 20) + 1, span=4)) is None
    assert "4 offsets" in str(cache.is_full(FlowLimits(span=3)))
    assert cache.is_full(FlowLimits(span=0)) is None
    assert not cache.is_pull_expired(121_000)
    assert cache.is_pull_expired(121_001)
    assert not cache.is_lock_expired(31_000)
    assert cache.is_lock_expired(31_001)
    cache.take(1)
    info: Any = cache.info(5)
    assert (info["cachedMsgCount"], info["transactionMsgCount"]) == (1, 1)
    assert (info["cachedMsgMinOffset"], info["transactionMsgMinOffset"]) == (9, 5)
    assert info["cachedMsgSizeInMiB"] == 1
    cache.take(1)
    info = cache.info(5)
    assert (info["transactionMsgMinOffset"], info["transactionMsgMaxOffset"]) == (5, 9)
    cache.commit()
    assert (cache.count, cache.size, cache.span) == (0, 0, 0)
    assert (cache.locked, cache.max_offset) == (False, 0)
    empty = cache.info(5, epoch_ms=7_000)
    offsets = [value for name, value in empty.items() if name.endswith("Offset")]
    assert offsets == [0, 0, 5, 0, 0]
    stamps = {value for name, value in empty.items() if name.endswith("Timestamp")}
    assert stamps == {8_000}


def test_a_queue_that_goes_on_lower_is_committed_lower() -> None:
    """The old end would skip what comes below it."""
    queue = ProcessQueue()
    old = [message(offset) for offset in (7, 8, 9)]
    queue.put(old)
    queue.go_on_at(3)
    queue.remove(old)
    queue.put([message(3)])
    assert queue.remove([message(3)]) == 4
