"""rmq-ha and rmq-ha-client beside each other: installed and removed in every order, each works."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_paths()["purelib"])
BUILD = """
import os, sys
from hatchling.build import build_wheel
os.chdir(sys.argv[1])
print(build_wheel(sys.argv[2]))
"""
LOOK = """
import json, sys
import rmq_ha.client
from importlib.util import find_spec
from rmq_ha.client import Message, ProducerConfig
Message("T", b"")
print(json.dumps([rmq_ha.__file__, rmq_ha.client.__file__, find_spec("rmq_ha.server") is not None]))
"""
PIP = """
import json, subprocess, sys
from pip._internal.cli.main import main
for verb, what in json.loads(sys.argv[2]):
    options = ["--no-deps", "--no-index", "--no-compile"] if verb == "install" else ["-y"]
    if main([verb, "-qq", "--disable-pip-version-check", *options, what]):
        sys.exit(f"pip {verb} {what} failed")
    done = subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True)
    print(done.stdout.strip() or done.stderr.strip().splitlines()[-1], flush=True)
"""
"""pip takes a second to start: one process does the whole walk."""
WHOLE, CLIENT = "rmq-ha", "rmq-ha-client"
WALK = (
    *(("install", CLIENT), ("install", WHOLE), ("uninstall", CLIENT), ("install", CLIENT)),
    *(("uninstall", WHOLE), ("install", WHOLE), ("uninstall", WHOLE), ("uninstall", CLIENT)),
    *(("install", WHOLE), ("install", CLIENT), ("uninstall", CLIENT), ("uninstall", WHOLE)),
)
"""Each of both is installed first and second, and removed first and second after either."""


def run(*command: object, python_path: str = "") -> "subprocess.CompletedProcess[str]":
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if python_path:
        environ["PYTHONPATH"] = python_path
    words = [str(part) for part in command]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=80, env=environ, check=False, cwd="/"
    )


class Environment:
    """A virtual environment with the dependencies of this pytest, and without rmq-ha."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory, with_pip=False)
        self.python = directory / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = directory / "lib" / version / "site-packages"
        # Python reads no .pth file in a directory of a .pth file: an editable rmq-ha stays out.
        (self.site / "dependencies.pth").write_text(f"{SITE}\n")

    def look(self, python_path: str = "") -> "subprocess.CompletedProcess[str]":
        return run(self.python, "-c", LOOK, python_path=python_path)

    def served_by(self, python_path: str = "") -> str:
        """Which distribution `import rmq_ha` finds; its parts come from one place."""
        done = self.look(python_path)
        assert done.returncode == 0, done.stderr
        return who_serves(done.stdout)


def who_serves(look: str) -> str:
    if look == "ModuleNotFoundError: No module named 'rmq_ha'":
        return ""
    package, client, has_server = json.loads(look)
    assert Path(client).parents[1] == Path(package).parent
    is_client = Path(package).parts[-3] == "rmq_ha_client"
    assert has_server is not is_client
    return CLIENT if is_client else WHOLE


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("wheels")
    found = {}
    for name, project in ((WHOLE, ROOT), (CLIENT, ROOT / "conf" / "rmq-ha-client")):
        done = run(sys.executable, "-c", BUILD, project, out)
        assert done.returncode == 0, done.stderr
        found[name] = out / done.stdout.strip()
    return found


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as content:
        return set(content.namelist())


def test_no_file_belongs_to_both(wheels: dict[str, Path]) -> None:
    """`pip uninstall` of one takes nothing of the other away."""
    assert files_of(wheels[WHOLE]) & files_of(wheels[CLIENT]) == set()


def test_each_works_after_every_order_of_installing_and_removing(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "env")
    walk = [[verb, str(wheels[name]) if verb == "install" else name] for verb, name in WALK]
    done = run(environment.python, "-c", PIP, LOOK, json.dumps(walk))
    assert done.returncode == 0, done.stderr
    there: set[str] = set()
    looks = done.stdout.splitlines()
    for (verb, name), look in zip(WALK, looks, strict=True):
        there ^= {name}
        expected = WHOLE if WHOLE in there else CLIENT if CLIENT in there else ""
        assert who_serves(look) == expected, (verb, name)
    assert [path for path in environment.site.iterdir() if path.name.startswith("rmq_ha")] == []


def test_it_works_in_a_directory_on_the_path(wheels: dict[str, Path], tmp_path: Path) -> None:
    """`pip install --target`: Python reads no .pth file there."""
    environment = Environment(tmp_path / "env")
    with zipfile.ZipFile(wheels[CLIENT]) as content:
        content.extractall(tmp_path / "target")
    assert environment.served_by(python_path=str(tmp_path / "target")) == CLIENT


def test_an_editable_rmq_ha_goes_first(wheels: dict[str, Path], tmp_path: Path) -> None:
    """`pip install -e`, as hatchling does it: a .pth file names the clone."""
    environment = Environment(tmp_path / "env")
    with zipfile.ZipFile(wheels[CLIENT]) as content:
        content.extractall(environment.site)
    assert environment.served_by() == CLIENT
    (environment.site / "_rmq_ha.pth").write_text(f"{ROOT}\n")
    assert environment.served_by() == WHOLE


def test_type_checkers_find_the_client_by_the_path(wheels: dict[str, Path], tmp_path: Path) -> None:
    """They do not run `rmq_ha.py`, but they read .pth files."""
    with zipfile.ZipFile(wheels[CLIENT]) as content:
        content.extractall(tmp_path)
    for line in (tmp_path / "rmq_ha_client.pth").read_text().splitlines():
        assert (tmp_path / line / "rmq_ha" / "py.typed").is_file()
        assert (tmp_path / line / "rmq_ha" / "client" / "aio.py").is_file()


def test_files_that_are_missing_are_named(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env")
    with zipfile.ZipFile(wheels[CLIENT]) as content:
        content.extract("rmq_ha.py", environment.site)
    told = environment.look().stderr
    assert f"are missing in {environment.site / 'rmq_ha_client'}: install" in told
