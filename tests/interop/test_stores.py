"""A store is opened in turn by our broker and by Java's, after clean stops and kills under load."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.rig import Rig, Server
from tests.interop.wire import Load, Sent, Wire, unique_id, what_is_wrong

TOPIC = "S"
SIZES = (100, 3000, 20000)


def loads(server: Server, turn: int) -> list[Load]:
    """Messages with keys and tags, of several sizes, so that files roll over."""
    return [
        Load(
            server.address, f"{TOPIC}{size}", f"t{turn}-{size}", size=size, connections=1, rate=700
        )
        for size in SIZES
    ]


def assert_whole(server: Server, size: int, sent: list[Sent]) -> None:
    """Every message can be pulled as it was sent, and found by key, unique key and id."""
    if not sent:
        return
    reader = Load(server.address, f"{TOPIC}{size}", "", size=size)
    assert what_is_wrong(server.address, reader, sent) == ""
    with Wire(server.address) as wire:
        for one in (sent[0], sent[len(sent) // 2], sent[-1]):
            for key in (one.serial, unique_id(one.serial)):
                found = {record.physical_offset for record in wire.query(reader.topic, key)}
                assert found == {one.physical_offset}, (key, one)
            assert one.serial.encode() in wire.view(one.physical_offset)


@pytest.mark.parametrize("killed", [False, True], ids=["clean", "killed"])
def test_store_changes_hands(rig: Rig, killed: bool) -> None:
    """
    Ours writes, Java opens and writes, ours opens and writes, Java opens and writes, ours opens:
    nothing that was answered is lost, though it is killed under load.
    """
    # Without messageIndexSafe a crash costs keys: recovery does not go back as far as the index.
    settings: dict[str, Any] = {"messageIndexSafe": True, "port": None}
    stored: dict[int, list[Sent]] = {size: [] for size in SIZES}
    for turn, java in enumerate((False, True, False, True, False)):
        server = rig.broker("master-async.conf", "m", java=java, **settings)
        settings["port"] = int(server.address.rpartition(":")[2])
        with Wire(server.address) as wire:
            for size in SIZES:
                wire.create_topic(f"{TOPIC}{size}")
        for size in SIZES:
            assert_whole(server, size, stored[size])
        under_load = loads(server, turn)
        for load in under_load:
            load.__enter__()
        rig.until(
            lambda loads=under_load: all(len(load.accepted) >= 150 for load in loads),
            30,
            "messages of every size",
            server,
        )
        if killed:
            server.kill()
        for load in under_load:
            load.stop()
        for size, load in zip(SIZES, under_load, strict=True):
            assert set(load.codes) == {0}, load.codes
            stored[size] += load.stored
        if not killed:
            assert server.stop() in (0, 143)
            assert not (server.store / "abort").exists()
