"""Files of stores are read the same wherever they are."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host import files as module
from rmq_ha.base.host.files import (
    ArrowFiles,
    LocalFiles,
    files_of,
    identity_of,
    is_same_directory,
    remove,
)
from rmq_ha.base.store_files import Files
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.store_format.commitlog import encode_blank
from rmq_ha.lake.scan.store.directory import StoreDirectory, scan
from tests.kits.descriptors import open_files
from tests.sim_kit.big_records import Shape
from tests.sim_kit.big_store import write_big_store
from tests.unit.lake.spark.golden_stores import read_records

MIB = 1 << 20


@pytest.fixture(params=["local", "arrow", "pickled"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Callable[[str], str]]:
    """How to read, and what a path there is called."""
    if request.param == "local":
        return LocalFiles(), lambda name: str(tmp_path / name)
    files = ArrowFiles(filesystem=SubTreeFileSystem(str(tmp_path), LocalFileSystem()))
    if request.param == "pickled":
        files = pickle.loads(pickle.dumps(files))
    return files, lambda name: name


def test_windows_begin_and_end_anywhere(
    place: tuple[Files, Callable[[str], str]], tmp_path: Path
) -> None:
    """Page limits do not matter; behind the end there is nothing."""
    files, path = place
    data = bytes(range(256)) * 12000
    (tmp_path / "f").write_bytes(data)
    for offset, length in [
        (0, 10),
        (1, 4096),
        (4095, 2),
        (5000, 2 * MIB),
        (5000 + 2 * MIB, 2 * MIB),
        (len(data) - 3, 100),
        (len(data), 5),
        (len(data) + 9000, 5),
        (7, 0),
    ]:
        window = files.window(path("f"), offset, length)
        assert bytes(window) == data[offset : offset + length]
    assert files.read(path("f"), 10, 5) == data[10:15]
    assert files.read(path("f"), len(data) - 1, 5) == data[-1:]
    assert files.read(path("f")) == data


def test_what_is_not_there(place: tuple[Files, Callable[[str], str]], tmp_path: Path) -> None:
    """Files raise, directories are empty."""
    files, path = place
    for read in (files.read, lambda name: files.window(name, 0, 5)):
        with pytest.raises(FileNotFoundError):
            read(path("nothing"))
    assert files.list(path("nothing")) == []
    (tmp_path / "f").write_bytes(b"1")
    assert files.list(path("f")) == []


def test_directories_are_listed_by_name(
    place: tuple[Files, Callable[[str], str]], tmp_path: Path
) -> None:
    """With sizes and times, which a search by time needs."""
    files, path = place
    (tmp_path / "d" / "inner").mkdir(parents=True)
    for name in ("b", "a"):
        (tmp_path / "d" / name).write_bytes(name.encode() * 3)
        os.utime(tmp_path / "d" / name, (5, 5))
    found = files.list(path("d"))
    assert [(entry.name, entry.size, entry.is_directory) for entry in found] == [
        ("a", 3, False),
        ("b", 3, False),
        ("inner", 0, True),
    ]
    assert found[0].modified_ms == 5000


def test_a_store_reads_the_same_through_any_file_system(
    place: tuple[Files, Callable[[str], str]], tmp_path: Path
) -> None:
    """Log, queues and tables; and as a process gets it that did not open it."""
    files, path = place
    shape = Shape(2 * MIB, body=300, topics=2, queues=2, file_size=MIB)
    write_big_store([tmp_path / "store"], shape)
    store = pickle.loads(pickle.dumps(StoreDirectory("x", files, path("store"))))
    found = [one for split in store.splits(300_000) for one in scan(store, split)]
    offsets = [place for one in found for place in one.physical_offset.tolist()]
    assert offsets == sorted(set(offsets))
    assert all(one.crc_ok().all() for one in found)
    assert sum(store.queue(*queue).max_offset for queue in store.topics_on_disk()) == len(offsets)
    queue = store.queue(*store.topics_on_disk()[1])
    units = queue.units(0, 50)
    assert len(read_records(store, units["offset"], units["size"])) == 50
    assert store.topics() is not None
    assert (store.checkpoint() or CheckpointTimes()).physic_msg_timestamp


def test_places_are_paths_or_uris(tmp_path: Path) -> None:
    """What nobody here can open is refused, with what to do."""
    (tmp_path / "a b").write_bytes(encode_blank(8))
    for text in (str(tmp_path), str(tmp_path) + "/", f"file://{tmp_path}/"):
        files, path = files_of(text)
        assert isinstance(files, LocalFiles)
        assert path == str(tmp_path)
        assert [entry.name for entry in module.listing(text)] == ["a b"]
    assert module.read_small(f"file://{tmp_path}/a%20b") == encode_blank(8)
    assert [files_of(root)[1] for root in ("/", "//", "file:///")] == ["/"] * 3
    for text in ("viewfs://cluster/store", "nonsense://x/y"):
        with pytest.raises(CannotDecide, match="have Spark copy it"):
            files_of(text)


def test_a_uri_is_opened_by_whoever_knows_it_and_once(tmp_path: Path) -> None:
    """Beside its path in there; also in a process that got it pickled."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"content")
    files = pickle.loads(pickle.dumps(ArrowFiles(f"file://{tmp_path}/d")))
    assert files.read(f"{tmp_path}/d/f") == b"content"
    assert files.read(f"{tmp_path}/d/f", 3) == b"tent"
    assert files.read(f"{tmp_path}/d/f", 3, 2) == b"te"
    assert [entry.name for entry in files.list(f"{tmp_path}/d")] == ["f"]
    assert files.filesystem is files.filesystem


def test_what_spark_has_copied_here_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark.SparkFiles, "get", lambda name: str(tmp_path / name))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "f").write_bytes(b"x")
    assert [entry.name for entry in module.listing(f"{module.STAGED}store")] == ["f"]


def test_a_path_is_one_of_this_directory_and_a_uri_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert module.absolute("store") == str(tmp_path / "store")
    assert module.absolute("a/b:c") == str(tmp_path / "a" / "b:c")
    for whole in ("/store", "s3://bucket/store", "file:///store", f"{module.STAGED}store"):
        assert module.absolute(whole) == whole


def test_the_disk_reads_the_window_that_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is looked at; where big ones of one file follow each other only."""
    told: list[tuple[int, int]] = []
    advise = os.posix_fadvise

    def note(descriptor: int, offset: int, length: int, advice: int) -> None:
        advise(descriptor, offset, length, advice)
        assert advice == os.POSIX_FADV_WILLNEED
        told.append((offset, length))

    monkeypatch.setattr(os, "posix_fadvise", note)
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(9 * MIB))
    files, a, b = LocalFiles(), str(tmp_path / "a"), str(tmp_path / "b")
    files.window(a, 5, MIB)
    assert not told
    files.window(a, 5 + MIB, MIB)
    files.window(a, 6 + 3 * MIB // 2, MIB)  # begins in the one before
    assert told == [(5 + 2 * MIB, MIB), (6 + 5 * MIB // 2, MIB)]
    files.window(a, 6 + 3 * MIB // 2, MIB)  # the same again
    files.window(a, 6 * MIB, MIB)  # leaves a gap
    files.window(b, 7 * MIB, MIB)  # another file
    files.window(b, 8 * MIB, MIB - 1)  # a small one
    assert len(told) == 2


@pytest.mark.parametrize("is_here", [True, False])
def test_what_is_put_is_there_with_its_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    """On this machine and in any file system; again, in the place of what was there."""
    if is_here:
        top = f"file://{tmp_path}/"
    else:
        files = ArrowFiles(filesystem=SubTreeFileSystem(str(tmp_path), LocalFileSystem()))
        monkeypatch.setattr(module, "files_of", lambda place: (files, place))
        top = ""
    for data in (b"one", b"two"):
        module.put(f"{top}new/er/f", data)
        assert (tmp_path / "new" / "er" / "f").read_bytes() == data


def test_of_many_files_few_stay_open(tmp_path: Path) -> None:
    """A store has thousands of them."""
    for number in range(40):
        (tmp_path / str(number)).write_bytes(b"%d" % number)
    files = ArrowFiles(filesystem=SubTreeFileSystem(str(tmp_path), LocalFileSystem()))

    def opened() -> int:
        return sum(str(tmp_path) in path for path in open_files())

    for number in range(40):
        assert files.read(str(number)) == b"%d" % number
        assert opened() <= 16
    assert opened() > 1  # those that are read again need not be opened again


def test_a_directory_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not empty, it is unknown."""

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(CannotDecide, match="Permission denied"):
        LocalFiles().list(str(tmp_path))


def test_a_directory_that_cannot_be_is_named(place: tuple[Files, Callable[[str], str]]) -> None:
    """Whoever reads it, root, too: no system has such a name."""
    files, path = place
    with pytest.raises(CannotDecide, match=r"x{300} cannot be (listed|read)"):
        files.list(path("x" * 300))


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads meanwhile gets the old content or the new one; a failure leaves nothing behind."""
    path = tmp_path / "new" / "f"
    module.write_atomic(str(path), b"one")
    module.write_atomic(str(path), b"two")
    assert path.read_bytes() == b"two"

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        module.write_atomic(str(path), b"three")
    monkeypatch.undo()
    assert [entry.name for entry in path.parent.iterdir()] == ["f"]
    assert path.read_bytes() == b"two"


def test_a_link_to_a_masters_store_is_no_slave(tmp_path: Path) -> None:
    """ "Safe to fail over: yes" was said of a master and a link to itself."""
    for name in ("a/commitlog", "b/commitlog", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "c/commitlog").symlink_to(tmp_path / "a/commitlog")
    master = str(tmp_path / "a")
    for other in ("a/", "link", "b/../a", "c"):
        assert is_same_directory(master, str(tmp_path / other))
    assert is_same_directory(f"file://{master}", master)
    assert not is_same_directory(master, str(tmp_path / "b"))
    assert not is_same_directory(master, str(tmp_path / "none"))
    assert is_same_directory("s3://x/a/", "s3://x/a")


def test_an_identity_is_that_of_the_directory_a_path_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert identity_of(str(tmp_path / "a")) == identity_of(f"file://{tmp_path}/b") != ""
    assert identity_of(str(tmp_path / "a")) != identity_of(str(tmp_path))
    assert identity_of(str(tmp_path / "none")) == identity_of("s3://x/a") == ""


def test_a_file_is_removed_once_and_by_any_file_system(tmp_path: Path) -> None:
    for place in (str(tmp_path / "a"), f"file://{tmp_path}/a"):
        (tmp_path / "a").touch()
        remove(place)
        remove(place)
        assert not (tmp_path / "a").exists()
