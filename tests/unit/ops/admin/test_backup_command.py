"""`rmqha-admin backup` and `restore`, with a store that a Java broker wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq_ha.base.host.files import LocalFiles
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.offline.directory import StoreFiles

STORE = Path(__file__).parents[3] / "fixtures" / "store" / "clean.tar.gz"


def admin(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*arguments])
    return done.exit_code, done.output


def config(folder: Path, root: Path, size: int) -> str:
    path = folder / f"{root.name}.properties"
    path.write_text(f"storePathRootDir={root}\nmappedFileSizeCommitLog={size}\n")
    return str(path)


@pytest.fixture
def java_store(tmp_path: Path) -> Path:
    shutil.unpack_archive(STORE, tmp_path / "java")
    return next((tmp_path / "java").rglob("commitlog")).parent


def test_what_is_restored_holds_what_was_there(tmp_path: Path, java_store: Path) -> None:
    log = sorted((java_store / "commitlog").iterdir())
    size = log[0].stat().st_size
    of_old, of_new = config(tmp_path, java_store, size), config(tmp_path, tmp_path / "new", size)
    target = str(tmp_path / "backup")
    code, output = admin("backup", target, "-c", of_old, "--json")
    (first,) = json.loads(output)["rows"]
    assert (code, first["run"]) == (0, 1)
    assert first["end"] == StoreFiles("x", LocalFiles(), str(java_store)).max_offset()
    code, output = admin("restore", target, "-c", of_new, "--dry-run", "--json")
    assert (code, json.loads(output)["rows"][0]["end"]) == (0, first["end"])
    assert not (tmp_path / "new").exists()
    code, output = admin("restore", target, "-c", of_new)
    assert (code, output.splitlines()[0]) == (0, f"Restored to {tmp_path / 'new'}")
    for file in log:
        base = int(file.name)
        if base < first["end"]:
            length = min(size, first["end"] - base)
            restored = tmp_path / "new" / "commitlog" / file.name
            assert restored.read_bytes()[:length] == file.read_bytes()[:length]
    tables = {path.name: path.read_bytes() for path in (java_store / "config").glob("*.json")}
    restored_tables = (tmp_path / "new" / "config").iterdir()
    assert {path.name: path.read_bytes() for path in restored_tables} == tables
    assert admin("restore", target, "-c", of_new)[0] == 1, "something is there now"


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    code, output = admin(
        "backup", str(tmp_path / "b"), "-c", config(tmp_path, tmp_path / "s", 4096)
    )
    assert code == 1
    assert "has no commit log" in output
    group = tmp_path / "g"
    group.write_text(
        "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-127.0.0.1:40911\ndLegerSelfId=n0\n"
    )
    code, output = admin("backup", str(tmp_path / "b"), "-c", str(group))
    assert code == 1
    assert "DLedger" in output


def test_a_backup_does_not_lie_in_its_store(tmp_path: Path, java_store: Path) -> None:
    """Nor the store in it: they would be lost together."""
    size = next((java_store / "commitlog").iterdir()).stat().st_size
    file = config(tmp_path, java_store, size)
    for target in (java_store / "copy", java_store, java_store / "commitlog" / "x", tmp_path):
        code, output = admin("backup", str(target), "-c", file)
        assert (code, "name a directory elsewhere" in output) == (1, True), output
    code, output = admin("backup", f"{java_store}-2", "-c", file)
    assert code == 0, output
