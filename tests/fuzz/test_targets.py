"""
The fuzz targets: that each reader has one, and what was found once.

`tests/fuzz/fuzz_run.py` gives them millions of inputs; here they get a few, always the same ones.
"""

import sys
from pathlib import Path
from random import Random
from types import CodeType

import pytest

from rmq_ha.base.errors import ProtocolViolation
from tests.fuzz.fuzz_run import CORPUS, Outcome, fuzz, mutator_of
from tests.fuzz.mutate import Mutator
from tests.fuzz.readers import (
    ELSEWHERE,
    ROOT,
    functions,
    is_elsewhere,
    is_reader,
    own_names,
    readers,
)
from tests.fuzz.target import Target, all_targets
from tests.fuzz.work import WorkTooLong, codes_of, work_of

INPUTS = 40
MOST_WORK, MORE_WORK = 20_000, 15
"""Calls for any input, and for each byte of it."""


def reader_of(code: CodeType) -> str:
    """As `readers` has it."""
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return ""
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    return f"{module}:{code.co_qualname}"


def used(name: str, target: Target) -> Outcome:
    """Its seeds and some inputs; what it may raise is no matter."""
    assert any(list(map(target.reads, target.seeds))), f"{name} takes none of its seeds"
    return fuzz(target, mutator_of(name, target, 1), INPUTS)


@pytest.fixture(scope="module")
def outcomes() -> tuple[dict[str, Outcome], set[str]]:
    """Of each target, and all functions of ours that were called."""
    found: dict[str, Outcome] = {}
    for module in [value for name, value in sys.modules.items() if name.startswith("rmq_ha")]:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()  # what an earlier test has asked would not be called

    def use() -> None:
        for name, target in all_targets().items():
            found[name] = used(name, target)

    return found, {reader_of(code) for code in codes_of(use)}


def test_nothing_but_refusals(outcomes: tuple[dict[str, Outcome], set[str]]) -> None:
    faults = [text for outcome in outcomes[0].values() for _, text in outcome.faults]
    assert not faults, "\n".join(faults)


def test_every_reader_has_a_target(outcomes: tuple[dict[str, Outcome], set[str]]) -> None:
    """Whoever writes another one gives it a target, or says in `ELSEWHERE` who looks after it."""
    missing = {reader for reader in readers() if not is_elsewhere(reader)} - outcomes[1]
    assert not missing, "no target in tests/fuzz gets to:\n" + "\n".join(sorted(missing))


def test_what_is_said_to_be_elsewhere_is(outcomes: tuple[dict[str, Outcome], set[str]]) -> None:
    for place in ELSEWHERE:
        if ":" in place:
            assert place in readers(), f"{place} is no reader any more"
            assert place not in outcomes[1], f"{place} has a target"


def test_what_was_kept_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= all_targets().keys()


@pytest.mark.parametrize("kept", sorted(str(p.relative_to(CORPUS)) for p in CORPUS.glob("*/*")))
def test_what_was_found_once(kept: str) -> None:
    """Faults of old, and the slowest of millions: refused or read, with little work."""
    path = CORPUS / kept
    data, target = path.read_bytes(), all_targets()[path.parent.name]
    target.reads(data)  # a server is there now
    work_of(lambda: target.reads(data), MOST_WORK + MORE_WORK * len(data))


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("def f(data):\n    return Struct('>i').unpack_from(data)", True),
        ("_INT = Struct('>i').unpack_from\ndef f(data):\n    return _INT(data)", True),
        ("_READ = msgspec.json.Decoder(X).decode\ndef f(data):\n    return _READ(data)", True),
        ("class A:\n    def dataReceived(self, data):\n        pass", True),
        ("def decode_it(data):\n    return data", True),
        ("def f(data):\n    return zlib.decompressobj().decompress(data)", True),
        ("def f(data):\n    return len(data)", False),
    ],
)
def test_the_search_finds_readers(source: str, is_found: bool) -> None:
    import ast

    tree = ast.parse(source)
    own = own_names(tree)
    assert any(is_reader(name, node, own) for name, node in functions(tree)) is is_found


def test_a_fault_is_found() -> None:
    """A reader that cannot do with a certain number, and one that takes long over some."""

    def read(data: bytes) -> None:
        if b"2147483648" in data:
            raise KeyError

    mutator = Mutator(Random(1), [b'{"code":1}'])
    outcome = fuzz(Target(read, (ProtocolViolation,), ()), mutator, 5000)
    ((data, text),) = outcome.faults
    assert b"2147483648" in data
    assert "KeyError" in text
    with pytest.raises(WorkTooLong):
        work_of(lambda: [abs(number) for number in range(200)], 100)
