"""`rmqha-demo --dledger`: a group of three loses its leader, and nothing that was acknowledged.

A name server in this process, three members as `twistd rmqha` processes on free ports; some
thousand messages; kill -9 of the leader; everything is read back from the one that is elected.
"""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.ops.app.demo_parts import PROBE, TOPIC, Story, broker

MEMBERS = 3
KEYS = """\
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
                keys = KEYS.format(peers=peers, member=f"n{number}")
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
