"""Real pairs whose logs have parted: by an ordinary fail-over, or as a master lost its end."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.live_pair import Broker, Sent
from tests.live.live_ports import free_ports

BASES = range(25100, 25180, 4)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    one, two, three = free_ports(3, BASES)
    found = Broker(tmp_path / "a", one, three), Broker(tmp_path / "b", two, three + 1)
    try:
        yield found
    finally:
        for broker in found:
            broker.kill()


def begin(master: Broker, slave: Broker) -> list[Sent]:
    master.lead()
    slave.follow(master)
    master.until_ok()
    sent = master.send("both", 20)
    assert {item.code for item in sent} == {0}
    return sent


def test_the_old_master_returns_as_slave_with_an_end_of_its_own(
    brokers: tuple[Broker, Broker],
) -> None:
    """An ordinary fail-over: what is SEND_OK afterwards is on both, what was not is kept."""
    first, second = brokers
    both = begin(first, second)
    second.kill(signal.SIGTERM)
    alone = first.send("alone", 30)
    assert {item.code for item in alone} <= {11, 12}
    first.kill()
    second.lead()
    second.send("new", 60)  # its log outgrows the old master's
    first.follow(second)
    second.until_ok()
    sent = second.send("again", 60)
    assert {item.code for item in sent} == {0}
    first.until(lambda: not first.lacks(both + sent), "every SEND_OK on the old master")
    assert "following" in first.health()[1]
    (about,) = first.set_aside()
    assert about["messages"] == len(alone)
    assert first.value("rmqha_set_aside_messages_total") == len(alone)
    first.kill()
    first.follow(second)
    second.until_ok()
    assert first.lacks(both + sent) == []


def test_a_slave_is_ahead_of_a_master_that_lost_its_end(brokers: tuple[Broker, Broker]) -> None:
    """As a power loss does: the slave has more, sets it aside at once, and follows."""
    master, slave = brokers
    begin(master, slave)
    copied = master.directory / "copied"
    master.kill()
    shutil.copytree(master.directory / "store", copied)
    master.lead()
    warm = master.until_ok()
    lost = master.send("lost", 30)
    assert {item.code for item in lost} == {0}
    master.kill()
    shutil.rmtree(master.directory / "store")
    copied.rename(master.directory / "store")
    master.lead()
    master.until_ok()
    sent = master.send("again", 60)
    assert {item.code for item in sent} == {0}
    slave.until(lambda: not slave.lacks(sent), "every SEND_OK on the slave")
    (about,) = slave.set_aside()
    assert int(str(about["messages"])) == len(lost) + warm
    assert master.value("rmqha_replication_diverged_total") == 1


def test_told_not_to_touch_it_a_diverged_slave_stays_out_and_says_so(
    brokers: tuple[Broker, Broker],
) -> None:
    first, second = brokers
    begin(first, second)
    second.kill(signal.SIGTERM)
    first.send("alone", 5)
    first.kill()
    second.lead()
    second.send("new", 10)
    first.follow(second, "haSetAsideDivergedTail=false\n")
    first.until(lambda: "diverged" in first.health()[1], "a slave that has compared")
    assert first.health()[0] == 503
    assert "haSetAsideDivergedTail" in first.health()[1]
    assert first.value("rmqha_slave_diverged") == 1
    assert {item.code for item in second.send("more", 3)} <= {11, 12}
    assert first.set_aside() == []
