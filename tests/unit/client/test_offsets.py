"""Offsets in files, as Java writes them, and with brokers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.offsets import (
    LocalFileOffsetStore,
    ReadOffsetType,
    RemoteBrokerOffsetStore,
    decode_offsets,
    encode_offsets,
)
from rmq_ha.client.rules.consumer_settings import (
    ConsumeFromWhere,
    MessageModel,
    PushConsumerConfig,
)
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.testing.host import World
from tests.unit.client.consuming import GROUP, Consuming, queue
from tests.unit.client.scripted import QUEUE, Scripted, refused

# Printed by OffsetSerializeWrapper of 4.9.7.
JAVA = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":3,
\t\t\t"topic":"T"
\t\t}:42,{
\t\t\t"brokerName":"broker-b",
\t\t\t"queueId":0,
\t\t\t"topic":"T"
\t\t}:7
\t}
}"""
TABLE = {MessageQueue("T", "broker-a", 3): 42, MessageQueue("T", "broker-b", 0): 7}
PATH = "/home/.rocketmq_offsets/c/g/offsets.json"


def test_the_file_is_java_s_to_the_byte() -> None:
    assert encode_offsets(TABLE) == JAVA
    assert decode_offsets(JAVA) == TABLE


@given(
    st.dictionaries(
        st.builds(MessageQueue, st.text(), st.text(), st.integers(0, (1 << 31) - 1)),
        st.integers(0, 1 << 62),
    )
)
def test_every_table_comes_back(table: dict[MessageQueue, int]) -> None:
    assert decode_offsets(encode_offsets(table)) == table


def test_an_offset_that_is_no_number_is_no_table() -> None:
    with pytest.raises(ProtocolViolation, match="no number"):
        decode_offsets(JAVA.replace(b"42", b'"x"'))


@given(st.one_of(st.binary(), st.integers(0, len(JAVA)).map(lambda end: JAVA[:end])))
def test_any_bytes_are_a_table_or_one_error(data: bytes) -> None:
    try:
        table = decode_offsets(data)
    except ProtocolViolation:
        return
    assert all(isinstance(offset, int) for offset in table.values())


class Local:
    """A store on a simulated disk."""

    def __init__(self) -> None:
        self.world = World(1)
        self.host = self.world.add("client")

    def store(self) -> LocalFileOffsetStore:
        store = LocalFileOffsetStore(self.host.disk, self.host.worker, PATH)
        self.wait(store.load())
        return store

    def wait(self, sequence: Any) -> Any:
        results: list[Any] = []
        Deferred.fromCoroutine(sequence).addBoth(results.append)
        self.world.clock.run_while(lambda: not results, 10)
        if hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]


def test_a_file_is_read_again_and_its_backup_when_it_is_damaged() -> None:
    local = Local()
    store = local.store()
    one, two = TABLE
    store.update_offset(one, 1, True)
    local.wait(store.persist_all([one]))
    store.update_offset(one, 5, True)
    store.update_offset(one, 3, True)
    store.update_offset(two, 7, False)
    store.remove_offset(two)
    local.wait(store.persist_all([one]))
    again = local.store()
    assert local.wait(again.read_offset(one)) == 5
    assert again.memory(two) == 7
    assert again.clone_offset_table("T") == {one: 5, two: 7}
    assert local.wait(again.read_offset(MessageQueue("T", "x", 0))) is None
    local.host.disk.replace(PATH, b"{broken")
    assert local.store().memory(one) == 1
    local.host.disk.replace(PATH + ".bak", b"also")
    with pytest.raises(MQClientError, match="repair it"):
        local.store()


def test_a_file_is_written_when_there_is_something_to_write() -> None:
    """Not for offsets that it has; again after a disk that refused."""
    local = Local()
    written: list[bytes] = []
    disk = local.host.disk
    replace, is_full = disk.replace, False

    def counted(path: str, data: bytes, *, backup: bool = False) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        written.append(data)
        replace(path, data, backup=backup)

    disk.replace = counted  # type: ignore[method-assign]
    store = local.store()
    one, two = TABLE
    local.wait(store.persist_all([one]))
    assert written == []
    for offset in (1, 1, 5):
        store.update_offset(one, offset, True)
        local.wait(store.persist_all([one]))
        local.wait(store.persist_all([]))
    assert len(written) == 2
    is_full = True
    store.update_offset(two, 7, False)
    local.wait(store.persist_all([two]))
    is_full = False
    assert local.store().memory(two) is None
    local.wait(store.persist_all([two]))
    assert len(written) == 3
    assert (local.store().memory(one), local.store().memory(two)) == (5, 7)


def test_who_persists_while_the_file_is_being_written_has_his_offsets_in_it() -> None:
    """The last ones, at a stop: they would be consumed again."""
    local = Local()
    store = local.store()
    one = next(iter(TABLE))
    done = []
    for offset in (1, 2, 3):
        store.update_offset(one, offset, True)
        done.append(Deferred.fromCoroutine(store.persist_all([one])))
    local.world.clock.run_for(1)
    assert [later.called for later in done] == [True] * 3
    assert local.store().memory(one) == 3


def test_a_java_client_s_file_is_taken_over() -> None:
    local = Local()
    local.host.disk.make_dirs(PATH.rpartition("/")[0])
    local.host.disk.replace(PATH, JAVA)
    assert local.store().clone_offset_table("") == TABLE


def test_brokers_keep_what_is_persisted_and_memory_what_is_owned() -> None:
    cluster = Consuming("a")
    cluster.send("a", 48)
    client = cluster.client()
    cluster.wait(client.start())
    cluster.wait(client.route("topic"))
    store = RemoteBrokerOffsetStore(QueueCalls(client), GROUP)
    cluster.wait(store.load())
    assert cluster.wait(store.read_offset(queue("a", 1))) == 0
    for number in range(4):
        store.update_offset(queue("a", number), 10 + number, True)
    cluster.wait(store.persist_all([queue("a", 0), queue("a", 1)]))
    cluster.run(1)
    assert cluster.committed("a") == {0: 10, 1: 11}
    assert store.memory(queue("a", 2)) is store.memory(queue("a", 3)) is None
    store.update_offset(queue("a", 0), 4, False)
    kind = ReadOffsetType.READ_FROM_STORE
    assert cluster.wait(store.read_offset(queue("a", 0))) == 4
    assert cluster.wait(store.read_offset(queue("a", 0), kind)) == 10
    memory = ReadOffsetType.READ_FROM_MEMORY
    assert cluster.wait(store.read_offset(queue("a", 3), memory)) is None
    cluster.wait(store.persist(queue("zzz", 0)))
    store.update_offset(queue("zzz", 0), 1, True)
    cluster.wait(store.persist(queue("zzz", 0)))  # nobody to tell: it is logged


def test_units_of_one_machine_have_files_of_their_own() -> None:
    """Two units are two systems: one would go on where the other is."""
    config = PushConsumerConfig(message_model=MessageModel.BROADCASTING)
    paths = []
    for unit in ("", " ", "u"):
        instance = Scripted(unit_name=unit, instance_name="i").instance
        store = ConsumerBase(instance, GROUP, config).offset_store
        assert isinstance(store, LocalFileOffsetStore)
        paths.append(store.path)
    folder = "/home/.rocketmq_offsets/10.0.0.9@i"
    assert paths == [f"{folder}{unit}/{GROUP}/offsets.json" for unit in ("", "", "@u")]


def test_of_a_queue_of_which_nothing_is_known_no_broker_is_told() -> None:
    client = Scripted()
    store = RemoteBrokerOffsetStore(QueueCalls(client.instance), GROUP)
    client.know()
    client.wait(store.persist(QUEUE))
    client.wait(store.persist_surely([QUEUE]))
    assert client.asked == []
    store.update_offset(QUEUE, 0, True)
    client.wait(store.persist(QUEUE))
    assert [ext["commitOffset"] for _, ext in client.of(RequestCode.UPDATE_CONSUMER_OFFSET)] == [
        "0"
    ]


def test_offsets_are_persisted_when_all_were_handed_over() -> None:
    """A stop that does not wait closes the connection first, and messages come twice."""
    client = Scripted()
    store = RemoteBrokerOffsetStore(QueueCalls(client.instance), GROUP)
    client.know()
    queues = [QUEUE, msgspec.structs.replace(QUEUE, queue_id=1)]
    handed: list[Deferred[None]] = []
    client.oneway = lambda *_: handed.append(Deferred()) or handed[-1]  # type: ignore
    for offset, one in enumerate(queues):
        store.update_offset(one, offset, True)
    done = Deferred.fromCoroutine(store.persist_all(queues))
    assert len(handed) == 2
    for waiting in handed:
        assert not done.called
        waiting.callback(None)
    client.wait(done)


def test_what_the_broker_says_is_known_even_if_it_is_lower() -> None:
    """An operator set the group back: the next commit must not repeat the old place."""
    cluster = Consuming("a")
    cluster.send("a", 8, queue_id=0)
    instance = cluster.client("c1")
    cluster.wait(instance.start())
    store = RemoteBrokerOffsetStore(QueueCalls(instance), GROUP)
    ours = queue("a", 0)

    async def read() -> int | None:
        store.update_offset(ours, 2, False)
        await store.persist(ours)
        store.update_offset(ours, 7, False)
        return await store.read_offset(ours, ReadOffsetType.READ_FROM_STORE)

    assert cluster.wait(Deferred.fromCoroutine(read())) == 2
    assert store.memory(ours) == 2
    cluster.wait(instance.stop())


@pytest.mark.parametrize(
    ("where", "topic", "retry"),
    [
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 3, 3),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 30, 0),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 9, 30),
    ],
)
def test_a_queue_that_the_group_never_read_begins_as_java_s(
    where: ConsumeFromWhere, topic: int, retry: int
) -> None:
    """A retry topic at its beginning, or what was given back before would be skipped."""
    client = Scripted()
    base = ConsumerBase(client.instance, GROUP, PushConsumerConfig(consume_from_where=where))
    client.know("%RETRY%g")
    client.know("T")
    client.answers |= {
        RequestCode.QUERY_CONSUMER_OFFSET: refused(22),
        RequestCode.GET_MIN_OFFSET: RemotingCommand(0, {"offset": "3"}),
        RequestCode.GET_MAX_OFFSET: RemotingCommand(0, {"offset": "30"}),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: RemotingCommand(0, {"offset": "9"}),
    }
    assert client.wait(base.first_offset(QUEUE)) == topic
    assert client.wait(base.first_offset(MessageQueue("%RETRY%g", "a", 0))) == retry
    client.answers[RequestCode.QUERY_CONSUMER_OFFSET] = RemotingCommand(0, {"offset": "0"})
    assert client.wait(base.first_offset(QUEUE)) == 0
