"""Connections, addresses and restarts."""

from __future__ import annotations

import re
import socket
import time

import psutil

from rmq_ha.base.wire.codes import RequestCode
from tests.interop.rig import Server
from tests.interop.wire import Refused, Wire
from tests.museum.exhibit import Fact, Room
from tests.museum.raw_peers import RawMaster
from tests.museum.sides import (
    FLUSH_SLAVE_TIMEOUT,
    SEND_OK,
    SLAVE,
    SLAVE_NOT_AVAILABLE,
    Side,
    codes,
    create,
    ends_by_itself,
    lines_with,
    port_of,
    send,
)

room = Room("Connections, addresses and restarts")
PARTS = 3
"""How much longer than allowed a peer may take to notice a silence."""
STORED = {SEND_OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE}


@room.exhibit("A11: RMQ#2456, RMQ#2351, RMQ#2142, RMQ#1278, RMQ#5579")
def not_available_and_no_word_on_why(side: Side) -> Fact:
    """Every send is answered SLAVE_NOT_AVAILABLE, and the broker does not say why."""
    master = side.broker(**side.metered())
    create(master, "T")
    (answer,) = send(master, "T", 1)
    told = [answer.remark or "", side.page(master, "healthz").strip()]
    told += lines_with(side.log_of(master), r"(?i)no slave|slave is not|slave not available")
    told = [text for text in told if "slave" in text]
    return Fact(not told, f"code {answer.code}; {told[0][:100] if told else 'not a word'}")


@room.exhibit("A12: ali#246")
def blocked_port_and_a_silent_log(side: Side) -> Fact:
    """The HA port cannot be reached, and the slave's log does not say so."""
    port = side.rig.ports(1)
    slave = side.broker(SLAVE, haMasterAddress=f"127.0.0.1:{port}")
    time.sleep(7)
    lines = lines_with(side.log_of(slave), rf"\b{port}\b.*(?i:refused|cannot|fail)")
    return Fact(not lines, f"{len(lines)} lines with the address and why, in 7 s")


@room.exhibit("A15: RMQ#2230", quick_java=True)
def ports_that_collide(side: Side) -> Fact:
    """Two brokers on one host need the same listenPort + 1: no start, and no port in the error."""
    base = side.rig.ports(4)
    with socket.create_server(("127.0.0.1", base + 3)):
        server = side.broker(port=base + 2, wait=False)
        code = ends_by_itself(server, 20)
    text = server.output.read_text() + side.log_of(server)
    named = bool(lines_with(text, rf"(?i)\b{base + 3}\b.*in use|in use.*\b{base + 3}\b"))
    told = "named" if named else "not named"
    return Fact(not named, f"exit code {code}, the port is {told}")


@room.exhibit("A26: RMQ#1082, RMQ#1118, RMQ#1083")
def idle_pair_parts(side: Side) -> Fact:
    """An idle pair disconnects after every haHousekeepingInterval."""
    pair = side.pair(haHousekeepingInterval=2000)
    ha_port = port_of(pair.master) + 1
    before = connections(pair.slave, ha_port)
    seen = set(before)
    for _ in range(35):
        time.sleep(0.2)
        seen |= connections(pair.slave, ha_port)
    return Fact(len(seen) > 1, f"{len(seen)} connections in 7 idle seconds; 2 s of silence allowed")


def connections(server: Server, port: int) -> set[int]:
    """Own ports of a process's connections to a port."""
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return {one.laddr.port for one in found if one.raddr and one.raddr.port == port}


@room.exhibit("A26, A28: RMQ#1083, RMQ#3482")
def silent_master_is_not_noticed(side: Side) -> Fact:
    """A master hangs, or its cable is cut: its slave waits on that connection for ever."""
    port = side.rig.ports(1)
    with RawMaster(port) as master:
        side.broker(SLAVE, haMasterAddress=f"127.0.0.1:{port}", haHousekeepingInterval=2000)
        side.until(lambda: master.connections, 20, "the slave connects")
        began = time.monotonic()
        while not master.lost and time.monotonic() < began + 2 * PARTS:
            time.sleep(0.05)
        seconds = time.monotonic() - began
        told = f"left after {seconds:.1f} s" if master.lost else f"not left in {seconds:.0f} s"
        return Fact(not master.lost, f"{told}; 2 s of silence are allowed")


@room.exhibit("N3")
def no_replica_after_a_restart(side: Side) -> Fact:
    """After a restart nothing is replicated for 5 to 7 s, and no send is answered SEND_OK."""
    pair = side.pair()
    create(pair.master, "T")
    pair.slave.kill()
    pair.restart_slave()
    after_slave = side.until(lambda: codes(pair.master, "T", 1)[SEND_OK], 30, "SEND_OK")
    pair.master.kill()
    time.sleep(1)
    pair.restart_master()
    after_master = side.until(lambda: codes(pair.master, "T", 1)[SEND_OK], 30, "SEND_OK")
    seen = f"{after_slave:.1f} s after a slave's start, {after_master:.1f} s after a master's"
    return Fact(max(after_slave, after_master) > 2.5, seen)


def masters_in_route(namesrv: str, topic: str) -> list[str]:
    """Addresses of masters that clients are told."""
    try:
        with Wire(namesrv) as wire:
            body = wire.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic).body or b""
    except Refused:
        return []
    return re.findall(r'"?0"?:"([\d.:]+)"', body.decode())


@room.exhibit("D2")
def start_that_fails_takes_a_master_away(side: Side) -> Fact:
    """A broker whose port is taken cannot start, and removes the running one from the routes."""
    namesrv = side.namesrv()
    master = side.broker(namesrv=namesrv)
    create(master, "T")
    side.until(lambda: masters_in_route(namesrv, "T"), 20, "the route")
    second = side.broker(namesrv=namesrv, port=port_of(master), wait=False)
    code = ends_by_itself(second, 30)
    time.sleep(0.5)
    found = masters_in_route(namesrv, "T")
    return Fact(not found, f"exit code {code}; {len(found)} masters in the route after it")


@room.exhibit("found in trials of 4.9.7")
def old_master_takes_the_name_again(side: Side) -> Fact:
    """The old master restarts after a fail-over: clients are sent to it, and get SEND_OK."""
    namesrv = side.namesrv()
    old = side.broker(namesrv=namesrv)
    create(old, "T")
    old.kill()
    promoted = side.broker(namesrv=namesrv)
    create(promoted, "T")
    side.until(lambda: masters_in_route(namesrv, "T") == [promoted.address], 20, "the route")
    side.again(old)
    deadline = time.monotonic() + 1
    while (found := masters_in_route(namesrv, "T")) != [old.address]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    taken = len(STORED & set(codes(old, "T", 1)))
    place = "old" if old.address in found else "promoted"
    seen = f"the route names the {place} master; the old one takes {taken} of 1 message"
    return Fact(place == "old" or taken > 0, seen)


@room.exhibit("A28: RMQ#95, RMQ#1164, RMQ#3482")
def slave_does_not_serve_a_dead_masters_queues(side: Side) -> Fact:
    """After a master's crash it takes seconds to minutes until clients read from its slave."""
    pair = side.pair()
    create(pair.master, "T")
    send(pair.master, "T", 20)
    pair.copy_tables()
    pair.wait_same()
    pair.master.kill()
    began = time.monotonic()
    with Wire(pair.slave.address) as wire:
        found = len(wire.pull_all("T", 0))
    seconds = time.monotonic() - began
    return Fact(found < 20 or seconds > 2, f"{found} of 20 read {seconds:.2f} s after the crash")
