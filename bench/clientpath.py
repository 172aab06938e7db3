"""What a message takes in the client, in one process with brokers that are bytes.

    python bench/clientpath.py [--path reactor|asyncio|blocking|consume|pull] [--in-flight 64]
                               [--messages 6400] [--profile | --memory]

`reactor`, `asyncio` and `blocking` send, `consume` is a push consumer with a plain listener,
`pull` asks for 32 messages at a time. Counted are Python calls and C calls a message, exactly:
nothing else on the machine changes them, so tests/unit/client/test_call_budget.py holds us to it.
Who answers is not counted. `blocking` has real sockets, the others have none.

`--memory` shows objects and resident memory after each tenth of the messages: both have to stay
where they are, with `--messages 1000000` as with fewer.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import re
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import psutil
from hotpath import End, Turns
from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.process import Process
from rmq_ha.base.seams import Host
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client import aio
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.pull_consumer import PullConsumer
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.testing.worker import AtOnce

TOPIC = "BenchClient"
BODY = b"x" * 1024
QUEUES = 8
PULL_SIZE = 32
GROUP = "bench"
_WORDS = struct.Struct(">iI")
_QUEUE_OFFSET_AT = 20
"""Where a record has its queue offset."""
_CODE = re.compile(rb'"code":(\d+)')
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_SEND_QUEUE = re.compile(rb'"e":"(\d+)"')
_PULL_OFFSET = re.compile(rb'"queueOffset":"(\d+)"')


class Peers:
    """
    Name server and broker in one: requests go in as bytes, answers come out.

    :ivar client_id: who is in every group.
    """

    def __init__(self, port: int = 10911) -> None:
        self.client_id = ""
        self._rest = b""
        self._sent = 0
        brokers = [BrokerRoute("C", "broker-a", {0: f"127.0.0.1:{port}"})]
        self._route = TopicRoute([QueueRoute("broker-a", QUEUES, QUEUES, 6)], brokers).encode()
        here = Address(b"\x7f\0\0\1", port)
        properties = f"UNIQ_KEY\x01{1:032X}\x02WAIT\x01true"
        record = encode_record(
            Record(0, 0, 0, 0, 0, 0, 0, 1, here, 1, here, 0, 0, BODY, TOPIC, properties)
        )
        self._record_size = len(record)
        self._records = bytearray(record * PULL_SIZE)

    def answer(self, data: bytes) -> bytes:
        """To all whole requests in what has come."""
        data, out, position = self._rest + data, [], 0
        while len(data) - position >= _WORDS.size:
            length, word = _WORDS.unpack_from(data, position)
            end, header = position + 4 + length, position + _WORDS.size
            if end > len(data):
                break
            text = data[header : header + (word & 0xFFFFFF)]
            out.append(self._answer(int(_found(_CODE, text)), text))
            position = end
        self._rest = data[position:]
        return b"".join(out)

    def _answer(self, code: int, header: bytes) -> bytes:
        opaque = int(_found(_OPAQUE, header))
        if code == 310:
            self._sent += 1
            ext = b'"queueId":"%s","TRACE_ON":"true","MSG_REGION":"DefaultRegion",' % _found(
                _SEND_QUEUE, header
            )
            ext += b'"msgId":"7F00000100002A9F%016X","queueOffset":"%d"' % (
                self._sent,
                self._sent,
            )
            return _response(opaque, ext)
        if code == 11 and b"%RETRY%" not in header:
            offset = int(_found(_PULL_OFFSET, header))
            for number in range(PULL_SIZE):
                place = number * self._record_size + _QUEUE_OFFSET_AT
                struct.pack_into(">q", self._records, place, offset + number)
            ext = b'"suggestWhichBrokerId":"0","nextBeginOffset":"%d",' % (offset + PULL_SIZE)
            return _response(opaque, ext + b'"minOffset":"0","maxOffset":"9999999"', self._records)
        if code == 105:
            return _response(opaque, b"", self._route)
        if code == 38:
            return _response(opaque, b"", b'{"consumerIdList":["%s"]}' % self.client_id.encode())
        if code == 14:
            return _response(opaque, b'"offset":"0"')
        return b"" if code in (11, 15) else _response(opaque, b"")


def _found(pattern: re.Pattern[bytes], header: bytes) -> bytes:
    found = pattern.search(header)
    assert found is not None, header
    return found[1]


def _response(opaque: int, ext: bytes, body: bytes | bytearray = b"") -> bytes:
    header = (
        b'{"code":0,"extFields":{%s},"flag":1,"language":"JAVA","opaque":%d,'
        b'"serializeTypeCurrentRPC":"JSON","version":407}' % (ext, opaque)
    )
    return _WORDS.pack(4 + len(header) + len(body), len(header)) + header + body


@dataclass
class Counts:
    """Of one message: exact, the same in each run."""

    python: float
    c: float

    def __str__(self) -> str:
        return f"{self.python:.1f} Python calls, {self.c:.1f} C calls"


class Meter:
    """Counts, and times, what is done between `on` and `off`."""

    def __init__(self) -> None:
        self.profile: cProfile.Profile | None = None
        self.took = 0.0
        self._began = 0.0

    def on(self) -> None:
        self._began = time.thread_time()
        if self.profile is not None:
            self.profile.enable()

    def off(self) -> None:
        if self.profile is not None:
            self.profile.disable()
        self.took += time.thread_time() - self._began

    def counts(self, messages: int) -> Counts:
        """Without what is of this file, or of the harness's clock and wires."""
        assert self.profile is not None
        ours = {__file__, End.write.__code__.co_filename}
        python = c = own = 0
        for entry in self.profile.getstats():  # pstats takes all named tuples for one function
            code: Any = entry.code
            if isinstance(code, str):
                c += entry.callcount
            elif code.co_filename not in ours:
                python += entry.callcount
            else:
                inner = entry.calls or ()
                own += sum(call.callcount for call in inner if isinstance(call.code, str))
        return Counts(python / messages, (c - own) / messages)


class Wires:
    """A network on which whatever is connected to is `Peers`."""

    def __init__(self, peers: Peers, meter: Meter) -> None:
        self._peers = peers
        self._meter = meter
        self._protocols: list[Any] = []

    def client(self, host: str, port: int, timeout: float = 3.0) -> Wires:
        return self

    def connect(self, factory: Any) -> Any:
        protocol = factory.buildProtocol(None)
        self._protocols.append(protocol)
        protocol.makeConnection(End(10911))
        return succeed(protocol)

    def exchange(self) -> bool:
        """Have what was written answered; False when nothing was."""
        went = False
        for protocol in self._protocols:
            data = protocol.transport.take()
            if not data:
                continue
            went = True
            answers = self._peers.answer(data)
            if answers:
                self._meter.on()
                protocol.dataReceived(answers)
                self._meter.off()
        return went


class Path:
    """
    One way through the client.

    :param in_flight: so many messages are on their way at a time.
    """

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.meter = Meter()
        self.done = 0

    def run(self, messages: int) -> None:
        """Let about so many messages go through; `done` grows by those that went."""
        raise NotImplementedError

    def close(self) -> None:
        """The end."""


class Simulated(Path):
    """Of those that stand on a `Host`."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.peers = Peers()
        self.wires = Wires(self.peers, self.meter)
        self.clock = Turns()
        self.host = Host(
            self.clock,  # type: ignore[arg-type]
            self.clock.now_ms,
            self.wires,  # type: ignore[arg-type]
            RealDisk(),
            AtOnce(),
            Random(1),
        )
        self.settings = ClientConfig(
            namesrv_addr="127.0.0.1:9876", process=Process(4711, "127.0.0.1")
        )

    def instance(self) -> ClientInstance:
        made = ClientInstance(self.host, self.settings)
        self.peers.client_id = made.client_id
        return made

    def turn(self) -> bool:
        """What has come is answered, and what was put off is done."""
        went = self.wires.exchange()
        self.meter.on()
        later = self.clock.turn()
        self.meter.off()
        return went or later

    def wait(self, later: Any) -> None:
        outcome: list[Any] = []
        (later if isinstance(later, Deferred) else Deferred.fromCoroutine(later)).addBoth(
            outcome.append
        )
        while not outcome:
            self.turn()
        assert not hasattr(outcome[0], "raiseException"), outcome


class Reactor(Simulated):
    """Sends with Deferreds: whoever is answered sends the next."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.producer = Producer(self.instance())
        self.wait(self.producer.start())
        self.wait(self.producer.send(Message(TOPIC, BODY)))
        self._left = 0

    def run(self, messages: int) -> None:
        self._left, until = messages, self.done + messages
        self.meter.on()
        for _ in range(min(self.in_flight, messages)):
            self._send()
        self.meter.off()
        while self.done < until:
            self.turn()

    def _send(self) -> None:
        self._left -= 1
        self.producer.send(Message(TOPIC, BODY)).addCallback(self._sent)

    def _sent(self, result: Any) -> None:
        self.done += 1
        if self._left:
            self._send()


class Asyncio(Simulated):
    """As many tasks as are in flight."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._begin())

    def close(self) -> None:
        self.loop.close()

    async def _begin(self) -> None:
        self.client = aio.Client(self.settings, host=self.host)
        self.producer: Any = await self._driven(self.client.producer())
        await self._driven(self.producer.send(Message(TOPIC, BODY)))

    def run(self, messages: int) -> None:
        self.loop.run_until_complete(self._run(messages))
        self.done += messages

    async def _run(self, messages: int) -> None:
        numbers = iter(range(messages))

        async def work() -> None:
            for _ in numbers:
                await self.producer.send(Message(TOPIC, BODY))

        await self._driven(asyncio.gather(*[work() for _ in range(self.in_flight)]))

    async def _driven(self, waited: Awaitable[Any]) -> Any:
        """Between two turns of the loop what was written is answered."""
        later = asyncio.ensure_future(waited)
        self.meter.on()
        while not later.done():
            await asyncio.sleep(0)
            self.meter.off()
            self.wires.exchange()
            self.meter.on()
        self.meter.off()
        return later.result()


class Blocking(Path):
    """One after the other, by a real socket; a thread answers."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(Peers(port),), daemon=True).start()
        self.client = BlockingClient(f"127.0.0.1:{port}")
        self.client.send(Message(TOPIC, BODY))

    def close(self) -> None:
        self.client.close()
        self._listener.close()

    def _serve(self, peers: Peers) -> None:
        connected, _ = self._listener.accept()
        with connected:
            while data := connected.recv(1 << 16):
                connected.sendall(peers.answer(data))

    def run(self, messages: int) -> None:
        self.meter.on()
        for _ in range(messages):
            self.client.send(Message(TOPIC, BODY))
        self.meter.off()
        self.done += messages


class Consume(Simulated):
    """A push consumer whose listener is quick."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        config = PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = PushConsumer(self.instance(), GROUP, config)
        consumer.subscribe(TOPIC)
        consumer.register_message_listener(self._listen)
        self.wait(consumer.start())

    def _listen(self, messages: Any, context: Any) -> None:
        self.done += len(messages)

    def run(self, messages: int) -> None:
        until = self.done + messages
        while self.done < until:
            assert self.turn() or self.done >= until


class Pull(Simulated):
    """A pull consumer that asks again when it is answered."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.consumer = PullConsumer(self.instance(), GROUP)
        self.wait(self.consumer.start())
        self._queue = MessageQueue(TOPIC, "broker-a", 0)
        self._left = 0
        self.wait(self.consumer.pull(self._queue, "*", 0, PULL_SIZE))

    def run(self, messages: int) -> None:
        until = self.done + messages
        self.meter.on()
        self._pull(0, until)
        self.meter.off()
        while self.done < until:
            self.turn()

    def _pull(self, offset: int, until: int) -> None:
        pulled: Any = self.consumer.pull(self._queue, "*", offset, PULL_SIZE)
        pulled.addCallback(self._pulled, until)

    def _pulled(self, result: Any, until: int) -> None:
        self.done += len(result.msg_found_list)
        if self.done < until:
            self._pull(result.next_begin_offset, until)


PATHS: dict[str, Callable[[int], Path]] = {
    "reactor": Reactor,
    "asyncio": Asyncio,
    "blocking": Blocking,
    "consume": Consume,
    "pull": Pull,
}


def calls(name: str, in_flight: int, messages: int) -> tuple[Counts, cProfile.Profile]:
    """What a message takes, once it has begun."""
    path = PATHS[name](in_flight)
    path.run(max(64, in_flight))
    gc.collect()
    gc.disable()  # what it ends elsewhere in this process would be counted here
    try:
        profile = path.meter.profile = cProfile.Profile()
        began = path.done
        path.run(messages)
        return path.meter.counts(path.done - began), profile
    finally:
        gc.enable()
        path.close()


def show_memory(name: str, in_flight: int, messages: int) -> None:
    """Objects and resident memory, after each tenth of the messages."""
    path = PATHS[name](in_flight)
    path.run(max(1_000, in_flight))
    try:
        for tenth in range(11):
            gc.collect()
            kib = psutil.Process().memory_info().rss // 1024
            print(f"{path.done:>9,} messages: {len(gc.get_objects()):,} objects, {kib:,} KiB")
            if tenth < 10:
                path.run(messages // 10)
    finally:
        path.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--path", choices=PATHS, default="reactor")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--messages", type=int, default=6400)
    parser.add_argument("--profile", action="store_true", help="functions by calls")
    parser.add_argument("--memory", action="store_true", help="objects and resident memory")
    options = parser.parse_args()
    if options.memory:
        show_memory(options.path, options.in_flight, options.messages)
        return
    counts, profile = calls(options.path, options.in_flight, options.messages)
    print(f"{options.path}, {options.in_flight} in flight: {counts} a message")
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(60)


if __name__ == "__main__":
    main()
