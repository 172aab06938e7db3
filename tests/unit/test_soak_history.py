"""What a soak makes of its clients' lines; `testing/test_promises.py` breaks each promise."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from soak_history import History
from soak_pair import difference, is_unchecked
from soak_victims import RealClock, RealVictims, StoreFiles

from rmq_ha.base.model.message import Address, BrokerMessage, draft_of
from rmq_ha.server.store.log.append import GroupEncoder
from tests.sim_kit.damage import LOG, spoil
from tests.sim_kit.faults import MASTER, SOAK_KINDS, Fault, FaultPlan
from tests.sim_kit.promises import CommittedOffsets


def told(*lines: str) -> History:
    history = History()
    for line in lines:
        history.take(line.split(" "))
    return history


def well() -> History:
    """Two messages, the first one sent twice, and a transaction of each fate."""
    return told(
        "A normal-1-x", "S normal-1-x ERROR -1 SendTimeout", "A normal-1-x",
        "S normal-1-x SEND_OK 0 500", "A normal-2-x", "S normal-2-x SEND_OK 0 900",
        "A txn-1-commit", "S txn-1-commit SEND_OK 0 100", "A txn-2-rollback",
        "S txn-2-rollback SEND_OK 0 300", "R normal normal-1-x 0 0 0", "R normal normal-2-x 0 0 2",
        "R txn txn-1-commit 0 0 0", "E ready",
    )  # fmt: skip


STORED = [(0, 0, "normal-1-x"), (0, 1, "normal-1-x"), (0, 2, "normal-2-x")]


def test_what_is_well_is_well() -> None:
    history = well()
    assert history.faults_of_store("normal", STORED, "a") == []
    assert history.faults_of_store("txn", [(0, 0, "txn-1-commit")], "a") == []
    assert history.faults_of_groups() == []
    assert "| normal | 3 | 2 | 0 | 0 | 1 ERROR | 2 | 0 |" in history.table()


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (STORED[:2], "a, normal: 1 acknowledged and missing: normal-2-x"),
        ([*STORED, (0, 3, "normal-2-x")], "a, normal: 1 there more often than sent: normal-2-x"),
        (
            [*STORED[:2], (0, 3, "normal-2-x")],
            "a, normal: queue 0 has 3 after 1 at normal-2-x",
        ),
        ([STORED[0], *STORED], "a, normal: 1 there more often than sent: normal-1-x"),
    ],
)
def test_a_store_that_is_not(stored: list[tuple[int, int, str]], fault: str) -> None:
    assert fault in well().faults_of_store("normal", stored, "a")


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        ([], "1 acknowledged and missing: txn-1-commit"),
        (["txn-1-commit", "txn-1-commit"], "1 there more often than sent: txn-1-commit"),
        (["txn-1-commit", "txn-2-rollback"], "1 rolled back and visible: txn-2-rollback"),
    ],
)
def test_transactions_that_do_not_end_once(ids: list[str], fault: str) -> None:
    stored = [(0, number, id_) for number, id_ in enumerate(ids)]
    assert well().faults_of_store("txn", stored, "a") == [f"a, txn: {fault}"]


def test_a_transaction_is_there_once_however_often_it_was_sent() -> None:
    history = well()
    history.take(["A", "txn-1-commit"])
    twice = [(0, 0, "txn-1-commit"), (0, 1, "txn-1-commit")]
    assert "more often than sent" in " ".join(history.faults_of_store("txn", twice, "a"))


def test_what_a_machine_lost_before_its_sync_is_excused() -> None:
    history = well()
    assert history.excuse_from(800) == 1
    assert history.faults_of_store("normal", STORED[:2], "a") == []
    assert history.excuse_from(500) == 2
    assert history.faults_of_store("txn", [], "a") == [
        "a, txn: 1 acknowledged and missing: txn-1-commit"
    ]


def test_never_consumed_and_consumed_in_vain() -> None:
    history = well()
    del history.consumed["normal"]["normal-1-x"]
    history.take(["R", "txn", "txn-2-rollback", "0", "0", "1"])
    first, second = history.faults_of_groups()
    assert first == "consumers of normal: 1 acknowledged and missing: normal-1-x"
    assert second == "consumers of txn: 1 rolled back and visible: txn-2-rollback"


def test_what_consumers_have_passed_already() -> None:
    """Offsets that were given again after a machine lost the end of its log."""
    history = told("A normal-1-x", "S normal-1-x SEND_OK 0 500")
    stored = [(0, 0, "normal-1-x")]
    missed = ["consumers of normal: 1 acknowledged and missing: normal-1-x"]
    history.tail_was_lost(5, 9)
    history.look_for_skipped("normal", stored)
    assert history.faults_of_groups() == missed  # nobody had been there
    history.take(["R", "normal", "normal-0-x", "1", "0", "0"], 7)  # of the retry topic
    history.take(["R", "normal", "normal-0-x", "0", "0", "0"], 10)
    history.look_for_skipped("normal", stored)
    assert history.faults_of_groups() == missed  # another time: the offset was given twice by us
    history.tail_was_lost(9, 11)
    history.look_for_skipped("normal", stored)
    assert history.faults_of_groups() == []
    assert "| normal | 1 | 1 | 0 | 1 | - |" in history.table()[2]


@pytest.mark.parametrize(
    ("what", "unchecked"), [(b"name", True), (b"body", False), (b"name|body", False)]
)
def test_a_bit_that_no_checksum_covers(tmp_path, what, unchecked):
    """Properties have none, so nobody can know; the body has one, and somebody has to."""
    host = Address(bytes([127, 0, 0, 1]), 10911)
    message = BrokerMessage("T", 0, b"a body", host, host, properties_string="name\x01value\x02")
    group = GroupEncoder(1 << 16, []).encode([draft_of(message)], 0, 1 << 16, 1)
    sound = group.segments[0].data.ljust(1 << 16, b"\0")
    damaged = sound
    for word in what.split(b"|"):
        damaged = damaged.replace(word, word.upper()[:1] + word[1:])
    stores = [tmp_path / "one", tmp_path / "two"]
    for store, data in zip(stores, [sound, damaged], strict=True):
        (store / "commitlog").mkdir(parents=True)
        (store / "commitlog" / f"{0:020}").write_bytes(data)
    place = difference(*stores, 1 << 16)
    assert place == min(sound.index(word) for word in what.split(b"|"))
    assert is_unchecked(*stores, place) is unchecked


def test_real_files_are_spoilt_as_simulated_ones_are(tmp_path) -> None:
    """One file of the store; where the log must stay whole, none of the log."""
    names = ["commitlog/0", "consumequeue/T/0/0", "index/1", "checkpoint"]
    whole = bytes(range(1, 200)) * 9
    parts = set()
    for seed in range(40):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(whole)
        damage = spoil(StoreFiles(without=LOG), str(tmp_path), Random(seed))
        if damage is not None:
            parts.add(damage.part)
            paths = [tmp_path / name for name in names]
            spoilt = [path for path in paths if not path.exists() or path.read_bytes() != whole]
            assert [str(path) for path in spoilt] == [damage.path]
    assert parts == {"consumequeue", "index", "checkpoint"}


def test_every_kind_of_the_simulator_that_a_soak_takes_can_happen() -> None:
    assert all(hasattr(FaultPlan, f"_do_{kind}") for kind in SOAK_KINDS)
    clock, order = RealClock(), []
    clock.call_at(clock.seconds() + 0.002, order.append, "later")
    clock.call_at(clock.seconds() + 0.001, order.append, "first")
    clock.run()
    assert order == ["first", "later"]


class Line:
    """The line between two members, with a list of all that happened to it."""

    done: list[str]

    def __init__(self) -> None:
        vars(self)["done"] = []

    def __setattr__(self, name: str, value: object) -> None:
        self.done.append(f"{name}={value}")

    def reset(self) -> None:
        self.done.append("reset")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("drop", "reset"),
        ("half_open", "is_black=True"),
        ("partition", "is_black=True"),
        ("one_way", "is_black=True"),
        ("slow", "delay=0.5"),
    ],
)
def test_a_fault_of_the_simulated_network_happens_to_the_real_line(kind: str, what: str) -> None:
    line = Line()
    members = [
        SimpleNamespace(name=name, is_up=True, stand_still=lambda does: None) for name in "ab"
    ]
    pair: Any = SimpleNamespace(link=line, members=members, master=members[0], slave=members[1])
    victims = RealVictims(pair, History(), CommittedOffsets(), Random(1))
    assert victims.suffer(Fault(0.0, kind, MASTER, 0.0)) == []
    assert what in line.done
    assert line.done[-2:] == ["is_black=False", "delay=0.0"]
