"""`store`, `backup`, `restore` and `init` as they are typed, on a real disk."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.session import FAILED, USAGE
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.test_store import FIXTURES, config_of, kept
from tests.unit.ops.admin.typing_kit import Typist


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that Java's broker stopped in order."""
    shutil.unpack_archive(FIXTURES / "clean.tar.gz", tmp_path)
    return next(path.parent for path in tmp_path.rglob("checkpoint"))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    typed = Typist(SimCluster(), monkeypatch)
    typed.host = replace(typed.host, disk=RealDisk())
    return typed


def test_a_store_is_verified_and_its_messages_are_shown(typed: Typist, root: Path) -> None:
    told = typed.does(f"store verify {root}")
    assert told.lines[0]["rows"] == [] or all(row["severity"] != "ERROR" for row in told.rows)
    every = typed.does(f"store dump {root}").lines
    assert told.lines[0]["messages"] == len(every) > 10
    first, second = every[0], every[1]
    assert typed.does(f"store dump {root} --count 1").lines == [first]
    start = second["physical_offset"]
    assert typed.does(f"store dump {root} --from {start} --count 1").lines == [second]
    topic = first["topic"]
    only = typed.does(f"store dump {root} --topic {topic} --count 2").lines
    assert only == [line for line in every if line["topic"] == topic][:2]
    assert (
        typed.as_typed(f"store dump {root} --count 1").out
        == typed.does(f"store dump {root} --count 1").out
    ), "one JSON a line, for people too"
    log = root / "commitlog"
    assert typed.does(f"store dump {root} --commit-log {log} --count 1").lines == [first]
    assert typed(f"store dump {root}/nothing").code == USAGE
    assert typed(f"store dump {root} --count 0").code == USAGE


def test_damage_is_a_line_of_its_own_and_the_exit_code_says_so(typed: Typist, root: Path) -> None:
    every = typed.does(f"store dump {root}").lines
    (file, *_) = sorted((root / "commitlog").iterdir())
    data = bytearray(file.read_bytes())
    begin, end = every[3]["physical_offset"], every[4]["physical_offset"]
    data[begin:end] = bytes(end - begin)
    file.write_bytes(bytes(data))
    told = typed(f"store dump {root}")
    assert told.code == FAILED
    (damage,) = [line["damage"] for line in told.lines if "damage" in line]
    assert damage
    shown = [line["physical_offset"] for line in told.lines if "damage" not in line]
    assert begin not in shown
    assert end in shown
    assert typed(f"store verify {root}").code == FAILED
    told = typed(f"store repair --config {config_of(root, root.parent)} --yes")
    assert (told.code, "copy its files from a replica first" in told.err) == (FAILED, True)


def test_what_is_lost_is_built_anew_when_somebody_says_yes(
    typed: Typist, root: Path, tmp_path: Path
) -> None:
    config = config_of(root, tmp_path)
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    before = kept(root)
    typed.sits_there()
    told = typed(f"store repair --config {config}", given="n\n")
    assert (told.code, "nothing was changed" in told.err) == (FAILED, True)
    assert kept(root) == before
    told = typed(f"store repair --config {config} --dry-run")
    assert told.code == 0
    assert "checkpoint" in told.lines[-1]["would_repair"]
    assert told.lines[-1]["set_aside"].startswith(f"{root}/setaside/repair-")
    assert kept(root) == before
    told = typed(f"store repair --config {config}", given="y\n")
    assert told.code == 0, told
    last = told.lines[-1]
    assert last["faults_left"] == 0
    assert "checkpoint" in last["repaired"]
    assert typed(f"store verify {root}").code == 0
    assert not (root / "abort").exists()
    told = typed.does(f"store repair --config {config} --yes")
    assert told.lines[-1] == {"repaired": []}
    index = sorted((root / "index").iterdir())[0].read_bytes()
    told = typed.does(f"store repair --config {config} --part index --yes")
    assert told.lines[-1]["repaired"] == ["index"]
    aside = Path(told.lines[-1]["set_aside"])
    assert sorted(path.name for path in aside.iterdir()) == ["checkpoint", "index"]
    assert sorted((aside / "index").iterdir())[0].read_bytes() == index


def test_people_are_told_what_is_built_and_where_the_old_goes(
    typed: Typist, root: Path, tmp_path: Path
) -> None:
    config = config_of(root, tmp_path)
    out = typed.as_typed(f"store repair --config {config} --part index --yes").out
    assert f"checkpoint, index go to {root}/setaside/repair-" in out
    assert "; index are built anew from the log" in out
    messages = len(typed.does(f"store dump {root}").lines)
    assert f"index: built from {messages} messages" in out
    out = typed.as_typed(f"store repair --config {config} --yes").out
    assert "nothing to repair" in out
    out = typed.as_typed(f"store repair --config {config} --part index --dry-run").out
    assert "dry run: index" in out


def test_a_broker_that_has_it_open_is_left_alone(typed: Typist, root: Path, tmp_path: Path) -> None:
    config = config_of(root, tmp_path)
    lock = RealDisk().lock(f"{root}/lock")
    before = kept(root)
    for line in (f"store verify {root}", f"store dump {root}", f"store repair -c {config} --yes"):
        assert typed(line).code == FAILED, line
    assert kept(root) == before
    lock.release()
    assert typed(f"store verify {root}").code == 0
    RealDisk().lock(f"{root}/lock").release()


def admin(*arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(main, [*arguments, "--json"])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def lines_of(folder: Path, name: str) -> set[str]:
    return set((folder / f"{name}.properties").read_text().splitlines())


LAYOUTS: dict[str, tuple[tuple[str, ...], dict[str, set[str]]]] = {
    "a pair on one machine": (
        ("--pair",),
        {
            "namesrv-1": {"listenPort=9876", "bindAddress=127.0.0.1", "metricsPort=5558"},
            "namesrv-2": {"listenPort=9877", "metricsPort=5568"},
            "broker-master": {
                "brokerClusterName=DefaultCluster",
                "brokerName=broker-a",
                "brokerIP1=127.0.0.1",
                "brokerIP2=127.0.0.1",
                "bindAddress=127.0.0.1",
                "listenPort=10911",
                "namesrvAddr=127.0.0.1:9876;127.0.0.1:9877",
                "metricsPort=5557",
            },
            "broker-slave": {"listenPort=11011", "metricsPort=5567"},
        },
    ),
    "a pair on two": (
        ("--pair", "--hosts", "10.0.0.1, 10.0.0.2", "--name", "b", "--cluster", "C"),
        {
            "namesrv-1": {"listenPort=9876", "metricsPort=5558", "metricsAddress=10.0.0.1"},
            "namesrv-2": {"listenPort=9876", "metricsPort=5558", "metricsAddress=10.0.0.2"},
            "broker-master": {
                "brokerClusterName=C",
                "brokerName=b",
                "brokerIP1=10.0.0.1",
                "listenPort=10911",
                "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876",
                "metricsPort=5557",
                "metricsAddress=10.0.0.1",
            },
            "broker-slave": {"brokerIP1=10.0.0.2", "brokerIP2=10.0.0.2", "listenPort=10911"},
        },
    ),
    "a group on three": (
        ("--dledger", "--hosts", "10.0.0.1,10.0.0.2,10.0.0.3"),
        {
            "namesrv-1": {"listenPort=9876"},
            "namesrv-2": {"listenPort=9876"},
            **{
                f"broker-n{number}": {
                    "enableDLegerCommitLog=true",
                    "dLegerGroup=broker-a",
                    "dLegerPeers=n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911",
                    f"dLegerSelfId=n{number}",
                    f"brokerIP1=10.0.0.{number + 1}",
                    "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876",
                }
                for number in range(3)
            },
        },
    ),
    "three controllers": (
        ("--controller", "--hosts", "127.0.0.1,127.0.0.1,127.0.0.1"),
        {
            f"controller-n{number}": {
                "controllerDLegerGroup=DefaultCluster-controller",
                "controllerDLegerPeers=n0-127.0.0.1:9878;n1-127.0.0.1:9879;n2-127.0.0.1:9880",
                f"controllerDLegerSelfId=n{number}",
                f"metricsPort={5559 + 10 * number}",
                "# A controller; brokers in controller mode get"
                " controllerAddr=127.0.0.1:9878;127.0.0.1:9879;127.0.0.1:9880",
            }
            for number in range(3)
        },
    ),
    "a pair that elects": (
        ("--failover", "--hosts", "10.0.0.1,10.0.0.2,10.0.0.3"),
        {
            "namesrv-1": {"enableControllerInNamesrv=true", "controllerDLegerSelfId=n0"},
            "namesrv-2": {"enableControllerInNamesrv=true", "controllerDLegerSelfId=n1"},
            "controller-n2": {"controllerDLegerSelfId=n2"},
            **{
                f"broker-{number}": {
                    "enableControllerMode=true",
                    "controllerAddr=10.0.0.1:9878;10.0.0.2:9878;10.0.0.3:9878",
                    "allAckInSyncStateSet=true",
                    "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876",
                    f"brokerIP1=10.0.0.{number}",
                }
                for number in (1, 2)
            },
        },
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_who_is_who_in_a_new_cluster(tmp_path: Path, layout: str) -> None:
    """Each file says whom it is of, whom it finds, and ports that nobody else on its host has."""
    arguments, files = LAYOUTS[layout]
    folder = tmp_path / "new"
    code, (told,) = admin("init", str(folder), *arguments)
    assert code == 0
    assert {path.name for path in folder.iterdir()} == {
        "prometheus.yml",
        *(f"{name}.properties" for name in files),
    }
    assert [row["command"].rpartition("/")[2] for row in told["rows"]] == [
        f"{name}.properties" for name in files
    ]
    for name, lines in files.items():
        assert lines <= lines_of(folder, name), name
        is_bound = "bindAddress=127.0.0.1" in lines_of(folder, name)
        assert is_bound is (layout in ("a pair on one machine", "three controllers"))
    roots = [line for name in files for line in lines_of(folder, name) if str(folder) in line]
    assert len(roots) == len(set(roots))


def test_stores_go_where_they_are_wanted(tmp_path: Path) -> None:
    code, _ = admin("init", str(tmp_path / "a"), "--pair", "--data", str(tmp_path / "d"))
    assert code == 0
    assert f"storePathRootDir={tmp_path}/d/broker-master" in lines_of(
        tmp_path / "a", "broker-master"
    )
    code, _ = admin("init", str(tmp_path / "b"), "--pair")
    assert f"storePathRootDir={tmp_path}/b/data/broker-master" in lines_of(
        tmp_path / "b", "broker-master"
    )


def test_a_backup_grows_and_says_what_it_holds(typed: Typist, root: Path, tmp_path: Path) -> None:
    config, target = config_of(root, tmp_path), str(tmp_path / "backup")
    code, (first,) = admin("backup", target, "-c", config)
    (row,) = first["rows"]
    assert (code, row["run"]) == (0, 1)
    assert row["copied"] > 0
    code, (again,) = admin("backup", target, "-c", config)
    (second,) = again["rows"]
    assert (code, second) == (0, {**row, "run": 2, "copied": second["copied"]})
    assert second["copied"] < row["copied"]
    people = CliRunner().invoke(main, ["backup", target, "-c", config]).stdout
    assert people.splitlines()[0] == f"Backup in {target}"
    elsewhere = tmp_path / "new.properties"
    text = Path(config).read_text().replace(str(root), str(tmp_path / "new"))
    elsewhere.write_text(text)
    code, (dry,) = admin("restore", target, "-c", str(elsewhere), "--dry-run")
    assert (code, dry["rows"][0]["begin"], dry["rows"][0]["end"]) == (0, row["begin"], row["end"])
    assert not (tmp_path / "new").exists()
    code, (done,) = admin("restore", target, "-c", str(elsewhere))
    assert (code, done["rows"]) == (0, dry["rows"])
    told = typed.does(f"store verify {tmp_path / 'new'}")
    assert [row["code"] for row in told.rows] == ["RESTORED"]
    code, _ = admin("restore", str(tmp_path / "none"), "-c", str(elsewhere))
    assert code == FAILED
    done_again = CliRunner().invoke(main, ["restore", str(tmp_path / "none"), "-c", str(elsewhere)])
    assert "holds no finished backup" in done_again.stderr
