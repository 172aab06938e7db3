"""Snapshots that are kept: their files, which of them are compared, the command that makes them."""

import gzip
import json
import os
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import CannotDecide
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.model import Fact, Snapshot
from rmq_ha.ops.offsets.pairing import Pairing, predict
from rmq_ha.ops.offsets.snapshot_history import (
    append,
    append_pairings,
    decode,
    encode,
    kept_pairing,
    name_of,
    snapshot_files,
)
from tests.kits.bare_stores import ordinary, store_of
from tests.unit.lake.spark.golden_stores import java_store

ALL = frozenset(model.NUMBERS + model.TEXTS)
NUMBERS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.none() | st.text(st.characters(codec="utf-8"), max_size=8)
FACTS = st.builds(
    Fact,
    st.sampled_from(sorted(ALL)),
    TEXTS,
    TEXTS,
    st.none() | st.integers(0, (1 << 31) - 1),
    NUMBERS,
    NUMBERS,
    TEXTS,
)


@given(st.lists(FACTS, min_size=1, max_size=5), st.booleans(), TEXTS, st.none() | st.just(3))
def test_a_file_gives_back_what_was_kept(
    facts: list[Fact], is_resting: bool, broker: str | None, number: int | None
) -> None:
    taken = Snapshot("p", broker, number, "SLAVE", is_resting, 5, 7, ALL, tuple(facts))
    assert decode(encode(taken), "x") == taken


@given(st.binary(max_size=60))
def test_a_file_of_something_else_is_named(data: bytes) -> None:
    with pytest.raises(CannotDecide, match="some/file is no snapshot"):
        decode(data, "some/file")


def snapshot(role: str, at: int, offset: int) -> Snapshot:
    facts = (Fact(model.OFFSET, "t", "g", 0, offset), model.queue_fact("t", 0, 0, 100))
    return Snapshot(role, "b/../x", int(role == "SLAVE"), role, False, at, at + 10, ALL, facts)


def test_names_stay_below_the_directory() -> None:
    assert name_of(snapshot("SLAVE", 5, 1)) == "ts=5/slave-b_.._x-1.json.gz"


def fill(directory: Path, *moments: tuple[str, int, int]) -> str:
    for role, at, offset in moments:
        append(snapshot(role, at, offset), str(directory))
    return str(directory)


MASTER, SLAVE = "SYNC_MASTER", "SLAVE"


def test_the_newest_slave_between_samples_of_its_master(tmp_path: Path) -> None:
    past = fill(
        tmp_path,
        *((MASTER, 1_000, 10), (SLAVE, 2_000, 10)),
        *((MASTER, 61_000, 20), (SLAVE, 62_000, 20)),
        *((MASTER, 121_000, 30), (SLAVE, 122_000, 30)),
    )
    pairing = kept_pairing(past, past, 20_000)
    # The slave's newest one has no sample of the master behind it.
    assert pairing.slave.began == 62_000
    assert [item.began for item in pairing.masters] == [1_000, 61_000, 121_000]
    assert pairing.is_proven
    assert predict(pairing)[:3] == (10, 0, 0)


def test_a_slave_that_was_stale_then(tmp_path: Path) -> None:
    past = fill(
        tmp_path,
        *((MASTER, 1_000, 10), (MASTER, 31_000, 20)),
        *((SLAVE, 62_000, 15), (MASTER, 63_000, 30)),
    )
    pairing = kept_pairing(past, past, 20_000)
    assert [item.began for item in pairing.masters] == [31_000, 63_000]
    assert predict(pairing).errors == 1


def test_what_was_compared_is_kept_under_the_part_that_each_store_was_named_for(
    tmp_path: Path,
) -> None:
    """The master once, as it was seen last; who knows its role by itself keeps it."""
    first, last = snapshot("", 5, 1), snapshot("", 9, 2)
    slaves = [replace(snapshot("", 7, 1), broker_id=n) for n in (1, 2)]
    slaves.append(replace(snapshot("SLAVE", 8, 1), broker_id=3))
    append_pairings([Pairing((first, last), slave, True) for slave in slaves], str(tmp_path))
    read = [decode(path.read_bytes(), "x") for path in tmp_path.rglob("*.json.gz")]
    assert sorted((one.began, one.role, one.broker_id) for one in read) == [
        (7, "SLAVE", 1), (7, "SLAVE", 2), (8, "SLAVE", 3), (9, "ASYNC_MASTER", 0)
    ]  # fmt: skip


def test_a_history_of_several_brokers(tmp_path: Path) -> None:
    """Samples of another broker's master would make everything look as if it had just come."""

    def add(broker: str, role: str, at: int, value: int) -> None:
        append(replace(snapshot(role, at, value), broker=broker), str(tmp_path))

    past = str(tmp_path)
    add("other", MASTER, 1_500, 77)
    add("mine", MASTER, 1_000, 10)
    add("mine", SLAVE, 62_000, 5)
    add("mine", MASTER, 63_000, 20)
    add("other", MASTER, 63_500, 77)
    pairing = kept_pairing(past, past, 20_000)
    assert [item.broker for item in pairing.masters] == ["mine", "mine"]
    assert predict(pairing).errors == 1
    add("other", SLAVE, 62_000, 77)
    with pytest.raises(CannotDecide, match="mine, other"):
        kept_pairing(past, past, 20_000)


def test_an_empty_history_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(CannotDecide, match="rmqha-admin snapshot PLACE --to"):
        snapshot_files(str(tmp_path), "slave")


def run(*arguments: Any) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["snapshot", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_command_keeps_a_store(tmp_path: Path) -> None:
    store = java_store("clean", tmp_path)
    code, output = run(store, "--to", tmp_path / "h")
    assert code == 2
    assert "--role" in output
    name = ("--broker-name", "broker-a")
    code, output = run(store, "--to", tmp_path / "h", "--role", "slave", *name)
    assert code == 0, output
    (found,) = snapshot_files(str(tmp_path / "h"), "slave")
    assert output.strip() == found.path
    taken = found.read()
    assert taken.broker == "broker-a"
    assert taken.offsets()["TopicA@CG_fixture"] == {0: 30, 1: 1, 2: 32, 3: 1}


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    code, output = run(tmp_path / "nothing", "--to", tmp_path, "--role", "master")
    assert code == 3, output
    code, output = run("nowhere:10911", "--to", tmp_path)
    assert code == 2, output
    code, output = run("broker://127.0.0.1:1", "--to", tmp_path, "--timeout", "1")
    assert code == 3, output
    assert "give its store's directory instead" in output


# What a snapshot knows


def test_all_that_a_snapshot_knows_is_kept() -> None:
    """A file kept eight fields of the class: a damaged replica was safe once it had been kept."""
    whole = Snapshot(
        "p", "b", 1, "SLAVE", True, 5, 7, ALL, (Fact(model.LOG, value=9, low=0),),
        is_crashed=True, own=frozenset({"b", "c"}), faults=(("TABLE_DAMAGED", "topics.json"),),
        uncertain_queues=frozenset({("t", 1), ("u", 0)}), messages_read=7,
    )  # fmt: skip
    for one in fields(Snapshot):
        assert getattr(whole, one.name) != one.default, f"the test has no value for {one.name}"
    assert decode(encode(whole), "x") == whole
    bare = replace(whole, facts=())
    assert decode(encode(bare), "x") == bare


def test_a_snapshot_of_another_version_is_not_taken_as_one_without_damage() -> None:
    row = {
        "place": "p", "broker": "b", "brokerId": 1, "role": "SLAVE", "resting": True, "began": 5,
        "ended": 7, "kinds": "log,offset", "kind": "log", "value": 9, "low": 0,
    }  # fmt: skip
    old = decode(gzip.compress(json.dumps(row).encode()), "some/file")
    assert old.kinds == {"log", "offset"}
    assert old.facts == (Fact(model.LOG, value=9, low=0),)
    ((code, where),) = old.faults
    assert code == "SNAPSHOT_INCOMPLETE"
    assert where == "some/file does not say crashed, own, faults, uncertainQueues, messagesRead"


@pytest.mark.parametrize("harm", ["consumerOffset", "subscriptionGroup", "log"])
def test_a_damaged_store_is_not_safe_through_a_snapshot(tmp_path: Path, harm: str) -> None:
    store = store_of(ordinary(300))
    master, slave = store.save(tmp_path / "m"), store.save(tmp_path / "s")
    if harm == "log":
        (slave / "commitlog" / f"{16384:020}").unlink()
    else:
        for name in (f"{harm}.json", f"{harm}.json.bak"):
            (slave / "config" / name).write_text('{"offsetTable":{"Topic0@')
    kept = f"snapshot:{tmp_path / 'kept'}"
    told = []
    for role, place in (("slave", slave), ("master", master)):
        done = CliRunner().invoke(
            main, ["snapshot", str(place), "--to", kept, "--role", role, "--broker-name", "b"]
        )
        assert done.exit_code == 0, done.output
        told.append("DAMAGED" in done.output)
    assert told == [True, False]
    for pair in ((str(master), str(slave)), (kept, kept)):
        done = CliRunner().invoke(main, ["verify-offsets", "--master", pair[0], "--slave", pair[1]])
        assert done.exit_code == 1, done.output
        assert "safe to fail over: no" in done.output
        assert "_DAMAGED" in done.output


def test_a_master_that_crashed_is_judged_alike_through_a_snapshot(tmp_path: Path) -> None:
    """Offsets that are five seconds old: its slave has newer ones, and nothing is skipped."""
    store = store_of(ordinary(100))
    slave = store.save(tmp_path / "s")
    store.consumed(behind=3)
    master = store.save(tmp_path / "m")
    (master / "abort").touch()
    for path in (file for root in (master, slave) for file in [root, *root.rglob("*")]):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    kept = f"snapshot:{tmp_path / 'kept'}"
    for role, place in (("slave", slave), ("master", master)):
        line = ["snapshot", str(place), "--to", kept, "--role", role, "--broker-name", "b"]
        assert CliRunner().invoke(main, line).exit_code == 0
    for pair in ((str(master), str(slave)), (kept, kept)):
        done = CliRunner().invoke(main, ["verify-offsets", "--master", pair[0], "--slave", pair[1]])
        assert done.exit_code == 0, done.output
        assert "MASTER_OLDER" in done.output


# A store whose parts do not agree


@pytest.mark.parametrize("side", ["m", "s"])
def test_a_queue_that_lacks_a_middle_file_is_not_ahead(tmp_path: Path, side: str) -> None:
    """An empty file stands behind the missing one, and the queue seemed to end there."""
    store = store_of(ordinary(130, topics=1, queues=1), queue_units=100)
    for name in "ms":
        folder = store.save(tmp_path / name) / "consumequeue" / "Topic0" / "0"
        (folder / f"{200 * 20:020}").write_bytes(bytes(100 * 20))
    (tmp_path / side / "consumequeue" / "Topic0" / "0" / f"{100 * 20:020}").unlink()
    line = ["verify-offsets", "--master", str(tmp_path / "m"), "--slave", str(tmp_path / "s")]
    done = CliRunner().invoke(main, [*line, "--findings"])
    assert done.exit_code == (side == "s"), done.output
    assert "STORE_DAMAGED" in done.output
    assert "lacks the file between" in done.output
    assert "AHEAD" not in done.output


def test_a_log_of_random_bytes_is_seen_by_the_messages_that_are_read(tmp_path: Path) -> None:
    store = store_of(ordinary(400))
    master, slave = store.save(tmp_path / "m"), store.save(tmp_path / "s")
    line = ["verify-offsets", "--master", str(master), "--slave", str(slave), "--findings"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0, done.output
    assert done.output.endswith("; compared the ends of 4 queues, read 100 messages of the slave\n")
    path = slave / "commitlog" / f"{16384:020}"
    path.write_bytes(Random(1).randbytes(16384))
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 1, done.output
    assert "of 100 messages that were read are damaged; message " in done.output
    for page in sorted((slave / "commitlog").iterdir()):
        page.write_bytes(path.read_bytes())
    assert CliRunner().invoke(main, line).exit_code == 1
