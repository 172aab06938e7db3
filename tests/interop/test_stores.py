"""A store is opened in turn by our broker and by Java's, after clean stops and kills."""

from __future__ import annotations

from typing import Any

import pytest

from rig import Rig, Server

TOPIC = "S"


def fill(rig: Rig, namesrv: str, start: int, count: int) -> None:
    """Messages with keys and tags, of several sizes, so that files roll over."""
    for size in (100, 3000, 20000):
        rig.peer(
            "produce", "--namesrv", namesrv, "--topic", TOPIC, "--count", count, "--size", size,
            "--keys", f"k{size}", "--tags", "A,B", "--start", start, "--mode", "async",
            "--inflight", 8,
        )  # fmt: skip


def assert_whole(rig: Rig, namesrv: str, server: Server, count: int) -> None:
    """Every message can be pulled (CRC checked) and found by key, and the queues have no gap."""
    pulled = rig.peer(
        "load", "pull", "--addr", server.address, "--topic", TOPIC, "--queues", "0-3", "--verify",
        "--expect", count,
    )[-1]  # fmt: skip
    assert pulled["messages"] == count, pulled
    for key in ("k100-3", f"k3000-{count // 3 - 1}", f"k20000-{count // 3 - 1}"):
        rig.peer("query", "--namesrv", namesrv, "--topic", TOPIC, "--key", key, "--expect", 1)


@pytest.mark.parametrize("killed", [False, True], ids=["clean", "killed"])
def test_store_changes_hands(rig: Rig, killed: bool) -> None:
    """Ours writes, Java opens and writes, ours opens and writes, Java opens: nothing is lost."""
    namesrv = rig.namesrv()
    port: int | None = None
    written = 0
    for java in (False, True, False, True):
        settings: dict[str, Any] = {"java": java, "namesrv": namesrv, "port": port}
        server = rig.broker("master-async.conf", "m", **settings)
        port = int(server.address.rpartition(":")[2])
        if written:
            assert_whole(rig, namesrv, server, written)
        fill(rig, namesrv, written // 3, 60)
        written += 180
        assert_whole(rig, namesrv, server, written)
        if killed:
            server.kill()
        else:
            assert server.stop() in (0, 143)
            assert not (server.store / "abort").exists()
