"""
Faults of stores, facts and snapshots, none of which may be judged safe; and healthy runs, none of
which may raise an alarm.

The faults are planted by `tests.kits.bare_stores` and by plain patches of files, which share
nothing with the readers. `RMQ_HA_PLANTED=N` runs each with N seeds.
"""

import gzip
import json
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.fleet.facts import replicas_in
from rmq_ha.lake.scan.fleet.judging import BrokerVerdict, JudgingLimits, judge, scanned_twice
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt
from rmq_ha.lake.scan.replica.verifying import verify
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.verdict import Limits
from tests.kits.bare_stores import (
    SLOTS,
    START_MS,
    BareStore,
    Message,
    Placed,
    delayed,
    flip,
    ordinary,
    overwrite,
    patch_log,
    put_table,
    record,
    store_of,
)
from tests.unit.lake.scan.fleet_kit import facts_of

pytestmark = pytest.mark.lake
SEEDS = int(os.environ.get("RMQ_HA_PLANTED", "1"))
LOG, WINDOW = 4096, 1024
CHECKS = frozenset({"queues", "index"})


@dataclass
class Run:
    """A pair of stores, the facts of both, and the time."""

    folder: Path
    random: Random
    store: BareStore = field(default_factory=BareStore)
    now: int = START_MS + 86_400_000
    checks: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        count = self.random.randrange(70, 85)  # so few that verify-offsets reads all messages
        self.store = store_of(ordinary(count), log_size=LOG, queue_units=10)
        for number in range(4):
            late = Message("Topic0", 0, b"late", uniq=f"L{number}", stored=count * 40 + number)
            self.store.add(delayed(late, 1))
            self.store.add(late._replace(stored=late.stored + 1000))
        self.store.delays = {1: 4}
        self.store.groups += ["CG2"]
        self.store.consumed()
        self.store.consumed("CG2", behind=self.random.randrange(5))

    @property
    def master(self) -> Path:
        return self.folder / "m"

    @property
    def slave(self) -> Path:
        return self.folder / "s"

    @property
    def facts(self) -> Path:
        return self.folder / "facts"

    def of(self, broker_id: int) -> Path:
        """Return the directory of the facts of a store."""
        return self.facts / f"b-{broker_id}"

    def save(self) -> None:
        for root in (self.master, self.slave):
            self.store.save(root)

    def age(self) -> None:
        """Let nobody have written to the stores for long."""
        for root in (self.master, self.slave):
            for path in (root, *root.rglob("*")):
                os.utime(path, (START_MS // 1000, START_MS // 1000))

    def scan(self, *sides: int, **given: Any) -> None:
        """Scan the slave, and then the master."""
        self.age()
        self.now += 60_000
        for broker_id in sides or (1, 0):
            root = self.slave if broker_id else self.master
            asked = {"window": WINDOW, "checks": self.checks, "share": 1} | given
            facts_of(root, self.facts, "b", broker_id, self.now, **asked)

    def any_record(self) -> Placed:
        """Return a record somewhere in the middle, with a body."""
        return self.random.choice(self.store.placed[10:-20])

    def patch(self, root: Path, at: int, patch: bytes) -> None:
        patch_log(root, at, patch, LOG)

    def verdicts(self) -> list[BrokerVerdict]:
        found = replicas_in(str(self.facts))
        twice = scanned_twice(found)
        of_broker = [list(some) for _, some in groupby(found, key=lambda one: one.state.broker)]
        patience = JudgingLimits(0)
        return [judge(some, Limits(), patience, self.now + 1000, twice) for some in of_broker]


Plant = Callable[[Run], None]
FAULTS: dict[str, Plant] = {}


def fault(plant: Plant) -> Plant:
    FAULTS[plant.__name__] = plant
    return plant


def in_store(name: str, harm: Plant, *, checks: frozenset[str] = frozenset()) -> None:
    """A fault of a store that is there before the first scan."""

    def before(run: Run) -> None:
        run.checks = checks
        run.save()
        harm(run)
        run.scan()

    FAULTS[name] = before


def in_log(name: str, harm: Plant) -> None:
    """A fault that is there before the first scan, or comes after it."""

    def after(run: Run) -> None:
        run.save()
        run.scan()
        harm(run)
        run.scan()

    in_store(name, harm)
    FAULTS[f"{name}_after_a_scan"] = after


def body_of(run: Run, placed: Placed) -> int:
    return placed.at + 88 + run.random.randrange(len(placed.message.body))


def harm_body(run: Run, *roots: Path) -> None:
    at = body_of(run, run.any_record())
    for root in roots:
        flip(root / "commitlog" / f"{at // LOG * LOG:020}", at % LOG, 3)


def harm_forged(run: Run) -> None:
    one = run.any_record()
    message = one.message._replace(body=bytes(byte ^ 1 for byte in one.message.body))
    run.patch(run.slave, one.at, record(message, one.queue_offset, one.at))


def harm_field(at: int, size: int) -> Plant:
    def harm(run: Run) -> None:
        run.patch(run.slave, run.any_record().at + at, run.random.randbytes(size))

    return harm


def harm_exchanged(run: Run) -> None:
    """Two records of equal size change places, with all that names their places."""
    sizes: dict[int, Placed] = {}
    for one in run.store.placed[8:-20]:
        other = sizes.setdefault(one.size, one)
        if other is not one and other.message.topic == one.message.topic:
            break
    run.patch(run.slave, one.at, record(other.message, one.queue_offset, one.at))
    run.patch(run.slave, other.at, record(one.message, other.queue_offset, other.at))


def log_file(run: Run, root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def harm_tail(run: Run) -> None:
    for one in run.store.placed[-5:]:
        run.patch(run.slave, one.at, bytes(one.size))


def harm_table(name: str, text: str) -> Plant:
    def harm(run: Run) -> None:
        for path in (run.slave / "config").glob(f"{name}.json*"):
            path.write_text(text)

    return harm


def change_table(name: str, change: Callable[[Any], Any], root: Path | None = None) -> Plant:
    """:param root: None: the slave's store."""

    def harm(run: Run) -> None:
        config = (root or run.slave) / "config"
        table = json.loads((config / f"{name}.json").read_text())
        change(table)
        put_table(config, name, table)

    return harm


def offsets_of(table: Any) -> Any:
    return table["offsetTable"]["Topic0@CG"]


def queue_file(run: Run, number: int) -> Path:
    return sorted((run.slave / "consumequeue" / "Topic0" / "0").iterdir())[number]


def harm_unit(at: int, patch: bytes) -> Plant:
    return lambda run: overwrite(queue_file(run, 1), 20 * run.random.randrange(9) + at, patch)


in_log("body_of_the_slave", lambda run: harm_body(run, run.slave))
in_log("body_of_the_master", lambda run: harm_body(run, run.master))
in_log("body_of_both", lambda run: harm_body(run, run.master, run.slave))
in_log("forged_body_and_crc", harm_forged)
in_log("magic", harm_field(4, 4))
in_log("queue_id", harm_field(12, 4))
in_log("queue_offset", harm_field(20, 8))
in_log("physical_offset", harm_field(28, 8))
in_log("store_time", harm_field(56, 8))
in_log("exchanged_records", harm_exchanged)
in_log("zeros", lambda run: run.patch(run.slave, run.any_record().at // 512 * 512, bytes(512)))
in_log("random_file", lambda run: log_file(run, run.slave, 1).write_bytes(Random(5).randbytes(LOG)))
in_log("missing_file_of_the_slave", lambda run: log_file(run, run.slave, 1).unlink())
in_log("missing_file_of_the_master", lambda run: log_file(run, run.master, 1).unlink())
in_log("missing_last_file", lambda run: log_file(run, run.slave, -1).unlink())
in_log("cut_file", lambda run: cut(log_file(run, run.slave, 1), LOG // 2))
in_log("lost_tail", harm_tail)
for table in ("consumerOffset", "topics", "subscriptionGroup", "delayOffset"):
    in_store(f"torn_{table}", harm_table(table, '{"offsetTable":{"Topic0@'))
in_store("offset_behind", change_table("consumerOffset", lambda t: offsets_of(t).update({"0": 3})))
in_store("offset_ahead", change_table("consumerOffset", lambda t: offsets_of(t).update({"0": 99})))
in_store(
    "offset_wild", change_table("consumerOffset", lambda t: offsets_of(t).update({"0": 1 << 62}))
)
in_store("no_offsets", change_table("consumerOffset", lambda t: t["offsetTable"].pop("Topic0@CG")))
in_store("no_topic", change_table("topics", lambda t: t["topicConfigTable"].pop("Topic0")))
in_store(
    "queues_of_a_topic",
    change_table("topics", lambda t: t["topicConfigTable"]["Topic0"].update(readQueueNums=1)),
)
in_store(
    "no_group", change_table("subscriptionGroup", lambda t: t["subscriptionGroupTable"].pop("CG"))
)
in_store(
    "group_setting",
    change_table(
        "subscriptionGroup", lambda t: t["subscriptionGroupTable"]["CG"].update(consumeEnable=False)
    ),
)
in_store("delay_ahead", change_table("delayOffset", lambda t: t["offsetTable"].update({"1": 9})))
in_store("delay_behind", change_table("delayOffset", lambda t: t["offsetTable"].update({"1": 1})))
in_store("missing_queue_file", lambda run: queue_file(run, 0).unlink())
in_store("missing_last_queue_file", lambda run: queue_file(run, -1).unlink())
in_store("cut_queue_file", lambda run: cut(queue_file(run, 0), 33))
in_store("no_queue", lambda run: shutil.rmtree(run.slave / "consumequeue" / "Topic0" / "0"))
in_store("no_queues", lambda run: shutil.rmtree(run.slave / "consumequeue"))
in_store("zero_unit", harm_unit(0, bytes(20)))
in_store("unit_offset", harm_unit(0, struct.pack(">q", 77)))
in_store("unit_size", harm_unit(8, struct.pack(">i", 91)))
in_store("unit_tags", harm_unit(12, struct.pack(">q", 4711)), checks=CHECKS)
in_store(
    "index_offset",
    lambda run: flip(next((run.slave / "index").iterdir()), 40 + 4 * SLOTS + 20 * 9 + 4, 2),
    checks=CHECKS,
)
in_store(
    "index_hash",
    lambda run: flip(next((run.slave / "index").iterdir()), 40 + 4 * SLOTS + 20 * 9 + 2, 2),
    checks=CHECKS,
)


# Facts


@fault
def two_grids(run: Run) -> None:
    run.save()
    run.scan(1, window=2 * WINDOW)
    run.scan(0)


@fault
def one_store_under_two_ids(run: Run) -> None:
    run.save()
    shutil.rmtree(run.slave)
    run.slave.symlink_to(run.master)
    run.scan()


@fault
def one_store_under_two_brokers(run: Run) -> None:
    run.save()
    run.scan()
    facts_of(run.master, run.facts, "c", 0, run.now, window=WINDOW)
    facts_of(run.slave, run.facts, "c", 1, run.now, window=WINDOW)


@fault
def a_slave_that_was_never_scanned(run: Run) -> None:
    run.save()
    run.scan(0)


@fault
def a_master_that_was_never_scanned(run: Run) -> None:
    run.save()
    run.scan(1)


@fault
def the_slave_of_another_broker(run: Run) -> None:
    run.save()
    shutil.rmtree(run.slave)
    store_of(ordinary(90, topics=3), log_size=LOG).save(run.slave)
    run.scan()


@fault
def facts_that_are_days_old(run: Run) -> None:
    run.save()
    run.scan()
    run.now += 3 * 86_400_000


@fault
def facts_of_tomorrow(run: Run) -> None:
    run.save()
    run.scan()
    run.now -= 86_400_000


@fault
def facts_that_were_copied(run: Run) -> None:
    run.save()
    run.scan(0)
    shutil.copytree(run.of(0), run.of(1))


def of_facts(name: str, harm: Plant) -> None:
    def plant(run: Run) -> None:
        run.save()
        harm_body(run, run.slave)
        run.scan()
        harm(run)

    FAULTS[name] = plant


def facts_file(run: Run, kind: str) -> Path:
    return next(path for path in sorted(run.of(1).iterdir()) if path.name.startswith(kind))


def edit_state(run: Run, **changes: Any) -> None:
    path = run.of(1) / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def snapshot_of(run: Run) -> Path:
    return sorted(run.of(1).glob("snapshots/*/*.gz"))[-1]


def edit_snapshot(run: Run, change: Callable[[dict[str, Any]], object]) -> None:
    path = snapshot_of(run)
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for row in rows:
        change(row)
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))


for kind in ("windows", "findings", "sums"):
    of_facts(f"{kind}_are_gone", lambda run, kind=kind: facts_file(run, kind).unlink())  # type: ignore[misc]
    of_facts(f"{kind}_are_cut", lambda run, kind=kind: cut(facts_file(run, kind), 90))  # type: ignore[misc]
    of_facts(f"{kind}_have_another_bit", lambda run, kind=kind: flip(facts_file(run, kind), 60))  # type: ignore[misc]
of_facts(
    "windows_of_the_master",
    lambda run: shutil.copy(next(run.of(0).glob("windows*")), facts_file(run, "windows")),
)
of_facts("the_state_is_cut", lambda run: cut(run.of(1) / "state.json", 200))
of_facts("the_state_has_no_files", lambda run: edit_state(run, files=[]))
of_facts("the_state_has_another_end", lambda run: edit_state(run, high=1024, end=1024))
of_facts("the_state_has_another_window", lambda run: edit_state(run, window=2048))


def of_snapshot(name: str, harm: Plant) -> None:
    def plant(run: Run) -> None:
        run.save()
        run.scan()
        harm(run)

    FAULTS[name] = plant


of_snapshot("no_snapshots", lambda run: shutil.rmtree(run.of(1) / "snapshots"))
of_snapshot("a_cut_snapshot", lambda run: cut(snapshot_of(run), 100))
of_snapshot("a_snapshot_with_another_bit", lambda run: flip(snapshot_of(run), 70))
for member in ("faults", "crashed", "messagesRead", "uncertainQueues"):
    of_snapshot(
        f"a_snapshot_without_{member}",
        lambda run, member=member: edit_snapshot(run, lambda row: row.pop(member)),  # type: ignore[misc]
    )
of_snapshot(
    "a_snapshot_of_version_1",
    lambda run: edit_snapshot(
        run, lambda row: [row.pop(name) for name in ("faults", "crashed", "own")]
    ),
)
of_snapshot(
    "a_snapshot_that_tells_nothing",
    lambda run: edit_snapshot(run, lambda row: row.update(kinds=["version"])),
)
of_snapshot(
    "a_snapshot_of_another_broker",
    lambda run: edit_snapshot(run, lambda row: row.update(broker="z")),
)
of_snapshot(
    "a_snapshot_with_the_masters_id",
    lambda run: edit_snapshot(run, lambda row: row.update(brokerId=0)),
)


def test_there_are_many_kinds_of_faults() -> None:
    assert len(FAULTS) >= 60


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", FAULTS)
def test_no_fault_is_judged_safe(tmp_path: Path, name: str, seed: int) -> None:
    run = Run(tmp_path, Random(f"{name}/{seed}"))
    try:
        FAULTS[name](run)
        told = run.verdicts()
    except CannotDecide:
        return
    assert not all(one.is_safe for one in told), [one.verdict for one in told]
    assert max(one.outcome for one in told) is not Outcome.HOLDS


# Healthy runs

HEALTHY: dict[str, Plant] = {}


def healthy(plant: Plant) -> Plant:
    HEALTHY[plant.__name__] = plant
    return plant


@healthy
def at_rest(run: Run) -> None:
    run.save()
    run.scan()


@healthy
def scanned_again_and_again(run: Run) -> None:
    run.save()
    for share in (30, 3, 1):
        run.scan(share=share)
    run.scan(1, again=True)


@healthy
def grown_between_scans(run: Run) -> None:
    """The slave was scanned when the master had less; then both again."""
    run.save()
    run.scan()
    last = run.store.placed[-1].message.stored
    for message in ordinary(run.random.randrange(5, 40)):
        run.store.add(message._replace(uniq=f"8{message.uniq[1:]}", stored=last + message.stored))
    run.store.consumed()
    run.store.consumed("CG2")
    for root in (run.master, run.slave):
        shutil.rmtree(root)
    run.save()
    run.scan(share=run.random.choice((0, 1, 30)))


@healthy
def a_deleted_topic(run: Run) -> None:
    """A slave keeps the queues and the offsets."""
    run.save()
    for root in (run.master, run.slave):
        change_table("topics", lambda table: table["topicConfigTable"].pop("Topic1"), root)(run)
    for group in ("CG", "CG2"):
        name = f"Topic1@{group}"
        change_table("consumerOffset", lambda t, n=name: t["offsetTable"].pop(n), run.master)(run)
    shutil.rmtree(run.master / "consumequeue" / "Topic1")
    run.scan()


def expire(run: Run, root: Path, count: int) -> None:
    """Delete the first files of the log, and queue files that have only their messages."""
    for path in sorted((root / "commitlog").iterdir())[:count]:
        path.unlink()
    for queue in (root / "consumequeue").glob("*/*"):
        for path in sorted(queue.iterdir())[:-1]:
            last = struct.unpack(">q", path.read_bytes()[-20:-12])[0]
            if last < count * LOG:
                path.unlink()


@healthy
def retention(run: Run) -> None:
    run.save()
    if run.random.random() < 0.5:
        run.scan()
    count = run.random.randrange(1, 3)
    for root in (run.master, run.slave):
        expire(run, root, count)
    run.scan()


@healthy
def retention_of_one_side_first(run: Run) -> None:
    run.save()
    run.scan()
    expire(run, run.master, 1)
    run.scan()


@healthy
def a_crash_of_the_master(run: Run) -> None:
    """Its offsets are some seconds old, and the file `abort` is there."""
    run.save()
    behind = run.random.randrange(1, 4)
    change_table(
        "consumerOffset",
        lambda table: offsets_of(table).update({"0": offsets_of(table)["0"] - behind}),
        run.master,
    )(run)
    (run.master / "abort").touch()
    run.scan()


@healthy
def files_that_were_made_beforehand(run: Run) -> None:
    run.save()
    for root in (run.master, run.slave):
        last = sorted((root / "commitlog").iterdir())[-1]
        (root / "commitlog" / f"{int(last.name) + LOG:020}").write_bytes(bytes(LOG))
        for queue in (root / "consumequeue").glob("*/*"):
            last = sorted(queue.iterdir())[-1]
            (queue / f"{int(last.name) + 200:020}").write_bytes(bytes(200))
    run.scan()


EACH = 5 * SEEDS


def test_there_are_forty_healthy_runs() -> None:
    assert len(HEALTHY) * EACH >= 40


@pytest.mark.parametrize("seed", range(EACH))
@pytest.mark.parametrize("name", HEALTHY)
def test_no_healthy_run_raises_an_alarm(tmp_path: Path, name: str, seed: int) -> None:
    run = Run(tmp_path, Random(f"{name}/{seed}"))
    HEALTHY[name](run)
    (told,) = run.verdicts()
    assert [one for one in told.findings if one.severity != "INFO"] == []
    assert (told.is_safe, told.outcome) == (True, Outcome.HOLDS), told.verdict
    settings = Settings(StoreAt(str(run.master)), StoreAt(str(run.slave)), pause_ms=0)
    assert alarms(verify(settings).findings) == []


def alarms(findings: Sequence[Any]) -> list[Any]:
    return [one for one in findings if one.severity != "INFO"]
