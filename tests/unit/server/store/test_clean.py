"""Deleting, and the full disk. Spec: store.md, section 9."""

from datetime import datetime

import pytest

from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.seams import DiskUsage
from rmq_ha.server.store.log.clean import CleaningLimits, LogCleaner, disk_ratio

HOUR = 3600


@pytest.fixture
def store(machine, message):
    """Six files, the first four of which are 80 hours old; nothing else is due."""
    made = machine.open(delete_when="")
    for number in range(6):
        if number == 5:  # which also writes the end of the fifth file
            machine.now_ms += 80 * HOUR * 1000
        made.put_many([message(b"x" * 40000)], lambda results: None)
    machine.turn()
    machine.clock.advance(0.5)
    machine.clock.advance(0)
    return made


def use(machine, monkeypatch, percent, folder=""):
    """So much of the disk of that folder is used, and half of another one; "": of any."""

    def usage(path):
        used = percent if path.endswith(folder) else 50
        return DiskUsage(100, used, 100 - used)

    monkeypatch.setattr(machine.disk, "usage", usage)


@pytest.mark.parametrize("percent", [0, 50, 75])
def test_nothing_is_due(machine, store, monkeypatch, percent):
    """The hour is another, the disk has room: diskMaxUsedSpaceRatio is not yet too much."""
    use(machine, monkeypatch, percent)
    assert machine.finish(store.cleaner.clean()) == 0
    assert len(store.log.row.starts) == 7


@pytest.mark.parametrize(("asked", "used"), [(1, 10), (10, 10), (95, 95), (100, 95)])
def test_limits_are_between_10_and_95_percent(machine, store, monkeypatch, asked, used):
    """Whatever diskMaxUsedSpaceRatio says, as with RocketMQ: one percent more is too much."""
    store.configuration.store.disk_max_used_space_ratio = asked
    store.configuration.store.clean_file_forcibly_enable = False
    use(machine, monkeypatch, used)
    assert machine.finish(store.cleaner.clean()) == 0
    use(machine, monkeypatch, used + 1)
    assert machine.finish(store.cleaner.clean()) == 4


def test_manual_rounds(machine, store, monkeypatch):
    """What is older than fileReservedTime goes, and with it what pointed there."""
    use(machine, monkeypatch, 50)
    store.clean_expired_files()
    machine.finish(store._service.clean())
    assert store.log.min_offset == 4 * 65536
    assert store.min_offset_in_queue("TopicA", 0) == 4
    assert store.max_offset_in_queue("TopicA", 0) == 6
    assert machine.disk.list_dir(f"{machine.root}/commitlog")[0] == f"{4 * 65536:020d}"
    assert store.record_at(0) is None


def test_index_files_go_with_the_log_that_they_lead_to(machine, message, monkeypatch):
    """And not before: one that leads to a record that is left stays."""
    store = machine.open(delete_when="", max_index_num=10)
    for number in range(50):
        machine.now_ms += 1000
        store.put_many([message(b"x" * 6000, KEYS=f"k{number}")], lambda results: None)
    machine.turn()
    before = machine.disk.list_dir(f"{machine.root}/index")
    machine.now_ms += 80 * HOUR * 1000
    store.put_many([message(b"x" * 60000)], lambda results: None)
    machine.turn()
    machine.clock.pump([0.5, 0])
    use(machine, monkeypatch, 50)
    store.clean_expired_files()
    machine.finish(store._service.clean())
    left = machine.disk.list_dir(f"{machine.root}/index")
    assert 0 < len(left) < len(before)
    assert left == before[-len(left) :]
    found = [bool(store.query("TopicA", f"k{n}", 9, 0, 1 << 62).records) for n in range(50)]
    assert found == [store.min_offset_in_queue("TopicA", 0) <= n for n in range(50)]


def test_manual_rounds_end(machine, store, monkeypatch):
    """What becomes due after twenty of them waits for the hour."""
    use(machine, monkeypatch, 50)
    store.clean_expired_files()
    assert [machine.finish(store.cleaner.clean()) for _ in range(20)] == [4] + [0] * 19
    machine.now_ms += 80 * HOUR * 1000
    assert machine.finish(store.cleaner.clean()) == 0
    store.clean_expired_files()
    assert machine.finish(store.cleaner.clean()) == 1


def test_a_filling_disk(machine, store, monkeypatch):
    """Above diskMaxUsedSpaceRatio at any hour; above 85 % young ones, too; never the last."""
    use(machine, monkeypatch, 80)
    assert machine.finish(store.cleaner.clean()) == 4
    use(machine, monkeypatch, 86)
    assert machine.finish(store.cleaner.clean()) == 1
    assert machine.finish(store.cleaner.clean()) == 0
    assert store.log.min_offset == 5 * 65536


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue"])
def test_either_disk_may_be_the_full_one(machine, store, monkeypatch, folder):
    """Log and queues may lie on two: where one of them is nearly full, young files go, too."""
    use(machine, monkeypatch, 90, folder)
    assert machine.finish(store.cleaner.clean()) == 5


@pytest.mark.parametrize("flushed", [65536, 65536 + 5, 2 * 65536 - 1])
def test_what_is_not_flushed_stays(machine, store, monkeypatch, flushed):
    """A file is not deleted before it was whole on the disk."""
    use(machine, monkeypatch, 99)
    store.log.flushed_offset = flushed
    assert machine.finish(store.cleaner.clean()) == 1


def test_the_newest_file_stays_when_the_log_ends_at_its_edge(machine, store, monkeypatch):
    """A slave whose master has just begun a new file: the log would have no end left."""
    use(machine, monkeypatch, 99)
    log = store.log
    log.flushed_offset = log.max_offset = 6 * 65536
    assert machine.finish(store.cleaner.clean()) == 5
    assert machine.finish(store.cleaner.clean()) == 0
    assert log.min_offset == 5 * 65536


@pytest.mark.parametrize(
    ("named", "count"), [((1, 0), 4), ((0, 1), 4), ((1, 23), 0), ((1,), 0), ((0,), 4)]
)
def test_the_hour(machine, store, monkeypatch, named, count):
    """deleteWhen names hours, separated by semicolons: in others nothing is deleted."""
    use(machine, monkeypatch, 50)
    now = datetime.fromtimestamp(machine.host.now_ms() / 1000).hour
    store.configuration.store.delete_when = ";".join(f"{(now + each) % 24:02d}" for each in named)
    assert machine.finish(store.cleaner.clean()) == count


def test_a_full_disk_refuses_puts(machine, store, message, monkeypatch):
    """Above 90 %; the ten-second check takes it back."""
    use(machine, monkeypatch, 91)
    machine.clock.advance(10)
    results = []
    store.put_many([message()], results.extend)
    assert results[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "91%" in store.why_not_writable()
    use(machine, monkeypatch, 90)
    machine.clock.advance(10)
    assert store.is_writable


def test_expired_queues(machine, store, message, monkeypatch):
    """On command: a queue of whose messages the log has none."""
    store.put_many([message(topic="New")], lambda results: None)
    machine.turn()
    assert store.clean_expired_queues() == 0
    use(machine, monkeypatch, 50)
    store.queues.queue("Old", 0).max_physical_offset = 100
    store.clean_expired_files()
    machine.finish(store._service.clean())
    assert store.clean_expired_queues() == 1


def test_ratio(machine, monkeypatch):
    """Whole percents, rounded up; -1 without the path."""
    assert disk_ratio(machine.disk, "/no/such/path") == -1
    monkeypatch.setattr(machine.disk, "usage", lambda path: DiskUsage(1000, 701, 199))
    assert disk_ratio(machine.disk, "/") == 0.78


def test_forced_deletions_are_said(machine, store, monkeypatch):
    """Which file, why, how old, which offsets; what has expired goes quietly."""
    said = []
    log = type("Log", (), {"info": lambda *_, **__: None, "error": lambda *_, **__: None})()
    log.warn = lambda text, **fields: said.append(text.format(**fields))
    monkeypatch.setattr("rmq_ha.server.store.log.clean.LogCleaner.log", log)
    told = []
    store.on_forced_deletion = lambda: told.append(store.min_offset_in_queue("TopicA", 0))
    use(machine, monkeypatch, 80)
    machine.finish(store._service.clean())
    assert (said, told, store.cleaner.forced_deletions) == ([], [], 0)
    use(machine, monkeypatch, 86)
    machine.finish(store._service.clean())
    assert store.cleaner.forced_deletions == 1
    assert told == [5]
    (line,) = said
    for part in (
        f"{4 * 65536:020d}",
        "86%",
        "85%",
        f"from {4 * 65536} to {5 * 65536}",
        "0.0 hours",
    ):
        assert part in line


def test_the_twentieth_round_is_one(machine, store, monkeypatch):
    """And what is due then goes."""
    use(machine, monkeypatch, 50)
    store.clean_expired_files()
    for _ in range(19):
        machine.finish(store.cleaner.clean())
    machine.now_ms += 80 * HOUR * 1000
    assert machine.finish(store.cleaner.clean()) == 1


def test_a_file_expires_with_its_last_hour(machine, store, monkeypatch):
    """Not a millisecond before; then it goes quietly, whatever the disk says."""
    use(machine, monkeypatch, 80)
    store.configuration.store.file_reserved_time = 100
    row = store.log.row
    written = machine.disk.mtime_ms(row.path(row.starts[3]))
    machine.now_ms += written + 100 * HOUR * 1000 - machine.host.now_ms() - 1
    due = sum(
        machine.host.now_ms() >= machine.disk.mtime_ms(row.path(start)) + 100 * HOUR * 1000
        for start in row.starts[:5]
    )
    assert due < 4
    assert machine.finish(store.cleaner.clean()) == due
    machine.now_ms += 1
    assert machine.finish(store.cleaner.clean()) == 4 - due
    assert store.cleaner.forced_deletions == 0


@pytest.mark.parametrize(("extra", "count"), [(0, 4), (10, 0)])
def test_extra_hours_are_kept_on_top(machine, store, monkeypatch, extra, count):
    """Where a log is kept longer than fileReservedTime says, never shorter."""
    use(machine, monkeypatch, 80)
    cleaner = LogCleaner(
        machine.host,
        store.configuration.store,
        store.log,
        f"{machine.root}/consumequeue",
        store.flags,
        CleaningLimits(extra_hours=extra),
    )
    assert machine.finish(cleaner.clean()) == count


def test_each_file_that_goes_before_its_time_is_said_and_counted(machine, store, monkeypatch):
    """Not only the first one of a round."""
    use(machine, monkeypatch, 86)
    store.configuration.store.file_reserved_time = 200
    assert machine.finish(store.cleaner.clean()) == 5
    assert store.cleaner.forced_deletions == 5


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue"])
def test_nothing_goes_before_its_time_at_the_limit(machine, store, monkeypatch, folder):
    """85 % on either disk is not above it."""
    use(machine, monkeypatch, 85, folder)
    store.configuration.store.file_reserved_time = 200
    assert machine.finish(store.cleaner.clean()) == 0


def test_a_round_takes_ten_files(machine, message, monkeypatch):
    """The rest has to wait: each deletion takes the disk a while."""
    store = machine.open(delete_when="")
    for _ in range(13):
        store.put_many([message(b"x" * 40000)], lambda results: None)
    machine.turn()
    machine.clock.advance(0.5)
    machine.clock.advance(0)
    use(machine, monkeypatch, 90)
    assert machine.finish(store.cleaner.clean()) == 10
    assert machine.finish(store.cleaner.clean()) == 2


def test_the_emptiest_directory_decides(machine, message, monkeypatch):
    """There the log can still grow: one that is full does not take files from the others."""
    store = machine.open(store_path_commit_log=f"{machine.root}/a,{machine.root}/b")
    used = {"a": 95, "b": 40}

    def usage(path):
        percent = used.get(path[-1], 30)
        return DiskUsage(100, percent, 100 - percent)

    monkeypatch.setattr(machine.disk, "usage", usage)
    assert store.cleaner.log_ratio() == 0.4
    store.cleaner.check_disk()
    assert store.is_writable


def test_a_full_disk_is_said_once(machine, store, monkeypatch):
    """And once that it has room again; a log that a full disk stopped then goes on."""
    said = []
    log = type("Log", (), {})()
    for level in ("info", "warn", "error"):
        setattr(log, level, lambda text, level=level, **_: said.append(level))
    monkeypatch.setattr("rmq_ha.server.store.log.clean.LogCleaner.log", log)
    store.log.fault, store.log.may_resume = "no room", True
    use(machine, monkeypatch, 91)
    for _ in range(2):
        store.cleaner.check_disk()
        assert (said, store.log.fault) == (["error"], "no room")
    use(machine, monkeypatch, 90)
    for _ in range(2):
        store.cleaner.check_disk()
        assert (said, store.log.fault) == (["error", "info"], None)


def test_a_stop_waits_for_the_cleaning(machine, store, monkeypatch):
    """A round that is at work would delete files of a store that is closed, or opened again."""
    use(machine, monkeypatch, 50)
    store.clean_expired_files()
    machine.worker.later = True
    every = store.configuration.store.clean_resource_interval / 1000
    machine.clock.pump([1] * int(max(every, 60) + 1))
    (cleaning,) = [call for call in machine.worker.queue if call[0] == store.cleaner._remove]
    machine.worker.queue.remove(cleaning)
    stopped = store.stop()
    for _ in range(9):
        machine.worker.work()
        machine.clock.advance(1)
    assert not machine.worker.queue
    assert machine.disk.exists(f"{machine.root}/abort")
    assert not stopped.called
    machine.worker.later = False
    machine.worker.queue.append(cleaning)
    machine.worker.work()
    machine.finish(stopped)
    assert not machine.disk.exists(f"{machine.root}/abort")
