"""Damage at rest: it is done to what is there, and it is known exactly what was done."""

from random import Random

from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.images import LogImage
from tests.sim_kit.damage import CUT, LOG, LOST, QUEUE, Damage, spoil

ROOT = "/store"
PATHS = {
    f"{ROOT}/commitlog/00000000000000004096": b"log" * 500,
    f"{ROOT}/consumequeue/TopicA/1/00000000000000001000": bytes(20) + b"u" * 60,
    f"{ROOT}/index/20260101000000000": b"index" * 9,
    f"{ROOT}/checkpoint": b"c" * 24,
}


def a_disk() -> SimDisk:
    disk = SimDisk(Random(1), lambda: 0)
    for path, data in PATHS.items():
        file = disk.open(path, 4096)
        file.pwrite(data, 0)
        file.sync()
    disk.open(f"{ROOT}/commitlog/00000000000000008192", 4096).sync()
    return disk


def test_every_kind_is_done():
    """One file is another afterwards, just where the damage says; a power loss changes nothing."""
    kinds = set()
    for seed in range(300):
        disk = a_disk()
        before = {path: disk.read_bytes(path) for path in disk.paths(ROOT)}
        done = spoil(disk, ROOT, Random(seed))
        assert done is not None
        kinds.add((done.part, done.form))
        after = {path: disk.read_bytes(path) for path in disk.paths(ROOT)}
        assert {path for path in before if after.get(path) != before[path]} <= {done.path}
        whole = before[done.path]
        if done.form == LOST:
            assert done.path not in after
        elif done.form == CUT:
            assert after[done.path] == whole[: done.start]
        else:
            assert whole[done.start : done.end] == done.good
            assert after[done.path] == whole[: done.start] + done.bad + whole[done.end :]
        disk = disk.crash(power=True)
        for path, data in after.items():
            if path == done.path:
                assert disk.read_bytes(path) == data
    assert len(kinds) == 16


def test_nothing_to_damage():
    """An empty store, and files that nobody has written to, are left alone."""
    assert spoil(SimDisk(Random(1), lambda: 0), ROOT, Random(1)) is None


def test_where_it_is():
    """Damage of a log has a range of physical offsets, damage of a queue spoils units."""
    log = Damage(LOG, "bit", f"{ROOT}/commitlog/00000000000000004096", 10, 11)
    assert log.log_range == (4106, 4107)
    assert not log.spoils_unit("TopicA", 1, 0)
    path = f"{ROOT}/consumequeue/TopicA/1/00000000000000001000"
    queue = Damage(QUEUE, "zero", path, 10, 25)
    assert queue.log_range == (0, 0)
    spoilt = [number for number in range(45, 60) if queue.spoils_unit("TopicA", 1, number)]
    assert spoilt == [50, 51]
    assert not queue.spoils_unit("TopicA", 2, 50)
    assert not Damage(QUEUE, LOST, path, 0, 1000).spoils_unit("TopicA", 1, 50)


def test_what_is_mended():
    """Bytes that are spoilt, in whatever part of the log they are shown."""
    path = f"{ROOT}/commitlog/00000000000000004096"
    damage = Damage(LOG, "zero", path, 10, 14, b"good", bytes(4))
    spoilt = b"0123456789" + bytes(4) + b"efgh"
    whole = b"0123456789goodefgh"
    for start in range(len(spoilt)):
        for end in range(start, len(spoilt) + 1):
            assert damage.mend(spoilt[start:end], 4096 + start) == whole[start:end]
    queue = Damage(QUEUE, "zero", f"{ROOT}/consumequeue/T/0/00000000000000000000", 10, 14)
    assert queue._replace(good=b"good", bad=bytes(4)).mend(spoilt, 0) == spoilt


def test_what_is_spoilt_still():
    """Not where other bytes were written since, of which a single one may be the same."""
    path = f"{ROOT}/commitlog/00000000000000004096"
    spoilt = b"0123456789" + bytes(4) + b"efgh"
    damage = Damage(LOG, "zero", path, 10, 14, b"good", bytes(4), (b"6789", b"efgh"))

    def image(data: bytes, start: int = 4096) -> LogImage:
        return LogImage(start, data, start + len(data), 65536)

    assert damage.is_in(image(spoilt))
    assert damage.is_in(image(spoilt[8:], 4104))
    assert not damage.is_in(image(spoilt.replace(bytes(4), b"anew")))
    assert not damage.is_in(image(spoilt.replace(b"9", b"8")))
    assert not damage.is_in(image(spoilt.replace(b"e", b"f")))
    assert not damage.is_in(image(spoilt[11:], 4107))
    assert not Damage(LOG, LOST, path, 0, 18).is_in(image(spoilt))
