"""`rmqha-admin cluster import`: a document of `cluster export` comes back, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.ops.admin import cluster, cluster_import
from rmq_ha.ops.admin.cluster_plan import read_export
from rmq_ha.ops.admin.session import FAILED, USAGE, ChangeRefused
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say
from tests.unit.ops.admin.typing_kit import Typist


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    typed = Typist(SimCluster("one", "two"), monkeypatch)
    typed.does("topic create Orders --queues 4 --type FIFO")
    typed.does("topic create Small --queues 2 --on one")
    typed.does("group create billing --retries 5")
    typed.does("broker config set one fileReservedTime=48 --yes")
    return typed


def exported(made: SimCluster) -> Any:
    async def work(session: Any) -> None:
        document, _ = await cluster.cluster_document(session, "", offsets=False)
        session.output.fields(document)

    return say(made, work).json


def imported(made: SimCluster, document: Any, which: str = "", **sure: bool) -> Said:
    given = {"yes": True, "dry_run": False} | sure
    work = cluster_import.import_document
    return say(made, lambda s: work(s, document, which, **given))


def table(said: Said) -> list[tuple[str, str, str]]:
    rows = json.loads(said.out.splitlines()[0])["rows"]
    return [(row["broker"], row["kind"], row["name"]) for row in rows]


def test_what_was_exported_finds_no_difference(typed: Typist) -> None:
    said = imported(typed.cluster, exported(typed.cluster))
    assert (said.code, table(said)) == (0, [])


def test_a_new_cluster_gets_topics_groups_and_settings_once(typed: Typist) -> None:
    document = exported(typed.cluster)
    new = SimCluster("one", "two", subnet="127.0.1")
    dry = imported(new, document, yes=False, dry_run=True)
    expected = {
        ("one", "topic", "Orders"),
        ("two", "topic", "Orders"),
        ("one", "topic", "Small"),
        ("one", "group", "billing"),
        ("two", "group", "billing"),
        ("one", "setting", "fileReservedTime"),
    }
    settable = {
        (row["broker"], row["kind"], row["name"])
        for row in dry.json["rows"]
        if not row["action"].startswith("not set")
    }
    assert settable == expected
    assert "Orders" not in new.brokers["one"].topics.table
    told = imported(new, document)
    assert told.last == {"set": 6}, told.out + told.err
    made = new.brokers["one"]
    assert made.topics.table["Orders"].attributes == {"message.type": "FIFO"}
    assert made.groups.table["billing"].retry_max_times == 5
    assert made.configuration.store.file_reserved_time == 48
    assert "Small" not in new.brokers["two"].topics.table
    again = imported(new, document)
    assert json.loads(again.out.splitlines()[0])["to_set"] == 0
    left = json.loads(again.out.splitlines()[0])["rows"]
    assert {row["name"] for row in left} >= {"brokerIP1"}, "an address is of one machine"
    assert all("not set" in row["action"] for row in left)
    assert again.code == told.code == 0, "addresses belong to the brokers' own files"


def test_what_cannot_be_set_is_refused_with_its_reason(typed: Typist) -> None:
    """Queues with unread messages, keys that need a restart, brokers that are not there."""
    document = exported(typed.cluster)
    document["brokers"][0]["config"] |= {"mappedFileSizeCommitLog": "65536", "strange": "1"}
    gone = {**document["brokers"][1], "broker": "three", "address": "x:1"}
    document["brokers"].append(gone)
    typed.does("topic update Small --queues 8 --yes")
    typed.does("produce Small m --quiet --count 16")
    typed.does("topic create Later")
    said = imported(typed.cluster, document)
    rows = {row["name"]: row["action"] for row in json.loads(said.out.splitlines()[0])["rows"]}
    assert said.code == FAILED
    assert "restart" in rows["mappedFileSizeCommitLog"]
    assert "does not know the key" in rows["strange"]
    assert "no master of this name" in rows["three"]
    assert "--drop-unread" in rows["Small"]
    assert "Later" not in rows, "what only the broker has stays"
    assert typed.cluster.brokers["one"].topics.table["Small"].read_queue_nums == 8
    part = imported(typed.cluster, document, "two")
    assert (part.code, table(part)) == (0, [])


def test_secrets_and_offsets_are_not_imported(typed: Typist) -> None:
    document = exported(typed.cluster)
    entry = document["brokers"][0]
    entry["config"] |= {"haSecret": "0123456789abcdef"}
    entry["offsets"] = {"Orders@billing": {"0": 3}}
    said = imported(typed.cluster, document)
    assert table(said) == [("one", "offsets", "all groups")]
    assert "reset-offset" in said.out
    assert said.code == 0


@pytest.mark.parametrize(
    "document", [{}, [], {"brokers": [{}]}, {"brokers": [{"cluster": 1, "broker": 2}]}]
)
def test_another_document_is_refused(document: Any) -> None:
    with pytest.raises(ChangeRefused, match="cluster export"):
        read_export(document)


def test_files_are_typed(typed: Typist, tmp_path: Path) -> None:
    """The file is on the disk of the machine at which somebody types."""
    path = tmp_path / "cluster.json"
    path.write_text("{")
    assert typed(f"cluster import {path}").code == USAGE, "nobody can be asked"
    typed.host.disk.replace(str(path), b"{")
    told = typed(f"cluster import {path} --yes")
    assert (told.code, "no JSON" in told.err) == (FAILED, True)
    assert "give the file that `rmqha-admin cluster export FILE` wrote" in told.err
    typed.host.disk.replace(str(path), json.dumps(exported(typed.cluster)).encode())
    assert typed.does(f"cluster import {path} --yes").lines[0]["rows"] == []
