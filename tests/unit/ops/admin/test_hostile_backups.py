"""A backup into which somebody else could write: nothing outside it is read, written or removed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.admin.test_backup_command import STORE, admin, config


class Kept:
    """A backup of a store that a Java broker wrote, and a secret beside it."""

    def __init__(self, folder: Path) -> None:
        shutil.unpack_archive(STORE, folder / "java")
        self.store = next((folder / "java").rglob("commitlog")).parent
        self.folder, self.path, self.new = folder, folder / "backup", folder / "new"
        self.victim = folder / "victim"
        self.victim.mkdir()
        (self.victim / "id_rsa").write_text("secret")
        self.size = next((self.store / "commitlog").iterdir()).stat().st_size
        assert self.back_up()[0] == 0
        self.log = next((self.path / "commitlog").iterdir())

    def back_up(self) -> tuple[int, str]:
        return admin("backup", str(self.path), "-c", config(self.folder, self.store, self.size))

    def restore(self, *more: str) -> tuple[int, str]:
        of_new = config(self.folder, self.new, self.size)
        return admin("restore", str(self.path), "-c", of_new, *more)

    def write(self, **changes: Any) -> None:
        path = self.path / "backup.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def tree(self) -> dict[str, int]:
        """What lies there, so that what is made or removed shows."""
        found = [path for path in self.folder.rglob("*") if self.new not in path.parents]
        return {str(path): path.lstat().st_size for path in found if path.is_file()}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


MANIFESTS: dict[str, dict[str, Any]] = {
    "a directory elsewhere": {"tables": "../victim"},
    "an absolute one": {"tables": "/etc"},
    "the backup itself": {"tables": "."},
    "its log": {"tables": "commitlog"},
    "a name behind the name": {"tables": "config-1/../../victim"},
    "a line behind the name": {"tables": "config-1\n"},
    "a beginning below zero": {"begin": -(1 << 30), "againFrom": -(1 << 30)},
    "an end before the beginning": {"end": 0, "begin": 100, "againFrom": 100},
    "an end that is no Java long": {"end": 1 << 63},
    "a run of less than nothing": {"runs": -5},
    "more runs than a name has digits": {"runs": 10**400},
    "files of no bytes": {"fileSize": 0},
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_not_believed(kept: Kept, name: str) -> None:
    """`backup` removed the directory `../victim`, with exit code 0 and without a word."""
    kept.write(**MANIFESTS[name])
    before = kept.tree()
    for code, output in (kept.restore("--dry-run"), kept.restore(), kept.back_up()):
        assert (code, "backup.json is damaged" in output) == (1, True), output
    assert kept.tree().keys() == before.keys() | {str(kept.folder / "new.properties")}
    assert (kept.victim / "id_rsa").read_text() == "secret"
    assert not kept.new.exists()


def test_what_is_missing_of_the_log_is_said_and_made_nowhere(kept: Kept) -> None:
    """53 files of zeros were made in the backup, and as many in the store."""
    kept.write(end=1 << 40)
    before = kept.tree()
    code, output = kept.restore()
    assert (code, "copy the whole backup here again" in output) == (1, True)
    assert kept.tree().keys() == before.keys() | {str(kept.folder / "new.properties")}


@pytest.mark.parametrize("part", ["log", "log directory", "table", "tables", "manifest"])
def test_links_are_not_followed(kept: Kept, part: str) -> None:
    """A link to /etc/passwd came into the store as a table."""
    table = next((kept.path / "config-1").iterdir())
    path = {
        "log": kept.log,
        "log directory": kept.log.parent,
        "table": table,
        "tables": table.parent,
        "manifest": kept.path / "backup.json",
    }[part]
    away = kept.victim / path.name
    path.rename(away)
    path.symlink_to(away)
    before = away.read_bytes() if away.is_file() else {p: p.stat().st_size for p in away.iterdir()}
    code, output = kept.restore()
    assert code == 1
    assert "Traceback" not in output
    code, output = kept.back_up()
    assert (code == 1) is (part not in ("table", "tables")) or "remove it" in output
    assert before == (
        away.read_bytes() if away.is_file() else {p: p.stat().st_size for p in away.iterdir()}
    )


@pytest.mark.parametrize("part", ["log", "table", "manifest"])
def test_pipes_are_not_waited_for(kept: Kept, part: str) -> None:
    """`restore` hung."""
    table = next((kept.path / "config-1").iterdir())
    path = {"log": kept.log, "table": table, "manifest": kept.path / "backup.json"}[part]
    path.unlink()
    os.mkfifo(path)
    code, output = kept.restore()
    assert (code, "no regular file" in output or "is no file of" in output) == (1, True)


def test_what_is_no_table_is_not_restored(kept: Kept) -> None:
    (kept.path / "config-1" / "authorized_keys").write_text("x")
    code, output = kept.restore()
    assert (code, "authorized_keys is no table of a backup" in output) == (1, True)


@pytest.mark.parametrize("name", ["config-2", "commitlog", "backup.json.tmp"])
def test_a_backup_writes_through_no_link(kept: Kept, name: str) -> None:
    """Root's backup wrote wherever somebody had a link point to."""
    path = kept.path / name
    if path.exists():
        shutil.rmtree(path)
    (kept.victim / "there").mkdir()
    path.symlink_to(kept.victim / ("there" if "json" not in name else "id_rsa"))
    code, output = kept.back_up()
    assert code == 1
    assert "Traceback" not in output
    assert list((kept.victim / "there").iterdir()) == []
    assert (kept.victim / "id_rsa").read_text() == "secret"


def test_tables_of_the_store_are_no_links(kept: Kept) -> None:
    """Or whoever the broker runs as has root read any file into the backup."""
    (kept.store / "config" / "topics.json").unlink()
    (kept.store / "config" / "topics.json").symlink_to(kept.victim / "id_rsa")
    code, output = kept.back_up()
    assert (code, "no link is followed" in output) == (1, True)


def test_a_backup_that_is_reached_by_a_link_is_one(kept: Kept) -> None:
    """What the operator names may be a link: it is the operator's."""
    (kept.folder / "current").symlink_to(kept.path)
    kept.path = kept.folder / "current"
    assert kept.back_up()[0] == 0
    assert kept.restore()[0] == 0
