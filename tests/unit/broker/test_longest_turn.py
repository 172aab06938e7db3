"""No request holds the reactor for long: the work of each turn, for every code and for the worst
of what each may ask for, in a broker with much in its tables.

Work is what `sys.setprofile` counts: calls of functions, ours and C's. On the machines that we
measured, 9,000 of them take a millisecond.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from guarded import ADMIN, Guarded, every_request

from rmq_ha.client.requests import pull_request
from rmq_ha.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.wire.batch import encode_batch
from rmq_ha.wire.command import RemotingCommand

MOST = 450_000
"""Calls in a turn: 50 ms."""
TOPICS, QUEUES, GROUPS, SUBSCRIBED = 40, 64, 200, 4


class Turns:
    """Counts the calls of each event of the simulation."""

    def __init__(self, broker: Guarded) -> None:
        self._clock = broker.world.clock
        self._step = self._clock.step
        self.most = 0

    def step(self) -> bool:
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            if event in ("call", "c_call"):
                calls += 1

        trace = sys.gettrace()  # of tests/mutants, whose calls are no work of ours
        sys.settrace(None)
        sys.setprofile(count)
        try:
            return self._step()
        finally:
            sys.setprofile(None)
            sys.settrace(trace)
            self.most = max(self.most, calls)

    def of(self, work: Callable[[], object]) -> int:
        """The longest turn while this is done, and for a while after it."""
        self.most = 0
        self._clock.step = self.step  # type: ignore[method-assign]
        try:
            work()
            self._clock.run_for(0.05)
        finally:
            self._clock.step = self._step  # type: ignore[method-assign]
        return self.most


@pytest.fixture(scope="module")
def broker() -> Iterator[Guarded]:
    made = Guarded()
    made.configuration.store.mapped_file_size_commit_log = 1 << 23
    made.start()
    controller = made.controller
    for number in range(TOPICS):
        name = f"T{number}"
        controller.topics._table[name] = TopicConfig(name, QUEUES, QUEUES, 6)
    for number in range(GROUPS):
        group = f"G{number}"
        controller.groups._table[group] = SubscriptionGroupConfig(group)
        for offset in range(SUBSCRIBED):
            topic = f"T{(number + offset) % TOPICS}"
            for queue_id in range(QUEUES):
                controller.consumer_offsets.commit(group, topic, queue_id, 1)
    controller.consumer_offsets.encode()  # as its file is when it has run for some seconds
    assert made.by(ADMIN, WORST["keys"][1]).code == 0  # each test has messages, also alone
    yield made
    made.stop()


@pytest.fixture
def turns(broker: Guarded) -> Turns:
    return Turns(broker)


def test_one_of_each_code(broker: Guarded, turns: Turns) -> None:
    slow = {}
    for code, request in every_request(broker).items():
        if code in (51, 53):  # the last account, no access control any more
            continue
        calls = turns.of(lambda request=request: broker.by(ADMIN, request))
        if calls > MOST:  # the most has 43, all offsets for a slave of Java: 270,000
            slow[code] = calls
    assert slow == {}


def heartbeat(groups: int, subscriptions: int, text: str, kind: str) -> bytes:
    topics = [
        {"topic": f"T{n % TOPICS}", "subString": text % n if "%" in text else text,
         "expressionType": kind}
        for n in range(subscriptions)
    ]  # fmt: skip
    consumers = [
        {"groupName": f"G{n}", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": topics}
        for n in range(groups)
    ]
    return json.dumps({"clientID": "c9", "consumerDataSet": consumers}).encode()


SQL = " OR ".join(f"a{n % 20} = {n}" for n in range(2600))[:32_000].rpartition(" OR")[0]
TAGS = "||".join(f"tag{n}" for n in range(40))
BATCH = {"a": "P", "b": "T1", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
         "i": "", "j": "0", "m": "true"}  # fmt: skip
QUERY = {"topic": "T1", "key": "k", "maxNum": "100000", "beginTimestamp": "0"}
WORST: dict[str, tuple[int, RemotingCommand]] = {
    "groups and subscriptions": (MOST, RemotingCommand(34, {}, heartbeat(400, 12, "*", "TAG"))),
    "tags": (MOST, RemotingCommand(34, {}, heartbeat(10, 40, TAGS, "TAG"))),
    "SQL92 in one": (MOST, RemotingCommand(34, {}, heartbeat(1, 1, SQL, "SQL92"))),
    "SQL92 in many": (MOST, RemotingCommand(34, {}, heartbeat(1, 40, "a = %d", "SQL92"))),
    # All of a batch is stored or none of it, side by side: 150 ms, the only longer turn.
    "a batch": (3 * MOST, RemotingCommand(320, BATCH, encode_batch([(0, b"x", "")] * 20_000))),
    "keys": (MOST, RemotingCommand(320, BATCH, encode_batch(
        [(0, b"x", "KEYS\x01" + " ".join(f"k{n}" for n in range(80)))] * 400))),
    "query": (MOST, RemotingCommand(12, {**QUERY, "endTimestamp": str(1 << 60)})),
    "consume stats of all": (MOST, RemotingCommand(317, {"isOrder": "false"})),
    "queue": (MOST, RemotingCommand(321, {"topic": "T1", "queueId": "0", "index": "0",
                                          "count": "2000000000"})),
    "correction": (MOST, RemotingCommand(308, {"topic": "T1", "compareGroup": "G1"})),
    "a page of offsets": (MOST, RemotingCommand(43, {"pageFirst": "0"})),
    "a pull": (MOST, RemotingCommand(11, {
        **(pull_request("G1", "T1", 0, 0).ext or {}), "maxMsgNums": "2000000000"})),
}  # fmt: skip


@pytest.mark.parametrize("name", WORST)
def test_the_worst_of_a_code(broker: Guarded, turns: Turns, name: str) -> None:
    most, request = WORST[name]
    answers: list[RemotingCommand] = []
    calls = turns.of(lambda: answers.append(broker.by(ADMIN, request)))
    assert answers[0].code in (0, 22), answers[0].remark
    assert calls <= most


@pytest.mark.parametrize("code", [41, 42])
def test_the_widest_lock(broker: Guarded, turns: Turns, code: int) -> None:
    queues = [{"topic": f"T{n % TOPICS}", "brokerName": "b", "queueId": n} for n in range(2500)]
    body = {"consumerGroup": "G1", "clientId": "c9", "mqSet": queues}
    request = RemotingCommand(code, {}, json.dumps(body).encode())
    assert turns.of(lambda: broker.by(ADMIN, request)) <= MOST
