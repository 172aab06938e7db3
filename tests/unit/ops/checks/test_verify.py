"""What is said of a store: how many messages are concerned, and where the edges are."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rmq_ha.base.host.files import files_of
from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, encode_blank, encode_record
from rmq_ha.base.store_format.consumequeue import UNIT, UNIT_SIZE
from rmq_ha.base.store_format.deleted_queues import encode_beginnings
from rmq_ha.base.store_format.index import HEADER_SIZE, IndexHeader
from rmq_ha.ops.checks.verify import verify
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.records import FoundRecord, records
from rmq_ha.ops.offsets.findings import Finding

FIXTURES = Path(__file__).parents[3] / "fixtures" / "store"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that Java's broker stopped in order; only to copy from."""
    scratch = tmp_path_factory.mktemp("java")
    shutil.unpack_archive(FIXTURES / "clean.tar.gz", scratch)
    return next(path.parent for path in scratch.rglob("checkpoint"))


@pytest.fixture
def root(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "store"))


def opened(root: Path) -> StoreFiles:
    return StoreFiles(str(root), *files_of(str(root)), damaged=True)


def found_in(root: Path) -> dict[str, Finding]:
    return {finding.code: finding for finding in verify(opened(root)).findings}


def of_queue(root: Path, topic: str, queue_id: int) -> list[FoundRecord]:
    return [
        found
        for found in records(opened(root))
        if isinstance(found, FoundRecord)
        and (found.request.topic, found.request.queue_id) == (topic, queue_id)
    ]


def longest(root: Path) -> tuple[Path, list[FoundRecord]]:
    """The queue with most messages: its directory, and what the log says of it."""
    store = opened(root)
    key = max(store.topics_on_disk(), key=lambda key: store.queue(*key).max_offset)
    return root / "consumequeue" / key[0] / str(key[1]), of_queue(root, *key)


def units(folder: Path) -> Iterator[tuple[Path, int]]:
    """Where each of its units is."""
    for file in sorted(folder.iterdir()):
        for at in range(0, file.stat().st_size, UNIT_SIZE):
            yield file, at


def change(file: Path, at: int, data: bytes) -> None:
    whole = bytearray(file.read_bytes())
    whole[at : at + len(data)] = data
    file.write_bytes(whole)


def test_a_step_is_taken_after_each_thousandth_message(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "long" / "commitlog"
    folder.mkdir(parents=True)
    host, data = Address.parse("10.0.0.1", 10911), b""
    for number in range(2000):
        head = (0, 0, 3, 0, number, len(data), 0, 1, host, 2, host, 0, 0)
        data += encode_record(Record(*head, b"x", "T", ""))
    (folder / ("0" * 20)).write_bytes(data + encode_blank(8))
    for store, messages in ((root, 189), (folder.parent, 2000)):
        steps = list[None]()
        answer = verify(opened(store), partial(steps.append, None))
        assert answer.records == messages
        assert len(steps) == messages // 1000


def test_units_that_lead_elsewhere_are_counted_and_the_first_is_named(root: Path) -> None:
    """Adjacent ones together; a size and a hash are told apart from a place."""
    folder, messages = longest(root)
    places = list(units(folder))
    for number, part in ((2, 7), (3, 7), (5, 11), (6, 19)):
        file, at = places[number]
        change(file, at + part, b"\x7b")
    found = found_in(root)
    wrong = found["CQ_OFFSET"]
    assert (wrong.topic, wrong.queue_id) == (folder.parent.name, int(folder.name))
    assert (wrong.queue_offset, wrong.physical_offset) == (2, messages[2].request.physical_offset)
    assert wrong.detail.startswith("Entry 2 is wrong, as are the 1 behind it in the queue. ")
    assert wrong.msg_id == messages[2].request.uniq_key
    assert found["CQ_SIZE"].queue_offset == 5
    assert found["CQ_TAGS"].queue_offset == 6


def test_messages_that_a_queue_lacks_are_counted_and_the_first_is_named(root: Path) -> None:
    folder, messages = longest(root)
    number = len(messages) - 2
    file, at = list(units(folder))[number]
    for later in sorted(folder.iterdir()):
        if later.name > file.name:
            later.unlink()
    change(file, at, bytes(file.stat().st_size - at))
    lacks = found_in(root)["CQ_MISSING"]
    assert (lacks.queue_offset, lacks.actual) == (number, "no entry")
    assert lacks.physical_offset == messages[number].request.physical_offset
    assert ", as are the 1 behind it" in lacks.detail


def test_a_deleted_queue_lacks_only_what_came_after_it_was_deleted(root: Path) -> None:
    folder, messages = longest(root)
    shutil.rmtree(folder)
    middle = messages[len(messages) // 2].request.physical_offset
    gone = found_in(root)["CQ_FORGOTTEN"]
    assert (gone.severity, gone.detail.split()[0]) == ("ERROR", str(len(messages)))
    (root / "config" / "deletedQueues.json").write_bytes(
        encode_beginnings({(folder.parent.name, int(folder.name)): middle})
    )
    left = sum(each.request.physical_offset >= middle for each in messages)
    assert found_in(root)["CQ_FORGOTTEN"].detail.split()[0] == str(left)


def test_an_index_that_does_not_fit_its_file_is_found(root: Path) -> None:
    """Also one whose header says another end than its last item."""
    file = sorted((root / "index").iterdir())[0]
    data = file.read_bytes()
    header = IndexHeader.decode(data[:HEADER_SIZE])
    for new, code in (
        (header._replace(end_physical_offset=header.end_physical_offset + 1), "INDEX_HEADER"),
        (header._replace(index_count=header.index_count - 1), "INDEX_HOLE"),
    ):
        change(file, 0, new.encode())
        assert code in found_in(root)
    file.write_bytes(data[:-1])
    assert found_in(root)["INDEX_UNREADABLE"].severity == "ERROR"
    file.write_bytes(data)
    assert found_in(root).keys() <= {"TAIL_RESIDUE"}


def test_a_queue_that_the_log_has_no_message_of_is_looked_at_all_the_same(root: Path) -> None:
    """What it had was in files of the log that are gone, or lies behind the log's end."""
    folder = root / "consumequeue" / "TopicB" / "77"
    folder.mkdir()
    end = opened(root).max_offset()
    size = next(units(longest(root)[0]))[0].stat().st_size
    lost = b"".join(UNIT.pack(end + at, 100, 0) for at in (0, 100))
    (folder / ("0" * 20)).write_bytes(lost.ljust(size, b"\0"))
    found = found_in(root)
    torn = found["TORN_TAIL"]
    assert (torn.severity, torn.topic, torn.queue_id, torn.queue_offset) == (
        "ERROR",
        "TopicB",
        77,
        1,
    )
    assert (torn.expected, torn.actual) == (
        f"records up to {end + 200}",
        f"records up to {end}",
    )
    (root / "abort").touch()
    assert found_in(root)["TORN_TAIL"].severity == "WARN"
    (folder / ("0" * 20)).write_bytes(lost[:-7])
    assert found_in(root)["CQ_FILE"].queue_id == 77


def test_a_body_that_was_changed_is_told_apart_from_a_record_that_is_none(root: Path) -> None:
    """Its entries are looked up all the same."""
    folder, messages = longest(root)
    first, second = messages[1], messages[3]
    log = sorted((root / "commitlog").iterdir())[0]
    for found, at in ((first, 88), (second, 4)):
        change(log, found.request.physical_offset + at, b"\x7b\x7b")
    told = found_in(root)
    body = told["BODY_CRC"]
    assert body.physical_offset == first.request.physical_offset
    assert (body.msg_id, body.topic) == (first.request.uniq_key, folder.parent.name)
    assert told["RECORD_UNREADABLE"].physical_offset == second.request.physical_offset
    assert told["CQ_DANGLING"].queue_offset == 3
