"""A store that only Hadoop can open is copied by Spark."""

from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.store.directory import open_store, scan
from rmq_ha.lake.spark.host import session
from rmq_ha.lake.spark.host.staging import stage
from rmq_ha.lake.spark.running import Frame, Job
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.offsets.places import StorePlace
from tests.sim_kit.big_records import Shape
from tests.sim_kit.big_store import write_big_store


@pytest.fixture
def cluster(spark: Any, tmp_path: Path) -> str:
    """`viewfs://` over local directories: a file system that pyarrow does not know."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name in ("one", "two"):
        hadoop.set(f"fs.viewfs.mounttable.h2.link./{name}", f"file://{tmp_path}/{name}")
        write_big_store([tmp_path / name / "staged-store"], Shape(1 << 20, file_size=1 << 19))
    return "viewfs://h2"


def count_of(place: str) -> int:
    store = open_store(place)
    return sum(len(one) for split in store.splits() for one in scan(store, split))


def test_a_store_on_a_file_system_of_hadoop(spark: Any, cluster: str) -> None:
    """The driver reads the copy, and so do executors; two stores may have one name."""
    place = stage(spark, f"{cluster}/one/staged-store/")
    assert stage(spark, f"{cluster}/one/staged-store") == place
    other = stage(spark, f"{cluster}/two/staged-store")
    assert other != place
    expected = count_of(place)
    assert expected == count_of(other) > 0
    assert spark.read.format("rocketmq").load(place).count() == expected
    with pytest.raises(CannotDecide, match="cannot be copied"):
        stage(spark, f"{cluster}/three/nowhere")


def test_jobs_take_such_a_place(spark: Any, cluster: str) -> None:
    """They call it by its own name, wherever they read it."""

    class Starting:
        def get(self) -> Any:
            return spark

    job = Job("test", Frame(quiet=True), Options(), Starting())  # type: ignore[arg-type]
    place = job.place(f"{cluster}/two/staged-store")
    assert isinstance(place, StorePlace)
    assert str(place) == f"{cluster}/two/staged-store"
    assert count_of(place.uri) > 0
    assert job.place("/some/store") == StorePlace("/some/store")


def test_a_store_for_a_cluster(spark: Any, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark copies it to every executor by the last part of its name."""
    monkeypatch.setattr(session, "is_local", lambda master: False)
    place = stage(spark, f"{cluster}/one/staged-store/")
    assert stage(spark, f"{cluster}/one/staged-store") == place == "staged:staged-store"
    assert spark.read.format("rocketmq").load(place).count() == count_of(place) > 0
    with pytest.raises(CannotDecide, match="Give one of them another name"):
        stage(spark, f"{cluster}/two/staged-store")
