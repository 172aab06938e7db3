"""The master's half of a classic connection: frames, acknowledgements, heartbeats, gathering."""

import itertools
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import AheadOfMaster, ReplicationError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_format.commitlog import BLANK_MAGIC
from rmq_ha.server.replication.classic.feed import (
    ASYNC_SECONDS,
    DOUBT_SECONDS,
    GATHER_SECONDS,
    SOON_SECONDS,
    Common,
    Feed,
)
from rmq_ha.server.replication.classic.frames import HEADER_SIZE, encode_frame, encode_report
from rmq_ha.server.replication.classic.greeting import encode_greeting, greet
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import record_log

DATA = bytes(range(256)) * 40


def make_feed(
    log: MemoryLog, role: BrokerRole = BrokerRole.ASYNC_MASTER, limit: int = 1024
) -> Feed:
    configuration = BrokerConfiguration()
    configuration.store.broker_role = role
    configuration.store.ha_transfer_batch_size = limit
    configuration.ours.ha_transfer_batch_max = limit
    return Feed(log, configuration, 0.0)


def drain(feed: Feed, now: float) -> list[tuple[int, int]]:
    """Offset and size of every frame that wants to leave."""
    frames = []
    while frame := feed.next_frame(now):
        frames.append((int.from_bytes(frame[:8], "big", signed=True), len(frame) - HEADER_SIZE))
    return frames


def test_nothing_leaves_before_the_first_report() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    assert drain(feed, 4.0) == []
    assert not feed.is_serving
    assert drain(feed, 19.0) == []


def test_frames_end_at_the_limit_and_at_the_end_of_a_file() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:6121]))
    assert feed.receive_data(encode_report(444), 0.0)
    assert drain(feed, 0.0) == [
        (444, 1024),
        (1468, 1024),
        (2492, 1024),
        (3516, 580),
        (4096, 1024),
        (5120, 1001),
    ]


def test_a_frame_size_that_is_not_set_is_ours_and_one_that_is_counts() -> None:
    configuration = BrokerConfiguration()
    feed = Feed(MemoryLog(1 << 20, 0, bytes(300_000)), configuration, 0.0)
    feed.receive_data(encode_report(1), 0.0)
    assert drain(feed, 0.0) == [(1, 262144), (262145, 37855)]
    configuration.store.ha_transfer_batch_size = 65536
    feed = Feed(MemoryLog(1 << 20, 0, bytes(100_000)), configuration, 0.0)
    feed.receive_data(encode_report(1), 0.0)
    assert drain(feed, 0.0) == [(1, 65536), (65537, 34463)]


def test_a_frame_fits_into_a_java_slaves_buffer() -> None:
    feed = make_feed(MemoryLog(1 << 23, 0, bytes(5 << 20)), limit=1 << 23)
    feed.receive_data(encode_report(1), 0.0)
    assert len(feed.next_frame(0.0)) == 4 << 20


def test_a_report_of_0_starts_at_the_last_file() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:6121]))
    feed.receive_data(encode_report(0), 0.0)
    assert drain(feed, 0.0) == [(4096, 1024), (5120, 1001)]


def test_a_report_in_the_middle_of_a_record_is_served() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    feed.receive_data(encode_report(50), 0.0)
    assert feed.next_frame(0.0) == encode_frame(50, DATA[50:444])


@pytest.mark.parametrize("offset", [-1, -5, 445, 944, 2**63 - 1, -(2**63)])
def test_an_impossible_first_report_is_refused(offset: int) -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    if offset < 0:
        with pytest.raises(ReplicationError):
            feed.receive_data(encode_report(offset), 0.0)
    else:  # it may become a greeting
        assert not feed.receive_data(encode_report(offset), 0.0)
        assert feed.deadline() == DOUBT_SECONDS
        with pytest.raises(AheadOfMaster):
            feed.on_time(DOUBT_SECONDS)
    assert not feed.is_serving
    assert feed.acked == 0


def test_an_acknowledgement_beyond_what_was_sent_here_is_refused() -> None:
    """Though the log has these bytes: nobody can hold what this connection never carried."""
    feed = make_feed(MemoryLog(4096, 0, DATA[:3000]))
    feed.receive_data(encode_report(444), 0.0)
    feed.next_frame(0.0)
    feed.receive_data(encode_report(1468), 0.0)
    assert feed.acked == 1468
    with pytest.raises(ReplicationError, match="1469"):
        feed.receive_data(encode_report(1469), 0.0)
    assert feed.acked == 1468


def test_acknowledgements_do_not_go_back() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    for offset in (444, 0, 111):
        feed.receive_data(encode_report(offset), 0.0)
    assert (feed.acked, feed.sent, feed.lag) == (444, 444, 0)
    assert drain(feed, 1.0) == []


def test_a_split_report_counts_when_it_is_complete() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    assert not feed.receive_data(encode_report(111)[:3], 0.0)
    assert drain(feed, 0.0) == []
    assert feed.receive_data(encode_report(111)[3:], 1.0)
    assert drain(feed, 1.0) == [(111, 333)]


def test_a_heartbeat_follows_an_idle_interval() -> None:
    log = MemoryLog(4096, 0, DATA[:444])
    feed = make_feed(log)
    feed.receive_data(encode_report(0), 0.3)
    assert drain(feed, 0.3) == [(0, 444)]
    assert feed.deadline() == pytest.approx(5.3)
    assert drain(feed, 5.2) == []
    assert drain(feed, 5.31) == [(444, 0)]
    assert feed.deadline() == pytest.approx(10.31)


def test_a_late_first_report_is_answered_with_a_heartbeat_then_data() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    feed.receive_data(encode_report(0), 5.5)
    assert drain(feed, 5.5) == [(0, 0), (0, 444)]


def test_silence_ends_the_connection() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    assert feed.deadline() == 20.0
    feed.on_time(19.9)
    with pytest.raises(ReplicationError, match="20 s"):
        feed.on_time(20.0)


def test_our_own_writes_do_not_keep_a_silent_slave() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:444]))
    feed.receive_data(encode_report(0), 1.0)
    for now in (1.0, 6.1, 11.2, 16.3):
        assert drain(feed, now)
        feed.on_time(now)
    assert feed.deadline() == 21.0
    with pytest.raises(ReplicationError):
        feed.on_time(21.0)


def test_a_full_transport_holds_everything_back() -> None:
    """Heartbeats too: bytes are under way, and the timer must not spin."""
    feed = make_feed(MemoryLog(4096, 0, DATA[:3000]))
    feed.receive_data(encode_report(1), 0.0)
    assert feed.next_frame(0.0)
    feed.pause()
    assert drain(feed, 6.0) == []
    assert feed.deadline() == 20.0
    feed.resume()
    assert drain(feed, 6.0) == [(1025, 0), (1025, 1024), (2049, 951)]


def test_what_is_deleted_here_is_not_sent_but_the_slave_is_kept() -> None:
    """As the Java master, heartbeats only; but such a slave does not count."""
    log = MemoryLog(4096, 4096, DATA[:444])
    feed = make_feed(log)
    feed.receive_data(encode_report(100), 0.0)
    assert feed.is_stranded
    assert not feed.is_serving
    assert drain(feed, 0.0) == []
    assert drain(feed, 5.1) == [(100, 0)]


def test_a_slave_of_ours_is_told_where_the_log_begins_and_ends_if_it_needs_deleted_bytes() -> None:
    """The one before proves nothing of itself, as Java's do: it would take that for the log."""
    log = MemoryLog(4096, 4096, DATA[:444])
    feed = make_feed(log)
    own = greet(MemoryLog(4096, 0, DATA[:1000]), 1000)
    assert own is not None
    feed.receive_data(encode_greeting(own), 0.0)
    assert feed.is_stranded
    assert drain(feed, 0.0) == [(4096, 0), (4540, 0)]
    assert drain(feed, 5.1) == [(1000, 0)]


def test_the_first_byte_that_is_left_can_be_served() -> None:
    log = MemoryLog(4096, 4096, DATA[:444])
    feed = make_feed(log)
    feed.receive_data(encode_report(4096), 0.0)
    assert feed.is_serving
    assert not feed.is_stranded
    assert drain(feed, 0.0) == [(4096, 444)]


def test_a_slave_is_stranded_when_its_place_expires() -> None:
    log = MemoryLog(4096, 0, DATA[:6121])
    feed = make_feed(log)
    feed.receive_data(encode_report(444), 0.0)
    feed.next_frame(0.0)
    assert feed.is_serving
    log.delete_below(4096)
    assert feed.is_stranded
    assert drain(feed, 1.0) == []


def test_an_empty_master_sends_heartbeats_from_0() -> None:
    log = MemoryLog(4096)
    feed = make_feed(log)
    feed.receive_data(encode_report(0), 0.0)
    assert feed.is_serving
    assert drain(feed, 0.0) == []
    assert drain(feed, 5.1) == [(0, 0)]
    log.put(DATA[:10])
    assert drain(feed, 5.2) == [(0, 10)]


def test_the_lag_is_never_negative() -> None:
    log = MemoryLog(4096, 0, DATA[:444])
    feed = make_feed(log)
    feed.receive_data(encode_report(444), 0.0)
    log.data = log.data[:100]
    assert feed.lag == 0


def test_the_first_bytes_of_a_log_leave_at_once() -> None:
    """Nothing is under way that they could wait for."""
    log = MemoryLog(4096)
    feed = make_feed(log, BrokerRole.SYNC_MASTER)
    feed.receive_data(encode_report(0), 0.0)
    log.put(DATA[:10])
    assert drain(feed, 0.01) == [(0, 10)]


def test_a_blank_is_no_middle_of_a_record() -> None:
    """A slave that holds all up to one comes with its own end."""
    log, _ = record_log([b"a" * 300] * 12, file_size=1024)
    blanks = 0
    for place in range(1, log.max_offset):
        feed = make_feed(log)
        feed.receive_data(encode_report(place), 0.0)
        head = log.read(place, 8)
        if head[4:8] == BLANK_MAGIC.to_bytes(4, "big"):
            assert not feed.is_within
            blanks += 1
    assert blanks > 3


class TestGathering:
    """With one frame unacknowledged, and with two."""

    def setup_method(self) -> None:
        self.log = MemoryLog(1 << 20, 0, DATA[:100])
        self.feed = make_feed(self.log, BrokerRole.SYNC_MASTER)
        self.feed.receive_data(encode_report(100), 0.0)

    def put(self, size: int, now: float = 0.0) -> list[tuple[int, int]]:
        self.log.put(bytes(size))
        return drain(self.feed, now)

    def test_the_second_frame_waits_and_grows_until_the_first_is_acknowledged(self) -> None:
        assert self.put(10) == [(100, 10)]
        assert self.put(10) == []
        assert self.put(10) == []
        self.feed.receive_data(encode_report(110), 0.001)
        assert drain(self.feed, 0.001) == [(110, 20)]
        self.feed.receive_data(encode_report(130), 0.001)
        assert self.put(10, 0.001) == [(130, 10)]

    def test_it_does_not_wait_long(self) -> None:
        """A slave that is far away appends one frame while the next is on its way."""
        self.put(10)
        assert self.put(10, SOON_SECONDS / 2) == []
        assert self.feed.deadline() == pytest.approx(SOON_SECONDS)
        assert drain(self.feed, SOON_SECONDS) == [(110, 10)]

    def test_the_third_frame_waits_and_grows(self) -> None:
        assert self.put(10) == [(100, 10)]
        assert self.put(10, SOON_SECONDS) == [(110, 10)]
        assert self.put(10, 3 * SOON_SECONDS) == []
        assert self.put(10, 4 * SOON_SECONDS) == []
        self.feed.receive_data(encode_report(110), 0.05)
        assert drain(self.feed, 0.05) == [(120, 20)]

    def test_a_full_frame_does_not_wait(self) -> None:
        self.put(10)
        assert self.put(2000) == [(110, 1024)]
        assert self.put(30) == []

    def test_a_slave_that_acknowledges_late_gets_the_frame_all_the_same(self) -> None:
        self.put(10)
        self.put(10, SOON_SECONDS)
        late = SOON_SECONDS + GATHER_SECONDS
        assert self.put(10, 2 * SOON_SECONDS) == []
        assert self.feed.deadline() == pytest.approx(late)
        assert drain(self.feed, late) == [(120, 10)]

    def test_nothing_waiting_is_not_gathering(self) -> None:
        self.put(10)
        assert self.feed.deadline() == 5.0

    def test_an_async_master_gathers_for_a_moment_behind_each_frame(self) -> None:
        """Whether it is acknowledged or not: no put waits for it."""
        self.feed._store.broker_role = BrokerRole.ASYNC_MASTER
        assert self.put(10) == [(100, 10)]
        assert self.put(10, ASYNC_SECONDS / 2) == []
        self.feed.receive_data(encode_report(110), ASYNC_SECONDS / 2)
        assert drain(self.feed, ASYNC_SECONDS / 2) == []
        assert self.feed.deadline() == pytest.approx(ASYNC_SECONDS)
        assert self.put(10, ASYNC_SECONDS) == [(110, 20)]
        assert self.put(10, 2 * ASYNC_SECONDS) == [(130, 10)]
        assert self.put(10, 3 * ASYNC_SECONDS) == [(140, 10)]

    def test_an_async_master_gathers_no_full_frame(self) -> None:
        self.feed._store.broker_role = BrokerRole.ASYNC_MASTER
        self.put(10)
        assert self.put(1500) == [(110, 1024), (1134, 476)]
        assert self.put(10) == []


@given(st.lists(st.binary(max_size=24)))
def test_any_bytes_are_believed_or_refused(chunks: list[bytes]) -> None:
    """Whatever is sent, nothing beyond what left here counts as acknowledged."""
    feed = make_feed(MemoryLog(4096, 0, DATA[:6121]))
    with suppress(ReplicationError):
        for now, chunk in enumerate(chunks):
            feed.receive_data(chunk, now / 100)
            drain(feed, now / 100)
    assert 0 <= feed.acked <= max(feed.sent, feed.requested or 0) <= 6121


@given(
    st.integers(0, 6000),
    st.lists(st.tuples(st.sampled_from(["put", "ack", "wait"]), st.integers(0, 3000))),
    st.sampled_from([BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER]),
)
def test_frames_are_the_log(start: int, steps: list[tuple[str, int]], role: BrokerRole) -> None:
    """Contiguous, never across a file, and complete once everything is acknowledged."""
    log = MemoryLog(4096, 0, DATA[:6000])
    feed = make_feed(log, role)
    now = 0.0
    copy = bytearray()
    feed.receive_data(encode_report(start), now)
    base = feed.sent
    for kind, number in [*steps, ("wait", 200), ("wait", 200), ("wait", 200)]:
        if kind == "put":
            log.put(bytes(number))
        elif kind == "wait":
            now += number / 1000
        else:
            feed.receive_data(encode_report(min(number, feed.sent)), now)
        while frame := feed.next_frame(now):
            offset, body = int.from_bytes(frame[:8], "big"), frame[HEADER_SIZE:]
            assert offset == base + len(copy)
            assert offset % 4096 + len(body) <= 4096
            assert len(body) <= 1024
            copy += body
    assert copy == log.data[base:]


def greeting_of(log: MemoryLog, place: int) -> bytes:
    """What a slave of ours with this log says there."""
    greeting = greet(log, place)
    assert greeting is not None
    return encode_greeting(greeting)


def test_the_first_report_vouches_for_nothing_and_what_was_sent_here_does() -> None:
    log = MemoryLog(4096, 0, DATA[:444])
    feed = make_feed(log)
    feed.receive_data(encode_report(444), 0.0)
    feed.receive_data(encode_report(444), 5.0)
    assert (feed.acked, feed.proven, feed.lag) == (444, 0, 0)
    log.put(b"x" * 10)
    drain(feed, 5.0)
    feed.receive_data(encode_report(444), 5.0)
    assert feed.proven == 0
    feed.receive_data(encode_report(454), 5.0)
    assert feed.proven == 454


def test_a_slave_that_proves_its_log_is_believed_and_sent_the_rest() -> None:
    log = MemoryLog(4096, 0, DATA[:3000])
    feed = make_feed(log)
    assert feed.receive_data(greeting_of(MemoryLog(4096, 0, DATA[:2500]), 2400), 0.0)
    assert (feed.common, feed.acked, feed.proven) == (Common.VERIFIED, 2400, 2400)
    assert drain(feed, 0.0) == [(2400, 600), (3000, 0), (3000, 0)]
    log.put(b"more")
    feed.receive_data(encode_report(3000), 0.0)
    assert drain(feed, ASYNC_SECONDS) == [(3000, 4)]


def test_a_slave_with_another_log_is_sent_what_it_compares() -> None:
    other = MemoryLog(4096, 0, DATA[:1990] + b"!" * 600)
    feed = make_feed(MemoryLog(4096, 0, DATA[:3000]))
    feed.receive_data(greeting_of(other, 2400), 0.0)
    assert (feed.common, feed.acked, feed.proven) == (Common.DIFFERENT, 0, 0)
    assert drain(feed, 0.0) == [(352, 1024), (1376, 1024), (2400, 600), (3000, 0), (3000, 0)]
    feed.receive_data(encode_report(2400), 5.0)  # its own report in time
    assert feed.proven == 0


@pytest.mark.parametrize("place", [900, 2400])
def test_a_slave_is_nobodys_reason_to_set_a_tail_aside(place: int) -> None:
    """Promoted late, or in a circle: the other one may be the only one that has that tail."""
    other = MemoryLog(4096, 0, DATA[:800] + b"!" * 2500)
    feed = make_feed(MemoryLog(4096, 0, DATA[:1000]), BrokerRole.SLAVE)
    with pytest.raises(ReplicationError, match="This broker is a slave, too"):
        feed.receive_data(greeting_of(other, place), 0.0)


def test_a_slave_feeds_a_slave_that_has_the_same() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:3000]), BrokerRole.SLAVE)
    feed.receive_data(greeting_of(MemoryLog(4096, 0, DATA[:2500]), 2400), 0.0)
    assert drain(feed, 0.0) == [(2400, 600), (3000, 0), (3000, 0)]


def test_a_slave_of_ours_that_is_ahead_is_not_refused() -> None:
    feed = make_feed(MemoryLog(4096, 0, DATA[:1000]))
    feed.receive_data(greeting_of(MemoryLog(4096, 0, DATA), 6000), 0.0)
    assert (feed.common, feed.sent) == (Common.DIFFERENT, 0)
    feed = make_feed(MemoryLog(4096, 0, DATA[:5000]))
    feed.receive_data(greeting_of(MemoryLog(4096, 0, DATA), 6000), 0.0)
    assert (feed.common, feed.sent) == (Common.DIFFERENT, 904)
    feed.receive_data(encode_report(6000), 5.0)
    assert (feed.acked, feed.lag) == (0, 5000)


@pytest.mark.parametrize("place", [6000, 7000])
def test_a_checksum_of_what_is_deleted_here_proves_nothing(place: int) -> None:
    log = MemoryLog(4096, 4096, DATA[4096:7000])
    feed = make_feed(log)
    feed.receive_data(greeting_of(MemoryLog(4096, 0, DATA), place), 0.0)
    assert (feed.common, feed.sent, feed.proven) == (Common.UNKNOWN, place, 0)


def test_the_end_is_not_told_while_something_is_held_back() -> None:
    """Two heartbeats say that there is no more."""
    log = MemoryLog(4096, 0, DATA[:3000])
    feed = make_feed(log, BrokerRole.SYNC_MASTER)
    feed.receive_data(greeting_of(log, 2000), 0.0)
    assert drain(feed, 0.0) == [(2000, 1000), (3000, 0), (3000, 0)]
    feed = make_feed(log, BrokerRole.SYNC_MASTER, limit=600)
    feed.receive_data(greeting_of(log, 1900), 0.0)
    assert drain(feed, 0.0) == [(1900, 600), (2500, 500), (3000, 0), (3000, 0)]
    feed._end_beats_to_send = 2
    log.put(b"x" * 10)
    assert drain(feed, 0.05) == []
    assert drain(feed, 0.2) == [(3000, 10), (3010, 0), (3010, 0)]


def test_a_slave_that_was_ahead_stays_refused_unless_it_proves_its_log() -> None:
    log = MemoryLog(4096, 0, DATA[:3000])
    for data in (encode_report(2400), encode_report(2001)):
        feed = make_feed(log)
        feed.ceiling = 2000
        with pytest.raises(AheadOfMaster, match="2000"):
            feed.receive_data(data, 0.0)
    for data in (encode_report(2000), greeting_of(log, 2400)):
        feed = make_feed(log)
        feed.ceiling = 2000
        assert feed.receive_data(data, 0.0)


@given(st.sets(st.integers(1, 95)), st.sampled_from([2400, 6000]), st.booleans())
def test_a_greeting_is_understood_however_it_is_cut(cuts: set[int], place: int, same: bool) -> None:
    """Also when its first word alone was a report that could be served, and was."""
    slave = MemoryLog(4096, 0, DATA if same else DATA[:2000] + b"!" * 8240)
    data = greeting_of(slave, place)
    feed = make_feed(MemoryLog(4096, 0, DATA[:3000]))
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        feed.receive_data(data[start:end], 0.0)
        drain(feed, 0.0)
    is_verified = same and place == 2400
    assert feed.common is (Common.VERIFIED if is_verified else Common.DIFFERENT)
    assert feed.sent == 3000
    assert feed.proven == (2400 if is_verified else 0)
