"""
The comparison of both makers of runs is tested: it finds each rule that the native one breaks.

The kernel is built with its feature `planted`, with which a rule can be broken by name. Each rule
here is one by which something unusual falls out of a run.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from tests.unit.base.runs.agreement import agree_on_chunk, agree_on_stretch
from tests.unit.base.runs.odd_records import stretch
from tests.unit.base.runs.odd_sends import ordinary_send, send_with

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
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The kernel in which rules can be broken."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not there: the kernel cannot be built")
    target = tmp_path_factory.mktemp("target")
    built = subprocess.run(
        [cargo, "build", "--quiet", "--locked", "--features", "planted", "--target-dir", target],
        cwd=KERNEL,
        env={**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    library = str(target / "debug" / "librmq_ha_kernel.so")
    loader = ExtensionFileLoader("rmq_ha_kernel", library)
    spec = spec_from_file_location("rmq_ha_kernel", library, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    yield module
    module.plant("")


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
