"""`rmqha-admin stats`, `kv`, `broker writes` and `acl white` against simulated brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin import broker, kv, stats, white_addresses
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.session import NO_ANSWER, NOT_FOUND, USAGE, Session
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say

YES = {"yes": True, "dry_run": False}
DRY = {"yes": False, "dry_run": True}


@pytest.fixture
def cluster() -> SimCluster:
    return SimCluster("one", "two")


def send(cluster: SimCluster, count: int) -> None:
    async def work() -> None:
        producer = Producer(cluster.client(), ProducerConfig(producer_group="makers"))
        await producer.start()
        for number in range(count):
            await producer.send(Message("T", b"m%d" % number))
        await producer.stop()

    cluster.wait(work())


def read_all(cluster: SimCluster) -> list[str]:
    """What a group reads from now on."""
    read: list[str] = []
    consumer = PushConsumer(cluster.client("reader"), "readers", PushConsumerConfig())
    consumer.subscribe("T")
    consumer.register_message_listener(lambda found, _: read.extend(m.msg_id for m in found))
    cluster.wait(consumer.start())
    return read


def test_what_comes_goes_and_waits(cluster: SimCluster) -> None:
    send(cluster, 12)
    read = read_all(cluster)
    cluster.run(25)
    send(cluster, 12)
    cluster.run(25)
    assert len(read) == 24
    said = say(cluster, stats.show_stats)
    (row,) = [row for row in said.json["rows"] if row["topic"] == "T"]
    assert (row["group"], row["waiting"]) == ("readers", 0)
    assert row["in_day"] in (12, 24), "what came before the first look is in no difference"
    assert row["out_day"] in (12, 24)
    assert say(cluster, lambda s: stats.show_stats(s, "", "nope")).code == NOT_FOUND


def test_a_key_goes_to_every_name_server(cluster: SimCluster) -> None:
    assert say(cluster, lambda s: kv.show_keys(s, kv.ORDER_TOPICS)).code == NOT_FOUND
    shown = say(cluster, lambda s: kv.change_key(s, kv.ORDER_TOPICS, "T", "one:4", **DRY))
    assert (shown.code, shown.json["rows"][0]["after"]) == (0, "one:4")
    assert say(cluster, lambda s: kv.show_keys(s, kv.ORDER_TOPICS)).code == NOT_FOUND
    done = say(cluster, lambda s: kv.change_key(s, kv.ORDER_TOPICS, "T", "one:4", **YES))
    assert (done.code, done.last) == (0, {"done": True})
    known = say(cluster, lambda s: kv.show_keys(s, kv.ORDER_TOPICS)).json["rows"]
    assert [(row["key"], row["value"]) for row in known] == [("T", "one:4")]
    assert say(cluster, lambda s: kv.change_key(s, kv.ORDER_TOPICS, "T", None, **YES)).code == 0
    gone = say(cluster, lambda s: kv.change_key(s, kv.ORDER_TOPICS, "T", None, **YES))
    assert gone.code == NOT_FOUND


def test_nothing_changes_where_a_name_server_is_silent(cluster: SimCluster) -> None:
    both = f"{cluster.namesrv.address};10.9.9.9:9876"
    work = kv.change_key
    said = say(cluster, lambda s: work(s, kv.ORDER_TOPICS, "T", "x", **YES), namesrv=both)
    assert said.code == NO_ANSWER
    assert say(cluster, lambda s: kv.show_keys(s, kv.ORDER_TOPICS)).code == NOT_FOUND


def test_producers_leave_a_broker_and_come_back(cluster: SimCluster) -> None:
    send(cluster, 1)
    off = say(cluster, lambda s: broker.change_writes(s, "one", allowed=False, **YES))
    assert off.code == 0
    assert off.last["rows"][0]["topics"] > 0
    on = say(cluster, lambda s: broker.change_writes(s, "one", allowed=True, **YES))
    assert on.last["rows"][0]["topics"] > 0
    missing = say(cluster, lambda s: broker.change_writes(s, "three", allowed=False, **YES))
    assert missing.code == NOT_FOUND


def test_the_only_broker_is_warned_of() -> None:
    alone = SimCluster("one")
    said = say(alone, lambda s: broker.change_writes(s, "one", allowed=False, **DRY))
    assert "the only broker" in said.err


def test_white_addresses_are_set_on_all_brokers() -> None:
    cluster = SimCluster()
    for name in ("one", "two"):
        text = "accounts:\n- {accessKey: adminadmin, secretKey: adminsecret, admin: true}\n"
        cluster.add_guarded(name, text)

    def signed(addresses: list[str], sure: dict[str, bool]) -> Any:
        def work(session: Session) -> Any:
            account = Credentials("adminadmin", "adminsecret")
            session.options = replace(session.options, credentials=account)
            return white_addresses.set_white(session, addresses, **sure)

        return say(cluster, work)

    assert len(signed(["10.1.*.*"], DRY).json["rows"]) == 2
    assert signed(["10.1.*.*"], YES).last == {"done": True}
    assert signed(["10.1.*.*"], YES).json["rows"] == []
    assert signed([], YES).last == {"done": True}


@pytest.mark.parametrize(
    "line",
    ["kv set T x", "kv delete T", "broker writes one off", "acl white 10.1.1.1"],
)
def test_a_script_has_to_say_yes(line: str) -> None:
    result = CliRunner().invoke(main, [*line.split(), "-n", "127.0.0.1:1"])
    assert result.exit_code == USAGE
    assert "--yes" in result.output
