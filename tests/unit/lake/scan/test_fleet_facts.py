"""What one scan keeps of a store: each table row by row, and where the next scan begins."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.lake.scan.fleet.facts import (
    FINDINGS,
    HOUR,
    IDS,
    SUMS,
    WINDOWS,
    ReplicaFacts,
    State,
    replicas_in,
)
from rmq_ha.lake.scan.fleet.scanning import digest_of
from rmq_ha.lake.scan.replica.settings import StoreAt, opened
from tests.kits import bare_stores
from tests.kits.bare_stores import ordinary
from tests.unit.lake.scan.fleet_kit import NOW, facts_of, flip
from tests.unit.lake.scan.parts_kit import log_of, store_at
from tests.unit.lake.spark.golden_stores import java_store

FILE = 8192
WINDOW = 256
Row = dict[str, Any]


def message(at: int, **more: Any) -> Row:
    """Born in the first hour, stored a second later."""
    key = f"UNIQ_KEY\x01{at:032d}"
    return {
        "queue_offset": at, "body": b"%04d" % at, "born_timestamp": 1000 * at,
        "store_timestamp": 1000 * at + 1000, "properties_string": key, **more,
    }  # fmt: skip


ROWS = [message(at) for at in range(40)]
SIZE = len(log_of(ROWS[0]))


def store_of(folder: Path, rows: list[Row], harm: tuple[int, ...] = ()) -> Path:
    """:param harm: places of bytes that are other ones."""
    data = bytearray(log_of(*rows))
    for at in harm:
        data[at] ^= 0x40
    return store_at(folder, data, FILE)


def scanned(folder: Path, store: Path, **given: Any) -> tuple[State, ReplicaFacts]:
    state = facts_of(store, folder / "facts", window=WINDOW, **given)
    return state, ReplicaFacts(f"{folder}/facts/b-{state.broker_id}", state)


def spans(low: int, high: int) -> list[tuple[int, int]]:
    cuts = [low, *range((low // WINDOW + 1) * WINDOW, high, WINDOW), high]
    return list(pairwise(cuts))


def test_a_state_says_whose_it_is_and_how_far_it_goes(tmp_path: Path) -> None:
    read: list[int] = []
    store = store_of(tmp_path / "store", ROWS[:10])
    state, replica = scanned(tmp_path, store, broker_id=3, rest=read.append)
    end = 10 * SIZE // WINDOW * WINDOW
    assert (state.broker, state.broker_id, state.place, state.host) == (
        "b",
        3,
        str(store),
        "host-1",
    )
    assert (state.window, state.low, state.end, state.high) == (WINDOW, 0, end, 10 * SIZE)
    assert state.scanned_at == NOW
    assert read == [end, 10 * SIZE - end]
    log = opened(StoreAt(str(store)), None).log
    rows = replica.table(WINDOWS).to_pylist()
    assert rows == [
        {"low": low, "high": high, "digest": digest_of(log, low, high), "readAt": NOW}
        for low, high in spans(0, 10 * SIZE)
    ]
    kinds = [(file.kind, file.is_tail, file.rows) for file in state.files]
    whole = end // WINDOW
    assert [kind for kind in kinds if kind[0] == WINDOWS] == [
        (WINDOWS, False, whole),
        (WINDOWS, True, 1),
    ]
    assert all(f"-0-{10 * SIZE}-{NOW}.parquet" in file.name or file.is_tail for file in state.files)


@pytest.mark.parametrize(("broker_id", "role"), [(0, "master"), (1, "slave")])
def test_tables_of_the_broker_are_kept_under_the_name_that_was_given(
    tmp_path: Path, broker_id: int, role: str
) -> None:
    store = java_store("clean", tmp_path)
    facts_of(store, tmp_path / "facts", "b", broker_id)
    folder = tmp_path / "facts" / f"b-{broker_id}" / "snapshots"
    (file,) = folder.glob("*/*.json.gz")
    assert file.name == f"{role}-b-{broker_id}.json.gz"


def test_the_next_scan_reads_what_was_not_whole_and_what_is_new(tmp_path: Path) -> None:
    read: list[int] = []
    store = store_of(tmp_path / "store", ROWS[:1])
    state, _ = scanned(tmp_path, store, rest=read.append)
    assert (state.end, read) == (0, [SIZE]), "no window is whole yet"
    for count, start in ((10, 0), (10, 10 * SIZE), (17, 10 * SIZE), (30, 17 * SIZE)):
        read.clear()
        start = start // WINDOW * WINDOW
        store_of(store, ROWS[:count])
        state, replica = scanned(tmp_path, store, rest=read.append, now=NOW + count, share=0)
        assert sum(read) == count * SIZE - start
        assert state.end == count * SIZE // WINDOW * WINDOW
        rows = sorted((row["low"], row["high"]) for row in replica.table(WINDOWS).to_pylist())
        assert rows == spans(0, count * SIZE)
        (summed,) = _added(replica)
        assert summed[3:5] == (count, count * SIZE)
    read.clear()
    scanned(tmp_path, store, rest=read.append, again=True)
    assert sum(read) == 30 * SIZE


def test_a_share_of_the_old_windows_is_read_again_the_oldest_first(tmp_path: Path) -> None:
    """Damage behind the last scan was never seen."""
    store = store_of(tmp_path / "store", ROWS)
    state, replica = scanned(tmp_path, store)
    whole = replica.table(WINDOWS, tail=False).num_rows
    assert (state.oldest_look, state.read_again) == (NOW, 0)
    flip(sorted((store / "commitlog").iterdir())[0], 3 * SIZE + 88)
    found = 0
    for number in range(1, 5):
        read: list[int] = []
        state, replica = scanned(tmp_path, store, now=NOW + number, share=4, rest=read.append)
        assert state.read_again == -(-whole // 4)
        assert sum(read) <= (state.read_again + 2) * WINDOW
        rows = replica.table(WINDOWS).to_pylist()
        assert sorted((row["low"], row["high"]) for row in rows) == spans(0, 40 * SIZE)
        assert state.oldest_look == min(row["readAt"] for row in rows)
        codes = [one.code for one in replica.findings()]
        found = found or number * ("WINDOW_CHANGED" in codes)
        assert codes == ["WINDOW_CHANGED", "BODY_CRC"] * bool(found)
        (summed,) = _added(replica)
        assert summed[3] == 40
    assert (state.oldest_look, found) == (NOW + 1, 1)
    files = {path.name for path in (tmp_path / "facts" / "b-0").glob("*.parquet")}
    assert len(files) <= 2 * len(state.files)
    state, _ = scanned(tmp_path, store, now=NOW + 9, share=0)
    assert (state.oldest_look, state.read_again) == (NOW + 1, 0)


def test_windows_that_retention_took_are_forgotten(tmp_path: Path) -> None:
    store = bare_stores.store_of(ordinary(90), log_size=FILE).save(tmp_path / "store")
    scanned(tmp_path, store)
    first, *_ = sorted((store / "commitlog").iterdir())
    first.unlink()
    state, replica = scanned(tmp_path, store, now=NOW + 1, share=1)
    assert min(row["low"] for row in replica.table(WINDOWS).to_pylist()) == state.low == FILE
    assert state.oldest_look == NOW + 1


@pytest.mark.parametrize("name", ["state.json", "windows", "findings", "sums"])
def test_facts_that_were_changed_are_refused(tmp_path: Path, name: str) -> None:
    """A digest or a finding that differs by one bit would decide wrongly."""
    store = store_of(tmp_path / "store", ROWS, harm=(3 * SIZE + 88,))
    facts = tmp_path / "facts"
    scanned(tmp_path, store)

    def faults() -> list[str]:
        (replica,) = replicas_in(str(facts))
        return [replica.fault] if replica.fault else replica.faults((WINDOWS, SUMS, FINDINGS))

    for path in (facts / "b-0").glob(f"{name}*"):
        before = path.read_bytes()
        for at in range(40, len(before), 67):
            flip(path, at)
            (fault,) = faults()
            assert re.search("changed or damaged|cannot be read|format", fault)
            path.write_bytes(before)
    assert faults() == []
    shutil.copytree(facts / "b-0", facts / "b-1")
    sound, copied = replicas_in(str(facts))
    assert (sound.fault, copied.state.broker_id) == ("", 1)
    assert "was copied or renamed" in copied.fault


def test_two_brokers_whose_names_give_one_directory_are_refused(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", ROWS)
    facts_of(store, tmp_path / "facts", "a/b", window=WINDOW)
    with pytest.raises(WrongUsage, match="broker a/b, id 0"):
        facts_of(store, tmp_path / "facts", "a:b", window=WINDOW)


def _added(replica: ReplicaFacts) -> list[tuple[Any, ...]]:
    """Rows of whole windows and of the tail are of the same queues: as who reads them adds up."""
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in replica.table(SUMS).to_pylist():
        *key, n, size, bad, least, most = row.values()
        had = sums.setdefault(tuple(key), [0, 0, 0, least, most])
        had[:3] = had[0] + n, had[1] + size, had[2] + bad
        had[3:] = min(had[3], least), max(had[4], most)
    return [(*key, *numbers) for key, numbers in sorted(sums.items())]


def test_a_log_that_ends_with_a_window_has_no_tail(tmp_path: Path) -> None:
    rows = [message(at, body=b"x" * (WINDOW - SIZE + 4)) for at in range(3)]
    assert len(log_of(rows[0])) == WINDOW
    state, _ = scanned(tmp_path, store_of(tmp_path / "store", rows))
    assert (state.end, state.high) == (3 * WINDOW, 3 * WINDOW)
    assert not any(file.is_tail for file in state.files)


def test_messages_are_summed_by_queue_and_hour_of_birth(tmp_path: Path) -> None:
    """What is in no queue is none of them; bodies that are damaged are counted."""
    rows = [
        message(0), message(1, queue_id=1), message(2, topic="U"), message(3),
        message(4, born_timestamp=2 * HOUR + 7), message(5, sys_flag=TRANSACTION_PREPARED),
        message(6), message(7),
    ]  # fmt: skip
    store = store_of(tmp_path / "store", rows, harm=(3 * SIZE + 88,))
    _, replica = scanned(tmp_path, store)
    found = _added(replica)
    assert [row[:6] for row in found] == [
        ("T", 0, 0, 4, 4 * SIZE, 1),
        ("T", 0, 2, 1, SIZE, 0) if found[1][2] == 2 else ("T", 0, 2 * HOUR, 1, SIZE, 0),
        ("T", 1, 0, 1, SIZE, 0),
        ("U", 0, 0, 1, SIZE, 0),
    ]
    assert found[0][7] > found[0][6]


@pytest.mark.parametrize("ids", [False, True])
def test_hashes_of_ids_are_kept_if_somebody_asks(tmp_path: Path, ids: bool) -> None:
    store = store_of(tmp_path / "store", [*ROWS[:9], {**ROWS[3], "queue_offset": 9}])
    state, replica = scanned(tmp_path, store, ids=ids)
    assert (IDS in {file.kind for file in state.files}) is ids
    rows = sorted((row["place"], row["hash"]) for row in replica.table(IDS).to_pylist())
    assert [place for place, _ in rows] == [at * SIZE for at in range(10)] * ids
    if ids:
        assert rows[3][1] == rows[9][1]
        assert len({number for _, number in rows}) == 9


def test_what_is_wrong_is_kept_with_its_place(tmp_path: Path) -> None:
    """In windows that are whole, and in the tail; records behind a gap are read all the same."""
    harm = (2 * SIZE + 4, 5 * SIZE + 88, 12 * SIZE + 88)
    store = store_of(tmp_path / "store", ROWS[:13], harm)
    _, replica = scanned(tmp_path, store)
    found = sorted((each.physical_offset or 0, each.code) for each in replica.findings())
    assert found == [
        (2 * SIZE, "RECORD_UNREADABLE"), (5 * SIZE, "BODY_CRC"), (12 * SIZE, "BODY_CRC"),
    ]  # fmt: skip
    assert {each.broker for each in replica.findings()} == {str(store)}
    (summed,) = _added(replica)
    assert summed[3:6] == (12, 12 * SIZE, 2)
    tails = [file.is_tail for file in replica.state.files if file.kind == FINDINGS]
    assert tails == [False, True]


def test_holes_and_what_checks_say_are_kept_anew_by_each_scan(tmp_path: Path) -> None:
    """They are of the whole store: what was mended meanwhile is not told of again."""
    store = java_store("clean", tmp_path)
    file = store / "commitlog" / f"{65536:020}"
    data = file.read_bytes()
    file.unlink()
    queue = store / "consumequeue" / "TopicB" / "0"
    kept = {path.name: path.read_bytes() for path in queue.iterdir()}
    for path in queue.iterdir():
        path.unlink()

    def codes(now: int, **given: Any) -> list[str]:
        state = facts_of(store, tmp_path / "facts", now=now, **given)
        return sorted(each.code for each in ReplicaFacts(f"{tmp_path}/facts/b-0", state).findings())

    checks = frozenset({"queues"})
    said = codes(NOW, checks=checks)
    assert said.count("LOG_HOLE") == 1
    assert said.count("CQ_FORGOTTEN") == 1
    assert codes(NOW + 1) == ["LOG_HOLE"], "nobody asked for queues"
    file.write_bytes(data)
    for name, units in kept.items():
        (queue / name).write_bytes(units)
    assert "LOG_HOLE" not in codes(NOW + 2, checks=checks)
    text = (tmp_path / "facts" / "b-0" / "state.json").read_text()
    assert json.loads(text)["scannedAt"] == NOW + 2
