"""SQL92 in a whole broker: real store, real files, a restart."""

from typing import Any

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import ConsumerData, HeartbeatData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker

GROUP = "consumers"


def heartbeat(expression: str, version: int = 5) -> RemotingCommand:
    wanted = SubscriptionData(TOPIC, expression, sub_version=version, expression_type="SQL92")
    data = HeartbeatData("c1", [ConsumerData(GROUP, subscriptions=[wanted])])
    return RemotingCommand(RequestCode.HEART_BEAT, None, data.encode())


def pull(offset: int = 0, hold_ms: int = 0, version: int = 5, **more: Any) -> RemotingCommand:
    request = pull_request(GROUP, TOPIC, 0, offset, hold_ms=hold_ms)
    ext = {"subVersion": str(version), **more}
    ext.setdefault("sysFlag", "2" if hold_ms else "0")
    request.ext = {**(request.ext or {}), **ext}
    return request


def offsets(answer: RemotingCommand) -> list[int]:
    return [record.queue_offset for record in decode_records(answer.body or b"")]


def test_a_group_gets_what_it_subscribed_to_also_after_a_restart() -> None:
    broker = SimBroker()
    broker.configuration.broker.enable_property_filter = True
    broker.start()
    for number in range(40):
        broker.call(broker.message(b"x", price=str(number), TAGS="T"))
    assert broker.call(heartbeat("price > 35 AND TAGS = 'T'")).code == 0
    assert offsets(broker.call(pull())) == [36, 37, 38, 39]
    born = broker.broker.consumer_filters.get(TOPIC, GROUP).born_ms
    broker.stop()

    broker.start()
    assert broker.call(pull()).code == 24
    saved = broker.broker.consumer_filters.get(TOPIC, GROUP)
    assert (saved.expression, saved.is_dead) == ("price > 35 AND TAGS = 'T'", True)
    assert broker.call(heartbeat("price > 35 AND TAGS = 'T'")).code == 0
    assert (saved.is_dead, saved.born_ms) == (False, born)
    assert offsets(broker.call(pull(38))) == [38, 39]


def test_the_file_is_written_every_ten_seconds() -> None:
    broker = SimBroker()
    broker.start()
    path = broker.broker.consumer_filters.path
    broker.call(heartbeat("a = 1"))
    assert not broker.host.disk.exists(path)
    broker.world.clock.run_for(11)
    assert b'"expression":"a = 1"' in broker.host.disk.read_bytes(path)


def test_a_held_pull_is_woken_by_what_the_group_wants() -> None:
    broker = SimBroker()
    broker.configuration.broker.enable_property_filter = True
    broker.start()
    broker.call(heartbeat("price >= 10"))
    broker.call(broker.message(b"x", price="1"))
    held: list[Any] = []
    broker.ask(pull(1, hold_ms=15000), broker_port(broker)).addCallback(held.append)
    for price in ("2", "x", "11"):
        assert held == []
        broker.call(broker.message(b"x", price=price))
    broker.world.clock.run_for(0.5)
    (answer,) = held
    assert (answer.code, offsets(answer)) == (0, [3])


def broker_port(broker: SimBroker) -> int:
    port: int = broker.configuration.server.listen_port
    return port


def test_an_operator_sees_what_the_extension_of_a_queue_says() -> None:
    """QUERY_CONSUME_QUEUE: the unit itself, its bits, and whether the group wants it."""
    broker = SimBroker()
    broker.configuration.broker.enable_property_filter = True
    broker.configuration.broker.enable_calc_filter_bit_map = True
    broker.configuration.store.enable_consume_queue_ext = True
    broker.start()
    broker.call(heartbeat("price > 1"))
    broker.world.clock.run_for(1)
    for number in range(4):
        broker.call(broker.message(b"x", price=str(number)))
    broker.world.clock.run_for(1)
    ext = {"topic": TOPIC, "queueId": "0", "index": "0", "count": "9", "consumerGroup": GROUP}
    request = RemotingCommand(RequestCode.QUERY_CONSUME_QUEUE, ext)
    data = fastjson.parse(broker.call(request).body or b"")["queueData"]
    assert [unit["eval"] for unit in data] == [False, False, True, True]
    assert [unit["bitMap"].count("1") > 0 for unit in data] == [False, False, True, True]
    first = fastjson.parse(data[0]["extendDataJson"].encode())
    assert first["msgStoreTime"] > 0
    del request.ext["consumerGroup"]  # type: ignore[union-attr]
    data = fastjson.parse(broker.call(request).body or b"")["queueData"]
    assert [unit["eval"] for unit in data] == [False] * 4
    queue = broker.broker.store.queues.get(TOPIC, 0)
    broker.broker.store.queues.sync()
    queue._extension.clear()  # as after the loss of its files
    data = fastjson.parse(broker.call(request).body or b"")["queueData"]
    assert {unit["msg"] for unit in data} == {
        f"Cq extend not exist!addr: {unit['tagsCode']}" for unit in data
    }
    broker.stop()
