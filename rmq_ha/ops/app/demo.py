"""`rmqha-demo`: shows that a pair of brokers that loses its master keeps all acknowledged messages.

The demo runs a name server in this process, and a SYNC_MASTER and its slave as `twistd rmqha`
processes on free ports. It sends some thousand messages, kills the master with kill -9, and reads
all messages back from the slave. With `--dledger` it kills the leader of a group of three, and
reads from the member that is elected. With `--failover` a controller elects the other broker of a
pair, and the senders find it by themselves; with `--sdk` they are RocketMQ 5's official SDK.
"""

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.host.clock import make_steady
from rmq_ha.base.host.real import make_host
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.ops.app.demo_failover import BROKERS, FailoverStory
from rmq_ha.ops.app.demo_parts import PROBE, TOPIC, Story, broker
from rmq_ha.ops.app.demo_sdk import SdkStory, missing_sdk

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
@click.option(
    "--sdk",
    is_flag=True,
    help="As --failover, but RocketMQ 5's official SDK for Python sends and reads, by gRPC.",
)
def main(messages: int, dledger: bool, failover: bool, sdk: bool) -> None:
    """Start a replicating pair, send, kill the master, read everything back from the slave."""
    if dledger and (failover or sdk):
        raise click.UsageError("--dledger elects for itself: take one of the two")
    if sdk and (reason := missing_sdk()):
        raise click.ClickException(reason)
    kind: type[Story]
    kind, ports = (GroupStory, GROUP_PORTS) if dledger else (PairStory, PAIR_PORTS)
    if failover:
        kind, ports = FailoverStory, FAILOVER_PORTS
    if sdk:
        kind, ports = SdkStory, FAILOVER_PORTS
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
