"""KVConfigManager's file. Spec: remoting.md, section 9.6; store.md, section 12.7."""

from random import Random

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.server.namesrv.kv_config import KVConfigManager
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

PATH = "/ns/kvConfig.json"


def make(disk: SimDisk) -> KVConfigManager:
    return KVConfigManager(disk, AtOnce(), PATH)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1), lambda: 0)


def test_survives_a_restart(disk: SimDisk) -> None:
    make(disk).put("ORDER_TOPIC_CONFIG", "T", "broker-a:8;broker-b:4")
    again = make(disk)
    again.load()
    assert again.get("ORDER_TOPIC_CONFIG", "T") == "broker-a:8;broker-b:4"


def test_reads_what_java_wrote(disk: SimDisk) -> None:
    disk.replace(PATH, b'{"configTable":{"n":{"k":"v"},"empty":{}}}')
    kv_config = make(disk)
    kv_config.load()
    assert kv_config.namespace("n") == {"k": "v"}
    assert kv_config.namespace("empty") == {}


@pytest.mark.parametrize("damage", [b'{"configTable":{"n"', b"[]", b"{}", b'{"configTable":3}'])
def test_a_damaged_file_gives_way_to_its_backup(disk: SimDisk, damage: bytes) -> None:
    disk.replace(PATH, damage)
    disk.replace(PATH + ".bak", b'{"configTable":{"n":{"k":"v"}}}')
    kv_config = make(disk)
    kv_config.load()
    assert kv_config.get("n", "k") == "v"


def test_both_damaged(disk: SimDisk) -> None:
    disk.replace(PATH, b"x")
    disk.replace(PATH + ".bak", b"y")
    with pytest.raises(StoreError, match=r"kvConfig\.json\.bak"):
        make(disk).load()
