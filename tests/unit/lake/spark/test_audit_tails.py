"""Ends of queues: what a consume queue points to has to be in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.lake.spark.audit.queues import Ends, tail_findings, written_ends
from rmq_ha.ops.offsets.places import StorePlace
from tests.sim_kit.store_faults.image import StoreImage
from tests.unit.lake.spark.golden_stores import java_store


def ends_of_log(store: Path) -> Ends:
    image = StoreImage.load(store, 50, [1_000, 2_000])
    found: dict[tuple[str, str, int], int] = {}
    for _, record in image.records():
        if not record.sys_flag & TRANSACTION_PREPARED:
            found["", record.topic, record.queue_id] = record.queue_offset + 1
    return found


@pytest.mark.parametrize(("name", "torn"), [("clean", 0), ("killed", 0), ("torn", 1)])
def test_stores_of_java(name: str, torn: int, tmp_path: Path) -> None:
    """A killed broker's queues end with its log; a record that was torn leaves its entry."""
    store = java_store(name, tmp_path)
    written = written_ends([StorePlace(str(store))], ())
    stored = ends_of_log(store)
    assert set(stored) <= set(written)
    found = tail_findings(written, stored, 5)
    assert len(found) == torn
    for finding in found:
        assert (finding.severity, finding.code, finding.broker) == ("ERROR", "TAIL_LOST", None)
        assert finding.queue_offset == stored["", finding.topic or "", finding.queue_id or 0]


def test_several_stores_and_chosen_topics(tmp_path: Path) -> None:
    store = java_store("clean", tmp_path)
    place = StorePlace(str(store))
    written = written_ends([place, place], ("TopicC",))
    assert set(written) == {(str(store), "TopicC", 0)}
    assert tail_findings(written, {}, 5) == []
    other = StorePlace(str(java_store("killed", tmp_path / "other")))
    assert {label for label, _, _ in written_ends([place, other], ())} == {place.uri, other.uri}


def test_of_a_damaged_store_the_ends_are_told_all_the_same(tmp_path: Path) -> None:
    """What is missing in its log are gaps."""
    store = java_store("clean", tmp_path)
    whole = written_ends([StorePlace(str(store))], ())
    sorted((store / "commitlog").iterdir())[1].unlink()
    assert written_ends([StorePlace(str(store))], ()) == whole
