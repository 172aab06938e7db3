"""What a message may take, in calls: exact, whatever else the machine does.

The limits are what it takes today; whoever makes a path cheaper lowers them with it.
`python bench/hotpath.py --part pair --chunk 1 --profile` says where the calls go.
"""

import os
import resource
import tempfile

import hotpath
import pytest
from hotpath import Counts

from rmq_ha.base.runs import maker
from rmq_ha.ops.app.descriptors import allow_descriptors

LIMITS: dict[tuple[str, int], dict[str, Counts]] = {
    ("send", 1): {"master": Counts(54.8, 62.9, 4.36)},
    ("send", 64): {"master": Counts(2.4, 29.1, 0.13)},
    ("pair", 1): {"master": Counts(74.6, 74.8, 7.7), "slave": Counts(37.4, 39.5, 4.4)},
    ("pair", 64): {"master": Counts(2.7, 29.2, 0.17), "slave": Counts(2.2, 18.9, 0.13)},
    ("pull", 32): {"master": Counts(1.8, 2.9, 0.13)},
    ("walk", 64): {"start": Counts(3.2, 21.3, 0.19)},
    ("catchup", 64): {"slave": Counts(1.9, 18.9, 0.08)},
}

NATIVE_LIMITS: dict[tuple[str, int], dict[str, Counts]] = {
    ("send", 64): {"master": Counts(1.3, 1.1, 0.13)},
    ("pair", 1): {"master": Counts(66.0, 43.4, 7.7), "slave": Counts(36.1, 21.3, 4.4)},
    ("pair", 64): {"master": Counts(1.5, 1.2, 0.17), "slave": Counts(1.1, 0.9, 0.13)},
    ("catchup", 64): {"slave": Counts(0.9, 1.5, 0.08)},
}
"""The same where the native maker of runs works."""
BUDGETS = LIMITS | NATIVE_LIMITS if maker.CHOICE.name == "native" else LIMITS


@pytest.mark.parametrize(("part", "chunk"), BUDGETS)
def test_a_message_takes_no_more_calls_than_its_budget(part, chunk, tmp_path):
    counted = hotpath.calls(part, chunk, chunk * 50 if chunk < 64 else 3200, str(tmp_path))
    assert counted.keys() == BUDGETS[part, chunk].keys()
    for name, limit in BUDGETS[part, chunk].items():
        found = counted[name]
        assert found.python <= limit.python + 0.05, (name, found)
        assert found.c <= limit.c + 0.05, (name, found)
        assert found.system <= limit.system + 0.005, (name, found)


def test_a_budget_counts_the_same_in_each_run(tmp_path):
    first = hotpath.calls("pair", 16, 320, str(tmp_path / "first"))
    assert hotpath.calls("pair", 16, 320, str(tmp_path / "second")) == first


def test_a_message_takes_as_many_calls_among_thousands_of_queues_as_among_128(descriptors):
    """As many come together, in slices of 128, each for another queue."""
    most = min(8000, (descriptors - 1000) // 2)
    assert most > 1000, f"{descriptors} open files are too few: ulimit -Hn"
    found = []
    for queues in (128, most):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files are made in no time
        with tempfile.TemporaryDirectory(dir=memory) as directory:
            found.append(hotpath.calls("pair", 64, most, directory, queues))
    few, many = found
    for name, among_few in few.items():
        among_many = many[name]
        assert among_many.python < 1.02 * among_few.python, (name, few, many)
        assert among_many.c < 1.02 * among_few.c, (name, few, many)
        assert among_many.system < 1.02 * among_few.system, (name, few, many)


@pytest.fixture
def descriptors():
    """As many as the broker takes for itself."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield allow_descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
