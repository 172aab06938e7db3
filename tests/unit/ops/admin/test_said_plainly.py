"""Mistakes of an operator's first day: each is answered with its cause, before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq_ha.client.connection.asks import Asker
from rmq_ha.ops.admin import topic
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.message_lookup import Spot, at_spot
from rmq_ha.ops.admin.session import FAILED, NOT_FOUND, USAGE, Session
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say

YES = {"yes": True, "dry_run": False}


def typed(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(words))
    return done.exit_code, done.output


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster("broker-a")
    shape = {"queues": 4, "read_queues": None, "write_queues": None, "perm": None}
    new = {"is_new": True, **YES}
    assert say(made, lambda s: topic.change_topic(s, "Orders", "", shape, **new)).code == 0
    made.run(1)
    return made


@pytest.mark.parametrize(
    ("spot", "words"),
    [
        (Spot("broker-a", 9, 0), "Orders has 4 queues to read at broker-a, from 0 on"),
        (Spot("broker-b", 0, 0), "the broker broker-b does not have Orders; it is at broker-a"),
    ],
)
def test_a_place_that_is_none(cluster: SimCluster, spot: Spot, words: str) -> None:
    async def work(session: Session) -> None:
        await Asker(await session.client()).run(at_spot("Orders", spot))

    said = say(cluster, work)
    assert said.code == NOT_FOUND
    assert words in said.err


def test_two_topics_in_one_word(cluster: SimCluster) -> None:
    said = say(cluster, lambda s: topic.delete_everywhere(s, "Orders,Other", **YES))
    assert said.code == NOT_FOUND
    assert "give one topic at a time" in said.err


def test_a_body_without_quotes() -> None:
    code, output = typed("produce", "Orders", "hello", "world")
    assert code == USAGE
    assert 'put it into quotes, "hello world"' in output


@pytest.mark.parametrize("command", ["promote", "demote"])
def test_a_file_of_a_name_server(tmp_path: Path, command: str) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=9900\nkvConfigPath=/var/lib/rmqha/kv.json\n")
    code, output = typed(command, "--config", str(file))
    assert code == USAGE
    assert "kvConfigPath is a key of rmqha-namesrv" in output
    assert "name the properties file of the broker" in output
    both = "enableControllerInNamesrv=true\ncontrollerDLegerPeers=n0-127.0.0.1:9878\n"
    file.write_text(f"{both}controllerStorePath=/var/lib/rmqha/c\n")
    assert "is a key of" not in typed(command, "--config", str(file))[1]


def test_a_backup_where_nothing_can_be_made(tmp_path: Path) -> None:
    config = tmp_path / "broker.properties"
    store = tmp_path / "store" / "commitlog"
    store.mkdir(parents=True)
    (store / f"{0:020}").write_bytes(bytes(65536))
    config.write_text(f"storePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=65536\n")
    code, output = typed("backup", "/proc/bak", "-c", str(config))
    assert code == FAILED
    assert "[Errno" not in output
    assert "/proc/bak" in output
