"""A cluster of real processes to be fuzzed over its ports: what it is, and what moved."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rmq_ha.base.host.blocking import BlockingCalls
from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire.bodies import TopicTable, decode_offset_table
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.live.live_ports import free_ports

BASES = range(25500, 25600, 4)
TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile="]
HONEST, STRANGER = "127.0.0.1", "127.0.0.66"
ADMIN = Credentials("adminadmin", "adminsecret")
DENIED = Credentials("nobodynobody", "nobodysecret")
ACCOUNTS = f"""accounts:
- {{accessKey: {ADMIN.access_key}, secretKey: {ADMIN.secret_key}, admin: true}}
- {{accessKey: {DENIED.access_key}, secretKey: {DENIED.secret_key}}}
"""
SMALL = """bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
storePathRootDir=store
mappedFileSizeCommitLog=16777216
maxHashSlotNum=1000
maxIndexNum=4000
aclEnable=true
aclDirectory=..
aclAccessKey=adminadmin
aclSecretKey=adminsecret
"""
NAMESRV = f"""bindAddress=127.0.0.1
kvConfigPath=kv
namesrvAllowedBrokers={HONEST}
aclEnable=true
aclDirectory=..
"""
TOPIC, GROUP = "Honest", "honest"


class Server:
    """One process, and what it may not do: die, log a traceback, keep what strangers sent."""

    def __init__(self, folder: Path, kind: str, settings: str) -> None:
        folder.mkdir()
        (folder / "p").write_text(settings)
        self.name = folder.name
        self.output = folder / "output.log"
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [*TWISTD, kind, "--config", "p"], cwd=folder, stdout=sink, stderr=sink
            )

    def memory(self) -> float:
        """MiB of its process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def descriptors(self) -> int:
        """How many files and connections it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def faults(self) -> list[str]:
        """What its log must not have."""
        said = self.output.read_text(errors="replace")
        found = [] if self.process.poll() is None else [f"{self.name} ended: {said[-2000:]}"]
        at = said.find("Traceback (most recent call last)")
        return found if at < 0 else [*found, f"{self.name}: {said[max(0, at - 300) : at + 2000]}"]

    def stop(self) -> None:
        """By its own rules, or not."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
            return
        self.process.kill()
        self.process.wait()


class Cluster:
    """
    A name server; with `is_whole` also a pair that knows a secret, and a DLedger member.

    :param is_whole: else the name server and the master alone.
    """

    def __init__(self, folder: Path, *, is_whole: bool) -> None:
        (folder / "plain_acl.yml").write_text(ACCOUNTS)
        (folder / "plain_acl.yml").chmod(0o600)
        names, self.master, slave, member = free_ports(4, BASES)
        self.names = names
        self.calls = BlockingCalls()
        self.servers: dict[str, Server] = {}
        self._folder = folder
        self._run(
            "ns",
            "rmqnamesrv",
            f"{NAMESRV}listenPort={names}\nmetricsPort={names + 1}\n",
        )
        common = f"{SMALL}namesrvAddr=127.0.0.1:{names}\nbrokerName=broker-a\n"
        secret = "haSecret=shared-by-the-pair\nhaSecretRequired=true\nhaAllowedSlaves=127.0.0.0/8\n"
        self._run("master", "rmqha", f"{common}{secret}brokerRole=SYNC_MASTER\nbrokerId=0\n"
                  f"listenPort={self.master + 2}\nmetricsPort={self.master + 1}\n")  # fmt: skip
        self.remoting = [self.master + 2, self.master, names]
        self.replication, self.pages = [self.master + 3], [self.master + 1, names + 1]
        self.peers: list[int] = []
        if is_whole:
            self._run("slave", "rmqha", f"{common}{secret}brokerRole=SLAVE\nbrokerId=1\n"
                      f"listenPort={slave + 2}\nmetricsPort={slave + 1}\n")  # fmt: skip
            self._run("member", "rmqha", f"{SMALL}namesrvAddr=127.0.0.1:{names}\n"
                      f"brokerName=broker-d\nlistenPort={member + 2}\nenableDLegerCommitLog=true\n"
                      f"dLegerGroup=broker-d\ndLegerSelfId=n0\n"
                      f"dLegerPeers=n0-127.0.0.1:{member + 3}\n")  # fmt: skip
            self.remoting += [slave + 2, slave, member + 2, member]
            self.replication.append(slave + 3)
            self.peers = [member + 3]
        self.brokers = [port for port in self.remoting if port % 4 == names % 4 + 2]
        try:
            self._prepare()
        except BaseException:
            self.stop()
            raise

    def _run(self, name: str, kind: str, settings: str) -> None:
        self.servers[name] = Server(self._folder / name, kind, settings)

    def ask(self, port: int, request: RemotingCommand) -> RemotingCommand:
        """As the admin."""
        return self.calls.invoke(f"127.0.0.1:{port}", sign(request, ADMIN), 60_000)

    def _until(self, what: str, is_true: Any) -> None:
        deadline = time.monotonic() + 90
        while True:
            with contextlib.suppress(Exception):
                if is_true():
                    return
            faults = [fault for server in self.servers.values() for fault in server.faults()]
            assert not faults, faults
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.1)

    def send(self, port: int, text: str = "honest") -> int:
        """An honest message; its code."""
        request = send_request("p", TOPIC, 0, text.encode(), "TAGS\x01a", 1)
        return self.ask(port, request).code

    def _prepare(self) -> None:
        """A topic, some messages and a group's offset at each master, and a slave that has all."""
        topic = {
            "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
        }  # fmt: skip
        offset = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "3"}
        is_whole = len(self.servers) > 2
        wanted = (0,) if is_whole else (0, 10, 11)
        for port in self.masters():
            made = RemotingCommand(17, topic)
            self._until(f"{port} takes a topic", partial(self._is_done, port, made))
            self._until(f"{port} stores", lambda port=port: self.send(port) in wanted)
            for _ in range(5):
                assert self.send(port) in wanted
            self.pull(port)
            assert self.ask(port, RemotingCommand(15, offset)).code == 0
        route = RemotingCommand(105, {"topic": TOPIC})
        self._until("the name server has a route", partial(self._is_done, self.names, route))
        if is_whole:
            self._until("the slave has all", lambda: self._tables(1) == self._tables(0))

    def _is_done(self, port: int, request: RemotingCommand) -> bool:
        return self.ask(port, request).code == 0

    def _tables(self, broker: int) -> list[Any]:
        return [self.table(self.brokers[broker], code) for code in (21, 201, 43)]

    def masters(self) -> list[int]:
        """Ports for clients of the brokers that take messages."""
        return [self.brokers[0], *self.brokers[2:]]

    def table(self, port: int, code: int) -> Any:
        """All topics (21), groups (201) or offsets (43) of a broker."""
        body = self.ask(port, RemotingCommand(code)).body or b""
        if code == 43:
            return decode_offset_table(body)
        return TopicTable.decode(body).topics if code == 21 else body

    def state(self) -> dict[str, Any]:
        """All that a stranger could want to move."""
        found: dict[str, Any] = {}
        for port in self.brokers:
            for code in (21, 201, 43):
                found[f"{port}/{code}"] = self.table(port, code)
            status = self.ask(port, RemotingCommand(28)).body or b""
            found[f"{port}/log"] = status.split(b'"commitLogMaxOffset":"')[1].split(b'"')[0]
            for queue in ("0", "1"):
                queue_of = {"topic": TOPIC, "queueId": queue}
                found[f"{port}/{queue}"] = self.ask(port, RemotingCommand(30, queue_of)).ext
        found["topics"] = self.ask(self.names, RemotingCommand(206)).body
        found["routes"] = self.ask(self.names, RemotingCommand(105, {"topic": TOPIC})).body
        found["cluster"] = self.ask(self.names, RemotingCommand(106)).body
        found["settings"] = self.ask(self.names, RemotingCommand(319)).body
        return found

    def pull(self, port: int) -> float:
        """An honest client reads; seconds."""
        began = time.monotonic()
        answer = self.ask(port, pull_request(GROUP, TOPIC, 0, 0))
        assert answer.code == 0
        return time.monotonic() - began

    def stop(self) -> None:
        """All of it."""
        self.calls.close()
        for server in self.servers.values():
            server.stop()
