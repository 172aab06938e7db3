"""`rmqha-admin init`: what it writes is what a start takes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.admin.main import main
from rmq_ha.app import controller_tap, namesrv_tap, tap
from rmq_ha.config.load import load_broker, load_namesrv
from rmq_ha.config.load_controller import load_controller
from rmq_ha.config.plans import controller_port_plan, namesrv_port_plan, port_plan
from rmq_ha.host.surroundings import real_surroundings

TAPS: dict[str, Any] = {"broker": tap, "namesrv": namesrv_tap, "controller": controller_tap}
THREE = ["--hosts", "10.0.0.1,10.0.0.2,10.0.0.3"]


def init(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["init", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--pair"], 4),
        (["--pair", "--hosts", "10.0.0.1,10.0.0.2", "--data", "/var/lib/rmqha"], 4),
        (["--dledger"], 5),
        (["--dledger", *THREE], 5),
        (["--failover"], 5),
        (["--failover", *THREE], 5),
        (["--controller"], 1),
        (["--controller", "--hosts", "127.0.0.1,127.0.0.1,127.0.0.1"], 3),
        (["--controller", *THREE], 3),
    ],
)
def test_every_file_passes_its_check(
    tmp_path: Path, arguments: list[str], files: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = init(str(tmp_path / "new"), "--json", *arguments)
    assert code == 0
    commands = [row["command"].split() for row in json.loads(output)["rows"]]
    assert len(commands) == files == len(list((tmp_path / "new").iterdir()))
    for program, option, file in commands:
        tap_of = TAPS[program.removeprefix("rmqha-")]
        options = tap_of.Options()
        options.parseOptions(["--check", option, file])
        with pytest.raises(SystemExit) as caught:
            tap_of.makeService(options)
        assert caught.value.code == 0, file
        first = capsys.readouterr().out.splitlines()[0]
        assert not first.startswith("# "), "a notice"


@pytest.mark.parametrize("layout", ["--pair", "--dledger", "--failover", "--controller"])
def test_on_one_machine_no_two_take_the_same_port(tmp_path: Path, layout: str) -> None:
    assert init(str(tmp_path), layout)[0] == 0
    taken: Counter[int] = Counter()
    for path in tmp_path.glob("*.properties"):
        text, here = path.read_text(), real_surroundings(str(tmp_path))
        if path.name.startswith("namesrv"):
            plan = namesrv_port_plan(load_namesrv(text, here).configuration)
        elif path.name.startswith("controller"):
            plan = controller_port_plan(load_controller(text, here).configuration)
        else:
            plan = port_plan(load_broker(text, here).configuration)
        taken.update(planned.port for planned in plan)
    assert max(taken.values()) == 1


def test_a_pair_is_a_master_and_the_slave_with_the_first_free_id(tmp_path: Path) -> None:
    assert init(str(tmp_path), "--pair")[0] == 0
    for name, lines in (
        ("broker-master", {"brokerId=0", "brokerRole=SYNC_MASTER"}),
        ("broker-slave", {"brokerId=1", "brokerRole=SLAVE"}),
    ):
        assert lines <= set((tmp_path / f"{name}.properties").read_text().splitlines())


def test_nothing_that_is_there_is_changed(tmp_path: Path) -> None:
    (tmp_path / "broker-slave.properties").write_text("mine")
    code, output = init(str(tmp_path), "--pair")
    assert code == 1
    assert "broker-slave.properties already" in output
    assert [path.name for path in tmp_path.iterdir()] == ["broker-slave.properties"]
    assert (tmp_path / "broker-slave.properties").read_text() == "mine"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    code, output = init(str(tmp_path / "new"), "--pair", "--dry-run")
    assert code == 0
    assert "rmqha-broker -c" in output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--pair", *THREE],
        ["--dledger", "--hosts", "a"],
        ["--failover", "--hosts", "a,b"],
        ["--controller", "--hosts", "a,b"],
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(tmp_path: Path, arguments: list[str]) -> None:
    assert init(str(tmp_path / "new"), *arguments)[0] == 2
