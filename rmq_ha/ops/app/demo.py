"""`rmqha-demo`: shows that a pair of brokers that loses its master keeps all acknowledged messages.

The demo runs a name server in this process, and a SYNC_MASTER and its slave as `twistd rmqha`
processes on free ports. It sends some thousand messages, kills the master with kill -9, and reads
all messages back from the slave. With `--dledger` it kills the leader of a group of three, and
reads from the member that is elected. With `--failover` a controller elects the other broker of a
pair, and the senders find it by themselves.
"""

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.host.clock import make_steady
from rmq_ha.base.host.real import make_host
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.printable import words_of
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request
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
    """A master is killed, and the controller elects another one at once."""

    def __init__(self, host: Host, messages: int, console: Console) -> None:
        super().__init__(host, messages, console)
        self._master = ""
        self._number = 0
        self._last = self._pause = 0.0
        self._accepted_by: dict[str, int] = {}

    async def play(self, directory: Path, base: int) -> bool:
        """
        Send half of the messages before the kill and half after it; the senders find the new master
        by themselves.
        """
        ports = [base + 4 + 4 * number for number in range(BROKERS)]
        keys = FAILOVER_KEYS.format(controller=base + 1)
        text = CONTROLLER_KEYS.format(port=base + 1, store=directory / "controller")
        servers: dict[str, Any] = {}
        with ExitStack() as stack:
            stack.enter_context(server(directory, "controller", "rmqcontroller", text))
            for number, port in enumerate(ports):
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


MEMBERS = 3
GROUP_KEYS = """\
enableDLegerCommitLog=true
dLegerGroup=broker-a
dLegerPeers={peers}
dLegerSelfId={member}
"""


class GroupStory(Story):
    async def play(self, directory: Path, base: int) -> bool:
        """Play the story of three members, one of which is killed."""
        ports = [base + 3 + 4 * number for number in range(MEMBERS)]
        peers = ";".join(f"n{n}-127.0.0.1:{port - 1}" for n, port in enumerate(ports))
        members: dict[str, Any] = {}
        with ExitStack() as stack:
            for number, port in enumerate(ports):
                keys = GROUP_KEYS.format(peers=peers, member=f"n{number}")
                started = broker(directory, f"n{number}", port, base, keys)
                members[f"127.0.0.1:{port}"] = stack.enter_context(started)
            await self.wait_ready(*members.values())
            namesrv = f"127.0.0.1:{base}"
            leader = await self._wait_leader(namesrv, None)
            await self._wait_followers(namesrv, members)
            self.console.print(f"name server and three members are up; {leader} was elected")
            await self.produce(leader)
            members[leader][0].send_signal(signal.SIGKILL)
            members[leader][0].wait()
            self.console.print("kill -9 of the leader; the others wait 6 s for it, then vote")
            began = self.host.clock.seconds()
            new_leader = await self._wait_leader(namesrv, leader)
            took = self.host.clock.seconds() - began
            self.console.print(f"{new_leader} was elected and takes sends, after {took:.1f} s")
            return await self.verdict("the new leader", new_leader)

    async def _wait_leader(self, namesrv: str, old: str | None) -> str:
        """Wait until a member other than `old` leads and acknowledges a send."""
        leaders: list[str] = []

        async def leads() -> bool:
            leader = (await self.route(namesrv, TOPIC)).get("0")
            for address in [leader] if leader else self._addresses(namesrv):
                if address != old and (await self.send(address, TOPIC, 0, PROBE))[0] == 0:
                    leaders.append(address)
                    return True
            return False

        await self.wait_until(leads, "no member was elected")
        return leaders[0]

    def _addresses(self, namesrv: str) -> list[str]:
        """Return the addresses of all members. Before the first message the topic has no route."""
        base = parse_host_port(namesrv).port
        return [f"127.0.0.1:{base + 3 + 4 * number}" for number in range(MEMBERS)]

    async def _wait_followers(self, namesrv: str, members: dict[str, Any]) -> None:
        """Wait until all members serve the topic, and clients can find them."""

        async def complete() -> bool:
            if set((await self.route(namesrv, TOPIC)).values()) != set(members):
                return False
            for address in members:
                pull = pull_request("TOOLS_CONSUMER", TOPIC, 0, 0)
                try:
                    answer = await self.client.invoke(address, pull, 3000)
                except RemotingError:
                    return False
                if answer.code != ResponseCode.SUCCESS:
                    return False
            return True

        await self.wait_until(complete, "the followers did not join the leader")


PAIR_PORTS = 9
GROUP_PORTS = 1 + 4 * MEMBERS
FAILOVER_PORTS = 2 + 4 * BROKERS


class PairStory(Story):
    async def play(self, directory: Path, base: int) -> bool:
        """Play the story of a SYNC_MASTER that is killed, and its slave that stays."""
        with (
            broker(directory, "master", base + 3, base, "brokerRole=SYNC_MASTER\n") as master,
            broker(directory, "slave", base + 7, base, "brokerRole=SLAVE\nbrokerId=1\n") as slave,
        ):
            await self.wait_ready(master, slave)
            await self._wait_pair(f"127.0.0.1:{base}", f"127.0.0.1:{base + 3}")
            await self.produce(f"127.0.0.1:{base + 3}")
            master[0].send_signal(signal.SIGKILL)
            master[0].wait()
            self.console.print("kill -9 of the master")
            return await self.verdict("the slave", await self._wait_slave(f"127.0.0.1:{base}"))

    async def _wait_pair(self, namesrv: str, master: str) -> None:
        """Wait until the slave acknowledges a send, and the route names both brokers."""

        async def paired() -> bool:
            code, _ = await self.send(master, TOPIC, 0, PROBE)
            route = await self.route(namesrv, TOPIC)
            if code != 0 or "1" not in route:
                return False
            pull = pull_request("TOOLS_CONSUMER", TOPIC, 0, 0)
            return (await self.client.invoke(route["1"], pull, 3000)).code == ResponseCode.SUCCESS

        await self.wait_until(paired, "the slave did not join its master")
        self.console.print("name server, SYNC_MASTER and slave are up; the pair replicates")

    async def _wait_slave(self, namesrv: str) -> str:
        """Wait until the route names the slave alone, and return its address."""

        async def master_gone() -> bool:
            return list(await self.route(namesrv, TOPIC)) == ["1"]

        await self.wait_until(master_gone, "the name server still lists the dead master")
        return (await self.route(namesrv, TOPIC))["1"]


@click.command()
@click.option("--messages", default=5000, show_default=True, help="How many messages to send.")
@click.option(
    "--dledger", is_flag=True, help="Run a group of three brokers that elects its leader."
)
@click.option("--failover", is_flag=True, help="Run a pair whose controller elects the new master.")
def main(messages: int, dledger: bool, failover: bool) -> None:
    """Start a replicating pair, send, kill the master, read everything back from the slave."""
    if dledger and failover:
        raise click.UsageError("--dledger elects for itself: take one of the two")
    kind: type[Story]
    kind, ports = (GroupStory, GROUP_PORTS) if dledger else (PairStory, PAIR_PORTS)
    if failover:
        kind, ports = FailoverStory, FAILOVER_PORTS
    console = Console()
    good: list[bool] = []

    async def play(reactor: Any) -> None:
        make_steady(reactor)
        with tempfile.TemporaryDirectory(prefix="rmqha-demo-") as directory:
            story = kind(make_host(reactor), messages, console)
            good.append(await story.run(Path(directory), ports))

    try:
        react(lambda reactor: Deferred.fromCoroutine(play(reactor)))
    except SystemExit as stop:
        if stop.code:
            raise
    sys.exit(0 if good == [True] else 1)
