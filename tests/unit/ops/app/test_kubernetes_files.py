"""conf/kubernetes agrees with the code; `tests/packaging/test_kubernetes.py` judges the objects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.ops.app import namesrv_tap, tap
from tests.kits.rendered import CHART, MANIFEST, head
from tests.unit.ops.app.test_operating_files import (
    PROMTOOL,
    exported,
    labels_that_nobody_has,
    promtool,
)

TEXT = MANIFEST.read_text()
OBJECTS = [item for item in yaml.safe_load_all(TEXT) if item]
SETS = [item for item in OBJECTS if item["kind"] == "StatefulSet"]
KEDA = MANIFEST.with_name("keda-scaledobject.yaml")


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (i for i in OBJECTS if i["kind"] == kind and i["metadata"]["name"] == name)
    return dict(found)


def loaded(owner: dict[str, Any], number: int = 1) -> Any:
    """The configuration with which a pod starts, and what is noted about it."""
    name = owner["metadata"]["name"]
    ((file, text),) = named("ConfigMap", name)["data"].items()
    (container,) = owner["spec"]["template"]["spec"]["containers"]
    program = container["command"][2].split("exec ")[1].split()
    assert program[1:3] == ["--config", f"/run/rmqha/{file}"]
    known = {"$POD_IP": "10.1.2.3", "$ORDINAL": str(number)}
    identity = [part.strip('"') for part in program[3:] if part != "--set"]
    for variable, value in known.items():
        identity = [item.replace(variable, value) for item in identity]
    is_broker = program[0] == "rmqha-broker"
    options = (tap if is_broker else namesrv_tap).Options()
    options.parseOptions([part for item in identity for part in ("--set", item)])
    here = Surroundings({}, "/home/u", f"{name}-{number}", "10.1.2.3", "/var/lib/rmqha", {}.get)
    return (load_broker if is_broker else load_namesrv)(text, here, overrides=options.overrides)


def test_the_manifest_is_the_charts() -> None:
    """A change of the chart needs `python -m tests.kits.rendered`, which needs Go."""
    assert TEXT.startswith(head()), f"run `python -m tests.kits.rendered`: {CHART} has changed"


@pytest.mark.parametrize("owner", SETS, ids=lambda owner: owner["metadata"]["name"])
def test_a_server_starts_with_its_properties_and_without_a_warning(owner: dict[str, Any]) -> None:
    configuration, notices = loaded(owner)
    known = "command line: metricsAddress=10.1.2.3: whoever reaches port "  # pageToken is a secret
    assert [notice.text for notice in notices if not notice.text.startswith(known)] == []
    if owner["metadata"]["name"] == "rmqha-namesrv":
        peers = re.findall(r"n\d-[\w.-]+:9878", configuration.controller.controller_dleger_peers)
        assert len(peers) == owner["spec"]["replicas"] == 3
        assert configuration.controller.controller_dleger_self_id == "n1"
        assert peers[1] == "n1-rmqha-namesrv-1.rmqha-namesrv.default.svc:9878"
        return
    assert configuration.broker.broker_ip1 == configuration.broker.broker_ip2 == "10.1.2.3"
    assert configuration.controlled.enable_controller_mode
    assert configuration.controlled.all_ack_in_sync_state_set
    assert "10.0.0.0/8" in configuration.ours.ha_trusted_masters
    addresses = str(configuration.broker.namesrv_addr).split(";")
    assert configuration.controlled.controllers == tuple(
        address.replace(":9876", ":9878") for address in addresses
    )


@pytest.mark.parametrize("owner", SETS, ids=lambda owner: owner["metadata"]["name"])
def test_a_pod_can_neither_write_nor_rise_and_has_time_to_hand_over(owner: dict[str, Any]) -> None:
    spec = owner["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == 3000
    configuration, _ = loaded(owner)
    if container["name"] == "broker":
        most = configuration.ours.ha_hand_over_at_stop_seconds
        assert spec["terminationGracePeriodSeconds"] >= most + 60
    probes = {kind: container[kind]["httpGet"] for kind in container if kind.endswith("Probe")}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    own = configuration.ours if container["name"] == "broker" else configuration.namesrv
    assert ports["status"] == own.metrics_port
    assert own.metrics_address == "10.1.2.3"


@pytest.mark.parametrize("owner", SETS, ids=lambda owner: owner["metadata"]["name"])
def test_the_objects_of_a_set_mean_the_same_pods(owner: dict[str, Any]) -> None:
    name, labels = owner["metadata"]["name"], owner["spec"]["selector"]["matchLabels"]
    template = owner["spec"]["template"]
    assert template["metadata"]["labels"] == labels
    service, budget = named("Service", name), named("PodDisruptionBudget", name)
    assert service["spec"]["selector"] == labels
    assert service["spec"]["publishNotReadyAddresses"]
    assert (service["spec"]["clusterIP"], owner["spec"]["serviceName"]) == ("None", name)
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    assert owner["spec"]["podManagementPolicy"] == "Parallel"
    (term,) = template["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["labelSelector"]["matchLabels"] == labels
    mounts = {m["name"] for m in template["spec"]["containers"][0]["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in owner["spec"]["volumeClaimTemplates"]}
    assert mounts == claims | {volume["name"] for volume in template["spec"]["volumes"]}


def test_consumers_are_scaled_by_a_metric_that_there_is(tmp_path: Path) -> None:
    (trigger,) = yaml.safe_load(KEDA.read_text())["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert (exported(query), labels_that_nobody_has(query)) == (set(), set())
    if PROMTOOL is not None:
        rules = tmp_path / "rules.yml"
        group = {"name": "keda", "rules": [{"record": "lag:keda", "expr": query}]}
        rules.write_text(yaml.safe_dump({"groups": [group]}))
        assert promtool("check", "rules", str(rules)) == 0
