"""What Spark's workers import brings no reactor, nor anything else of Twisted."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("lake/spark", "lake/scan", "ops/offsets", "ops/offline")
    for path in (ROOT / "rmq_ha" / room).rglob("*.py")
    if path.name != "__init__.py"
)
SCRIPT = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
    found = [name for name in ("twisted", "zope.interface") if name in sys.modules]
    if found:
        sys.exit(f"{name} brings {found}")
"""


@pytest.mark.parametrize("names", [MODULES, ["pyspark_rocketmq"]], ids=["all", "registration"])
def test_no_module_brings_twisted(names: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def test_the_modules_were_found() -> None:
    assert "rmq_ha.lake.spark.source.datasource" in MODULES
    assert "rmq_ha.lake.spark.host.session" in MODULES


@pytest.mark.parametrize("package", ["pandas", "matplotlib", "jinja2", "rich"])
def test_what_is_heavy_waits_until_it_is_used(package: str) -> None:
    """The data source and the frame of a job start without it."""
    script = (
        "import sys, pyspark_rocketmq, rmq_ha.lake.spark.running, rmq_ha.lake.spark.host.session\n"
        f"sys.exit({package!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_a_scan_needs_no_spark() -> None:
    """Numpy and pyarrow are its whole installation."""
    names = [name for name in MODULES if name.startswith("rmq_ha.lake.scan")]
    script = SCRIPT.replace('"twisted", "zope.interface"', '"pyspark", "py4j", "pandas"')
    done = subprocess.run(
        [sys.executable, "-c", script, *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
