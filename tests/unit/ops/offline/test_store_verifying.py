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
from rmq_ha.base.store_format.index import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.records import FoundRecord, records
from rmq_ha.ops.offline.verify import StoreFinding, verify

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


def found_in(root: Path) -> dict[str, StoreFinding]:
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
    """Whether the place is wrong or the size."""
    folder, messages = longest(root)
    places = list(units(folder))
    for number, part in ((2, 7), (3, 11), (5, 7)):
        file, at = places[number]
        change(file, at + part, b"\x7b")
    wrong = found_in(root)["queue-wrong"]
    assert wrong.place == f"{folder}, 2"
    assert wrong.text.startswith("3 units do not lead to their messages")
    assert wrong.text.endswith(f"the first to that at {messages[2].request.physical_offset}")


def test_messages_that_a_queue_lacks_are_counted_and_the_first_is_named(root: Path) -> None:
    folder, messages = longest(root)
    number = len(messages) - 2
    file, at = list(units(folder))[number]
    for later in sorted(folder.iterdir()):
        if later.name > file.name:
            later.unlink()
    change(file, at, bytes(file.stat().st_size - at))
    lacks = found_in(root)["queue-lacks"]
    assert lacks.place == f"{folder}, {number}"
    assert lacks.text == (
        f"it lacks 2 messages of the log, from {messages[number].request.physical_offset} on"
    )


def test_a_deleted_queue_lacks_only_what_came_after_it_was_deleted(root: Path) -> None:
    folder, messages = longest(root)
    shutil.rmtree(folder)
    middle = messages[len(messages) // 2].request.physical_offset
    assert f"lacks {len(messages)} messages" in found_in(root)["queue-lacks"].text
    (root / "config" / "deletedQueues.json").write_bytes(
        encode_beginnings({(folder.parent.name, int(folder.name)): middle})
    )
    left = sum(each.request.physical_offset >= middle for each in messages)
    assert f"lacks {left} messages" in found_in(root)["queue-lacks"].text


def test_an_index_may_be_as_full_as_its_file_and_lead_to_the_very_end(root: Path) -> None:
    """One item or one byte more than fits, and it is wrong."""
    file = next((root / "index").iterdir())
    data = file.read_bytes()
    header = IndexHeader.decode(data[:HEADER_SIZE])
    slots = header.hash_slot_count
    room = (len(data) - HEADER_SIZE - slots * SLOT_SIZE) // ITEM_SIZE
    end = opened(root).max_offset()
    for count, last, why in (
        (room, end, ""),
        (room + 1, end, f"{room + 1} items do not fit into its {len(data)} bytes"),
        (room, end + 1, f"it leads to {end + 1}, behind the end of the log"),
    ):
        new = header._replace(index_count=count, end_physical_offset=last)
        change(file, 0, new.encode())
        found = found_in(root)
        assert (found["index-wrong"].text if "index-wrong" in found else "") == why


def test_a_queue_that_the_log_has_no_message_of_is_looked_at_all_the_same(root: Path) -> None:
    """What it had was in files of the log that are gone, or lies behind the log's end."""
    folder = root / "consumequeue" / "TopicB" / "77"
    folder.mkdir()
    end = opened(root).max_offset()
    size = next(units(longest(root)[0]))[0].stat().st_size
    lost = b"".join(UNIT.pack(end + at, 100, 0) for at in (0, 100))
    (folder / ("0" * 20)).write_bytes(lost.ljust(size, b"\0"))
    ahead = found_in(root)["queue-ahead"]
    assert (ahead.place, ahead.is_fault) == (f"{folder}, 0", False)
    assert ahead.text == "its last 2 units lead behind the end of the log"
    (folder / ("0" * 20)).write_bytes(lost[:-7])
    assert found_in(root)["queue-files"].place == str(folder)
