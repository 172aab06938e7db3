"""The tables on files that the Java broker wrote. Spec: store.md, sections 12.2 to 12.6."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.wire import fastjson
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy, delay_offset_body
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

DATA = Path(__file__).parent / "data" / "config"
KINDS = {
    "topics.json": lambda disk, path: TopicConfigManager(disk, AtOnce(), path, bare(), now_ms),
    "subscriptionGroup.json": lambda disk, path: SubscriptionGroupManager(
        disk, AtOnce(), path, bare(), now_ms
    ),
    "consumerOffset.json": lambda disk, path: ConsumerOffsetManager(disk, AtOnce(), path),
    "delayOffset.json": lambda disk, path: DelayOffsetCopy(disk, AtOnce(), path),
}


def now_ms() -> int:
    return 1_800_000_000_000


def bare() -> BrokerConfig:
    """The broker that wrote the fixtures."""
    return BrokerConfig(broker_name="broker-a")


def fixture(name: str) -> bytes:
    return (DATA / name).read_bytes()


def sorted_lines(data: bytes) -> list[bytes]:
    """A pretty file with its entries in any order: lines without their trailing commas."""
    return sorted(line.rstrip(b",") for line in data.split(b"\n"))


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1), now_ms)


def load(disk: SimDisk, name: str, data: bytes) -> PersistedTable:
    path = f"/store/config/{name}"
    disk.replace(path, data)
    table = KINDS[name](disk, path)
    table.load()
    return table


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("suffix", ["", ".bak"])
def test_java_files_are_read_and_written_alike(disk: SimDisk, name: str, suffix: str) -> None:
    """Same bytes but for the order of maps, which is by hash in Java."""
    data = fixture(name + suffix)
    table = load(disk, name, data)
    table.persist()
    written = disk.read_bytes(table.path)
    assert fastjson.parse(written) == fastjson.parse(data)
    assert sorted_lines(written) == sorted_lines(data)
    assert disk.read_bytes(table.path + ".bak") == data


@pytest.mark.parametrize("name", KINDS)
def test_a_file_torn_anywhere_is_seen(disk: SimDisk, name: str) -> None:
    """A file cut at any byte is damaged (or empty): never half of a table."""
    data = fixture(name)
    table = load(disk, name, data)
    for cut in range(1, len(data)):
        with pytest.raises(ProtocolViolation):
            table.decode(data[:cut])


@pytest.mark.parametrize("name", KINDS)
def test_zeroes_are_seen(disk: SimDisk, name: str) -> None:
    """What a power cut leaves of a file that was never synced."""
    data = fixture(name)
    table = load(disk, name, data)
    with pytest.raises(ProtocolViolation):
        table.decode(bytes(len(data)))
    with pytest.raises(ProtocolViolation):
        table.decode(data[:-20] + bytes(20))


@given(data=st.binary(max_size=200), name=st.sampled_from(sorted(KINDS)))
def test_any_bytes_are_a_table_or_the_documented_error(data: bytes, name: str) -> None:
    table = KINDS[name](SimDisk(Random(1), now_ms), "/t")
    try:
        table.decode(data)
    except ProtocolViolation:
        pass


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["dataVersion", "topicConfigTable", "offsetTable", "1", "T", "perm"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    name=st.sampled_from(sorted(KINDS)),
)
def test_any_json_is_a_table_or_the_documented_error(value: Any, name: str) -> None:
    table = KINDS[name](SimDisk(Random(1), now_ms), "/t")
    try:
        table.decode(json.dumps(value).encode())
    except ProtocolViolation:
        return
    table.encode()


def test_strict_json_is_read_too(disk: SimDisk) -> None:
    """Quoted queue ids: what another tool may have written."""
    table = load(disk, "consumerOffset.json", b'{"offsetTable":{"T@G":{"0":7,"1":8}}}')
    assert isinstance(table, ConsumerOffsetManager)
    assert table.table == {"T@G": {0: 7, 1: 8}}


def test_empty_offset_file(disk: SimDisk) -> None:
    table = ConsumerOffsetManager(disk, AtOnce(), "/store/config/consumerOffset.json")
    assert table.encode() == b'{\n\t"offsetTable":{}\n}'
    assert table.to_body() == b'{"offsetTable":{}}'


def test_bodies_for_slaves() -> None:
    """Integer keys stay bare. Spec: remoting.md, chapter 8."""
    disk = SimDisk(Random(1), now_ms)
    offsets = ConsumerOffsetManager(disk, AtOnce(), "/o")
    offsets.commit("CG", "TopicA", 0, 5)
    offsets.commit("CG", "TopicA", 1, 7)
    assert offsets.to_body() == b'{"offsetTable":{"TopicA@CG":{0:5,1:7}}}'
    assert delay_offset_body({1: 3, 3: 4}) == b'{"offsetTable":{1:3,3:4}}'
    assert delay_offset_body({}) == b'{"offsetTable":{}}'
    groups = SubscriptionGroupManager(disk, AtOnce(), "/g", bare(), now_ms)
    for name in list(groups.table):
        groups.delete(name)
    groups.find("CG")
    groups.data_version.counter = 3
    groups.data_version.timestamp = 1700000000000
    assert groups.to_body() == (
        b'{"dataVersion":{"counter":3,"timestamp":1700000000000},"subscriptionGroupTable":{"CG":'
        b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"groupName":"CG","notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    )
