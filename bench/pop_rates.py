"""What pops cost: ours beside Java 5.3.3, in one run on one machine. Spec: pop.md, section 17.

    python bench/pop_rates.py                          # all parts but `move`; 9 minutes, quiet
    python bench/pop_rates.py --parts move             # 4 minutes
    python bench/pop_rates.py --parts many --out-messages 100000

`acks`: pop 32, then 32 acknowledgements in flight or one for all; rates, processor time and bytes
of log a message. `turns`: one message at a time. `again`: how late messages come that nobody
acknowledged. `wake`: from a send to the answer of a pop that waits. `idle`: processor time with
pops on and nothing to do. `many`: 1,000,000 messages that are out: memory, and a start after
`kill -9`. `move`: how long pops stop when the master is killed, with none and with many out. Prints
a table, and writes it to `bench/results/pop_rates.md`.

One ASYNC_MASTER of each make, in turn; `move` has two brokers and controllers. Messages of 100
bytes. The client of both sides is this program, so ratios of rates are damped by its own time;
processor time a message is the broker's alone. Needs both peer rigs with Java.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

from measure import MEBIBYTE, SIDES, Figures, Window, part_names, run_parts, scratch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ordeals import made
from pop_load import Delivery, popped_messages
from timer_figures import IDLE_S, Broker
from timer_sets import READY_S, TimerRig

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import BatchAck, BatchAckEntry, encode_bit_set
from rmq_ha.base.wire.pop_headers import AckHeader, PopHeader
from rmq_ha.client.lookup.requests import send_request
from tests.interop.rig import missing, rig_in
from tests.interop.test_controller import missing as missing_5
from tests.interop.wire import Refused, Wire

TOPIC, GROUP = "Rates", "RatesG"
QUEUES = 16
BROKER_NAME = "broker-t"
SETTINGS = {
    "popEnable": "true",
    "popInflightMessageThreshold": "100000",
    "popMaxInflight": "3000000",
}
_CONNECTIONS = 4
_BATCH = 32
_HOUR_MS = 3_600_000
_AGAIN_MS = 8000
_PATIENCE_S = 120.0
"""A part that takes longer has failed: it says so, and the next one begins."""


class Client:
    """Pops and acknowledges over one connection."""

    def __init__(self, address: str, timeout: float = 60) -> None:
        self.wire = Wire(address, timeout)

    def pop(self, invisible_ms: int, poll_ms: int = 0, most: int = _BATCH) -> list[Delivery]:
        """
        Pop once; an empty list if nothing is there.

        :raises Refused: the broker answered with an error.
        """
        now_ms = int(time.time() * 1000)
        header = PopHeader(GROUP, TOPIC, -1, most, invisible_ms, poll_ms, now_ms)
        (answer,) = self.wire.exchange([RemotingCommand(RequestCode.POP_MESSAGE, header.ext())])
        if answer.code == 0:
            return popped_messages(answer, BROKER_NAME)
        if answer.code in (209, 210):
            return []
        raise Refused(answer)

    def ack(self, found: list[Delivery]) -> None:
        """Acknowledge each message with a request of its own, all in flight at once."""
        self._exchange([_ack_of(delivery) for delivery in found])

    def ack_batch(self, found: list[Delivery]) -> None:
        """Acknowledge all messages with one request."""
        entries: dict[tuple[int, int, int], list[Delivery]] = {}
        for item in found:
            receipt = item.receipt
            key = receipt.kind, receipt.queue_id, receipt.start_offset
            entries.setdefault(key, []).append(item)
        acks = [
            BatchAckEntry(
                GROUP,
                TOPIC,
                str(kind),
                start,
                queue_id,
                items[0].receipt.revive_queue,
                items[0].receipt.pop_time,
                items[0].receipt.invisible_ms,
                encode_bit_set([item.receipt.offset - start for item in items]),
            )
            for (kind, queue_id, start), items in entries.items()
        ]
        body = BatchAck(BROKER_NAME, acks).encode()
        self._exchange([RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, None, body)])

    def _exchange(self, requests: list[RemotingCommand]) -> None:
        for answer in self.wire.exchange(requests):
            if answer.code != 0:
                raise Refused(answer)


def _ack_of(delivery: Delivery) -> RemotingCommand:
    receipt = delivery.receipt
    topic = f"%RETRY%{GROUP}_{TOPIC}" if receipt.kind else TOPIC
    header = AckHeader(GROUP, topic, receipt.queue_id, receipt.encode(), receipt.offset)
    return RemotingCommand(RequestCode.ACK_MESSAGE, header.ext())


class Crew:
    """
    Some connections that do the same until enough messages are done.

    :ivar times: of the first and of the second request of each round, seconds.
    """

    def __init__(
        self, address: str, wanted: int, act: Callable[[Client], tuple[int, float]]
    ) -> None:
        self._address, self._wanted, self._act = address, wanted, act
        self._lock = threading.Lock()
        self.done = 0
        self.times: list[tuple[float, float]] = []
        self._failure: Exception | None = None

    def run(self) -> float:
        """
        Work; return how many seconds it took.

        :raises RuntimeError: it took too long, or the broker refused.
        """
        began = time.monotonic()
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(_CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, began + _PATIENCE_S - time.monotonic()))
        if self._failure is not None or self.done < self._wanted:
            raise RuntimeError(f"{self.done} of {self._wanted} messages: {self._failure!r}")
        return time.monotonic() - began

    def _work(self) -> None:
        try:
            client = Client(self._address)
            while self.done < self._wanted:
                began = time.monotonic()
                count, popped = self._act(client)
                with self._lock:
                    self.done += count
                    if count:
                        self.times.append((popped - began, time.monotonic() - popped))
        except Exception as error:
            self._failure = error


def _round(client: Client, ack: str, invisible_ms: int) -> tuple[int, float]:
    found = client.pop(invisible_ms, 100)
    popped = time.monotonic()
    if found and ack:
        getattr(client, ack)(found)
    return len(found), popped


@contextmanager
def broker_of(side: str, work: Path, **settings: str) -> Iterator[Broker]:
    """A broker of one side with a group, and its name server."""
    with scratch(work) as directory, rig_in(directory) as rig:
        broker = Broker(rig, side, TOPIC, QUEUES, **{**SETTINGS, **settings})
        with Wire(broker.server.address) as wire:
            wire.create_group(GROUP, 64)
        yield broker


def acks_part(figures: Figures, options: argparse.Namespace) -> None:
    """Pop 32 and acknowledge them, one by one and all at once."""
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            for name, ack in (("", "ack"), ("single", "ack"), ("batch", "ack_batch")):
                count = options.messages if name else options.messages // 4
                broker.send(count)
                crew = Crew(
                    broker.server.address, count, partial(_round, ack=ack, invisible_ms=60_000)
                )
                begin = _log_end(broker)
                with Window({"broker": broker.server}) as window:
                    seconds = crew.run()
                if not name:
                    continue  # what is compiled while it runs is compiled now
                time.sleep(1)
                written = _log_end(broker) - begin
                what, others = f"pop and {name} acknowledgements", window.others
                cost = window.cpu["broker"] / count * 1e6
                figures.add(what, "msgs/s", side, count / seconds, others, more_is_better=True)
                figures.add(f"{what}: CPU a message", "us", side, cost, others)
                figures.add(f"{what}: log a message", "bytes", side, written / count, others)
                for number, request in enumerate(("pop", "acknowledgement")):
                    times = sorted(pair[number] * 1000 for pair in crew.times)
                    for share in (50, 99):
                        value = times[min(len(times) - 1, len(times) * share // 100)]
                        figures.add(f"{what}: {request} p{share}", "ms", side, value, others)


def turns_part(figures: Figures, options: argparse.Namespace) -> None:
    """One message at a time: each pop and each acknowledgement has a turn of its own."""
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            broker.send(options.turns)
            client, begin, done = Client(broker.server.address), _log_end(broker), 0
            with Window({"broker": broker.server}) as window:
                while done < options.turns:
                    found = client.pop(60_000, 100, 1)
                    if found:
                        client.ack(found)
                    done += len(found)
            time.sleep(1)
            written = (_log_end(broker) - begin) / done
            figures.add("one at a time: log a message", "bytes", side, written, window.others)
            cost = window.cpu["broker"] / done * 1e6
            figures.add("one at a time: CPU a message", "us", side, cost, window.others)


def again_part(figures: Figures, options: argparse.Namespace) -> None:
    """Messages that nobody acknowledged: how late they come, in short polls and in long ones."""
    for poll_ms in (500, 10_000):
        for side in _sides(options):
            with broker_of(side, options.work) as broker:
                broker.send(options.again)
                crew = Crew(
                    broker.server.address,
                    options.again,
                    partial(_round, ack="", invisible_ms=_AGAIN_MS),
                )
                with Window({"broker": broker.server}) as window:
                    crew.run()
                    late = _late(broker, options.again, poll_ms)
                for share in (50, 99, 100):
                    value = late[min(len(late) - 1, len(late) * share // 100)]
                    name = f"again after it is due, polls of {poll_ms / 1000:g} s: p{share}"
                    figures.add(name, "ms", side, value, window.others)


def _late(broker: Broker, count: int, poll_ms: int) -> list[float]:
    late: list[float] = []
    lock = threading.Lock()

    def act(client: Client) -> tuple[int, float]:
        found = client.pop(60_000, poll_ms)
        now_ms = time.time() * 1000
        popped = time.monotonic()
        client.ack(found)
        with lock:
            late.extend(now_ms - item.first_popped - _AGAIN_MS for item in found if item.reconsumed)
        return sum(1 for item in found if item.reconsumed), popped

    Crew(broker.server.address, count, act).run()
    return sorted(late)


def wake_part(figures: Figures, options: argparse.Namespace) -> None:
    """From a send to the answer of a pop that waits."""
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            times: list[float] = []
            client, sender = Client(broker.server.address), Wire(broker.server.address)
            with Window({"broker": broker.server}) as window:
                for number in range(options.wakes):
                    sent: list[float] = []

                    def send(number: int, sent: list[float], sender: Wire) -> None:
                        time.sleep(0.05)  # the pop waits by then
                        sent.append(time.monotonic())
                        body = b"%08d" % number
                        sender.exchange([send_request("p", TOPIC, number % QUEUES, body, "", 1)])

                    thread = threading.Thread(target=send, args=(number, sent, sender))
                    thread.start()
                    found = client.pop(60_000, 10_000)
                    times.append((time.monotonic() - sent[0]) * 1000 if found else 10_000.0)
                    thread.join()
                    client.ack(found)
            times.sort()
            for share in (50, 99):
                value = times[min(len(times) - 1, len(times) * share // 100)]
                figures.add(f"wake-up of a long poll: p{share}", "ms", side, value, window.others)


def idle_part(figures: Figures, options: argparse.Namespace) -> None:
    """Processor time while nothing happens."""
    for side in _sides(options):
        for state, value in (("off", "false"), ("on", "true")):
            if side == "java" and state == "off":
                continue  # Java has no such switch
            with broker_of(side, options.work, popEnable=value) as broker:
                time.sleep(8)
                with Window({"broker": broker.server}) as window:
                    time.sleep(IDLE_S)
                share = window.cpu["broker"] / IDLE_S * 100
                figures.add(f"idle, pops {state}", "% of one", side, share, window.others)


def many_part(figures: Figures, options: argparse.Namespace) -> None:
    """Many messages that are out: memory, and a start after `kill -9`."""
    count = options.out_messages
    many = f"{count:,} out"
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            broker.send(count)
            with Window({"broker": broker.server}) as window:
                time.sleep(1)
            before = window.memory["broker"].rss
            take = partial(_round, ack="", invisible_ms=_HOUR_MS)
            with Window({"broker": broker.server}) as window:
                Crew(broker.server.address, count, take).run()
                time.sleep(2)
            grown = (window.memory["broker"].rss - before) / MEBIBYTE
            figures.add(f"{many}: RSS more", "MiB", side, grown, window.others)
            broker.server.kill()
            began = time.monotonic()
            with Window() as window:
                window.add("broker", broker.start())
                _until_popped(broker.server.address)
                seconds = time.monotonic() - began
            figures.add(f"{many}: kill -9 to the next pop", "s", side, seconds, window.others)
            name = f"{many}: start, CPU"
            figures.add(name, "s", side, window.cpu["broker"], window.others)


def move_part(figures: Figures, options: argparse.Namespace) -> None:
    """The master of a set is killed: until the other broker answers a pop."""
    for side in _sides(options):
        kind = "java-set" if side == "java" else "set"
        with scratch(options.work) as directory:
            rig = TimerRig(directory, {"timerWheelEnable": "true", **SETTINGS})
            try:
                brokers = made(kind, rig, Random(1))
                brokers.make_topic(TOPIC, QUEUES)
                with Wire(brokers.master().address) as wire:
                    wire.create_group(GROUP, 64)
                time.sleep(12)  # slaves copy tables every 10 s
                for count in (0, options.out_messages // 4):
                    if count:
                        address = brokers.master().address
                        load = ["load", "send", "--addr", address, "--topic", TOPIC]
                        load += ["--queues", QUEUES, "--size", 100, "--conns", 2]
                        rig.peer(*load, "--inflight", 256, "--count", count, timeout=300)
                        take = partial(_round, ack="", invisible_ms=_HOUR_MS)
                        Crew(address, count, take).run()
                    old = brokers.master()
                    with Window() as window:
                        began = time.monotonic()
                        brokers.kill()
                        others = [each for each in brokers.servers() if each is not old]
                        _until_popped(others[0].address)
                        seconds = time.monotonic() - began
                    name = f"fail-over with {count:,} out: kill -9 to a pop"
                    figures.add(name, "s", side, seconds, window.others)
                    brokers.mend()
            finally:
                rig.close()


def _until_popped(address: str) -> None:
    """Wait until a broker answers a pop with messages, or says that there are none."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with suppress(OSError, Refused):
            Client(address, 5).pop(1000)
            return
        time.sleep(0.05)
    raise RuntimeError("no pop is answered")


def _log_end(broker: Broker) -> int:
    with Wire(broker.server.address) as wire:
        return wire.log_end()


def _sides(options: argparse.Namespace) -> list[str]:
    return [side for _ in range(options.repeats) for side in SIDES]


PARTS = {
    "acks": acks_part,
    "turns": turns_part,
    "again": again_part,
    "wake": wake_part,
    "idle": idle_part,
    "many": many_part,
    "move": move_part,
}

_SHORTER = tuple(name for name in PARTS if name != "move")
"""What one run does unless it is asked for parts: it ends within 10 minutes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=part_names(PARTS), default=",".join(_SHORTER))
    parser.add_argument("--messages", type=int, default=40_000, help="of the part `acks`")
    parser.add_argument("--turns", type=int, default=1000, help="messages of the part `turns`")
    parser.add_argument("--again", type=int, default=2000, help="messages of the part `again`")
    parser.add_argument("--wakes", type=int, default=200, help="long polls of the part `wake`")
    parser.add_argument("--out-messages", type=int, default=1_000_000, help="of the part `many`")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results / "pop_rates.md")
    options = parser.parse_args()
    if reason := missing() or missing_5():
        sys.exit(f"pop_rates: {reason}")
    figures = Figures()
    parts = {name: partial(part, figures, options) for name, part in PARTS.items()}
    run_parts(parts, options.parts, figures, options.out)


if __name__ == "__main__":
    main()
