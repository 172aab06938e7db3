"""What a broker in controller mode does with a decision, a report, a put: without a store."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Address, BrokerMessage, draft_of
from rmq_ha.base.model.status import FlushDiskType, PutMessageStatus
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.controller.codec import encode_set
from rmq_ha.server.controller.codes import ControllerRequestCode, ControllerResponseCode
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs, encode_epochs
from rmq_ha.server.replication.epochs.frames import (
    MasterHandshake,
    TablePiece,
    Transfer,
    encode_master_handshake,
    encode_piece,
    encode_report,
    encode_transfer,
)
from rmq_ha.server.replication.epochs.replica import Cut, Remember
from rmq_ha.server.replication.epochs.roles.actions import Adopt, Follow, Lead, StepDown
from rmq_ha.server.replication.epochs.tables import TableEntry
from rmq_ha.server.replication.protocol import CLOSE_SECONDS, SPEAKS_TLS
from rmq_ha.server.replication.statistics import MasterStatistics, SetStatistics
from rmq_ha.testing.cluster import ROOT
from tests.unit.server.replication.epochs.station import (
    ADDRESS,
    CONTROLLER,
    EPOCH_FILE,
    OTHER,
    Station,
)
from tests.unit.server.replication.ha_fakes import Wire
from tests.unit.server.replication.record_logs import record

LATE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
LOST = PutMessageStatus.SERVICE_NOT_AVAILABLE
ALONE, BOTH = SyncStateSet((1,), 1), SyncStateSet((1, 2), 2)


def told(station: Station) -> SetStatistics:
    return station.service.statistics()


def asked_answer(address: str) -> RemotingCommand:
    """906, of a master."""
    return RemotingCommand(0, ext={"masterHaAddress": address})


def leading(*bodies: bytes) -> Station:
    """In epoch 1, with 2 in the set, which has reported nothing."""
    return Station(bodies=bodies, known=[(1, 0)] if bodies else ()).leads(1, 1, 2)


# ------------------------------------------------------------ decisions


def test_who_is_elected_leads_when_that_is_on_the_disk() -> None:
    it = Station(bodies=(b"one",), known=[(1, 0)]).start()
    it.worker.later = True
    it.service.decided(Lead(3, ALONE))
    assert not told(it).leads
    assert it.service.why_no_puts().endswith("has said who leads; try again")
    it.service.decided(Adopt(BOTH, is_final=True))
    it.worker.work()
    end = it.log.max_offset
    assert it.epoch_file() == encode_epochs(Epochs([Epoch(1, 0), Epoch(3, end)]))
    assert (it.masters, it.roles) == ([None], [3])
    found = told(it)
    assert (found.leads, found.epoch, found.elections) == (True, 3, 1)
    assert (found.in_sync, found.confirm_offset) == ([1], end)
    assert it.service.leads(3)
    assert not it.service.leads(1)
    it.service.decided(Adopt(BOTH))
    assert told(it).in_sync == [1, 2]


def test_who_is_told_to_follow_asks_that_one_and_admits_nothing() -> None:
    it = leading()
    it.service.admit_puts(True)
    it.service.decided(Follow(2, OTHER, 2))
    assert not it.log.admits
    assert not it.service.leads(1)
    assert (it.masters, it.roles) == ([None, OTHER], [1, "follow"])
    assert (*it.asked[-1][:1], it.asked[-1][1].code) == (
        OTHER,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
    )
    assert it.tables.said == ["awaited"]
    assert told(it).master == MasterStatistics(
        address=OTHER, broker_id=2, state="connecting", alone_seconds=0.0
    )
    assert it.service.why_no_puts() == f"the broker at {OTHER} leads, and takes the messages"


def test_with_each_role_whoever_waits_for_the_log_looks_at_it() -> None:
    it = Station().start()
    heard: list[None] = []
    it.log.subscribe(lambda: heard.append(None))
    for number, decision in enumerate((Lead(1, ALONE), Follow(2, OTHER, 2), Lead(3, ALONE)), 1):
        it.service.decided(decision)
        assert len(heard) == number


def test_who_was_refused_is_neither_waited_for_nor_asked_for_at_that_moment() -> None:
    """Seed 173409: it was asked for once more, which was agreed, and puts did not wait for it."""
    it = Station().leads(1)
    it.slave(2, 0)
    assert proposals(it) == 1
    it.answer(
        ControllerRequestCode.ALTER_SYNC_STATE_SET, status=ControllerResponseCode.BROKER_NOT_ALIVE
    )
    assert it.put()[1] == []
    it.clock.advance(0.0)
    it.talk(1)
    assert it.put()[1] == [PutMessageStatus.PUT_OK]
    assert proposals(it) == 0


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        (ControllerResponseCode.BROKER_NOT_ALIVE, 1.0),
        (ControllerResponseCode.INVALID_REPLICAS, 15.0),
    ],
)
def test_who_was_refused_is_asked_for_again_after_a_heartbeat(status: int, seconds: float) -> None:
    """Nothing else has to happen; for a broker that is not known it takes longer."""
    it = Station().leads(1)
    it.slave(2, 0)
    it.answer(ControllerRequestCode.ALTER_SYNC_STATE_SET, status=status)
    it.clock.advance(0.0)
    it.talk(1)
    for _ in range(round(seconds * 4) - 1):
        it.clock.advance(0.25)
        it.talk(1)
    assert proposals(it) == 0
    it.clock.advance(0.25)
    assert proposals(it) == 1


@pytest.mark.parametrize("status", [ResponseCode.SYSTEM_ERROR, ControllerResponseCode.NOT_LEADER])
def test_who_may_be_a_member_yet_is_waited_for(status: int) -> None:
    """The controller has lost its lead: what it was asked for may lie in the log of the next."""
    it = Station().leads(1)
    it.slave(2, 0)
    it.answer(ControllerRequestCode.ALTER_SYNC_STATE_SET, status=status)
    it.clock.advance(0.0)
    it.talk(1)
    assert it.put()[1] == []
    assert proposals(it) == 1, "it is asked for until that is decided"


def proposals(it: Station) -> int:
    """How many are on their way."""
    return [command.code for _, command, _ in it.asked].count(
        ControllerRequestCode.ALTER_SYNC_STATE_SET
    )


def test_a_learner_waits_for_no_tables() -> None:
    def learns(configuration: BrokerConfiguration) -> None:
        configuration.controlled.async_learner = True

    it = Station(learns).start()
    it.service.decided(Follow(2, OTHER, 2))
    assert it.tables.said == []


def test_a_newer_decision_undoes_one_that_is_under_way() -> None:
    """Before its first step, and behind its last one."""
    it = Station().start()
    it.worker.later = True
    for number, decision in enumerate((Lead(2, ALONE), StepDown("a test"), Lead(4, ALONE)), 1):
        it.service.decided(decision)
        assert told(it).elections == number
    it.worker.work()
    assert it.roles == ["follow"]
    assert not told(it).leads
    it.service.decided(Follow(2, OTHER, 5))
    it.worker.work()
    assert (it.roles, it.masters) == (["follow", "follow"], [OTHER])
    assert told(it).elections == 4


def test_a_role_waits_until_the_master_before_is_left() -> None:
    it = Station().start()
    it.service.decided(Follow(2, OTHER, 2))
    asked = it.asked[-1][2]
    asked.callback(asked_answer("10.0.0.2:10912"))
    wire = it.network.attempts[-1].accept()
    it.service.decided(Lead(3, ALONE))
    assert wire.disconnecting
    assert not told(it).leads
    assert told(it).master is None
    assert it.tables.said == ["awaited"]
    wire.lose()
    assert it.tables.said == ["awaited", "ended"]
    assert told(it).leads


@pytest.mark.parametrize("is_newest", [True, False])
def test_who_cannot_lead_says_so_unless_it_has_another_role_by_then(is_newest: bool) -> None:
    it = Station().start()
    assert it.service.controllers is not None
    manager = it.service.controllers.manager
    manager._wants_election = False
    it.worker.later = True
    it.service.decided(Lead(2, ALONE))
    it.disk.is_full = True
    if not is_newest:
        it.service.decided(StepDown("a test"))
    it.worker.work()
    assert manager._wants_election is is_newest
    assert not told(it).leads


def test_a_role_change_that_fails_by_a_fault_of_ours_is_said() -> None:
    it = Station().start()
    it.service.slave.leave = None  # type: ignore[assignment]
    with capturedLogs() as events:
        it.service.decided(Lead(1, ALONE))
    assert "a role change failed" in [str(formatEvent(event)) for event in events]


def test_a_torn_record_is_given_up_before_the_epoch_begins() -> None:
    it = Station(bodies=(b"one", b"two"), known=[(1, 0)]).start()
    whole = it.log.max_offset
    it.log.append_raw(whole, b"torn")
    it.setting_aside = Deferred()
    before = it.epoch_file()
    it.service.decided(Lead(2, ALONE))
    assert (it.aside, it.epoch_file()) == ([whole], before)
    it.setting_aside.callback(None)
    assert it.epoch_file() == encode_epochs(Epochs([Epoch(1, 0), Epoch(2, whole)]))


@pytest.mark.parametrize("bodies", [(), (b"one",), (b"one", b"two")])
@pytest.mark.parametrize("is_dispatched", [False, True])
def test_whole_records_are_given_up_by_nobody(
    bodies: tuple[bytes, ...], is_dispatched: bool
) -> None:
    it = Station(bodies=bodies, known=[(1, 0)]).start()
    if is_dispatched:
        it.dispatched_to = it.log.max_offset
    it.service.decided(Lead(2, ALONE))
    assert it.aside == []
    assert told(it).leads


@pytest.mark.parametrize("bodies", [(), (b"one", b"two")])
def test_a_log_that_begins_later_is_whole_from_there_on(bodies: tuple[bytes, ...]) -> None:
    """Nothing of it is dispatched yet, as nothing is confirmed."""
    it = Station(known=[(1, 0)])
    it.log.append_raw(it.log.file_size, b"")
    for body in bodies:
        it.log.append_raw(it.log.max_offset, record(it.log.max_offset, body))
    it.start()
    it.service.decided(Lead(2, ALONE))
    assert it.aside == []
    assert told(it).leads


def test_what_no_record_begins_is_given_up_down_to_what_is_dispatched() -> None:
    it = Station(bodies=(b"one",), known=[(1, 0)]).start()
    it.dispatched_to = whole = it.log.max_offset
    it.log.append_raw(whole, b"torn")
    it.service.decided(Lead(2, ALONE))
    assert it.aside == [whole]


# ------------------------------------------------------------ beginning


def test_files_may_be_elsewhere() -> None:
    def elsewhere(configuration: BrokerConfiguration) -> None:
        configuration.controlled.store_path_epoch_file = "/other/epochs"
        configuration.controlled.store_path_broker_identity = "/other/who"

    it = Station(elsewhere)
    it.disk.make_dirs("/other")
    it.disk.replace("/other/who", b"c#b#7")
    it.start()
    it.service.decided(Lead(1, ALONE))
    assert told(it).broker_id == 7
    assert it.disk.exists("/other/epochs")


@pytest.mark.parametrize(("port", "listens"), [(10911, 10912), (0, 0)])
def test_it_listens_behind_the_port_of_the_broker_or_anywhere(port: int, listens: int) -> None:
    it = Station()
    it.configuration.server.listen_port = port
    it.start()
    assert it.network.listeners[0].port == listens


def test_an_id_of_another_broker_is_refused() -> None:
    it = Station()
    it.disk.replace(f"{ROOT}/brokerIdentity", b"c#other#1")
    refused: list[Any] = []
    it.service.start().addErrback(refused.append)
    assert refused[0].check(StoreError)
    assert it.network.listeners == []


def test_epochs_of_which_the_log_has_nothing_are_none() -> None:
    """It was lost with the power."""
    it = Station(bodies=(b"one",), known=[(1, 0), (2, 50), (3, 5000)]).start()
    assert it.service.epochs == Epochs([Epoch(1, 0), Epoch(2, 50)])


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_crash_is_noted_before_controllers_are_asked(is_whole: bool) -> None:
    it = Station(bodies=(b"one",), known=[(4, 0)])
    it.log.is_whole = is_whole
    it.worker.later = True
    it.start()
    assert bool(it.asked) is is_whole
    it.worker.work()
    assert it.asked
    assert it.disk.exists(f"{EPOCH_FILE}.crashed") is not is_whole


@pytest.mark.parametrize("what", ["identity", "epochs", "nothing", "first file"])
def test_only_a_log_without_id_and_epochs_is_from_before_controller_mode(what: str) -> None:
    it = Station(
        bodies=() if what in ("nothing", "first file") else (b"one",),
        known=[(3, 0)] if what == "epochs" else (),
    )
    if what != "identity":
        it.disk.remove(f"{ROOT}/brokerIdentity")
    if what == "first file":
        it.log.append_raw(it.log.file_size, b"")
        assert it.log.max_offset == it.log.file_size
    it.start()
    assert it.service.epochs == it.epochs
    assert it.disk.exists(EPOCH_FILE) is (what == "epochs")


def test_what_was_before_controller_mode_is_an_epoch_on_the_disk_first() -> None:
    it = Station(bodies=(b"one",))
    it.disk.remove(f"{ROOT}/brokerIdentity")
    it.worker.later = True
    it.start()
    assert it.asked == []
    it.worker.work()
    assert it.asked
    assert it.epoch_file() == encode_epochs(Epochs([Epoch(0, 0)]))
    assert it.service.epochs == Epochs([Epoch(0, 0)])
    assert told(it).broker_id is None
    assert it.service.slave_id == 1


# ------------------------------------------------------------ the conversation


def codes(it: Station) -> list[int]:
    return [command.code for _, command, _ in it.asked if command.code != 904]


def test_an_id_is_asked_for_kept_and_applied_for_step_by_step() -> None:
    it = Station()
    it.disk.remove(f"{ROOT}/brokerIdentity")
    it.start()
    it.talk(1)
    it.clock.advance(0)
    assert codes(it) == [1012]
    it.disk.is_full = True
    it.answer(1012, nextBrokerId="3")
    it.clock.advance(0.7)
    assert codes(it) == [], "it is not kept"
    it.clock.advance(0.6)
    assert codes(it) == [1012]
    it.disk.is_full = False
    it.answer(1012, nextBrokerId="3")
    it.clock.advance(0)
    assert it.disk.read_bytes(f"{ROOT}/brokerIdentity-temp").startswith(b"c#b#3#")
    assert codes(it) == [1013]
    it.answer(1013)
    it.clock.advance(0)
    assert it.disk.read_bytes(f"{ROOT}/brokerIdentity") == b"c#b#3"
    assert not it.disk.exists(f"{ROOT}/brokerIdentity-temp")
    assert codes(it) == [1003]
    assert (told(it).broker_id, it.service.slave_id) == (3, 3)


def test_a_notice_of_an_election_is_looked_into_at_once_and_by_nobody_that_stops() -> None:
    it = Station().leads(1)
    ext = {
        "masterAddress": OTHER,
        "masterBrokerId": "2",
        "masterEpoch": "5",
        "syncStateSetEpoch": "9",
    }
    notice = RemotingCommand(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext=ext)
    assert codes(it) == []
    it.service.notified(None, notice)  # type: ignore[arg-type]
    it.clock.advance(0)
    assert codes(it) == [1004]
    it.service.stop()
    it.asked.clear()
    it.service.notified(None, notice)  # type: ignore[arg-type]
    it.clock.advance(1.0)
    assert it.asked == []


def test_who_cannot_lead_asks_for_another_election_soon() -> None:
    it = Station().leads(1)
    it.disk.is_full = True
    it.service.decided(Lead(2, ALONE))
    assert not it.service.may_append
    it.clock.advance(1.3)
    it.clock.advance(0)
    assert codes(it) == [1002]


# ------------------------------------------------------------ the log


def test_only_a_master_with_a_lease_that_admits_puts_appends() -> None:
    it = Station().start()
    message = BrokerMessage(
        "T", 0, b"x", Address.parse("10.0.0.1", 1), Address.parse("10.0.0.1", 1), 1
    )

    def append() -> int:
        return len(it.log.append_group([draft_of(message)], it.now_ms()).rows)

    it.service.admit_puts(True)
    assert append() == 0
    it.leads(1)
    assert append() == 0
    it.service.admit_puts(True)
    assert append() == 1
    it.service.admit_puts(False)
    assert append() == 0
    assert it.log.append_batch(None, 0) is PutMessageStatus.SERVICE_NOT_AVAILABLE  # type: ignore[arg-type]
    it.service.admit_puts(True)
    it.log.leadership = None
    assert append() == 0


def test_whoever_waits_for_what_may_be_read_hears_when_it_is_more() -> None:
    it = Station(bodies=(b"one",), known=[(1, 0)])
    end = it.log.max_offset
    heard: list[int] = []
    for number in range(2):
        it.log.subscribe(lambda n=number: heard.append(n))  # type: ignore[misc]
    it.log.confirmed(50)
    assert (heard, it.log.readable_end) == ([0, 1], 50)
    it.log.confirmed(50)
    it.log.confirmed(40)
    assert (heard, it.log.readable_end) == ([0, 1], 50)
    it.log.confirmed(end + 100)
    assert it.log.readable_end == end
    it.log.recovered(60, 60)
    assert (it.log.max_offset, it.log.confirm_offset) == (60, 60)
    it.log.confirm_offset = 0
    it.log.row.starts[:] = [40]
    assert it.log.readable_end == 40, "what is before the first file was read"


# ------------------------------------------------------------ the end


def test_who_stops_says_nothing_more_and_has_no_effect_any_more() -> None:
    it = leading()
    wire = it.slave(2, 0)
    _, told_it = it.put()
    listener = it.network.listeners[0]
    closed: Deferred[None] = Deferred()
    listener.stopListening = lambda: closed  # type: ignore[method-assign,assignment]
    over: list[None] = []
    it.service.stop().addCallback(over.append)
    assert not it.service.may_append
    assert over == []
    closed.callback(None)
    assert (over, told_it) == ([], [LOST])
    assert told(it).slaves == []
    wire.lose()
    assert over == [None]
    it.asked.clear()
    it.clock.advance(60.0)
    assert it.asked == []


def test_a_stop_waits_for_slaves_that_were_left_before_and_close() -> None:
    """Found by the simulation, seed 90569: one's timer came after the broker was gone."""
    it = leading()
    wires = [it.slave(2, 0), it.slave(3, 0)]
    it.service.decided(StepDown("a test"))
    it.answer(
        ControllerRequestCode.ALTER_SYNC_STATE_SET, status=ControllerResponseCode.INVALID_MASTER
    )
    over: list[None] = []
    for _ in range(2):
        it.service.stop().addCallback(over.append)
    wires[0].lose()
    assert over == []
    assert len(it.clock.getDelayedCalls()) == 1
    it.clock.advance(CLOSE_SECONDS)
    assert over == [None, None]
    assert wires[1].aborted
    assert it.clock.getDelayedCalls() == []


def test_a_stop_comes_behind_what_is_under_way_and_ends_it() -> None:
    it = Station().start()
    it.worker.later = True
    it.service.decided(Lead(1, ALONE))
    over: list[None] = []
    it.service.stop().addCallback(over.append)
    assert over == []
    it.worker.work()
    assert over == [None]
    assert not told(it).leads
    assert it.clock.getDelayedCalls() == []


def test_a_stop_waits_until_the_master_is_left() -> None:
    it = Station().start()
    it.service.decided(Follow(2, OTHER, 2))
    it.asked[-1][2].callback(asked_answer("10.0.0.2:10912"))
    wire = it.network.attempts[-1].accept()
    over: list[None] = []
    it.service.stop().addCallback(over.append)
    assert over == []
    wire.lose()
    assert over == [None]
    assert it.clock.getDelayedCalls() == []


def test_a_stop_waits_until_it_is_decided_who_is_a_member() -> None:
    """It may go on in the same epoch, and would not know then for whom puts have to wait."""
    it = Station().leads(1)
    wire = it.slave(2, 0)
    stopped: list[None] = []
    it.service.stop().addCallback(stopped.append)
    assert not it.service.may_append
    wire.lose()
    assert stopped == []
    it.answer(ControllerRequestCode.ALTER_SYNC_STATE_SET, encode_set(BOTH))
    assert stopped == [None]


# ------------------------------------------------------------ slaves


def test_strangers_and_whoever_comes_to_a_slave_meet_nobody() -> None:
    def named(configuration: BrokerConfiguration) -> None:
        configuration.ours.ha_allowed_slaves = "10.0.0.2"

    it = Station(named).start()
    factory = it.network.listeners[0].factory
    assert factory.buildProtocol(None) is None
    it.leads(1)
    it.slave(2, 0)
    with pytest.raises(AttributeError):
        it.slave(3, 0)
    assert [each.address for each in told(it).slaves] == ["10.0.0.2:5000"]
    assert told(it).refused == 2


def test_everybody_may_come_where_nobody_is_named() -> None:
    it = leading()
    for broker_id in (2, 3):
        it.slave(broker_id, 0)
    assert [each.broker_id for each in told(it).slaves] == [2, 3]


def test_a_slave_that_comes_anew_ends_its_old_connection() -> None:
    it = leading()
    first, other = it.slave(2, 0), it.slave(3, 0)
    second = it.slave(2, 0)
    assert first.disconnecting
    assert not other.disconnecting
    assert not second.disconnecting
    assert len(told(it).slaves) == 2


def test_a_second_report_in_one_piece_counts_and_one_behind_a_fault_does_not() -> None:
    it = leading(b"one")
    end = it.log.max_offset
    wire = it.slave(2)
    wire.send(encode_report(0) + encode_report(0))
    assert told(it).slaves[0].acked == 0
    wire.send(encode_report(10) + encode_report(end))
    assert told(it).replicated_offset == end
    wire.send(encode_report(end + 1))
    assert wire.disconnecting
    wire.send(encode_report(end))
    assert told(it).slaves == []


def test_all_slaves_are_sent_what_is_new_and_told_of_tables() -> None:
    it = leading()
    wires = [it.slave(broker_id, 0, takes_tables=True) for broker_id in (2, 3)]
    for wire in wires:
        wire.clear()
    it.tables.changed(TableEntry("topics", "T", True))
    end, _ = it.put()
    body = encode_transfer(Transfer(0, Epoch(1, 0), 0, it.log.read(0, end)))
    for wire in wires:
        assert wire.take() == encode_piece(TablePiece(1, 1, b"T")) + body
    it.tables.changed(TableEntry("offsets", "O"))
    it.clock.advance(0.05)
    for wire in wires:
        assert wire.take() == encode_piece(TablePiece(1, 2, b"O"))
    wires[0].report(0)
    wires[0].lose()
    it.tables.changed(TableEntry("topics", "U", True))
    assert wires[1].take() == b"", "nothing of the log waits for it"
    it.clock.advance(0.05)
    assert wires[1].take() == encode_piece(TablePiece(1, 3, b"U"))


def report(wire: Wire, offset: int) -> None:
    wire.send(encode_report(offset))


def test_who_left_is_asked_for_no_more() -> None:
    """And the controllers are asked to have it so."""
    it = leading()
    wire = it.slave(2, 0)
    end, told_it = it.put()
    report(wire, end)
    assert told_it == [PutMessageStatus.PUT_OK]
    _, told_it = it.put()
    wire.lose()
    assert told_it == []
    (asked,) = [command for _, command, _ in it.asked if command.code == 1001]
    assert b"[1]" in (asked.body or b"")
    it.service.decided(Adopt(SyncStateSet((1,), 9)))
    assert told_it == [PutMessageStatus.PUT_OK]
    assert told(it).slaves == []


def test_the_controllers_are_asked_again_each_second_until_they_have_decided() -> None:
    it = leading()
    it.slave(2, 0).lose()

    def asked() -> int:
        return sum(command.code == 1001 for _, command, _ in it.asked)

    assert asked() == 1
    it.answer(1001, status=2003)
    it.clock.advance(0.99)
    assert asked() == 0
    it.talk(1, 1, 2)
    it.clock.advance(0.02)
    assert asked() == 1


def test_who_says_the_same_again_and_again_leaves_the_set() -> None:
    """It has an id and a connection, and gets no further."""
    it = leading()
    wire = it.slave(2, 0)
    it.put()
    for _ in range(9):
        it.clock.advance(2.0)
        report(wire, 0)
    assert [command.code for _, command, _ in it.asked if command.code == 1001]


def test_who_says_nothing_for_too_long_leaves_the_set_by_itself() -> None:
    it = leading()
    it.put()
    for _ in range(160):
        it.clock.advance(0.1)
    assert [command.code for _, command, _ in it.asked if command.code == 1001]


# ------------------------------------------------------------ puts


def test_who_does_not_lead_keeps_no_put() -> None:
    it = Station().start()
    assert it.put()[1] == [LOST]
    assert not it.service.is_replicated(0, 0)
    assert not it.service.is_settled()
    assert told(it).replicated_offset == 0


def test_a_put_ends_when_all_hold_it_or_when_its_time_is_over() -> None:
    """One after the other, each with its own time."""
    it = leading()
    wire = it.slave(2, 0)
    first, ends = it.put()
    it.clock.advance(1.0)
    second, later = it.put()
    third, last = it.put()
    assert told(it).waiting == 3
    report(wire, first)
    assert (ends, later, last) == ([PutMessageStatus.PUT_OK], [], [])
    assert it.service.is_replicated(0, first)
    assert not it.service.is_replicated(first, second)
    assert told(it).confirm_offset == first
    assert told(it).unconfirmed == third - first
    assert not it.service.is_settled()
    it.talk(1, 1, 2)
    it.clock.advance(2.99)
    assert (later, last) == ([], [])
    it.clock.advance(0.01)
    assert (later, last) == ([LATE], [LATE])
    report(wire, third)
    assert it.service.is_settled()
    assert told(it).waiting == 0


def test_the_time_of_a_put_is_over_though_nothing_else_happens() -> None:
    it = leading()
    it.slave(2, 0)
    _, ends = it.put()
    it.clock.advance(2.99)
    assert ends == []
    it.clock.advance(0.01)
    assert ends == [LATE]


@pytest.mark.parametrize(("hears", "status"), [(True, LATE), (False, LOST)])
def test_a_put_that_no_controller_outlived_is_not_said_to_be_stored(
    hears: bool, status: PutMessageStatus
) -> None:
    """Cut from slave and controllers: the lease still lasts, and the next master cuts it off."""
    it = leading()
    it.service.admit_puts(True)
    it.slave(2, 0)
    it.clock.advance(0.5)
    _, ends = it.put()
    for _ in range(3):
        it.clock.advance(1.0)
        if hears:
            it.talk(1, 1, 2)
    assert it.service.may_append
    assert ends == [status]
    why = it.service.why_not_kept()
    assert why.startswith("" if hears else f"no controller ({CONTROLLER}) has answered for 3.5 s")
    assert bool(why) is not hears


def test_a_suspended_machine_has_no_lease_when_it_wakes_up() -> None:
    """No timer ran, and the clock that timers count by stood still; others went on."""
    it = leading()
    it.service.admit_puts(True)
    it.slave(2, 0)
    it.talk(1, 1, 2)
    it.clock.advance(1.0)
    _, ends = it.put()
    assert it.service.may_append
    it.suspended += 9.0
    assert not it.service.may_append
    assert not it.service.is_sure_to_lead
    host = Address.parse("10.0.0.1", 1)
    draft = draft_of(BrokerMessage("T", 0, b"x", host, host, 1))
    assert not it.log.append_group([draft], it.now_ms()).rows
    for _ in range(3):
        it.clock.advance(1.0)
    assert ends == [LOST], "it waited before, and another broker may lead since"
    it.talk(1, 1, 2)
    it.clock.advance(1.0)
    it.talk(1, 1, 2)
    assert it.service.may_append, "the controllers say that nobody was elected"


def test_what_all_hold_already_is_kept_at_once() -> None:
    it = Station(bodies=(b"one",), known=[(1, 0)]).leads(1)
    assert it.put()[1] == [PutMessageStatus.PUT_OK]
    assert it.service.is_settled()


def test_puts_end_in_the_order_in_which_they_came() -> None:
    it = leading()
    wire = it.slave(2, 0)
    ends: list[int] = []
    for number in range(3):
        start = it.log.max_offset
        it.log.append_raw(start, bytes(100))
        it.service.when_replicated(start + 100, start, lambda *_, n=number: ends.append(n))
    report(wire, 300)
    assert ends == [0, 1, 2]
    for number in range(3, 6):
        start = it.log.max_offset
        it.log.append_raw(start, bytes(100))
        it.service.when_replicated(start + 100, start, lambda *_, n=number: ends.append(n))
        it.clock.advance(0.1)
    it.clock.advance(2.8)
    assert ends == [0, 1, 2, 3]
    it.clock.advance(0.3)
    assert ends == [0, 1, 2, 3, 4, 5]


def test_whoever_hears_of_its_put_may_end_the_leadership() -> None:
    it = leading()
    wire = it.slave(2, 0)
    for _ in range(2):
        it.put()
    start = it.log.max_offset
    it.log.append_raw(start, bytes(100))
    it.service.when_replicated(
        start + 100, start, lambda *_: it.service.decided(StepDown("a test"))
    )
    _, behind = it.put()
    report(wire, start + 100)
    assert behind == [LOST]
    assert not told(it).leads
    timer = it.service.master._timer
    assert timer is None or not timer.active()


def test_a_leadership_may_end_while_a_slave_cannot_be_sent_the_log() -> None:
    """Our disk refuses, so the slave goes, and with it the time of a put is looked at."""
    it = leading()
    it.slave(2, 0)
    it.log.append_raw(0, bytes(100))
    it.service.when_replicated(100, 0, lambda *_: it.service.decided(StepDown("a test")))

    def refuse(*_: object) -> bytes:
        raise StoreError("a test")

    it.log.read = refuse  # type: ignore[method-assign]
    it.clock.rightNow += 10.0
    it.log.append_raw(100, bytes(100))
    assert not told(it).leads
    assert told(it).slaves == []


def test_every_put_that_waits_hears_that_nobody_leads_any_more() -> None:
    it = leading()
    wires = [it.slave(broker_id, 0) for broker_id in (2, 3)]
    waiting = [it.put()[1] for _ in range(3)]
    it.service.decided(StepDown("a test"))
    assert waiting == [[LOST]] * 3
    assert all(wire.disconnecting for wire in wires)
    it.clock.advance(5.0)
    assert waiting == [[LOST]] * 3


@pytest.mark.parametrize("is_sync", [True, False])
def test_under_sync_flush_only_what_is_on_the_disk_is_kept(is_sync: bool) -> None:
    def sync(configuration: BrokerConfiguration) -> None:
        if is_sync:
            configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    it = Station(sync).leads(1)
    end, told_it = it.put()
    assert told_it == ([] if is_sync else [PutMessageStatus.PUT_OK])
    it.log.flushed_offset = end
    it.service.flushed()
    assert told_it == [PutMessageStatus.PUT_OK]


# ------------------------------------------------------------ as a slave


def hello(end: int, *entries: tuple[int, int]) -> bytes:
    known = Epochs(Epoch(*entry) for entry in entries)
    return encode_master_handshake(MasterHandshake(end, known.last_epoch, known))


def following(it: Station) -> Wire:
    it.service.decided(Follow(2, OTHER, 2))
    it.asked[-1][2].callback(asked_answer("10.0.0.2:10912"))
    return it.network.attempts[-1].accept()


def test_a_slave_takes_the_log_and_what_of_it_may_be_read() -> None:
    def sync(configuration: BrokerConfiguration) -> None:
        configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    it = Station(sync).start()
    it.service.flushed()
    wire = following(it)
    wire.send(hello(100, (2, 0)))
    wire.send(encode_transfer(Transfer(0, Epoch(2, 0), 60, bytes(100))))
    assert it.epoch_file() == encode_epochs(Epochs([Epoch(2, 0)]))
    assert (it.log.max_offset, it.log.confirm_offset, it.log.readable_end) == (100, 60, 60)
    assert told(it).master.state == "following"
    assert it.tables.said == ["awaited", "absent"]
    wire.clear()
    it.log.flushed_offset = 100
    it.service.flushed()
    assert wire.take() == encode_report(100)


def test_a_cut_is_made_before_the_epochs_say_so_and_takes_back_what_may_be_read() -> None:
    it = Station(bodies=(b"one", b"two"), known=[(1, 0)]).start()
    end = it.log.max_offset
    it.log.confirm_offset = end
    it.setting_aside = Deferred()
    it.worker.later = True
    done: list[None] = []
    cut = Epochs([Epoch(1, 0)])
    it.service.slave.fulfil(Cut(50, cut)).addCallback(done.append)
    assert (it.log.confirm_offset, it.aside, it.worker.queue) == (50, [50], [])
    it.setting_aside.callback(None)
    assert done == []
    it.worker.work()
    assert done == [None]
    assert it.service.epochs == cut
    it.service.slave.fulfil(Remember(Epochs([Epoch(1, 0), Epoch(2, 50)]))).addCallback(done.append)
    assert (done, it.service.epochs) == ([None], cut)
    it.worker.work()
    assert done == [None, None]
    assert it.service.epochs == Epochs([Epoch(1, 0), Epoch(2, 50)])
    assert it.aside == [50]


# ------------------------------------------------------------ what is told


def test_why_it_takes_no_puts() -> None:
    it = Station()
    it.configuration.controlled.min_in_sync_replicas = 2
    it.service = it.made(it.configuration)
    it.service.attach(it, it, it.tables, it.masters.append, it.trusted)  # type: ignore[arg-type]
    assert "has said who leads" in it.service.why_no_puts()
    assert told(it).has_lease is False
    it.start()
    assert "has said who leads" in it.service.why_no_puts()
    it.service.decided(Lead(1, ALONE))
    assert "1 brokers are in sync, and minInSyncReplicas=2" in it.service.why_no_puts()
    it.service.decided(Adopt(BOTH))
    assert "do not answer" in it.service.why_no_puts()
    assert not it.service.may_append
    it = leading()
    assert "begins to lead epoch 1" in it.service.why_no_puts()
    it.service.admit_puts(True)
    assert it.service.why_no_puts() == ""
    it.clock.advance(60.0)
    assert "do not answer" in it.service.why_no_puts()


def test_who_speaks_tls_to_a_plain_port_is_named_as_such() -> None:
    """Else the log says that it begins with 369295616, which helps nobody."""
    it = leading()
    stranger = it.network.listeners[0].factory.buildProtocol(None)
    with capturedLogs() as events:
        Wire(stranger, "10.0.0.4", 5000).send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert any(SPEAKS_TLS in str(formatEvent(event)) for event in events)


def test_what_is_told_of_slaves() -> None:
    it = leading(b"one", b"two")
    end = it.log.max_offset
    behind, ahead = it.slave(2, 0), it.slave(3, 0)
    unknown = it.network.listeners[0].factory.buildProtocol(None)
    Wire(unknown, "10.0.0.4", 5000)
    report(ahead, end)
    report(behind, 50)
    it.clock.advance(2.0)
    assert told(it).replicated_offset == end
    slaves = told(it).slaves
    assert [each.broker_id for each in slaves] == [2, 3, None]
    assert [each.lag for each in slaves] == [end - 50, 0, end]
    assert [each.stage for each in slaves] == ["caught up"] * 3
    assert [each.requested for each in slaves] == [0, 0, None]
    assert slaves[0].lag_seconds >= 2.0
    assert slaves[1].lag_seconds == 0.0
    status = it.service.ha_status()
    assert (status["masterCommitLogMaxOffset"], status["inSyncSlaveNums"]) == (end, 1)
    assert [each["diff"] for each in status["haConnectionInfo"]] == [end - 50, 0]
    assert [each["inSync"] for each in status["haConnectionInfo"]] == [True, False]


def test_what_is_told_of_a_slave_before_during_and_after_it_follows() -> None:
    it = Station().start()
    own = it.service.ha_status()["haClientRuntimeInfo"]
    assert ("masterAddr" in own, own["lastReadTimestamp"]) == (False, 0)
    wire = following(it)
    it.clock.advance(1.5)
    own = it.service.ha_status()["haClientRuntimeInfo"]
    assert own["masterAddr"] == "10.0.0.2:10912"
    assert own["lastReadTimestamp"] == own["lastWriteTimestamp"] == it.now_ms() - 1500
    wire.lose()
    own = it.service.ha_status()["haClientRuntimeInfo"]
    assert (own["masterAddr"], own["lastReadTimestamp"]) == ("10.0.0.2:10912", 0)
    assert ADDRESS not in str(own)
