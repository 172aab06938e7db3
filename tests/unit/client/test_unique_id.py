"""Unique ids: what the Java client's tools read out of them."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.client.rules.unique_id import UniqueIds

NOW = 1_700_000_000_000


def month_start(now_ms: int) -> int:
    local = time.localtime(now_ms / 1000)
    return int(time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000


@settings(deadline=None)
@given(st.integers(0, 4_000_000_000_000), st.integers(0, 0xFFFF))
def test_layout(now_ms: int, first: int) -> None:
    """Address, pid, salt, ms since the first of the month, counter."""
    text = UniqueIds("10.1.2.3", 0x12345, 0xAABBCCDD, first).next(now_ms)
    data = bytes.fromhex(text)
    assert text == text.upper()
    assert data[:10].hex() == "0a0102032345aabbccdd"
    assert int.from_bytes(data[10:14], "big") == (now_ms - month_start(now_ms)) & 0xFFFFFFFF
    assert int.from_bytes(data[14:], "big") == first


def test_counter_wraps_and_keeps_ids_apart() -> None:
    """65536 ids of one ms are all different; then the counter starts over."""
    ids = UniqueIds("10.1.2.3", 1, 2)
    made = [ids.next(NOW) for _ in range(65536)]
    assert len(set(made)) == 65536
    assert ids.next(NOW) == made[0]


def test_ipv6_and_names() -> None:
    """An IPv6 address takes 16 bytes; what is no address counts as the loopback."""
    assert len(UniqueIds("fe80::1%eth0", 1, 2).next(NOW)) == 56
    assert UniqueIds("myhost", 1, 2).next(NOW).startswith("7F000001")


def test_a_clock_that_goes_back_over_the_month() -> None:
    """A little: as if the month had just begun; the next month begins by itself."""
    ids = UniqueIds("10.1.2.3", 1, 2)
    start = month_start(NOW)
    ids.next(start)
    assert int(ids.next(start - 10)[20:28], 16) == 0
    later = start + 40 * 86_400_000
    assert int(ids.next(later)[20:28], 16) == later - month_start(later)
    following = month_start(start + 70 * 86_400_000)
    assert int(ids.next(following)[20:28], 16) == 0
