"""`rmq_ha.server.replication.classic.comparing`, and the replica that lives by it."""

import itertools
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import (
    AheadOfMaster,
    DamagedMaster,
    DivergedLog,
    DivergedTail,
    NothingInCommon,
    UnreadableLog,
)
from rmq_ha.server.replication.classic.comparing import FIRST_STEP, LogComparison, StartSearch
from rmq_ha.server.replication.classic.feed import Feed
from rmq_ha.server.replication.classic.frames import encode_frame, encode_report
from rmq_ha.server.replication.classic.greeting import DEPTH, encode_greeting, greet
from rmq_ha.server.replication.classic.refused_slaves import RefusedSlaves
from rmq_ha.server.replication.classic.replica import ClassicReplica, ReplicaStage
from rmq_ha.server.replication.places import lowest_place
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import blank, copy_of, extend, record, record_log

BODIES = [bytes([65 + number]) * 40 for number in range(10)]


def replica_of(log: MemoryLog, start: int | None = None) -> ClassicReplica:
    replica = ClassicReplica(
        log, MessageStoreConfig(), 0.0, StartSearch(log).place(None) if start is None else start
    )
    replica.connected(0.0)
    return replica


def sent(master: MemoryLog, start: int, size: int = 1 << 20) -> bytes:
    """All that a master has from `start` on, in frames."""
    stream = b""
    while body := master.read(start, size):
        stream += encode_frame(start, body)
        start += len(body)
    return stream


def test_a_slave_asks_for_its_last_whole_record() -> None:
    log, starts = record_log(BODIES)
    greeting = greet(log, starts[-1])
    assert greeting is not None
    replica = ClassicReplica(log, MessageStoreConfig(), 0.0, StartSearch(log).place(None))
    assert replica.connected(0.0) == encode_greeting(greeting)
    log.put(record(log.max_offset, b"torn")[:50])
    assert StartSearch(log).place(None) == starts[-1]


def test_a_small_log_is_compared_as_a_whole() -> None:
    assert StartSearch(record_log([b"one", b"two"])[0]).place(None) == 1
    log, _ = record_log([b"one"])
    replica = ClassicReplica(log, MessageStoreConfig(), 0.0, StartSearch(log).place(None))
    assert replica.connected(0.0) == encode_report(1)
    assert replica.receive_data(sent(log, 1), 1.0) == encode_report(log.max_offset)


def test_an_empty_log_asks_for_0() -> None:
    assert StartSearch(MemoryLog(4096)).place(None) == 0


def test_what_is_equal_is_not_appended_and_the_rest_is() -> None:
    master, starts = record_log(BODIES)
    slave = copy_of(master, starts[6])
    replica = replica_of(slave)
    assert replica.stage is ReplicaStage.CONNECTED
    assert replica.receive_data(sent(master, starts[5]), 1.0) == encode_report(master.max_offset)
    assert slave.data == master.data
    assert slave.appends == [(starts[6], master.max_offset - starts[6])]
    assert replica.stage is ReplicaStage.FOLLOWING


def test_a_torn_tail_is_compared_too() -> None:
    master, starts = record_log(BODIES)
    for torn in range(starts[5] + 1, starts[6]):
        slave = copy_of(master, torn)
        replica_of(slave).receive_data(sent(master, starts[4]), 1.0)
        assert slave.data == master.data


def test_nothing_is_acknowledged_before_the_own_end_is_reached() -> None:
    master, starts = record_log(BODIES)
    slave = copy_of(master, starts[8])
    replica = replica_of(slave, starts[2])
    stream = sent(master, starts[2], 60)
    for at in range(0, len(stream), 25):
        answer = replica.receive_data(stream[at : at + 25], 1.0)
        if replica.stage is not ReplicaStage.FOLLOWING:
            assert answer == b""
            assert replica.reported == starts[2]
    assert replica.reported == master.max_offset


def test_the_very_first_byte_is_compared() -> None:
    """A master of another log may begin with the file in which ours begins."""
    log, _ = record_log(BODIES[:3])
    theirs = bytearray(log.data)
    theirs[0] ^= 1
    comparison = LogComparison(log, 1)
    comparison.begin_at(0)
    with pytest.raises(NothingInCommon):
        comparison.take(memoryview(theirs))
    comparison.begin_at(0)
    assert bytes(comparison.take(memoryview(bytes(log.data) + b"more"))) == b"more"
    assert comparison.is_done


def test_nothing_of_a_diverged_tail_is_taken_while_it_is_judged() -> None:
    """However small the pieces in which the master's record comes."""
    master, starts = record_log(BODIES[:6])
    slave = copy_of(master)
    extend(slave, [b"only here"], stamp=5)
    extend(master, [b"new master's"] * 2, stamp=9)
    before = bytes(slave.data)
    replica = replica_of(slave, starts[-1])
    stream = sent(master, starts[-1], 7)
    pieces = [stream[at : at + 19] for at in range(0, len(stream), 19)]

    def receive_all() -> None:
        for piece in pieces:
            replica.receive_data(piece, 1.0)

    with pytest.raises(DivergedTail):
        receive_all()
    assert (slave.appends, bytes(slave.data)) == ([], before)
    assert replica.reported == starts[-1]


def test_a_diverged_tail_is_cut_where_its_first_record_begins() -> None:
    master, starts = record_log(BODIES[:6])
    slave = copy_of(master)
    extend(slave, [b"only here", b"and this"], stamp=5)
    extend(master, [b"new master's"] * 4, stamp=9)
    end = slave.max_offset
    with pytest.raises(DivergedTail) as caught:
        replica_of(slave, starts[-1]).receive_data(sent(master, starts[-1]), 1.0)
    assert caught.value.end == starts[-1] + len(record(0, BODIES[5]))
    assert slave.max_offset == end
    assert slave.appends == []


def test_without_an_equal_record_nothing_is_cut() -> None:
    """The last record differs already: further back, then."""
    master, starts = record_log(BODIES)
    slave, _ = record_log(BODIES[:5])
    extend(slave, BODIES[5:], stamp=7)
    with pytest.raises(NothingInCommon) as caught:
        replica_of(slave).receive_data(sent(master, starts[-1]), 1.0)
    assert caught.value.start == starts[-1]
    with pytest.raises(DivergedTail) as parted:
        replica_of(slave, starts[1] + 7).receive_data(sent(master, starts[1] + 7), 1.0)
    assert parted.value.end == starts[5]


def test_the_master_may_begin_lower_but_not_higher() -> None:
    master, starts = record_log(BODIES)
    slave = copy_of(master)
    replica = replica_of(slave)
    replica.receive_data(sent(master, starts[3]), 1.0)
    assert replica.stage is ReplicaStage.FOLLOWING
    with pytest.raises(DivergedLog, match="was asked for"):
        replica_of(slave).receive_data(encode_frame(starts[-1] + 1), 1.0)


def test_a_master_may_begin_where_our_files_are_gone() -> None:
    """What is compared begins where our log does: only from there records lead to a cut."""
    master, starts = record_log(BODIES, file_size=512)
    slave = copy_of(master)
    slave.delete_below(1024)
    end = slave.max_offset
    extend(slave, [b"only here"], stamp=5)
    extend(master, [b"new master's"] * 2, stamp=9)
    with pytest.raises(DivergedTail) as caught:
        replica_of(slave, starts[-1]).receive_data(sent(master, 0), 1.0)
    assert caught.value.end == end


def test_what_cannot_lie_in_one_file_of_ours_is_not_compared() -> None:
    """Files of another size: what is equal up to here would not be, as a log, behind our end."""
    log, starts = record_log(BODIES)
    replica = replica_of(copy_of(log), starts[5])
    with pytest.raises(DivergedLog, match="mappedFileSizeCommitLog as on the master"):
        replica.receive_data(encode_frame(starts[5], bytes(log.file_size))[:12], 1.0)


def test_it_may_go_back_again_while_we_compare() -> None:
    """A greeting that was split: the master had begun with the first word."""
    master, starts = record_log(BODIES)
    slave = copy_of(master)
    replica = replica_of(slave)
    replica.receive_data(encode_frame(starts[-1], bytes(master.data[starts[-1] : -1])), 1.0)
    replica.receive_data(sent(master, starts[1]), 1.0)
    assert replica.stage is ReplicaStage.FOLLOWING


def test_what_was_collected_higher_up_says_nothing_when_it_goes_back() -> None:
    """Half a record that differs, and then all from a lower place: the tail differs, no more."""
    master, starts = record_log(BODIES)
    slave = copy_of(master, starts[6])
    extend(slave, [b"only here"], stamp=5)
    replica = replica_of(slave, starts[5])
    replica.receive_data(encode_frame(starts[5], master.read(starts[5], 150)), 1.0)
    with pytest.raises(DivergedTail) as caught:
        replica.receive_data(sent(master, starts[1]), 1.0)
    assert caught.value.end == starts[6]


def test_a_heartbeat_higher_up_says_nothing_when_it_goes_back() -> None:
    """It takes two at one place to say that a master has no more."""
    master, starts = record_log(BODIES)
    replica = replica_of(copy_of(master), starts[5])
    replica.receive_data(encode_frame(starts[5]), 1.0)
    replica.receive_data(encode_frame(starts[3]), 1.0)
    replica.receive_data(sent(master, starts[3]), 1.0)
    assert replica.stage is ReplicaStage.FOLLOWING


def test_two_heartbeats_say_that_the_master_has_no_more() -> None:
    master, starts = record_log(BODIES[:7])
    slave = copy_of(master)
    extend(slave, [b"ahead"])
    replica = replica_of(slave, starts[5])
    replica.receive_data(sent(master, starts[5]), 1.0)
    assert replica.stage is ReplicaStage.COMPARING
    assert replica.receive_data(encode_frame(master.max_offset), 6.0) == b""
    assert replica.stage is ReplicaStage.AHEAD
    with pytest.raises(DivergedTail) as caught:
        replica.receive_data(encode_frame(master.max_offset), 11.0)
    assert caught.value.end == master.max_offset


def test_one_heartbeat_before_data_says_nothing() -> None:
    master, starts = record_log(BODIES)
    slave = copy_of(master)
    replica = replica_of(slave)
    replica.receive_data(encode_frame(starts[-1]), 5.0)
    replica.receive_data(sent(master, starts[-1]), 5.0)
    replica.receive_data(encode_frame(master.max_offset), 10.0)
    assert replica.stage is ReplicaStage.FOLLOWING


def test_heartbeats_with_data_between_them_say_nothing() -> None:
    """A tail that the master has as well, only later, would be set aside."""
    log, starts = record_log(BODIES)
    replica = replica_of(copy_of(log), starts[-3])
    for start, end in itertools.pairwise(starts[-3:]):
        replica.receive_data(encode_frame(start), 1.0)
        replica.receive_data(encode_frame(start, bytes(log.data[start:end])), 1.0)
    assert replica.stage is ReplicaStage.COMPARING
    replica.receive_data(sent(log, starts[-1]), 1.0)
    assert replica.stage is ReplicaStage.FOLLOWING


def test_a_master_that_has_nothing_there_is_asked_for_less_after_a_second() -> None:
    """A Java master sends a heartbeat after five seconds where its log ends before."""
    slave, starts = record_log(BODIES)
    replica = replica_of(slave)
    assert replica.deadline() == 10.0  # its second report would make a Java master close
    replica.receive_data(encode_frame(starts[-1]), 5.0)
    assert replica.deadline() == 6.0
    with pytest.raises(NothingInCommon):
        replica.on_time(6.0)


def test_a_master_that_is_only_slow_is_waited_for() -> None:
    slave, starts = record_log(BODIES)
    replica = replica_of(slave)
    replica.receive_data(encode_frame(starts[-1], slave.read(starts[-1], 50)), 1.0)
    assert replica.on_time(9.9) == b""
    assert replica.on_time(10.0) == encode_report(starts[-1])


def test_what_the_master_has_in_our_records_place_must_be_a_record() -> None:
    """A bit that its disk turned must not take a good copy's place."""
    master, starts = record_log(BODIES)
    slave = copy_of(master)
    for at in (0, 5, 30, 90):
        bad = copy_of(master)
        bad.data[starts[7] + at] ^= 0x40
        with pytest.raises(DamagedMaster, match="keeps its copy"):
            replica_of(slave, starts[5]).receive_data(sent(bad, starts[5], 33), 1.0)


def test_our_own_damage_is_fetched_anew() -> None:
    master, starts = record_log(BODIES)
    for at in (0, 5, 30, 90):
        slave = copy_of(master)
        slave.data[starts[7] + at] ^= 0x40
        with pytest.raises(DivergedTail) as caught:
            replica_of(slave, starts[5]).receive_data(sent(master, starts[5], 33), 1.0)
        assert caught.value.end == starts[7]


def test_a_blank_may_stand_where_we_have_a_record() -> None:
    master, starts = record_log(BODIES[:5], file_size=1024)
    slave = copy_of(master)
    extend(slave, [b"fits"])
    master.put(blank(1024 - master.max_offset % 1024))
    with pytest.raises(DivergedTail) as caught:
        replica_of(slave, starts[4]).receive_data(sent(master, starts[4]), 1.0)
    assert caught.value.end == starts[4] + len(record(0, BODIES[4]))


def test_the_search_goes_back_in_growing_steps_down_to_the_first_byte() -> None:
    log = MemoryLog(1 << 20, 1 << 20, bytes(4 << 20))
    search, places = StartSearch(log), []
    place = 5 << 20
    while search.go_back(place):
        place = search.place(None)
        places.append(place)
    assert places == [(5 << 20) - FIRST_STEP, (5 << 20) - 17 * FIRST_STEP, 1 << 20]


def test_a_search_stays_within_the_log_whatever_became_of_it() -> None:
    """Files expire while it goes back, and a tail is cut."""
    log = MemoryLog(1 << 20, 0, bytes(4 << 20))
    search = StartSearch(log)
    assert search.go_back(2 << 20)
    assert search.place(None) == (2 << 20) - FIRST_STEP
    log.delete_below(3 << 20)
    assert search.place(None) == 3 << 20
    del log.data[:]
    log.base = log.min_offset = 1 << 20
    assert search.place(None) == 1 << 20
    assert not search.go_back(1 << 20)


def test_bytes_in_which_no_record_is_are_looked_at_no_further_than_several_records() -> None:
    log = MemoryLog(1 << 24, 0, bytes((1 << 24) + 4096))
    assert StartSearch(log).place(None) == 4096
    assert StartSearch(log).place(1 << 24) == 1, "all of it before what is unreadable"


@pytest.mark.parametrize(("more", "is_deep"), [(0, True), (-1, False)])
def test_a_log_is_large_enough_when_a_greeting_fits_before_its_last_record(
    more: int, is_deep: bool
) -> None:
    first = lowest_place(MemoryLog(4096, 0)) + DEPTH + more
    log, starts = record_log([bytes(first - len(record(0, b""))), b"last"])
    assert starts[1] == first
    assert (greet(log, first) is not None) is is_deep
    assert StartSearch(log).place(None) == (first if is_deep else 1)


def test_a_search_that_found_nothing_begins_at_the_end_again() -> None:
    """With the first step: whoever mended it wants no more compared than is needed."""
    log, starts = record_log([b"a" * (FIRST_STEP // 4)] * 16, 1 << 20)
    search = StartSearch(log)
    for _ in range(2):
        places = [search.place(None)]
        while search.go_back(places[-1]):
            places.append(search.place(None))
        assert places[0] == starts[-1]
        assert len(places) == 3


def unreadable_replica(log: MemoryLog, at: int) -> ClassicReplica:
    search = StartSearch(log)
    return ClassicReplica(log, MessageStoreConfig(), 0.0, search.place(at), lambda: at)


def test_what_cannot_be_read_ends_the_reports() -> None:
    log, starts = record_log(BODIES)
    places: list[int] = []
    replica = ClassicReplica(
        log, MessageStoreConfig(), 0.0, log.max_offset, lambda: places[0] if places else None
    )
    replica.connected(0.0)
    replica.receive_data(encode_frame(log.max_offset), 1.0)
    places.append(starts[8])
    for step in (replica.on_time, replica.look):
        with pytest.raises(UnreadableLog):
            step(5.0)
    with pytest.raises(UnreadableLog):
        replica.receive_data(encode_frame(log.max_offset, b"x"), 5.0)


def test_what_cannot_be_read_here_is_compared_with_the_masters() -> None:
    master, starts = record_log(BODIES)
    slave = copy_of(master)
    slave.data[starts[6] : starts[6] + 30] = bytes(30)
    replica = unreadable_replica(slave, starts[6])
    assert replica.reported == starts[5]
    with pytest.raises(DivergedTail) as caught:
        replica.receive_data(sent(master, starts[5]), 1.0)
    assert caught.value.end == starts[6]


def test_what_cannot_be_read_on_both_is_never_acknowledged() -> None:
    master, starts = record_log(BODIES)
    master.data[starts[6] : starts[6] + 30] = bytes(30)
    slave = copy_of(master)
    replica = unreadable_replica(slave, starts[6])
    with pytest.raises(UnreadableLog, match="same bytes"):
        replica.receive_data(sent(master, starts[5]), 1.0)
    assert replica.reported == starts[5]


@settings(max_examples=150)
@given(
    st.lists(st.binary(max_size=300), min_size=3, max_size=25),
    st.integers(1, 24),
    st.lists(st.binary(max_size=200), max_size=6),
    st.lists(st.binary(max_size=200), min_size=1, max_size=6),
    st.integers(1, 400),
    st.integers(1, 700),
)
def test_any_two_logs_that_part_anywhere_end_up_equal(
    common: list[bytes],
    asked: int,
    ours: list[bytes],
    theirs: list[bytes],
    frame: int,
    chunk: int,
) -> None:
    """Slave ahead, behind or beside its master: cut where they part, then the same bytes."""
    master, starts = record_log(common, file_size=1024)
    slave = copy_of(master)
    fork = master.max_offset
    extend(slave, ours, stamp=3)
    extend(master, theirs, stamp=4)
    cuts, place = list[int](), max(1, starts[min(asked, len(starts)) - 1])
    while slave.data != master.data:
        replica = replica_of(slave, place)
        stream = sent(master, place, frame) + encode_frame(master.max_offset) * 2
        try:
            for at in range(0, len(stream), chunk):
                answer = replica.receive_data(stream[at : at + chunk], 1.0)
                reported = int.from_bytes(answer or bytes(8), "big")
                assert slave.data[:reported] == master.data[:reported]
        except DivergedTail as error:
            cuts.append(error.end)
            del slave.data[error.end :]
        except NothingInCommon:
            assert place > 1
            place = max(1, place - 300)
        assert slave.data == master.data[: len(slave.data)] or not cuts
    with_blank = fork + 1024 - fork % 1024  # of both
    assert cuts in ([], [fork], [with_blank])
    assert len(cuts) <= len(ours)


def meet(master: MemoryLog, slave: MemoryLog, search: StartSearch, ahead: RefusedSlaves) -> bool:
    """One connection of a slave of ours to a master of ours; true: both are the same."""
    feed = Feed(master, BrokerConfiguration(), 0.0)
    feed.ceiling = ahead.ceiling("slave")
    replica = ClassicReplica(slave, MessageStoreConfig(), 0.0, search.place(None))
    reports, now = replica.connected(0.0), 0.0
    while now < 30:
        if reports:
            feed.receive_data(reports, now)
        now += 0.5
        feed.on_time(now)
        stream = b"".join(iter(partial(feed.next_frame, now), b""))
        reports = replica.receive_data(stream, now) if stream else replica.on_time(now)
        if replica.stage is ReplicaStage.FOLLOWING and slave.data == master.data:
            return True
    raise AssertionError("they go on, and are not the same")


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=200), max_size=4),
    st.lists(st.binary(max_size=200), max_size=4),
    st.lists(st.binary(max_size=200), max_size=4),
    st.booleans(),
)
def test_small_logs_that_part_end_up_equal_or_say_that_they_have_nothing_in_common(
    common: list[bytes], ours: list[bytes], theirs: list[bytes], was_refused: bool
) -> None:
    """Too small for a checksum: the slave must not be refused for ever as one that is ahead."""
    master, _ = record_log(common)
    slave = copy_of(master)
    extend(slave, ours, stamp=3)
    extend(master, theirs, stamp=4)
    search, ahead = StartSearch(slave), RefusedSlaves()
    if was_refused:
        ahead.remember("slave", master.max_offset)
    for _ in range(5):
        try:
            if meet(master, slave, search, ahead):
                break
        except DivergedTail as error:
            del slave.data[error.end :]
            search.reset()
        except AheadOfMaster as error:
            ahead.remember("slave", error.end)
        except NothingInCommon as error:
            if not search.go_back(error.start):
                assert not common
                assert ours
                return
    assert slave.data == master.data


def test_a_master_that_begins_before_our_first_file() -> None:
    """What lies before our log is no part of it: it is passed over, and never appended."""
    master, starts = record_log([body * 10 for body in BODIES], 1024)
    slave = copy_of(master, starts[8])
    slave.delete_below(2048)
    replica = replica_of(slave, starts[7])
    assert replica.receive_data(sent(master, starts[1], 100), 1.0) == encode_report(
        master.max_offset
    )
    assert slave.data == master.data[2048:]


def test_a_master_that_ends_before_our_first_file() -> None:
    master, starts = record_log([body * 10 for body in BODIES], 1024)
    slave = copy_of(master)
    slave.delete_below(2048)
    before = bytes(slave.data)
    replica = replica_of(slave, starts[9])
    short = copy_of(master, starts[3])
    assert short.max_offset < 2048
    assert replica.receive_data(sent(short, starts[1], 100), 1.0) == b""
    replica.receive_data(encode_frame(short.max_offset), 2.0)
    with pytest.raises(NothingInCommon):
        replica.receive_data(encode_frame(short.max_offset), 3.0)
    assert slave.data == before
