"""Cleaning at an operator's wish, on a running broker. Spec: remoting.md, section 2.2."""

from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import SimBroker


def a_broker_with_files(count: int) -> SimBroker:
    """Several commit-log files, each message in queue 0 of `TopicA`."""
    broker = SimBroker()
    broker.configuration.store.clean_resource_interval = 1000
    broker.configuration.store.file_reserved_time = 0
    broker.configuration.store.delete_when = "25"  # never by itself
    broker.start()
    size = broker.configuration.store.mapped_file_size_commit_log
    while broker.broker.store.log.max_offset < count * size:
        assert broker.call(broker.message(bytes(4000), topic="TopicA")).code == 0
    broker.world.clock.run_for(1)
    return broker


def test_expired_files_go_at_once() -> None:
    """And with them what the queues had of them; the rest can still be read."""
    broker = a_broker_with_files(4)
    broker.world.clock.run_for(120)
    store = broker.broker.store
    assert store.log.min_offset == 0
    answer = broker.call(RemotingCommand(RequestCode.DELETE_EXPIRED_COMMITLOG))
    assert answer.code == ResponseCode.SUCCESS
    broker.world.clock.run_for(600)
    assert store.log.min_offset > 0
    assert 0 < store.min_offset_in_queue("TopicA", 0) < store.max_offset_in_queue("TopicA", 0)
    broker.stop()


def test_queues_of_forgotten_topics_go() -> None:
    """Those of known topics stay."""
    broker = SimBroker().start()
    broker.call(broker.message(topic="TopicA"))
    broker.call(broker.message(topic="TopicB"))
    broker.world.clock.run_for(1)
    broker.broker.topics.delete("TopicB")
    for code in (RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE):
        assert broker.call(RemotingCommand(code)).code == ResponseCode.SUCCESS
    store = broker.broker.store
    assert store.max_offset_in_queue("TopicA", 0) == 1
    assert store.max_offset_in_queue("TopicB", 0) == 0
    counted = broker.broker.stats.tables["topics"]
    assert [counted.get(topic) is None for topic in ("TopicA", "TopicB")] == [False, True]
    broker.stop()


def test_queues_go_of_whose_messages_the_log_has_none_any_more() -> None:
    broker = a_broker_with_files(1)
    store = broker.broker.store
    broker.call(broker.message(topic="TopicB"))
    while store.log.max_offset < 4 * store.log.file_size:
        broker.call(broker.message(bytes(4000), topic="TopicA"))
    broker.world.clock.run_for(120)
    broker.call(RemotingCommand(RequestCode.DELETE_EXPIRED_COMMITLOG))
    broker.world.clock.run_for(600)
    there = [store.queues.get(topic, 0) is not None for topic in ("TopicA", "TopicB")]
    assert broker.call(RemotingCommand(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
    then = [store.queues.get(topic, 0) is not None for topic in ("TopicA", "TopicB")]
    assert (there, then) == ([True, True], [True, False])
    broker.stop()
