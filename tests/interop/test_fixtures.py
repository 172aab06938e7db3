"""
Stores that Java wrote, opened by a whole broker as SLAVE: every message comes back over the wire
as Java says it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import Any

import pytest

from tests.interop.rig import REPO, Rig
from tests.interop.wire import Wire, log_end

FIXTURES = REPO / "tests" / "fixtures" / "store"
STORES = [("clean", "clean.expected"), ("killed", "killed.recovered"), ("torn", "torn.recovered")]


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("name", "expectation"), STORES)
def test_every_message_of_a_java_store(rig: Rig, name: str, expectation: str) -> None:
    """By queue, by id and by key, bit for bit; nothing more and nothing less."""
    expected = json.loads((FIXTURES / f"{expectation}.json").read_text())
    directory = rig.directory / "b"
    directory.mkdir()
    shutil.unpack_archive(FIXTURES / f"{name}.tar.gz", directory)
    (directory / name).rename(directory / "store")
    settings: dict[str, Any] = {**expected["settings"], "haMasterAddress": "127.0.0.1:9"}
    broker = rig.broker("slave.conf", "b", **settings)
    # Java's answer is an error until it has its first statistics.
    rig.until(lambda: log_end(broker.address) >= 0, 30, "the end of the log", broker)
    assert log_end(broker.address) == expected["commitLogMaxOffset"]
    with Wire(broker.address) as wire:
        topics = json.loads((broker.store / "config" / "topics.json").read_text())
        check_queues(wire, expected, topics["topicConfigTable"])
        for record in expected["records"]:
            assert sha256_of(wire.view(record["offset"])) == record["recordSha256"]
        for lookup, offsets in expected["keyLookups"].items():
            topic, _, key = lookup.partition("#")
            found = [record.physical_offset for record in wire.query(topic, key)]
            # the record at which the last kept index file ends may be there twice
            assert found == sorted(found)
            assert set(found) == set(offsets), lookup
    assert broker.stop() in (0, 143)
    assert not (broker.store / "abort").exists()


def check_queues(wire: Wire, expected: dict[str, Any], topics: dict[str, Any]) -> None:
    """
    Every queue has the bounds, and every entry leads to the record, that Java says.

    The topics of transactions were never created in this store: nobody can pull them.
    """
    by_offset = {record["offset"]: record for record in expected["records"]}
    for queue, content in expected["queues"].items():
        topic, _, queue_id = queue.rpartition("-")
        assert wire.max_offset(topic, int(queue_id)) == content["maxOffset"], queue
        if topic not in topics:
            assert topic.startswith("RMQ_SYS_TRANS")
            continue
        data = wire.pull_bytes(topic, int(queue_id))
        position = 0
        for physical_offset, size, _ in content["entries"]:
            record = by_offset[physical_offset]
            assert sha256_of(data[position : position + size]) == record["recordSha256"]
            position += size
        assert position == len(data), queue
