"""Who remembers what was promised: each broken promise is seen, each allowed loss is excused."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole, FlushDiskType, PutMessageStatus
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.images import LogImage
from rmq_ha.testing.workload import Attempt
from tests.sim_kit.damage import LOG, LOST, ZERO, Damage
from tests.sim_kit.judge import Judge

FILE = 4096
PATH = "/store/commitlog/00000000000000000000"
RECORD = bytes.fromhex(
    "0000006b daa320a7 00000000 00000003 00000007 0000000000000000 0000000000000000 00000000"
    "000001a1fcfcb186 7f000001 0000c822 000001a1fcfcb186 7f000001 00009be7 00000002"
    "0000000000000000 00000000 06 546f70696341 000a"
)


def log_of(*keys: str) -> bytes:
    """Records of TopicA with these unique ids."""
    data = b""
    for number, key in enumerate(keys):
        properties = f"UNIQ_KEY\x01{key}".encode()
        record = bytearray(RECORD[:-2])
        record += len(properties).to_bytes(2, "big") + properties
        record[0:4] = len(record).to_bytes(4, "big")
        record[20:28] = number.to_bytes(8, "big")
        record[28:36] = len(data).to_bytes(8, "big")
        data += bytes(record)
    return data


class Node:
    """A machine with a log."""

    def __init__(self, name: str) -> None:
        self.host: Any = SimpleNamespace(
            name=name,
            disk=SimDisk(Random(1), lambda: 0),
            worker=SimpleNamespace(delay=0, usual_delay=0),
        )
        self.boots = 1
        self.state = "running"
        self.data = b""
        self.served: dict[int, bytes] = {}
        self.store: Any = SimpleNamespace(
            log=self, dispatcher=SimpleNamespace(position=0), get_message=self._get
        )

    @property
    def life(self) -> tuple[str, int]:
        return self.host.name, self.boots

    @property
    def max_offset(self) -> int:
        return len(self.data)

    flushed_offset = max_offset

    def read(self, offset: int, limit: int) -> bytes:
        return self.data[offset : offset + limit]

    def log_image(self) -> LogImage:
        return LogImage(0, self.data, len(self.data), FILE)

    def _get(self, group: str, topic: str, queue_id: int, number: int, *_: Any) -> Any:
        found = self.served.get(number)
        return SimpleNamespace(messages=[found] if found else [], status="nothing")


class Pair:
    """A judge of machines a (the master) and b."""

    def __init__(self, role: BrokerRole, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> None:
        self.now = 0.0
        self.leader = "a"
        self.findings = Findings()
        self.nodes = {"a": Node("a"), "b": Node("b")}
        self.judge = Judge(
            self.findings,
            self.nodes,  # type: ignore[arg-type]
            role,
            flush,
            lambda: self.leader,
            lambda: self.now,
            Random(1),
        )
        for name, part in (("a", role), ("b", BrokerRole.SLAVE)):
            self.judge.recovered(name, part, self.nodes[name].log_image())

    def put(self, key: str, status: PutMessageStatus = PutMessageStatus.PUT_OK) -> Attempt:
        master = self.nodes[self.leader]
        attempt = Attempt(key, "TopicA", 3, master.life, self.now)
        self.judge.attempts[key] = attempt
        attempt.offset, attempt.queue_offset = len(master.data), len(self.judge.attempts) - 1
        master.data = log_of(*self.judge.attempts)
        attempt.end = len(master.data)
        attempt.status = status
        return attempt

    def boot(self, name: str, part: BrokerRole, power: bool = False) -> None:
        self.judge.crashes(name, power)
        self.nodes[name].boots += 1
        self.judge.recovered(name, part, self.nodes[name].log_image())

    @property
    def kinds(self) -> list[str]:
        return self.findings.kinds()


@pytest.fixture
def pair() -> Pair:
    return Pair(BrokerRole.SYNC_MASTER)


def test_no_replica(pair: Pair) -> None:
    """PUT_OK, and the slave has not got it, or has other bytes there."""
    attempt = pair.put("m1")
    pair.judge.answered(attempt)
    assert pair.kinds == ["acknowledged-without-replica"]


@pytest.mark.parametrize("had_it", [True, False])
@pytest.mark.parametrize("end_is_known", [True, False])
def test_a_replica_that_was_spoilt_since_it_said_so(
    pair: Pair, had_it: bool, end_is_known: bool
) -> None:
    """Its word was on the way while its disk was damaged: what it had before that counts."""
    attempt = pair.put("m1")
    slave = pair.nodes["b"]
    slave.data = pair.nodes["a"].data if had_it else b""
    good = slave.log_image()
    slave.state, slave.data = "down", b""
    pair.judge.damaged("b", Damage(LOG, LOST, PATH, 0, FILE), good)
    if not end_is_known:
        attempt.end = -1
        pair.nodes["a"].boots += 1
    pair.judge.answered(attempt)
    assert pair.kinds == ([] if had_it else ["acknowledged-without-replica"])


@pytest.mark.parametrize("asked_at", [0.0, 2.0])
def test_the_word_of_a_replica_that_is_back_already(pair: Pair, asked_at: float) -> None:
    """It cut its damage and has not fetched it again; its word of before waited in the network."""
    attempt = pair.put("m1")
    slave = pair.nodes["b"]
    slave.data, pair.now = pair.nodes["a"].data, 1.0
    pair.judge.damaged("b", Damage(LOG, LOST, PATH, 0, FILE), slave.log_image())
    slave.data = b""
    pair.boot("b", BrokerRole.SLAVE)
    attempt.asked_at = asked_at
    pair.judge.answered(attempt)
    assert pair.kinds == (["acknowledged-without-replica"] if asked_at else [])


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_replica_that_does_not_know_that_it_was_spoilt(pair: Pair, is_noticed: bool) -> None:
    """It is back, with the bytes that it had and the damage: what was fetched anew has to fit."""
    attempt = pair.put("m1")
    slave = pair.nodes["b"]
    slave.data = good = pair.nodes["a"].data
    damage = Damage(LOG, ZERO, PATH, 100, 104, good[100:104], bytes(4))
    pair.judge.damaged("b", damage, slave.log_image())
    attempt.asked_at = 1.0
    slave.data = good[:100] + (b"anew" if is_noticed else bytes(4)) + good[104:]
    pair.boot("b", BrokerRole.SLAVE)
    pair.judge.answered(attempt)
    assert pair.kinds == (["acknowledged-without-replica"] if is_noticed else [])


@pytest.mark.parametrize(
    ("machine", "fetched", "needs_hands"),
    [("a", False, True), ("b", True, True), ("b", False, False)],
)
def test_who_may_refuse_to_start(
    pair: Pair, machine: str, fetched: bool, needs_hands: bool
) -> None:
    """A machine that was damaged, and one that fetched those bytes; nobody else."""
    pair.put("m1")
    good = pair.nodes["a"].data
    bad = good[:100] + bytes(4) + good[104:]
    damage = Damage(LOG, ZERO, PATH, 100, 104, good[100:104], bytes(4), (good[84:100], good[104:]))
    pair.judge.damaged("a", damage, pair.nodes["a"].log_image())
    pair.nodes["a"].data = bad
    pair.nodes["b"].data = bad if fetched else good[:90].ljust(len(good), b"\0")
    assert pair.judge.refused(machine, StoreError("damage")) == needs_hands
    assert pair.kinds == ([] if needs_hands else ["load"])


@pytest.mark.parametrize("queues_know", [True, False])
def test_a_replica_that_cannot_serve(pair: Pair, queues_know: bool) -> None:
    """The bytes are there: a second later the slave's queues know them too."""
    attempt = pair.put("m1")
    slave = pair.nodes["b"]
    slave.data = pair.nodes["a"].data
    pair.judge.answered(attempt)
    pair.judge.look()
    assert not pair.kinds
    if queues_know:
        slave.store.dispatcher.position = attempt.end
        slave.served[0] = slave.data
    pair.now = 1.5
    pair.judge.look()
    assert pair.kinds == ([] if queues_know else ["acknowledged-not-served"])


def test_promoted_without_it(pair: Pair) -> None:
    """What ended PUT_OK is on the slave that becomes the master; other messages need not be."""
    for key, status in (
        ("m1", PutMessageStatus.PUT_OK),
        ("m2", PutMessageStatus.SLAVE_NOT_AVAILABLE),
    ):
        attempt = pair.put(key, status)
        if key == "m1":
            pair.nodes["b"].data = pair.nodes["a"].data
        pair.judge.answered(attempt)
    pair.leader = "b"
    pair.boot("b", BrokerRole.SYNC_MASTER)
    assert not pair.kinds
    assert pair.judge.attempts["m2"].excused
    assert not pair.judge.attempts["m1"].excused
    lost = Pair(BrokerRole.SYNC_MASTER)
    attempt = lost.put("m1")
    lost.nodes["b"].data = lost.nodes["a"].data
    lost.judge.answered(attempt)
    lost.nodes["b"].data = b""
    lost.leader = "b"
    lost.boot("b", BrokerRole.SYNC_MASTER)
    assert "promoted-without" in lost.kinds


@pytest.mark.parametrize(
    ("flush", "power", "found"),
    [
        (FlushDiskType.ASYNC_FLUSH, True, []),
        (FlushDiskType.ASYNC_FLUSH, False, ["lost-by-kill"]),
        (FlushDiskType.SYNC_FLUSH, True, ["lost-after-flush"]),
    ],
)
def test_what_a_loss_may_take(flush: FlushDiskType, power: bool, found: list[str]) -> None:
    """A kill takes nothing; lost power takes what SYNC_FLUSH has not vouched for."""
    pair = Pair(BrokerRole.ASYNC_MASTER, flush)
    attempt = pair.put("m1")
    pair.judge.answered(attempt)
    pair.now = 1.0
    pair.nodes["a"].state = "down"  # nothing was flushed
    pair.nodes["a"].data = b""
    pair.boot("a", BrokerRole.ASYNC_MASTER, power)
    assert pair.kinds == found


def test_what_was_called_flushed(pair: Pair) -> None:
    """After lost power the log has what the store had called flushed."""
    pair.put("m1")
    pair.judge.crashes("a", True)
    pair.nodes["a"].data = b""
    pair.judge.recovered("a", BrokerRole.SYNC_MASTER, pair.nodes["a"].log_image())
    assert "flushed-and-lost" in pair.kinds


def test_a_recovery_that_cuts_too_much(pair: Pair) -> None:
    """Whole records that were there before the start are there behind it."""
    pair.put("m1")
    before = pair.nodes["a"].log_image()
    pair.nodes["a"].data = b""
    pair.judge.recovered("a", BrokerRole.SYNC_MASTER, before)
    assert "recovery" in pair.kinds
