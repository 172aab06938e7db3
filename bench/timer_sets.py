"""The brokers of `bench/timers.py`: a classic pair, a set in controller mode, a DLedger group."""

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.base.wire.command import RemotingCommand
from tests.interop.groups import OK, Group
from tests.interop.pairs import Pair as ClassicPair
from tests.interop.rig import Rig, Server
from tests.interop.test_controller import ask
from tests.interop.test_controller_pairs import Pair as ControlledPair
from tests.interop.wire import Refused, Wire

TIMERS = {"timerWheelEnable": "true", "recallMessageEnable": "true"}
SIZES = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}
READY_S = 300.0
"""A JVM on a busy machine."""
_JAVA_TABLES_S = 12.0
"""A Java slave copies topics from its master every 10 s."""


class TimerRig(Rig):
    """
    Its brokers have timers, and files of a usual size.

    Its ports are none that tests take, which would take one while its broker is down.

    :param settings: what the brokers have instead of timers.
    :param ports: where free ports are looked for.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, Any] = TIMERS,
        ports: range = range(6200, 11_800, 8),
    ) -> None:
        super().__init__(directory)
        self.settings = {**settings, **SIZES}
        self._bases = itertools.cycle(ports)

    def ports(self, count: int = 4) -> int:
        for base in itertools.islice(self._bases, 700):
            with contextlib.ExitStack() as stack:
                try:
                    for port in range(base, base + count):
                        probe = stack.enter_context(socket.socket())
                        probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            return base
        raise RuntimeError("no free ports")

    def broker(self, conf: str, name: str, **options: Any) -> Server:
        return super().broker(conf, name, **{**self.settings, **options})


class TimerBrokers(ABC):
    """
    Brokers of one name.

    :ivar namesrv: the address of the name server.
    """

    namesrv = ""

    @abstractmethod
    def master(self) -> Server:
        """Return the process of the present master."""

    @abstractmethod
    def kill(self) -> str:
        """End the master by `kill -9`; return words for it."""

    @abstractmethod
    def mend(self) -> None:
        """Start what was killed, and wait until all members have the same log."""

    @abstractmethod
    def hand_over(self) -> str:
        """Make another member the master on purpose; return words for it."""

    @abstractmethod
    def servers(self) -> list[Server]:
        """Return all processes of brokers."""

    def make_topic(self, topic: str, queues: int) -> None:
        """Make the topic at the master."""
        with Wire(self.master().address) as wire:
            wire.create_topic(topic, queues)


class TimerPair(TimerBrokers):
    """A SYNC_MASTER and its slave, as of 4.9: an operator starts what was killed, or promotes."""

    def __init__(self, rig: Rig, random: Random) -> None:
        self._pair = ClassicPair(rig, java_master=False, java_slave=False)
        self._random = random
        self._is_down = False
        self.namesrv = self._pair.namesrv
        self._pair.wait_ok()

    def master(self) -> Server:
        return self._pair.master

    def kill(self) -> str:
        self._pair.master.kill()
        self._is_down = True
        return "kill -9 of the master, which starts again"

    def mend(self) -> None:
        if self._is_down:
            time.sleep(self._random.random() * 2)
            self._pair.restart_master()
        self._is_down = False
        self._pair.wait_ok(READY_S)

    def hand_over(self) -> str:
        is_killed = self._random.random() < 0.5
        if is_killed:
            self._pair.master.kill()
        else:
            self._pair.master.stop()
        self._pair.slave.stop()
        self._pair.swap()
        how = "killed" if is_killed else "stopped"
        return f"the master is {how}, and its slave starts as the master"

    def servers(self) -> list[Server]:
        return [self._pair.master, self._pair.slave]


class _SetWithTimers(ControlledPair):
    """Java's brokers have the settings of the rig, too."""

    rig: TimerRig

    def boot(self, name: str) -> None:
        self.settings = dict(self.rig.settings)
        if self.kinds[name] == "java":
            self.settings["mappedFileSizeTimerLog"] = 64 << 20
        super().boot(name)


class TimerSet(TimerBrokers):
    """
    Two brokers in controller mode, each made by `ours` or `java`.

    :param makes: of the first, of the second and of the controller.
    """

    def __init__(self, rig: TimerRig, makes: tuple[str, str, str]) -> None:
        if "java" in makes:
            # The rig gives 256 MiB, in which a replication that begins again has no room.
            rig.environment = {"_JAVA_OPTIONS": "-XX:MaxDirectMemorySize=1g"}
        self._pair = _SetWithTimers(rig, *makes)
        self._killed = ""
        self._has_java = "java" in makes[:2]
        self.namesrv = self._pair.namesrv
        self._pair.in_sync()

    @property
    def leader(self) -> str:
        """The make of the present master."""
        return self._pair.kinds[self._pair.master()]

    def master(self) -> Server:
        return self._pair.servers[self._pair.master()]

    def make_topic(self, topic: str, queues: int) -> None:
        super().make_topic(topic, queues)
        if self._has_java:
            time.sleep(_JAVA_TABLES_S)

    def kill(self) -> str:
        self._killed = self._pair.master()
        self._pair.servers[self._killed].kill()
        return f"kill -9 of the master ({self._pair.kinds[self._killed]})"

    def _until_other_than(self, name: str) -> None:
        def is_other() -> bool:
            with contextlib.suppress(OSError, StopIteration, AssertionError):
                return self._pair.master() != name
            return False

        self._pair.rig.until(is_other, READY_S, "another master", self._pair.sets.server)

    def mend(self) -> None:
        if self._killed:
            self._until_other_than(self._killed)
            self._pair.boot(self._killed)
            self._killed = ""
        pair = self._pair
        everyone = pair.sets.server, *pair.servers.values()
        pair.rig.until(lambda: len(pair.sets.info()[1]) == 2, READY_S, "a set of two", *everyone)

    def hand_over(self) -> str:
        sets, before = self._pair.sets, self._pair.master()
        leader = int(sets.info()[0]["masterBrokerId"])
        other = next(number for number in sets.info()[1] if number != leader)
        named = {"clusterName": "Peer5Cluster", "brokerName": sets.broker_name}
        chosen = {"brokerId": str(other), "designateElect": "true"}
        answer = ask(sets.address, RemotingCommand(1002, named | chosen), 30)
        if answer.code != 0:
            raise Refused(answer)
        self._until_other_than(before)
        return f"the controllers elect the other broker ({self.leader})"

    def servers(self) -> list[Server]:
        return list(self._pair.servers.values())


class TimerGroup(TimerBrokers):
    """A DLedger group of three."""

    def __init__(self, rig: Rig, random: Random) -> None:
        self._group = Group(rig, [False] * 3)
        self._random = random
        self._killed = ""
        self.namesrv = self._group.namesrv
        self._group.wait_leader()

    def master(self) -> Server:
        return self._group.wait_leader().server

    def kill(self) -> str:
        leader = self._group.wait_leader()
        leader.server.kill()
        self._killed = leader.name
        return "kill -9 of the leader"

    def mend(self) -> None:
        if self._killed:
            self._group.wait_leader(self._killed, seconds=READY_S)
            self._group.restart(self._killed)
            self._killed = ""
        self._group.wait_leader(seconds=READY_S)

    def hand_over(self) -> str:
        for _ in range(20):
            leader = self._group.wait_leader()
            names = [name for name in self._group.members if name != leader.name]
            if self._group.transfer(self._random.choice(names)) == OK:
                self._group.wait_leader(leader.name)
                return "the leader hands over"
            time.sleep(0.5)
        raise RuntimeError("no member takes the lead")

    def servers(self) -> list[Server]:
        return self._group.servers
