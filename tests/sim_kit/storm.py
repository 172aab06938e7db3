"""
Runs whole brokers in controller mode under faults from a seed, and checks their promises all the
time.

Brokers and controllers crash, lose power with all bytes that were not synced, stop in an orderly
way, and come back, some at once. Lines are slow, or cut in one direction or both; disks are slow;
wall clocks differ, and are set. Faults also happen while messages are on the way. Every put is
synced on the disks of all brokers that are in sync.

Spec: controller.md, chapters 3, 7, 8 and 14.
"""

from collections.abc import Callable
from itertools import pairwise
from random import Random

from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers, accepts
from tests.sim_kit.progress import Broken, Progress
from tests.sim_kit.promises import Promises

STEPS = 30
READ_EVERY = 3
LOOK_S = 0.05
CALM_S = 1.0
"""Seconds after which messages on slow lines have arrived."""
CLOCKS_MS = (0, 0, -3_600_000, -2_000, 150, 86_400_000)
SIZES = (1, 1, 20, 300, 3000)


def _quiet(line: str) -> None:
    """Discard a line of the history."""


class Storm:
    """
    Brokers, a client that sends to all of them, and the faults that a seed draws.

    :param write: takes each line of the history.
    :cvar scenes: the chance that a step begins with a story: several faults that would seldom
        happen together by chance.
    :ivar options: the options that were drawn from the seed, as text.
    :ivar history: the lines of the history, for people.
    :ivar promises: the messages that were sent and acknowledged, with their times.
    """

    scenes = 0.1

    def __init__(self, seed: int, write: Callable[[str], None] = _quiet) -> None:
        self.history: list[str] = []
        self._write = write
        self.promises = Promises()
        self._random = random = Random(seed)
        self._frame = random.choice((40, 150, 32768))
        self.brokers = ControlledBrokers(
            random.choice((2, 2, 3)), random.choice((1, 1, 3)), self._change, seed
        )
        self.world, self.findings = self.brokers.world, self.brokers.findings
        self._clock, self._network = self.world.clock, self.world.network
        counts = len(self.brokers.nodes), len(self.brokers.desk.hosts)
        self.options = f"{counts[0]} brokers, {counts[1]} controllers, frames of {self._frame}"
        self._is_disturbed = False
        self._calm_at = self._last = 0.0
        self._seen: list[bytes] = []
        self._progress = Progress(self.brokers)
        for node in self.brokers.nodes:
            self._watch(node)
        hosts = [node.host for node in self.brokers.nodes] + self.brokers.desk.hosts
        for host in hosts:
            host.step_clock(random.choice(CLOCKS_MS))

    def _change(self, configuration: BrokerConfiguration) -> None:
        configuration.ours.check_committed_offsets = False  # `Progress` commits beyond the queues
        store, mode = configuration.store, configuration.controlled
        store.flush_disk_type = FlushDiskType.SYNC_FLUSH
        store.slave_timeout = 1000
        store.ha_transfer_batch_size = self._frame
        mode.controller_heart_beat_timeout_mills = 4000
        mode.ha_max_time_slave_not_catchup = 3000

    def _watch(self, node: BrokerNode) -> None:
        node.store.log.subscribe(self._grew)

    def _grew(self) -> None:
        accepting = [node for node in self.brokers.nodes if accepts(node)]
        if len(accepting) > 1:
            raise Broken(f"{[node.host.name for node in accepting]} accept at once")
        for master in accepting:
            if uncounted := self.brokers.electable(master):
                raise Broken(f"{uncounted} can be elected, and puts do not wait for it")

    # ------------------------------------------------------------ what a client does

    def _send(self) -> None:
        """Send a message to every running broker, without waiting for the answers."""
        brokers, random = self.brokers, self._random
        for node in brokers.nodes:
            if node.state == "running":
                text = f"{len(self.promises.attempts)}|" + "." * random.choice(SIZES)
                self.promises.sent(text, self._clock.seconds())
                request = send_request("producers", TOPIC, 0, text.encode(), "", brokers.now_ms())
                address = f"{node.host.ip}:{LISTEN_PORT}"
                answered = brokers.client.invoke(address, request, 5000)
                answered.addBoth(self._answered, text)

    def _answered(self, answer: RemotingCommand | Failure, text: str) -> None:
        if isinstance(answer, RemotingCommand) and answer.code == 0:
            self.promises.acknowledged(text, self._clock.seconds())

    # ------------------------------------------------------------ what goes wrong

    def _step(self) -> None:
        random = self._random
        node = random.choice(self.brokers.nodes)
        if random.random() < self.scenes:
            random.choice(self._stories())()
        action = random.random()
        moment = random.choice((0.0, 0.001, 0.003, 0.01, 0.05)) * random.random()
        seconds = LOOK_S * random.choice((1, 2, 10, 20, 60))
        if action < 0.12:
            self._later(moment, self._crash, node, random.random() < 0.5)
        elif action < 0.2:
            pause = random.choice((0.02, 0.3, 2.0)) * random.random()
            self._fall(node, moment, moment + pause, random.random() < 0.6)
        elif action < 0.23:
            self._stop(node)
        elif action < 0.45:
            self._boot(node)
        elif action < 0.58:
            self._later(moment, self._disturb, node)
        elif action < 0.72:
            self._heal()
        elif action < 0.78:
            self._controller(random.randrange(len(self.brokers.desk.hosts)))
        elif action < 0.81:
            self._note(f"clock of {node.host.name}")
            node.host.step_clock(random.choice(CLOCKS_MS))
        for _ in range(random.choice((0, 1, 3, 8))):
            self._later(random.choice((0.004, seconds)) * random.random(), self._send)
        self._progress.begin()
        for _ in range(round(seconds / LOOK_S)):
            self.brokers.run(LOOK_S)
            self._grew()
            is_disturbed = self._is_disturbed or self.now < self._calm_at
            self._progress.go_on(self.brokers.master(), is_disturbed)

    def _stories(self) -> tuple[Callable[[], None], ...]:
        return self._black_out, self._strand, self._return_late, self._fall_while_sending

    def _black_out(self) -> None:
        """
        Let all brokers lose power at once while messages are on the way; each comes back at its own
        time.
        """
        moment = self._burst(5, 0.02)
        for node in self.brokers.nodes:
            self._fall(node, moment, moment + self._random.choice((0.5, 3.0, 12.0)), True)

    def _strand(self) -> None:
        """
        Cut the master off from all machines except clients. It goes on for as long as its lease
        allows, and may fall.
        """
        master = self.brokers.master()
        if master is None:
            return
        self._is_disturbed = True
        here = master.host.name
        self._note(f"strand {here}")
        others = [node.host for node in self.brokers.nodes if node is not master]
        for host in [*others, *self.brokers.desk.hosts]:
            self._network.partition(here, host.name)
        moment = self._burst(10, self._random.choice((0.01, 2.0, 9.0)))
        if self._random.random() < 0.5:
            self._fall(master, moment, moment + 1.0, self._random.random() < 0.5)
        self._later(moment + self._random.choice((0.0, 6.0)), self._heal)

    def _return_late(self) -> None:
        """
        Let a slave fall, miss many messages, and come back on a slow line; then let the master
        fall.
        """
        random, master = self._random, self.brokers.master()
        if master is None:
            return
        moment = self._miss_much(master, 0.05)
        for _ in range(10):
            self._later(moment + 1.5 * random.random(), self._send)
        falls = moment + 1.5 * random.random()
        self._fall(master, falls, moment + 8.0, random.random() < 0.5)
        self._later(moment + 8.0, self._heal)

    def _miss_much(self, master: BrokerNode, delay: float) -> float:
        """
        Let a slave fall while many messages are sent, and come back on a slow line.

        :returns: in how many seconds the slave is back.
        """
        random = self._random
        node = random.choice([node for node in self.brokers.nodes if node is not master])
        self._crash(node, random.random() < 0.5)
        self._is_disturbed = True
        self._network.slow(master.host.name, node.host.name, delay)
        moment = self._burst(20, 5.0)
        self._later(moment, self._boot, node)
        return moment

    def _fall_while_sending(self) -> None:
        """Let the master fall while it sends many messages to its slaves."""
        master = self.brokers.master()
        moment = self._burst(10, 0.01)
        if master is not None:
            falls = moment * self._random.random()
            self._fall(master, falls, moment + self._random.choice((0.0, 7.0)), True)

    def _burst(self, count: int, seconds: float) -> float:
        """
        Send a number of messages within some seconds.

        :returns: in how many seconds the last one leaves.
        """
        for _ in range(count):
            self._later(seconds * self._random.random(), self._send)
        return seconds

    def _fall(self, node: BrokerNode, falls: float, back: float, power: bool) -> None:
        """Let a broker fall and come back, each a number of seconds from now."""
        self._later(falls, self._crash, node, power)
        self._later(back, self._boot, node)

    def _later(self, seconds: float, function, *args: object) -> None:  # type: ignore[no-untyped-def]
        self._last = max(self._last, self.now + seconds)
        self._clock.call_at(self.now + seconds, function, *args)

    def _crash(self, node: BrokerNode, power: bool) -> None:
        if node.state in ("running", "starting") and node.host.is_running:
            self._note(f"{'power of' if power else 'crash'} {node.host.name}")
            node.crash(power=power)
            self._progress.begin()

    def _stop(self, node: BrokerNode) -> None:
        if node.state == "running":
            self._note(f"stop {node.host.name}")
            node.stop()

    def _boot(self, node: BrokerNode) -> None:
        if node.state == "down":
            self._note(f"boot {node.host.name}")
            node.load()
            if self.brokers.is_overstated(node):
                raise Broken(f"{node.host.name} vouches for what its queues do not have")
            self._watch(node)
            node.start()

    def _disturb(self, node: BrokerNode) -> None:
        """Disturb a broker's line to another broker or to a controller, or make its disk slow."""
        random, here = self._random, node.host.name
        others = [neighbour.host.name for neighbour in self.brokers.nodes if neighbour is not node]
        other = random.choice(others + [host.name for host in self.brokers.desk.hosts])
        how = random.choice(("cut", "cut", "to", "from", "slow", "disk"))
        self._note(f"{how} {here} {other}")
        self._is_disturbed = True
        if how == "cut":
            self._network.partition(here, other)
        elif how == "to":
            self._network.cut(here, other)
        elif how == "from":
            self._network.cut(other, here)
        elif how == "slow":
            self._network.slow(here, other, 0.3)
        else:
            self._slow_down(node)

    @staticmethod
    def _slow_down(node: BrokerNode) -> None:
        if node.host.is_running:
            node.host.worker.delay = (0.02, 0.4)

    def _heal(self) -> None:
        self._note("heal")
        self._network.heal()
        for node in self.brokers.nodes:
            node.host.worker.delay = node.host.worker.usual_delay
        self._is_disturbed, self._calm_at = False, self.now + CALM_S

    def _controller(self, number: int) -> None:
        desk = self.brokers.desk
        if desk.hosts[number].is_running:
            self._note(f"controller {number} crashes")
            desk.crash(number, power=self._random.random() < 0.5)
        else:
            self._bring_back(number)

    def _bring_back(self, number: int) -> None:
        self._note(f"controller {number} is back")
        desk = self.brokers.desk
        desk.hosts[number].restart()
        desk.services[number] = desk.make(number)
        desk.services[number].start().addErrback(lambda _: None)

    def _note(self, what: str) -> None:
        self.history.append(f"{self.now:.3f} {what}")
        self._write(self.history[-1])

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self._clock.seconds()

    # ------------------------------------------------------------ what has to hold

    def _read(self) -> None:
        """
        Check that a message that could be read once can always be read: the queues of all brokers
        are beginnings of the longest one.
        """
        running = [node for node in self.brokers.nodes if node.state == "running"]
        queues = sorted([*map(self.brokers.bodies, running), self._seen], key=len)
        for shorter, longer in pairwise(queues):
            if longer[: len(shorter)] != shorter:
                raise Broken("what could be read once cannot be any more, or not by all")
        self._seen = queues[-1]

    def run(self) -> None:
        """
        Run the storm from the first message to the last check.

        :raises AssertionError: a promise was broken.
        """
        brokers = self.brokers
        brokers.in_sync(len(brokers.nodes))
        for number in range(STEPS):
            self._step()
            if number % READ_EVERY == 0:
                self._read()
        brokers.run(max(self._last - self.now, 0.0))
        self._heal()
        for number, host in enumerate(brokers.desk.hosts):
            if not host.is_running:
                self._bring_back(number)
        brokers.until(lambda: all(self._settled(node) for node in brokers.nodes), 60.0)
        for node in brokers.nodes:
            if node.state == "down":
                brokers.boot(node)
        brokers.until(self._is_whole, 120.0)
        brokers.run(6.0)
        self._read()
        self._judge()

    def _judge(self) -> None:
        """Check all promises at the end, when all brokers have caught up."""
        brokers, master = self.brokers, self.brokers.leader()
        everything = self._seen
        present, where = [body.decode() for body in everything], "the queue"
        breaches = self.promises.breaches(present, where)
        for breach in breaches or self.promises.order_breaches(present, where):
            raise Broken(breach.text)
        log = master.store.log
        for node in brokers.nodes:
            if brokers.bodies(node) != everything or node.store.log.max_offset != log.max_offset:
                raise Broken(f"{node.host.name} has not what {master.host.name} has")
            low = max(log.min_offset, node.store.log.min_offset)
            for position in range(low, log.max_offset, 1 << 15):
                if node.store.log.read(position, 1 << 15) != log.read(position, 1 << 15):
                    raise Broken(f"logs differ behind {position}")
        if brokers.findings.violations or brokers.world.clock.failures:
            raise Broken(f"{brokers.findings.violations}{brokers.world.clock.failures}")

    def _is_whole(self) -> bool:
        """
        Return whether all brokers are in sync, and both ends of each connection exist.

        The controllers alone are not enough: they may list a broker as in sync that does not know
        yet that its master has died.
        """
        brokers, master = self.brokers, self.brokers.master()
        if master is None or len(brokers.desk.info()[1].members) < len(brokers.nodes):
            return False
        others = [node for node in brokers.nodes if node is not master]
        return all(Progress.follows(node, master) for node in others)

    def _settled(self, node: BrokerNode) -> bool:
        if node.state == "failed":
            raise Broken(f"{self.brokers.findings.violations}")
        return node.state in ("running", "down")
