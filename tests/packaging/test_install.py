"""The package as users get it: wheel, sdist, editable; and a plugin that lives outside of it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import rmq_ha

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
DIST_INFO = f"rmq_ha-{rmq_ha.__version__}.dist-info"
SITE = Path(sysconfig.get_paths()["purelib"])
SOURCES = (
    *("rmq_ha", "twisted", "pyspark_rocketmq.py"),
    *("pyproject.toml", "README.md", "LICENSE", "examples"),
)
BUILD = """
import os, sys
from hatchling.build import build_sdist, build_wheel
os.chdir(sys.argv[1])
print(build_wheel(sys.argv[2]))
print(build_sdist(sys.argv[2]))
"""

BUILD_CLIENT = """
import os, sys
from hatchling.build import build_wheel
os.chdir(sys.argv[1])
print(build_wheel(sys.argv[2]))
"""


def run(*command: object, **given: object) -> "subprocess.CompletedProcess[str]":
    of_this_pytest = ("PYTHONPATH", "PYTEST_ADDOPTS")
    environ = {key: value for key, value in os.environ.items() if key not in of_this_pytest}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=80,
        env=environ,
        check=False,
        **given,  # type: ignore[call-overload]
    )


class Environment:
    """
    A fresh virtual environment that sees what is installed beside this pytest, but not rmq-ha.

    Twisted itself is copied, so that its plugins and ours share one directory, as with pip.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory / name
        venv.create(self.directory, with_pip=False)
        self.python = self.directory / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = self.directory / "lib" / version / "site-packages"
        # Paths of a .pth file are not searched for .pth files: an editable rmq-ha stays out.
        (self.site / "parent.pth").write_text(f"{SITE}\n")
        without = shutil.ignore_patterns("test", "*.pyc", "dropin.cache", "rmqha.py")
        shutil.copytree(SITE / "twisted", self.site / "twisted", ignore=without)

    def install(self, *what: object) -> None:
        arguments = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
        done = run(sys.executable, "-m", "pip", "--python", self.python, *arguments, *what)
        assert done.returncode == 0, done.stderr

    def twistd(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        start = "import sys; from twisted.scripts.twistd import run; sys.exit(run())"
        return run(self.python, "-c", start, *arguments, cwd=self.directory)

    def make_plugins_read_only(self, *directories: Path) -> None:
        """Also for root, who may write into a directory without the permission."""
        for directory in directories:
            cache = directory / "dropin.cache"
            if cache.is_file():
                cache.unlink()
            cache.mkdir()
            (cache / "in-the-way").touch()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of what a build needs."""
    copy = tmp_path_factory.mktemp("sources") / "rmq-ha"
    copy.mkdir()
    without = shutil.ignore_patterns("__pycache__", "dropin.cache", ".mypy_cache", ".ruff_cache")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=without)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def built(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and sdist."""
    out = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-c", BUILD, sources, out)
    assert done.returncode == 0, done.stderr
    wheel, sdist = done.stdout.split()
    return out / wheel, out / sdist


@pytest.fixture(scope="module")
def wheel_environment(
    built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("wheel"), "env")
    environment.install(built[0])
    return environment


def assert_quiet_and_working(environment: Environment) -> None:
    """`--help` and `--check` work, and nothing is said about a cache that cannot be written."""
    for arguments, expected in (
        (["rmqha", "--help"], "--namesrvAddr="),
        (["rmqnamesrv", "--help"], "--listenPort="),
        (["-n", "rmqha", "--check"], "# port 10912: replication"),
    ):
        done = environment.twistd(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout
        assert "cache" not in done.stdout


def test_a_wheel_works_on_a_read_only_installation(wheel_environment: Environment) -> None:
    installed = wheel_environment.site / "rmq_ha" / "__init__.py"
    assert installed.exists()
    wheel_environment.make_plugins_read_only(wheel_environment.site / "twisted" / "plugins")
    assert_quiet_and_working(wheel_environment)


def test_a_start_on_a_read_only_installation_does_not_speak_of_the_cache(
    wheel_environment: Environment,
) -> None:
    plugins = wheel_environment.site / "twisted" / "plugins"
    if not (plugins / "dropin.cache").is_dir():
        wheel_environment.make_plugins_read_only(plugins)
    done = wheel_environment.twistd(
        *("-n", "--pidfile=", "rmqnamesrv", "--listenPort", "20040"),
        *("--set", "bindAddress=192.0.2.77", "--set", "kvConfigPath=./kv.json"),
    )
    assert done.returncode == 1
    assert "cannot listen on port 20040 of 192.0.2.77 for brokers and clients" in done.stdout
    assert "cache" not in done.stdout
    assert done.stderr == ""


def test_a_wheel_brings_no_cache_and_no_package_file(wheel_environment: Environment) -> None:
    names = (wheel_environment.site / DIST_INFO / "RECORD").read_text()
    assert "twisted/plugins/rmqha.py," in names
    assert "dropin.cache" not in names
    assert "twisted/plugins/__init__.py" not in names


def test_an_older_python_is_told_so(wheel_environment: Environment) -> None:
    """pip reads it from there, and names both versions."""
    metadata = wheel_environment.site / DIST_INFO / "METADATA"
    assert "Requires-Python: >=3.11\n" in metadata.read_text()


def test_a_wheel_brings_what_spark_looks_for(wheel_environment: Environment) -> None:
    """A module at the top, by which `format("rocketmq")` is found, and files that are no Python."""
    names = (wheel_environment.site / DIST_INFO / "RECORD").read_text()
    assert "pyspark_rocketmq.py," in names.splitlines()[0] or "\npyspark_rocketmq.py," in names
    assert "rmq_ha/lake/spark/host/log4j2.properties," in names
    assert "rmq_ha/lake/spark/report/report.html.jinja," in names
    done = run(wheel_environment.directory / "bin" / "rmqha-spark", "--help")
    assert (done.returncode, "verify-offsets" in done.stdout) == (0, True), done.stderr
    assert "twisted/__init__.py" not in names


def test_a_wheel_brings_its_pytest_plugin(wheel_environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("async def test_it(rmqha_world): rmqha_world.wind(1)\n")
    arguments = ("-q", "-p", "no:asyncio", "-p", "no:cacheprovider")
    done = run(wheel_environment.python, "-m", "pytest", *arguments, tmp_path, cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_type_checker_knows_the_client_of_a_wheel(
    wheel_environment: Environment, tmp_path: Path
) -> None:
    """Without `py.typed` all of it would be Any; each mistake that is marked is found, no other."""
    pytest.importorskip("mypy", reason="pip install 'rmq-ha[dev]'")
    # Elsewhere, as in here mypy would take the tree for the package.
    program = Path(
        shutil.copy(ROOT / "tests" / "packaging" / "typed" / "user_program.py", tmp_path)
    )
    lines = program.read_text().splitlines()
    marks = [(number, re.search("# wrong: (.*)", line)) for number, line in enumerate(lines, 1)]
    wrong = {(number, found[1]) for number, found in marks if found is not None}
    options = ("--strict", "--config-file=", "--no-error-summary", f"--cache-dir={tmp_path}")
    done = run(
        *(sys.executable, "-m", "mypy", *options),
        *("--python-executable", wheel_environment.python, program),
        cwd=tmp_path,
    )
    errors = re.findall(r":(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert {(int(number), code) for number, code in errors} == wrong, done.stdout + done.stderr


def test_the_client_alone_is_a_wheel_of_its_own(tmp_path: Path) -> None:
    """From the same tree; tests/unit/client/test_alone.py says that nothing is missing in it."""
    done = run(sys.executable, "-c", BUILD_CLIENT, ROOT / "conf" / "rmq-ha-client", tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.strip()) as wheel:
        names = set(wheel.namelist())
    expected = {"client/aio.py", "py.typed", "base/wire/frame.py"}
    assert {f"rmq_ha_client/rmq_ha/{name}" for name in expected} <= names
    assert not [name for name in names if "/broker/" in name or "/spark/" in name or ".pyc" in name]


def test_an_sdist_works(built: tuple[Path, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path, "env")
    environment.install(built[1])
    assert_quiet_and_working(environment)


def test_an_editable_install_works_from_a_read_only_tree(sources: Path, tmp_path: Path) -> None:
    """setuptools' would hide `twisted/plugins/`; hatchling's does not."""
    environment = Environment(tmp_path, "env")
    environment.install("-e", sources)
    assert not (environment.site / "rmq_ha").exists()
    plugins = (environment.site / "twisted" / "plugins", sources / "twisted" / "plugins")
    environment.make_plugins_read_only(*plugins)
    try:
        assert_quiet_and_working(environment)
    finally:
        shutil.rmtree(sources / "twisted" / "plugins" / "dropin.cache")


def test_a_plugin_from_outside_is_found_by_its_name(
    wheel_environment: Environment, sources: Path
) -> None:
    """examples/acme-audit, as its README says."""
    wheel_environment.install(sources / "examples" / "acme-audit")
    check = ("-n", "rmqha", "--check", "--set")
    done = wheel_environment.twistd(*check, "dispatcherPlugIn=audit", "--set", "audit.every=5")
    assert (done.returncode, done.stderr) == (0, "")
    assert "audit.every=5" in done.stdout
    done = wheel_environment.twistd(*check, "dispatcherPlugIn=audi")
    assert done.returncode == 1
    assert done.stderr == (
        "rmqha: no IDispatcherPlugin called 'audi' is installed; installed: audit\n"
    )


def test_the_plugin_from_outside_counts(wheel_environment: Environment, sources: Path) -> None:
    """Through load_plugins, with its own option."""
    wheel_environment.install("--upgrade", sources / "examples" / "acme-audit")
    script = """
from types import SimpleNamespace as Record
from zope.interface.verify import verifyObject
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.interfaces import ICommitLogDispatcher, IDispatcherPlugin
from rmq_ha.server.plugins import load_plugins

class Context:
    def __init__(self, **options): self.options = options
    def option(self, name, default=None): return self.options.get(name, default)

(audit,) = load_plugins(IDispatcherPlugin, ["audit"])
verifyObject(IDispatcherPlugin, audit)
dispatcher = audit.make_dispatcher(Context())
verifyObject(ICommitLogDispatcher, dispatcher)
dispatcher.dispatch([Record(topic="a"), Record(topic="b"), Record(topic="a")])
print(sorted(dispatcher.counts.items()))
try:
    audit.make_dispatcher(Context(**{"audit.every": "x"}))
except ConfigurationError as error:
    print(error)
"""
    done = run(wheel_environment.python, "-c", script, cwd=wheel_environment.directory)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[('a', 2), ('b', 1)]",
        "audit.every=x: must be a number above 0",
    ]
