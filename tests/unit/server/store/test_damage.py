"""Damage with whole messages behind it, at a start. Spec: store.md, section 5.4."""

import json
from errno import ENOSPC
from random import Random

import pytest

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.host.disk import RealFile
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_format.checkpoint import NOTHING_WHOLE
from rmq_ha.base.store_format.commitlog import MESSAGE_MAGIC, decode_record
from rmq_ha.server.store.local.damaged_log import DamagedLog, Promise
from rmq_ha.server.store.local.refetch import RefetchLog
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.server.store.log.setaside import TailAside
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.disk import SimDisk

SMALL = {"mapped_file_size_commit_log": 16384}
SLAVE = {**SMALL, "broker_role": BrokerRole.SLAVE}


@pytest.fixture(autouse=True)
def _nothing_is_whole(monkeypatch):
    """What a checkpoint calls whole is not looked at after a crash; test_whole.py is about that."""
    monkeypatch.setattr(DefaultMessageStore, "_complete", lambda self: NOTHING_WHOLE)


def fill(machine, store, count, message, first=0):
    results = []
    for number in range(first, first + count):
        store.put_many([message(b"%04d" % number * 140, KEYS=f"k{number}")], results.extend)
        machine.now_ms += 10
        machine.turn()
    return [result.append for result in results]


def killed(machine, message, synced=50, more=0):
    """A store of three files that was killed; how much of it the checkpoint vouches for."""
    store = machine.open(**SMALL)
    appended = fill(machine, store, synced, message)
    machine.clock.pump([1] * 13)
    appended += fill(machine, store, more, message, synced)
    machine.crash(store)
    return appended


def path_of(machine, offset):
    return f"{machine.root}/commitlog/{offset // 16384 * 16384:020d}"


def damage(machine, offset, data):
    """Overwrite bytes of the log."""
    file = machine.disk.open(path_of(machine, offset), 16384)
    file.pwrite(data, offset % 16384)
    file.sync()


def image(machine):
    """All of the log's bytes."""
    folder = f"{machine.root}/commitlog"
    return {
        name: machine.disk.read_bytes(f"{folder}/{name}") for name in machine.disk.list_dir(folder)
    }


def folders(machine):
    return machine.disk.list_dir(f"{machine.root}/setaside")


def check(store, appended, count):
    """The first messages are there, and no more."""
    assert store.log.max_offset == appended[count].physical_offset
    assert store.max_offset_in_queue("TopicA", 0) == count
    for number, item in enumerate(appended[:count]):
        assert decode_record(store.record_at(item.physical_offset), check_crc=True).body == (
            b"%04d" % number * 140
        )


DAMAGES = {
    "a bit of the body": lambda item: (item.physical_offset + 200, b"\xff"),
    "the magic": lambda item: (item.physical_offset + 4, bytes(4)),
    "the size": lambda item: (item.physical_offset, b"\x7f\xff\xff\xff"),
    "a page of zeros": lambda item: (item.physical_offset, bytes(4096)),
    "a page of garbage": lambda item: (item.physical_offset - 99, Random(1).randbytes(4096)),
}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("number", [1, 5, 23, 30, 47])
def test_a_master_keeps_what_lies_behind_the_damage(machine, message, kind, number):
    """It says what would be lost and changes nothing; told to, it starts and sets that aside."""
    appended = killed(machine, message)
    offset, data = DAMAGES[kind](appended[number])
    first = number - (kind == "a page of garbage")  # it begins in the message before
    lost = next(n for n in range(number, 51) if n == 50 or appended[n].physical_offset >= offset)
    if "page" in kind:
        lost = next((n for n in range(50) if appended[n].physical_offset >= offset + 4096), 50)
    else:
        lost = number + 1
    if offset // 16384 != (offset + len(data) - 1) // 16384:
        data = data[: 16384 - offset % 16384]
        lost = next((n for n in range(50) if appended[n].physical_offset >= offset + len(data)), 50)
    damage(machine, offset, data)
    before = image(machine)
    with pytest.raises(StoreError) as caught:
        machine.open(**SMALL)
    text = str(caught.value)
    at = appended[first].physical_offset
    assert f"damaged at {at}, in {path_of(machine, at)}" in text
    assert "keepDamagedLog=false" in text
    assert (f": {50 - lost} whole messages follow" in text) or lost == 50
    assert image(machine) == before
    assert folders(machine) == []
    store = machine.open(**SMALL, keep_damaged_log=False)
    check(store, appended, first)
    (folder,) = folders(machine)
    said = about(machine)
    assert folder.startswith(f"damaged-{at}-")
    assert said["messages"] == 50 - lost == store.statistics.set_aside_messages
    assert why(machine).endswith(": damage, and keepDamagedLog=false")
    assert not said["owed"], "nobody will give a master what it was told to do without"
    kept = b"".join(
        machine.disk.read_bytes(f"{machine.root}/setaside/{folder}/{name}")
        for name in machine.disk.list_dir(f"{machine.root}/setaside/{folder}")
        if name.isdigit()
    )
    assert kept == b"".join(before[name] for name in sorted(before))[at : at + len(kept)]
    assert said["to"] == appended[-1].next_offset == at + len(kept)
    assert fill(machine, store, 1, message)[0].queue_offset == first


def test_the_last_message_that_was_promised_counts(machine, message):
    """It ends where the promise does; what is short may be the rest of a record, by its size."""
    appended = killed(machine, message)
    damage(machine, appended[48].physical_offset, b"\x7f\xff\xff\xff")
    with pytest.raises(StoreError, match="1 whole messages follow"):
        machine.open(**SMALL)
    check(machine.open(**SMALL, keep_damaged_log=False), appended, 48)


def test_a_refusal_names_the_files_that_have_messages(machine, message):
    """And none in which nothing is left: whoever copies them back need not have that one."""
    appended = killed(machine, message)
    damage(machine, appended[20].physical_offset, b"\x7f\xff\xff\xff")
    damage(machine, 16384, bytes(16384))
    files = f"{path_of(machine, 0)}, {path_of(machine, 2 * 16384)}"
    with pytest.raises(StoreError, match=f": 5 whole messages follow, up to .*, in {files}; they"):
        machine.open(**SMALL)
    check(machine.open(**SMALL, keep_damaged_log=False), appended, 20)


def about(machine):
    """What the one folder says of itself."""
    (folder,) = folders(machine)
    return json.loads(machine.disk.read_bytes(f"{machine.root}/setaside/{folder}/about.json"))


def why(machine):
    """What the one folder says of its reason."""
    return about(machine)["why"]


@pytest.mark.parametrize("number", [5, 30, 48])
def test_a_slave_fetches_it_anew(machine, message, number):
    """Without a hand: from the damage on everything is set aside."""
    appended = killed(machine, message)
    damage(machine, appended[number].physical_offset + 200, b"\xff")
    store = machine.open(**SLAVE)
    check(store, appended, number)
    assert why(machine).endswith(": damage; all from there on comes from the master once more")
    assert store.statistics.set_aside_messages == 49 - number
    assert about(machine)["owed"]


def test_all_that_lies_between_damaged_places_counts(machine, message):
    """Two of them in one file: what is whole comes in three pieces."""
    appended = killed(machine, message)
    for number in (30, 34):
        damage(machine, appended[number].physical_offset + 200, b"\xff")
    with pytest.raises(StoreError, match=": 18 whole messages follow"):
        machine.open(**SMALL)
    store = machine.open(**SMALL, keep_damaged_log=False)
    assert about(machine)["messages"] == 18 == store.statistics.set_aside_messages


def test_the_end_that_was_there_is_missing(machine, message):
    """Nothing whole follows, but the checkpoint knows that the log was longer."""
    appended = killed(machine, message)
    at = appended[49].physical_offset
    damage(machine, at, bytes(appended[49].size))
    with pytest.raises(StoreError, match=f"damaged at {at}.*: {appended[49].size} bytes are miss"):
        machine.open(**SMALL)
    check(machine.open(**SMALL, keep_damaged_log=False), appended, 49)


@pytest.mark.parametrize("is_file_gone", [False, True])
def test_all_that_was_promised_and_is_there_is_set_aside(machine, message, is_file_gone):
    """Though nothing whole is in it: to the last byte that was on the disk, or of the last file."""
    appended = killed(machine, message)
    spare = machine.disk.paths(f"{machine.root}/commitlog")[-1]
    machine.disk.remove(spare)
    at, promised = appended[40].physical_offset, appended[-1].next_offset
    assert at < 2 * 16384 < promised < int(spare[-20:])
    damage(machine, at, bytes(2 * 16384 - at))
    damage(machine, 2 * 16384, bytes(16384))
    if is_file_gone:
        machine.disk.remove(path_of(machine, promised))
        promised = 2 * 16384
    machine.open(**SMALL, keep_damaged_log=False)
    (folder,) = folders(machine)
    about = json.loads(machine.disk.read_bytes(f"{machine.root}/setaside/{folder}/about.json"))
    assert (about["from"], about["to"], about["messages"]) == (at, promised, 0)


@pytest.mark.parametrize("role", [SMALL, SLAVE], ids=["master", "slave"])
@pytest.mark.parametrize("synced", [0, 20])
def test_what_was_never_promised(machine, message, synced, role):
    """A hole in what no flush has confirmed is a crash's: the store starts, nothing is wiped."""
    appended = killed(machine, message, synced, 50 - synced)
    damage(machine, appended[30].physical_offset, bytes(2 * appended[30].size))
    store = machine.open(**role)
    check(store, appended, 30)
    assert store.statistics.set_aside_messages == 18
    assert why(machine).endswith(": a crash came before that was on the disk")
    assert not about(machine)["owed"]


def test_a_stamp_that_lost_power_tore(machine, message):
    """Nobody was promised the record, though its torn stamp is older than the checkpoint's."""
    appended = killed(machine, message, 30, 10)
    damage(machine, appended[33].physical_offset, bytes(400))
    damage(machine, appended[39].physical_offset + 56 + 3, bytes(5))
    check(machine.open(**SMALL), appended, 33)
    assert len(folders(machine)) == 1


@pytest.mark.parametrize("cut", [1, 8, 36, 300])
def test_a_torn_tail_is_cut(machine, message, cut):
    """A record that the stop cut off: nothing whole follows, so nothing is set aside."""
    appended = killed(machine, message, 20, 30)
    damage(machine, appended[49].physical_offset + cut, bytes(appended[49].size - cut))
    store = machine.open(**SMALL)
    check(store, appended, 49)
    assert folders(machine) == []


def master_of(machine):
    """A store beside the machine's own, which is to be a slave's."""
    root, machine.root = machine.root, f"{machine.root}-master"
    master = machine.open(**SMALL)
    machine.root = root
    return master


def slave_up_to(machine, master, end):
    """A slave that was sent the master's log as far as this, and has flushed it."""
    slave = machine.open(**SLAVE)
    feed(machine, slave, master, end)
    machine.clock.pump([1] * 13)
    assert slave.checkpoint.written.flushed_offset == end
    return slave


def feed(machine, slave, master, end):
    """What its master sends, up to there."""
    while slave.log.max_offset < end:
        at = slave.log.max_offset
        slave.log.append_raw(at, master.log.read(at, end - at))
        machine.turn()


def slave_with_damage(machine, master, appended):
    """One whose damaged 20th of 50 messages made it set all from there on aside."""
    slave = slave_up_to(machine, master, appended[-1].next_offset)
    machine.stop(slave)
    damage(machine, *DAMAGES["the magic"](appended[20]))
    return machine.open(**SLAVE, verify_log_at_start=True)


def test_a_slave_that_is_owed_messages_does_not_become_the_master(machine, message):
    """It says what it lacks and changes nothing; told to, it starts, and is asked no more."""
    master = master_of(machine)
    appended = fill(machine, master, 50, message)
    slave = slave_with_damage(machine, master, appended)
    (folder,) = folders(machine)
    feed(machine, slave, master, appended[48].next_offset)
    for stop in (machine.stop, machine.crash):
        stop(slave)
        before = image(machine)
        with pytest.raises(StoreError) as caught:
            machine.open(**SMALL)
        text = str(caught.value)
        ends = f"ends at {appended[49].physical_offset}, and went on to {appended[49].next_offset}"
        assert ends in text
        assert f"/setaside/{folder}/about.json" in text
        assert "keepDamagedLog=false" in text
        assert image(machine) == before
        slave = machine.open(**SLAVE)
    assert folders(machine) == [folder]
    machine.stop(slave)
    promoted = machine.open(**SMALL, keep_damaged_log=False)
    check(promoted, appended, 49)
    machine.stop(promoted)
    check(machine.open(**SMALL), appended, 49)
    assert folders(machine) == [folder]
    master.close()


@pytest.mark.parametrize("settings", [SMALL, SLAVE])
def test_a_slave_that_has_fetched_all_anew_owes_nothing(machine, message, settings):
    """The first start that sees it, as whatever, notes it; what is lost later is another matter."""
    master = master_of(machine)
    appended = fill(machine, master, 50, message)
    slave = slave_with_damage(machine, master, appended)
    feed(machine, slave, master, appended[-1].next_offset)
    machine.stop(slave)
    again = machine.open(**settings)
    assert again.max_offset_in_queue("TopicA", 0) == 50
    (folder,) = folders(machine)
    about = json.loads(machine.disk.read_bytes(f"{machine.root}/setaside/{folder}/about.json"))
    assert about["owed"] is False
    assert about["messages"] == 29
    assert about["to"] == appended[-1].next_offset
    master.close()


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_master_with_another_log_owes_nothing_behind_their_common_end(
    machine, message, is_behind
):
    """What the new master has not, it will not give; what lies before the cut is there."""
    master = master_of(machine)
    appended = fill(machine, master, 50, message)
    slave = slave_with_damage(machine, master, appended)
    if is_behind:
        more = fill(machine, master, 2, message, 50)
        feed(machine, slave, master, more[-1].next_offset)
        cut = appended[49].next_offset
    else:
        feed(machine, slave, master, appended[40].next_offset)
        cut = appended[30].physical_offset
    machine.finish(slave.set_tail_aside(cut, "the master has another"))
    machine.stop(slave)
    promoted = machine.open(**SMALL)
    assert promoted.log.max_offset == cut
    owed = [
        json.loads(machine.disk.read_bytes(f"{machine.root}/setaside/{folder}/about.json"))["owed"]
        for folder in folders(machine)
    ]
    assert owed == [False, False]
    master.close()


def test_what_was_fetched_anew_is_vouched_for_by_no_time(machine, message):
    """It is as old as what was set aside, and lost power takes it as any other: no hole is left."""
    master = master_of(machine)
    machine.stores.remove(master)
    appended = []
    for number in range(50):
        appended += fill(machine, master, 1, message, number)
        machine.now_ms += 5000
    slave = slave_with_damage(machine, master, appended)
    check(slave, appended, 20)
    feed(machine, slave, master, appended[-1].next_offset)
    slave.log.row.file(2 * 16384).sync()  # the system's own choice
    machine.stores.clear()  # what they vouch for is looked at below
    machine.lose_power(slave)
    slave = machine.open(**SLAVE)
    there = slave.max_offset_in_queue("TopicA", 0)
    assert 20 <= there < 50
    check(slave, appended, there)
    machine.crash(slave)


@pytest.mark.parametrize("content", [None, b"[1]", b'{"owed":true}', b"{"])
def test_a_folder_that_an_operator_has_had_in_hand_stops_no_start(machine, message, content):
    """Without its mark, or without a legible one, nothing is owed."""
    master = master_of(machine)
    appended = fill(machine, master, 50, message)
    machine.stop(slave_with_damage(machine, master, appended))
    (folder,) = folders(machine)
    path = f"{machine.root}/setaside/{folder}/about.json"
    if content is None:
        machine.disk.remove(path)
    else:
        machine.disk.replace(path, content)
    check(machine.open(**SMALL), appended, 20)
    master.close()


@pytest.mark.parametrize("cut", [1, 7, 8, 36, 300, 12000])
def test_a_slave_that_was_sent_half_a_record(machine, message, cut):
    """What is flushed ends inside a record, or with a blank: that is no damage."""
    master = master_of(machine)
    appended = fill(machine, master, 50, message)
    end = 16384 if cut == 12000 else appended[20].physical_offset + cut
    slave = slave_up_to(machine, master, end)
    machine.stores.remove(slave)
    slave.close()
    promoted = machine.open(**SMALL)
    assert promoted.max_offset_in_queue("TopicA", 0) == (24 if cut == 12000 else 20)
    assert folders(machine) == []
    master.close()


@pytest.mark.parametrize("cut", [36, 300])
def test_two_crashes_after_half_a_record(machine, message, cut):
    """The first start cuts what was flushed of it; the second must not miss that."""
    master = master_of(machine)
    appended = fill(machine, master, 30, message)
    slave = slave_up_to(machine, master, appended[20].physical_offset + cut)
    machine.crash(slave)
    for _ in range(2):
        promoted = machine.open(**SMALL)
        check(promoted, appended, 20)
        machine.crash(promoted)
    machine.crash(master)


def test_a_full_disk_stops_no_start_after_a_crash(simulated, message):
    """What was never promised is set aside if there is room; else it is said, and cut."""
    machine = simulated
    store = machine.open(**SMALL)
    appended = fill(machine, store, 50, message)
    item = appended[30]
    store.log.row.file(16384).pwrite(bytes(item.size), item.physical_offset - 16384)
    machine.crash(store)
    machine.disk = machine.disk.crash(power=False)
    machine.disk.fault = lambda operation, path: ENOSPC if "/setaside/" in path else None
    store = machine.load(**SMALL)
    check(store, appended, 30)


@pytest.mark.parametrize("settings", [SLAVE, {**SMALL, "keep_damaged_log": False}])
def test_damage_that_cannot_be_set_aside_is_not_cut(simulated, message, settings):
    """What was promised stays where it is, whoever may cut it, until there is room for a copy."""
    machine = simulated
    appended = killed(machine, message)
    damage(machine, *DAMAGES["the magic"](appended[20]))
    before = image(machine)
    machine.disk.fault = lambda operation, path: ENOSPC if "/setaside/" in path else None
    with pytest.raises(StoreError, match="cannot load the store"):
        machine.open(**settings)
    assert image(machine) == before
    machine.disk.fault = lambda operation, path: None
    check(machine.open(**settings), appended, 20)
    assert len(folders(machine)) == 1


@pytest.mark.real_disk
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_the_hole_behind_the_end_is_not_read(machine, message, monkeypatch, stop):
    """A file that was just begun is a gibibyte of zeros: reading them takes seconds."""
    settings = {"mapped_file_size_commit_log": 1 << 30}
    store = machine.open(**settings)
    fill(machine, store, 20, message)
    end = store.log.max_offset
    if stop == "clean":
        machine.stop(store)
    else:
        machine.crash(store)
    read = 0
    pread = RealFile.pread

    def count(file, size, position):
        nonlocal read
        read += size
        return pread(file, size, position)

    monkeypatch.setattr(RealFile, "pread", count)
    store = machine.load(**settings)
    assert store.log.max_offset == end
    assert read < 32 << 20


FILE = 4096


class Behind:
    """Stands for what reads whole records behind the end, and keeps them."""

    def __init__(self, *items):
        self.items = items
        self.kept = []

    def records(self, start, end):
        found = [item for item in self.items if start <= item[2] < end]
        return iter([found] if found else [])

    def keep(self, kind, start, end, why, now_ms, *, is_owed):
        self.kept.append((start, end, is_owed))
        return TailAside(*[""] * len(TailAside._fields))


def judged(*heads, files=1, behind=(), disk=None, **settings):
    """Who judges a log of some files, with these bytes at these places."""
    disk = disk or SimDisk(Random(1), lambda: 0)
    log = CommitLog(MessageStoreConfig(), FileRow(disk, ["/s/commitlog"], FILE), [1000])
    for number in range(files):
        log.row.create(number * FILE)
    for offset, head in heads:
        start = log.row.start_of(offset)
        log.row.file(start).pwrite(head, offset - start)
    settings = {"is_slave": False, "may_cut": False, **settings}
    return DamagedLog(log, Behind(*behind), **settings)


def head_of(size):
    return size.to_bytes(4, "big") + MESSAGE_MAGIC.to_bytes(4, "big", signed=MESSAGE_MAGIC < 0)


@pytest.mark.parametrize("start", [0, FILE])
@pytest.mark.parametrize(
    ("size", "missing", "is_damage"),
    [
        (300, 299, False),  # the rest of a record that was never whole
        (300, 300, True),
        (300, 301, True),
        (None, 7, False),  # less than says what it is
        (None, 8, True),
        (None, 400, True),
    ],
)
def test_what_is_missing_of_what_was_promised(start, size, missing, is_damage):
    """A whole record is damage, and so are bytes of which nobody knows what they were."""
    end = start + 1000
    damaged = judged((end, head_of(size) if size else bytes(8)), files=2)
    promise = Promise(end + missing, 0, "the checkpoint")
    if not is_damage:
        assert damaged.settle(end, 0, promise, 0) is None
        return
    with pytest.raises(StoreError, match=f"{missing} bytes are missing"):
        damaged.settle(end, 0, promise, 0)


def test_a_file_that_was_promised_and_is_not_there():
    """The log ends with the file before it, as if it had been meant to."""
    with pytest.raises(StoreError, match="20 bytes are missing"):
        judged().settle(FILE, 0, Promise(FILE + 20, 0, "the checkpoint"), 0)


@pytest.mark.parametrize(
    ("newest", "stored", "is_promised"),
    [(0, 0, False), (0, 99, True), (0, 100, False), (100, 9, False)],
)
def test_a_stamp_promises_what_was_stored_before_it(newest, stored, is_promised):
    """Not what was stored in that very millisecond, nor what has no stamp; none goes back."""
    item = ("T", 0, 2000, 300, 0, stored, 0)
    damaged = judged(behind=[item])
    if is_promised:
        with pytest.raises(StoreError, match="1 whole messages follow"):
            damaged.settle(1000, newest, Promise(0, 100, "the checkpoint"), 0)
    else:
        damaged.settle(1000, newest, Promise(0, 100, "the checkpoint"), 0)
        assert damaged._keeper.kept == [(1000, 2300, False)]


@pytest.mark.parametrize("ends", [(100, 900), (900, 100), (900, 900)])
@pytest.mark.parametrize("settings", [{}, {"may_cut": True}, {"is_slave": True}])
def test_every_stretch_that_is_owed_counts(ends, settings):
    """One that came back does not speak for another: no master leads without any of them."""
    disk = SimDisk(Random(1), lambda: 0)
    for number, end in enumerate(ends):
        content = json.dumps({"owed": True, "to": end}).encode()
        disk.replace(f"/s/setaside/{number}/about.json", content)
    owed = RefetchLog(disk, "/s")
    damaged = judged(disk=disk, **settings)
    if settings:
        damaged.settle_owed(500, owed)
    else:
        with pytest.raises(StoreError, match="went on to 900"):
            damaged.settle_owed(500, owed)
    left = [each.end for each in owed.open()]
    if "may_cut" in settings:
        assert left == []
    elif settings:
        assert left == [end for end in ends if end == 900]
    else:
        assert 900 in left


def test_what_is_back_and_cannot_be_noted_so_stops_no_start():
    """The disk is full just then: a later start notes it."""
    disk = SimDisk(Random(1), lambda: 0)
    disk.replace("/s/setaside/0/about.json", json.dumps({"owed": True, "to": 900}).encode())
    owed, damaged = RefetchLog(disk, "/s"), judged(disk=disk)
    disk.is_full = True
    damaged.settle_owed(900, owed)
    assert [each.end for each in owed.open()] == [900]
    disk.is_full = False
    damaged.settle_owed(900, owed)
    assert list(owed.open()) == []
