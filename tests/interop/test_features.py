"""
Every feature of the stock clients, on a master alone and on a master that is killed half-way.

One client process a cluster does everything at once; the tests then look at what it was told.
Killed half-way: `kill -9` in the middle of the second round of sends, a while with the slave
only, then the master comes back and the sends go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conversation import Conversation, compiled_go, compiled_java
from rig import Rig, Server, rig_in
from wire import Wire

from rmq_ha.wire.codes import RequestCode

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


class Story:
    """What one client lived through with one cluster."""

    def __init__(
        self, rig: Rig, master: Server, namesrv: str, client: Conversation, phases: list[str]
    ) -> None:
        self.rig = rig
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


def alone(rig: Rig, client: Any, _: str) -> Story:
    """A master without a slave."""
    namesrv = rig.namesrv()
    role = {"brokerRole": "ASYNC_MASTER", **SETTINGS}
    master = rig.broker("master-sync.conf", "m", namesrv=namesrv, **role)
    create_topics(master)
    story = Story(rig, master, namesrv, client(namesrv), ["a"])
    story.client.do(f"send a {COUNT} 0")
    story.client.do("request a")
    return story


def killed(rig: Rig, client: Any, name: str) -> Story:
    """A SYNC_MASTER that dies while its slave lives, and comes back."""
    namesrv = rig.namesrv()
    master = rig.broker("master-sync.conf", "m", namesrv=namesrv, **SETTINGS)
    slave = rig.broker("slave.conf", "s", namesrv=namesrv, **SETTINGS)
    rig.wait_sync(master)
    create_topics(master)
    wait_for_topics(rig, slave)
    story = Story(rig, master, namesrv, client(namesrv), ["a", "b"])
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
    story.master = rig.broker("master-sync.conf", "m", namesrv=namesrv, port=port, **SETTINGS)
    story.settled = time.time() * 1000
    assert story.client.done("send", 90), "not all of b could be sent"
    story.client.do("request b")
    return story


def create_topics(master: Server) -> None:
    """Those that the clients use."""
    with Wire(master.address) as wire:
        for topic in TOPICS + MORE_TOPICS:
            wire.create_topic(topic, QUEUES)


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


@pytest.fixture(
    scope="module",
    params=[(client, course) for client in CLIENTS for course in (alone, killed)],
    ids=lambda param: f"{param[0]}-{param[1].__name__}",
)
def story(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One client, one course of events."""
    name, course = request.param
    folder: Path = tmp_path_factory.mktemp(f"{name}-{course.__name__}")
    command = CLIENTS[name](folder / "classes")
    clients: list[Conversation] = []

    def start(namesrv: str) -> Conversation:
        made = Conversation([*command, namesrv], folder / "client-errors.txt")
        clients.append(made)
        assert made.until(lambda: made.count("ready") == 1, 40, "the client to start")
        return made

    with rig_in(folder) as rig:
        try:
            yield course(rig, start, name)
        finally:
            for client in clients:
                client.close()


def test_every_send_was_acknowledged(story: Story) -> None:
    """Sooner or later, also around the kill."""
    for topic in TOPICS:
        assert set(story.sent(topic)) >= story.wanted(topic), topic


def test_ordered(story: Story) -> None:
    """Each shard in order; going back only as far as redelivery does after the kill."""
    got = story.arrived("ordered", story.wanted("ordered"))
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
    with Wire(story.master.address) as wire:
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
    story.rig.mqadmin(*command, "-s", moment, "-f", "true")
    wanted = {f"reset-{story.phases[-1]}-{i}" for i in range(COUNT // 2 + 1, COUNT)}

    def again() -> set[str]:
        return {i["body"] for i in story.client.events[before:] if i.get("by") == "reset"}

    assert story.client.until(lambda: wanted <= again(), 40, "the second delivery"), again()
    # In each queue the message that is nearest in time; it may be the one before.
    assert len(again()) <= len(wanted) + 1 + QUEUES
