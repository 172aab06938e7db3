"""The order of a broker's start."""

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.server.broker.broker import UNREAD_GROUPS, Broker
from rmq_ha.server.store import service
from tests.sim_kit.group import BrokerGroup
from tests.unit.server.broker.sim_broker import SimBroker


def lose(broker: SimBroker, name: str) -> None:
    """A part of a broker that was stopped is gone from its disk."""
    broker.host.disk.remove_tree(f"{broker.configuration.store.store_path_root_dir}/{name}")


def test_nobody_can_connect_before_the_store_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it takes turns to catch up: whoever came earlier would find queues too short."""
    monkeypatch.setattr(service, "_SLICES_AT_ONCE", 1)
    broker = SimBroker().start()
    for _ in range(5):
        assert broker.send().code == 0
    broker.world.clock.run_for(1)
    broker.stop()
    lose(broker, "consumequeue")
    broker.broker = inner = Broker(broker.host.seams, broker.configuration)
    open_at: list[bool] = []
    for server in (inner.main_server, inner.fast_server):

        def listen(port: int, interface: str, really: Any = server.listen) -> Any:
            open_at.append(inner.store.is_open)
            return really(port, interface)

        server.listen = listen  # type: ignore[method-assign]
    broker.wait(inner.start())
    assert open_at == [True, True]
    broker.stop()


def test_a_start_tells_of_topics_that_its_table_has_lost() -> None:
    """Their messages are there, and nobody can read them."""
    broker = SimBroker().start()
    broker.broker.topics.update(TopicConfig("Lost", 1, 1))
    request = broker.message(topic="Lost")
    assert broker.call(request).code == 0
    broker.world.clock.run_for(1)
    broker.stop()
    for name in ("topics.json", "topics.json.bak"):
        broker.host.disk.remove(f"{broker.configuration.store.store_path_root_dir}/config/{name}")
    with capturedLogs() as events:
        broker.start()
    told = [formatEvent(event) for event in events]
    assert [line for line in told if "1 topics that topics.json does not have: Lost" in line]
    broker.stop()


def test_groups_that_miss_what_was_deleted_before_its_time_are_named() -> None:
    """Those that miss most, and no more than an operator reads."""
    broker = SimBroker().start()
    for number in range(UNREAD_GROUPS + 2):
        broker.broker.consumer_offsets.commit(f"g{number}", "T", 0, 40 - number)
    store = broker.broker.store
    store.min_offset_in_queue = lambda topic, queue_id: 40
    with capturedLogs() as events:
        store.on_forced_deletion()
    told = [formatEvent(event) for event in events]
    assert told == [
        f"T@g{number} has not consumed {number} of the messages that are gone"
        for number in range(UNREAD_GROUPS + 1, 1, -1)
    ]


def test_who_demands_tls_of_those_who_sign_and_has_none_does_not_start() -> None:
    """Nobody could use it, and each client would only see that it is refused."""
    broker = SimBroker()
    broker.configuration.ours.acl_requires_tls = True
    broker.configuration.plugin_options["tls.server.mode"] = "disabled"
    with pytest.raises(ConfigurationError, match="aclRequiresTls=true without TLS here"):
        broker.start()


def test_each_member_of_a_group_that_follows_has_a_number_of_its_own() -> None:
    """One more than its own in the group: 0 is the master's, whoever that is."""
    group = BrokerGroup().start()
    group.run(10)
    master = group.master()
    numbers = [member.configuration.broker.broker_id for member in group.members]
    expected = [
        0 if member is master else number for number, member in enumerate(group.members, start=1)
    ]
    assert numbers == expected
    group.wait(master.broker.stop())
    assert master.host.seams.clock.getDelayedCalls() == []
