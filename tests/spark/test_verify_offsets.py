"""The job `verify-offsets`: Spark says what the rules say; stores, histories, the command."""

import json
import os
import shutil
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.client.settings import ClientConfig
from rmq_ha.model.data_version import DataVersion
from rmq_ha.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.spark.cli import main
from rmq_ha.spark.host.clock import now_ms
from rmq_ha.spark.host.waiting import pause
from rmq_ha.spark.offsets import frames, history, model
from rmq_ha.spark.offsets.model import Fact, Snapshot
from rmq_ha.spark.offsets.opening import opened
from rmq_ha.spark.offsets.pairing import Forecast, Pairing, cases, forecast, pair, predict
from rmq_ha.spark.offsets.rules import judge
from rmq_ha.spark.offsets.sampling import Patience, sample
from rmq_ha.spark.places import StorePlace
from rmq_ha.wire import fastjson
from rmq_ha.wire.bodies import GroupTable, TopicTable

SHARED = Path(os.environ.get("RMQ_HA_SHARED", Path(__file__).parents[3] / "shared"))
FIXTURES = SHARED / "fixtures" / "store"
ALL = frozenset(model.NUMBERS + model.TEXTS)
MAX_LAG = 3


def some_facts(random: Random) -> list[Fact]:
    """Few keys and small numbers: everything meets everything."""
    facts: list[Fact] = []
    for topic in ("a", "%RETRY%g"):
        for queue_id in range(2):
            low = random.choice([0, 0, 0, 4, 8])
            if random.random() < 0.85:
                facts.append(model.queue_fact(topic, queue_id, low, low + random.randrange(9)))
            for group in ("g", "CID_RMQ_SYS_x"):
                if random.random() < 0.8:
                    facts.append(
                        Fact(model.OFFSET, topic, group, queue_id, random.randrange(-1, 16))
                    )
    facts.append(model.queue_fact("SCHEDULE_TOPIC_XXXX", 0, 0, random.randrange(9)))
    if random.random() < 0.7:
        facts += model.delay_facts({1: random.randrange(9)})
    topics = {
        name: TopicConfig(
            name, read_queue_nums=random.choice([4, 4, 8]), perm=random.choice([6, 6, 4])
        )
        for name in "abc"
        if random.random() < 0.8
    }
    facts += model.topic_facts(TopicTable(DataVersion(1, random.randrange(2)), topics))
    groups = {name: SubscriptionGroupConfig(name) for name in "gh" if random.random() < 0.8}
    facts += model.group_facts(GroupTable(DataVersion(1, random.randrange(2)), groups))
    facts.append(model.log_fact(0, random.randrange(5)))
    return facts


def some_pairing(random: Random, number: int) -> Pairing:
    is_crashed = random.random() < 0.2
    kinds = ALL - {model.DELAY} if random.random() < 0.2 else ALL

    def snapshot(place: str, at: int, facts: list[Fact]) -> Snapshot:
        return Snapshot(place, "b", 0, None, False, at, at, kinds, tuple(facts), is_crashed)

    facts = some_facts(random)
    masters = []
    for index in range(random.randrange(1, 4)):
        masters.append(snapshot("m", 10 * index, facts))
        if random.random() < 0.5:
            facts = some_facts(random)
    copied = facts if random.random() < 0.2 else some_facts(random)
    slave = snapshot(f"s{number}", random.randrange(5, 40), copied)
    return pair(masters, slave, random.choice([0, 15, 25]), is_first=number % 3 == 0)


def test_spark_says_what_the_rules_say(spark: Any) -> None:
    """The same codes and numbers for every key, over many random pairs in one query."""
    random = Random(7)
    pairings = [some_pairing(random, number) for number in range(400)]
    expected, seen = {}, set()
    for pairing in pairings:
        for case in cases(pairing):
            ruling = judge(case, MAX_LAG)
            expected[(pairing.slave.place, *case.key)] = (list(ruling.codes), *ruling[1:])
            seen |= set(ruling.codes)
    assert len(seen) >= 20
    facts = frames.frame_of(spark, frames.facts_of(pairings))
    rows = frames.judged(facts, MAX_LAG)
    wanted = rows.select(*frames.KEYS, "codes", "repeats", "skipped", "lost")
    found = {
        (row["slave"], row["kind"], row["topic"], row["group"], row["queueId"]): (
            row["codes"],
            row["repeats"],
            row["skipped"],
            row["lost"],
        )
        for row in wanted.toArrow().to_pylist()
    }
    wrong = {
        key: (expected.get(key), found.get(key))
        for key in expected
        if expected[key] != found.get(key)
    }
    assert not wrong, list(wrong.items())[:5]
    assert found.keys() == expected.keys()

    from rmq_ha.spark.offsets.job import _summed

    by_slave, worst = _summed(rows, len(pairings))
    for pairing in pairings:
        sums = forecast((case, judge(case, MAX_LAG)) for case in cases(pairing))
        assert by_slave[pairing.slave.place]._asdict() == sums._asdict()
    assert worst[0].repeats + worst[0].skipped > 0


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store that the Java broker wrote, and a copy of it."""
    archive = FIXTURES / "clean.tar.gz"
    if not archive.exists():
        pytest.skip(f"no fixtures at {FIXTURES}")
    folder = tmp_path_factory.mktemp("stores")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (folder / "clean").rename(folder / "m")
    shutil.copytree(folder / "m", folder / "s")
    return folder / "m", folder / "s"


def run(*arguments: Any) -> tuple[int, str]:
    """The command, in this process: it uses the session that is there."""
    done = CliRunner().invoke(main, ["verify-offsets", "--quiet", *map(str, arguments)])
    return done.exit_code, done.output


def test_stores_of_java(spark: Any, stores: tuple[Path, Path], tmp_path: Path) -> None:
    """Equal ones hold; one offset that is put back is found, counted, located, and repairable."""
    master, slave = stores
    code, output = run("--master", master, "--slave", slave)
    assert (code, output.splitlines()[-1]) == (
        0,
        "safe to fail over: yes; 0 messages would be repeated, 0 skipped, 0 lost",
    )
    config = slave / "config" / "consumerOffset.json"
    before = config.read_bytes()
    table = fastjson.parse(before)
    table["offsetTable"]["TopicA@CG_fixture"][0] = 12
    config.write_bytes(fastjson.pretty(table))
    (slave / "config" / "delayOffset.json").write_bytes(b'{"offsetTable":{1:0,2:1,3:1}}')
    out, repair = tmp_path / "out", tmp_path / "repair"
    past = tmp_path / "history"
    code, output = run(
        *("--master", master, "--slave", slave, "--out", out, "--repair", repair),
        *("--history", f"snapshot:{past}", "--record"),
    )
    assert code == 1, output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["counts"] == {"STALE": 1, "DELAY_LAG": 1}
    numbers = summary["numbers"]["slaves"][str(slave)]
    assert (numbers["repeats"], numbers["delay_repeats"]) == (18, 2)
    assert "worst: group CG_fixture, queue 0 of TopicA" in summary["verdict"]
    (row,) = [
        row for row in spark.read.parquet(str(out / "findings")).collect() if row.code == "STALE"
    ]
    assert (row.topic, row.queueId, row.group, row.expected, row.actual, row.broker) == (
        "TopicA",
        0,
        "CG_fixture",
        "30",
        "12",
        str(slave),
    )
    assert "18 messages" in row.detail
    config.write_bytes((repair / "consumerOffset.json").read_bytes())
    (slave / "config" / "delayOffset.json").write_bytes((repair / "delayOffset.json").read_bytes())
    with opened(ClientConfig(), now_ms) as source:
        sources = [source(StorePlace(str(item)), is_slave=item is slave) for item in stores]
        (repaired,) = sample(sources[0], sources[1:], Patience(wait_ms=0), now_ms, pause)
    assert predict(repaired) == Forecast()
    assert [len(history.kept(str(past), role)) for role in ("master", "slave")] == [1, 1]


def test_history(spark: Any, tmp_path: Path) -> None:
    """What went back, what was reset, what jumped; a slave that follows a reset is right."""
    past = tmp_path / "history"

    def keep(role: str, number: int, at: int, **offsets: int) -> None:
        facts = [Fact(model.OFFSET, "t", group, 0, value) for group, value in offsets.items()]
        facts.append(model.queue_fact("t", 0, 0, 100))
        taken = Snapshot(role, "b", number, role, False, at, at, ALL, tuple(facts))
        assert history.decode(history.encode(taken), "x") == taken
        history.append(taken, str(past))

    minute = 60_000
    keep("ASYNC_MASTER", 0, minute, steady=10, reset=50, lost=50, jumper=20, on=50)
    keep("SLAVE", 1, minute + 1, steady=10, reset=50, lost=50, jumper=20, on=50)
    # `on` was reset to 0, and consumed again since.
    keep("ASYNC_MASTER", 0, 2 * minute, steady=20, reset=30, lost=60, jumper=20, on=45)
    keep("SLAVE", 1, 2 * minute + 1, steady=15, reset=30, lost=40, jumper=500, on=40)
    offsets = history.offsets_over_time(history.read(spark, str(past)))
    found = {
        (row.code, row.severity, row.broker, row.group, row.expected, row.actual)
        for row in history.findings(offsets).collect()
    }
    assert found == {
        ("OFFSET_RESET", "WARN", "ASYNC_MASTER", "reset", "50", "30"),
        ("OFFSET_RESET", "WARN", "ASYNC_MASTER", "on", "50", "45"),
        ("ROLLBACK", "ERROR", "SLAVE", "lost", "50", "40"),
        ("OFFSET_JUMP", "ERROR", "SLAVE", "jumper", "100", "500"),
    }
    trend = history.trend(offsets)
    assert trend.moments == [minute, 2 * minute]
    assert trend.groups["lost"] == [0.0, 20.0]
    assert trend.groups["steady"] == [0.0, 5.0]
    code, output = run(
        *("--master", f"snapshot:{past}", "--slave", f"snapshot:{past}"),
        *("--history", f"snapshot:{past}"),
    )
    assert code == 1, output
    verdict = output.splitlines()[-1]
    # The slave's first snapshot lies between two of the master, which has seen a reset since.
    assert verdict.startswith("safe to fail over: no: messages would be skipped; 20 messages")
    assert verdict.endswith("the history holds 2 violations")
    code, output = run("--master", f"snapshot:{past}", "--slave", f"broker://{past.name}:1")
    assert code == 2, output
