"""A broker's side of controller mode: when it asks, whom, and which answers come too late."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.server.controller.codec import encode_set
from rmq_ha.server.controller.messages import NotifyRoleChangedRequest, SyncStateSet
from rmq_ha.server.replication.epochs.roles.actions import (
    Adopt,
    AskController,
    ControllerAnswer,
    Follow,
    Lead,
    SetRole,
    StepDown,
)
from rmq_ha.server.replication.epochs.roles.identity import Identity, KnownIds
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager
from rmq_ha.server.replication.epochs.settings import ManagerSettings
from tests.unit.server.replication.epochs.roles.test_manager import (
    ADDRESS,
    CONTROLLER,
    NOW_MS,
    OTHER,
    Broker,
    leads,
    ok,
    recorded,
    running,
)

OWN = Identity("Peer5Cluster", "broker-c", 1)
SETTINGS = ManagerSettings(
    cluster_name="Peer5Cluster",
    broker_name="broker-c",
    broker_address=ADDRESS,
    controllers=(CONTROLLER,),
)


def registered(identity: Identity = OWN, **more: Any) -> Broker:
    """One that has an id, and nobody knows who leads."""
    broker = Broker(identity)
    broker.manager = ReplicasManager(
        SETTINGS, KnownIds(identity), lambda: broker.progress, lambda: NOW_MS, Random(1), **more
    )
    broker.expect(1005, recorded("1005 response 0"))
    broker.expect(1003, ok())
    return broker


def named(address: str) -> ControllerAnswer:
    """1005: who leads the controllers."""
    return ok(group="controller", controllerLeaderAddress=address)


def looked(broker: Broker, answer: ControllerAnswer) -> AskController:
    """The next look at the set, whoever leads the controllers."""
    ask = broker.next_ask()
    if ask.code == 1005:
        broker.answer(ask, recorded("1005 response 0"))
        ask = broker.next_ask()
    assert ask.code == 1004
    broker.answer(ask, answer)
    return ask


# ------------------------------------------------------------ answers that come too late


def test_what_a_controller_says_of_an_older_epoch_begins_no_lease() -> None:
    """Also where we led that one."""
    broker = running()
    broker.now += 8.5
    broker.manager.tick(broker.now)
    before = broker.collect()
    assert before is not None
    broker.heard()
    broker.answer(before, leads(3, 1, ADDRESS, 1, 2, at=5))
    for epoch, may in ((2, False), (3, True)):
        broker.now += 1.0
        broker.manager.tick(broker.now)
        asked = broker.collect()
        broker.heard()
        asked = asked or broker.next_ask()
        if asked.code == 1005:
            broker.answer(asked, recorded("1005 response 0"))
            asked = broker.next_ask()
        assert asked.code == 1004
        assert not broker.manager.may_accept(broker.now)
        broker.answer(asked, leads(epoch, 1, ADDRESS, 1, 2, at=5))
        assert broker.manager.may_accept(broker.now) is may


def test_what_became_of_a_set_of_an_older_epoch_is_no_news_of_ours() -> None:
    broker = running()
    broker.manager.propose(SyncStateSet((1,), 5), broker.now)
    late = broker.collect()
    assert late is not None
    broker.expect(1004, leads(4, 1, ADDRESS, 1, 2, at=9))
    broker.collect()
    assert broker.done[-1] == Lead(4, SyncStateSet((1, 2), 9))
    broker.manager.propose(SyncStateSet((1,), 9), broker.now)
    asked = broker.collect()
    assert asked is not None
    broker.answer(late, ok(encode_set(SyncStateSet((1,), 6))))
    broker.collect()
    assert broker.done[-1] == Lead(4, SyncStateSet((1, 2), 9))
    broker.answer(asked, ok(encode_set(SyncStateSet((1,), 10))))
    broker.collect()
    assert broker.done[-1] == Adopt(SyncStateSet((1,), 10))


def test_a_doubt_about_a_set_ends_with_its_epoch() -> None:
    broker = running()
    broker.manager.propose(SyncStateSet((1,), 5), broker.now)
    asked = broker.collect()
    assert asked is not None
    broker.answer(asked, recorded("1001 response 2003"))
    broker.expect(1004, leads(4, 1, ADDRESS, 1, 2, at=9))
    broker.collect()
    broker.manager.propose(SyncStateSet((1,), 9), broker.now)
    asked = broker.collect()
    assert asked is not None
    assert asked.code == 1001


def test_a_rumour_of_what_is_known_makes_nobody_ask() -> None:
    broker = running()
    ask = broker.expect(1004, leads(3, 1, ADDRESS, 1, 2, at=5))
    for epoch in (None, 2, 3):
        notice = NotifyRoleChangedRequest(
            master_address=OTHER, master_broker_id=2, sync_state_set_epoch=5, master_epoch=epoch
        )
        broker.manager.notified(notice, broker.now)
    broker.manager.tick(broker.now)
    assert broker.collect() is None
    assert broker.next_ask().sent == pytest.approx(
        ask.sent + SETTINGS.sync_broker_metadata_period / 1000, abs=0.02
    )


def test_a_rumour_without_an_epoch_is_none() -> None:
    broker = registered()
    asked = broker.expect(1002, ok(code=1))
    notice = NotifyRoleChangedRequest(
        master_address=OTHER, master_broker_id=2, sync_state_set_epoch=5, master_epoch=None
    )
    broker.manager.notified(notice, broker.now)
    assert broker.next_ask().sent > asked.sent


@pytest.mark.parametrize(
    ("broker_id", "known"),
    [
        (1, leads(3, 2, OTHER, 1, 2, at=5)),
        (2, leads(3, 2, ADDRESS, 1, 2, at=5)),
        (2, leads(3, 2, OTHER, 1, 2, at=5)),
        (2, ok(encode_set(SyncStateSet((2,), 6)), masterEpoch="3", masterAddress=OTHER)),
        (2, ok(encode_set(SyncStateSet((2,), 6)), masterEpoch="3", masterBrokerId="1")),
        (2, leads(3, 1, ADDRESS, 1, 2, at=5)),
    ],
)
def test_within_an_epoch_only_a_master_that_moved_is_news_to_a_slave(
    broker_id: int, known: ControllerAnswer
) -> None:
    """Another one, or none, cannot lead it: whoever says so is not believed."""
    broker = running(broker_id)
    before = list(broker.done)
    role = broker.manager.role
    looked(broker, known)
    broker.collect()
    assert (broker.done, broker.manager.role) == (before, role)


def test_a_role_that_could_not_be_taken_is_asked_for_again_after_a_pause() -> None:
    broker = running()
    looked(broker, leads(3, 1, ADDRESS, 1, 2, at=5))
    broker.manager.failed(broker.now)
    pause = SETTINGS.retry_interval / 1000
    failed = broker.now
    ask = broker.next_ask()
    assert ask.code == 1002
    assert 0.74 * pause <= ask.sent - failed <= 1.26 * pause


@pytest.mark.parametrize("leader", ["a:1", "b:1"])
def test_with_several_controllers_a_new_epoch_has_a_lease_when_most_have_named_their_leader(
    leader: str,
) -> None:
    """What was left of the older one says nothing: another broker may have led in between."""
    names = ("a:1", "b:1", "c:1")
    broker = Broker(OWN, controllers=names)
    known, now = leads(3, 1, ADDRESS, 1, 2, at=5), broker.now

    def talk() -> None:
        broker.manager.tick(now)
        for action in broker.manager.take():
            if not isinstance(action, AskController):
                continue
            answer = {904: ok(), 1005: named(leader)}.get(action.code, known)
            broker.manager.answered(action, answer, now + 0.01)

    def until(is_so: Any) -> None:
        nonlocal now
        end = now + 20.0
        while not is_so():
            now += 0.1
            talk()
            assert now < end

    until(lambda: broker.manager.may_accept(now))
    known = leads(4, 1, ADDRESS, 1, 2, at=7)
    until(lambda: broker.manager.epoch == 4)
    assert not broker.manager.may_accept(now + 0.01)
    until(lambda: broker.manager.may_accept(now))


@pytest.mark.parametrize("answer", [None, ok(code=1), ok(code=2007)])
def test_a_heartbeat_that_was_not_taken_makes_no_lease_longer(
    answer: ControllerAnswer | None,
) -> None:
    broker = running()
    assert broker.manager.may_accept(broker.now)
    until = broker.now
    while broker.manager.may_accept(until):
        until += 0.1
    broker.now += 2.0
    broker.manager.tick(broker.now)
    broker.collect()
    for beat in broker.beats:
        broker.answer(beat, answer)
    assert not broker.manager.may_accept(until)


# ------------------------------------------------------------ who crashed while it led


def test_who_crashed_in_an_epoch_leads_a_newer_one_only() -> None:
    """It says nothing meanwhile, or it would not be taken for dead; it is said once."""
    broker = registered(crashed_in=3)
    broker.beats.clear()
    with capturedLogs() as events:
        for _ in range(3):
            broker.expect(1002, leads(3, 1, ADDRESS, at=5)._replace(body=b'{"syncStateSet":[1]}'))
            broker.collect()
            assert broker.manager.is_standing_back
            broker.manager._wants_election = True
    assert len([event for event in events if "when it crashed" in str(formatEvent(event))]) == 1
    assert broker.manager.role is SetRole.NONE
    before = len(broker.beats)
    broker.now += 5.0
    broker.manager.tick(broker.now)
    ask = broker.collect() or broker.next_ask()
    assert len(broker.beats) == before
    broker.answer(ask, leads(4, 1, ADDRESS, at=6)._replace(body=b'{"syncStateSet":[1]}'))
    broker.collect()
    assert not broker.manager.is_standing_back
    assert isinstance(broker.done[-1], Lead)
    assert len(broker.beats) > before


def test_who_crashed_follows_whoever_leads_in_that_epoch() -> None:
    broker = registered(crashed_in=3)
    broker.expect(1002, leads(3, 2, OTHER)._replace(code=2011, body=b'{"syncStateSet":[2]}'))
    broker.collect()
    assert not broker.manager.is_standing_back
    assert broker.done == [Follow(2, OTHER, 3)]


# ------------------------------------------------------------ when, and whom, it asks


def test_a_leader_that_is_not_of_our_list_is_told_that_we_live() -> None:
    broker = Broker(OWN)
    broker.expect(1005, named("10.0.0.9:9878"))
    broker.expect(1003, leads(3, 1, ADDRESS, 1, 2, at=5))
    broker.collect()
    assert {beat.address for beat in broker.beats} == {CONTROLLER, "10.0.0.9:9878"}


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_controller_nobody_asks_each_second_who_leads(count: int) -> None:
    names = tuple(f"{name}:1" for name in "ab"[:count])
    broker = Broker(OWN, controllers=names)
    broker.expect(1005, named("a:1"))
    broker.expect(1003, leads(3, 2))
    broker.manager.take()
    broker.now += 1.0
    broker.manager.tick(broker.now)
    asked = [
        ask for ask in broker.manager.take() if isinstance(ask, AskController) and ask.code == 1005
    ]
    assert [ask.address for ask in asked] == ([] if count == 1 else list(names))


def test_who_leads_the_controllers_is_asked_again_in_time() -> None:
    """And another answer counts."""
    broker = running(broker_id=2)
    began = broker.now
    while True:
        ask = broker.next_ask()
        if ask.code == 1005:
            break
        broker.answer(ask, leads(3, 1, ADDRESS, 1, 2))
    period = SETTINGS.sync_controller_metadata_period / 1000
    assert period - 1.0 <= broker.now - began <= period + 6.0
    broker.answer(ask, named("10.0.0.9:9878"))
    assert broker.next_ask(0.1).address == "10.0.0.9:9878"


def test_it_looks_at_the_set_as_often_as_it_is_told_to() -> None:
    broker = running(broker_id=2)
    period = SETTINGS.sync_broker_metadata_period / 1000
    before = broker.now
    for _ in range(2):
        ask = looked(broker, leads(3, 1, ADDRESS, 1, 2))
        assert ask.sent - before == pytest.approx(period, abs=0.02)
        before = ask.sent


def test_without_an_answer_it_asks_again_after_a_pause_that_is_not_the_others() -> None:
    pause = SETTINGS.retry_interval / 1000
    broker, pauses = Broker(), []
    asked = broker.expect(1005, None)
    for _ in range(60):
        again = broker.expect(1005, None)
        pauses.append(again.sent - asked.sent)
        asked = again
    assert 0.74 * pause <= min(pauses) < 0.85 * pause
    assert 1.15 * pause < max(pauses) <= 1.26 * pause


def test_it_wakes_for_the_next_thing_that_is_due() -> None:
    broker = Broker(OWN)
    assert broker.manager.deadline() == 0.0
    asked = broker.next_ask()
    beat = broker.now + SETTINGS.broker_heartbeat_interval / 1000
    assert broker.manager.deadline() == beat, "it waits for an answer"
    broker.answer(asked, recorded("1005 response 0"))
    assert broker.manager.deadline() == broker.now


def test_who_may_not_stand_asks_whether_another_one_leads_and_not_to_be_elected() -> None:
    """And in no hurry."""
    broker = registered(may_stand=lambda: False)
    nobody = ok(encode_set(SyncStateSet((), 1)), masterEpoch="0")
    for _ in range(3):
        ask = looked(broker, nobody)
    broker.collect()
    assert broker.done == []
    period = SETTINGS.sync_broker_metadata_period / 1000
    assert looked(broker, nobody).sent - ask.sent == pytest.approx(period, abs=0.02)


def test_a_slave_that_hears_that_nobody_leads_stands_at_once_and_steps_down_from_nothing() -> None:
    broker = running(broker_id=2)
    broker.expect(1004, ok(encode_set(SyncStateSet((2,), 6)), masterEpoch="4"))
    broker.collect()
    assert not any(isinstance(each, StepDown) for each in broker.done)
    assert broker.next_ask(0.1).code == 1002


def test_only_a_master_that_knows_its_controller_has_its_set_changed() -> None:
    slave = running(broker_id=2)
    slave.manager.propose(SyncStateSet((2,), 5), slave.now)
    assert slave.collect() is None
    master = running()
    master.expect(1004, ok(code=2007))
    master.manager.propose(SyncStateSet((1,), 5), master.now)
    assert master.collect() is None


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (1012, ok(nextBrokerId="0")),
        (1012, ok()),
        (1012, ok(code=1, nextBrokerId="5")),
        (1003, ok(code=1)),
        (1002, ok(code=1)),
    ],
)
def test_what_is_refused_is_said_and_asked_again(code: int, answer: ControllerAnswer) -> None:
    broker = Broker(None if code == 1012 else OWN)
    broker.expect(1005, recorded("1005 response 0"))
    if code == 1002:
        broker.expect(1003, ok())
    with capturedLogs() as events:
        broker.expect(code, answer._replace(remark="for a test"))
    assert any("for a test" in str(formatEvent(event)) for event in events)
    assert broker.next_ask().code == code
    assert broker.done == []


def test_who_is_not_registered_any_more_says_so_at_once() -> None:
    broker = registered()
    broker.expect(1002, ok(code=2010))
    assert broker.next_ask(0.1).code == 1003


def test_a_refusal_of_an_id_of_a_set_or_to_say_who_leads_is_said() -> None:
    broker = running()
    with capturedLogs() as events:
        broker.manager.propose(SyncStateSet((1,), 5), broker.now)
        asked = broker.collect()
        assert asked is not None
        broker.answer(asked, ControllerAnswer(2003, "no such set", {}, b""))
        broker.expect(1004, ControllerAnswer(2008, "no such broker", {}, b""))
        broker.expect(1003, ControllerAnswer(2010, "no such id", {}, b""))
        broker.kept()
        broker.expect(1013, ControllerAnswer(2014, "another has it", {}, b""))
    said = " ".join(str(formatEvent(event)) for event in events)
    for remark in ("no such set", "no such broker", "no such id", "another has it"):
        assert remark in said


def test_a_controller_that_leads_no_more_changes_no_set_and_is_left() -> None:
    broker = running()
    broker.manager.propose(SyncStateSet((1,), 5), broker.now)
    asked = broker.collect()
    assert asked is not None
    broker.answer(asked, ok(code=2007))
    assert broker.next_ask(0.1).code == 1005
