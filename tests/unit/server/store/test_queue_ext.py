"""Consume queue extensions. Spec: store.md, section 3.6; golden files of Java 4.9.7."""

import base64
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zope.interface import implementer

from rmq_ha.base.errors import StoreError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.store_format.commitlog import dispatch_request_at
from rmq_ha.base.store_format.consumequeue import is_extension_address
from rmq_ha.base.store_format.consumequeue_ext import (
    HEAD,
    address_of,
    decode_extension,
    encode_extension,
    position_of,
)
from rmq_ha.server.store.queues.queue import ConsumeQueue
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.reading.pulls import unit_matcher
from rmq_ha.testing.disk import SimDisk

FIXTURE = Path(__file__).parents[3] / "fixtures" / "store" / "ext.tar.gz"
CQ_FILE, EXT_FILE = 800, 256
EXT_DIR = "/store/consumequeue_ext/T/0"


def bit_map_of(request: DispatchRequest) -> bytes | None:
    return bytes([request.queue_offset & 255] * 8) if request.queue_offset % 3 else None


def table(disk: Any, ext: int | None = EXT_FILE, cq: int = CQ_FILE) -> ConsumeQueueTable:
    made = ConsumeQueueTable(disk, "/store", cq, extension_file_size=ext)
    made.bit_map_of = bit_map_of
    return made


def reopened(
    disk: SimDisk, last_exit_ok: bool = True, ext: int | None = EXT_FILE
) -> ConsumeQueueTable:
    made = table(disk, ext)
    made.load()
    made.recover(last_exit_ok)
    return made


def run_of(first: int, count: int, code: int = 1000) -> list[DispatchRequest]:
    return [
        DispatchRequest("T", 0, 100 * n, 100, code + n, 5000 + n, n, "", "", 0, 0, "")
        for n in range(first, first + count)
    ]


def filled(count: int) -> tuple[SimDisk, ConsumeQueueTable, ConsumeQueue]:
    """A disk, a table on it, and its queue, which has so many units."""
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, count))
    queue = queues.get("T", 0)
    assert queue is not None
    return disk, queues, queue


def check(queues: ConsumeQueueTable, first: int, count: int, code: int = 1000) -> None:
    """Each unit's address leads to what was put with it."""
    queue = queues.get("T", 0)
    assert queue is not None
    for request in run_of(first, count, code):
        ((_, _, address),) = queue.units(request.queue_offset, 1)
        assert is_extension_address(address)
        assert queue.extended(address) == ExtensionUnit(
            request.tags_code, request.store_timestamp, bit_map_of(request)
        )


def test_the_files_are_those_of_java_to_the_byte(tmp_path: Path) -> None:
    shutil.unpack_archive(FIXTURE, tmp_path)
    theirs, ours = tmp_path / "ext", tmp_path / "ours"
    log = (theirs / "commitlog" / f"{0:020d}").read_bytes()
    made = ConsumeQueueTable(RealDisk(), str(ours), 800, extension_file_size=4096)
    made.bit_map_of = lambda request: (
        bytes([1, 2, 3, 4, 5, 6, 7, request.queue_offset & 255])
        if request.topic == "TopicX"
        else None
    )
    position = 0
    while position < 23510:
        found = dispatch_request_at(log, position, 23510, [1000])
        assert isinstance(found, DispatchRequest)
        made.put_requests([found])
        position += found.size
    made.close()
    for folder in ("consumequeue", "consumequeue_ext"):
        wanted = {path.relative_to(theirs) for path in (theirs / folder).rglob("0*")}
        wanted = {path for path in wanted if (theirs / path).is_file()}
        assert len(wanted) >= 3
        for path in wanted:
            assert (ours / path).read_bytes() == (theirs / path).read_bytes(), path
    made = ConsumeQueueTable(RealDisk(), str(theirs), 800, extension_file_size=4096)
    made.load()
    made.recover()
    expected = json.loads((FIXTURE.parent / "ext.expected.json").read_text())
    for name in ("TopicX", "TopicY"):
        queue = made.get(name, 0)
        assert queue is not None
        for offset, entry in enumerate(expected["queues"][f"{name}-0"]["entries"]):
            ((physical, size, address),) = queue.units(offset, 1)
            assert [physical, size, address] == entry[:3]
            unit = queue.extended(address)
            assert unit is not None
            assert [unit.tags_code, unit.store_timestamp] == entry[3:5]
            assert unit.bit_map == (base64.b64decode(entry[5]) if entry[5] else None)


@given(st.lists(st.integers(1, 12), max_size=12))
@settings(max_examples=50)
def test_units_are_found_however_they_were_put(sizes: list[int]) -> None:
    """Over file ends, in batches of any size, before and after a restart."""
    disk = SimDisk(Random(1), lambda: 1000)
    queues, end = table(disk), 0
    for index, size in enumerate(sizes):
        queues.put_requests(run_of(end, size))
        end += size
        if index % 4 == 3:
            queues.close()
            queues = reopened(disk)
        check(queues, 0, end)


@given(st.binary(max_size=60), st.integers(-5, 60))
def test_any_bytes_are_a_unit_or_none(data: bytes, at: int) -> None:
    found = decode_extension(data, at)
    if found is not None:
        assert encode_extension(found[0]) is not None
        assert data[at : at + found[1]][:2] == found[1].to_bytes(2, "big")


def test_addresses_and_positions() -> None:
    assert address_of(28) == -9223372036854775780
    assert position_of(address_of(12345)) == 12345
    data = bytes.fromhex("001c0000000000000a5d000001a1fcfd834300080102030405060700")
    unit = ExtensionUnit(2653, 1795245835075, bytes([1, 2, 3, 4, 5, 6, 7, 0]))
    assert encode_extension(unit) == data
    assert decode_extension(data) == (unit, 28)
    bare = ExtensionUnit(1, 2, None)
    assert decode_extension(encode_extension(bare) or b"") == (bare, HEAD.size)


def test_what_does_not_fit_keeps_its_plain_tag_code() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.bit_map_of = lambda request: b"x" * (40000 if request.queue_offset else 250)
    queues.put_requests(run_of(0, 2))
    queue = queues.get("T", 0)
    assert queue is not None
    assert [code for *_, code in queue.units(0, 5)] == [1000, 1001]
    assert disk.list_dir(EXT_DIR) == []


def test_cut_queues_go_on_behind_their_last_unit() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, 60))
    before = disk.list_dir(EXT_DIR)
    queues.truncate(2000)
    assert len(disk.list_dir(EXT_DIR)) < len(before)
    queues.put_requests(run_of(20, 30, 7000))
    check(queues, 0, 20)
    check(queues, 20, 30, 7000)
    queues.truncate(0)
    assert disk.list_dir(EXT_DIR) == []
    queues.put_requests(run_of(0, 3))
    check(queues, 0, 3)
    queues.remove_queue("T", 0)
    assert not disk.exists("/store/consumequeue_ext/T")


def test_a_destroyed_queue_makes_no_file_anew() -> None:
    """Whoever still has it finds nothing, and the directory stays gone."""
    disk, queues, queue = filled(60)
    addresses = [code for *_, code in queue.units(0, 9)]
    queues.remove_queue("T", 0)
    assert [queue.extended(address) for address in addresses] == [None] * 9
    assert not disk.exists("/store/consumequeue_ext/T")
    queues.put_requests(run_of(0, 3, 7000))
    check(queues, 0, 3, 7000)


def test_a_queue_that_is_empty_after_a_crash_begins_anew() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(5, 3))
    check(queues, 5, 3)
    queues.close()
    again = reopened(disk, last_exit_ok=False)
    check(again, 5, 3)
    again.put_requests(run_of(8, 30))
    check(again, 5, 33)


def test_an_address_whose_unit_is_lost_is_never_given_out_again() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, 4))
    queues.close()
    file = disk.open(f"{EXT_DIR}/{0:020d}", EXT_FILE)
    file.zero(60)
    file.close()
    again = reopened(disk, last_exit_ok=False)
    again.put_requests(run_of(4, 20))
    queue = again.get("T", 0)
    assert queue is not None
    lost = [queue.extended(code) for *_, code in queue.units(0, 4)]
    assert [unit is None for unit in lost] == [False, False, True, True]
    check(again, 4, 20)


def test_switched_off_and_on_again() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, 3))
    queues.close()
    off = reopened(disk, ext=None)
    off.put_requests(run_of(3, 900))
    queue = off.get("T", 0)
    assert queue is not None
    assert not queue.is_extended
    assert queue.extended(address_of(0)) is None
    off.close()
    on = reopened(disk)
    on.put_requests(run_of(903, 3))
    check(on, 0, 3)
    check(on, 903, 3)
    assert disk.list_dir(EXT_DIR) == [f"{0:020d}", f"{EXT_FILE:020d}"]


def test_a_failed_write_is_made_again() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, 3))

    def fail(path: str, data: bytes, position: int, is_new: bool) -> None:
        raise StoreError("full")

    files = queues._files
    write, files.write = files.write, fail  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(StoreError):
            queues.put_requests(run_of(3, 12))
    files.write = write  # type: ignore[method-assign]
    queues.put_requests(run_of(3, 12))
    check(queues, 0, 15)


def test_files_before_the_first_message_go() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, 100))
    before = disk.list_dir(EXT_DIR)
    assert queues.delete_expired(5000) == 1
    after = disk.list_dir(EXT_DIR)
    assert 0 < len(after) < len(before)
    assert after == before[-len(after) :]
    check(queues, 50, 50)


def test_another_file_size_is_refused() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, 1))
    queues.close()
    with pytest.raises(StoreError, match="mappedFileSizeConsumeQueueExt is 512"):
        reopened(disk, ext=512)


@implementer(IMessageFilter)
class Wanted:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def matches_unit(self, tags_code: int) -> bool:
        self.asked.append(tags_code)
        return True

    def matches_extension(self, *unit: Any) -> bool:
        self.asked.append(unit)
        return False

    def matches_record(self, record: bytes) -> bool:
        return True

    def matches_properties(self, properties: dict[str, str]) -> bool:
        return True


def test_a_filter_is_shown_what_an_address_leads_to() -> None:
    disk = SimDisk(Random(1), lambda: 1000)
    queues = table(disk)
    queues.put_requests(run_of(0, 2))
    queue = queues.get("T", 0)
    assert queue is not None
    wanted = Wanted()
    matches = unit_matcher(queue, wanted)
    codes = [code for *_, code in queue.units(0, 2)]
    assert [matches(code) for code in (*codes, 7, address_of(9999))] == [False, False, True, True]
    assert wanted.asked == [(1000, 5000, None), (1001, 5001, bytes([1] * 8)), 7]
    plain = table(disk, ext=None).queue("U", 0)
    assert unit_matcher(plain, wanted) == wanted.matches_unit


@pytest.mark.parametrize("more", [0, 1])
def test_a_unit_that_fills_its_file_but_for_the_end_mark_is_one(more: int) -> None:
    """One byte more fits no file: the plain tag code says what it can."""
    made = table(SimDisk(Random(1), lambda: 1000))
    empty = len(encode_extension(ExtensionUnit(1, 2, b"")) or b"")
    made.bit_map_of = lambda request: bytes(EXT_FILE - 4 - empty + more)
    made.put_requests(run_of(0, 3))
    codes = [made.queue("T", 0).units(number, 1)[0][2] for number in range(3)]
    assert [is_extension_address(code) for code in codes] == [not more] * 3
    if more:
        assert codes == [1000, 1001, 1002]
    else:
        assert [position_of(code) for code in codes] == [0, EXT_FILE, 2 * EXT_FILE]


@pytest.mark.parametrize("count", [1, 39, 40, 41, 60, 79, 80, 100])
@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_a_restart_goes_on_in_the_same_file(count: int, last_exit_ok: bool) -> None:
    """With the same bytes as without one, whichever file the queue ends in."""
    one, two = (SimDisk(Random(1), lambda: 1000) for _ in range(2))
    never = table(one)
    never.put_requests(run_of(0, count))
    never.put_requests(run_of(count, 5))
    table(two).put_requests(run_of(0, count))
    again = reopened(two, last_exit_ok)
    again.put_requests(run_of(count, 5))
    check(again, 0, count + 5)
    files = [{path: disk.content(path) for path in disk.paths(EXT_DIR)} for disk in (one, two)]
    assert files[0] == files[1]


def test_sync_makes_extensions_safe_as_well() -> None:
    """Their units in the queue lead nowhere else, and filters would let pass what they exclude."""
    disk = SimDisk(Random(1), lambda: 1000)
    made = table(disk)
    made.put_requests(run_of(0, 12))
    made.sync()
    queue = made.queue("T", 0)
    before = [queue.extended(unit[2]) for unit in queue.units(0, 12)]
    again = reopened(disk.crash(), last_exit_ok=False).queue("T", 0)
    assert [again.extended(unit[2]) for unit in again.units(0, 12)] == before
    assert None not in before


def test_a_file_that_ends_where_the_first_unit_begins_stays() -> None:
    """The place at its very end is of the next file; what lies behind is looked at there."""
    _, extension, _ = extended(40)
    starts = list(extension._starts)
    extension.delete_before(address_of(starts[2]))
    assert extension._starts == starts[1:]
    extension.delete_before(address_of(starts[2] + 1))
    assert extension._starts == starts[2:]


def test_what_a_failed_write_staged_is_forgotten() -> None:
    """Else the same units would be written twice, and the addresses after them be wrong."""
    _, queues, queue = filled(2)
    extension = queue._extension
    assert extension is not None
    end = extension._end
    extension.stage(run_of(2, 1)[0])
    queues.put_requests(run_of(2, 3))
    check(queues, 0, 5)
    size = 0
    for number in range(2, 5):
        ((_, _, address),) = queue.units(number, 1)
        unit = queue.extended(address)
        assert unit is not None
        size += len(encode_extension(unit) or b"")
    assert extension._end == end + size


def extended(count: int) -> tuple[SimDisk, Any, list[int]]:
    """A disk, the extension of a queue with so many units, and their addresses."""
    disk, _, queue = filled(count)
    return disk, queue._extension, [queue.units(number, 1)[0][2] for number in range(count)]


@pytest.mark.parametrize("last", [0, 3, 17, 39])
def test_nothing_is_left_behind_the_last_address(last: int) -> None:
    """Neither on the disk nor in memory; what comes next is written there."""
    disk, extension, addresses = extended(40)
    assert all(extension.get(address) for address in addresses)
    extension.settle(addresses[last])
    kept = [extension.get(address) is not None for address in addresses]
    assert kept == [number <= last for number in range(40)]
    end = extension._end
    path = f"{EXT_DIR}/{extension._starts[-1]:020d}"
    assert disk.list_dir(EXT_DIR) == [f"{start:020d}" for start in extension._starts]
    assert not any(disk.read_bytes(path)[end - extension._starts[-1] :])
    again = extension.stage(run_of(last + 1, 1)[0])
    extension.write()
    assert position_of(again) >= end
    assert extension.get(again).store_timestamp == 5000 + last + 1


def test_an_extension_without_any_address_keeps_what_it_has() -> None:
    """Its queue holds no unit that says where it ends: the next one gets a new file."""
    _, extension, addresses = extended(40)
    extension.settle(None)
    assert extension._end % EXT_FILE == 0
    assert extension._end >= position_of(addresses[-1])
    staged = extension.stage(run_of(40, 1)[0])
    extension.write()
    assert position_of(staged) % EXT_FILE == 0
    assert extension.get(staged).store_timestamp == 5040


def test_a_lost_last_unit_ends_its_file() -> None:
    disk, extension, addresses = extended(40)
    position = position_of(addresses[20])
    start = position - position % EXT_FILE
    path = f"{EXT_DIR}/{start:020d}"
    file = disk.open(path, EXT_FILE)
    file.pwrite(bytes(EXT_FILE - (position - start)), position - start)
    extension._window = None or extension._window
    extension.settle(addresses[20])
    assert extension._starts[-1] == start
    assert extension._end == start + EXT_FILE


def test_a_cleared_extension_begins_anew() -> None:
    disk, extension, _ = extended(40)
    extension.clear()
    assert disk.list_dir(EXT_DIR) == []
    assert (extension._starts, extension._end) == ([], 0)
    staged = extension.stage(run_of(0, 1)[0])
    extension.write()
    assert position_of(staged) == 0
    assert extension.get(staged) is not None


def test_the_last_file_is_never_deleted() -> None:
    _, extension, addresses = extended(40)
    for _ in range(2):
        extension.delete_before(addresses[-1] + 10 * EXT_FILE)
        assert len(extension._starts) == 1
    assert extension.get(addresses[-1]) is not None


@pytest.mark.parametrize("size", [4096 - 20 - 1, 4096, 30_000])
def test_a_unit_larger_than_what_is_read_at_once(size: int) -> None:
    """A filter's bit map has as many bits as its setting says; it is read to its end."""
    queues = table(SimDisk(Random(1), lambda: 1000), ext=1 << 16)
    queues.bit_map_of = lambda request: bytes([request.queue_offset]) * size
    queues.put_requests(run_of(0, 5))
    queue = queues.get("T", 0)
    assert queue is not None
    for number in range(5):
        ((_, _, address),) = queue.units(number, 1)
        found = queue.extended(address)
        assert found is not None
        assert found.bit_map == bytes([number]) * size
