"""The archive of Spark's classes: when it fits, how it is made, what is kept."""

import os
from pathlib import Path

import pytest

from rmq_ha.spark.host import class_archive
from rmq_ha.spark.host.class_archive import (
    Archive,
    alone,
    archive_of,
    make,
    may_make,
    may_read,
    tidy,
)
from rmq_ha.spark.host.java import Java

DUMPS = """#!/bin/sh
for argument; do case "$argument" in -XX:SharedArchiveFile=*) file=${argument#*=};; esac; done
echo classes > "$file"
"""


def java_that(tmp_path: Path, script: str) -> Java:
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)
    return Java(tmp_path / "java", 21, True, "PATH", "21.0.8")


@pytest.fixture
def jars(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for path in paths:
        path.write_text("jar")
    return [str(path) for path in paths]


def test_another_java_or_spark_has_another_archive(tmp_path: Path, jars: list[str]) -> None:
    java = java_that(tmp_path, DUMPS)
    first = archive_of(java, jars, tmp_path)
    assert archive_of(java, jars, tmp_path) == first
    assert archive_of(java._replace(release="21.0.9"), jars, tmp_path) != first
    assert archive_of(java, jars[::-1], tmp_path) != first
    os.utime(jars[0], ns=(0, 5))
    assert archive_of(java, jars, tmp_path) != first


def test_one_that_is_missing_is_not_asked_for(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "java21-0.jsa")
    assert not any("SharedArchiveFile" in option for option in archive.options)
    archive.path.touch()
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options


def test_it_is_written_whole_and_older_ones_go(tmp_path: Path, jars: list[str]) -> None:
    archive = archive_of(java_that(tmp_path, DUMPS), jars, tmp_path)
    archive.path.parent.mkdir()
    for age, name in enumerate(("java17-a.jsa", "java17-b.jsa")):
        old = archive.path.with_name(name)
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    archive.failed.touch()
    (archive.path.parent / ".making-x.jsa").touch()
    java = java_that(tmp_path, DUMPS)
    assert make(java, archive, tmp_path / "classes.lst", ["-Da=b"], jars)
    assert archive.path.read_text() == "classes\n"
    assert sorted(os.listdir(archive.path.parent)) == ["java17-a.jsa", archive.path.name]


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nexit 0\n"])
def test_a_java_that_writes_none_leaves_nothing(
    tmp_path: Path, jars: list[str], script: str
) -> None:
    java = java_that(tmp_path, script)
    archive = archive_of(java, jars, tmp_path)
    archive.path.parent.mkdir()
    assert not make(java, archive, tmp_path / "classes.lst", [], jars)
    assert os.listdir(archive.path.parent) == []


def test_only_one_makes_it(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "classes" / "java21-0.jsa")
    with alone(archive) as first, alone(archive) as second:
        assert (first, second) == (True, False)
    with alone(archive) as again:
        assert again


def test_it_is_tried_again_only_after_a_week(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "classes" / "java21-0.jsa")
    assert archive.is_worth_making()
    archive.failed.touch()
    assert not archive.is_worth_making()
    os.utime(archive.failed, (0, 0))
    assert archive.is_worth_making()
    archive.path.touch()
    assert not archive.is_worth_making()


def test_it_is_not_tried_where_there_is_no_room_or_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert not Archive(tmp_path / "file" / "classes" / "a.jsa").is_worth_making()
    monkeypatch.setattr(class_archive, "_ROOM", 1 << 70)
    assert not Archive(tmp_path / "classes" / "a.jsa").is_worth_making()


def test_tidying_needs_no_archive(tmp_path: Path) -> None:
    tidy(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("value", "reads", "makes"),
    [("", True, True), ("read", True, False), ("off", False, False)],
)
def test_the_switch(value: str, reads: bool, makes: bool) -> None:
    environ = {"RMQ_HA_CLASS_ARCHIVE": value}
    assert (may_read(environ), may_make(environ)) == (reads, makes)
