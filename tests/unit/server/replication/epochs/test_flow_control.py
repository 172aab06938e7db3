"""
A slave is sent no more than so many bytes a second.

Spec: controller.md, section 7.7.
"""

from __future__ import annotations

import pytest

from rmq_ha.base.timing.last_second import LastSecond
from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.frames import TRANSFER_SIZE, encode_report
from tests.unit.server.replication.epochs.test_hazards_of_links import Pair

MOST = 300


def first_report(feed: EpochFeed, now: float) -> None:
    feed.receive_data(encode_report(0), now)


def frames(feed: EpochFeed, now: float) -> list[bytes]:
    return list(iter(lambda: feed.next_frame(now), b""))


def test_each_second_has_its_share_and_the_next_comes_by_itself() -> None:
    """Frames end at an epoch, here at 400, and each has its header: 264, 136 and 92, and so on."""
    pair = Pair(max_transfer_per_second=MOST)
    feed, _ = pair.slave(2, 10.2)
    first_report(feed, 10.2)
    now, times, got = 10.2, [], []
    while feed.sent < 1000:
        sent = frames(feed, now)
        assert sum(map(len, sent)) <= MOST
        times.append(now)
        got.append(sum(map(len, sent)) - TRANSFER_SIZE * len(sent))
        assert frames(feed, now + 0.3) == []
        now = feed.deadline()
    assert times == [10.2, 11.0, 12.0, 13.0]
    assert got == [264, 228, 264, 244]


@pytest.mark.parametrize(("room", "wakes"), [(0, 11.0), (1, 11.0), (599, 11.0), (600, 15.2)])
def test_what_is_left_of_a_second_is_used_to_the_byte(room: int, wakes: float) -> None:
    """And who has all waits for no second."""
    pair = Pair(max_transfer_per_second=2 * TRANSFER_SIZE + 400 + room)
    feed, _ = pair.slave(2, 10.2)
    first_report(feed, 10.2)
    frames(feed, 10.2)
    assert feed.sent == 400 + room
    assert feed.deadline() == wakes


def test_without_it_nothing_waits() -> None:
    pair = Pair()
    feed, _ = pair.slave(2)
    first_report(feed, 0.0)
    frames(feed, 0.0)
    assert feed.sent == 1000


def test_a_rate_is_what_the_last_whole_second_had() -> None:
    rate = LastSecond()
    assert (rate.per_second(0.5), rate.in_this_second(0.5)) == (0, 0)
    rate.add(7, 100.2)
    rate.add(5, 100.9)
    assert (rate.per_second(100.9), rate.in_this_second(100.9)) == (0, 12)
    assert (rate.per_second(101.0), rate.in_this_second(101.0)) == (12, 0)
    rate.add(3, 101.5)
    assert rate.per_second(101.9) == 12
    assert rate.per_second(103.0) == 0, "102 had none"
    rate.add(4, 103.0)
    assert rate.in_this_second(105.0) == 0
