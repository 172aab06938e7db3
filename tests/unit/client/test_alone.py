"""rmq-ha-client: the client alone has all that it imports, and wants few packages for it."""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import rmq_ha

ROOT = Path(rmq_ha.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "conf" / "rmq-ha-client" / "pyproject.toml").read_text())
FILES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
OPTIONAL = {
    *("OpenSSL", "cryptography", "service_identity", "lz4", "zstandard"),
    *("prometheus_client", "opentelemetry", "fastavro", "google"),
    *("click", "rich", "yaml", "numpy", "pytest"),
}
ONLY_WITH_EXTRAS = {"rmq_ha.client.prometheus", "rmq_ha.client.telemetry"}
USER = """
import sys
from importlib import import_module

class Door:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {closed!r}:
            raise ModuleNotFoundError(f"{{name}} is not here", name=name)
        if name.startswith("rmq_ha.") and not name.startswith({inside!r}):
            raise ModuleNotFoundError(f"{{name}} is no part of the client", name=name)

sys.meta_path.insert(0, Door())
import ssl
from twisted.internet.task import Clock
import rmq_ha.client as client
from rmq_ha.client.aio import connect
for name in client.__all__:
    getattr(client, name)
client.BlockingClient("127.0.0.1:1").close()
where = dict(namesrv_addr="127.0.0.1:1")
try:
    client.BlockingConsumer("g", client.ClientConfig(**where, use_tls=True)).start()
except client.ConfigurationError as error:
    print(error)
settings = client.ClientConfig(**where, ssl_context=ssl.create_default_context())
with client.BlockingTransactionProducer(None, settings):
    print("ssl_context will do")
"""


def included() -> Iterator[Path]:
    for source in FILES:
        path = (ROOT / "conf" / "rmq-ha-client" / source).resolve()
        if path.is_relative_to(ROOT / "conf"):
            continue  # it finds the package, and is no part of it
        yield from path.rglob("*.py") if path.is_dir() else [path]


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imported_by(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_all_that_it_imports_is_in_it() -> None:
    """A module that is missing is an ImportError for users, and green in this tree."""
    here = {module_of(path): path for path in included() if path.suffix == ".py"}
    todo = [name for name in here if name.startswith("rmq_ha.client")]
    assert len(todo) > 50
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for found in imported_by(here[name]):
            if found.split(".")[0] != "rmq_ha":
                continue
            known = found if found in here else found.rpartition(".")[0]
            assert known in here, f"{name} imports {found}: conf/rmq-ha-client lacks it"
            todo.append(known)


def test_it_works_where_nothing_else_is_installed() -> None:
    """TLS by files needs OpenSSL's packages, and says so; an ssl_context needs none."""
    inside = tuple({module_of(path) for path in included() if path.suffix == ".py"})
    program = USER.format(closed=OPTIONAL, inside=inside)
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    told, last = done.stdout.splitlines()
    assert told.startswith("TLS by tls.* keys needs ")
    assert "rmq-ha-client[tls]" in told
    assert last == "ssl_context will do"


def test_its_dependencies_are_those_of_the_whole() -> None:
    """A lower bound that only one of the two has would be met by nobody."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = whole["optional-dependencies"]
    known = {*whole["dependencies"], *(item for items in extras.values() for item in items)}
    own = PROJECT["project"]
    wanted = [*own["dependencies"], *(i for v in own["optional-dependencies"].values() for i in v)]
    assert {item.replace("twisted", "twisted[tls]") for item in wanted} <= known
