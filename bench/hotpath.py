"""Where a master's processor time goes on the send path, in one process without sockets.

    python bench/hotpath.py [--chunk 64] [--messages 200000] [--profile]

Feeds chunks of SEND_MESSAGE_V2 frames to a real broker (real files, ASYNC_MASTER, no slave) through
its own protocol, and prints microseconds of processor time a message.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
import time
from random import Random
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from rmq_ha.broker.controller import BrokerController
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.host.disk import RealDisk
from rmq_ha.host.real import now_ms
from rmq_ha.seams import Host
from rmq_ha.testing.network import SimNetwork
from rmq_ha.wire.command import RemotingCommand
from rmq_ha.wire.frame import encode_frame


class Later:
    """A timer that never fires."""

    def __init__(self, when: float) -> None:
        self._when = when

    def getTime(self) -> float:
        return self._when

    def cancel(self) -> None:
        pass

    def active(self) -> bool:
        return True


@implementer(IReactorTime)
class Turns:
    """Only what is due in the next turn ever happens."""

    def __init__(self) -> None:
        self._next: list[Any] = []

    def seconds(self) -> float:
        return time.monotonic()

    def callLater(self, delay: float, function: Any, *args: Any) -> Later:
        if delay == 0:
            self._next.append((function, args))
        return Later(time.monotonic() + delay)

    def turn(self) -> None:
        calls, self._next = self._next, []
        for function, args in calls:
            function(*args)


class AtOnce:
    """A worker without threads; nothing is synced while measuring."""

    def call(self, function: Any, *args: Any) -> Any:
        from twisted.internet.defer import execute

        return execute(function, *args)


def frame(opaque: int, number: int) -> bytes:
    properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true"
    ext = dict(
        zip("abcdefghijkmn", ("load", "load", "TBW102", "8", str(number % 8), "0", "1700000000000",
                              "0", properties, "0", "false", "false", "broker-a"), strict=True)
    )  # fmt: skip
    return encode_frame(RemotingCommand(310, ext, b"x" * 1024, opaque=opaque))


class Sink(StringTransport):
    def write(self, data: bytes) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunk", type=int, default=64, help="messages in one read")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--profile", action="store_true", help="functions by own time")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="rmqha-hotpath-")
    try:
        measure(options, directory)
    finally:
        shutil.rmtree(directory)


def measure(options: argparse.Namespace, directory: str) -> None:
    clock = Turns()
    host = Host(clock, now_ms, SimNetwork.__new__(SimNetwork), RealDisk(), AtOnce(), Random(1))
    configuration = BrokerConfiguration()
    configuration.broker.broker_name = "broker-a"
    configuration.broker.broker_ip1 = configuration.broker.broker_ip2 = "127.0.0.1"
    configuration.server.listen_port = 10911
    configuration.store.store_path_root_dir = directory
    broker = BrokerController(host, configuration)
    store = broker.store
    store.attach_replication(None)
    store.load()
    store.start()
    clock.turn()
    protocol = broker.main_server.build_protocol()
    protocol.makeConnection(Sink())
    protocol.dataReceived(frame(0, 0))
    chunks = [
        b"".join(frame(n, n) for n in range(start, start + options.chunk))
        for start in range(0, 64 * options.chunk, options.chunk)
    ]
    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    sent, began = 0, time.process_time()
    while sent < options.messages:
        protocol.dataReceived(chunks[sent // options.chunk % len(chunks)])
        clock.turn()
        sent += options.chunk
    took = time.process_time() - began
    print(f"{took / sent * 1e6:.2f} us of processor time a message, chunks of {options.chunk}")
    assert store.dispatcher.behind == 0
    if options.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(32)


if __name__ == "__main__":
    main()
