"""
`conf/kubernetes/rmqha.yaml`: the chart as Helm renders it with its own values.

    python -m tests.kits.rendered        writes the file; needs Go

The file begins with a hash of the chart, so a test without Go finds a file that is too old.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "conf" / "kubernetes" / "rmqha"
MANIFEST = CHART.with_suffix(".yaml")
SOURCE = ROOT / "tests" / "packaging" / "kubecheck"


def digest() -> str:
    """The hash of all files of the chart."""
    found = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def head() -> str:
    """The first lines of the rendering."""
    return (
        "# conf/kubernetes/rmqha with its own values, the release rmqha in the namespace default:\n"
        "#   kubectl -n default apply -f conf/kubernetes/rmqha.yaml\n"
        "# Made by `python -m tests.kits.rendered` of the chart with the hash\n"
        f"# {digest()}\n"
    )


def build(folder: Path) -> Path:
    """
    Build the program that renders and judges. The first time takes minutes.

    :returns: the program; `RMQ_HA_KUBECHECK` may name one that was built before.
    """
    ready = os.environ.get("RMQ_HA_KUBECHECK", "")
    if os.access(ready, os.X_OK) and Path(ready).is_file():
        return Path(ready)
    go = shutil.which("go")
    if go is None:
        raise SystemExit("there is no go")
    program = folder / "kubecheck"
    subprocess.run([go, "build", "-o", str(program), "."], cwd=SOURCE, check=True)
    return program


def rendering(program: Path, *values: Path) -> str:
    """What `helm template` prints."""
    done = subprocess.run(
        [str(program), str(CHART), *map(str, values)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        MANIFEST.write_text(head() + rendering(build(Path(directory)), *map(Path, sys.argv[1:])))
