"""Where processor time goes on the hot paths, in one process without sockets.

    python bench/hotpath.py [--part send|pair|pull|walk|catchup] [--chunk 64] [--messages 20000]
                            [--queues 8] [--profile | --calls]

`send`: frames of SEND_MESSAGE_V2 into a broker alone (ASYNC_MASTER). `pair`: into a SYNC_MASTER
with a slave, each counted for itself; both with so many queues, used in turn. `pull`: pulls of 32
from 8 interleaved queues. `walk`: a start that reads and dispatches the log again. `catchup`: a
slave that begins with nothing, until its queues and its index have all messages; it gets the log in
reads of 256 KiB. The brokers are whole, their files real.

Microseconds of processor time a message by default; `--calls` counts Python calls, C calls, and
what becomes a system call, exactly: nothing else on the machine changes it, so
tests/unit/test_call_budget.py holds us to it.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.server.broker.broker import Broker
from rmq_ha.testing.worker import AtOnce

TURN_SECONDS = 0.0002
MESSAGE_SECONDS = 0.00002
"""
That pass on the harness's clock with each turn, or for each message in it: nothing depends on how
long one took. So one send at a time comes 5,000 times a second, and what gathers for a ms gathers
five.
"""
SOON_SECONDS = 0.006
PULL_SIZE = 32
QUEUES = 8
OPEN_FILES = 16_384
"""As a broker has with 65,536 descriptors."""
HA_PORT = 10912
READ_SIZE = 1 << 18
"""Of a slave, in bytes."""


class Later:
    """A timer."""

    def __init__(self, when: float) -> None:
        self._when = when
        self._is_active = True

    def getTime(self) -> float:
        return self._when

    def cancel(self) -> None:
        self._is_active = False

    def active(self) -> bool:
        return self._is_active


@implementer(IReactorTime)
class Turns:
    """Only what is due in the next turn, or within `SOON_SECONDS`, ever happens."""

    def __init__(self) -> None:
        self.turn_seconds = TURN_SECONDS
        self._next: list[Any] = []
        self._hooks: list[Any] = []
        self.soon = self._hooks.append
        self._soon: list[Any] = []
        self.now = 1000.0

    def seconds(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)

    def callLater(self, delay: float, function: Any, *args: Any) -> Later:
        later = Later(self.now + delay)
        if delay == 0:
            self._next.append((later, function, args))
        elif delay <= SOON_SECONDS:
            self._soon.append((later, function, args))
        return later

    def turn(self) -> bool:
        self.now += self.turn_seconds
        calls, self._next = self._next, []
        for call in self._soon[:]:
            if call[0].getTime() <= self.now:
                self._soon.remove(call)
                calls.append(call)
        for later, function, args in calls:
            if later.active():
                later.cancel()
                function(*args)
        hooks = self._hooks[:]
        self._hooks.clear()
        for function in hooks:
            function()
        return bool(self._next or self._hooks)


class End(StringTransport):
    """One end of a connection: what is written waits until the other end takes it."""

    def __init__(self, port: int) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", "127.0.0.1", port))
        self.out: list[bytes] = []
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.out.append(data)

    def take(self) -> bytes:
        data = b"".join(self.out)
        self.out.clear()
        return data


class Wires:
    """A network of one listener and one that connects to it: replication."""

    def __init__(self) -> None:
        self._factory: Any = None
        self.master: Any = None
        self.slave: Any = None

    def server(self, port: int, interface: str = "") -> Wires:
        return self

    def client(self, host: str, port: int, timeout: float = 3.0) -> Wires:
        return self

    def listen(self, factory: Any) -> Any:
        if self._factory is None:
            self._factory = factory
        return succeed(self)

    def getHost(self) -> Any:
        return IPv4Address("TCP", "127.0.0.1", HA_PORT)

    def connect(self, factory: Any) -> Any:
        self.master = self._factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40000))
        self.slave = factory.buildProtocol(None)
        self.master.makeConnection(End(40000))
        self.slave.makeConnection(End(HA_PORT))
        return succeed(self.slave)


@dataclass
class Counts:
    """Of one message: exact, the same in each run."""

    python: float
    c: float
    system: float

    def __str__(self) -> str:
        return (
            f"{self.python:.1f} Python calls, {self.c:.1f} C calls, {self.system:.2f} system calls"
        )


class Machine:
    """A whole broker, its turns, and what they take."""

    def __init__(
        self,
        directory: str,
        wires: Wires,
        role: BrokerRole,
        configure: Callable[[BrokerConfiguration], object] = lambda configuration: None,
    ) -> None:
        """
        :param configure: changes settings before the broker is made.
        """
        self.clock = Turns()
        host = Host(self.clock, self.clock.now_ms, wires, RealDisk(), AtOnce(), Random(1),
                    open_files=OPEN_FILES, soon=self.clock.soon)  # type: ignore[arg-type]  # fmt: skip
        configuration = BrokerConfiguration()
        configuration.broker.broker_name = "broker-a"
        configuration.broker.broker_ip1 = configuration.broker.broker_ip2 = "127.0.0.1"
        configuration.server.listen_port = 10911
        configuration.store.ha_master_address = f"127.0.0.1:{HA_PORT}"
        configuration.store.store_path_root_dir = directory
        configuration.store.store_path_commit_log = f"{directory}/commitlog"
        configuration.store.broker_role = role
        configuration.store.max_hash_slot_num = 500_000
        configure(configuration)
        self.profile = cProfile.Profile()
        self.is_profiled = False
        self.took = 0.0
        self.ends: list[End] = []
        self.turns = self.chunks = 0
        self.broker = Broker(host, configuration)
        self.store = self.broker.store
        if role is BrokerRole.ASYNC_MASTER:
            self.broker.journal.replicated_by(None)  # type: ignore[attr-defined]
        self.store.load()
        self.store.start()
        self.settle()

    def connect(self) -> Any:
        protocol = self.broker.main_server.build_protocol()
        end = End(40001)
        self.ends.append(end)
        protocol.makeConnection(end)  # type: ignore[arg-type]
        return protocol

    def settle(self) -> None:
        while self.clock.turn():
            pass

    def step(self, *received: tuple[Any, bytes]) -> None:
        """A turn in which connections get their bytes, and those that what they did asks for."""
        if self.is_profiled:
            self.profile.enable()
        began = time.process_time()
        for protocol, data in received:
            if data:
                self.chunks += 1
                protocol.dataReceived(data)
        self.turns += 1
        while self.clock.turn():
            self.turns += 1
        self.took += time.process_time() - began
        if self.is_profiled:
            self.profile.disable()

    def begin(self, is_profiled: bool) -> None:
        self.is_profiled = is_profiled
        self.took = 0.0
        self.turns = self.chunks = 0
        for end in self.ends:
            end.writes = 0

    def counts(self, messages: int) -> Counts:
        """Files' calls, bytes that come and go, and a wait for each turn."""
        python = c = files = own = 0
        for entry in self.profile.getstats():  # pstats takes all named tuples for one function
            code: Any = entry.code
            if isinstance(code, str):
                c += entry.callcount
                files += entry.callcount if "posix." in code else 0
            elif code.co_filename != __file__:
                python += entry.callcount
            else:
                python += entry.callcount if code.co_name in ("seconds", "now_ms") else 0
                inner = entry.calls or ()
                own += sum(call.callcount for call in inner if isinstance(call.code, str))
        writes = sum(end.writes for end in self.ends)
        system = files + writes + self.chunks + self.turns
        return Counts(python / messages, (c - own) / messages, system / messages)


def send_frame(opaque: int, number: int, queues: int = QUEUES) -> bytes:
    """What the Java client sends for a message of 1 KiB without keys and tags."""
    properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true"
    ext = dict(
        zip("abcdefghijkmn", ("load", "load", "TBW102", "8", str(number % queues), "0",
                              "1700000000000", "0", properties, "0", "false", "false", "broker-a"),
            strict=True)
    )  # fmt: skip
    return encode_frame(RemotingCommand(310, ext, b"x" * 1024, opaque=opaque))


def topic_frame(queues: int) -> bytes:
    """Makes the topic."""
    ext = {
        "topic": "load", "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return encode_frame(RemotingCommand(17, ext))


def pull_frame(opaque: int, queue_id: int, queue_offset: int) -> bytes:
    """A pull as push consumers of 4.9 send it."""
    ext = {
        "consumerGroup": "group", "topic": "load", "queueId": str(queue_id),
        "queueOffset": str(queue_offset), "maxMsgNums": str(PULL_SIZE), "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1",
        "expressionType": "TAG",
    }  # fmt: skip
    return encode_frame(RemotingCommand(11, ext, opaque=opaque))


class Part:
    """
    One hot path.

    :ivar machines: by the name under which their share is told.
    """

    def __init__(self, directory: str, chunk: int, queues: int = QUEUES) -> None:
        self.chunk = chunk
        self.queues = queues
        self.directory = directory
        self.machines: dict[str, Machine] = {}
        self.sent = 0

    def add(self, name: str, machine: Machine) -> Machine:
        """One more whose share is told."""
        machine.clock.turn_seconds = max(TURN_SECONDS, self.chunk * MESSAGE_SECONDS)
        self.machines[name] = machine
        return machine

    def run(self, messages: int) -> int:
        """Let so many messages go through; returns how many went."""
        raise NotImplementedError

    def measure(self, messages: int, *, is_profiled: bool) -> int:
        """Warm up, then count; the number of messages that were counted."""
        self.run(max(messages // 4, 2 * self.chunk, self.queues))
        for machine in self.machines.values():
            machine.begin(is_profiled)
        return self.run(messages)


class Send(Part):
    """Sends into a broker alone."""

    role = BrokerRole.ASYNC_MASTER

    def __init__(self, directory: str, chunk: int, queues: int = QUEUES) -> None:
        super().__init__(directory, chunk, queues)
        self.wires = Wires()
        self.master = self.add("master", Machine(f"{directory}/master", self.wires, self.role))
        self.client = self.master.connect()
        self.client.dataReceived(topic_frame(queues) + send_frame(0, 0))
        self.master.settle()
        self._chunks = [
            b"".join(send_frame(n, n, queues) for n in range(start, start + chunk))
            for start in range(0, max(64 * chunk, queues), chunk)
        ]

    def run(self, messages: int) -> int:
        began = self.sent
        while self.sent < began + messages:
            self.put(self._chunks[self.sent // self.chunk % len(self._chunks)])
            self.sent += self.chunk
            self.master.ends[0].out.clear()
        for machine in self.machines.values():
            while machine.store.dispatcher.bytes_behind:
                machine.step()
        return self.sent - began

    def put(self, data: bytes) -> None:
        self.master.step((self.client, data))


class Pair(Send):
    """Sends into a master that waits for its slave."""

    role = BrokerRole.SYNC_MASTER

    def __init__(self, directory: str, chunk: int, queues: int = QUEUES) -> None:
        super().__init__(directory, chunk, queues)
        slave = Machine(f"{directory}/slave", self.wires, BrokerRole.SLAVE)
        self.slave = self.add("slave", slave)
        self.master.ends.append(self.wires.master.transport)
        self.slave.ends.append(self.wires.slave.transport)
        self.exchange()
        assert self.slave.store.log.max_offset == self.master.store.log.max_offset

    def exchange(self) -> None:
        master, slave = self.wires.master, self.wires.slave
        while master.transport.out or slave.transport.out:
            self.slave.step((slave, master.transport.take()))
            self.master.step((master, slave.transport.take()))

    def put(self, data: bytes) -> None:
        super().put(data)
        self.exchange()
        assert self.master.store.statistics.outcomes.waiting == 0


class Pull(Send):
    """Pulls of 32 from one of 8 queues whose messages lie side by side."""

    def __init__(self, directory: str, chunk: int, queues: int = QUEUES) -> None:
        super().__init__(directory, 64)
        super().run(40 * 8 * PULL_SIZE)
        self.pulled = 0

    def run(self, messages: int) -> int:
        turns = -(-messages // PULL_SIZE)
        for _ in range(turns):
            queue_id, batch = self.pulled % 8, self.pulled // 8 % 40
            self.master.step((self.client, pull_frame(self.pulled, queue_id, batch * PULL_SIZE)))
            self.pulled += 1
            answer = self.master.ends[0].take()
            assert len(answer) > PULL_SIZE * 1024, answer[:200]
        return turns * PULL_SIZE


class Walk(Part):
    """A start that reads all of the log and dispatches it again."""

    def measure(self, messages: int, *, is_profiled: bool) -> int:
        filling = Send(self.directory, 64)
        filling.run(messages)
        self.store = filling.master.store
        self.store.close()
        for name in ("checkpoint", "boot"):
            self.store.host.disk.remove(f"{self.directory}/master/{name}")
        machine = filling.master
        self.machines["start"] = machine
        again = Broker(self.store.host, self.store.configuration).store
        machine.begin(is_profiled)
        if is_profiled:
            machine.profile.enable()
        began = time.process_time()
        again.load()
        again.start()
        machine.settle()
        machine.took = time.process_time() - began
        machine.profile.disable()
        assert again.queues.max_physical_offset == self.store.log.max_offset
        again.close()
        return filling.sent


class SendAlone(Send):
    """Sends into a master that would wait for a slave, if it had one."""

    role = BrokerRole.SYNC_MASTER


class CatchUp(Part):
    """A slave without a log, until its queues have all of its master's."""

    def measure(self, messages: int, *, is_profiled: bool) -> int:
        filling = SendAlone(self.directory, 64)
        filling.run(messages)
        master = filling.master
        slave = self.add(
            "slave", Machine(f"{self.directory}/slave", filling.wires, BrokerRole.SLAVE)
        )
        slave.begin(is_profiled)
        up, down = filling.wires.master, filling.wires.slave
        end = master.store.log.max_offset
        while slave.store.dispatcher.position < end:
            master.step((up, down.transport.take()))
            data = up.transport.take()
            for at in range(0, max(1, len(data)), READ_SIZE):
                slave.step((down, data[at : at + READ_SIZE]))
        assert slave.store.queues.max_physical_offset == end
        return filling.sent


PARTS: dict[str, type[Part]] = {
    "send": Send, "pair": Pair, "pull": Pull, "walk": Walk, "catchup": CatchUp,
}  # fmt: skip


def calls(
    part: str, chunk: int, messages: int, directory: str, queues: int = QUEUES
) -> dict[str, Counts]:
    """What a message takes on this path, by machine."""
    gc.collect()
    gc.disable()  # what it ends elsewhere in this process would be counted here
    try:
        path = PARTS[part](directory, chunk, queues)
        count = path.measure(messages, is_profiled=True)
    finally:
        gc.enable()
    for machine in path.machines.values():
        machine.store.close()  # thousands of queues keep twice as many files open
    return {name: machine.counts(count) for name, machine in path.machines.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=PARTS, default="send")
    parser.add_argument("--chunk", type=int, default=64, help="messages in one read")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--calls", action="store_true", help="count calls instead of time")
    parser.add_argument("--profile", action="store_true", help="functions by own time")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="rmqha-hotpath-")
    try:
        part = PARTS[options.part](directory, options.chunk, options.queues)
        is_profiled = options.calls or options.profile
        count = part.measure(options.messages, is_profiled=is_profiled)
        for name, machine in part.machines.items():
            if options.calls:
                print(f"{name}: {machine.counts(count)} a message, chunks of {options.chunk}")
            else:
                took = machine.took / count * 1e6
                print(
                    f"{name}: {took:.2f} us of processor time a message, chunks of {options.chunk}"
                )
            if options.profile:
                pstats.Stats(machine.profile).sort_stats("tottime").print_stats(40)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
