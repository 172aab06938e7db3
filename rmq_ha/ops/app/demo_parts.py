"""Parts that the demos share: processes on free ports, sends that are counted, and the verdict."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.task import deferLater

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.host.ports import free_ports
from rmq_ha.base.model.printable import words_of
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.seams import Host
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.requests import pull_request, route_request, send_request
from rmq_ha.server.namesrv.namesrv import Namesrv

TOPIC = "Demo"
QUEUES = 4
IN_FLIGHT = 64
PROBE = -1
SAID_LINES = 15
KEY_MASK = (1 << 64) - 1

COMMON = """\
brokerClusterName=DemoCluster
brokerName=broker-a
timerWheelEnable=true
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
bindAddress=127.0.0.1
namesrvAddr=127.0.0.1:{namesrv}
listenPort={port}
storePathRootDir={store}
mappedFileSizeCommitLog=67108864
"""


@contextmanager
def broker(directory: Path, name: str, port: int, namesrv: int, role: str) -> Iterator[Any]:
    """
    Run a broker as `server` does, with the settings that all brokers of the demos have.

    :param namesrv: port of the name server.
    :param role: further lines of the properties file, such as those of the broker's role.
    """
    text = COMMON.format(namesrv=namesrv, port=port, store=directory / name)
    with server(directory, name, "rmqha", text + role) as process_and_output:
        yield process_and_output


@contextmanager
def server(directory: Path, name: str, plugin: str, text: str) -> Iterator[Any]:
    """
    Run a process of `twistd` while the block runs; it is killed at the end if it still runs. The
    block gets the process and the path of its output.

    :param name: beginning of the names of its files.
    :param plugin: the server's name in twistd.
    :param text: the text of its properties file.
    """
    (directory / f"{name}.properties").write_text(text)
    command = [sys.executable, "-m", "twisted.scripts.twistd"]
    twistd = Path(sys.executable).with_name("twistd")
    if twistd.exists():
        command = [str(twistd)]
    output = directory / f"{name}.log"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "-n", "--pidfile=", plugin, "--config", f"{name}.properties", "--ready"],
            cwd=directory,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    process_and_output = (process, output)
    try:
        yield process_and_output
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class Story:
    """A cluster, a crash, and the check of the messages; the steps that every demo has."""

    def __init__(self, host: Host, messages: int, console: Console) -> None:
        self.host = host
        self.messages = messages
        self.console = console
        self.client = RemotingClient(host, NettyClientConfig())
        self.acknowledged: set[int] = set()
        self.other: dict[str, int] = {}

    async def play(self, directory: Path, base: int) -> bool:
        """
        Start brokers, send, and kill one; the name server runs already.

        :param base: the name server's port; the ports above it are free.
        :returns: whether the messages are as they should be; see `verdict`.
        """
        raise NotImplementedError

    async def run(self, directory: Path, ports: int) -> bool:
        """
        Play the story beside a name server.

        :param ports: how many ports the story needs.
        :returns: the result of `play`.
        :raises click.ClickException: there are not so many free ports side by side.
        """
        try:
            base = free_ports(ports)
        except OSError as error:
            raise click.ClickException(str(error)) from None
        namesrv = Namesrv(
            self.host,
            NamesrvConfig(kv_config_path=str(directory / "kvConfig.json")),
            NettyServerConfig(listen_port=base),
            interface="127.0.0.1",
        )
        await namesrv.start()
        try:
            return await self.play(directory, base)
        finally:
            await self.client.stop()
            await namesrv.stop()

    async def wait_ready(self, *brokers: Any) -> None:
        """
        Wait until the processes print that they are ready.

        :raises click.ClickException: a process does not get ready; the error has its last lines.
        """
        for process, output in brokers:
            try:
                await self.wait_until(
                    partial(_says_ready, output), f"{output.name}: not ready", process
                )
            except click.ClickException as error:
                said = "\n".join(output.read_text().splitlines()[-SAID_LINES:])
                raise click.ClickException(f"{error.message}; it ends with:\n{said}") from None

    async def wait_until(
        self, condition: Callable[[], Awaitable[bool]], what: str, process: Any = None
    ) -> None:
        """
        Wait for a condition, at most 30 s.

        :raises click.ClickException: the condition does not come true.
        """
        for _ in range(300):
            try:
                if await condition():
                    return
            except RemotingError:
                pass
            if process is not None and process.poll() is not None:
                break
            await self.pause(0.1)
        raise click.ClickException(what)

    def pause(self, seconds: float) -> Deferred[None]:
        """Return a Deferred that fires after `seconds`."""
        return deferLater(self.host.clock, seconds)

    async def send(self, address: str, topic: str, queue_id: int, number: int) -> tuple[int, Any]:
        """Send one message, and return the code of the answer and the answer."""
        properties = f"UNIQ_KEY\x01{number & KEY_MASK:032X}\x02WAIT\x01true"
        request = send_request(
            "demo", topic, queue_id, str(number).encode(), properties, self.host.now_ms()
        )
        response = await self.client.invoke(address, request, 6000)
        return response.code, response

    async def produce(self, master: str) -> None:
        """Send all messages, and count the answers."""
        began = self.host.clock.seconds()
        window = DeferredSemaphore(IN_FLIGHT)
        columns = (
            TextColumn("sending"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task("send", total=self.messages)

            async def count(number: int) -> None:
                await self._count(master, number)
                progress.advance(task)

            def start(number: int) -> Deferred[None]:
                return Deferred.fromCoroutine(count(number))

            await gatherResults([window.run(start, n) for n in range(self.messages)])
        rate = self.messages / (self.host.clock.seconds() - began)
        self.console.print(
            f"{len(self.acknowledged):,} of {self.messages:,} acknowledged with SEND_OK"
            f" ({rate:,.0f}/s from this Python client);"
            f" other answers: {words_of(self.other) or 'none'}"
        )

    def count_other(self, reason: str) -> None:
        self.other[reason] = self.other.get(reason, 0) + 1

    async def _count(self, master: str, number: int) -> None:
        try:
            code, response = await self.send(master, TOPIC, number % QUEUES, number)
        except RemotingError as error:
            self.count_other(str(error))
            return
        if code == 0:
            self.acknowledged.add(number)
        else:
            reason = f"{code} {response.remark or ''}".strip()
            self.count_other(reason)

    async def route(self, namesrv: str, topic: str) -> dict[str, str]:
        """Return the addresses of a topic's broker by brokerId."""
        response = await self.client.invoke(namesrv, route_request(topic), 3000)
        if response.code != 0 or response.body is None:
            return {}
        addresses: dict[str, str] = {}
        for data in json.loads(response.body)["brokerDatas"]:
            addresses.update(data["brokerAddrs"])
        return addresses

    async def verdict(self, who: str, address: str) -> bool:
        """
        Read all messages back, and print the result.

        :param who: name of the broker at that address, for people.
        :returns: whether some messages were acknowledged, and all of these were read, each once and
            in the order of its queue.
        """
        queues = [await self._read_queue(address, queue_id) for queue_id in range(QUEUES)]
        read_back = [number for queue in queues for number in queue]
        missing = self.acknowledged.difference(read_back)
        in_order = all(queue == sorted(queue) for queue in queues)
        repeated = len(read_back) - len(set(read_back))
        self.console.print(
            f"read back from {who} at {address}: {len(read_back):,} messages;"
            f" acknowledged but missing: {len(missing)}; repeated: {repeated};"
            f" order per queue kept: {'yes' if in_order else 'NO'}"
        )
        good = bool(self.acknowledged) and not missing and not repeated and in_order
        self.console.print(
            "[green]nothing that was acknowledged is lost[/green]"
            if good
            else f"[red]FAILED[/red]: lost {words_of(sorted(missing)[:10])}"
        )
        return good

    async def _read_queue(self, address: str, queue_id: int) -> list[int]:
        numbers: list[int] = []
        offset = 0
        while True:
            response = await self.client.invoke(
                address, pull_request("TOOLS_CONSUMER", TOPIC, queue_id, offset), 6000
            )
            if response.code != ResponseCode.SUCCESS or response.body is None:
                return numbers
            pulled = [int(record.body) for record in decode_records(response.body)]
            numbers += [number for number in pulled if number != PROBE]
            offset = int((response.ext or {})["nextBeginOffset"])


async def _says_ready(output: Path) -> bool:
    return "READY {" in output.read_text()
