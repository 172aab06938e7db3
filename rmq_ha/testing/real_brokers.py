"""Real brokers for the tests of applications: processes on free ports, stores that go again."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Self

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.host.ports import TAKEN, free_ports
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.lookup.administration import put_topic
from rmq_ha.client.lookup.brokers import replication_of, runtime_info, topic_configs
from rmq_ha.client.rules.errors import MQClientError, NoRoute
from rmq_ha.client.rules.messages import MessageExt

PORTS = 4
"""Of a broker: fast port, name server's, own, replication's."""
WAIT_SECONDS = 30.0
_TRIES = 3
"""Others look for free ports at the same time, and may be quicker."""
_COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=67108864
maxHashSlotNum=10000
maxIndexNum=40000
defaultTopicQueueNums=4
"""
_BESIDE_US = """\
import os, threading
def leave():
    os.read(0, 1)
    os._exit(1)
threading.Thread(target=leave, daemon=True).start()
from twisted.scripts.twistd import run
run()
"""
"""A server whose parent has gone, however that ended, has nobody left to serve."""


class ServerProcess:
    """
    One `twistd` process with its files.

    :ivar process: None before the first start.
    """

    def __init__(self, directory: Path, plugin: str) -> None:
        """:param plugin: `rmqha` or `rmqnamesrv`."""
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self._plugin = plugin
        self._runs = 0

    @property
    def output(self) -> str:
        """What this run wrote so far."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self.directory / f"output-{self._runs}.log"

    def begin(self, settings: str) -> None:
        """Start; see `wait`."""
        self._runs += 1
        (self.directory / "server.properties").write_text(settings)
        options = ("-n", "--pidfile=", self._plugin, "--config", "server.properties", "--ready")
        # Of the application's environment a broker takes no name server.
        environ = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        with self._log.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BESIDE_US, *options],
                cwd=self.directory,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> None:
        """
        Until it serves.

        :raises RuntimeError: it ended, or takes too long; with what it wrote.
        """
        assert self.process is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while "\nREADY {" not in self.output:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end(SIGKILL)
                raise RuntimeError(f"{self._plugin} does not serve:\n{self.output[-4000:]}")
            time.sleep(0.01)

    @property
    def is_running(self) -> bool:
        """It was started, and has not ended."""
        return self.process is not None and self.process.poll() is None

    def tell(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, number: int = SIGTERM) -> None:
        """End it, and wait for that; one that does not stop is killed."""
        if self.process is None:
            return
        self.tell(SIGCONT)
        self.tell(number)
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


class Servers:
    """
    What a broker and a pair have in common for those who test with them.

    :ivar namesrv_addr: for `ClientConfig`, `connect` or NAMESRV_ADDR.
    :ivar client: to look at what is there, and to send.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._topics = 0
        for left in reversed(range(_TRIES)):
            self._stack = ExitStack()
            try:
                self._begin()
                break
            except BaseException as error:
                self.close()
                if not left or TAKEN not in str(error):
                    raise

    def _begin(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and drop their stores; what they wrote to their logs stays."""
        self._stack.close()

    def new_topic(self, name: str = "topic", queues: int = 4) -> str:
        """
        Create a topic that no other test has.

        :param name: what its name begins with.
        :returns: its whole name.
        """
        self._topics += 1
        topic = f"{name}-{os.getpid()}-{self._topics}"
        self.client.run(put_topic(self.address, TopicConfig(topic, queues, queues)))
        return topic

    def messages(self, topic: str) -> list[MessageExt]:
        """All messages that a topic has, queue by queue; `%DLQ%group` is a topic, too."""
        client = self.client
        return [
            message
            for queue in client.queues(topic)
            for message in client.messages(
                queue, client.min_offset(queue), client.max_offset(queue)
            )
        ]

    namesrv_addr: str
    client: BlockingClient

    @property
    def address(self) -> str:
        """Of the broker, or of the master."""
        raise NotImplementedError

    def _serve(self, server: ServerProcess) -> ServerProcess:
        """It ends with us, and its store goes."""
        self._stack.callback(shutil.rmtree, server.directory / "store", ignore_errors=True)
        self._stack.callback(server.end)
        return server

    def _connect(self, namesrv_addr: str) -> None:
        self.namesrv_addr = namesrv_addr
        self.client = self._stack.enter_context(BlockingClient(namesrv_addr))


class RealBroker(Servers):
    """A master with its own name server, in one process, as soon as it is made."""

    def _begin(self) -> None:
        self._base = free_ports(PORTS)
        self.server = self._serve(ServerProcess(self.directory / "broker", "rmqha"))
        self.server.begin(
            f"{_COMMON}storePathRootDir=store\n"
            f"listenPort={self._base + 2}\nembeddedNamesrvPort={self._base + 1}\n"
        )
        self.server.wait()
        self._connect(f"127.0.0.1:{self._base + 1}")

    @property
    def address(self) -> str:
        """Of the broker."""
        return f"127.0.0.1:{self._base + 2}"


class _Member:
    """One of a pair: a process, a port, and what it is from its next start on."""

    def __init__(self, server: ServerProcess, port: int) -> None:
        self.server = server
        self.port = port

    def begin(self, namesrv_addr: str, role: str) -> None:
        """
        Start; with `wait` to follow.

        :param role: `brokerRole` and `brokerId`.
        """
        self.server.begin(
            f"{_COMMON}{role}storePathRootDir=store\nnamesrvAddr={namesrv_addr}\n"
            f"listenPort={self.port}\nslaveTimeout=1000\nhaSendHeartbeatInterval=1000\n"
        )


_MASTER = "brokerRole=SYNC_MASTER\nbrokerId=0\n"
_SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


class RealPair(Servers):
    """
    A SYNC_MASTER, its slave and a name server: three processes.

    What was answered SEND_OK both have; killing the master loses none of it.
    """

    def _begin(self) -> None:
        base = free_ports(1 + 2 * PORTS)
        self._is_paused = False
        self._connect(f"127.0.0.1:{base}")
        names = self._serve(ServerProcess(self.directory / "namesrv", "rmqnamesrv"))
        self._master, self._slave = (
            _Member(self._serve(ServerProcess(self.directory / name, "rmqha")), port)
            for name, port in (("a", base + 3), ("b", base + 3 + PORTS))
        )
        # Each needs a moment longer than what it asks for: who asks too early asks again in 2 s.
        names.begin(f"listenPort={base}\nbindAddress=127.0.0.1\nkvConfigPath=store/kvConfig.json\n")
        self._master.begin(self.namesrv_addr, _MASTER)
        names.wait()
        self._slave.begin(self.namesrv_addr, _SLAVE)
        self._master.server.wait()
        self._slave.server.wait()
        self._wait_until(self._is_whole, "the slave does not follow its master")

    @property
    def master(self) -> ServerProcess:
        """Whoever is, or was last."""
        return self._master.server

    @property
    def slave(self) -> ServerProcess:
        """The other one."""
        return self._slave.server

    @property
    def address(self) -> str:
        """Of the master."""
        return f"127.0.0.1:{self._master.port}"

    def kill_master(self) -> None:
        """
        `kill -9`: consumers go on at the slave, producers wait for a master.

        First the slave gets to know the topics of the messages that it has, as it would in time.
        """
        if self.master.is_running and not self._is_paused:
            self._wait_until(self._slave_knows, "the slave does not copy its master's topics")
        self.master.end(SIGKILL)
        self._is_paused = False

    def start_master(self) -> None:
        """The master that was killed comes back as what it was."""
        self._master.begin(self.namesrv_addr, _MASTER)
        self.master.wait()
        self._wait_until(self._is_whole, "the slave does not follow its master")

    def pause(self) -> ExitStack:
        """
        The master stops in the middle of whatever it does, and keeps its connections (SIGSTOP).

        :returns: for `with`, at whose end it goes on.
        """
        self.master.tell(SIGSTOP)
        self._is_paused = True
        stack = ExitStack()
        stack.callback(self.resume)
        return stack

    def resume(self) -> None:
        """A master that was paused goes on."""
        self.master.tell(SIGCONT)
        self._is_paused = False

    def fail_over(self) -> None:
        """
        The slave takes the place of the master, which is killed if it runs, as an operator does it.

        Afterwards the pair has a master alone; see `rejoin`.
        """
        self.kill_master()
        self.slave.end()
        self._master, self._slave = self._slave, self._master
        self._master.begin(self.namesrv_addr, "brokerRole=ASYNC_MASTER\nbrokerId=0\n")
        self.master.wait()

    def rejoin(self) -> None:
        """Whoever was killed comes back as the slave of the present master."""
        self._slave.begin(self.namesrv_addr, _SLAVE)
        self.slave.wait()
        self._wait_until(self._is_whole, "the old master does not follow the new one")

    def _slave_knows(self) -> bool:
        slave = f"127.0.0.1:{self._slave.port}"
        known = self.client.run(topic_configs(slave))
        unknown = self.client.run(topic_configs(self.address)).keys() - known.keys()
        return not any(
            self.client.max_offset(queue) for topic in unknown for queue in self._queues(topic)
        )

    def _queues(self, topic: str) -> list[MessageQueue]:
        try:
            return self.client.queues(topic)
        except NoRoute:  # of the broker's own topics
            return []

    def _is_whole(self) -> bool:
        info = self.client.run(runtime_info(self.address))
        slaves = replication_of(info).get("slaves", [])
        return any(slave["lag"] == 0 and slave["acked"] >= 0 for slave in slaves)

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _holds(condition):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{what}\n{self.master.output[-2000:]}{self.slave.output[-2000:]}"
                )
            time.sleep(0.02)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (RemotingError, MQClientError):
        return False
