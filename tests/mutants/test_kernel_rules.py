"""
Tests with a kernel in which faults can be planted: it is built with its feature `planted`.

A rule can be broken by its name, and the comparison of both makers of runs has to find each broken
rule. Each rule is one by which something unusual falls out of a run. A function can be made to
panic by its name, and whoever calls it has to go on.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from tests.unit.base.runs.agreement import BORN, STORE, TEMPLATE, agree_on_chunk, agree_on_stretch
from tests.unit.base.runs.odd_records import stretch
from tests.unit.base.runs.odd_sends import ordinary_send, send_with
from tests.unit.base.runs.test_pairs_agree import started, told

KERNEL = Path(__file__).parents[2] / "kernel"
TRIES, FEW_TRIES = 400, 40
STRETCH, ENTRIES, SENDS = "records", "entries of DLedger", "ordinary sends"

WHERE = {
    "FrameIsComplete": "cut_off",
    "HeaderIsJson": "other_frame",
    "HeaderIsShort": "huge_header",
    "HeaderFitsFrame": "long_header",
    "ControlsAreEscaped": "odd_escape",
    "SurrogatesArePaired": "odd_escape",
    "NumbersAreCanonical": "odd_number",
    "NumbersFit": "odd_number",
    "NothingFollows": "text_around",
    "BooleansAreWords": "odd_word",
    "NeededFieldsAreThere": "no_queue",
    "BatchIsNoSend": "batch",
    "FlagIsPlain": "flag",
    "SysFlagIsPlain": "transaction",
    "TopicIsPlain": "topic",
    "TopicIsShort": "topic",
    "PropertiesAreShort": "long_properties",
    "PropertiesHaveNames": "broken_piece",
    "PropertiesHaveValues": "broken_piece",
    "DelayIsOdd": "property_DELAY",
    "TransactionIsOdd": "property_TRAN_MSG",
    "WaitIsOdd": "odd_wait",
    "ClusterIsOdd": "property_CLUSTER",
    "SenderIsOdd": "property_RMQHA_SENT_BY",
    "TimerSourceIsOdd": "property_TIMER_SRC",
    "ReceiptIsOdd": "property_POP_CK",
    "ServiceOfRocketMq5IsOdd": "property___LITE_TOPIC",
    "KeysAreFew": "many_keys",
    "QueueExists": "other_queue",
    "BodyIsAllowed": SENDS,
    "RecordIsAllowed": SENDS,
    "StoredPropertiesFit": SENDS,
    "RoomIsLeft": SENDS,
    "MagicIsThat": STRETCH,
    "PlaceIsThat": STRETCH,
    "EntryIsThat": ENTRIES,
    "HostsAreShort": STRETCH,
    "PartsAddUp": STRETCH,
    "TopicIsDirectory": STRETCH,
    "ScheduleIsOdd": STRETCH,
    "CrcIsThat": STRETCH,
    "LostSectorIsOdd": STRETCH,
    "PreparedIsNotForConsumers": STRETCH,
    "NumbersFollow": STRETCH,
    "RollbackIsNotIndexed": STRETCH,
    "IndexedIsLeftOut": STRETCH,
    "IndexHasRoom": STRETCH,
    "ChainsGoBack": STRETCH,
    "TimeIsNotNegative": STRETCH,
}
"""By the name of a rule: what has to be compared for it to be missed."""


@pytest.fixture(scope="module")
def library() -> Path:
    """
    The file of the kernel in which faults can be planted.

    It is built where clippy and the kernel's own tests have left half of what it needs.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not there: the kernel cannot be built")
    target = KERNEL / "target"
    built = subprocess.run(
        [cargo, "build", "--quiet", "--locked", "--features", "planted", "--target-dir", target],
        cwd=KERNEL,
        env={**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return target / "debug" / "librmq_ha_kernel.so"


@pytest.fixture(scope="module")
def kernel(library: Path) -> Iterator[ModuleType]:
    """The kernel in which faults can be planted."""
    loader = ExtensionFileLoader("rmq_ha_kernel", str(library))
    spec = spec_from_file_location("rmq_ha_kernel", library, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    yield module
    module.plant("")
    module.plant_panic("")


def disagreement(kernel: ModuleType, where: str, seed: str, tries: int = TRIES) -> str:
    """Compare until both makers differ; say how, or return nothing if they never do."""
    random = Random(seed)
    compare: Callable[[], object]
    for _ in range(tries):
        if where in (STRETCH, ENTRIES):
            gap = 48 if where == ENTRIES else 0
            data, position = stretch(random, 8, 0.4, gap)
            compare = lambda: agree_on_stretch(kernel, data, position, random, gap)  # noqa: B023, E731
        else:
            ordinary = ordinary_send(random).frame(random)
            odd = b"" if where == SENDS else send_with(where, random)
            chunk = random.choice((odd + ordinary, ordinary + odd))
            compare = lambda: agree_on_chunk(kernel, chunk, random)  # noqa: B023, E731
        try:
            compare()
        except AssertionError as error:
            return str(error) or "they differ"
    return ""


def test_every_rule_is_listed(kernel: ModuleType) -> None:
    assert sorted(kernel.rules()) == sorted(WHERE)
    assert not kernel.plant("no such rule")


@pytest.mark.parametrize("where", sorted(set(WHERE.values())))
def test_with_all_rules_the_makers_agree(kernel: ModuleType, where: str) -> None:
    kernel.plant("")
    assert disagreement(kernel, where, where, FEW_TRIES) == ""


@pytest.mark.parametrize("rule", WHERE)
def test_a_broken_rule_is_found(kernel: ModuleType, rule: str) -> None:
    assert kernel.plant(rule)
    assert disagreement(kernel, WHERE[rule], rule) != "", f"{rule} can be broken unnoticed"


LEFT_TO_PYTHON = ["cut", "walk", "concat", "Rows.units", "Sends.lay_out"]
"""A function that may return None does so after a panic."""
MENDED = ["Rows.index_put", "between item and slot", "Rows.answers", "Rows.counts"]
"""After a panic at these places the caller does the work in Python."""
CALLS: dict[str, Callable[..., Any]] = {
    "cut": lambda kernel, chunk, stretch: kernel.cut(chunk, 0, 1000),
    "walk": lambda kernel, chunk, stretch: kernel.walk(stretch, 0, 0, 9, 9, True, 0),
    "concat": lambda kernel, chunk, stretch: kernel.concat([]),
}
ROWS: dict[str, Callable[[Any], Any]] = {
    "__getitem__": lambda rows: rows[0],
    "__iter__": iter,
    "__len__": len,
    "answers": lambda rows: rows.answers([7], TEMPLATE),
    "counts": lambda rows: rows.counts(),
    "end": lambda rows: rows.end,
    "index_put": lambda rows: rows.index_put(bytearray(1000), 1, 9, (0, 0, 0, 0, 0, 1), 0),
    "names": lambda rows: rows.names,
    "part": lambda rows: rows.part(0, 1),
    "size": lambda rows: rows.size,
    "start": lambda rows: rows.start,
    "topics": lambda rows: rows.topics,
    "units": lambda rows: rows.units(),
    "work": lambda rows: rows.work,
}
SENDS_OF_A_RUN: dict[str, Callable[[Any], Any]] = {
    "__len__": len,
    "drafts": lambda sends: sends.drafts(BORN, STORE, ""),
    "end": lambda sends: sends.end,
    "fit": lambda sends: sends.fit([8]),
    "frames": lambda sends: sends.frames(),
    "lay_out": lambda sends: sends.lay_out(0, 9999, 999, 9999, 1, {}, BORN, STORE, "", 0),
    "opaques": lambda sends: sends.opaques(),
    "part": lambda sends: sends.part(0, 1),
    "size": lambda sends: sends.size,
    "topics": lambda sends: sends.topics,
    "uniq_keys": lambda sends: sends.uniq_keys(),
}


def test_each_function_of_the_kernel_is_made_to_panic_here(kernel: ModuleType) -> None:
    special = {"__getitem__", "__iter__", "__len__"}
    for kind, calls in ((kernel.Rows, ROWS), (kernel.Sends, SENDS_OF_A_RUN)):
        named = {name for name in vars(kind) if name in special or not name.startswith("__")}
        assert named == set(calls)
    functions = {name for name, value in vars(kernel).items() if callable(value)}
    about = {"Rows", "Sends", "faults", "plant", "plant_panic", "rules"}
    assert {name for name in functions if not name.startswith("__")} == {*CALLS, *about}


def test_a_panic_is_an_ordinary_exception_or_none_and_is_counted(kernel: ModuleType) -> None:
    random = Random(1)
    chunk = ordinary_send(random).frame(random)
    sends = kernel.cut(chunk, 0, 1000)
    records, rows = sends.lay_out(0, 99999, 99999, 99999, 1, {}, BORN, STORE, "", 0)
    ready = iter(rows)
    calls: dict[str, Callable[[], Any]] = {
        **{name: partial(call, kernel, chunk, records) for name, call in CALLS.items()},
        **{f"Rows.{name}": partial(call, rows) for name, call in ROWS.items()},
        **{f"Sends.{name}": partial(call, sends) for name, call in SENDS_OF_A_RUN.items()},
        "Iterator.__next__": lambda: next(ready),
    }
    for name, call in calls.items():
        kernel.plant_panic(name)
        before = kernel.faults().get(name, 0)
        if name in LEFT_TO_PYTHON:
            assert call() is None, name
        else:
            with pytest.raises(RuntimeError, match=f"the kernel failed in `{name}`"):
                call()
        assert kernel.faults()[name] == before + 1
        kernel.plant_panic("")
        call()


def test_a_pair_whose_kernel_panics_writes_and_answers_as_without_it(
    library: Path, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    shutil.copy(library, package / "rmq_ha_kernel.so")
    pure = started("0", tmp_path / "0")
    panics = ",".join([*LEFT_TO_PYTHON, *MENDED])
    native = started("1", tmp_path / "1", PYTHONPATH=str(package), RMQ_HA_PANICS=panics)
    plain, panicking = told(pure), told(native)
    assert {line.pop("maker") for line in panicking} == {"native"}
    assert {line.pop("maker") for line in plain} == {"pure"}
    counted = [line.pop("faults") for line in panicking][-1]
    assert counted.keys() == {*LEFT_TO_PYTHON, *MENDED} - {"between item and slot"}
    assert [line.pop("faults") for line in plain] == [{}] * len(plain)
    assert panicking == plain
