"""
Every feature of the stock clients, on a master alone and on a master that is killed half-way.

One client process a cluster does everything at once; the tests then look at what it was told.
Killed half-way: `kill -9` in the middle of the second round of sends, a while with the slave
only, then the master comes back and the sends go on.

On the master alone the client has two accounts, for what sends and for what receives, which may
just what docs/security.md says that they need; with quotas and limits on connections that they do
not meet. Those are ours: with Java in every place there are none.

RMQ_HA_FEATURES=1 adds the Go client to the master that is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.lookup.requests import send_request
from tests.interop.conversation import Conversation, compiled_go, compiled_java
from tests.interop.guards import OPEN, Guard, account
from tests.interop.rig import ALL_JAVA, Rig, Server, rig_in

SETTINGS = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    # A Go producer says only every 30 s that it is there; until then checks are in vain, but count.
    "transactionCheckMax": 100,
    "registerNameServerPeriod": 10000,
}
COUNT = 12
PAUSE_MS = 150
"""After each of the messages of a round in which the master dies."""
QUEUES = 8
TOPICS = ["ordered", "filtered", "broadcast", "retry", "reset", "delayed", "traced", "transaction"]
# The Go client does not start to consume a topic that is not there yet.
MORE_TOPICS = ["requests", "%DLQ%g-retry"]
READ_ONLY = ["%DLQ%g-retry", "RMQ_SYS_TRACE_TOPIC"]
PRODUCERS = Credentials("producers", "producers-secret")
CONSUMERS = Credentials("consumers", "consumers-secret")
GROUPS = ["transaction", "ordered", "delayed", "tags", "sql", "broadcast", "retry", "dead", "reset"]
ACCOUNTS = account(
    PRODUCERS, [f"{topic}=PUB" for topic in [*TOPICS, "requests"]], ["p-transactions=PUB"]
) + account(
    CONSUMERS,
    [f"{topic}=SUB" for topic in [*TOPICS, "requests", *READ_ONLY]],
    [f"g-{name}=SUB" for name in [*GROUPS, "requests", "trace", "late"]],
)


class Story:
    """What one client lived through with one cluster."""

    def __init__(
        self,
        rig: Rig,
        guard: Guard,
        master: Server,
        namesrv: str,
        client: Conversation,
        phases: list[str],
    ) -> None:
        self.rig = rig
        self.guard = guard
        self.master = master
        self.namesrv = namesrv
        self.client = client
        self.phases = phases
        self.settled = 0.0

    def sent(self, topic: str) -> list[str]:
        """What the client was told SEND_OK for."""
        return [body for body in self.client.bodies("sent") if body.startswith(topic + "-")]

    def wanted(self, topic: str, choose: Any = lambda number: True) -> set[str]:
        """Bodies of a topic whose number is chosen."""
        return {f"{topic}-{p}-{i}" for p in self.phases for i in range(COUNT) if choose(i)}

    def arrived(self, by: str, wanted: set[str], seconds: float = 30) -> list[str]:
        """All that a consumer got, once everything wanted is among it."""
        found = self.client.until(
            lambda: wanted <= set(self.client.bodies("got", by)), seconds, f"messages for {by}"
        )
        got = self.client.bodies("got", by)
        assert found, f"{by} misses {sorted(wanted - set(got))}"
        return got


def alone(rig: Rig, guard: Guard, client: Any, _: str) -> Story:
    """A master without a slave."""
    namesrv = guard.namesrv(rig)
    role = {"brokerRole": "ASYNC_MASTER", **SETTINGS}
    master = guard.broker(rig, "master-sync.conf", "m", namesrv=namesrv, **role)
    create_topics(guard, master)
    story = Story(rig, guard, master, namesrv, client(namesrv), ["a"])
    story.client.do(f"send a {COUNT} 0")
    story.client.do("request a")
    return story


def killed(rig: Rig, guard: Guard, client: Any, name: str) -> Story:
    """A SYNC_MASTER that dies while its slave lives, and comes back."""
    namesrv = guard.namesrv(rig)
    sync = {"namesrv": namesrv, **SETTINGS}
    master = guard.broker(rig, "master-sync.conf", "m", **sync)
    slave = guard.broker(rig, "slave.conf", "s", **sync)
    create_topics(guard, master)
    wait_for_replica(rig, guard, master)
    wait_for_topics(rig, slave)
    story = Story(rig, guard, master, namesrv, client(namesrv), ["a", "b"])
    story.client.do(f"send a {COUNT} 0")
    story.client.tell(f"send b {COUNT} {PAUSE_MS}")
    story.client.until(lambda: len(story.sent("reset")) > COUNT + COUNT // 3, 60, "a third of b")
    master.kill()
    assert len(story.sent("reset")) < 2 * COUNT, "the round was over before the kill"
    if name == "java":  # a new group of the Go client asks nobody but the master
        # A group that nobody knew yet finds the slave and reads all that was acknowledged.
        story.client.tell("late")
        story.arrived("late", set(story.sent("reset")), 60)
    port = int(master.address.rpartition(":")[2])
    story.master = guard.broker(rig, "master-sync.conf", "m", port=port, **sync)
    story.settled = time.time() * 1000
    assert story.client.done("send", 90), "not all of b could be sent"
    story.client.do("request b")
    return story


def create_topics(guard: Guard, master: Server) -> None:
    """Those that the clients use."""
    with guard.wire(master) as wire:
        for topic in [*TOPICS, *MORE_TOPICS, "warm"]:
            wire.create_topic(topic, QUEUES)


def wait_for_replica(rig: Rig, guard: Guard, master: Server) -> None:
    """Until a send is SEND_OK."""
    request = send_request("warm", "warm", 0, b"warm", "", 1)

    def is_ok() -> bool:
        with guard.wire(master) as wire:
            (answer,) = wire.exchange([request])
            return answer.code == 0

    rig.until(is_ok, 30, "a first SEND_OK of the SYNC_MASTER", master)


def wait_for_topics(rig: Rig, slave: Server) -> None:
    """Until the slave has copied them: a Java slave asks every 10 s."""
    path = slave.store / "config" / "topics.json"
    rig.until(
        lambda: path.exists() and all(f'"{topic}"' in path.read_text() for topic in TOPICS),
        40,
        "the topics on the slave",
        slave,
    )


CLIENTS = {"java": lambda folder: compiled_java("Features", folder), "go": compiled_go}
# Go's client when its master is killed shows nothing that Java's does not, and takes a minute.
COURSES = [("java", alone), ("java", killed), ("go", alone)]
if os.environ.get("RMQ_HA_FEATURES"):
    COURSES.append(("go", killed))


@pytest.fixture(
    scope="module",
    params=[(client, course, course is alone and not ALL_JAVA) for client, course in COURSES],
    ids=lambda param: f"{param[0]}-{param[1].__name__}{'-guarded' if param[2] else ''}",
)
def story(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One client, one course of events."""
    name, course, guarded = request.param
    folder: Path = tmp_path_factory.mktemp(f"{name}-{course.__name__}")
    command = CLIENTS[name](folder / "classes")
    clients: list[Conversation] = []
    guard, accounts = OPEN, []
    if guarded:
        guard = Guard.of(folder / "acl", ACCOUNTS)
        accounts = [word for who in (PRODUCERS, CONSUMERS) for word in who[:2]]

    def start(namesrv: str) -> Conversation:
        made = Conversation([*command, namesrv, *accounts], folder / "client-errors.txt")
        clients.append(made)
        assert made.until(lambda: made.count("ready") == 1, 40, "the client to start")
        return made

    with rig_in(folder) as rig:
        try:
            yield course(rig, guard, start, name)
        finally:
            for client in clients:
                client.close()


def test_every_send_was_acknowledged(story: Story) -> None:
    """Sooner or later, also around the kill."""
    for topic in TOPICS:
        assert set(story.sent(topic)) >= story.wanted(topic), topic


def test_ordered(story: Story) -> None:
    """Each shard in order; going back only as far as redelivery does after the kill."""
    got = story.arrived("ordered", story.wanted("ordered"), 90)
    firsts = list(dict.fromkeys(got))
    for shard in range(3):
        numbers = [body for body in firsts if int(body.rpartition("-")[2]) % 3 == shard]
        places = [(body.split("-")[1], int(body.rpartition("-")[2])) for body in numbers]
        assert places == sorted(places)


def test_delayed(story: Story) -> None:
    """Each arrives, not before its time, and not twice in bulk."""
    got = story.arrived("delayed", story.wanted("delayed"))
    early = [
        item
        for item in story.client.events
        if item.get("by") == "delayed" and item["event"] == "got" and item["after"] < 950
    ]
    assert not early
    if len(story.phases) == 1:
        assert len(got) == COUNT


def test_filtered_by_tags(story: Story) -> None:
    """Two of three tags, nothing else."""
    wanted = story.wanted("filtered", lambda number: number % 3 < 2)
    assert set(story.arrived("tags", wanted)) == wanted


def test_filtered_by_sql(story: Story) -> None:
    """Exactly what the expression says."""
    wanted = story.wanted("filtered", lambda number: number > 2 and number % 2 == 1)
    assert set(story.arrived("sql", wanted)) == wanted


def test_broadcast(story: Story) -> None:
    """Each of two consumers gets everything."""
    for by in ("broadcast-1", "broadcast-2"):
        assert set(story.arrived(by, story.wanted("broadcast"))) == story.wanted("broadcast")


def test_retry_to_the_dead_letter_queue(story: Story) -> None:
    """Three deliveries each, then the dead letter topic."""
    wanted = story.wanted("retry")
    assert set(story.arrived("dead", wanted, 60)) == wanted
    for body in wanted:
        times = {
            item["times"]
            for item in story.client.events
            if item.get("by") == "retry" and item["body"] == body
        }
        assert {0, 1, 2} <= times, body


def test_transactions(story: Story) -> None:
    """Committed at once or when asked: there. Rolled back at once or when asked: never."""
    wanted = story.wanted("transaction", lambda number: number % 4 in (0, 2))
    got = story.arrived("transaction", wanted, 60)
    open_ones = story.wanted("transaction", lambda number: number % 4 in (2, 3))
    assert story.client.until(
        lambda: open_ones <= set(story.client.bodies("checked")), 60, "checks of open transactions"
    ), sorted(open_ones - set(story.client.bodies("checked")))
    assert set(got) == wanted
    if len(story.phases) == 1:
        assert len(got) == len(wanted)


def test_request_and_reply(story: Story) -> None:
    """The answer of the consumer's side reaches the producer that asked."""
    assert story.client.bodies("reply") == [f"reply to request-{story.phases[-1]}"], [
        item for item in story.client.events if item["event"] == "no reply"
    ]


def test_trace(story: Story) -> None:
    """
    What a tracing producer sent can be found in the trace topic by its key.

    Traces are sent one-way: those on their way when the master died are lost.
    """
    wanted = {
        item["body"]
        for item in story.client.events
        if item["event"] == "sent"
        and item["body"].startswith("traced-")
        and item["at"] > story.settled
    }
    assert wanted

    def traced() -> set[str]:
        return {word for keys in story.client.bodies("got", "trace") for word in keys.split()}

    assert story.client.until(lambda: wanted <= traced(), 30, "traces"), wanted - traced()


def has_offsets(story: Story) -> bool:
    """The broker knows the group's offset in every queue; without, it resets nothing."""
    with story.guard.wire(story.master) as wire:
        table = wire.table(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    return len(table.get("reset@g-reset", {})) == QUEUES


def test_reset_by_time(story: Story) -> None:
    """Last, as it makes a group consume again: from the given time on, with the group online."""
    story.arrived("reset", story.wanted("reset"))
    body = f"reset-{story.phases[-1]}-{COUNT // 2}"
    (moment,) = (
        item["at"]
        for item in story.client.events
        if item["event"] == "sent" and item["body"] == body
    )
    story.rig.until(lambda: has_offsets(story), 40, "a first report of how far the group is")
    before = len(story.client.events)
    command = ["resetOffsetByTime", "-n", story.namesrv, "-g", "g-reset", "-t", "reset"]
    command += ["-s", str(moment), "-f", "true"]
    story.rig.mqadmin(*command, home=story.guard.directory)
    wanted = {f"reset-{story.phases[-1]}-{i}" for i in range(COUNT // 2 + 1, COUNT)}

    def again() -> set[str]:
        return {i["body"] for i in story.client.events[before:] if i.get("by") == "reset"}

    assert story.client.until(lambda: wanted <= again(), 40, "the second delivery"), again()
    # In each queue the message that is nearest in time; it may be the one before.
    assert len(again()) <= len(wanted) + 1 + QUEUES


def test_nothing_was_refused_or_had_to_wait(story: Story) -> None:
    """After all of the above, on every server: requests without answers are refused silently."""
    assert not story.guard.objections()
    for server in story.rig.servers:
        assert "refused request" not in server.output.read_text()
