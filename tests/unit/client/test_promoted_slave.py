"""A slave that has less than its groups consumed is promoted: they skip nothing that comes new."""

import pytest

from rmq_ha.base.model.status import BrokerRole
from tests.unit.client.consuming import TOPIC, Consuming

SLAVE = {"broker_name": "a", "broker_id": 1}


class Promoted(Consuming):
    """A pair whose slave was away while 60 messages came and were consumed."""

    def __init__(self, **ours: bool) -> None:
        super().__init__("a")
        self.ours = ours
        self.add("slave", BrokerRole.SLAVE, broker=SLAVE, ours=ours)
        self.run(15)
        self.reader = self.consumer()
        self.send("a", 20)
        self.run(12)
        self.crash("slave")
        self.send("a", 60)
        self.run(8)
        assert len(self.got["c1"]) == 80

    def promote(self) -> None:
        """The master dies, the group commits its offsets at the slave, the slave is promoted."""
        self.crash("a")
        self.add("slave", BrokerRole.SLAVE, broker=SLAVE, ours=self.ours)
        self.run(40)
        offsets = self.brokers["slave"].consumer_offsets
        assert sum(offsets.queues("group", TOPIC).values()) == 80
        self.lead()

    def lead(self) -> None:
        self.wait(self.brokers.pop("slave").stop())
        master = {"broker_name": "a", "broker_id": 0}
        self.add("slave", BrokerRole.ASYNC_MASTER, broker=master, ours=self.ours)


@pytest.mark.parametrize("count", [40, 200])
@pytest.mark.parametrize("is_checked", [True, False])
def test_a_running_group_gets_all_that_comes_after_the_promotion(
    is_checked: bool, count: int
) -> None:
    """
    It holds the old master's offsets in memory, 60 messages ahead of the slave's queues.

    With RocketMQ it skips the first 60 messages, also if more than 60 came before it pulls.
    """
    cluster = Promoted(check_committed_offsets=is_checked)
    cluster.promote()
    new = cluster.send("slave", count)
    cluster.run(60)
    got = set(new) & set(cluster.got["c1"])
    assert len(got) == (count if is_checked else max(0, count - 60))
    assert sum(cluster.committed("slave").values()) == 20 + count
    cluster.wait(cluster.reader.stop())


def test_an_operator_may_set_a_group_ahead_of_what_it_read_here() -> None:
    """A tool waits for the answer, a member does not."""
    cluster = Promoted()
    cluster.promote()
    cluster.wait(cluster.reader.stop())
    cluster.send("slave", 40)
    cluster.run(1)
    offsets = cluster.brokers["slave"].client_offsets
    assert "has not read" in (offsets.commit("group", TOPIC, 0, 12) or "")
    assert offsets.commit("group", TOPIC, 0, 12, by_member=False) is None
    late = cluster.consumer("c2")
    cluster.run(20)
    assert len(cluster.got["c2"]) == 40 - (12 - 5)
    cluster.wait(late.stop())


def test_a_group_that_starts_later_gets_it_too() -> None:
    """Its offsets were set to the ends of the queues when the broker became the master."""
    cluster = Promoted()
    cluster.promote()
    assert sum(cluster.committed("slave").values()) == 20
    cluster.wait(cluster.reader.stop())
    assert sum(cluster.committed("slave").values()) == 20
    new = cluster.send("slave", 40)
    late = cluster.consumer("c2")
    cluster.run(30)
    assert set(new) <= set(cluster.got["c2"])
    cluster.wait(late.stop())


def test_a_master_that_lost_messages_is_no_other_case() -> None:
    """Its log ended sooner after a loss of power than its table of offsets says."""
    cluster = Promoted()
    offsets = cluster.brokers["a"].consumer_offsets
    cluster.wait(cluster.reader.stop())
    offsets.commit("group", TOPIC, 0, 99)
    offsets.commit("other", "gone", 3, 7)
    cluster.wait(cluster.brokers.pop("a").stop())
    cluster.add("a", ours={"keep_offsets_of_deleted_topics": True})
    assert cluster.committed("a")[0] == 20
    assert cluster.brokers["a"].consumer_offsets.query("other", "gone", 3) == 7
    cluster.wait(cluster.brokers.pop("a").stop())
    cluster.add("a")
    assert cluster.brokers["a"].consumer_offsets.query("other", "gone", 3) == 0
