"""Batches that take several turns: others are served meanwhile, and the sender's order holds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.processors import send
from rmq_ha.server.broker.processors.batches import MEMBERS_A_TURN
from rmq_ha.server.broker.processors.many_keys import has_many_keys
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker

COUNT = 3 * MEMBERS_A_TURN + 7


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    broker = SimBroker()
    broker.configuration.store.mapped_file_size_commit_log = 1 << 22
    broker.start().broker.topics.update(TopicConfig(TOPIC, 4, 4))
    assert broker.send().code == 0
    yield broker
    broker.stop()


def batch(count: int = COUNT, behind: bytes = b"") -> RemotingCommand:
    members = [(0, b"%d" % number, "") for number in range(count)]
    ext = {"a": "P", "b": TOPIC, "e": "0", "i": "", "m": "true"}
    return RemotingCommand(320, ext, encode_batch(members) + behind)


def stored(broker: SimBroker) -> int:
    """In queue 0, with the first one."""
    return int(broker.broker.store.max_offset_in_queue(TOPIC, 0))


def test_what_follows_on_the_connection_is_stored_behind_it(broker: SimBroker) -> None:
    answers: list[Any] = []
    for request in (batch(), broker.message(b"after"), batch(), broker.message(b"last")):
        broker.ask(request).addCallback(answers.append)
    broker.world.clock.run_for(1)
    assert [answer.code for answer in answers] == [0] * 4
    offsets = [int(answer.ext["queueOffset"]) for answer in answers]
    assert offsets == [1, COUNT + 1, COUNT + 2, 2 * COUNT + 2]
    assert answers[0].ext["msgId"].count(",") == COUNT - 1
    assert stored(broker) == 2 * COUNT + 3


def begin(broker: SimBroker) -> tuple[Any, list[Any]]:
    """A batch of which something is left to do: its channel, and where its answer comes."""
    answers: list[Any] = []
    broker.ask(batch(20 * MEMBERS_A_TURN)).addBoth(answers.append)
    held: list[Any] = []
    while not held:
        assert broker.world.clock.step()
        held = [channel for channel in broker.broker.main_server.channels if channel.held]
    return held[0], answers


def test_others_are_served_meanwhile(broker: SimBroker) -> None:
    """Their messages are stored between its turns, never between its members."""
    channel, answers = begin(broker)
    numbers: list[int] = []
    turns = 0
    while channel.held:
        message = BrokerMessage(TOPIC, 0, b"other", channel.remote, channel.remote)
        broker.broker.store.put_message(message).addCallback(
            lambda result: numbers.append(result.append.queue_offset)
        )
        assert broker.world.clock.step()
        turns += 1
    broker.world.clock.run_for(1)
    assert turns >= 20
    assert numbers == list(range(1, turns + 1))
    assert int(answers[0].ext["queueOffset"]) == turns + 1
    assert stored(broker) == turns + 1 + 20 * MEMBERS_A_TURN


def test_a_batch_that_turns_out_wrong_is_refused_whole(broker: SimBroker) -> None:
    answer = broker.call(batch(behind=b"no member"))
    assert (answer.code, answer.remark) == (1, "9 bytes too many at the end of a batch")
    broker.configuration.ours.max_messages_per_batch = COUNT - 1
    assert broker.call(batch()).code == 13
    broker.world.clock.run_for(0.1)
    assert stored(broker) == 1
    assert broker.call(batch(COUNT - 1)).code == 0


def test_what_changed_meanwhile_holds_for_a_batch_that_is_not_stored_yet(
    broker: SimBroker,
) -> None:
    """A topic that was made smaller gets no messages in a queue that nobody reads."""
    _, answers = begin(broker)
    broker.broker.topics.delete(TOPIC)
    broker.configuration.broker.auto_create_topic_enable = False
    broker.world.clock.run_for(1)
    assert [answer.code for answer in answers] == [ResponseCode.TOPIC_NOT_EXIST]
    assert answers[0].ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert stored(broker) == 1


def test_a_batch_whose_sender_is_gone_is_left(broker: SimBroker) -> None:
    channel, _ = begin(broker)
    channel.closed("the peer is gone")
    assert not channel.held
    broker.world.clock.run_for(1)
    assert stored(broker) == 1


def with_keys(broker: SimBroker, keys: int) -> RemotingCommand:
    """An ordinary send, as the clients' headers say it."""
    return broker.message(b"x", KEYS=" ".join(["k"] * keys))


def batch_with_keys(broker: SimBroker, keys: int) -> RemotingCommand:
    members = [(0, b"x", "KEYS\x01" + " ".join(["k"] * (keys // 10)))] * 10
    ext = {"a": "P", "b": TOPIC, "e": "0", "i": "", "m": "true"}
    return RemotingCommand(320, ext, encode_batch(members))


@pytest.mark.parametrize("make", [with_keys, batch_with_keys])
def test_a_sender_of_many_keys_waits_until_they_are_in_the_index(
    broker: SimBroker, make: Callable[[SimBroker, int], RemotingCommand]
) -> None:
    """His messages do not pile up in front of those of others, which nobody finds until then."""
    answers: list[Any] = []
    for _ in range(8):
        broker.ask(make(broker, 10_000)).addCallback(answers.append)
    most = 0
    while len(answers) < 8:
        assert broker.world.clock.step()
        most = max(most, broker.broker.store.dispatcher.bytes_behind)
    assert {answer.code for answer in answers} == {0}
    assert 0 < most < 30_000  # one of the records, which have 20,000 bytes each


def test_a_sender_of_many_keys_who_is_gone_leaves_his_turn_to_the_next(broker: SimBroker) -> None:
    """What waited for its turn is not stored, as nobody would hear that it was."""
    for _ in range(2):
        broker.ask(with_keys(broker, 16_000)).addErrback(lambda _: None)
    held: list[Any] = []
    for _ in range(1000):
        assert broker.world.clock.step()
        held = [channel for channel in broker.broker.main_server.channels if channel.held]
        if held:
            break
    held[0].close()
    broker.world.clock.run_for(1)
    assert stored(broker) == 2
    assert broker.call(with_keys(broker, 16_000)).code == 0
    broker.world.clock.run_for(1)
    assert stored(broker) == 3
    assert broker.broker.store.dispatcher.bytes_behind == 0


def test_ordinary_sends_do_not_wait_for_the_index(broker: SimBroker) -> None:
    answers: list[Any] = []
    for _ in range(20):
        broker.ask(with_keys(broker, 60)).addCallback(answers.append)
    most = 0
    while len(answers) < 20:
        assert broker.world.clock.step()
        most = max(most, broker.broker.store.dispatcher.bytes_behind)
    assert most > 20 * 200


@pytest.mark.parametrize(("keys", "waits"), [(5, False), (6, True)])
def test_a_batch_waits_for_the_index_from_so_many_keys_on(
    broker: SimBroker, keys: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each blank between two keys counts: what follows on its connection waits as long."""
    monkeypatch.setattr(send, "KEYS_AT_ONCE", 4)
    index: Deferred[None] = Deferred()
    broker.broker.store.dispatcher.reached_end = lambda: index
    body = encode_batch([(0, b"x", "KEYS\x01" + " ".join(["k"] * keys))])
    answers: list[Any] = []
    ext = {"a": "P", "b": TOPIC, "e": "0", "i": "", "m": "true"}
    for request in (RemotingCommand(320, ext, body), broker.message(b"after")):
        broker.ask(request).addCallback(answers.append)
    broker.world.clock.run_for(0.5)
    assert (len(answers), stored(broker)) == ((0, 1) if waits else (2, 3))
    index.callback(None)
    broker.world.clock.run_for(0.5)
    assert [answer.ext["queueOffset"] for answer in answers] == ["1", "2"]


def test_what_follows_a_batch_of_several_turns_does_not_wait_for_the_disk() -> None:
    """It is behind it in the log; only the answers wait, and all may be flushed together."""
    broker = SimBroker()
    broker.configuration.store.mapped_file_size_commit_log = 1 << 22
    broker.configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
    broker.start().broker.topics.update(TopicConfig(TOPIC, 4, 4))
    assert broker.send().code == 0
    broker.host.worker.delay = (1.0, 1.0)
    answers: list[Any] = []
    for request in (batch(), broker.message(b"after")):
        broker.ask(request).addCallback(answers.append)
    broker.world.clock.run_for(0.5)
    assert (answers, stored(broker)) == ([], 1 + COUNT + 1)
    broker.world.clock.run_for(10)
    assert [answer.code for answer in answers] == [0, 0]
    broker.stop()


@pytest.mark.parametrize(
    ("text", "is_many"), [("k " * 64, False), ("k " * 65, True), ("x" * 10_000, False)]
)
def test_many_keys_are_many_and_not_long(text: str, is_many: bool) -> None:
    assert has_many_keys(text) is is_many
