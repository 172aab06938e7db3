"""A broker's side of controller mode. Spec: controller.md, chapters 3, 5 and 14."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.server.controller.codec import encode_set
from rmq_ha.server.controller.messages import (
    ApplyBrokerIdRequest,
    NotifyRoleChangedRequest,
    SyncStateSet,
)
from rmq_ha.server.replication.epochs.roles.actions import (
    Accept,
    Action,
    Adopt,
    Apply,
    AskController,
    ControllerAnswer,
    Follow,
    Lead,
    LogProgress,
    SetRole,
    StepDown,
    Withdraw,
)
from rmq_ha.server.replication.epochs.roles.identity import Identity, KnownIds
from rmq_ha.server.replication.epochs.roles.lease import Lease
from rmq_ha.server.replication.epochs.roles.manager import UNCERTAIN_SECONDS, ReplicasManager
from rmq_ha.server.replication.epochs.settings import ManagerSettings

FRAMES: dict[str, Any] = json.loads(
    (Path(__file__).parents[5] / "vectors" / "controller" / "frames.json").read_text()
)
CONTROLLER = "127.0.0.2:51020"
ADDRESS = "127.0.0.2:51111"
OTHER = "127.0.0.2:51211"
NOW_MS = 1_795_330_556_000
TIMES = ("invokeTime", "registerCheckCode")
SILENCE = 10.0


def recorded(name: str) -> ControllerAnswer:
    """What Java's controller answered."""
    frame = FRAMES[name]
    header = frame["header"]
    return ControllerAnswer(
        header["code"], header.get("remark"), header.get("extFields") or {}, frame["body"].encode()
    )


def ok(body: bytes = b"", code: int = 0, **ext: str) -> ControllerAnswer:
    return ControllerAnswer(code, None, ext, body)


def leads(
    epoch: int, broker_id: int, address: str = OTHER, *members: int, at: int = 1
) -> ControllerAnswer:
    """1004."""
    return ok(
        encode_set(SyncStateSet(members or (broker_id,), at)),
        masterBrokerId=str(broker_id),
        masterAddress=address,
        masterEpoch=str(epoch),
    )


class Broker:
    """A manager, driven by hand."""

    def __init__(self, identity: Identity | None = None, **settings: Any) -> None:
        self.now = 100.0
        values = {
            "cluster_name": "Peer5Cluster",
            "broker_name": "broker-c",
            "broker_address": ADDRESS,
            "controllers": (CONTROLLER,),
            **settings,
        }
        self.progress = LogProgress(-1, 0, 0)
        self.manager = ReplicasManager(
            ManagerSettings(**values), KnownIds(identity), lambda: self.progress,
            lambda: NOW_MS, Random(1),
        )  # fmt: skip
        self.beats: list[AskController] = []
        self.looks: list[Action] = []  # of who was not elected: whom it waits for
        self.done: list[Action] = []

    def collect(self) -> AskController | None:
        """The request that it waits for, if there is one; all else is kept."""
        found = None
        for action in self.manager.take():
            if isinstance(action, AskController) and action.code == 904:
                self.beats.append(action)
            elif action is self.manager._look:
                self.looks.append(action)
            elif isinstance(action, AskController):
                found = action
            else:
                self.done.append(action)
        return found

    def next_ask(self, seconds: float = 20.0) -> AskController:
        """Let time pass until it asks for something besides heartbeats."""
        end = self.now + seconds
        while self.now < end:
            self.manager.tick(self.now)
            ask = self.collect()
            if ask is not None:
                return ask
            self.now = max(self.now + 0.01, self.manager.deadline())
        raise AssertionError("it asks for nothing")

    def answer(self, ask: AskController, answer: ControllerAnswer | None) -> None:
        self.manager.answered(ask, answer, self.now)

    def expect(self, code: int, answer: ControllerAnswer | None) -> AskController:
        ask = self.next_ask()
        assert ask.code == code
        self.answer(ask, answer)
        return ask

    def kept(self) -> Action:
        self.collect()
        self.manager.write_done(self.now)
        return self.done[-1]

    def heard(self) -> None:
        """The last heartbeats are answered."""
        for beat in self.beats:
            self.answer(beat, ok())
        self.beats.clear()


def running(broker_id: int = 1) -> Broker:
    """One that is registered, in epoch 3, which broker 1 leads: a set of {1, 2}."""
    broker = Broker(Identity("Peer5Cluster", "broker-c", broker_id))
    broker.expect(1005, recorded("1005 response 0"))
    broker.expect(1003, leads(3, 1, ADDRESS, 1, 2, at=5))
    broker.collect()
    broker.heard()
    if broker_id == 1:
        broker.expect(1004, leads(3, 1, ADDRESS, 1, 2, at=5))
        broker.collect()
        del broker.done[1:]  # that the set is as it was
    return broker


# ------------------------------------------------------------ as recorded


def test_a_first_start_says_what_javas_said() -> None:
    broker = Broker()
    assert (broker.manager.epoch, broker.manager.role) == (0, SetRole.NONE)
    asked: list[AskController] = [
        broker.expect(1005, recorded("1005 response 0")),
        broker.expect(1012, recorded("1012 response 0")),
    ]
    assert broker.kept() == Apply(Identity("Peer5Cluster", "broker-c", 1, f"{ADDRESS};{NOW_MS}"))
    asked.append(broker.expect(1013, recorded("1013 response 0")))
    assert isinstance(asked[-1].header, ApplyBrokerIdRequest)
    assert asked[-1].header.register_check_code == f"{ADDRESS};{NOW_MS}"
    assert broker.kept() == Accept(Identity("Peer5Cluster", "broker-c", 1))
    asked.append(broker.expect(1003, recorded("1003 response 0")))
    asked.append(broker.expect(1002, recorded("1002 response 0")))
    asked.append(broker.expect(1004, recorded("1004 response 0")))
    broker.manager.propose(SyncStateSet((1, 2), 1), broker.now)
    asked.append(broker.next_ask())
    broker.answer(asked[-1], recorded("1001 response 0"))
    broker.collect()
    for ask in (*asked, broker.beats[0]):
        frame = FRAMES[f"{ask.code} request"]
        ours = {} if ask.header is None else ext_fields(ask.header)
        javas = frame["header"].get("extFields") or {}
        assert {k: v for k, v in ours.items() if k not in TIMES} == {
            k: v for k, v in javas.items() if k not in TIMES
        }
        assert ours.keys() == javas.keys()
        assert ask.body == frame["body"].encode()
        assert ask.address == CONTROLLER
    assert [each for each in broker.done if isinstance(each, Lead | Adopt)] == [
        Lead(1, SyncStateSet((1,), 1)),
        Adopt(SyncStateSet((1,), 1)),
        Adopt(SyncStateSet((1, 2), 2)),
    ]


def test_at_javas_notice_of_another_master_the_controller_is_asked_at_once() -> None:
    broker = running()
    notice = NotifyRoleChangedRequest(
        master_address=OTHER, master_broker_id=2, sync_state_set_epoch=5, master_epoch=4
    )
    before = broker.now
    broker.manager.notified(notice, before)
    asked = broker.next_ask()
    assert (asked.code, broker.now) == (1004, before)
    broker.manager.notified(notice, before)  # its answer may be of before
    broker.answer(asked, leads(3, 1, ADDRESS, 1, 2, at=5))
    broker.answer(broker.next_ask(), leads(4, 2, at=5))
    assert broker.now == before
    assert broker.next_ask().sent > before + 1.0
    broker.collect()
    broker.done = [each for each in broker.done if not isinstance(each, Adopt)]
    assert broker.done == [Lead(3, SyncStateSet((1, 2), 5)), Follow(2, OTHER, 4)]
    assert not broker.manager.may_accept(broker.now)


def test_that_the_old_master_lives_is_a_success() -> None:
    broker = Broker(Identity("Peer5Cluster", "broker-c", 2))
    broker.expect(1005, recorded("1005 response 0"))
    broker.expect(1003, recorded("1003 response 0"))
    broker.expect(1002, recorded("1002 response 2011"))
    broker.collect()
    assert broker.done == [Follow(1, ADDRESS, 11)]


# ------------------------------------------------------------ ids


def test_an_id_that_another_was_quicker_to_take_is_asked_for_anew() -> None:
    broker = Broker()
    broker.expect(1005, recorded("1005 response 0"))
    broker.expect(1012, recorded("1012 response 0"))
    broker.kept()
    broker.expect(1013, ok(code=2014))
    assert broker.kept() == Withdraw()
    broker.expect(1012, ok(nextBrokerId="2"))
    assert broker.kept() == Apply(Identity("Peer5Cluster", "broker-c", 2, f"{ADDRESS};{NOW_MS}"))


def test_a_disk_that_refuses_is_tried_again() -> None:
    broker = Broker()
    broker.expect(1005, recorded("1005 response 0"))
    broker.expect(1012, recorded("1012 response 0"))
    broker.collect()
    broker.now += 5.0
    broker.manager.write_failed(broker.now)
    refused = broker.now
    ask = broker.next_ask()
    assert (ask.code, ask.sent > refused + 0.7) == (1012, True)


@pytest.mark.parametrize("running_already", [False, True])
def test_hazard_23_who_was_forgotten_applies_for_the_old_id(running_already: bool) -> None:
    """Java's asks to be registered for ever."""
    broker = running() if running_already else Broker(Identity("Peer5Cluster", "broker-c", 7))
    own = 1 if running_already else 7
    if running_already:
        broker.expect(1004, ok(code=2008))
    else:
        broker.expect(1005, recorded("1005 response 0"))
    broker.expect(1003, ok(code=2010))
    application = broker.kept()
    assert isinstance(application, Apply)
    assert application.application.broker_id == own
    broker.expect(1013, ok(code=2014))  # nobody of the set is known yet
    broker.expect(1013, ok())
    assert broker.kept() == Accept(Identity("Peer5Cluster", "broker-c", own))
    ask = broker.next_ask(0.1)
    assert ask.code == 1003
    broker.answer(ask, ok())
    assert broker.next_ask().code == 1002
    assert broker.manager.role is (SetRole.MASTER if running_already else SetRole.NONE)


# ------------------------------------------------------------ the controllers


def test_a_controller_that_does_not_lead_sends_us_to_the_one_that_does() -> None:
    broker = running()
    broker.expect(1004, ok(code=2007))
    assert broker.next_ask().code == 1005


def test_controllers_are_asked_in_turn() -> None:
    broker = Broker(controllers=("a:1", "b:1", "c:1"))
    asked = [broker.expect(1005, None).address for _ in range(4)]
    assert asked == ["b:1", "c:1", "a:1", "b:1"]


def test_an_answer_that_cannot_be_read_is_none() -> None:
    broker = running()
    broker.expect(1004, ok(b"{", masterBrokerId="x"))
    assert broker.next_ask(2.0).code == 1004


# ------------------------------------------------------------ roles


def test_older_news_are_none() -> None:
    broker = running()
    broker.expect(1004, leads(2, 2))
    broker.collect()
    assert broker.done == [Lead(3, SyncStateSet((1, 2), 5))]


def test_hazard_1_who_is_deposed_without_successor_steps_down() -> None:
    """Java's goes on for ever, and what it acknowledges is cut when the other returns."""
    broker = running()
    assert broker.manager.may_accept(broker.now)
    broker.expect(1004, ok(encode_set(SyncStateSet((2,), 6)), masterEpoch="4"))
    broker.collect()
    assert isinstance(broker.done[-1], StepDown)
    assert not broker.manager.may_accept(broker.now)
    broker.expect(1002, recorded("1002 response 2012"))
    broker.expect(1002, leads(5, 1, ADDRESS)._replace(body=b'{"syncStateSet":[1]}'))
    broker.collect()
    assert broker.done[-1] == Lead(5, SyncStateSet((1,), 0))


def test_hazard_2_a_master_accepts_until_its_lease_ends() -> None:
    """It counts from when the heartbeat left, not from its answer."""
    broker = running()
    broker.now += 2.0
    broker.manager.tick(broker.now)
    broker.collect()
    sent = broker.beats[-1].sent
    broker.now += 3.0
    broker.heard()
    assert sent == broker.now - 3.0
    assert broker.manager.may_accept(sent + 0.79 * SILENCE)
    assert not broker.manager.may_accept(sent + 0.8 * SILENCE)


def test_hazard_2_a_lease_that_ended_does_not_begin_with_a_heartbeat() -> None:
    """Found by a seed of test_simulated_leases: somebody was elected while we were silent."""
    broker = running()
    broker.now += 8.5
    broker.manager.tick(broker.now)
    asked_before = broker.collect()
    assert asked_before is not None
    broker.heard()
    assert not broker.manager.may_accept(broker.now)
    broker.answer(asked_before, leads(3, 1, ADDRESS, 1, 2, at=5))
    assert not broker.manager.may_accept(broker.now), "it says nothing of after the silence"
    broker.now += 1.0
    broker.manager.tick(broker.now)
    broker.collect()
    broker.heard()
    broker.expect(1004, leads(3, 1, ADDRESS, 1, 2, at=5))
    assert broker.manager.may_accept(broker.now)


def test_hazard_2_a_lease_begins_with_the_word_of_the_controller() -> None:
    lease = Lease(1, 10.0)
    lease.heartbeat_answered("a:1", 50.0, 51.0)
    assert not lease.holds(51.0)
    lease.confirmed("a:1", lease.heard("a:1"), 52.0)
    assert lease.holds(57.9)
    lease.heartbeat_answered("a:1", 55.0, 57.9)
    assert lease.holds(62.9)
    assert not lease.holds(63.0)
    lease.heartbeat_answered("a:1", 62.0, 63.0)
    assert not lease.holds(63.0)
    lease.reset()
    assert not lease.holds(0.0)


def test_hazard_2_several_controllers_have_to_name_who_answers() -> None:
    """One that was deposed and does not know it answers heartbeats, too."""
    lease = Lease(3, 10.0)
    lease.heartbeat_answered("a:1", 50.0, 51.0)
    lease.leader_named("a:1", "a:1", 50.0, 51.0)
    lease.leader_named("b:1", "a:1", 50.0, 51.0)
    lease.confirmed("a:1", 50.0, 52.0)
    assert not lease.holds(52.0), "they were asked before"
    lease.leader_named("a:1", "a:1", 53.0, 53.0)
    assert not lease.holds(53.0)
    lease.leader_named("c:1", "a:1", 53.0, 53.0)
    assert lease.holds(57.9)
    lease.heartbeat_answered("a:1", 57.0, 57.5)
    assert not lease.holds(61.0), "it may lead no more"
    lease.leader_named("b:1", "c:1", 57.0, 57.5)
    lease.leader_named("c:1", "c:1", 57.0, 57.5)
    lease.heartbeat_answered("c:1", 57.0, 57.5)
    assert lease.holds(64.9)
    assert not lease.holds(65.0)


@pytest.mark.parametrize(("controllers", "most"), [(2, 2), (3, 2), (5, 3)])
def test_hazard_2_whom_most_named_when_we_heard_that_we_lead_led_then(
    controllers: int, most: int
) -> None:
    lease = Lease(controllers, 10.0)
    lease.confirmed("a:1", 50.0, 52.0)
    for number in range(most):
        assert not lease.holds(52.0)
        lease.leader_named(f"{number}:1", "a:1", 52.0, 52.1)
    assert lease.holds(57.9)
    assert not lease.holds(58.0)


def test_hazard_2_with_several_controllers_all_are_asked_each_second() -> None:
    broker = Broker(Identity("C", "b", 1), controllers=("a:1", "b:1", "c:1"))
    broker.manager.tick(broker.now)
    asked = [each for each in broker.manager.take() if isinstance(each, AskController)]
    assert [each.address for each in asked if each.code == 904] == ["a:1", "b:1", "c:1"]
    assert {each.address for each in asked if each.code == 1005} == {"a:1", "b:1", "c:1"}


def test_hazard_24_a_role_that_could_not_be_taken_is_none() -> None:
    """Java's becomes master half-way."""
    broker = running()
    broker.manager.failed(broker.now)
    assert not broker.manager.may_accept(broker.now)
    broker.expect(
        1002, leads(3, 1, ADDRESS, at=5)._replace(code=2011, body=b'{"syncStateSet":[1]}')
    )
    broker.collect()
    assert isinstance(broker.done[-1], Lead), "it is tried again"


def test_a_master_that_moved_is_followed_there() -> None:
    broker = running(broker_id=2)
    broker.expect(1004, leads(3, 1, "10.0.0.7:10911", 1, 2))
    broker.collect()
    assert broker.done == [Follow(1, ADDRESS, 3), Follow(1, "10.0.0.7:10911", 3)]


# ------------------------------------------------------------ the set


def propose(broker: Broker, answer: ControllerAnswer | None) -> None:
    broker.manager.propose(SyncStateSet((1,), 5), broker.now)
    ask = broker.collect()
    assert ask is not None
    assert ask.code == 1001
    broker.answer(ask, answer)


def test_hazard_5_a_refused_set_is_looked_into_before_it_is_dropped() -> None:
    broker = running()
    propose(broker, recorded("1001 response 2003"))
    broker.manager.propose(SyncStateSet((1,), 5), broker.now)
    ask = broker.expect(1004, leads(3, 1, ADDRESS, 1, 2, at=5))
    broker.collect()
    assert ask.sent == broker.now, "at once"
    assert broker.done[-1] == Adopt(SyncStateSet((1, 2), 5), is_final=True)


def test_hazard_5_a_change_that_may_still_go_through_is_not_dropped() -> None:
    broker = running()
    propose(broker, None)
    lost = broker.now
    propose(broker, recorded("1001 response 2013"))
    while not any(isinstance(done, Adopt) and done.is_final for done in broker.done):
        ask = broker.next_ask()
        is_info = ask.code == 1004
        broker.answer(
            ask, leads(3, 1, ADDRESS, 1, 2, at=5) if is_info else recorded("1005 response 0")
        )
        broker.collect()
    assert is_info
    assert ask.sent >= lost + UNCERTAIN_SECONDS


def test_one_change_of_the_set_at_a_time() -> None:
    broker = running()
    broker.manager.propose(SyncStateSet((1,), 5), broker.now)
    assert broker.collect() is not None
    broker.manager.propose(SyncStateSet((1,), 5), broker.now)
    assert broker.collect() is None
