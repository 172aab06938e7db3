"""What commands make of their options before Spark is asked for anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rmq_ha.base.errors import WrongUsage
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.scan.fleet import judging
from rmq_ha.lake.scan.replica.settings import Settings
from rmq_ha.lake.spark import fleet, fleet_command, running
from rmq_ha.lake.spark.archive import command as archive_command
from rmq_ha.lake.spark.archive import job as archive_job
from rmq_ha.lake.spark.archive import replay as replay_job
from rmq_ha.lake.spark.audit import command as audit_command
from rmq_ha.lake.spark.audit import job as audit_job
from rmq_ha.lake.spark.offsets import command as offsets_command
from rmq_ha.lake.spark.offsets import job as offsets_job
from rmq_ha.lake.spark.offsets import many_pairs
from rmq_ha.lake.spark.replica import command as replica_command
from rmq_ha.lake.spark.replica import job as replica_job
from rmq_ha.ops.offsets import opening, repair, snapshot_history
from rmq_ha.ops.offsets.command import OffsetOptions as Limited
from rmq_ha.ops.offsets.places import StorePlace, parse_place
from rmq_ha.ops.offsets.sampling import Patience
from rmq_ha.ops.offsets.verdict import Limits

NOW = 1_800_000_000_000
DAY = 86_400_000


class Job:
    """What a command asks of a job, at a time that stands still."""

    client = ClientConfig(use_tls=True)
    spark = "engine"

    def __init__(self) -> None:
        self.notes: list[str] = []

    def now_ms(self) -> int:
        return NOW

    def place(self, text: str) -> Any:
        return parse_place(text)

    def engine(self) -> Any:
        return "engine"

    def note(self, text: str) -> None:
        self.notes.append(text)

    @contextmanager
    def progress(self, label: str) -> Any:
        self.notes.append(label)
        yield


class Command:
    """One command; its job is not run, but asked for."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, command: click.Command, module: Any, *works: Any
    ) -> None:
        self.command = command
        self.told: tuple[str, Mapping[str, str]] = "", {}
        self.asked: tuple[Any, ...] = ()
        monkeypatch.setattr(module, "run_job", self.run)
        for of, name in works:
            monkeypatch.setattr(of, name, self.work)

    def run(
        self,
        name: str,
        inputs: Mapping[str, str],
        body: Callable[[Any], Any],
    ) -> None:
        self.told = name, inputs
        body(Job())

    def work(self, job: Any, *asked: Any, **named: Any) -> None:
        self.asked = (*asked, named) if named else asked

    def __call__(self, *line: str) -> Any:
        done = CliRunner().invoke(self.command, line, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return self.asked[0]


def test_what_is_cold_is_archived_and_everything_where_somebody_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = Command(
        monkeypatch, archive_command.archive, archive_command, (archive_job, "archive")
    )
    asked = command("/s", "--to", "a")
    assert (asked.place, asked.to, asked.form) == (
        StorePlace("/s"),
        os.path.abspath("a"),
        "parquet",
    )
    assert (asked.topics, asked.before_ms, asked.most) == ((), NOW - DAY, 5_000_000)
    assert command.told == ("archive", {"place": "/s", "to": "a", "before": "1d"})
    asked = command("namesrv://n:1/b", "--to", "a", "--before", "now", "--topics", "t, u")
    assert (asked.topics, asked.before_ms, asked.options) == (("t", "u"), None, {"useTLS": "true"})
    assert command.told[1]["topics"] == "t, u"


def test_a_topic_is_replayed_into_itself_unless_another_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = Command(monkeypatch, archive_command.replay, archive_command, (replay_job, "replay"))
    asked = command("a", "--topic", "t")
    assert (asked.archive, asked.topic, asked.to) == (os.path.abspath("a"), "t", "t")
    assert (asked.from_ms, asked.to_ms, asked.rate, asked.again) == (None, None, None, False)
    assert command.told == ("replay", {"archive": "a", "topic": "t", "as": "t"})
    asked = command("a", "--topic", "t", "--as", "u", "--from", "2d", "--until", "1d", "--again")
    assert (asked.to, asked.again) == ("u", True)
    assert (asked.from_ms, asked.to_ms) == (NOW - 2 * DAY, NOW - DAY)
    assert command.told[1] == {
        "archive": "a",
        "topic": "t",
        "as": "u",
        "since": "2d",
        "until": "1d",
    }


def test_an_audit_is_of_all_places_and_all_times_unless_some_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = Command(
        monkeypatch, audit_command.audit_messages, audit_command, (audit_job, "audit")
    )
    asked = command("/a", "/b")
    assert asked.places == [StorePlace("/a"), StorePlace("/b")]
    assert (asked.from_ms, asked.to_ms, asked.window_ms, asked.grace_ms) == (
        *(None, None),
        *(60_000, 10_000),
    )
    assert command.told == (
        "audit-messages",
        {"place": "/a", "place1": "/b", "key": "uniqKey", "window": "1m", "grace": "10s"},
    )
    asked = command("/a", "--from", "2d", "--to", "1d", "--grace", "0s", "--subscription", "g=A||B")
    assert (asked.from_ms, asked.to_ms, asked.grace_ms) == (NOW - 2 * DAY, NOW - DAY, 0)
    assert asked.tags == {"g": frozenset("AB")}
    assert (command.told[1]["since"], command.told[1]["until"]) == ("2d", "1d")
    with pytest.raises(WrongUsage, match="--window 0s: no span of time"):
        command("/a", "--window", "0s")


def test_a_fleet_is_fetched_from_unless_somebody_forbids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = Command(monkeypatch, fleet_command.verify_fleet, fleet_command, (fleet, "verify"))
    assert command("facts") == "facts"
    named = {"looks_for_ids": False}
    assert command.asked[1:] == (judging.JudgingLimits(20_000, DAY, True), NOW, named)
    assert command.told == ("verify-fleet", {"directory": "facts"})
    command("facts", "--no-fetch", "--ids", "--max-age", "1h", "--max-skew", "0s")
    named = {"looks_for_ids": True}
    limits = judging.JudgingLimits(0, 3_600_000, False, ids=True)
    assert command.asked[1:] == (limits, NOW, named)


# Replicas


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(
        monkeypatch, replica_command.verify_replica, replica_command, (replica_job, "verify")
    )


def test_one_store_is_compared_with_itself_and_two_with_each_other(
    replica: Command, tmp_path: Path
) -> None:
    first, second = str(tmp_path / "m"), str(tmp_path / "s")
    asked: Settings = replica(first)
    assert asked.master == asked.slave
    assert replica.told == ("verify-replica", {"master": first, "slave": ""})
    asked = replica(first, second, "--from", "5")
    assert (asked.master.uri, asked.slave.uri, asked.start) == (first, second, 5)
    assert replica.told[1]["slave"] == second
    assert asked.window == 16 << 20
    assert replica(first, "--window", "32m").window == 32 << 20
    with pytest.raises(WrongUsage, match="are the same directory: no pair"):
        replica(first, f"{tmp_path}/./m")
    with pytest.raises(WrongUsage, match="logs are compared as files"):
        replica("namesrv://n:1/b")


@pytest.mark.parametrize(
    ("given", "sizes"),
    [([], None), (["5,7"], (5, 7)), ([" 5000000 , 20000000 "], (5_000_000, 20_000_000))],
)
def test_sizes_of_index_files_are_two_numbers(
    replica: Command, given: list[str], sizes: tuple[int, int] | None
) -> None:
    option = [text for each in given for text in ("--index-sizes", each)]
    assert replica("/m", *option).index_sizes == sizes


@pytest.mark.parametrize("given", ["5", "5,", "0,5", "5,7,9", "a,b", "-5,7", ""])
def test_other_sizes_of_index_files_are_refused(replica: Command, given: str) -> None:
    done = CliRunner().invoke(replica.command, ["/m", "--index-sizes", given])
    assert done.exit_code == 2
    assert "write maxHashSlotNum,maxIndexNum, as 5000000,20000000" in done.output


@pytest.mark.parametrize(
    ("given", "checks"),
    [
        ([], replica_command.CHECKS),
        (["bytes"], ()),
        (["queues"], ["queues"]),
        (["bytes", "index"], ["index"]),
    ],
)
def test_bytes_are_compared_always_and_the_rest_as_it_is_asked_for(
    replica: Command, given: list[str], checks: list[str]
) -> None:
    option = [text for each in given for text in ("--check", each)]
    assert replica("/m", *option).checks == frozenset(checks)


# Offsets


class Pair:
    """One pair that is looked at: what was done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        for of, name in (
            *((opening, "look_at_pair"), (snapshot_history, "append_pairings")),
            *((offsets_job, "verify"), (repair, "save"), (many_pairs, "verify")),
        ):
            step = f"{of.__name__.rpartition('.')[2]}.{name}"
            monkeypatch.setattr(of, name, lambda *given, step=step: self.step(step, *given))

    def step(self, name: str, *given: Any) -> str:
        self.done.append((name, *given))
        return f"<{name}>"


LIMITS = Limited(Patience(1, 2), Limits(3, 4), None)


@pytest.mark.parametrize(
    ("past", "record", "is_added"),
    [(None, False, False), ("/past", False, False), ("/past", True, True)],
)
def test_what_is_seen_of_a_pair_is_added_to_its_history_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, past: str | None, record: bool, is_added: bool
) -> None:
    """Before it is judged: the history is of what was there."""
    pair, job = Pair(monkeypatch), Job()
    asked: Any = job
    answer: Any = offsets_command._verify_one_pair(asked, ["/m", "/s"], LIMITS, past, record)
    assert answer == "<job.verify>"
    places = [StorePlace("/m"), StorePlace("/s")]
    assert pair.done == [
        ("opening.look_at_pair", job.client, places, LIMITS.patience, job.note),
        *(
            [("snapshot_history.append_pairings", "<opening.look_at_pair>", past)]
            if is_added
            else []
        ),
        ("job.verify", job.engine, "<opening.look_at_pair>", LIMITS.limits, past),
    ]
    assert job.notes == []


def test_a_plan_of_repair_is_saved_and_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, job = Pair(monkeypatch), Job()
    asked: Any = job
    offsets_command._verify_one_pair(
        asked, ["/m", "/s"], LIMITS._replace(repair="/plan"), None, False
    )
    assert pair.done[-1] == ("repair.save", "<opening.look_at_pair>", "/plan", 3)
    assert job.notes == ["a repair plan is in /plan; nothing was done"]


@pytest.mark.parametrize("record", [True, False])
def test_many_pairs_are_looked_at_where_spark_works(
    monkeypatch: pytest.MonkeyPatch, record: bool
) -> None:
    pair, job = Pair(monkeypatch), Job()
    asked: Any = job
    pairs = [["/m", "/s"], ["/n", "/t"]]
    offsets_command._verify_many_pairs(asked, pairs, LIMITS, "/past", record)
    ((_, engine, places, work, past),) = pair.done
    assert (engine, past) == ("engine", "/past")
    assert places == [[StorePlace(text) for text in each] for each in pairs]
    assert work == many_pairs.PairWork(job.client, *LIMITS[:2], "/past" if record else None)
    assert job.notes == ["looking at 2 pairs"]


# Options of all jobs


def test_options_of_all_jobs_are_given_once_or_as_often_as_needed() -> None:
    """Those that only say yes take no value, and the command's function is given none of them."""
    said: list[Any] = []

    @click.command()
    @running._options("--spark-master", "master")
    def command(**given: Any) -> None:
        said.append((given, running.current_frame()))

    line = ["--conf", "a=1", "--conf", "b=2", "--strict", "-q", "--spark-master", "local[2]"]
    done = CliRunner().invoke(command, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    ((given, frame),) = said
    assert given == {}
    assert frame == running.Frame(
        master="local[2]", conf={"a": "1", "b": "2"}, strict=True, quiet=True
    )
