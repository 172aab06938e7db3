"""`mqadmin` prints the same against our cluster as against Java's, on the same history."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rig import Rig

TOPIC, GROUP = "Adm", "g-adm"


def history(rig: Rig, name: str, java: bool) -> Any:
    """One name server and one master that have seen the same clients."""
    namesrv = rig.namesrv(java=java, name=f"ns-{name}")
    master = rig.broker("master-async.conf", name, java=java, namesrv=namesrv)
    rig.mqadmin("updateTopic", "-n", namesrv, "-b", master.address, "-t", TOPIC, "-r", 4, "-w", 4)
    rig.mqadmin("updateSubGroup", "-n", namesrv, "-b", master.address, "-g", GROUP, "-r", 5)
    lines = []
    for queue in range(4):
        lines += rig.peer(
            "produce", "--namesrv", namesrv, "--topic", TOPIC, "--count", 5, "--queue", queue,
            "--keys", f"q{queue}", "--tags", "T", "--verbose",
        )  # fmt: skip
    rig.peer(
        "consume", "--namesrv", namesrv, "--topic", TOPIC, "--group", GROUP, "--count", 20,
        "--linger", 6,
    )  # fmt: skip
    sent = [line for line in lines if "offsetMsgId" in line]
    return SimpleNamespace(ns=namesrv, broker=master, sent=sent)


@pytest.fixture(scope="module")
def both(shared_rig: Rig) -> Iterator[Any]:
    """Ours and Java's, with the same history."""
    ours = history(shared_rig, "ours", java=False)
    theirs = history(shared_rig, "theirs", java=True)
    return SimpleNamespace(rig=shared_rig, ours=ours, theirs=theirs)


def masked(text: str, side: Any) -> list[str]:
    """Without what differs between any two runs: addresses, times, ids, rates."""
    text = text.replace(side.broker.address, "BROKER").replace(side.ns, "NAMESRV")
    text = re.sub(r"\b[0-9A-F]{32,56}\b", "ID", text)
    text = re.sub(r"127\.0\.0\.1[:@][0-9#@]+", "CLIENT", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,]\d+)?", "TIME", text)
    text = re.sub(r"\b\d{13}\b", "MILLIS", text)
    text = re.sub(r"\d+\.\d+", "REAL", text)
    text = re.sub(r"\b\d+ms\b", "MS", text)
    return sorted(re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip())


def command(side: Any, *arguments: Any) -> list[str]:
    return [
        {"NS": side.ns, "BROKER": side.broker.address, "ID": side.sent[7]["offsetMsgId"],
         "UNIQ": side.sent[7]["msgId"]}.get(str(a), str(a))
        for a in arguments
    ]  # fmt: skip


COMMANDS = [
    ("clusterList", "-n", "NS"),
    ("clusterList", "-n", "NS", "-m"),
    ("topicList", "-n", "NS"),
    ("topicRoute", "-n", "NS", "-t", TOPIC),
    ("topicStatus", "-n", "NS", "-t", TOPIC),
    ("updateTopic", "-n", "NS", "-b", "BROKER", "-t", "New", "-r", "3", "-w", "3"),
    ("topicRoute", "-n", "NS", "-t", "New"),
    ("updateSubGroup", "-n", "NS", "-b", "BROKER", "-g", "g-new", "-r", "7"),
    ("consumerProgress", "-n", "NS", "-g", GROUP),
    ("queryMsgById", "-n", "NS", "-i", "ID"),
    ("queryMsgByKey", "-n", "NS", "-t", TOPIC, "-k", "q1-2"),
    ("queryMsgByUniqueKey", "-n", "NS", "-t", TOPIC, "-i", "UNIQ"),
    ("sendMessage", "-n", "NS", "-t", TOPIC, "-p", "hello", "-b", "broker-a", "-i", "2"),
    ("cleanExpiredCQ", "-n", "NS", "-b", "BROKER"),
    ("cleanUnusedTopic", "-n", "NS", "-b", "BROKER"),
    ("deleteExpiredCommitLog", "-n", "NS", "-b", "BROKER"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: "-".join((a[0], *a[3:5])))
def test_same_output(both: Any, arguments: tuple[str, ...]) -> None:
    """Line by line the same, after masking what differs between any two runs."""
    ours = both.rig.mqadmin(*command(both.ours, *arguments))
    theirs = both.rig.mqadmin(*command(both.theirs, *arguments))
    assert masked(ours, both.ours) == masked(theirs, both.theirs)


def test_broker_status(both: Any) -> None:
    """Every runtime key of the Java broker, in its format."""

    def shape(side: Any) -> dict[str, str]:
        text = both.rig.mqadmin("brokerStatus", "-n", side.ns, "-b", side.broker.address)
        pairs = [line.partition(":") for line in text.splitlines() if ":" in line]
        table = {re.sub(r"_/.*", "_PATH", key.strip()): value for key, _, value in pairs}
        return {
            key: re.sub(r"\d+(\.\d+)?", "0", value).strip()
            for key, value in table.items()
            if not key.startswith("scheduleMessageOffset")
        }

    ours, theirs = shape(both.ours), shape(both.theirs)
    assert set(theirs) <= set(ours)
    rates = {key for key in theirs if "Tps" in key}
    different = {
        key: (ours[key], theirs[key])
        for key in theirs
        if ours[key] != theirs[key] and key not in rates and not key.startswith("put")
    }
    assert not different, json.dumps(different, indent=1)
