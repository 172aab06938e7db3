"""
The stock Go client with ordinary accounts: what it is told when it is refused, and nothing lost.

`test_features.py` has all that such accounts may.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.base.wire.codes import RequestCode
from tests.interop.conversation import Conversation, compiled_go
from tests.interop.guards import LIMITS, Guard, account
from tests.interop.rig import ALL_JAVA, Rig, Server
from tests.interop.wire import Wire

pytestmark = pytest.mark.skipif(ALL_JAVA, reason="strict permissions and quotas are ours")

SENDER, READER = (
    Credentials(name, f"{name}-secret") for name in ("sender-account", "read-account")
)
BOTH = Credentials("both-account", "both-secret")
LATE = Credentials("late-account", "late-secret")
ACCOUNTS = (
    account(SENDER, [f"{topic}=PUB" for topic in ("Open", "Quota", "Later")], ["p=PUB"])
    + account(READER, ["Open=SUB", "Quota=SUB", "Later=SUB"], ["g-open=SUB", "g-later=SUB"])
    + account(BOTH, ["Open=PUB|SUB"], ["g-both=SUB"])
    + account(LATE, ["Open=PUB"], [])
)
TOPICS = ["Open", "Closed", "Quota", "Later"]
WAYS = ["sync", "async", "batch", "delayed", "transaction"]
QUEUES = 4


class Go:
    """A guarded master, and a program with clients of it."""

    def __init__(self, rig: Rig, folder: Path, program: list[str]) -> None:
        self.rig = rig
        self.guard = Guard.of(folder / "acl", ACCOUNTS)
        namesrv = self.guard.namesrv(rig)
        self.master: Server = self.guard.broker(rig, "master-async.conf", "m", namesrv=namesrv)
        with self.wire() as wire:
            for topic in TOPICS:
                wire.create_topic(topic, QUEUES)
        self.client = Conversation([*program, namesrv], folder / "client-errors.txt")

    def wire(self) -> Wire:
        return self.guard.wire(self.master)

    def do(self, order: str, account: Credentials | None, *words: Any) -> dict[str, Any]:
        """What an order came to."""
        who = account[:2] if account else ("-", "-")
        self.client.do(" ".join(map(str, (order, *who, *words))), 120)
        return [event for event in self.client.events if event["event"] == "done"][-1]

    def allowed(self, order: str, account: Credentials | None, *words: Any) -> Any:
        answer = self.do(order, account, *words)
        assert "error" not in answer, (order, words, answer)
        return answer["out"]

    def denied(self, reason: str, order: str, account: Credentials | None, *words: Any) -> None:
        answer = self.do(order, account, *words)
        assert reason in answer.get("error", ""), (order, words, answer)
        assert "-secret" not in answer["error"]

    def stored(self, topic: str) -> int:
        """How many messages the topic has."""
        with self.wire() as wire:
            return stored(wire, topic)

    def until_got(self, group: str, wanted: set[str], seconds: float = 60) -> None:
        """Until a group's consumer has all of them."""

        def missing() -> set[str]:
            return wanted - set(self.client.bodies("got", group))

        assert self.client.until(lambda: not missing(), seconds, f"messages for {group}"), missing()


def configure(wire: Wire, **settings: Any) -> None:
    """Change the running broker's settings."""
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    wire.call(RequestCode.UPDATE_BROKER_CONFIG, text.encode())


def stored(wire: Wire, topic: str) -> int:
    """How many messages a topic has."""
    return sum(wire.max_offset(topic, queue_id) for queue_id in range(QUEUES))


@pytest.fixture(scope="module")
def go(shared_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Go]:
    folder = tmp_path_factory.mktemp("go-accounts")
    made = Go(shared_rig, folder, compiled_go(folder / "program", "./accounts"))
    yield made
    made.client.close()


def test_what_is_granted_is_stored_and_read(go: Go) -> None:
    """In each way of sending, and pulled by a consumer that is asked for nothing else."""
    before = go.stored("Open")
    for way in [*WAYS, "oneway"]:
        assert go.allowed("send", SENDER, way, "Open", f"{way}-granted") in ("SEND_OK", True)
    go.rig.until(lambda: go.stored("Open") == before + 7, 20, "all stored", go.master)
    found = []
    for queue_id in range(QUEUES):
        found += go.allowed("pull", READER, "g-open", "Open", queue_id)
    wanted = [*WAYS, "oneway", "batch"]
    assert sorted(found) == sorted(f"{way}-granted" for way in wanted)


def test_a_refused_send_says_why_and_stores_nothing(go: Go) -> None:
    reason = "CODE: 1, DESC: AclException: No default permission for topic:Closed"
    halves = go.stored("RMQ_SYS_TRANS_HALF_TOPIC")
    for way in WAYS:
        go.denied(reason, "send", SENDER, way, "Closed", "refused")
    go.denied("No default permission for topic:Open", "send", READER, "sync", "Open", "refused")
    go.allowed("send", SENDER, "oneway", "Closed", "refused")  # nobody is told
    go.allowed("send", SENDER, "sync", "Open", "comes after it on the same connection")
    assert ("m", "rmqha_acl_refused_total", "permission") in go.guard.objections()
    assert go.stored("Closed") == 0
    assert go.stored("RMQ_SYS_TRANS_HALF_TOPIC") == halves


def test_a_transaction_without_pub_on_its_producer_group(go: Go) -> None:
    """Refused when it is sent, with the name of the group, though the topic is granted."""
    before = go.stored("Open"), go.stored("RMQ_SYS_TRANS_HALF_TOPIC")
    reason = "No default permission for group:p: accessKey=both-account needs PUB"
    go.denied(reason, "send", BOTH, "transaction", "Open", "refused")
    assert (go.stored("Open"), go.stored("RMQ_SYS_TRANS_HALF_TOPIC")) == before


def test_who_is_not_known(go: Go) -> None:
    """No account, a wrong secret and an unknown account; the last two are told alike."""
    before = go.stored("Open")
    go.denied("No accessKey is configured", "send", None, "sync", "Open", "refused")
    for name in ("sender-account", "nobody-account"):
        wrong = Credentials(name, "another-secret")
        reason = f"Check signature failed for accessKey={name}"
        go.denied(reason, "send", wrong, "sync", "Open", "refused")
    assert go.stored("Open") == before


def test_a_pull_without_permission_says_why(go: Go) -> None:
    go.denied("No default permission for topic:Closed", "pull", READER, "g-open", "Closed", 0)
    go.denied("No default permission for group:g-both", "pull", READER, "g-both", "Open", 0)
    go.denied("No default permission for group:g-open", "pull", SENDER, "g-open", "Open", 0)


def test_a_topic_is_created_by_admins_only(go: Go) -> None:
    """The Go client does not look at the answer: what counts is that nothing is made."""
    go.do("create", BOTH, go.master.address, "MadeByGo")
    with go.wire() as wire:
        table = wire.table(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    assert "Open" in table
    assert "MadeByGo" not in table


def test_a_consumer_that_is_refused_for_a_while_misses_nothing(go: Go) -> None:
    """Neither what came before it was let in, nor what came while its permission was away."""
    reading = account(READER, ["Open=SUB", "Quota=SUB", "Later=SUB"], ["g-open=SUB", "g-later=SUB"])
    assert reading in ACCOUNTS
    shut = ACCOUNTS.replace(reading, account(READER, ["Open=SUB", "Quota=SUB"], ["g-open=SUB"]))

    def is_let_in() -> bool:
        return "error" not in go.do("pull", READER, "g-later", "Later", 0)

    go.guard.write(shut)
    go.rig.until(lambda: not is_let_in(), 30, "the permission to go", go.master)
    assert go.allowed("many", SENDER, 20, "Later", "before") == 20
    go.allowed("consume", READER, "g-later", "Later")
    time.sleep(3)
    assert not go.client.bodies("got", "g-later")
    go.guard.write(ACCOUNTS)
    before = {f"before-{number}" for number in range(20)}
    go.until_got("g-later", before)
    go.guard.write(shut)
    go.rig.until(lambda: not is_let_in(), 30, "the permission to go", go.master)
    # A pull that the broker held when the permission went may still be answered, once a queue.
    assert go.allowed("many", SENDER, 20, "Later", "meanwhile") == 20
    go.guard.write(ACCOUNTS)
    go.until_got("g-later", {f"meanwhile-{number}" for number in range(20)})


def test_above_its_quota_a_client_waits_and_loses_nothing(go: Go) -> None:
    key = "maxRequestsPerSecondPerAccount"
    waits = ("m", "rmqha_held_back_connections_total", key)
    assert waits not in go.guard.objections()
    with go.wire() as wire:
        configure(wire, **{key: 20})
    try:
        began = time.monotonic()
        assert go.allowed("many", SENDER, 60, "Quota", "q") == 60
        took = time.monotonic() - began
    finally:
        with go.wire() as wire:
            configure(wire, **{key: LIMITS[key]})
    assert took >= 1.5, "a second's burst, and then 20 in each second"
    assert go.guard.objections()[waits] > 0
    assert go.stored("Quota") == 60
    found = []
    for queue_id in range(QUEUES):
        found += go.allowed("pull", READER, "g-open", "Quota", queue_id)
    assert sorted(found) == sorted(f"q-{number}" for number in range(60))


def test_without_a_place_for_its_connection_a_send_fails_and_the_next_one_passes(go: Go) -> None:
    """It is told of no answer, and what it sent is not stored; who is connected goes on."""
    connected, late = SENDER, LATE
    assert go.allowed("send", connected, "sync", "Open", "connected") == "SEND_OK"
    with go.wire() as operator:
        before = stored(operator, "Open")
        configure(operator, maxConnectionsPerIp=1)
        try:
            refused = go.do("send", late, "sync", "Open", "no place")
            assert "error" in refused
            assert "AclException" not in refused["error"], "it had a place"
            assert go.allowed("send", connected, "sync", "Open", "goes on") == "SEND_OK"
            assert stored(operator, "Open") == before + 1
        finally:
            configure(operator, maxConnectionsPerIp=LIMITS["maxConnectionsPerIp"])
    assert go.allowed("send", late, "sync", "Open", "has a place") == "SEND_OK"
