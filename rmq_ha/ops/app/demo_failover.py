"""FailoverStory: a demo in which a controller elects the other broker of a pair."""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from twisted.internet.defer import Deferred, gatherResults

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.printable import words_of
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.app.demo_parts import PROBE, QUEUES, TOPIC, Story, broker, server
from rmq_ha.server.controller.codec import decode_set
from rmq_ha.server.controller.codes import ControllerRequestCode

BROKERS = 2
SENDERS = 16
LIMIT_S = 60.0
PAUSE_S = 0.01
FAILOVER_KEYS = """\
enableControllerMode=true
controllerAddr=127.0.0.1:{controller}
allAckInSyncStateSet=true
"""
CONTROLLER_KEYS = """\
controllerDLegerPeers=n0-127.0.0.1:{port}
controllerStorePath={store}
bindAddress=127.0.0.1
mappedFileSize=1048576
"""


class FailoverStory(Story):
    """
    A master is killed, and the controller elects another one at once.

    :ivar directory: where the files of the processes are.
    :ivar addresses: the addresses of both brokers.
    """

    def __init__(self, host: Host, messages: int, console: Console) -> None:
        super().__init__(host, messages, console)
        self._master = ""
        self._number = 0
        self._last = self._pause = 0.0
        self._accepted_by: dict[str, int] = {}
        self.directory = Path()
        self.addresses: list[str] = []

    async def play(self, directory: Path, base: int) -> bool:
        """
        Send half of the messages before the kill and half after it; the senders find the new master
        by themselves.
        """
        ports = [base + 4 + 4 * number for number in range(BROKERS)]
        self.directory, self.addresses = directory, [f"127.0.0.1:{port}" for port in ports]
        text = CONTROLLER_KEYS.format(port=base + 1, store=directory / "controller")
        servers: dict[str, Any] = {}
        with ExitStack() as stack:
            stack.enter_context(server(directory, "controller", "rmqcontroller", text))
            for number, port in enumerate(ports):
                keys = self._keys(base, port)
                started = broker(directory, f"broker-{number}", port, base, keys)
                servers[f"127.0.0.1:{port}"] = stack.enter_context(started)
            await self.wait_ready(*servers.values())
            namesrv = f"127.0.0.1:{base}"
            await self._wait_pair(namesrv, f"127.0.0.1:{base + 1}", set(servers))
            self.console.print(f"controller and two brokers are up; {self._master} was elected")
            old = self._master
            sending = Deferred.fromCoroutine(self._send_on(namesrv))
            while self._accepted_by.get(old, 0) < self.messages // 2:
                await self.pause(PAUSE_S)
            self._last, self._pause = self.host.clock.seconds(), 0.0
            servers[old][0].send_signal(signal.SIGKILL)
            servers[old][0].wait()
            self.console.print("kill -9 of the master, while messages are sent")
            await sending
            self.console.print(
                f"{self._master} was elected; for {self._pause:.2f} s nothing was accepted"
            )
            self.console.print(
                f"{len(self.acknowledged):,} of {self._number:,} acknowledged with SEND_OK; "
                f"other answers: {words_of(self.other) or 'none'}"
            )
            return await self.verdict("the new master", self._master)

    def _keys(self, base: int, port: int) -> str:
        """Return the lines of a broker's properties file that belong to this story."""
        return FAILOVER_KEYS.format(controller=base + 1)

    async def _wait_pair(self, namesrv: str, controller: str, both: set[str]) -> None:
        """
        Wait until one broker leads and takes messages, and the other one is in sync and registered.
        """

        async def paired() -> bool:
            for address in both:
                if (await self.send(address, TOPIC, 0, PROBE))[0] == 0:
                    self._master = address
            route = await self.route(namesrv, TOPIC)
            ask = RemotingCommand(
                ControllerRequestCode.GET_REPLICA_INFO, {"brokerName": "broker-a"}
            )
            answer = await self.client.invoke(controller, ask, 3000)
            is_found = set(route.values()) == both and route.get("0") == self._master
            return is_found and len(decode_set(answer.body or b"").members) == BROKERS

        await self.wait_until(paired, "no broker was elected")

    async def _send_on(self, namesrv: str) -> None:
        """
        Send from several senders, each message once, until a second master has taken its half.
        """
        half, end = self.messages // 2, self.host.clock.seconds() + LIMIT_S

        async def one_after_the_other() -> None:
            while sum(count >= half for count in self._accepted_by.values()) < BROKERS:
                if self.host.clock.seconds() > end:
                    raise click.ClickException("no other broker took messages")
                number, self._number = self._number, self._number + 1
                master = self._master
                try:
                    code, _ = await self.send(master, TOPIC, number % QUEUES, number)
                except RemotingError as error:
                    self.count_other(type(error).__name__)
                else:
                    if code == 0:
                        self._accepted(master, number)
                        continue
                    self.count_other(str(code))
                await self.pause(PAUSE_S)
                await self._look(namesrv)

        await gatherResults([Deferred.fromCoroutine(one_after_the_other()) for _ in range(SENDERS)])

    def _accepted(self, master: str, number: int) -> None:
        now = self.host.clock.seconds()
        self._accepted_by[master] = self._accepted_by.get(master, 0) + 1
        self._pause = max(self._pause, now - self._last)
        self._last = now
        self.acknowledged.add(number)

    async def _look(self, namesrv: str) -> None:
        """Ask the name server for the current master."""
        try:
            self._master = (await self.route(namesrv, TOPIC)).get("0", self._master)
        except RemotingError:
            pass
