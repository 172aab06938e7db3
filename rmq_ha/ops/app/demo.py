"""`rmqha-demo`: a pair of brokers loses its master, and nothing that was acknowledged.

A name server in this process, a SYNC_MASTER and its slave as `twistd rmqha` processes on free
ports; some thousand messages; kill -9 of the master; everything is read back from the slave.
With `--dledger` it is the leader of a group of three (`demo_group`), with `--failover` a master
whose successor a controller elects (`demo_failover`).
"""

import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from rmq_ha.base.host.clock import make_steady
from rmq_ha.base.host.real import make_host
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.ops.app.demo_failover import BROKERS, FailoverStory
from rmq_ha.ops.app.demo_group import MEMBERS, GroupStory
from rmq_ha.ops.app.demo_parts import PROBE, TOPIC, Story, broker

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
