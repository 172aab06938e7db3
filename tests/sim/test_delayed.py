"""
Delayed messages when the master dies and its slave becomes the master.

Each is delivered at least once; the new master's log has one copy of each, wherever the old master
was and however old, or how far ahead, the slave's copy of the progress is.
"""

from collections import Counter

import pytest

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.broker.tables.delay_offsets import delay_offset_body
from rmq_ha.server.store.delay.lookback import LookBack
from rmq_ha.testing.cluster import LISTEN_PORT
from rmq_ha.testing.workload import TOPICS
from tests.sim_kit.pair import PairOptions
from tests.sim_kit.promises import COPIES, LOST, Promises
from tests.sim_kit.simcluster import SimCluster

LEVELS = "1s 2s 4s 9s"


class DelayedMessages:
    """A cluster whose clients send delayed messages, some 70 a second, until the master dies."""

    def __init__(self, seed: int, role: BrokerRole) -> None:
        self.cluster = SimCluster(seed, PairOptions(role, file_size=1 << 20))
        self.random = self.cluster.world.random("delayed")
        for node in (self.cluster.master, self.cluster.slave):
            node.configuration.store.message_delay_level = LEVELS
        self.client = RemotingClient(self.cluster.client_host.seams, NettyClientConfig())
        self.accepted: set[str] = set()
        self.target = self.cluster.master
        self.count = 0
        self.is_sending = True

    def run(self, seconds: float) -> None:
        self.cluster.world.clock.run_for(seconds)

    def send_on(self) -> None:
        if not self.is_sending:
            return
        self.cluster.client_host.clock.callLater(self.random.expovariate(20), self.send_on)
        for _ in range(self.random.choice((1, 2, 8))):
            self.send()

    def send(self) -> None:
        self.count += 1
        unique = f"d{self.count:06d}"
        level = self.random.randint(1, 4)
        text = f"UNIQ_KEY\x01{unique}\x02DELAY\x01{level}\x02WAIT\x01true"
        request = send_request(
            "g", self.random.choice(TOPICS), 0, b"x", text, self.cluster.client_host.now_ms()
        )
        address = f"{self.target.host.ip}:{LISTEN_PORT}"
        asked = self.client.invoke(address, request, 5000)
        asked.addCallback(lambda answer: self.accepted.add(unique) if answer.code == 0 else None)
        asked.addErrback(lambda failure: failure.trap(RemotingError))

    def fail_over(self, power: bool) -> None:
        """The master dies; an operator stops the slave and starts it as the master."""
        slave = self.cluster.slave
        self.cluster.master.crash(power)
        self.is_sending = False
        self.run(self.random.random() * 3)
        slave.stop()
        self.cluster.world.clock.run_while(lambda: slave.state != "down", 60)
        slave.configuration.store.broker_role = BrokerRole.ASYNC_MASTER
        slave.configuration.broker.broker_id = 0
        slave.load()
        slave.start()

    def copies(self, node) -> Counter[str]:
        """Delivered messages by unique id."""
        records = node.log_image().records()
        return Counter(record.unique_id for record in records if record.topic in TOPICS)

    def scheduled(self, node) -> set[str]:
        records = node.log_image().records()
        return {record.unique_id for record in records if record.topic == SCHEDULE_TOPIC}


def run_scenario(
    seed: int, role: BrokerRole, steps_ms: tuple[int, ...] = ()
) -> tuple[DelayedMessages, set[str]]:
    """
    Returns the scenario at its end, and what the dead master had delivered.

    :param steps_ms: how the master's clock is set, one after the other.
    """
    made = DelayedMessages(seed, role)
    made.cluster.start()
    made.run(8)
    made.send_on()
    for step_ms in steps_ms:
        made.run(2 + made.random.random() * 5)
        made.cluster.master.host.step_clock(step_ms)
    made.run(5 + made.random.random() * 15)
    if role is BrokerRole.ASYNC_MASTER and seed % 2:
        slave, master = made.cluster.slave, made.cluster.master
        slave.replication.stop()
        made.run(11)
        # The log came over a slow line, and falls behind. The tables came in time.
        levels = master.broker.store.schedule.offset_table
        slave.broker.delay_offsets.take(delay_offset_body(levels))
    before = set(made.copies(made.cluster.master))
    made.fail_over(power=seed % 3 == 0)
    made.run(25)
    return made, before


def breaches(made: DelayedMessages) -> dict[str, tuple[str, ...]]:
    """The messages that the new master has and has not delivered once, by the broken promise."""
    slave, promises = made.cluster.slave, Promises()
    for unique_id in made.scheduled(slave):
        promises.sent(unique_id)
        promises.acknowledged(unique_id)
    present = made.copies(slave).elements()
    return {breach.kind: breach.ids for breach in promises.breaches(present, "the new master")}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
def test_fail_over(seed: int, role: BrokerRole) -> None:
    """Everything that the new master has is delivered, and nothing twice."""
    made, before = run_scenario(seed, role)
    scheduled = made.scheduled(made.cluster.slave)
    assert len(scheduled) > 100
    assert len(before) > 50
    assert breaches(made) == {}
    if role is BrokerRole.SYNC_MASTER:
        assert made.accepted <= scheduled


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
def test_fail_over_after_steps_of_the_clock(seed: int, role: BrokerRole) -> None:
    """An hour forward and back: stamps stand still in the future until long after the end."""
    made, before = run_scenario(seed, role, (3_600_000, -3_600_000))
    assert len(before) > 50
    assert breaches(made) == {}


def test_progress_file_alone_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the scenario finds when the log is not asked: hundreds come twice, others never."""
    monkeypatch.setattr(LookBack, "begin", lambda self, levels, ended_ms: None)
    assert len(breaches(run_scenario(0, BrokerRole.SYNC_MASTER)[0])[COPIES]) > 100
    assert len(breaches(run_scenario(1, BrokerRole.ASYNC_MASTER)[0])[LOST]) > 20
