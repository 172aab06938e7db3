"""`rmqha-admin init`: what it writes is what a start takes."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.base.config.load_controller import load_controller
from rmq_ha.base.config.plans import controller_port_plan, namesrv_port_plan, port_plan
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.app import controller_tap, namesrv_tap, tap

TAPS: dict[str, Any] = {"broker": tap, "namesrv": namesrv_tap, "controller": controller_tap}
THREE = ["--hosts", "10.0.0.1,10.0.0.2,10.0.0.3"]


def init(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["init", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--pair", "--hosts", "10.0.0.1;10.0.0.2"], "between two addresses is a comma"),
        (["x", "--pair", "--name", "broker a"], "--name 'broker a': commands and clients take"),
        (["x", "--pair", "--cluster", ""], "use letters, digits, - and _"),
        (["/proc/x", "--pair"], "/proc/x: No such file or directory: name a place where"),
    ],
)
def test_what_init_cannot_write_is_said(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = init(*arguments)
    assert code
    assert words in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--pair"], 4),
        (["--pair", "--base-port", "20000"], 4),
        (["--pair", "--hosts", "fd00::1,[fd00::2]"], 4),
        (["--pair", "--hosts", "10.0.0.1,10.0.0.2", "--data", "/var/lib/rmqha"], 4),
        (["--dledger"], 5),
        (["--dledger", *THREE], 5),
        (["--failover"], 5),
        (["--failover", *THREE], 5),
        (["--pair", "--grpc"], 4),
        (["--dledger", "--grpc"], 5),
        (["--failover", "--grpc", *THREE], 5),
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
    assert len(commands) == files == len(list((tmp_path / "new").glob("*.properties")))
    for program, option, file in commands:
        tap_of = TAPS[program.removeprefix("rmqha-")]
        options = tap_of.Options()
        options.parseOptions(["--check", option, file])
        with pytest.raises(SystemExit) as caught:
            tap_of.makeService(options)
        assert caught.value.code == 0, file
        first = capsys.readouterr().out.splitlines()[0]
        assert not first.startswith("# "), "a notice"


def ports_of(path: Path) -> list[int]:
    """Every port that the server of a file takes."""
    text, here = path.read_text(), real_surroundings(str(path.parent))
    if path.name.startswith("namesrv"):
        plan = namesrv_port_plan(load_namesrv(text, here).configuration)
    elif path.name.startswith("controller"):
        plan = controller_port_plan(load_controller(text, here).configuration)
    else:
        plan = port_plan(load_broker(text, here).configuration)
    return [planned.port for planned in plan]


@pytest.mark.parametrize("base", [0, 20000, 65234])
@pytest.mark.parametrize("layout", ["--pair", "--dledger", "--failover", "--controller"])
def test_on_one_machine_no_two_take_the_same_port(tmp_path: Path, layout: str, base: int) -> None:
    assert init(str(tmp_path), layout, *(["--base-port", str(base)] if base else []))[0] == 0
    taken: Counter[int] = Counter()
    for path in tmp_path.glob("*.properties"):
        taken.update(ports_of(path))
    assert max(taken.values()) == 1
    if base:
        assert base <= min(taken) <= max(taken) <= 65535


def lines_of(path: Path) -> dict[str, str]:
    """The settings of a file."""
    lines = (line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {key: value for key, value in lines if not key.startswith("#")}


STATUS_PORTS = {"broker": 5557, "namesrv": 5558, "controller": 5559}


@pytest.mark.parametrize("layout", ["--dledger", "--failover", "--controller"])
def test_other_machines_reach_the_health_of_each_server(tmp_path: Path, layout: str) -> None:
    """The kind says the port, a token guards the page, and Prometheus knows all servers."""
    code, output = init(str(tmp_path / "new"), layout, *THREE, "--json")
    assert code == 0
    tokens, targets = set(), set()
    for path in (tmp_path / "new").glob("*.properties"):
        settings = lines_of(path)
        assert int(settings["metricsPort"]) == STATUS_PORTS[path.name.partition("-")[0]]
        tokens.add(settings["pageToken"])
        targets.add(f"{settings['metricsAddress']}:{settings['metricsPort']}")
    (token,) = tokens
    assert len(token) == 40
    scraped = yaml.safe_load((tmp_path / "new" / "prometheus.yml").read_text())
    ((job,),) = (scraped["scrape_configs"],)
    assert job["job_name"] == "rmq-ha"
    assert set(job["static_configs"][0]["targets"]) == targets
    shown = {row["status"] for row in json.loads(output)["rows"]}
    assert shown == {f"http://{target}/" for target in targets}
    assert init(str(tmp_path / "again"), layout, *THREE)[0] == 0
    again = lines_of(next((tmp_path / "again").glob("*.properties")))
    assert again["pageToken"] != token


def test_a_pair_that_elects_is_nobody_elses(tmp_path: Path) -> None:
    """Only its two brokers get ids, replicate and are followed; names have to be replaced."""
    assert init(str(tmp_path / "new"), "--failover", *THREE)[0] == 0
    brokers = ",".join(THREE[1].split(",")[:2])
    for path in (tmp_path / "new").glob("*.properties"):
        settings = lines_of(path)
        if path.name.startswith("broker"):
            assert settings["haAllowedSlaves"] == settings["haTrustedMasters"] == brokers
        else:
            assert settings["controllerAllowedBrokers"] == brokers
    assert init(str(tmp_path / "named"), "--failover", "--hosts", "a.x,b.x,c.x")[0] == 0
    text = (tmp_path / "named" / "controller-n2.properties").read_text()
    assert "# Write the addresses of a.x,b.x here, or strangers may come: " in text


def test_the_documents_have_the_plan_of_ports(tmp_path: Path) -> None:
    """`docs/install.md` says what the ports are, one server of a kind after the other."""
    text = (Path(__file__).parents[4] / "docs" / "install.md").read_text()
    for base, name in ((0, "usual"), (20000, "moved")):
        moved = ["--base-port", str(base)] if base else []
        assert init(str(tmp_path / name), "--failover", *moved)[0] == 0
        assert init(str(tmp_path / f"{name}-group"), "--dledger", *moved)[0] == 0
        rows = {
            row.split(" | ")[0].strip("| "): row.split(" | ")[1 if not base else 2]
            for row in text.splitlines()
            if row.startswith("| ") and row.count("|") == 5
        }
        for kind, files in {
            "a broker": ("broker-1", "broker-2"),
            "a name server": ("namesrv-1", "namesrv-2"),
            "a controller": ("controller-n2",),
        }.items():
            told = [int(number) for number in re.findall(r"\d{4,5}", rows[kind])]
            found = [
                lines_of(tmp_path / name / f"{file}.properties")["metricsPort"] for file in files
            ]
            assert told[-1] == int(found[0]), (kind, base)
            assert found[1:] == [str(told[-1] + 10)] * len(found[1:])


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
        ["--pair", "--base-port", "65235"],
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(tmp_path: Path, arguments: list[str]) -> None:
    assert init(str(tmp_path / "new"), *arguments)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pair", "--dledger"], "--pair and --dledger do not go together"),
        (["--pair", "--hosts", "a,a"], "a comes twice: the servers of one machine die together"),
        (["--pair", "--hosts", "10.0.0.1:10911,b"], "give the machine without a port, 10.0.0.1"),
        (["--pair", "--hosts", "127.0.0.1,b"], "the other machines cannot reach it"),
        (["--pair", "--hosts", "0.0.0.0,b"], "nobody can connect to it"),
        (["--pair", "--hosts", "a b,c"], "a b is no address and no name"),
    ],
)
def test_hosts_that_would_make_no_cluster_are_refused(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    code, output = init(str(tmp_path / "new"), *arguments)
    assert code == 2
    assert words in output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("layout", ["--pair", "--dledger", "--failover"])
def test_clients_of_rocketmq_5_are_served_on_the_port_of_the_others(
    tmp_path: Path, layout: str
) -> None:
    code, output = init(str(tmp_path), layout, "--grpc")
    assert code == 0
    assert "The brokers need the packages of rmq-ha[grpc]." in output
    for path in tmp_path.glob("broker-*.properties"):
        settings = lines_of(path)
        assert settings["grpcServerPort"] == settings["listenPort"]
        assert settings["popEnable"] == settings["timerWheelEnable"] == "true"
    assert init(str(tmp_path / "other"), layout)[0] == 0
    for path in (tmp_path / "other").glob("*.properties"):
        assert "grpcServerPort" not in lines_of(path)


def test_controllers_serve_no_clients_of_rocketmq_5(tmp_path: Path) -> None:
    code, output = init(str(tmp_path), "--controller", "--grpc")
    assert code == 2
    assert "controllers serve no clients" in output
