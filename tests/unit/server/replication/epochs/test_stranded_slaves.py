"""
A slave that was away for longer than its master keeps messages.

Spec: controller.md, chapter 14, hazard 14.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import TOPIC, ControlledBrokers
from tests.unit.server.broker.test_metrics_dledger import scrape

SIZE = 1 << 14


def pair(**ours: Any) -> tuple[ControlledBrokers, BrokerNode, BrokerNode]:
    """A master whose oldest file is deleted, and a slave that ends in that file, and is down."""

    def change(configuration: BrokerConfiguration) -> None:
        configuration.store.mapped_file_size_commit_log = SIZE
        for name, value in ours.items():
            setattr(configuration.ours, name, value)

    brokers = ControlledBrokers(change=change)
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"old") == 0
    brokers.run(1.0)
    second.stop()
    brokers.until(lambda: second.state == "down")
    for number in range(12):
        brokers.until(lambda number=number: brokers.send(first, b"%d" % number * 1500) == 0)
    first.store.log.drop_oldest(1)
    first.store.renumber()
    assert first.store.log.min_offset == SIZE
    return brokers, first, second


def kept(node: BrokerNode) -> list[bytes]:
    """All that can be read there, from the first message of the queue on."""
    bodies: list[bytes] = []
    offset = node.store.min_offset_in_queue(TOPIC, 0)
    while result := node.store.get_message("readers", TOPIC, 0, offset, 32, None):
        if not result.messages:
            break
        bodies += [decode_record(record).body for record in result.messages]
        offset = result.next_begin_offset
    return bodies


def said(events: list[Any], words: str) -> list[str]:
    return [text for text in (formatEvent(event) or "" for event in events) if words in text]


def test_it_sets_its_store_aside_and_fetches_all_anew() -> None:
    brokers, first, second = pair()
    old_end = second.store.log.max_offset
    with capturedLogs() as events:
        brokers.boot(second)
        assert brokers.in_sync() is first
    assert len(said(events, "cannot follow: it holds the log up to")) == 1, "at the master"
    (line,) = said(events, "sets its store aside and fetches all")
    assert (
        f"this slave's log ends at {old_end}, and the master's first file begins at {SIZE}" in line
    )
    assert brokers.send(first, b"new") == 0
    brokers.run(2.0)
    assert second.store.log.min_offset == SIZE
    assert second.store.log.max_offset == first.store.log.max_offset
    assert kept(second) == kept(first)
    assert kept(second)[-1] == b"new"
    aside = f"{second.configuration.store.store_path_root_dir}/setaside"
    (folder,) = second.host.disk.list_dir(aside)
    about = json.loads(second.host.disk.read_bytes(f"{aside}/{folder}/about.json"))
    assert (about["from"], about["to"], about["topics"]["TBW102"]) == (0, old_end, 1)
    assert first.replication.statistics().stranded_ids == []
    second.stop()
    brokers.until(lambda: second.state == "down")
    brokers.in_sync(1)
    brokers.boot(second)
    brokers.in_sync()
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.send(second, b"after") == 0
    assert not brokers.findings.violations


def test_it_may_die_while_it_does_so() -> None:
    """Before its epochs are forgotten: a start that finds no log does not ask for them."""
    brokers, first, second = pair()
    brokers.boot(second)
    root = second.configuration.store.store_path_root_dir
    brokers.until(lambda: bool(second.host.disk.list_dir(f"{root}/setaside")))
    second.crash(power=True)
    brokers.boot(second)
    assert brokers.in_sync() is first
    brokers.run(1.0)
    assert kept(second) == kept(first) != []
    assert not brokers.findings.violations


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({"ha_refetch_stranded_store": False}, "Nothing is changed (haRefetchStrandedStore=false)"),
        ({}, "free some, for example old folders below setaside"),
    ],
    ids=["key", "room"],
)
def test_where_it_may_not_all_say_so_and_what_to_do(ours: dict[str, Any], words: str) -> None:
    brokers, first, second = pair(**ours)
    if not ours:
        second.host.disk.capacity = 1 << 10
    before = second.store.log.max_offset
    with capturedLogs() as events:
        brokers.boot(second)
        brokers.until(lambda: bool(second.replication.statistics().master.fault), 12.0)
        brokers.run(30.0)
    assert len(said(events, "cannot follow: it holds the log up to")) == 1, "at the master"
    assert len(said(events, "does not follow the master at")) == 1, "at the slave"
    link = second.store.journal.info()["master"]
    assert link["state"] == "stranded"
    assert words in link["fault"]
    health = BrokerStatus(second.broker).health()
    assert not health.is_ready
    assert words in health.line()
    assert scrape(BrokerStatus(second.broker))["rmqha_slave_stranded", "2"] == 1
    assert scrape(BrokerStatus(first.broker))["rmqha_replication_stranded", "0"] == 1
    assert second.store.log.max_offset == before
    if ours:
        second.configuration.ours.ha_refetch_stranded_store = True
        brokers.in_sync()
        assert scrape(BrokerStatus(first.broker))["rmqha_replication_stranded", "0"] == 0
    assert not brokers.findings.violations
