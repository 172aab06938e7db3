"""What every demo says of what was acknowledged: by the same steps, on a simulated broker."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from rich.console import Console
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.ops.app import demo_parts
from rmq_ha.ops.app.demo_parts import PROBE, QUEUES, SAID_LINES, TOPIC, Story
from tests.unit.client.sim_cluster import SimCluster

SENT = 70  # more than are under way at once


class Told:
    """A story in front of one broker, and what it has said."""

    def __init__(self) -> None:
        self.cluster = SimCluster("a")
        self.cluster.brokers["a"].topics.update(TopicConfig(TOPIC, QUEUES, QUEUES, 6))
        self.cluster.wait(self.cluster.brokers["a"].registration.register_all())
        self.address = self.cluster.address("a")
        self.sink = StringIO()
        host = self.cluster.world.add("teller").seams
        self.story = Story(host, SENT, Console(file=self.sink, width=200))

    def wait(self, later: Any) -> Any:
        return self.cluster.wait(later)

    def verdict(self) -> tuple[bool, str]:
        self.sink.truncate(0)
        return self.wait(self.story.verdict("the slave", self.address)), self.sink.getvalue()


@pytest.fixture
def told() -> Told:
    return Told()


def test_all_that_was_acknowledged_is_there(told: Told) -> None:
    told.cluster.run(50)
    began = told.cluster.clock.seconds()
    told.wait(told.story.produce(told.address))
    rate = SENT / (told.cluster.clock.seconds() - began)
    said = " ".join(told.sink.getvalue().split())
    assert f"{SENT} of {SENT} acknowledged with SEND_OK ({rate:,.0f}/s from" in said
    assert "other answers: none" in told.sink.getvalue()
    assert told.wait(told.story.send(told.address, TOPIC, 0, PROBE))[0] == 0  # is none of them
    is_good, text = told.verdict()
    assert is_good
    assert f"read back from the slave at {told.address}: {SENT} messages" in text
    assert "acknowledged but missing: 0; repeated: 0; order per queue kept: yes" in text
    assert "nothing that was acknowledged is lost" in text


def test_what_is_missing_is_said(told: Told) -> None:
    told.wait(told.story.produce(told.address))
    told.story.acknowledged |= {SENT, SENT + 7}
    is_good, text = told.verdict()
    assert not is_good
    assert "acknowledged but missing: 2; repeated: 0" in text
    assert f"FAILED: lost {SENT}, {SENT + 7}" in text
    assert "nothing that was acknowledged" not in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([8], "repeated: 1"),
        ([SENT + 8, SENT + 4], "repeated: 0; order per queue kept: NO"),
    ],
)
def test_what_came_twice_or_out_of_order_is_said(told: Told, more: list[int], words: str) -> None:
    told.wait(told.story.produce(told.address))
    for number in more:
        told.wait(told.story.send(told.address, TOPIC, 1, number))
    is_good, text = told.verdict()
    assert not is_good
    assert words in text
    assert "FAILED" in text


def test_nothing_acknowledged_is_no_success(told: Told) -> None:
    assert told.verdict()[0] is False


def test_what_was_not_acknowledged_is_counted_by_its_reason(told: Told) -> None:
    broker = told.cluster.brokers["a"].configuration.broker
    broker.start_accept_send_request_time_stamp = 1 << 62
    told.wait(told.story.produce(told.address))
    assert told.story.acknowledged == set()
    assert list(told.story.other.values()) == [SENT]
    assert next(iter(told.story.other)).startswith("1 ")
    told.cluster.crash("a")
    told.wait(told.story.produce(told.address))
    assert sum(told.story.other.values()) == 2 * SENT


@pytest.mark.parametrize("is_lucky", [True, False])
def test_a_story_is_played_beside_a_name_server_and_all_has_ended_before_it_ends(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lucky: bool
) -> None:
    """Whatever the story came to, and whoever is asked to stop has stopped."""
    steps: dict[str, Deferred[Any]] = {}

    def step(name: str) -> Any:
        return steps.setdefault(name, Deferred())

    def namesrv(host: Any, config: Any, server: Any, interface: str) -> Any:
        assert (server.listen_port, interface) == (7000, "127.0.0.1")
        assert config.kv_config_path == str(tmp_path / "kvConfig.json")
        return SimpleNamespace(start=lambda: step("start"), stop=lambda: step("stop"))

    monkeypatch.setattr(demo_parts, "free_ports", {3: 7000}.__getitem__)
    monkeypatch.setattr(demo_parts, "Namesrv", namesrv)
    story: Any = told.story
    story.client = SimpleNamespace(stop=lambda: step("stop client"))
    story.play = lambda directory, base: step(f"play {directory.name} {base}")
    ended: list[Any] = []
    Deferred.fromCoroutine(story.run(tmp_path, 3)).addBoth(ended.append)
    names = ["start", f"play {tmp_path.name} 7000", "stop client", "stop"]
    for count, name in enumerate(names, 1):
        assert (list(steps), ended) == (names[:count], [])
        if name.startswith("play") and not is_lucky:
            steps[name].errback(OSError("no"))
        else:
            steps[name].callback("the end")
    assert ended == ["the end"] if is_lucky else ended[0].check(OSError)


def test_no_free_ports_is_said_before_anything_starts(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(count: int) -> int:
        raise OSError(f"no {count} ports are free")

    monkeypatch.setattr(demo_parts, "free_ports", none)
    with pytest.raises(click.ClickException, match="no 3 ports are free"):
        told.wait(told.story.run(tmp_path, 3))


def test_addresses_are_those_of_the_route(told: Told) -> None:
    namesrv = told.cluster.namesrv.address
    assert told.wait(told.story.route(namesrv, TOPIC)) == {"0": told.address}
    assert told.wait(told.story.route(namesrv, "NoSuchTopic")) == {}


def test_who_waits_waits_half_a_minute_and_no_longer_than_the_process_lives(told: Told) -> None:
    asked: list[int] = []

    async def third_time() -> bool:
        asked.append(1)
        if len(asked) == 1:
            raise RemotingConnectError("nobody is there yet")
        return len(asked) == 3

    async def never() -> bool:
        return False

    running, ended = SimpleNamespace(poll=lambda: None), SimpleNamespace(poll=lambda: 1)
    told.wait(told.story.wait_until(third_time, "x", running))
    assert len(asked) == 3
    for process, least, most in ((running, 29.9, 30.2), (None, 29.9, 30.2), (ended, 0, 0.1)):
        began = told.cluster.clock.seconds()
        with pytest.raises(click.ClickException, match="it never came"):
            told.wait(told.story.wait_until(never, "it never came", process))
        assert least <= told.cluster.clock.seconds() - began <= most


def test_who_does_not_get_ready_is_shown_with_the_end_of_what_it_said(told: Told, tmp_path) -> None:
    good, bad = tmp_path / "good.log", tmp_path / "bad.log"
    good.write_text("begins\nREADY {}\n")
    bad.write_text("".join([f"line {number}\n" for number in range(40)]))
    running, ended = SimpleNamespace(poll=lambda: None), SimpleNamespace(poll=lambda: 1)
    told.wait(told.story.wait_ready((running, good)))
    with pytest.raises(click.ClickException) as caught:
        told.wait(told.story.wait_ready((running, good), (ended, bad)))
    assert caught.value.message.startswith("bad.log: not ready; it ends with:\n")
    assert caught.value.message.splitlines()[1:] == [
        f"line {number}" for number in range(40 - SAID_LINES, 40)
    ]
