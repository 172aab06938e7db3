"""`rmqha-admin top` over simulated brokers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin import group
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import NO_ANSWER
from rmq_ha.ops.admin.top import Sample, tables_of, watch
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say

NAMED = {"broker_name": "pair"}


@pytest.fixture
def pair() -> SimCluster:
    cluster = SimCluster()
    cluster.add("a", BrokerRole.ASYNC_MASTER, broker=NAMED)
    cluster.add("b", BrokerRole.SLAVE, broker=NAMED | {"broker_id": 1})
    cluster.run(12)
    return cluster


def send(cluster: SimCluster, count: int) -> None:
    async def work() -> None:
        producer = Producer(cluster.client(), ProducerConfig(producer_group="makers"))
        await producer.start()
        for number in range(count):
            await producer.send(Message("Orders", b"m%d" % number))
        await producer.stop()

    cluster.wait(work())


def test_one_look_as_json(pair: SimCluster) -> None:
    send(pair, 5)
    pair.run(3)
    master = pair.brokers["a"]
    made = {"is_new": True, "yes": True, "dry_run": False}
    say(pair, lambda s: group.change_group(s, "readers", "", {}, **made))
    master.consumer_offsets.commit("readers", "Orders", 0, 0)
    said = say(pair, lambda s: watch(s, "", 2.0, None, 15))
    assert said.code == 0, said.err
    first, second = said.json["brokers"]
    assert (first["role"], first["behind"]) == ("ASYNC_MASTER", None)
    assert (second["role"], second["behind"]) == ("SLAVE", 0)
    assert first["log_end"] == second["log_end"] == master.store.log.max_offset
    assert first["in_s"] > 0
    assert [row["group"] for row in said.json["groups"]] == ["readers"]
    pair.crash("b", power=True)
    said = say(pair, lambda s: watch(s, "", 2.0, None, 15))
    assert said.code == NO_ANSWER
    assert len(said.json["problems"]) == 1


def test_looks_follow_each_other_until_enough(pair: SimCluster) -> None:
    began = pair.clock.seconds()
    said = say(pair, lambda s: watch(s, "pair", 5.0, 3, 15), as_json=False)
    assert said.out.count("ASYNC_MASTER") == 3
    assert 10 <= pair.clock.seconds() - began < 12

    def interrupted(session: Any) -> Any:
        session.host.clock.callLater(12, session.interrupted.callback, None)
        return watch(session, "pair", 5.0, None, 15)

    said = say(pair, interrupted, as_json=False)
    assert (said.code, said.out.count("ASYNC_MASTER")) == (0, 4)


def test_a_broker_by_its_address_is_called_as_it_calls_itself(pair: SimCluster) -> None:
    said = say(pair, lambda s: watch(s, pair.address("a"), 2.0, None, 15), namesrv="")
    assert [row["broker"] for row in said.json["brokers"]] == ["pair"]


def test_groups_that_a_broker_does_not_tell_are_a_problem(
    pair: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str) -> Any:
        raise BrokerRefused(1, "no groups today", address)
        yield

    monkeypatch.setattr("rmq_ha.ops.admin.top.lag_by_group", refuse)
    said = say(pair, lambda s: watch(s, "", 2.0, None, 15))
    assert said.code == NO_ANSWER
    (problem,) = said.json["problems"]
    assert problem.startswith(f"groups at {pair.address('a')}: ")
    assert "no groups today" in problem


def test_growth_is_by_the_second_and_the_worst_come_first() -> None:
    before = Sample(10.0, [], {"a": 10, "b": 500}, [])
    now = Sample(14.0, [], {"a": 50, "b": 400, "c": 450}, [])
    _, groups = tables_of(now, before, 2)
    assert groups.rows == [["c", 450, None], ["b", 400, -25.0]]
    assert tables_of(now, None, 9)[1].rows[2] == ["a", 50, None]


def test_a_terminal_shows_the_last_look_in_place_of_the_one_before() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=30)
    sample = Sample(1.0, [], {"readers": 7}, [])
    with Output(False, console).screen() as screen:
        screen.show(tables_of(sample, None, 5), ["somebody is silent"])
        screen.show(tables_of(sample._replace(lags={"readers": 9}), sample, 5), [])
    text = out.getvalue()
    assert "somebody is silent" in text
    assert "\x1b[1A" in text  # goes up, to write over what is there
