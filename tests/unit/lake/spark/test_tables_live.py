"""Tables of running brokers: who is asked, and what becomes of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide, RemotingConnectError, WrongUsage
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.bodies import TopicTable
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.route_bodies import BrokerRoute, ClusterInfo
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.lake.spark.source import live_routes, tables_live
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.schema import TABLE_COLUMNS, struct_of

UNITS = [(100 * at, 100, at) for at in range(2500)]


class Brokers:
    """`a` has a master and a slave, of `b` only a slave is left; queue 0 of `T` begins at 3."""

    addresses = {"a": {1: "a1:1", 0: "a0:1"}, "b": {2: "b2:1", 1: "b1:1"}}
    first = 3
    end = len(UNITS)
    is_away = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.asked: list[str] = []

    def close(self) -> None:
        pass

    def cluster(self) -> ClusterInfo:
        routes = {name: BrokerRoute("C", name, held) for name, held in self.addresses.items()}
        return ClusterInfo(routes, {"C": sorted(routes)})

    def run(self, asking: Any) -> Any:
        ask = next(asking)
        try:
            asking.send(self.call(ask.address, ask.command))
        except StopIteration as end:
            return end.value
        raise AssertionError("one question, one answer")

    def call(self, address: str, command: RemotingCommand) -> RemotingCommand:
        if self.is_away:
            raise RemotingConnectError(f"{address} does not answer")
        ext = command.ext or {}
        empty = ext.get("topic") != "T" or ext.get("queueId") != "0"
        if command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            table = TopicTable(DataVersion(5, 7), {"T": TopicConfig("T", 1, 2)})
            return RemotingCommand(0, body=encode(table))
        if command.code == RequestCode.GET_MIN_OFFSET:
            return RemotingCommand(0, {"offset": "0" if empty else str(self.first)})
        if command.code == RequestCode.GET_MAX_OFFSET:
            return RemotingCommand(0, {"offset": "0" if empty else str(len(UNITS))})
        if command.code == RequestCode.QUERY_CONSUME_QUEUE:
            start = int(ext["index"])
            held = UNITS[start : min(self.end, start + int(ext["count"]))]
            units = [{"physicOffset": a, "physicSize": b, "tagsCode": c} for a, b, c in held]
            return RemotingCommand(0, body=encode({"queueData": units}))
        raise BrokerRefused(1, "no permission", address)


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_routes, "BlockingClient", Brokers)


def read(table: str, **given: str) -> list[tuple[Any, ...]]:
    from pyspark.sql.pandas.types import to_arrow_schema

    place = {} if "brokerAddr" in given else {"namesrv": "ns:1"}
    source = tables_live.LiveBrokerTables(parse_options({"table": table, **place, **given}))
    schema = to_arrow_schema(struct_of(TABLE_COLUMNS[table]), timezone="UTC")
    return [
        tuple(row.values())
        for part in source.parts()
        for batch in source.batches(part, schema)
        for row in batch.to_pylist()
    ]


def test_of_each_broker_the_master_is_asked_or_whoever_is_left() -> None:
    source = tables_live.LiveBrokerTables(parse_options({"table": "topics", "namesrv": "ns:1"}))
    assert source.parts() == [("a", "a0:1"), ("b", "b1:1")]
    assert [row[0] for row in read("topics")] == ["a", "b"]


def test_one_broker_may_be_named_or_addressed() -> None:
    row = ("T", 1, 2, 6, "SINGLE_TAG", 0, False, 5, 7)
    assert read("topics", brokerName="b") == [("b", *row)]
    assert read("topics", brokerAddr="h:1") == [(None, *row)]
    assert read("topics", brokerAddr="h:1", brokerName="x") == [("x", *row)]
    assert read("topics", brokerName="a", subscribe="U") == []
    with pytest.raises(CannotDecide, match="no broker c; there are: a, b"):
        read("topics", brokerName="c")


def test_queues_that_never_had_a_message_are_left_out() -> None:
    assert read("queues", brokerName="a") == [("a", "T", 0, 3, 2500)]


def test_units_are_asked_for_in_parts() -> None:
    rows = read("consumeQueue", brokerName="a")
    assert rows == [("a", "T", 0, at, *UNITS[at]) for at in range(3, 2500)]


def test_units_that_vanish_meanwhile_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Brokers, "end", 2000)
    with pytest.raises(CannotDecide, match="has no unit 2000, 2500 was wanted"):
        read("consumeQueue", brokerName="a")


def test_a_broker_that_refuses_or_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotDecide, match=r"a0:1 cannot be asked for groups: .*no permission"):
        read("groups", brokerName="a")
    monkeypatch.setattr(Brokers, "is_away", True)
    with pytest.raises(CannotDecide, match="does not answer"):
        read("topics", brokerName="a")


def test_a_wrong_address_is_wrong_usage() -> None:
    with pytest.raises(WrongUsage, match="names 2 brokers"):
        read("topics", brokerAddr="a:1;b:2")
