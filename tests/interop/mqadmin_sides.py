"""Clusters with one history, and one JVM beside each that runs mqadmin's commands."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tests.interop.conversation import java_class_path
from tests.interop.rig import ALL_JAVA, Rig, Server

LOGBACK = "<configuration><root level='OFF'/></configuration>\n"
JAVA = [
    "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m",
    "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "-Drocketmq.client.logUseSlf4j=true",
]  # fmt: skip
CLUSTER, BROKER = "PeerCluster", "broker-a"
TOPIC, OTHER, TRANSACTIONS = "Adm", "Other", "Trans"
GROUP, OFFLINE = "g-adm", "g-off"
QUICK = {
    "haSendHeartbeatInterval": 1000,
    "waitTimeMillsInSendQueue": 10000,
    "aclEnable": "true",
}
ACCESS = """globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: first-key
  secretKey: first-secret
  whiteRemoteAddress: 10.1.1.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - TopicA=DENY
  - TopicB=PUB|SUB
  groupPerms:
  - GroupA=SUB
"""


class Tools:
    """mqadmin, a producer and consumers, in one JVM."""

    def __init__(self, directory: Path, class_path: str, namesrv: str) -> None:
        (directory / "conf").mkdir(parents=True)
        (directory / "conf" / "logback_tools.xml").write_text(LOGBACK)
        (directory / "logback.xml").write_text(LOGBACK)
        self.directory = directory
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._process = subprocess.Popen(
            [*JAVA, f"-Duser.home={directory}", f"-Drocketmq.home.dir={directory}",
             f"-Dlogback.configurationFile={directory / 'logback.xml'}",
             "-cp", class_path, "MqadminHarness", namesrv],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory,
            stderr=(directory / "stderr.log").open("w"),
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line)

    def ask(self, *fields: Any, seconds: float = 40) -> Any:
        """Run one thing; what it printed or gave back."""
        assert self._process.stdin
        self._process.stdin.write("\t".join(map(str, fields)) + "\n")
        self._process.stdin.flush()
        try:
            answer = json.loads(self._answers.get(timeout=seconds))
        except Empty:
            errors = (self.directory / "stderr.log").read_text()[-2000:]
            raise AssertionError(f"{fields}: no answer, or the tool ended\n{errors}") from None
        if "error" in answer:
            raise AssertionError(f"{fields}: {answer['error']}")
        return answer.get("out")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(30)


@dataclass
class Side:
    """One name server, a master with a slave, and the tools; all have seen the same."""

    rig: Rig
    name: str
    namesrv: str
    master: Server
    slave: Server
    tools: Tools
    sent: list[list[str]] = field(default_factory=list)
    client_id: str = ""
    namesrv_directory: Path = Path()

    @classmethod
    def all(cls, rig: Rig) -> tuple[Side, Side]:
        """Ours and Java's; servers that need not wait for one another start at once."""
        names = {"ours": False, "java": True}
        with ThreadPoolExecutor() as aside:
            class_path = aside.submit(java_class_path, "MqadminHarness", rig.directory / "classes")
            namesrvs = {
                name: rig.namesrv(java=java, name=f"ns-{name}") for name, java in names.items()
            }
            base = rig.ports(16)
            brokers: dict[str, Server] = {}
            for role, conf in (("m", "master-async.conf"), ("s", "slave.conf")):
                for name, java in names.items():
                    write_access(rig.directory / f"{role}-{name}", java or ALL_JAVA)
                    port = base + 2 + 4 * len(brokers)
                    brokers[role + name] = rig.broker(
                        conf, f"{role}-{name}", java=java, namesrv=namesrvs[name], port=port,
                        wait=False, **QUICK,
                    )  # fmt: skip
                for name in names:
                    rig.until_ready(brokers[role + name])
            ours, java = [
                cls(
                    rig,
                    name,
                    namesrvs[name],
                    brokers["m" + name],
                    brokers["s" + name],
                    Tools(rig.directory / f"tools-{name}", class_path.result(), namesrvs[name]),
                )
                for name in names
            ]
        return ours, java

    def mqadmin(self, *arguments: Any) -> str:
        out: str = self.tools.ask(*self.filled(arguments), "-n", self.namesrv)
        return out

    def filled(self, arguments: Any) -> list[str]:
        """Arguments with the names of this side's things replaced."""
        names = {
            "MASTER": self.master.address,
            "SLAVE": self.slave.address,
            "CLIENT": self.client_id,
            "FILES": str(self.tools.directory / "files"),
        }
        if self.sent:
            names |= {"UNIQ": self.sent[7][0], "OFFSETID": self.sent[7][1]}
        return [names.get(str(item), str(item)) for item in arguments]

    def live(self) -> None:
        """The history; what comes later is waited for, so that offsets are the same."""
        ask = self.tools.ask
        for topic, queues in ((TOPIC, 4), (OTHER, 4), (TRANSACTIONS, 1)):
            self.mqadmin("updateTopic", "-b", "MASTER", "-t", topic, "-r", queues, "-w", queues)
        for group in (GROUP, OFFLINE):
            self.mqadmin("updateSubGroup", "-b", "MASTER", "-g", group, "-r", 5)
            retry = f"%RETRY%{group}"  # else it is there before a client asks, or not
            self.mqadmin("updateTopic", "-b", "MASTER", "-t", retry, "-r", 1, "-w", 1)
        for queue in range(4):
            self.sent += ask("@produce", TOPIC, queue, 5, f"q{queue}", "T", 0)
        ask("@produce", OTHER, 1, 6, "other", "T", 0)
        (self.client_id,) = ask("@consume", GROUP, TOPIC)
        ask("@consume", OFFLINE, OTHER)
        self._consumed(20, 6)
        ask("@produce", OTHER, 2, 1, "late", "T", 1)
        self._consumed(20, 7)
        ask("@produce", TOPIC, 0, 1, "again", "again", 0)
        self._consumed(21, 7)
        ask("@half", TRANSACTIONS, 2)
        self.rig.until(  # commits are one-way
            lambda: re.search(
                r"broker-a +0 +0 +2 ", self.mqadmin("topicStatus", "-t", TRANSACTIONS)
            ),
            30,
            "two committed transactions",
        )
        ask("@stop", OFFLINE)
        ask("@produce", OTHER, 3, 4, "unread", "T", 0)
        self._wait_told()

    def _consumed(self, online: int, offline: int) -> None:
        def counts() -> tuple[int, int]:
            ask = self.tools.ask
            return ask("@consumed", GROUP), ask("@consumed", OFFLINE)

        what = f"{self.name}: {online} and {offline} messages consumed"
        self.rig.until(lambda: counts() == (online, offline), 30, what)

    def _wait_told(self) -> None:
        """
        Until the statistics have the last messages, and the broker the consumer's offsets.

        Both brokers sample every 10 s; clients store offsets first 10 s after their start.
        """
        self.rig.until(
            lambda: (
                self.stats("TOPIC_PUT_NUMS", OTHER)[0][0] == 11
                and "Diff Total: 0" in self.mqadmin("consumerProgress", "-g", GROUP)
            ),
            30,
            f"{self.name}: 11 messages of {OTHER} in the statistics, the offsets of {GROUP}",
        )

    def stats(self, name: str, key: str) -> Any:
        """Sum and average over a minute, an hour and a day, or the broker's refusal."""
        return self.tools.ask("@stats", self.master.address, name, key)


def both_sides(rig: Rig) -> tuple[Side, Side]:
    """Ours and Java's, which have just lived through the same."""
    sides = Side.all(rig)
    with ThreadPoolExecutor() as both:
        for _ in both.map(Side.live, sides):
            pass
    return sides


def write_access(home: Path, java: bool) -> None:
    """Java's home is its directory; ours looks beside its properties file."""
    directory = home / "conf" if java else home
    directory.mkdir(parents=True)
    (directory / "plain_acl.yml").write_text(ACCESS)


MASKS = [
    (r"\b[0-9A-F]{32,56}\b", "ID"),
    (r"127\.0\.0\.1[:@][0-9#@]+", "CLIENT"),
    (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,]\d+)?", "TIME"),
    (r"\d+\.\d+(E-?\d+)?", "REAL"),
    (r"\b20\d{12,15}\b", "TIME"),
    (r"\b1[6-9]\d{11}\b", "MILLIS"),
    (r"\b\d+(?=ms\b|\(ms\))", "MS"),
    (r"(@|Lambda\$\d+/0x)[0-9a-f]{5,16}\b", "HASH"),
    (r"spentTimeMills=\d+", "spentTimeMills=MS"),
    (r"((get|put)MessageEntireTimeMax\s*:|istenPort\s*=)\s*\d+", r"\1 NUMBER"),
    (r"(runtime +:|remainHowManyDataToFlush *:) .*", r"\1 ..."),
    # One number for each of 10 s, 1 min and 10 min that a broker has lived; Java's null at first.
    (r"(\w+Tps *:)( REAL)+", r"\1 REAL"),
    (r"(putMessageDistributeTime *:) .*", r"\1 ..."),
    (r"(PUSH +CLUSTERING) +\d+", r"\1 TPS"),
    (r"(broker-a +\d +true) +\d+", r"\1 MS"),
    # Messages read: 31, and either half message once more where a check of transactions, of which
    # there is one every 2 s, falls between it and its end.
    (r"(msgGetTotalTodayNow *:|broker-a +0 +0 +41) +3[1-3]\b", r"\1 31 to 33"),
]
# Where in a Java program something was thrown, or its threads are.
NOISE = re.compile(
    r"at [\w.$]+\(|at java\.base/|\.\.\. \d+ more|For more information|See http|"
    r".* TID: \d+ STATE|\S+ +(java\.base@|app//|\S+/)\S+\(.*\)$"
)


def masked(text: str, side: Side) -> Counter[str]:
    """Lines without what differs between any two runs: addresses, times, ids, rates, order."""
    for address, name in (
        (side.master.address, "MASTER"),
        (side.slave.address, "SLAVE"),
        (side.namesrv, "NAMESRV"),
        (str(side.rig.directory), "DIR"),
        (f"-{side.name}", "-SIDE"),
    ):
        text = text.replace(address, name)
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return Counter(line for line in lines if line and not NOISE.match(line))


def flat(value: Any, path: str = "") -> Iterator[str]:
    """A JSON value as lines of path and leaf."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from flat(item, f"{path}[]")
    else:
        yield f"{path} = {json.dumps(value)}"
