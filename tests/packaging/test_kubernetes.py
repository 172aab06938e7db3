"""
The chart of `conf/kubernetes`, rendered by Helm's engine and judged by Kubernetes' own validation.

`RMQ_HA_KUBECHECK=1` builds `tests/packaging/kubecheck` with Go, the first time for minutes;
`RMQ_HA_KUBECHECK=/path/to/kubecheck` takes a program that was built before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kits.rendered import MANIFEST, build, head, rendering


def why_not() -> str:
    """The reason why none of this can run here; empty: it can."""
    if not os.environ.get("RMQ_HA_KUBECHECK"):
        return "minutes to build Kubernetes' validation: set RMQ_HA_KUBECHECK=1"
    return "" if shutil.which("go") or os.environ["RMQ_HA_KUBECHECK"] != "1" else "there is no go"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can run")
VALUES = """\
existingSecret: rmqha-secret
antiAffinity: preferred
storageClassName: fast
networkPolicy: false
nodeSelector: {disk: ssd}
tolerations: [{key: dedicated, operator: Equal, value: rmqha, effect: NoSchedule}]
broker: {names: [broker-a, broker-b], replicas: 3, properties: {haSecretRequired: "true"}}
"""


@pytest.fixture(scope="module")
def kubecheck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("go"))


def judged(program: Path, *files: Path) -> tuple[list[str], str]:
    """The objects, and what is wrong with them."""
    command = [str(program), "-check", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert bool(done.stderr) is bool(done.returncode)
    return done.stdout.splitlines(), done.stderr


def test_the_manifest_is_what_helm_renders(kubecheck: Path) -> None:
    assert MANIFEST.read_text() == head() + rendering(kubecheck)


def test_kubernetes_and_keda_take_the_objects(kubecheck: Path) -> None:
    objects, wrong = judged(kubecheck, MANIFEST, MANIFEST.with_name("keda-scaledobject.yaml"))
    assert wrong == ""
    assert len(objects) == 10


def test_kubernetes_takes_the_objects_of_other_values(kubecheck: Path, tmp_path: Path) -> None:
    values, found = tmp_path / "values.yaml", tmp_path / "found.yaml"
    values.write_text(VALUES)
    found.write_text(rendering(kubecheck, values))
    objects, wrong = judged(kubecheck, found)
    assert wrong == ""
    assert [line for line in objects if "broker-b" in line]
    assert "haSecretRequired=true" in found.read_text()


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("  serviceName:", "  serviceNam:", "unknown field"),
        ("maxUnavailable: 1", "maxUnavailable: -1", "greater than or equal to 0"),
        ("periodSeconds: 5", "periodSeconds: -5", "greater than or equal to 0"),
        ("name: data, mountPath", "name: date, mountPath", "volumeMounts"),
        ("runAsUser: 3000", "runAsUser: root", "cannot unmarshal"),
    ],
)
def test_a_mistake_is_found(
    kubecheck: Path, tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    text, broken = MANIFEST.read_text(), tmp_path / "broken.yaml"
    assert right in text
    broken.write_text(text.replace(right, wrong, 1))
    assert said in judged(kubecheck, broken)[1]
