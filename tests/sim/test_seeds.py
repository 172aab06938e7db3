"""
Many seeds, each a master and a slave under its own faults.

RMQ_HA_SIM_SEEDS says how many (60; about 0.2 s of CPU each); RMQ_HA_SIM_CLUSTER_SEEDS how many
of whole clusters with name server and clients (16; about 0.7 s each), RMQ_HA_SIM_CONTROLLED_SEEDS
how many of brokers in controller mode (16; about 0.5 s each). They begin at RMQ_HA_SIM_FIRST (0).
`tox -e sim` runs 500, 60 and 200. CI runs the same few seeds each time, so they show no more than
that a change broke nothing; that the simulator finds faults is shown by test_mutants.py.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from rmq_ha.base.runs.maker import SWITCH
from tests.sim_kit.planting import CLUSTER, CONTROLLED, PAIR
from tests.sim_kit.simulate import run_seeds

FIRST = int(os.environ.get("RMQ_HA_SIM_FIRST", "0"))
COUNTS = {
    PAIR: int(os.environ.get("RMQ_HA_SIM_SEEDS", "60")),
    CLUSTER: int(os.environ.get("RMQ_HA_SIM_CLUSTER_SEEDS", "16")),
    CONTROLLED: int(os.environ.get("RMQ_HA_SIM_CONTROLLED_SEEDS", "16")),
}
PUTS = {PAIR: 50, CLUSTER: 50, CONTROLLED: 15}
JOBS = os.cpu_count() or 1


@pytest.mark.parametrize("kind", list(COUNTS))
def test_seeds(kind):
    """No promise is broken; a seed that finds one prints how to replay it."""
    seeds = range(FIRST, FIRST + COUNTS[kind])
    failed, faults, puts = [], 0, 0
    for result in run_seeds(seeds, JOBS, kind):
        faults += len(result.faults)
        puts += result.statuses.get("PUT_OK", 0)
        if not result.ok:
            failed.append(result.report())
    assert not failed, "\n".join(failed)
    if len(seeds) >= 16:  # a simulation in which nothing happens finds nothing
        assert faults > len(seeds)
        assert puts > PUTS[kind] * len(seeds)


@pytest.mark.parametrize(("kind", "seed"), [(PAIR, 65876), (CLUSTER, 431), (CLUSTER, 1045)])
def test_seeds_that_the_judge_was_wrong_about(kind, seed):
    """
    65876: a spoilt bit makes `ToticA` of a topic, which no checksum shows; the number that its
    message had in `TopicA` is given again.

    1045: a slave has its master's damage, too, and stays out. It copies no tables as long as it
    stays out.

    431: such a slave has messages of a topic that it never copied, so consumers cannot read them.
    """
    (result,) = run_seeds(range(seed, seed + 1), 1, kind)
    assert result.ok, result.report()
    assert any(hazard.kind in ("damage", "stays-out") for hazard in result.hazards)


@pytest.mark.parametrize(("kind", "seed"), [(PAIR, 87347), (CLUSTER, 412)])
def test_seeds_that_found_a_fault(kind, seed):
    """
    87347: a slave sets its log aside behind damage, and is made the master 0.6 s later.

    412: a slave kept 4 bytes of a record in memory; the rest was on the disk, but not all of it.
    """
    (result,) = run_seeds(range(seed, seed + 1), 1, kind)
    assert result.ok, result.report()
    assert kind == CLUSTER or any(hazard.kind == "damage" for hazard in result.hazards)


@pytest.mark.trials
@pytest.mark.parametrize("kind", COUNTS)
def test_determinism(kind):
    """
    Equal seeds give equal digests, whatever the order of sets and hashes in the process, and
    whichever maker of runs it uses.
    """
    kernel = "1" if find_spec("rmq_ha_kernel") else "0"
    script = (
        "from tests.sim_kit.simulate import run_safely\n"
        f"print([run_safely(seed, {kind!r}).digest for seed in (3, 5, 11)])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ
            | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path), SWITCH: maker},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, maker in (("1", "0"), ("2", kernel))
    }
    assert len(digests) == 1
    first = digests.pop().strip()
    assert len(set(first.strip("[]").split(", "))) == 3
