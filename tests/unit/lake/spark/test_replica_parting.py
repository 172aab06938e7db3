"""Logs that part for good: one sentence for the operator, in place of a thousand differences."""

from pathlib import Path

import pytest

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, body_crc
from rmq_ha.lake.scan.replica import parting as module
from rmq_ha.lake.scan.replica.comparing import Sides
from rmq_ha.lake.scan.replica.parting import Parting, parting, parting_finding
from rmq_ha.lake.scan.replica.settings import common_of, open_pair
from tests.sim_kit.store_faults.image import StoreImage
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, image_of, settings_of


def other(record: Record) -> Record:
    """Of the same size, and sound."""
    body = bytes(byte ^ 1 for byte in record.body)
    return record._replace(
        body=body, body_crc=body_crc(body), store_host=Address(b"\t" * len(record.store_host.ip), 1)
    )


def found(master: Path, image: StoreImage, slave: Path) -> Parting | None:
    image.save(slave)
    pair = open_pair(settings_of(master, slave))
    logs = [one.log for one in pair]
    return parting(Sides(logs[0], logs[1], "m", "s", 1 << 20), *common_of(pair, 0))


@pytest.mark.parametrize("window", [1 << 20, 1 << 12])
def test_a_tail_that_each_side_wrote_for_itself(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """After a fail-over to a slave that was behind: where, since when, how many messages."""
    monkeypatch.setattr(module, "_WINDOW", window)
    image = image_of(java, LEVELS_OF_JAVA)
    placed = image.records()
    for at in (20, 100, 186, 187):
        records = [one.record for one in placed]
        image.lay_out([*records[:at], *map(other, records[at:])])
        parted = found(java, image, tmp_path / str(at))
        if at > 186:  # the last two may be damaged each for itself
            assert parted is None
            continue
        assert parted is not None
        assert (parted.offset, parted.messages) == (placed[at].offset, (189 - at,) * 2)
        one = parting_finding(parted, "s")
        assert one.code == "DIVERGED"
        assert one.detail.startswith(f"diverged from offset {parted.offset} (2026-11-21 ")
        assert f"to the end, {189 - at} messages on each side. " in one.detail


def test_the_store_of_another_broker(java: Path, tmp_path: Path) -> None:
    image = image_of(java, LEVELS_OF_JAVA)
    image.lay_out([other(one.record) for one in image.records()])
    parted = found(java, image, tmp_path / "s")
    assert parted is not None
    one = parting_finding(parted, "s")
    assert (one.code, one.physical_offset) == ("NOT_ITS_SLAVE", 0)
    assert one.detail.startswith("not its slave: stored by 9.9.9.9:1, the master's by ")


def test_what_is_damaged_or_out_of_step_has_not_parted(java: Path, tmp_path: Path) -> None:
    """These have findings of their own, which say more."""
    image = image_of(java, LEVELS_OF_JAVA)
    records = [one.record for one in image.records()]
    assert found(java, image, tmp_path / "same") is None
    image.lay_out([*records[:150], *records[151:]])
    assert found(java, image, tmp_path / "lost") is None
    image.lay_out([*map(other, records[:150]), *records[150:]])
    assert found(java, image, tmp_path / "before") is None
    image.lay_out(records)
    image.log[140_000:147_000] = bytes(7_000)
    assert found(java, image, tmp_path / "damaged") is None
