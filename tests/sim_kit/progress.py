"""Checks that the offset of a consumer group never goes back, whichever broker is elected."""

from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers
from tests.sim_kit.promises import CommittedOffsets


class Broken(AssertionError):
    """A promise was broken."""


class Progress:
    """
    A group that commits every 50 ms.

    A broker that follows the master knows each commit 0.1 s later, and continues from it if it is
    elected.
    """

    def __init__(self, brokers: ControlledBrokers) -> None:
        self.offset = 0
        self._brokers = brokers
        self._seen = CommittedOffsets()
        self._floor: dict[tuple[str, int], int] = {}
        self._leads: tuple[str, int] | None = None

    def begin(self) -> None:
        """Begin to count anew, because a fault happened."""
        self._seen.forget()

    def go_on(self, master: BrokerNode | None, is_disturbed: bool) -> None:
        """
        Check the brokers that followed the master at the last three calls, then commit.

        :param is_disturbed: whether messages between machines may be lost at the moment.
        """
        if master is None:
            self.begin()
            return
        if self._leads != master.life:
            self._took_over(master)
        if is_disturbed:
            self.begin()
        self.offset += 1
        now = master.host.seams.clock.seconds()
        self._table(master).commit("group", TOPIC, 0, self.offset)
        for node in () if is_disturbed else self._brokers.nodes:
            name = f"{master.host.name} {node.host.name}"
            if node is master or not self.follows(node, master):
                self._seen.forget(name)
                continue
            if self._seen.count(name) >= 2:
                known = self._table(node).query("group", TOPIC, 0)
                self._seen.look_at_copy(name, known)
                if self._seen.faults:
                    raise Broken(f"{self._seen.faults[0]} within 0.1 s")
                self._floor[node.life] = known
            self._seen.commit(now, name, self.offset)

    def _took_over(self, master: BrokerNode) -> None:
        self._leads = master.life
        self.begin()
        known = max(self._table(master).query("group", TOPIC, 0), 0)
        floor = self._floor.get(master.life, 0)
        if known < floor:
            raise Broken(f"{master.host.name} leads at offset {known}, and had {floor}")
        self.offset = known
        self._floor.clear()  # all take what this one has: a restarted one, what it had written

    @staticmethod
    def _table(node: BrokerNode):  # type: ignore[no-untyped-def]
        return node.broker.consumer_offsets

    @staticmethod
    def follows(node: BrokerNode, master: BrokerNode) -> bool:
        """
        Return whether a broker follows the master. Both ends of the connection must exist, because
        a connection from before a crash has only one end.
        """
        if node.state != "running":
            return False
        slave = node.replication.statistics()
        link, address = slave.master, f"{master.host.ip}:{LISTEN_PORT}"
        known = [feed.broker_id for feed in master.replication.statistics().slaves]
        is_following = link is not None and (link.state, link.address) == (
            "following",
            address,
        )
        return is_following and slave.broker_id in known
