"""`rmqha-admin` and the blocking client against a Java broker; their consumers and Java's."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any
from unittest.mock import patch

import pytest

from rmq_ha.base.host.loop import LoopReactor
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.messages import Message
from rmq_ha.ops.admin import session
from rmq_ha.ops.admin.main import main
from tests.interop.rig import Rig

TOPIC = "Commands"


def react_in_loop(start: Any) -> None:
    """`twisted.internet.task.react`, but the process goes on; ends with SystemExit as well."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        reactor = LoopReactor(loop)
        try:
            await start(reactor).asFuture(loop)
        finally:
            reactor.close()

    asyncio.run(run())


class JavaBroker:
    """A name server and a broker of Java."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.namesrv = rig.namesrv(java=True)
        self.broker = rig.broker("master-async.conf", "java", java=True, namesrv=self.namesrv)

    def admin(self, *arguments: Any, expect: int = 0) -> list[Any]:
        """The JSON lines of a command's stdout."""
        code, out, err = self.run(*arguments)
        assert code == expect, (arguments, code, out, err)
        return [json.loads(line) for line in out.splitlines()]

    def run(self, *arguments: Any) -> tuple[Any, str, str]:
        """Exit code, stdout and stderr of a command."""
        out, err, code = StringIO(), StringIO(), None
        with (
            patch.dict(os.environ, NAMESRV_ADDR=self.namesrv),
            patch.object(session, "react", react_in_loop),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main(["--json", *map(str, arguments)], prog_name="rmqha-admin")
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def java(shared_rig: Rig) -> JavaBroker:
    made = JavaBroker(shared_rig)
    with BlockingClient(made.namesrv) as client:

        def sent() -> bool:
            try:
                client.send(Message(TOPIC, b"first", "A", "k0"))
            except Exception as error:
                print(error, file=sys.stderr)
                return False
            return True

        shared_rig.until(sent, 30, "a first send", made.broker)
    return made


def test_what_was_sent_is_found(java: JavaBroker) -> None:
    """By key, unique id and place, as the Java client's messages are."""
    ours = java.admin("produce", TOPIC, "by command", "--key", "k1", "--tags", "B")[0]
    options = ("--count", 1, "--verbose", "--send-timeout", 20_000)
    theirs = java.rig.peer("produce", "--namesrv", java.namesrv, "--topic", TOPIC, *options)[0]
    java.rig.until(
        lambda: any(
            item["body"] == "by command"
            for item in java.admin("tail", TOPIC, "--since", "earliest", "--no-follow")
        ),
        20,
        "the command's message in a queue",
        java.broker,
    )
    java.rig.until(
        lambda: java.run("message", "show", ours["msg_id"], "-t", TOPIC)[0] == 0,
        20,
        "the command's message in the index",
        java.broker,
    )
    assert java.admin("message", "show", ours["msg_id"], "-t", TOPIC)[0]["body"] == "by command"
    assert java.admin("message", "show", "--key", "k1", "-t", TOPIC)[0]["keys"] == "k1"
    for sent_id, place in (
        (ours["msg_id"], ours["offset_msg_id"]),
        (theirs["msgId"], theirs["offsetMsgId"]),
    ):
        assert java.admin("message", "show", place)[0]["msg_id"] == sent_id
    by_id = ("queryMsgByUniqueKey", "-n", java.namesrv, "-t", TOPIC, "-i", ours["msg_id"])
    shown = java.rig.mqadmin(*by_id)
    assert ours["msg_id"] in shown
    java.admin("message", "show", "--key", "none", "-t", TOPIC, expect=3)
    java.admin("route", "Nowhere", expect=3)
    assert java.admin("route", TOPIC)[0]["rows"][0]["perm"] == "RW"


def test_groups_are_moved(java: JavaBroker) -> None:
    """Lag is what mqadmin says; a reset without consumers sets offsets, and counts for Java's."""
    java.admin("produce", "Moved", "x", "--count", 12, "-q")
    assert len(java.admin("consume", "Moved", "-g", "movers", "--count", 5)) == 5
    assert java.admin("lag", "movers", "-t", "Moved")[0]["lag"] == 7
    progress = java.rig.mqadmin("consumerProgress", "-n", java.namesrv, "-g", "movers")
    assert "Diff Total: 7" in progress
    java.admin("reset-offset", "Moved", "-g", "movers", "--to", "latest", "--yes")
    assert java.admin("lag", "movers", "-t", "Moved")[0]["lag"] == 0
    done = java.admin("reset-offset", "Moved", "-g", "movers", "--to", "earliest", "--yes")[0]
    assert "no consumer" in done["done"]
    again = java.rig.peer(
        "consume", "--namesrv", java.namesrv, "--topic", "Moved", "--group", "movers", "--count", 12
    )
    assert len([line for line in again if "msgId" in line]) >= 12


def test_what_mqadmin_has_beside_the_daily_commands(java: JavaBroker) -> None:
    """A clone counts for Java's consumer, shares and settings are those that mqadmin shows."""
    java.admin("produce", "Cloned", "x", "--count", 9, "-q")
    assert len(java.admin("consume", "Cloned", "-g", "firsts", "--count", 4)) == 4
    plan = java.admin("group", "clone", "firsts", "seconds", "-t", "Cloned", "--dry-run")[0]
    assert sum(row["after"] for row in plan["rows"]) == 4
    java.admin("group", "clone", "firsts", "seconds", "-t", "Cloned", "--yes")
    reader = ("consume", "--namesrv", java.namesrv, "--topic", "Cloned", "--group", "seconds")
    rest = java.rig.peer(*reader, "--count", 5)
    assert len([line for line in rest if "msgId" in line]) == 5
    shares = java.admin("topic", "allocate", "Cloned", "10.0.0.1", "10.0.0.2")[0]["rows"]
    told = java.rig.mqadmin(
        "allocateMQ", "-n", java.namesrv, "-t", "Cloned", "-i", "10.0.0.1,10.0.0.2"
    )
    for share in shares:
        for queue in share["which"].split():
            assert f'"queueId":{queue.rpartition(":")[2]}' in told
    assert java.admin("namesrv", "config", "get", "kvConfigPath")[0]["kvConfigPath"]
    java.admin("namesrv", "config", "set", "orderMessageEnable=true", "--yes")
    shown = java.rig.mqadmin("getNamesrvConfig", "-n", java.namesrv)
    assert re.search(r"orderMessageEnable\s*=\s*true", shown)
    (pinged,) = java.admin("cluster", "ping", "--count", 2, "--send", "Cloned")
    assert [row["kind"] for row in pinged["rows"]] == ["name server", "master", "send"]
    assert java.admin("cluster", "list")[0]["rows"][0]["masters"] == 1
    (written,) = java.admin("cluster", "export")
    assert "Cloned" in {item["topicName"] for item in written["brokers"][0]["topics"]}
    name = written["brokers"][0]["broker"]
    for what in ("files", "queues", "topics"):
        java.admin("broker", "clean", name, what, "--yes")


def test_the_blocking_client(java: JavaBroker) -> None:
    """Batches, compressed bodies, offsets and times."""
    with BlockingClient(java.namesrv) as client:
        first = client.send(Message("Script", b"y" * 9000))
        queue = first.message_queue
        client.send_batch([Message("Script", b"%d" % n) for n in range(4)], queue=queue)
        java.rig.until(
            lambda: client.max_offset(queue) >= first.queue_offset + 5, 30, "the queue", java.broker
        )
        assert [m.body for m in client.messages(queue, 0, 5)] == [
            b"y" * 9000, b"0", b"1", b"2", b"3",
        ]  # fmt: skip
        client.commit("scripts", queue, 3)
        assert client.committed("scripts", queue) == 3
        assert client.search_offset(queue, 1) == 0
        assert client.query_message_by_unique_key("Script", first.msg_id) is not None
