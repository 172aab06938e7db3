"""`rmqha-admin store export-timer`: what waits in a store of ours, in the files of Java."""

from __future__ import annotations

import json
from datetime import timedelta
from struct import unpack_from
from typing import Any

import pytest

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.session import FAILED
from rmq_ha.ops.admin.store_export import ExportOptions, write_java_timers
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say

PATH = "/etc/broker.properties"
TIMER_TOPIC = "rmq_sys_wheel_timer"
WHEEL_SIZE = 38_707_200


class Exported:
    """A broker whose producer sent messages with delays; its store, when it has stopped."""

    def __init__(self, *delays_s: int, recalls: bool = False) -> None:
        self.cluster = SimCluster()
        self.cluster.add("a", ours={"timer_wheel_enable": True})
        self.host = self.cluster.hosts["a"]
        own = self.cluster.brokers["a"].configuration
        lines = [
            f"brokerIP1={self.host.ip}",
            f"storePathRootDir={own.store.store_path_root_dir}",
            f"mappedFileSizeCommitLog={own.store.mapped_file_size_commit_log}",
            f"mappedFileSizeConsumeQueue={own.store.mapped_file_size_consume_queue}",
            f"maxHashSlotNum={own.store.max_hash_slot_num}",
            f"maxIndexNum={own.store.max_index_num}",
        ]
        self.host.disk.replace(PATH, "\n".join(lines).encode())
        self.sent: list[Any] = []
        self.cluster.wait(self._send(delays_s, recalls))
        self.cluster.run(5)

    async def _send(self, delays_s: tuple[int, ...], recalls: bool) -> None:
        producer = Producer(self.cluster.client(), ProducerConfig(producer_group="makers"))
        await producer.start()
        for delay in delays_s:
            message = Message("T", b"%d" % delay, delay=timedelta(seconds=delay))
            self.sent.append(await producer.send(message))
        if recalls:
            await producer.recall("T", self.sent[-1].recall_handle)
        await producer.stop()

    def stop(self) -> None:
        self.cluster.wait(self.cluster.brokers.pop("a").stop())

    def export(self, **how: Any) -> Said:
        around = Surroundings({}, "/root", "a", self.host.ip, "/")
        options = ExportOptions(around, 4096, **({"yes": True} | how))
        work = lambda session: write_java_timers(session, PATH, options)  # noqa: E731
        return say(self.cluster, work, self.host.seams)

    def read(self, name: str) -> bytes:
        return bytes(self.host.disk.read_bytes(f"/store/{name}"))

    def bodies(self) -> list[bytes]:
        """Of the records to which the units of the timer log lead."""
        log, data = self.read("commitlog/" + "0" * 20), self.read("timerlog/" + "0" * 20)
        found = []
        for at in range(0, len(data) - 52, 52):
            size, _, _, _, _, place, length = unpack_from(">iqiqiqi", data, at)
            if size != 52:
                break
            found.append(decode_record(log[place : place + length]).body)
        return found


def test_what_waits_is_in_the_files_of_java_and_nothing_else() -> None:
    """What was delivered or recalled is not; the recall is the queue's last record."""
    store = Exported(2, 900, 3, 5000, 700, recalls=True)
    store.stop()
    said = store.export()
    assert (said.code, said.json["waiting"]) == (0, 2)
    assert store.bodies() == [b"900", b"5000", b"0"]
    read, flushed, offset, masters, *_ = unpack_from(">7q", store.read("config/timercheck"))
    assert (flushed, offset, masters) == (3 * 52, 6, 6)
    assert read <= store.host.now_ms() < read + 2000
    assert len(store.read("timerwheel")) == WHEEL_SIZE
    metrics = json.loads(store.read("config/timermetrics"))
    assert metrics["timingCount"]["T"]["count"] == 2


def test_the_broker_goes_on_with_the_store_and_files_of_before_are_kept() -> None:
    store = Exported(900, 10)
    store.stop()
    store.export()
    before = store.read("config/timercheck")
    store.cluster.add("a", ours={"timer_wheel_enable": True})
    store.cluster.run(20)
    assert store.cluster.brokers["a"].store.timers.waiting == 1
    store.stop()
    assert store.export().json["waiting"] == 1
    (aside,) = [
        name for name in store.host.disk.list_dir("/store/setaside") if name.startswith("timer-")
    ]
    assert store.read(f"setaside/{aside}/config/timercheck") == before


def test_a_store_without_waiting_messages_has_no_unit_but_the_last() -> None:
    store = Exported(1, 2)
    store.stop()
    assert store.export().json["waiting"] == 0
    assert store.bodies() == [b"2"]


def test_a_store_that_a_broker_has_open_is_refused() -> None:
    store = Exported(900)
    said = store.export()
    assert said.code == FAILED
    assert not store.host.disk.exists("/store/timerwheel")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_dry_run_writes_nothing(as_json: bool) -> None:
    store = Exported(900)
    store.stop()
    said = store.export(yes=False, dry_run=True)
    assert said.code == 0
    assert "timerwheel" in said.out
    assert not store.host.disk.exists("/store/timerwheel")
