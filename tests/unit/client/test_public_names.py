"""What applications import: `rmq_ha.client` names it all, for Python as for type checkers."""

import ast
import pkgutil
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import rmq_ha
from rmq_ha import client

ROOT = Path(rmq_ha.__file__).parents[1]
MODULES = {"aio", "blocking"}


def for_type_checkers() -> dict[str, str]:
    """Name to module, as the block says that Python never runs."""
    tree = ast.parse(Path(client.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    found: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        (alias,) = node.names
        assert alias.asname == alias.name, "else it is no export for mypy"
        found[alias.name] = str(node.module)
    return found


def test_what_an_editor_offers_is_there_and_nothing_else() -> None:
    """A name in one list alone is an ImportError where mypy saw none, or the reverse."""
    names = for_type_checkers()
    assert sorted(names) == sorted(client.__all__)
    assert set(client.__all__) <= set(dir(client))
    for name, home in names.items():
        if name not in MODULES:
            assert getattr(client, name) is getattr(import_module(home), name)
    assert {name for name, home in names.items() if home == client.__name__} == MODULES


def test_names_stand_in_the_groups_that_the_document_has() -> None:
    groups = vars(client)["_GROUPS"]
    assert len(groups["Begin here"].split()) == 10
    document = (ROOT / "docs" / "client.md").read_text()
    for group, names in groups.items():
        row = ", ".join(f"`{name}`" for name in names.split())
        assert f"| {group} | {row} |" in document


def test_modules_are_there_without_an_import_of_their_own() -> None:
    assert client.__getattr__("aio") is import_module("rmq_ha.client.aio")
    assert client.__getattr__("blocking") is import_module("rmq_ha.client.blocking")


def test_no_module_hides_a_name() -> None:
    """Python binds a module that was imported to its name in the package, over all else."""
    modules = {found.name for found in pkgutil.iter_modules(client.__path__)}
    assert modules & set(client.__all__) == MODULES


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Consumer'"):
        client.__getattr__("Consumer")


def test_the_version_is_the_distribution_s() -> None:
    """Two that differ: a report of a fault names the wrong one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rmq_ha.__version__ == project["version"]


@pytest.mark.parametrize("door", ["lookups", "groups"])
def test_a_public_module_names_every_question_of_its_room(door: str) -> None:
    room = import_module(f"rmq_ha.client.lookup.{door}")
    own = {
        name
        for name, item in vars(room).items()
        if getattr(item, "__module__", "") == room.__name__ and not name.startswith("_")
    }
    named = vars(import_module(f"rmq_ha.client.{door}"))
    assert own - named.keys() - {"commit_command"} == set()  # what `commit_offset` asks
