"""The rules of ARCHITECTURE.md that a machine can check, so that review can be about meaning."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from zope.interface import implementedBy
from zope.interface.verify import verifyClass

from rmq_ha.client.connection.parts import ConsumerPart
from rmq_ha.client.consume.rebalancer import QueueOwner
from tests.kits.pages import PAGES, REPO

ROOT = Path(__file__).parents[1] / "rmq_ha"
FILES = sorted(ROOT.rglob("*.py"))
ASIDE = 9

HOUSES = ("base", "client", "server", "ops", "lake", "testing")
"""The packages of `rmq_ha`. A house imports itself and those before it, and `lake` no server."""
WITHOUT_PACKAGES = ("client", "testing")
"""Houses that are one package, divided into rooms."""
FRONT_DOORS = ("rmq_ha", "rmq_ha.errors", "rmq_ha.interfaces")
"""What plugins and applications import by a short name; the house itself does not."""

# Longest prefix wins; `protocol` and `service` modules are layer 3 wherever they are.
LAYERS = {
    "rmq_ha.base": 0,
    "rmq_ha.server": 0,
    "rmq_ha.ops": 0,
    "rmq_ha.lake": 0,
    "rmq_ha.errors": 0,
    "rmq_ha.interfaces": 0,
    "rmq_ha.base.acl": 2,
    "rmq_ha.base.store_files": 0,
    "rmq_ha.base.store_flags": 2,
    "rmq_ha.base.model": 0,
    "rmq_ha.base.errors": 0,
    "rmq_ha.base.spans": 0,
    "rmq_ha.base.config": 0,
    "rmq_ha.base.seams": 0,
    "rmq_ha.base.interfaces": 0,
    "rmq_ha.server.acl": 2,
    "rmq_ha.base.persisted_table": 2,
    "rmq_ha.base.timing": 2,
    "rmq_ha.base.properties_file": 2,
    "rmq_ha.base.wire": 1,
    "rmq_ha.base.store_format": 1,
    "rmq_ha.base.runs": 1,
    "rmq_ha.server.replication.classic.frames": 1,
    "rmq_ha.base.filter": 1,
    "rmq_ha.server.pop": 2,
    "rmq_ha.server.pop.records": 1,
    "rmq_ha.server.pop.entries": 1,
    "rmq_ha.server.pop.varints": 1,
    "rmq_ha.server.pop.snapshot": 1,
    "rmq_ha.server.pop.java_records": 1,
    "rmq_ha.server.store": 2,
    "rmq_ha.server.store.message_store": 3,
    "rmq_ha.server.tiered": 2,
    "rmq_ha.server.tiered.segments": 1,
    "rmq_ha.server.tiered.s3": 3,
    "rmq_ha.server.tiered.plugin": 3,
    "rmq_ha.server.replication": 2,
    "rmq_ha.server.replication.connector": 3,
    "rmq_ha.server.replication.door": 3,
    "rmq_ha.server.replication.entrance": 3,
    "rmq_ha.server.replication.classic.journal": 3,
    "rmq_ha.server.replication.classic.link": 3,
    "rmq_ha.server.replication.link": 3,
    "rmq_ha.server.replication.listener": 3,
    "rmq_ha.server.replication.protocol": 3,
    "rmq_ha.server.replication.epochs.context": 3,
    "rmq_ha.server.replication.epochs.master": 3,
    "rmq_ha.server.replication.epochs.put_refusal": 3,
    "rmq_ha.server.replication.epochs.slave": 3,
    "rmq_ha.server.replication.epochs.link": 3,
    "rmq_ha.server.replication.epochs.service": 3,
    "rmq_ha.server.replication.epochs.journal": 3,
    "rmq_ha.server.replication.epochs.requests": 3,
    "rmq_ha.server.replication.epochs.epochs": 1,
    "rmq_ha.server.replication.epochs.frames": 1,
    "rmq_ha.server.replication.epochs.roles.controller_client": 3,
    "rmq_ha.server.replication.epochs.roles.identity": 1,
    "rmq_ha.server.controller": 2,
    "rmq_ha.server.controller.codec": 1,
    "rmq_ha.server.controller.codes": 1,
    "rmq_ha.server.controller.group": 3,
    "rmq_ha.server.controller.messages": 1,
    "rmq_ha.server.dledger": 2,
    "rmq_ha.server.dledger.journal": 3,
    "rmq_ha.server.dledger.codec": 1,
    "rmq_ha.server.dledger.codes": 1,
    "rmq_ha.server.dledger.messages": 1,
    "rmq_ha.server.broker.tables": 2,
    "rmq_ha.server.broker.transactions": 2,
    "rmq_ha.server.broker.transactions.producers": 3,
    "rmq_ha.server.namesrv.claims": 2,
    "rmq_ha.server.namesrv.routes": 2,
    "rmq_ha.base.host": 3,
    "rmq_ha.base.remoting": 3,
    "rmq_ha.base.remoting.calls": 2,
    "rmq_ha.base.remoting.signing": 2,
    "rmq_ha.base.tls": 3,
    "rmq_ha.base.tls.std_session": 2,
    "rmq_ha.server.door": 2,
    "rmq_ha.server.grpc": 2,
    "rmq_ha.server.grpc.front": 3,
    "rmq_ha.server.grpc.http2": 1,
    "rmq_ha.server.grpc.server": 3,
    "rmq_ha.server.grpc.wire": 1,
    "rmq_ha.server.plugins": 3,
    "rmq_ha.server.broker": 4,
    "rmq_ha.server.namesrv": 4,
    "rmq_ha.ops.admin": 4,
    "rmq_ha.client": 4,
    "rmq_ha.client.rules": 2,
    "rmq_ha.client.rebalance": 2,
    "rmq_ha.ops.offline": 2,
    "rmq_ha.ops.checks": 4,
    "rmq_ha.ops.offsets": 4,
    "rmq_ha.ops.app": 5,
    "rmq_ha.lake.frames": 4,
    "rmq_ha.lake.scan": 4,
    "rmq_ha.lake.spark": 5,
    "rmq_ha.testing": ASIDE,
}

# What of Twisted and zope each layer may import; from layer 3 on, all.
FRAMEWORK = {
    0: {
        "rmq_ha.base.seams": ("twisted.internet.defer", "twisted.internet.interfaces"),
        "rmq_ha.base.interfaces": ("twisted.plugin", "zope.interface"),
    },
    1: {},
    2: {
        "": (
            "twisted.internet.defer",
            "twisted.internet.interfaces",
            "twisted.logger",
            "twisted.python.failure",
            "zope.interface",
        )
    },
}

# Only host/, app/ and testing/ may: everybody else is given a clock, a disk, a network or a Random.
AMBIENT = (
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "os.urandom",
    "os.open",
    "os.environ",
    "os.getenv",
    "os.getpid",
    "os.remove",
    "os.rename",
    "os.replace",
    "os.unlink",
    "os.makedirs",
    "os.listdir",
    "pathlib",
    "socket",
    "secrets",
    "shutil",
    "subprocess",
    "tempfile",
    "threading",
    "concurrent",
    "multiprocessing",
    "twisted.internet.reactor",
    "twisted.internet.threads",
    "uuid.uuid1",
    "uuid.uuid4",
)
NAMES_THINGS = ("rmq_ha", "rmq_ha.client")
"""Packages whose file is more than a docstring: what applications import by it."""
MAY_BE_AMBIENT = (
    "rmq_ha.base.host",
    "rmq_ha.base.runs.maker",  # chooses once, at import, as heapq does
    "rmq_ha.ops.app",
    "rmq_ha.testing",
    "rmq_ha.lake.spark.host",
)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """`rmq_ha.server.store` of `rmq_ha.server.store.reading.reads`; a module beside it is one."""
    depth = 2 if house_of(module) in WITHOUT_PACKAGES else 3
    return ".".join(module.split(".")[:depth])


def house_of(module: str) -> str:
    """`server` of `rmq_ha.server.store.journal`; "" of a module beside the houses."""
    house = [*module.split("."), ""][1]
    return house if house in HOUSES else ""


def is_below(module: str, prefixes: Any) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def layer_of(module: str) -> int:
    if module == "rmq_ha":
        return 0
    found = [prefix for prefix in LAYERS if is_below(module, [prefix])]
    assert found, f"{module} has no layer: ARCHITECTURE.md and LAYERS must name its place"
    layer = LAYERS[max(found, key=len)]
    if layer == 2 and module.rsplit(".", 1)[-1] in ("protocol", "service"):
        return 3
    return layer


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported; `from a import b` gives `a.b`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def uses(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported or reached through an import."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    yield from imports(nodes)
    for node in nodes:
        dotted = dotted_name(node)
        first, _, rest = dotted.partition(".")
        if rest and first in names:
            yield getattr(node, "lineno", 0), f"{names[first]}.{rest}"
        elif dotted == "open" and first not in names:
            yield getattr(node, "lineno", 0), "open"


def dotted_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return ""


def is_ambient(name: str) -> bool:
    if name.startswith("random."):
        return name.split(".")[1] not in ("Random", "SystemRandom")
    return name == "open" or is_below(name, AMBIENT)


class Facts(NamedTuple):
    """
    The facts of a file that the rules ask, without its tree: all trees together take much memory.

    :ivar imports: line and dotted name of everything imported.
    :ivar uses: the same, with everything that is reached through an import.
    :ivar names: line and name of each variable and parameter.
    :ivar riddles: names of classes, functions and modules that say nothing.
    :ivar classes: names of all classes, without underscores at their ends.
    :ivar constructors: line, class and number of parameters of each.
    :ivar is_docstring: nothing else stands in the file.
    """

    imports: list[tuple[int, str]]
    uses: list[tuple[int, str]]
    names: list[tuple[int, str]]
    riddles: list[str]
    classes: list[str]
    constructors: list[tuple[int, str, int]]
    is_docstring: bool


@cache
def facts(path: Path) -> Facts:
    """Read a file once for all tests here."""
    tree = ast.parse(path.read_text(), str(path))
    nodes = list(ast.walk(tree))
    return Facts(
        list(imports(nodes)),
        list(uses(nodes)),
        [
            (node.lineno, node.id if isinstance(node, ast.Name) else node.arg)
            for node in nodes
            if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
            or isinstance(node, ast.arg)
        ],
        [*riddles(tree), *([path.name] if is_riddle(path.stem) else [])],
        [node.name.strip("_") for node in nodes if isinstance(node, ast.ClassDef)],
        list(constructors(nodes)),
        bool(ast.get_docstring(tree)) and len(tree.body) == 1,
    )


def constructors(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, int]]:
    """Line, class and number of parameters of each `__init__`."""
    for node in nodes:
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                names = method.args
                count = len([*names.posonlyargs, *names.args, *names.kwonlyargs]) - 1
                yield method.lineno, node.name, count


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT.parent)}:{line}"


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_stands_on_those_before_it(house: str) -> None:
    """Whoever reads the client reads no server; imports for types alone count, too."""
    allowed = set(HOUSES[: HOUSES.index(house) + 1]) - {"server" if house == "lake" else ""}
    wrong = [
        f"{where(path, line)}: {name}"
        for path in FILES
        if house_of(module_of(path)) == house
        for line, name in facts(path).imports
        if is_below(name, ["rmq_ha"]) and name not in ("rmq_ha", "rmq_ha.__version__")
        if house_of(name) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_else_lies_beside_the_houses() -> None:
    """Six folders and the front doors: a new module says in which house it lives."""
    beside = {module_of(path) for path in ROOT.glob("*.py")}
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(HOUSES)
    assert beside == set(FRONT_DOORS)


def test_imports_point_down() -> None:
    """A layer knows those below it, and itself."""
    wrong = [
        f"{where(path, line)}: layer {layer} imports {name} of layer {layer_of(name)}"
        for path in FILES
        for layer in [layer_of(module_of(path))]
        for line, name in facts(path).imports
        if is_below(name, ["rmq_ha"]) and layer_of(name) > layer
    ]
    assert not wrong, "\n".join(wrong)


def test_no_test_changes_where_python_looks() -> None:
    """Helpers are modules of the package `tests`: a reader finds them by their name."""
    here = ROOT.parent / "tests"
    found = {
        str(path.relative_to(here))
        for path in here.rglob("*.py")
        if re.search(r"^\s*sys\.path(\.|\[|\s*\+?=)", path.read_text(), re.MULTILINE)
    }
    assert not found


def test_no_circle_of_packages() -> None:
    """Each package can be read, tested and taken away behind those that it stands on."""
    stands_on: dict[str, set[str]] = {}
    for path in FILES:
        own = package_of(module_of(path))
        stands_on.setdefault(own, set()).update(
            package_of(name) for _, name in facts(path).imports if is_below(name, ["rmq_ha"])
        )
        stands_on[own] -= {own, "rmq_ha"}
    assert_no_circle(stands_on)


ROOMS = {
    "client": ("rules", "rebalance", "lookup", "connection", "send", "consume"),
    "server.store": (
        "statistics",
        "log",
        "queues",
        "index",
        "delay",
        "timer",
        "reading",
        "journal_statistics",
        "journal",
        "journal_base",
        "local",
    ),
}
"""
Folders, and modules beside them, each of which may stand on those before it; what is not named
stands on all of them: the face of its package.
"""


@pytest.mark.parametrize(
    ("package", "room"), [(package, room) for package, rooms in ROOMS.items() for room in rooms]
)
def test_the_rooms_of_a_package_stand_on_each_other_in_one_order(package: str, room: str) -> None:
    """Who reads how a message is sent never has to know how one is consumed."""
    here = f"rmq_ha.{package}"
    rooms = ROOMS[package]
    allowed = [f"{here}.{name}" for name in rooms[: rooms.index(room) + 1]]
    files = [path for path in FILES if is_below(module_of(path), [f"{here}.{room}"])]
    assert files
    wrong = [
        f"{where(path, line)}: {name}"
        for path in files
        for line, name in facts(path).imports
        if is_below(name, [here]) and not is_below(name, allowed)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ROOMS)
def test_each_folder_of_a_package_with_rooms_is_one(package: str) -> None:
    """A new folder says where it stands."""
    here = ROOT / package.replace(".", "/")
    folders = {path.parent.name for path in here.glob("*/__init__.py")}
    assert folders <= set(ROOMS[package])


def test_store_and_broker_know_no_kind_of_journal() -> None:
    """Only `Journal` and its `Role`: a fourth kind needs no change there."""
    kinds = ("rmq_ha.server.replication", "rmq_ha.server.dledger")
    of_tables = (
        "rmq_ha.server.replication.epochs.tables",
        "rmq_ha.server.replication.epochs.frames",
    )  # broker/streamed_tables
    wrong = [
        f"{where(path, line)}: {name}"
        for path in FILES
        if is_below(module_of(path), ["rmq_ha.server.store", "rmq_ha.server.broker"])
        for line, name in facts(path).imports
        if is_below(name, kinds) and not is_below(name, of_tables)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_circle_of_modules() -> None:
    """Nor one for types alone: whoever reads one of two such files has to read the other first."""
    modules = {module_of(path): path for path in FILES}
    stands_on = {}
    for module, path in modules.items():
        named = [name for _, name in facts(path).imports if is_below(name, ["rmq_ha"])]
        found = {name if name in modules else name.rpartition(".")[0] for name in named}
        stands_on[module] = found - {module, "rmq_ha"}
    assert_no_circle(stands_on)


def assert_no_circle(stands_on: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(stands_on).prepare()
    except CycleError as error:
        pytest.fail(f"each of these imports the one before it: {error.args[1]}")


def frameworks_of(module: str) -> list[str]:
    """The modules of Twisted and zope that a module may import."""
    allowed = FRAMEWORK.get(layer_of(module))
    if allowed is None:
        return ["twisted", "zope"]
    return [name for key, names in allowed.items() if key in ("", module) for name in names]


def test_the_lower_layers_know_little_of_twisted() -> None:
    """Bytes to values and decisions run anywhere, without a reactor near them."""
    wrong = [
        f"{where(path, line)}: {name}"
        for path in FILES
        for line, name in facts(path).imports
        if is_below(name, ["twisted", "zope"])
        if not is_below(name, frameworks_of(module_of(path)))
    ]
    assert not wrong, "\n".join(wrong)


def test_time_chance_files_and_threads_come_through_the_host() -> None:
    """What is asked of the machine itself cannot be simulated."""
    wrong = {
        f"{where(path, line)}: {name}"
        for path in FILES
        if not is_below(module_of(path), MAY_BE_AMBIENT)
        for line, name in facts(path).uses
        if is_ambient(name)
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_a_package_file_is_its_docstring() -> None:
    """Importing a package runs nothing."""
    packages = [path for path in FILES if path.name == "__init__.py"]
    wrong = [
        module_of(path)
        for path in packages
        if module_of(path) not in NAMES_THINGS
        if not facts(path).is_docstring
    ]
    assert packages
    assert not wrong


@pytest.mark.parametrize("package", NAMES_THINGS)
def test_a_package_that_names_things_imports_none_of_them(package: str) -> None:
    """Who needs one module of the client, a broker too, loads no other; no cycle can arise."""
    tree = ast.parse((ROOT.parent / package.replace(".", "/") / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    at_import = [node for node in tree.body if not (isinstance(node, ast.If) and node.orelse)] + [
        node for found in tree.body if isinstance(found, ast.If) for node in found.orelse
    ]
    found = {name for node in at_import for _, name in imports(ast.walk(node))}
    assert found <= {"importlib.import_module", "typing.TYPE_CHECKING"}


def test_spark_knows_no_reactor() -> None:
    """Spark forks its workers: what they import has no reactor, and none of Twisted."""
    files = [
        path
        for path in FILES
        if is_below(module_of(path), ["rmq_ha.lake.scan", "rmq_ha.lake.spark"])
    ]
    wrong = [
        f"{where(path, line)}: {name}"
        for path in files
        for line, name in facts(path).imports
        if is_below(name, ["twisted", "zope"])
    ]
    assert files
    assert not wrong, "\n".join(wrong)


def test_twisted_plugins_is_no_package() -> None:
    """An `__init__.py` there would hide Twisted's own plugins."""
    assert not list((ROOT.parent / "twisted").rglob("__init__.py"))


NO_NAMES = {"found", "one", "wanted", "each", "there"}


def test_a_name_says_what_it_is() -> None:
    """`found` says nothing that its line does not say: grep for what it is finds no line."""
    named = [
        f"{where(path, line)}: {name}"
        for path in FILES
        for line, name in facts(path).names
        if name in NO_NAMES
    ]
    assert not named, "\n".join(named)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IRREGULAR_PARTICIPLES = words(
    """
    asked been beaten begun bound broken brought built caught chosen come dealt done drawn driven
    fed felt fought found frozen given gone got grown heard held hidden kept known laid led left
    lent lost made meant met overrun owed paid proven said seen sent shown shrunk spent spoken stood
    stuck taken taught thought thrown told torn understood unread unsent woken won worn written
    """
)
NOUNS_LIKE_PARTICIPLES = words("feed need seed speed")
SMALL_WORDS = words(
    """
    about above across after again ahead alone along also already anew around at away be before
    behind below beside besides best better between beyond both by came can could did do does each
    either else elsewhere ever every everywhere few first for from had has have her here his how if
    in inside into is it its last later least less many may maybe me mine more most much must my
    near neither never nobody none nor not nothing nowhere of off often on once one only onto or
    other others ought our ours out outside over own past perhaps quite rather same several shall
    should since so some somewhere soon still such than that their them then there these they this
    those through thus to together too took toward twice under unless until up upon us very was we
    well went were what when where whether which while white who whole whom whose why will with
    within without worst would yet you your
    """
)
"""Prepositions, adverbs, pronouns, auxiliaries and some adjectives: each page is full of them."""
NO_FUNCTION = SMALL_WORDS | words(
    "asked been given gone got kept known left met owed said seen shown told"
)
"""Callbacks are named by participles as Twisted's are (`lost`, `written`), but not by these."""


def is_riddle(word: str) -> bool:
    """Whether a class or module of this name says nothing to who meets it in another file."""
    return (
        word in IRREGULAR_PARTICIPLES
        or word in SMALL_WORDS
        or (word.endswith("ed") and word not in NOUNS_LIKE_PARTICIPLES)
    )


SAME_AS_THE_VERB = words("cut put read run set split spread")
"""Participles that are also imperatives, so a function that does the work may have such a name."""
WHAT_A_CALLBACK_TAKES = words("_ answer error event failure frame reason response result")
NO_VALUE = frozenset({"None", "bool", "Deferred[None]", "'Deferred[None]'"})


def is_named_by_its_result(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """
    Return whether a private function that returns a value is a bare participle: `_joined`, `_made`.

    At its call nobody sees of what it is the result. Callbacks may have such names, and so may
    methods that note an event.
    """
    word = function.name.removeprefix("_")
    if word == function.name or word in SAME_AS_THE_VERB or not word.islower() or "_" in word:
        return False
    if not (word in IRREGULAR_PARTICIPLES or word.endswith("ed")) or word in NOUNS_LIKE_PARTICIPLES:
        return False
    taken = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
    if taken and taken[0] in WHAT_A_CALLBACK_TAKES:
        return False
    return function.returns is not None and ast.unparse(function.returns) not in NO_VALUE


def riddles(tree: ast.AST, owner: str = "") -> Iterator[str]:
    """
    Classes that are bare participles or pronouns; functions that are bare small words, or private
    ones that are named by their result alone.
    """
    for node in ast.iter_child_nodes(tree):
        name = owner
        if isinstance(node, ast.ClassDef):
            name = node.name
            if re.fullmatch("_?[A-Z][a-z0-9]*", name) and is_riddle(name.strip("_").lower()):
                yield name
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.endswith("__")
            and (node.name.strip("_") in NO_FUNCTION or is_named_by_its_result(node))
        ):
            yield f"{owner}.{node.name}" if owner else node.name
        yield from riddles(node, name)


def test_names_can_be_read_without_their_file() -> None:
    """`Told`, `of` and `owed.py` say nothing in a traceback, and grep finds them everywhere."""
    new = [f"{where(path, 1)}: {name}" for path in FILES for name in facts(path).riddles]
    assert not new, "give these a noun or a verb that says what they are:\n" + "\n".join(new)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class Told: pass", {"Told"}),
        ("class _Compared: pass", {"_Compared"}),
        ("class Feed:\n    def of(self): ...\n    def lost(self): ...", {"Feed.of"}),
        ("def _around(): ...\ndef around_a_call(): ...", {"_around"}),
        ("class Answer:\n    def __or__(self): ...", set()),
        ("def _joined(rows) -> str: ...", {"_joined"}),
        ("class Feed:\n    def _sent(self) -> int: ...", {"Feed._sent"}),
        ("def _failed(failure) -> Failure: ...\ndef _read(path) -> bytes: ...", set()),
        ("class Feed:\n    def _lost(self, peer) -> None: ...", set()),
    ],
)
def test_riddles_are_found(source: str, names: set[str]) -> None:
    """A check that never fails is none."""
    assert set(riddles(ast.parse(source))) == names


FACES_FOR_ASYNCIO = words(
    "LitePullConsumer Producer PullConsumer PushConsumer SimpleConsumer TransactionProducer"
)
"""Classes of `rmq_ha.client`: their counterparts in `rmq_ha.client.aio` have the same names."""


def test_no_two_classes_have_one_name() -> None:
    """Who reads `Finding` in a traceback need not ask which one; an underscore tells nothing."""
    modules: dict[str, list[str]] = {}
    for path in FILES:
        for name in facts(path).classes:
            modules.setdefault(name, []).append(module_of(path))
    twice = {name: found for name, found in modules.items() if len(found) > 1}
    assert {name: twice[name] for name in set(twice) - FACES_FOR_ASYNCIO} == {}
    assert set(twice) == FACES_FOR_ASYNCIO


PUBLIC_FACES = ("rmq_ha.client", "rmq_ha.errors", "rmq_ha.interfaces")


@pytest.mark.parametrize("face", PUBLIC_FACES)
def test_what_applications_import_is_described(face: str) -> None:
    """`help()` describes each class and method; what the client itself calls is in its Protocol."""
    internal = {*vars(QueueOwner), *vars(ConsumerPart)}
    module = importlib.import_module(face)
    bare = set()
    for name in getattr(module, "__all__", dir(module)):
        value = getattr(module, name)
        if not getattr(value, "__module__", "").startswith("rmq_ha"):
            continue
        if not inspect.getdoc(value):
            bare.add(name)
        if inspect.isclass(value):
            bare |= {
                f"{name}.{method}"
                for method, function in inspect.getmembers(value, inspect.isfunction)
                if not method.startswith("_") and not inspect.getdoc(function)
                if method not in internal
            }
    assert not bare


RIDDLES_OF_OPERATORS = (
    "that shows, and changes nothing",
    "the log has why after a minute",
    "its reads are what consumers have",
    "Series of a slave that is gone are gone",
    "whoever is on this machine",
    "not to be told from noise",
    "One that comes when the master's log is the longer",
    "has to leave where more connect",
    "is connected still and not found any more",
    "what it lacks of the leader's",
    "What it can be found by",
    "Send the body so often",
    "log from {low} to {high}",
    "rules: see above",
    "- at -",
)
"""Sentences that an operator could not decode in the first hour, as far as each was one line."""


def test_sentences_that_an_operator_could_not_decode_are_gone() -> None:
    """In help texts, log lines and all pages."""
    found = [
        f"{path.relative_to(REPO)}: {riddle}"
        for path in [*PAGES, *FILES]
        for riddle in RIDDLES_OF_OPERATORS
        if riddle in path.read_text()
    ]
    assert not found


EXTRAS = {"": "", "pyspark": "spark", "numpy": "spark", "opentelemetry": "otel", "hpack": "grpc"}
"""What a file needs beside the required packages, with the extra that installs it."""


def needs(path: Path) -> str:
    """Return the package of `EXTRAS` that a file needs; empty: it needs none."""
    if is_below(module_of(path), ["rmq_ha.lake.spark"]):
        return "pyspark"
    if is_below(module_of(path), ["rmq_ha.server.grpc"]):
        return "hpack"
    for package in ("numpy", "opentelemetry"):
        if any(is_below(name, [package]) for _, name in facts(path).imports):
            return package
    return ""


@pytest.mark.parametrize("package", EXTRAS)
def test_implementers_implement(package: str) -> None:
    """Every class has the methods, with the parameters, of the interfaces that it declares."""
    if package:
        pytest.importorskip(package, reason=f"pip install 'rmq-ha[{EXTRAS[package]}]'")
    files = [path for path in FILES if needs(path) == package and path.name != "__init__.py"]
    assert files
    for path in files:
        module = importlib.import_module(module_of(path))
        for _, found in inspect.getmembers(module, inspect.isclass):
            if found.__module__ == module.__name__:
                for interface in implementedBy(found):
                    verifyClass(interface, found)


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("import time\ntime.time()", True),
        ("from time import time as now", True),
        ("import time\ntime.localtime(0)", False),
        ("import random\nrandom.choice([1])", True),
        ("from random import Random", False),
        ("from twisted.internet import reactor", True),
        ("def f():\n    return open('x')", True),
        ("disk.open('x', 1)", False),
        ("from datetime import datetime\ndatetime.now()", True),
        ("import os.path\nos.path.join('a', 'b')", False),
        ("import os\nos.urandom(1)", True),
        ("import threading", True),
    ],
)
def test_the_search_finds_what_it_looks_for(source: str, is_found: bool) -> None:
    """A check that never fails is none."""
    tree = list(ast.walk(ast.parse(source)))
    assert any(is_ambient(name) for _, name in uses(tree)) is is_found


MOST_PARAMETERS = 7
MANY_PARAMETERS = {
    "Message",  # public: an application names the parts of a message
    "Send",  # a record of values: a message on its way
}
"""Classes whose constructor may take more than `MOST_PARAMETERS`, each with the reason."""


def test_a_constructor_takes_few_things() -> None:
    """What a class needs of its surroundings comes in things that have names of their own."""
    wrong = [
        f"{where(path, line)}: {name} takes {count}: group them by name"
        for path in FILES
        for line, name, count in facts(path).constructors
        if name not in MANY_PARAMETERS and count > MOST_PARAMETERS
    ]
    assert not wrong, "\n".join(wrong)
