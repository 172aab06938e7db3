"""Java's proxy in front of brokers of ours, beside Java's proxy and broker: pop.md, section 17.

    python bench/proxies.py                            # all sides, some 15 minutes
    python bench/proxies.py --sides 5.4.0 --cases fifo,dlq

Each case runs with the official Python SDK. `java` is proxy 5.3.3 with its own broker; `5.3.3` and
`5.4.0` are these proxies in cluster mode in front of ours. The result is a table: what came, and
where a side differs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ordeals import made
from timer_judge import machine
from timer_sets import TimerRig

from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from tests.interop.proxies import OLDEST, PEERG, Proxies, lines_of, missing, start_driver
from tests.interop.rig import Server
from tests.interop.wire import Refused, Wire

SIDES = ("java", OLDEST, "5.4.0")
POPS = {"popEnable": "true", "timerWheelEnable": "true"}
_READY_S, _CASE_S = 300.0, 150.0
_RETRIES = 2
_JOB_S, _INVISIBLE_MS = 30, 15_000
_JOB = """
import sys, time, threading
from rocketmq import ClientConfiguration, ConsumeResult, Credentials, FilterExpression
from rocketmq import MessageListener, PushConsumer
endpoints, topic, group, seconds = sys.argv[1:]
calls = []
class Listener(MessageListener):
    def consume(self, message):
        calls.append(message.delivery_attempt)
        time.sleep(float(seconds))
        return ConsumeResult.SUCCESS
consumer = PushConsumer(
    ClientConfiguration(endpoints, Credentials()), group, Listener(), {topic: FilterExpression("*")}
)
consumer.startup()
time.sleep(float(seconds) + 25)
print("CALLS", calls, flush=True)
import os
os._exit(0)
"""


class Side:
    """
    One proxy or more, and the brokers behind them.

    :ivar endpoints: of the first proxy.
    """

    def __init__(self, name: str, directory: Path, ports: int) -> None:
        self.name = name
        self._rig = TimerRig(directory, POPS, range(ports, ports + 900, 8))
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def running(self, kind: str = "single", **front: Any) -> Any:
        """Start all; stop all at the end."""
        began = time.monotonic()
        try:
            if self.name == "java":
                self._start_java(front)
            else:
                self._start_ours(kind, front)
            self.started_s = time.monotonic() - began
            yield self
        finally:
            self._rig.close()
            self._rig.servers.clear()

    def _start_java(self, front: dict[str, Any]) -> None:
        """Java's proxy with its broker and a name server in one process."""
        home, port = self._rig.directory / f"java-{next(self._numbers)}", self._rig.ports(13)
        home.mkdir()
        command = [str(PEERG), "proxy", "--quick", "--port", str(port), "--dir", str(home)]
        for key, value in front.items():
            command += ["--pset", f"{key}={value}"]
        self.endpoints, self.namesrv = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
        server = self._rig._start(command, self.endpoints, home, java=True, wait=False)
        self._rig.until_ready(server)
        self.broker: Callable[[], str] = lambda: f"127.0.0.1:{port + 11}"

    def _start_ours(self, kind: str, front: dict[str, Any]) -> None:
        if kind == "single":
            self.namesrv = self._rig.namesrv(name=f"ns-{next(self._numbers)}")
            name = f"m-{next(self._numbers)}"
            role = {"brokerRole": "ASYNC_MASTER"}
            broker = self._rig.broker("master-sync.conf", name, namesrv=self.namesrv, **role)
            self.broker = lambda: broker.address
            cluster = "PeerCluster"
        else:
            self.brokers = made(kind, self._rig, Random(1))
            self.namesrv = self.brokers.namesrv
            self.broker = lambda: self.brokers.master().address
            cluster = "Peer5Cluster" if kind == "set" else "PeerCluster"
        self.make_topic("Ready")
        self.proxies = Proxies(self._rig, self.namesrv, "Ready", cluster, **front)
        self.endpoints = self.another_proxy().address

    def another_proxy(self) -> Server:
        """Start one more proxy."""
        return self.proxies.start(f"proxy-{next(self._numbers)}", self.name)

    def make_topic(self, topic: str, kind: str = "NORMAL", queues: int = 4) -> None:
        """Make a topic of a message type."""
        with Wire(self.broker()) as wire:
            wire.call(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                topic=topic,
                defaultTopic="TBW102",
                readQueueNums=queues,
                writeQueueNums=queues,
                perm=6,
                topicFilterType="SINGLE_TAG",
                topicSysFlag=0,
                order="false",
                attributes=f"+message.type={kind}",
            )

    def make_group(self, group: str, *, is_orderly: bool = False, retries: int = 16) -> None:
        """Make a group."""
        said = {
            "groupName": group,
            "retryMaxTimes": retries,
            "consumeMessageOrderly": is_orderly,
            "consumeEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
        }
        with Wire(self.broker()) as wire:
            wire.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, fastjson.encode(said))

    def drive(self, command: str, *options: Any, endpoints: str = "") -> list[dict[str, Any]]:
        """Run a driver to its end; its summary may say that not all happened."""
        return finish(self.begin(command, *options, endpoints=endpoints))

    def begin(self, command: str, *options: Any, endpoints: str = "") -> subprocess.Popen[str]:
        """Start a driver."""
        return start_driver(
            "py", command, "--endpoints", endpoints or self.endpoints, "--verbose", *options
        )

    def messages(self, topic: str) -> list[bytes]:
        """Return the bodies of a topic's first queue."""
        with Wire(self.broker()) as wire:
            try:
                return [item.body for item in decode_records(wire.pull_bytes(topic, 0, 0))]
            except Refused:
                return []

    def topics(self) -> set[str]:
        """Return the names of all topics of the broker."""
        with Wire(self.broker()) as wire:
            return set(wire.table(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"])


def finish(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for a driver; return its lines."""
    try:
        out, _ = process.communicate(timeout=_CASE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return lines_of(out)


def got(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a consumer got, in order."""
    return [line for line in lines if line["event"] == "got"]


def by_attempt(rows: list[dict[str, Any]]) -> str:
    """Say how many messages came at each attempt."""
    counts = Counter(row["attempt"] for row in rows)
    return ", ".join(f"{counts[number]} at attempt {number}" for number in sorted(counts))


# The cases


def start(side: Side) -> str:
    """The proxy starts beside a broker that has nothing."""
    with side.running():
        made_topics = {name for name in side.topics() if "Heart" in name or "Broad" in name}
        return f"ready; system topics of the proxy: {', '.join(sorted(made_topics)) or 'none'}"


def simple(side: Side) -> str:
    """A SimpleConsumer receives 20 messages and acknowledges them."""
    with side.running():
        side.make_topic("S")
        side.drive("produce", "--topic", "S", "--count", 20)
        rows = got(side.drive("simple", "--topic", "S", "--count", 20, "--group", "GS"))
        again = got(
            side.drive("simple", "--topic", "S", "--count", 1, "--group", "GS", "--timeout", 8)
        )
        return f"{by_attempt(rows)}; {len(again)} more"


def change(side: Side) -> str:
    """Each first delivery is given 2 s instead of an acknowledgement."""
    with side.running():
        side.make_topic("C")
        side.drive("produce", "--topic", "C", "--count", 8)
        rows = got(
            side.drive("simple", "--topic", "C", "--count", 8, "--change", 2, "--group", "GC")
        )
        return by_attempt(rows)


def leave(side: Side) -> str:
    """A consumer leaves with 8 messages that it does not acknowledge; another gets them."""
    with side.running():
        side.make_topic("L")
        side.drive("produce", "--topic", "L", "--count", 8)
        options = ("--topic", "L", "--group", "GL", "--invisible", 10, "--count", 8)
        first = got(side.drive("simple", *options, "--no-ack"))
        second = got(side.drive("simple", *options))
        return f"first {by_attempt(first)}; second {by_attempt(second)}"


def fifo(side: Side) -> str:
    """A PushConsumer fails each of 6 messages of one message group once."""
    with side.running():
        side.make_topic("F", "FIFO")
        side.make_group("GF", is_orderly=True)
        options = ("--topic", "F", "--count", 6, "--groups", 1)
        side.drive("produce", *options)
        rows = got(side.drive("push", *options, "--group", "GF", "--fail", 1))
        return " ".join(f"{row['i']}{chr(39) * (row['attempt'] - 1)}" for row in rows)


def dlq(side: Side) -> str:
    """Two messages fail always, in a group with two retries."""
    with side.running():
        side.make_topic("D")
        side.make_group("GD", retries=_RETRIES)
        side.drive("produce", "--topic", "D", "--count", 2)
        options = ("--topic", "D", "--group", "GD", "--fail", 99, "--count", 2, "--timeout", 100)
        process = side.begin("push", *options)
        deadline = time.monotonic() + 100
        while len(side.messages("%DLQ%GD")) < 2 and time.monotonic() < deadline:
            time.sleep(0.5)
        dead = len(side.messages("%DLQ%GD"))
        process.terminate()
        rows = got(finish(process))
        return f"{by_attempt(rows)}; {dead} in the DLQ"


def renewal(side: Side) -> str:
    """A listener works 30 s on a message that is hidden for 12 s: the proxy renews."""
    with side.running(defaultInvisibleTimeMills=_INVISIBLE_MS):
        side.make_topic("R")
        side.drive("produce", "--topic", "R", "--count", 1)
        command = [str(PEERG), "python", "-c", _JOB, side.endpoints, "R", "GR", str(_JOB_S)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CASE_S, check=False)
        calls = [line for line in done.stdout.splitlines() if line.startswith("CALLS")]
        return f"attempts that the listener saw: {calls[0][6:] if calls else done.stderr[-300:]}"


def two(side: Side) -> str:
    """Two proxies, a consumer of one group at each."""
    if side.name == "java":
        return "not run: one process"
    with side.running():
        side.make_topic("T")
        other = side.another_proxy().address
        options = ("--topic", "T", "--group", "GT", "--timeout", 25, "--batch", 1)
        processes = [
            side.begin("simple", *options, "--count", 40, endpoints=endpoints)
            for endpoints in (side.endpoints, other)
        ]
        time.sleep(5)
        side.drive("produce", "--topic", "T", "--count", 40)
        shares = [got(finish(process)) for process in processes]
        rows = [row for share in shares for row in share]
        both = all(shares)
        distinct = len({row["i"] for row in rows})
        return f"{distinct} of 40, {by_attempt(rows)}; both consumers got some: {both}"


def fail_over(side: Side) -> str:
    """`kill -9` of the master of a set while 150 messages are sent and received."""
    if side.name == "java":
        return "not run: one broker"
    with side.running("set"):
        side.make_topic("K")
        side.make_group("GK")
        time.sleep(12)
        options = ("--topic", "K", "--request-timeout", 3)
        consumer = side.begin(
            "simple", *options, "--group", "GK", "--count", 150, "--timeout", 70, "--invisible", 10
        )
        producer = side.begin("produce", *options, "--count", 150, "--pause", 100)
        time.sleep(8)
        side.brokers.kill()
        side.brokers.mend()
        sent = {line["messageId"] for line in finish(producer) if line["event"] == "sent"}
        rows = got(finish(consumer))
        # The driver ends after 20 errors; another one receives what is left.
        rows += got(
            side.drive("simple", *options, "--group", "GK", "--count", 150, "--timeout", 40)
        )
        came = Counter(row["messageId"] for row in rows)
        lost = len(sent - came.keys())
        twice = sum(1 for count in came.values() if count > 1)
        return (
            f"{len(sent)} acknowledged, {lost} lost, {twice} came twice (not acknowledged in time)"
        )


CASES: dict[str, Callable[[Side], str]] = {
    "start": start,
    "simple": simple,
    "change": change,
    "leave": leave,
    "fifo": fifo,
    "dlq": dlq,
    "renewal": renewal,
    "two": two,
    "fail-over": fail_over,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ports", type=int, default=47500, help="the first of 900")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "results/proxies.md")
    options = parser.parse_args()
    if reason := missing():
        sys.exit(f"proxies: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sides, cases = options.sides.split(","), options.cases.split(",")
    said: dict[tuple[str, str], str] = {}
    options.table.parent.mkdir(parents=True, exist_ok=True)
    for case, name in itertools.product(cases, sides):
        with tempfile.TemporaryDirectory(prefix="proxies-", dir=options.work) as directory:
            try:
                said[case, name] = CASES[case](Side(name, Path(directory), options.ports))
            except (AssertionError, OSError, Refused, subprocess.SubprocessError) as error:
                said[case, name] = f"failed: {type(error).__name__}: {str(error)[:300]}"
        print(f"{time.strftime('%X')} {case} {name}: {said[case, name]}", flush=True)
        lines = [machine(), "", f"| case | {' | '.join(sides)} |", "|---" * (len(sides) + 1) + "|"]
        for each in cases:
            cells = [said.get((each, side), "") for side in sides]
            lines.append(f"| {CASES[each].__doc__} | {' | '.join(cells)} |")
        options.table.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
