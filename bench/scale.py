"""What many idle connections and many topics cost: ours beside the Java broker.

    python bench/scale.py [--parts connections,topics] [--connections 10000] [--topics 1000]

Prints a table with ratios. Needs the peer rig (`../shared/peer`, or RMQ_HA_PEER) with Java. Each
connection has sent one heartbeat as a producer, in groups of a hundred. Each topic has 8 queues,
and one message in each.
"""

from __future__ import annotations

import argparse
import resource
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from measure import (
    MEBIBYTE,
    SIDES,
    Figures,
    Window,
    conf,
    part_names,
    run_parts,
    scratch,
    server_process,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import send_request
from tests.interop.rig import Rig, Server, missing, rig_in
from tests.interop.wire import Wire

SPARE_DESCRIPTORS = 500
QUEUES = 8
PARTS = ("connections", "topics")
START_S = STOP_S = 180
"""Java takes more than half a minute for either with 8,000 queues."""
WINDOW = 200
"""Requests that are sent before their answers are read."""


def allow_descriptors(count: int) -> int:
    """Raise this process's limit, which servers started from here inherit; how many will do."""
    wanted = count + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    possible = min(count, soft - SPARE_DESCRIPTORS)
    if possible < count:
        print(
            f"scale: only {possible} connections instead of {count}: the hard limit of open files "
            f"is {hard}; raise it with `ulimit -Hn {wanted}` as root, or in limits.conf",
            file=sys.stderr,
        )
    return possible


class Rest:
    """Processor time and memory of a server over some seconds in which nobody asks for anything."""

    def __init__(self, server: Server, seconds: float) -> None:
        time.sleep(2)
        with Window({"server": server}) as window:
            time.sleep(seconds)
        self.percent = window.cpu["server"] / seconds * 100
        info = window.memory["server"]
        self.mebibytes = info.rss / MEBIBYTE
        self.private = (info.rss - info.shared) / MEBIBYTE


# ---------------------------------------------------------------- connections


def heartbeat(number: int) -> bytes:
    """Of a client that only produces."""
    body = fastjson.encode(
        {
            "clientID": f"127.0.0.1@{number}",
            "producerDataSet": [{"groupName": f"producers-{number // 100}"}],
            "consumerDataSet": [],
        }
    )
    return encode_frame(RemotingCommand(RequestCode.HEART_BEAT, {}, body, opaque=number))


def connect_all(server: Server, count: int) -> list[socket.socket]:
    """Connections, each after its heartbeat was answered."""
    host, _, port = server.address.rpartition(":")
    connections = []
    for number in range(count):
        connection = socket.create_connection((host, int(port)), 10)
        connection.sendall(heartbeat(number))
        connections.append(connection)
        if len(connections) % WINDOW == 0:
            for waiting in connections[-WINDOW:]:
                answer(waiting)
    for waiting in connections[len(connections) // WINDOW * WINDOW :]:
        answer(waiting)
    return connections


def answer(connection: socket.socket) -> None:
    reader = FrameReader()
    while not reader.receive_data(connection.recv(65536) or b"\0\0\0\0\0"):
        pass


def connections_part(
    figures: Figures, sides: list[str], work: Path, count: int, seconds: float
) -> None:
    """Idle connections."""
    names = (
        f"{count:,} connections and heartbeats, to make them",
        "memory of 1,000 idle connections",
        "idle processor time without connections",
        f"idle processor time with {count:,}",
        "the same of 1,000",
        "a request among them, median",
    )
    units = ("s", "MiB", "% of one", "% of one", "% of one", "ms")
    for side in sides:
        with Window() as window, scratch(work) as directory, rig_in(directory) as rig:
            server = rig.broker(
                conf(directory, "master-async.conf"), "m", java=side == "java", heap="1g"
            )
            empty = Rest(server, seconds)
            began = time.monotonic()
            connections = connect_all(server, count)
            took = time.monotonic() - began
            full = Rest(server, seconds)
            measured = (
                took,
                (full.private - empty.private) / count * 1000,
                empty.percent,
                full.percent,
                max(full.percent - empty.percent, 0.0) / count * 1000,
                median_request_ms(server),
            )
            for connection in connections:
                connection.close()
        for name, unit, value in zip(names, units, measured, strict=True):
            figures.add(name, unit, side, value, window.others)


def median_request_ms(server: Server, count: int = 200) -> float:
    """GET_MAX_OFFSET, one after the other."""
    times = []
    with Wire(server.address) as wire:
        for _ in range(count):
            began = time.perf_counter()
            wire.call(RequestCode.GET_MAX_OFFSET, topic="TBW102", queueId=0)
            times.append(time.perf_counter() - began)
    return sorted(times)[count // 2] * 1000


# ---------------------------------------------------------------- topics


class Registrar(socketserver.ThreadingTCPServer):
    """A name server that agrees to everything and measures what it is sent."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Registration)
        self.sizes: list[int] = []
        self.version: bytes | None = None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Registration(socketserver.BaseRequestHandler):
    server: Registrar

    def handle(self) -> None:
        reader = FrameReader()
        while data := self.request.recv(1 << 18):
            for frame in reader.receive_data(data):
                self._answer(decode_frame(*frame))

    def _answer(self, request: RemotingCommand) -> None:
        body = None
        if request.code == RequestCode.REGISTER_BROKER:
            self.server.sizes.append(len(request.body or b""))
            table = fastjson.parse(request.body or b"{}")["topicConfigSerializeWrapper"]
            self.server.version = fastjson.encode(table["dataVersion"])
        elif request.code == RequestCode.QUERY_DATA_VERSION:
            body = self.server.version
        if request.is_oneway:
            return
        response = request.response(ext={"changed": "false"}, body=body)
        self.request.sendall(encode_frame(response))


def fill_queues(address: str, topics: list[str], queues: int = QUEUES) -> None:
    """One message into every queue."""
    with Wire(address, timeout=60) as wire:
        requests = [
            send_request("p", topic, queue, b"x" * 100, "", 1)
            for topic in topics
            for queue in range(queues)
        ]
        for start in range(0, len(requests), WINDOW):
            wire.exchange(requests[start : start + WINDOW])


def topics_part(figures: Figures, sides: list[str], work: Path, count: int, seconds: float) -> None:
    """Topics with a message in each of their queues."""
    names = (
        f"{count:,} topics x {QUEUES} queues, to create them",
        "the largest registration",
        "all registrations while they were created",
        f"a message into each of {count * QUEUES:,} queues",
        "memory (RSS) of them",
        "private memory of them",
        "open files for them",
        "idle processor time with them",
        "a clean stop with them",
        "start to first answer with them, clean stop",
        "start to first answer with them, kill -9",
    )
    units = ("s", "KiB", "MiB", "s", "MiB", "MiB", "files", "% of one", "s", "s", "s")
    for side in sides:
        registrar = Registrar()
        with Window() as window, scratch(work) as directory, rig_in(directory) as rig:
            measured = topics_of(rig, side == "java", directory, registrar, count, seconds)
        registrar.shutdown()
        for name, unit, value in zip(names, units, measured, strict=True):
            figures.add(name, unit, side, value, window.others)


def topics_of(
    rig: Rig, java: bool, directory: Path, registrar: Registrar, count: int, seconds: float
) -> tuple[float, ...]:
    """The figures of one side, in the order of the rows."""
    settings = conf(directory, "master-async.conf")

    def start() -> Server:
        made = rig.broker(
            settings, "m", java=java, namesrv=registrar.address, heap="1g", wait=False
        )
        rig.until(lambda: "READY {" in made.output.read_text(), START_S, "ready", made)
        return made

    server = start()
    empty = Rest(server, 1)
    files = open_files(server)
    topics = [f"scale-topic-{number:06}" for number in range(count)]
    registrar.sizes.clear()
    began = time.monotonic()
    with Wire(server.address, timeout=60) as wire:
        for topic in topics:
            wire.create_topic(topic, QUEUES)
    created = time.monotonic() - began
    sizes = registrar.sizes[:]
    began = time.monotonic()
    fill_queues(server.address, topics)
    filled = time.monotonic() - began
    full = Rest(server, seconds)
    more_files = open_files(server) - files
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(STOP_S)
    stopped = time.monotonic() - began
    began = time.monotonic()
    server = start()
    clean = answered(server, began)
    time.sleep(2)
    server.kill()
    began = time.monotonic()
    server = start()
    killed = answered(server, began)
    return (
        created,
        max(sizes) / 1024,
        sum(sizes) / MEBIBYTE,
        filled,
        full.mebibytes - empty.mebibytes,
        full.private - empty.private,
        float(max(more_files, 0)),
        full.percent,
        stopped,
        clean,
        killed,
    )


def answered(server: Server, began: float) -> float:
    """Seconds until the last queue can be asked for its end."""
    with Wire(server.address, timeout=60) as wire:
        wire.call(RequestCode.GET_MAX_OFFSET, topic="scale-topic-000000", queueId=0)
    return time.monotonic() - began


def open_files(server: Server) -> int:
    """Descriptors, and mapped files, of which Java's have no descriptor any more."""
    process = server_process(server)
    mapped = {item.path for item in process.memory_maps() if "/store/" in item.path}
    return process.num_fds() + len(mapped)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=part_names(PARTS), default=",".join(PARTS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=15, help="measured at rest")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scale.md")
    options = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(f"scale: {reason}")
    figures = Figures()
    sides = options.sides.split(",")
    chosen: dict[str, Any] = {
        "connections": lambda: connections_part(
            figures, sides, options.work, allow_descriptors(options.connections), options.seconds
        ),
        "topics": lambda: topics_part(
            figures, sides, options.work, options.topics, options.seconds
        ),
    }
    run_parts(chosen, options.parts, figures, options.out)


if __name__ == "__main__":
    main()
