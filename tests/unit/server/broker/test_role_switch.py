"""Role changes of a running broker: steps and order. Spec: dledger.md, chapter 16."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.remoting.audit import NAMESPACE
from rmq_ha.server.broker.role import RoleParts, RoleSwitch


class Rig:
    """A switch whose parts write down what is done to them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.done: list[str] = []
        self.configuration = BrokerConfiguration()
        self.configuration.broker.broker_id = -1
        self.leading: int | None = None
        self.settled = True
        self.bytes_behind = 0
        self.is_file_lost = False
        self.checks_stopped: Deferred[None] = succeed(None)
        self.registration: Any = SimpleNamespace(
            identity=BrokerIdentity("c", "b", -1, "h:1"),
            register_all=lambda: self.note("register", succeed(None)),
        )
        parts = RoleParts(
            store=SimpleNamespace(  # type: ignore[arg-type]
                renumber=lambda: self.note("renumber"),
                log_states=[
                    SimpleNamespace(
                        start=lambda: self.note("timers on"), stop=lambda: self.note("timers off")
                    )
                ],
                schedule=SimpleNamespace(
                    start=lambda: self.note("schedule on"),
                    stop=lambda: self.note("schedule off", succeed(True)),
                ),
                dispatcher=self,
                log=SimpleNamespace(max_offset=700),
            ),
            topics=SimpleNamespace(  # type: ignore[arg-type]
                create_in_send_back=lambda topic: self.note(f"{topic} of one queue"),
            ),
            delay_offsets=SimpleNamespace(  # type: ignore[arg-type]
                load=self.load_delay_offsets, persist_if_dirty=lambda: succeed(True)
            ),
            client_offsets=SimpleNamespace(  # type: ignore[arg-type]
                became_master=lambda log_end, has_all: self.note(
                    f"offsets end at queues, {log_end}"
                )
            ),
            transaction_checks=SimpleNamespace(  # type: ignore[arg-type]
                start=lambda: self.note("checks on"),
                stop=lambda: self.note("checks off", self.checks_stopped),
            ),
            slave_synchronize=SimpleNamespace(  # type: ignore[arg-type]
                start=lambda: self.note("copying on"),
                stop=lambda: self.note("copying off", succeed(None)),
                synchronize=lambda: self.note("copy"),
            ),
            registration=self.registration,
            drain_clients=lambda: self.note("clients leave"),
            forwarding=SimpleNamespace(  # type: ignore[arg-type]
                wait=lambda: None, lead=lambda: None
            ),
        )
        self.slave_id = 3
        self.switch = RoleSwitch(self.clock, self.configuration, parts, self)

    def note(self, what: str, result: Any = None) -> Any:
        self.done.append(what)
        return result

    def load_delay_offsets(self) -> None:
        self.note("delay offsets")
        if self.is_file_lost:
            raise StoreError("the disk refuses")

    def take(self) -> list[str]:
        done, self.done = self.done, []
        return done

    # The group

    is_sure_to_lead = True

    def leads(self, term: int) -> bool:
        return self.leading == term

    def is_settled(self) -> bool:
        return self.settled

    def admit_puts(self, admitted: bool) -> None:
        is_master = self.configuration.store.broker_role is BrokerRole.SYNC_MASTER
        self.note(("puts" if is_master else "puts of a slave") if admitted else "no puts")


def started() -> Rig:
    rig = Rig()
    rig.switch.start()
    return rig


@pytest.mark.parametrize("is_file_lost", [False, True])
def test_a_follower_is_a_slave_and_looks_for_its_master_at_once(is_file_lost: bool) -> None:
    """The order of changeToSlave; the tables are copied in moments, not in 30 s."""
    rig = started()
    rig.is_file_lost = is_file_lost
    rig.switch.follow()
    done = rig.take()
    assert done[0] == "no puts"
    copying = ["delay offsets", "copying on", "register", "checks off"]
    assert done[-6:] == ["timers off", "schedule off", *copying]
    assert rig.configuration.broker.broker_id == rig.registration.identity.broker_id == 3
    assert rig.configuration.store.broker_role is BrokerRole.SLAVE
    rig.clock.pump([0.3, 1.0, 3.0, 7.0, 60.0])
    assert rig.take() == ["register", "copy"] * 4


def test_only_the_clients_of_a_former_master_leave() -> None:
    """Held receives are answered by the states of the log, which stop before."""
    rig = started()
    rig.leading = 5
    rig.switch.lead(5)
    rig.take()
    rig.switch.follow()
    done = rig.take()
    assert done.index("timers off") < done.index("clients leave") < done.index("copying on")
    rig.switch.follow()
    assert "clients leave" not in rig.take()


def test_a_leader_is_the_master_once_all_is_committed_and_dispatched() -> None:
    """Puts come last, with numbers that know everything that was dispatched."""
    rig = started()
    rig.switch.follow()
    rig.take()
    rig.leading, rig.settled = 5, False
    rig.switch.lead(5)
    rig.clock.pump([0.1] * 5)
    rig.settled, rig.bytes_behind = True, 10
    rig.clock.pump([0.1] * 2)
    assert [what for what in rig.take() if what not in ("register", "copy")] == []
    rig.bytes_behind = 0
    rig.clock.advance(0.1)
    assert rig.take() == [
        "renumber",
        "copying off",
        "offsets end at queues, 700",
        "RMQ_SYS_TRANS_HALF_TOPIC of one queue",
        "schedule on",
        "checks on",
        "puts",
        "timers on",
        "register",
    ]
    assert rig.configuration.broker.broker_id == rig.registration.identity.broker_id == 0
    assert rig.configuration.store.broker_role is BrokerRole.SYNC_MASTER
    assert rig.clock.getDelayedCalls() == []


@pytest.mark.parametrize("then", ["leads", "stops"])
def test_a_master_that_is_found_too_late_is_not_copied(then: str) -> None:
    """The look for it ends when this broker is the master itself, or stops."""
    rig = started()
    rig.switch.follow()
    found: Deferred[None] = Deferred()
    rig.registration.register_all = lambda: found
    rig.clock.advance(0.3)
    if then == "leads":
        rig.leading = 5
        rig.switch.lead(5)
        assert rig.configuration.store.broker_role is BrokerRole.SYNC_MASTER
    else:
        rig.switch.stop()
    found.callback(None)
    assert "copy" not in rig.take()


def test_a_leadership_that_ends_first_makes_no_master() -> None:
    rig = started()
    rig.leading, rig.settled = 5, False
    rig.switch.lead(5)
    rig.clock.advance(0.1)
    rig.leading = None
    rig.switch.follow()
    rig.clock.advance(0.1)
    assert "puts" not in rig.take()
    assert rig.configuration.store.broker_role is BrokerRole.SLAVE


def test_puts_end_at_once_also_while_another_change_is_under_way() -> None:
    """And the last one that is wanted counts."""
    rig = started()
    rig.switch.follow()
    rig.leading = 6
    rig.switch.lead(6)
    assert "puts" in rig.take()
    rig.checks_stopped = Deferred()
    rig.switch.follow()
    rig.take()
    rig.switch.lead(6)
    rig.switch.follow()
    assert rig.take() == ["no puts"]
    rig.checks_stopped.callback(None)
    rig.checks_stopped = succeed(None)
    assert rig.configuration.store.broker_role is BrokerRole.SLAVE
    assert "puts" not in rig.take()


def test_a_candidate_that_is_a_slave_already_changes_nothing() -> None:
    """Spec: dledger.md, section 16.2."""
    rig = started()
    rig.switch.stand()
    assert "register" in rig.take()
    rig.switch.stand()
    assert rig.take() == ["no puts"]


def test_what_is_wanted_before_the_broker_serves_waits() -> None:
    rig = Rig()
    rig.switch.follow()
    assert rig.take() == ["no puts"]
    rig.switch.start()
    assert "register" in rig.take()


def test_a_stop_leaves_no_timer() -> None:
    rig = started()
    rig.switch.follow()
    rig.leading, rig.settled = 5, False
    rig.switch.lead(5)
    stopped: list[None] = []
    rig.switch.stop().addCallback(stopped.append)
    assert stopped == [None]
    assert rig.clock.getDelayedCalls() == []
    rig.take()
    rig.switch.follow()
    assert rig.take() == ["no puts"]


def test_a_master_that_could_not_be_made_is_tried_again() -> None:
    """A leader that is no master would leave the group without one; half a one takes no puts."""
    rig = started()
    rig.leading = 5
    schedule: Any = rig.switch._parts.store.schedule
    on = schedule.start

    def fails() -> None:
        schedule.start = on
        raise StoreError("delayOffset.json cannot be read")

    schedule.start = fails
    rig.switch.lead(5)
    done = rig.take()
    assert "puts" not in done
    assert done[-4:] == ["delay offsets", "copying on", "register", "checks off"]
    assert rig.configuration.store.broker_role is BrokerRole.SLAVE
    rig.clock.advance(1.1)
    assert rig.take()[-3:] == ["puts", "timers on", "register"]
    assert rig.configuration.store.broker_role is BrokerRole.SYNC_MASTER


def test_each_try_to_be_the_master_has_one_more_behind_it() -> None:
    """Whoever is elected anew meanwhile has his own: the one of before does not come as well."""
    rig = started()
    rig.leading = 5
    schedule: Any = rig.switch._parts.store.schedule
    schedule.start = lambda: 1 / 0
    rig.switch.lead(5)
    looks = len(rig.clock.getDelayedCalls())
    rig.clock.advance(0.2)
    rig.switch.lead(5)
    assert len(rig.clock.getDelayedCalls()) == looks


def test_a_master_that_could_not_be_made_is_given_up_with_its_term_or_the_broker() -> None:
    for ends in (lambda rig: setattr(rig, "leading", 6), lambda rig: rig.switch.stop()):
        rig = started()
        rig.leading = 5
        schedule: Any = rig.switch._parts.store.schedule
        schedule.start = lambda: 1 / 0
        rig.switch.lead(5)
        ends(rig)
        schedule.start = lambda: None
        rig.clock.pump([1.0] * 60)
        assert "puts" not in rig.take()
        assert rig.clock.getDelayedCalls() == []


def test_the_audit_log_says_who_became_the_master() -> None:
    with capturedLogs() as events:
        rig = started()
        rig.switch.follow()
        rig.leading = 5
        rig.switch.lead(5)
        rig.clock.advance(0.1)
    told = [event for event in events if event["log_namespace"] == NAMESPACE]
    assert [(event["verb"], event["kind"], event["details"]) for event in told] == [
        ("became", "slave", {"brokerId": 3}),
        ("became", "master", {"term": 5}),
    ]
    assert formatEvent(told[1]).startswith("this server became master ''")
