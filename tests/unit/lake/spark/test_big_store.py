"""Large stores are like those that brokers write: read back with the broker's own code."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("numpy", reason="pip install 'rmq-ha[spark]'")

from twisted.internet.task import Clock

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.seams import Host
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.store_format.commitlog import BLANK_MAGIC, Record, decode_record
from rmq_ha.base.store_format.consumequeue import UNIT, UNIT_SIZE
from rmq_ha.base.wire.bodies import decode_offset_table
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.worker import AtOnce
from tests.sim_kit.big_store import GROUPS, Shape, write_big_store

SMALL = Shape(
    3_000_000,
    body=300,
    topics=2,
    queues=3,
    file_size=1 << 20,
    queue_file_size=800,
    index_sizes=(50, 20_000),
)


def opened(root: Path, shape: Shape) -> DefaultMessageStore:
    configuration = BrokerConfiguration()
    store = configuration.store
    store.store_path_root_dir = str(root)
    store.mapped_file_size_commit_log = shape.file_size
    store.mapped_file_size_consume_queue = shape.queue_file_size
    store.max_hash_slot_num, store.max_index_num = shape.index_sizes or (50, 150)
    host = Host(Clock(), lambda: shape.first_ms, None, RealDisk(), AtOnce(), Random(1))  # type: ignore[arg-type]
    made = DefaultMessageStore(host, configuration)
    made.load()
    return made


def records_of(root: Path, shape: Shape) -> list[Record]:
    """Every record, its CRC checked; files are whole, and filled up with blanks."""
    records = []
    paths = sorted((root / "commitlog").iterdir())
    for path in paths:
        data = path.read_bytes()
        assert len(data) == shape.file_size
        at = 0
        while data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
            record = decode_record(data, at, check_crc=True)
            assert record.physical_offset == int(path.name) + at
            records.append(record)
            at += record.size
        if path == paths[-1]:
            assert not any(data[at:])
        else:
            assert int.from_bytes(data[at : at + 4]) == len(data) - at
            assert int.from_bytes(data[at + 4 : at + 8]) == BLANK_MAGIC
    return records


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    roots = [tmp_path_factory.mktemp("big") / name for name in ("master", "slave")]
    return roots, write_big_store(roots, SMALL)


def test_records_queues_and_tables_fit_together(stored: Any) -> None:
    roots, written = stored
    records = records_of(roots[0], SMALL)
    assert len(records) == written.records
    assert records[-1].physical_offset + records[-1].size == written.max_offset
    assert SMALL.size - 1000 < written.max_offset <= SMALL.size
    assert 290 < sum(len(record.body) for record in records) / len(records) < 310
    counts: Counter[tuple[str, int]] = Counter()
    units = {}
    for topic, queue in written.queues:
        directory = roots[0] / "consumequeue" / topic / str(queue)
        paths = sorted(directory.iterdir())
        assert {path.stat().st_size for path in paths} == {800}
        units[topic, queue] = b"".join(path.read_bytes() for path in paths)
    for record in records:
        name = (record.topic, record.queue_id)
        assert record.queue_offset == counts[name]
        unit = UNIT.unpack_from(units[name], counts[name] * UNIT_SIZE)
        code = tags_code(record.properties["TAGS"])
        assert unit == (record.physical_offset, record.size, code)
        assert record.store_timestamp - 5 < record.born_timestamp <= record.store_timestamp
        counts[name] += 1
    assert counts == written.queues
    assert not any(any(data[counts[name] * UNIT_SIZE :]) for name, data in units.items())
    for name in ("KEYS", "UNIQ_KEY"):
        assert len({record.properties[name] for record in records}) == len(records)
    table = decode_offset_table((roots[0] / "config/consumerOffset.json").read_bytes())
    assert table[f"big-orders-001@{GROUPS[0]}"] == {
        queue: written.queues["big-orders-001", queue] for queue in range(3)
    }
    times = CheckpointTimes.decode((roots[0] / "checkpoint").read_bytes())
    assert times.physic_msg_timestamp == records[-1].store_timestamp == written.last_ms


def test_both_of_a_pair_are_equal(stored: Any) -> None:
    master, slave = stored[0]
    names = sorted(path.relative_to(master) for path in master.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(slave) for path in slave.rglob("*") if path.is_file())
    assert all((master / name).read_bytes() == (slave / name).read_bytes() for name in names)


def test_our_broker_opens_it(stored: Any) -> None:
    """As after a clean stop: nothing is cut, nothing is built again, keys are found."""
    roots, written = stored
    last = records_of(roots[1], SMALL)[-1]
    store = opened(roots[1], SMALL)
    try:
        assert store.log.max_offset == written.max_offset
        for (topic, queue), count in written.queues.items():
            assert store.max_offset_in_queue(topic, queue) == count
        key = last.properties["KEYS"].split(" ")[0]
        end = written.last_ms + 1000
        assert len(store.query(last.topic, key, 10, 0, end).records) == 1
        found = store.record_at(last.physical_offset)
        assert found is not None
        assert decode_record(found) == last
    finally:
        store.close()


def test_the_same_seed_gives_the_same_store(tmp_path: Path) -> None:
    shapes = {"a": SMALL, "b": SMALL, "c": SMALL._replace(seed=2)}
    for name, shape in shapes.items():
        write_big_store([tmp_path / name], shape._replace(size=200_000, index_sizes=None))
    logs = {name: (tmp_path / name / "commitlog" / ("0" * 20)).read_bytes() for name in shapes}
    assert logs["a"] == logs["b"] != logs["c"]


@pytest.mark.parametrize("body", [0, 1, 3, 19, 27, 28, 1024, 5000])
def test_bodies_of_any_size(tmp_path: Path, body: int) -> None:
    shape = SMALL._replace(body=body, size=300_000, index_sizes=None)
    written = write_big_store([tmp_path], shape)
    assert len(records_of(tmp_path, shape)) == written.records > 10


def test_a_store_is_not_written_over(stored: Any) -> None:
    with pytest.raises(ValueError, match="holds a store already"):
        write_big_store(stored[0], SMALL)
    with pytest.raises(ValueError, match="no record fits"):
        write_big_store(["/nowhere"], SMALL._replace(file_size=100))
    with pytest.raises(ValueError, match="units of 20"):
        write_big_store(["/nowhere"], SMALL._replace(queue_file_size=801))


@pytest.mark.lake
def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sim_kit.big_store", str(tmp_path / "s")]
    command += ["--gib", "0.001", "--pair", "--file-mib", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "records" in done.stdout
    assert (tmp_path / "s/slave/commitlog").is_dir()
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2
    assert "name another directory" in again.stderr
