"""
Real brokers for the tests of applications: processes on free ports; their stores are deleted at the
end.
"""

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
from rmq_ha.server.grpc.extra import missing_package

PORTS = 4
"""
Number of neighbouring ports of a broker, in this order: the fast port (`listenPort` - 2), the port
of its name server, `listenPort`, and the port for replication.
"""
WAIT_SECONDS = 30.0
_TRIES = 3
"""How often ports are chosen: another process may take the same free ports first."""
_COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=67108864
maxHashSlotNum=10000
maxIndexNum=40000
defaultTopicQueueNums=4
timerWheelEnable=true
popEnable=true
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
"""
The program of a server process. It runs twistd, and ends when the parent process is gone, in
whatever way the parent ended.
"""


class ServerProcess:
    """
    One `twistd` process with its files.

    :ivar process: the process; None before the first start.
    """

    def __init__(self, directory: Path, plugin: str) -> None:
        """:param plugin: name of the server for twistd, `rmqha` or `rmqnamesrv`."""
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self._plugin = plugin
        self._runs = 0

    @property
    def output(self) -> str:
        """The output of this run so far."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self.directory / f"output-{self._runs}.log"

    def begin(self, settings: str) -> None:
        """
        Start the process, and return before it serves; see `wait`.

        :param settings: the text of its properties file.
        """
        self._runs += 1
        (self.directory / "server.properties").write_text(settings)
        options = ("-n", "--pidfile=", self._plugin, "--config", "server.properties", "--ready")
        # A broker must not use the name server that the application's environment names.
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
        Wait until the server is ready.

        :raises RuntimeError: it ended, or takes too long; the text has its output.
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
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def tell(self, number: int) -> None:
        """Send the process a signal, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, number: int = SIGTERM) -> None:
        """
        End the process, and wait for its end. A process that does not end within 30 s is killed.

        :param number: the signal that is sent.
        """
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
    The methods that a broker and a pair have in common.

    :ivar namesrv_addr: the name server's address, for `ClientConfig`, `connect` or NAMESRV_ADDR.
    :ivar client: a client for looking at topics and messages, and for sending.
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
        """End all processes and delete their stores; their log files stay."""
        self._stack.close()

    def new_topic(self, name: str = "topic", queues: int = 4) -> str:
        """
        Create a topic that no other test has.

        :param name: beginning of the topic's name.
        :returns: the topic's whole name.
        """
        self._topics += 1
        topic = f"{name}-{os.getpid()}-{self._topics}"
        self.client.run(put_topic(self.address, TopicConfig(topic, queues, queues)))
        return topic

    def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic, queue by queue; `%DLQ%group` is a topic, too."""
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
        """`host:port` at which the broker, or the master of a pair, serves clients."""
        raise NotImplementedError

    def _serve(self, server: ServerProcess) -> ServerProcess:
        """Have the server ended, and its store deleted, when this object is closed."""
        self._stack.callback(shutil.rmtree, server.directory / "store", ignore_errors=True)
        self._stack.callback(server.end)
        return server

    def _connect(self, namesrv_addr: str) -> None:
        self.namesrv_addr = namesrv_addr
        self.client = self._stack.enter_context(BlockingClient(namesrv_addr))


class RealBroker(Servers):
    """A master with its own name server, in one process, as soon as it is made."""

    def _begin(self) -> None:
        self._base = free_ports(PORTS + 1)
        self._has_door = not missing_package()
        port = self._base + PORTS
        door = f"grpcServerPort={port}\npopEnable=true\n" if self._has_door else ""
        self.server = self._serve(ServerProcess(self.directory / "broker", "rmqha"))
        self.server.begin(
            f"{_COMMON}storePathRootDir=store\n{door}"
            f"listenPort={self._base + 2}\nembeddedNamesrvPort={self._base + 1}\n"
        )
        self.server.wait()
        self._connect(f"127.0.0.1:{self._base + 1}")

    @property
    def address(self) -> str:
        """`host:port` at which the broker serves clients."""
        return f"127.0.0.1:{self._base + 2}"

    @property
    def endpoints(self) -> str:
        """
        `host:port` for the SDKs of RocketMQ 5, which speak gRPC.

        :raises RuntimeError: the packages of `rmq-ha[grpc]` are not installed.
        """
        if not self._has_door:
            raise RuntimeError(missing_package())
        return f"127.0.0.1:{self._base + PORTS}"


class _MemberProcess:
    """One member of a pair: a process and a port. Its role is given at each start."""

    def __init__(self, server: ServerProcess, port: int) -> None:
        self.server = server
        self.port = port

    def begin(self, namesrv_addr: str, role: str) -> None:
        """
        Start the process; call `wait` afterwards.

        :param role: lines with `brokerRole` and `brokerId`.
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

    Both have every message that was answered SEND_OK, so killing the master loses none of these.
    """

    def _begin(self) -> None:
        base = free_ports(1 + 2 * PORTS)
        self._is_paused = False
        self._connect(f"127.0.0.1:{base}")
        names = self._serve(ServerProcess(self.directory / "namesrv", "rmqnamesrv"))
        self._master, self._slave = (
            _MemberProcess(self._serve(ServerProcess(self.directory / name, "rmqha")), port)
            for name, port in (("a", base + 3), ("b", base + 3 + PORTS))
        )
        # Each server takes a moment longer to start than the one that it asks; a server that asks
        # too early asks again after 2 s.
        names.begin(f"listenPort={base}\nbindAddress=127.0.0.1\nkvConfigPath=store/kvConfig.json\n")
        self._master.begin(self.namesrv_addr, _MASTER)
        names.wait()
        self._slave.begin(self.namesrv_addr, _SLAVE)
        self._master.server.wait()
        self._slave.server.wait()
        self._wait_until(self._is_whole, "the slave does not follow its master")

    @property
    def master(self) -> ServerProcess:
        """The present master, or the last one if it was killed."""
        return self._master.server

    @property
    def slave(self) -> ServerProcess:
        """The other member: the slave, or an old master until `rejoin` starts it as one."""
        return self._slave.server

    @property
    def address(self) -> str:
        """`host:port` at which the present master serves clients; `fail_over` changes it."""
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
        """
        Start the killed master again as a SYNC_MASTER, and wait until its slave follows it.

        :raises RuntimeError: the master does not start, or no slave follows it in time.
        """
        self._master.begin(self.namesrv_addr, _MASTER)
        self.master.wait()
        self._wait_until(self._is_whole, "the slave does not follow its master")

    def pause(self) -> ExitStack:
        """
        Pause the master with SIGSTOP: it stops at any place and keeps its connections.

        :returns: a context manager for `with`; the master goes on at its end.
        """
        self.master.tell(SIGSTOP)
        self._is_paused = True
        stack = ExitStack()
        stack.callback(self.resume)
        return stack

    def resume(self) -> None:
        """Let a paused master go on."""
        self.master.tell(SIGCONT)
        self._is_paused = False

    def fail_over(self) -> None:
        """
        Make the slave the master, as an operator does; the old master is killed if it runs.

        Afterwards the pair has a master alone; see `rejoin`.
        """
        self.kill_master()
        self.slave.end()
        self._master, self._slave = self._slave, self._master
        self._master.begin(self.namesrv_addr, "brokerRole=ASYNC_MASTER\nbrokerId=0\n")
        self.master.wait()

    def rejoin(self) -> None:
        """Start the member that was killed as the slave of the present master."""
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
        except NoRoute:  # the broker's own topics have no route
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
