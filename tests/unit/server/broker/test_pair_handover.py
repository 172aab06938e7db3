"""A master and its slave exchange their roles while both run, or keep them."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.config import properties
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.ops.admin.handover import give_over_of
from rmq_ha.ops.admin.session import NOT_FOUND
from tests.unit.ops.admin.admin_kit import say
from tests.unit.server.broker.test_succession import TOPIC, TwoMasters, lines

SLAVE = BrokerRole.SLAVE
FILE = "/conf/broker.properties"


class RunningPair(TwoMasters):
    """`a` is the master and `b` its slave; each has a properties file."""

    def __init__(
        self,
        *,
        java: bool = False,
        role: BrokerRole = BrokerRole.SYNC_MASTER,
        forward_s: int = 0,
    ) -> None:
        """:param forward_s: `forwardAfterHandoverSeconds`."""
        super().__init__(java=java)
        self.forward_s = forward_s
        self.add("a", role)
        self.add("b", SLAVE)
        self.run(12)

    def add(self, name: str, role: BrokerRole = BrokerRole.SYNC_MASTER, **changes: Any) -> Any:
        """Start a broker as its file says, or with `role` if it has none."""
        host = self.hosts.get(name)
        if host is not None and host.disk.exists(FILE):
            told = self.file(name)
            role = BrokerRole(told["brokerRole"])
            changes["broker"] = {"broker_id": int(told["brokerId"])}
        changes["ours"] = {
            "forward_after_handover_seconds": self.forward_s,
            **changes.get("ours", {}),
        }
        broker = super().add(name, role, **changes)
        disk = self.hosts[name].disk
        if not disk.exists(FILE):
            number = broker.configuration.broker.broker_id
            disk.replace(FILE, f"# kept\nbrokerRole={role.value}\nbrokerId={number}\n".encode())
        broker.config_file.path = FILE
        return broker

    def file(self, name: str) -> dict[str, str]:
        text = self.hosts[name].disk.read_bytes(FILE).decode()
        return {item.key: item.value for item in properties.parse(text)}

    def hand_over(self, name: str, to: str) -> RemotingCommand:
        later = self.asker.invoke(
            self.address(name),
            RemotingCommand(RequestCode.HAND_OVER_PAIR, {"to": self.address(to)}),
            60_000,
        )
        answer = self.wait(later)
        assert isinstance(answer, RemotingCommand)
        return answer

    def leads(self, name: str, other: str) -> None:
        """`name` is the master for all that ask, and `other` follows it."""
        assert self.send(name).code == ResponseCode.SUCCESS
        assert self.send(other).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert self.named() == self.address(name)
        ends = [self.brokers[item].store.log.max_offset for item in (name, other)]
        assert ends[0] == ends[1]
        told = self.file(name)
        assert (told["brokerRole"], told["brokerId"]) == ("SYNC_MASTER", "0")
        assert (self.file(other)["brokerRole"], self.file(other)["brokerId"]) == ("SLAVE", "1")

    def count(self, name: str, queue_id: int = 0) -> int:
        """Number of messages that a consumer gets."""
        pulled = self.ask(name, pull_request("c", TOPIC, queue_id, 0, hold_ms=0))
        return int((pulled.ext or {})["maxOffset"])


@pytest.mark.parametrize("java", [False, True])
def test_the_roles_are_exchanged_to_and_fro(*, java: bool) -> None:
    """Files, name server, replication and counts say so; nothing is lost, and both go on."""
    pair = RunningPair(java=java)
    assert pair.send("a").code == 0
    for turn, (old, new) in enumerate([("a", "b"), ("b", "a"), ("a", "b")], 1):
        answer = pair.hand_over(old, new)
        assert answer.code == 0, answer.remark
        pair.run(3)
        pair.leads(new, old)
        assert pair.count(new) == 2 * turn
        assert pair.brokers[new].promotions.count == turn
        pair.run(65)
        assert pair.named() == pair.address(new)
        assert pair.send(new).code == 0


def test_hand_overs_soon_after_each_other_leave_one_master_that_name_servers_know() -> None:
    """Both yielded when the new master asked for the count of an old one that became a slave."""
    pair = RunningPair()
    told = lines(lambda: [exchange(pair, *names) for names in [("a", "b"), ("b", "a")] * 6])
    assert not [line for line in told if "TWO BROKERS" in line or "stands aside" in line]


def exchange(pair: RunningPair, old: str, new: str) -> None:
    answer = pair.hand_over(old, new)
    assert answer.code == 0, answer.remark
    pair.run(2)
    pair.leads(new, old)


def test_both_keep_their_new_roles_at_the_next_start() -> None:
    """In whichever order they start."""
    for order in ("ab", "ba"):
        pair = RunningPair()
        assert pair.hand_over("a", "b").code == 0
        pair.run(3)
        for name in order:
            pair.stop(name)
        for name in order:
            pair.add(name)
        pair.run(35)
        pair.leads("b", "a")


def test_a_master_whose_slave_does_not_follow_keeps_its_role() -> None:
    """It says why, and takes messages again at once."""
    pair = RunningPair()
    pair.crash("b", power=True)
    answer = pair.hand_over("a", "b")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "cannot take part in a hand-over" in (answer.remark or "")
    assert pair.send("a").code == ResponseCode.FLUSH_SLAVE_TIMEOUT, "as before the order"


def test_a_broker_without_a_file_a_slave_and_a_broker_of_another_kind_refuse() -> None:
    """Each says why it does not hand over."""
    pair = RunningPair()
    refused = pair.hand_over("b", "a")
    assert "only the master hands over" in (refused.remark or "")
    routes = pair.brokers["b"].dispatcher.routes
    del routes[RequestCode.TAKE_OVER_PAIR]  # as a broker of Java
    refused = pair.hand_over("a", "b")
    assert "cannot take part in a hand-over" in (refused.remark or "")
    pair.brokers["a"].config_file.path = None
    refused = pair.hand_over("a", "b")
    assert "without a properties file" in (refused.remark or "")
    assert pair.send("a").code == 0


def test_an_operator_orders_it_by_the_name_of_the_pair() -> None:
    """With --dry-run nothing happens; the second order finds nothing to do."""
    pair = RunningPair()

    def order(to: str | None, **sure: bool) -> Any:
        return say(pair, lambda session: give_over_of(session, "pair", to, **sure))

    assert order(None, yes=False, dry_run=True).code == 0
    assert pair.named() == pair.address("a")
    told = order(None, yes=True, dry_run=False)
    assert (told.code, told.last["master"]) == (0, pair.address("b")), told.err
    pair.run(3)
    pair.leads("b", "a")
    told = order("0", yes=True, dry_run=False)
    assert (told.code, told.last["changed"]) == (0, False)
    assert order("7", yes=True, dry_run=False).code == NOT_FOUND


def test_a_master_that_became_a_slave_knows_a_new_topic_soon() -> None:
    """A slave copies the tables when a message of an unknown topic arrives, not after 10 s."""
    pair = RunningPair()
    assert pair.hand_over("a", "b").code == 0
    pair.run(5)
    request = send_request("p", "Fresh", 0, b"body", "", pair.now_ms())
    assert pair.ask("b", request).code == 0
    pair.run(1)
    assert "Fresh" in pair.brokers["a"].topics.table


def test_a_slave_that_fails_to_lead_follows_its_master_again() -> None:
    """It had stopped to copy the log, and the master goes on."""
    pair = RunningPair()
    queues = pair.brokers["b"].store.queues
    queues.topic_queue_table, known = fail, queues.topic_queue_table
    assert pair.hand_over("a", "b").code != 0
    queues.topic_queue_table = known
    pair.run(5)
    assert pair.send("a").code == 0, "the slave has it"
    assert pair.brokers["b"].journal.service.is_following


def fail(*_: object) -> None:
    raise StoreError("planted: the queues cannot be read")


class Story:
    """A producer sends to both brokers all the time, while a fault hits the hand-over."""

    def __init__(self, fault: str, after_s: float, forward_s: int = 0) -> None:
        # A master that waits for no slave: it acknowledges whatever it takes.
        self.pair = pair = RunningPair(role=BrokerRole.ASYNC_MASTER, forward_s=forward_s)
        self.fault, self.acknowledged = fault, 0
        self.answers: list[Any] = []
        clock = pair.asker_clock
        later = pair.asker.invoke(
            pair.address("a"),
            RemotingCommand(RequestCode.HAND_OVER_PAIR, {"to": pair.address("b")}),
            60_000,
        )
        began_s = pair.clock.seconds()
        self.answered_s = 0.0

        def end(answer: Any) -> None:
            self.answers.append(answer)
            self.answered_s = pair.clock.seconds() - began_s

        later.addBoth(end)
        clock.callLater(after_s, self.hit)
        often, seldom = (0.004 * turn for turn in range(50)), (0.25 * turn for turn in range(100))
        for moment in (*often, *seldom):
            for name in "ab":
                clock.callLater(moment, self.send, name)
        pair.run(25)
        self.mend()
        pair.run(75)

    def send(self, name: str) -> None:
        if name in self.pair.brokers:
            request = send_request("p", TOPIC, 0, b"body", "", self.pair.now_ms())
            self.pair.asker.invoke(self.pair.address(name), request, 5000).addCallbacks(
                self.answered, lambda _: None
            )

    def answered(self, answer: RemotingCommand) -> None:
        self.acknowledged += answer.code == 0

    def hit(self) -> None:
        if self.fault == "cut":
            self.pair.world.network.partition("a", "b")
        else:
            self.pair.crash(self.fault)

    def mend(self) -> None:
        if self.fault == "cut":
            self.pair.world.network.heal()
        else:
            self.pair.add(self.fault)


MOMENTS_MS = (0.5, 3, 6, 8, 8.3, 8.8, 9.4, 10, 15, 30)
"""The slave has the confirmation, and the master no answer, from 8.2 to 9.6 ms."""


@pytest.mark.parametrize("fault", ["cut", "a", "b"])
def test_a_fault_at_any_moment_leaves_one_master_with_all_acknowledged_messages(fault: str) -> None:
    """The two brokers are cut off from each other, or one is killed and comes back."""
    outcomes, waits = set(), set()
    for after_ms in MOMENTS_MS:
        story = Story(fault, after_ms / 1000)
        pair = story.pair
        refusal = ResponseCode.SERVICE_NOT_AVAILABLE
        taken = [name for name in "ab" if pair.send(name).code != refusal]
        assert len(taken) == 1, (fault, after_ms, taken)
        assert pair.named() == pair.address(taken[0])
        assert pair.count(taken[0]) >= story.acknowledged, (fault, after_ms)
        outcomes.add(taken[0])
        waits.add(story.answered_s > 10 and story.answers[0].code == 0)
    assert outcomes == {"a", "b"}, "the moments do not reach both sides of the point of no return"
    assert fault != "cut" or True in waits, "no master had to ask whether its slave leads"
