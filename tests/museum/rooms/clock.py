"""A wall clock that is set."""

from __future__ import annotations

import json
import time

from tests.interop.rig import Server
from tests.interop.wire import Wire
from tests.museum.exhibit import Fact, Room
from tests.museum.raw_peers import RawMaster
from tests.museum.sides import SEND_OK, SLAVE, Side, codes, create, readable, send
from tests.museum.stepped_clock import SteppedClock

room = Room("A wall clock that is set")
HOUR = 3600


def kept_offset(server: Server) -> int:
    """The group's offset in the broker's file."""
    try:
        table = json.loads((server.store / "config" / "consumerOffset.json").read_text())
        return int(table["offsetTable"]["T@g"]["0"])
    except (FileNotFoundError, KeyError):
        return -1
    except ValueError:  # Java's keys are no JSON strings, and it may be half written
        text = (server.store / "config" / "consumerOffset.json").read_text()
        return int(text.partition('"T@g":{0:')[2].partition("}")[0] or -1)


@room.exhibit("F2")
def set_back_stops_what_is_periodic(side: Side) -> Fact:
    """The clock is set back: offsets are not written, and brokers do not register."""
    clock = SteppedClock(side.rig)
    master = side.broker()
    create(master, "T")
    send(master, "T", 6)
    with Wire(master.address) as wire:
        wire.create_group("g")
        wire.commit("g", "T", 0, 5)
        side.until(lambda: kept_offset(master) == 5, 30, "the offset is written")
        clock.set(-HOUR)
        time.sleep(1.5)
        wire.commit("g", "T", 0, 6)
    deadline = time.monotonic() + 6
    while kept_offset(master) != 6 and time.monotonic() < deadline:
        time.sleep(0.1)
    seconds = time.monotonic() - deadline + 6
    lost = kept_offset(master) != 6
    after = "not written in" if lost else "written after"
    return Fact(lost, f"{after} {seconds:.1f} s")


@room.exhibit("F2")
def set_back_silences_a_slave(side: Side) -> Fact:
    """A slave's clock is set back: it reports nothing for that time, and its master drops it."""
    clock = SteppedClock(side.rig)
    port = side.rig.ports(1)
    with RawMaster(port) as master:
        side.broker(SLAVE, haMasterAddress=f"127.0.0.1:{port}", haHousekeepingInterval=20000)
        side.until(lambda: master.received >= 8, 20, "the first report")
        master.send(0)
        clock.set(-HOUR)
        time.sleep(1)
        before = master.received
        time.sleep(3)
        reports = (master.received - before) // 8
    return Fact(reports == 0, f"{reports} reports in 3 s, one is due every 0.5 s")


@room.exhibit("F2")
def set_forward_drops_the_slave(side: Side) -> Fact:
    """The clock is set forward by an hour: the slave counts as silent, and no send gets SEND_OK."""
    clock = SteppedClock(side.rig)
    pair = side.pair()
    create(pair.master, "T")
    clock.set(HOUR)
    refused = 0
    for _ in range(30):
        refused += 1 - codes(pair.master, "T", 1)[SEND_OK]
        time.sleep(0.1)
    return Fact(refused > 0, f"{refused} of 30 sends in 3 s without SEND_OK")


@room.exhibit("found while specifying 4.9.7")
def set_back_releases_what_is_delayed(side: Side) -> Fact:
    """The clock is set back: all messages that wait in a delay level are delivered at once."""
    clock = SteppedClock(side.rig)
    master = side.broker("master-async.conf")
    create(master, "T")
    send(master, "T", 10, properties="DELAY\x014")  # 30 s
    time.sleep(1)
    clock.set(-HOUR)
    time.sleep(3)
    early = len(readable(master, "T"))
    return Fact(early > 0, f"{early} of 10 delivered 26 s early")
