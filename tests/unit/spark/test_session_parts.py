"""Sessions without Spark: what happens to an archive that brings Java down."""

from pathlib import Path
from typing import Any

import pytest

from rmq_ha.spark.host import session
from rmq_ha.spark.host.class_archive import Archive
from rmq_ha.spark.host.gateway import GatewayFailed
from rmq_ha.spark.host.java import Java
from rmq_ha.spark.host.session import Session, defaults, is_local


class FakeGateway:
    """`begin` answers the archive it was given; `connect` fails as often as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: int) -> None:
        self.used: list[Any] = []
        self.fails = fails
        self.archive = Archive(tmp_path / "java21-0.jsa")
        java = Java(tmp_path, 21, True, "PATH", "")
        monkeypatch.setattr(session.SparkContext, "_gateway", None)
        monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
        monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        monkeypatch.delenv("SPARK_HOME", raising=False)
        monkeypatch.setenv("RMQ_HA_CLASS_ARCHIVE", "read")
        monkeypatch.setattr(session, "find_java", lambda: java)
        monkeypatch.setattr(session.class_archive, "archive_of", lambda *given: self.archive)
        monkeypatch.setattr(session, "_begin", lambda *given: given[-1])
        monkeypatch.setattr(session, "_connect", self.connect)

    def connect(self, archive: Any) -> None:
        self.used.append(archive)
        if len(self.used) <= self.fails:
            raise GatewayFailed("Java ended with 134")

    def start(self) -> None:
        starting = Session(master="local[1]")
        given: Any = self.archive
        starting._connect(given)


def test_an_archive_that_brings_java_down_is_thrown_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = FakeGateway(monkeypatch, tmp_path, fails=1)
    fake.archive.path.touch()
    fake.start()
    assert fake.used == [fake.archive, None]
    assert not fake.archive.path.exists()


def test_an_archive_stays_when_java_fails_without_it_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = FakeGateway(monkeypatch, tmp_path, fails=2)
    fake.archive.path.touch()
    with pytest.raises(GatewayFailed):
        fake.start()
    assert fake.archive.path.exists()


def test_without_an_archive_a_failure_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = FakeGateway(monkeypatch, tmp_path, fails=1)
    with pytest.raises(GatewayFailed):
        fake.start()
    assert len(fake.used) == 1


def test_on_a_cluster_only_what_results_depend_on_is_set() -> None:
    assert set(defaults("spark://host:7077")) == {
        "spark.sql.session.timeZone",
        "spark.sql.python.filterPushdown.enabled",
    }
    assert defaults("local[3]")["spark.sql.shuffle.partitions"] == "6"
    assert [is_local(m) for m in ("local", "local-cluster[1,1,1]", "yarn")] == [True, True, False]
