"""Members of the controllers' group on simulated disks: what one vouches for stays."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO, EMFILE, ENOSPC
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.store_format.dledger import decode_term
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.controller.events import BrokerIdApplied, encode_event
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from tests.sim_kit.controlled import PORT, ControllerDesk, until, wait

_SLOW = (0.2, 0.3)
_DATA = "/controller/dledger-n{}/data/00000000000000000000"


def event(number: int) -> bytes:
    """Of a set of its own: each can be looked for."""
    return encode_event(BrokerIdApplied("c", f"b{number}", 1, "h:1", "x"))


def known(desk: ControllerDesk, member: int = 0) -> list[str]:
    return sorted(desk.services[member].sets.names())


def proposed(desk: ControllerDesk, number: int, member: int | None = None) -> list[Any]:
    """What became of it, once something did."""
    results: list[Any] = []
    leader = desk.leader() if member is None else member
    desk.services[leader].group.propose(event(number)).addBoth(results.append)
    return results


def fails(operation: str, number: int, part: str = "") -> Callable[[str, str], int | None]:
    return lambda called, path: number if called == operation and part in path else None


def healthy(_: str, __: str) -> None:
    return None


def remark(result: Any) -> tuple[int, str]:
    assert isinstance(result.value, RequestRejected), result
    return result.value.code, result.value.remark


def stop(desk: ControllerDesk, member: int = 0) -> None:
    wait(desk.world, desk.services[member].stop())


def test_nothing_is_agreed_on_before_most_have_it_on_the_disk() -> None:
    desk = ControllerDesk(3)
    for host in desk.hosts:
        host.worker.delay = _SLOW
    results = proposed(desk, 1)
    until(desk.world, lambda: bool(results), 5.0)
    assert results == [None]
    written = desk.hosts[desk.leader()].disk.content(_DATA.format(desk.leader())).index(b'"b1"')
    safe = [
        host.disk.is_safe(_DATA.format(number), 0, written + 4)
        and b'"b1"' in host.disk.content(_DATA.format(number))
        for number, host in enumerate(desk.hosts)
    ]
    assert safe.count(True) >= 2


def test_what_cannot_be_synced_just_now_is_agreed_on_once_it_is() -> None:
    """No sync has failed. Then files that were closed meanwhile cannot be opened, either."""
    desk = ControllerDesk()
    disk, service = desk.hosts[0].disk, desk.services[0]
    disk.fault = fails("names", EMFILE)
    results = proposed(desk, 1)
    desk.world.clock.run_for(1.2)
    service.group._ledger.close()
    disk.fault = fails("open", EMFILE)
    desk.world.clock.run_for(1.2)
    assert (results, known(desk)) == ([], [])
    assert service.group.fault is None
    disk.fault = healthy
    until(desk.world, lambda: results == [None], 0.6)
    wait(desk.world, service.group.propose(event(2)), 0.1)
    desk.crash(0)
    desk.restart(0)
    desk.leader()
    assert known(desk) == ["b1", "b2"]


def test_files_that_no_disk_opens_any_more_end_its_part() -> None:
    desk = ControllerDesk()
    disk, service = desk.hosts[0].disk, desk.services[0]
    disk.fault = fails("names", EMFILE)
    results = proposed(desk, 1)
    desk.world.clock.run_for(0.1)
    service.group._ledger.close()
    disk.fault = fails("open", EIO)
    until(desk.world, lambda: bool(results), 1.0)
    assert remark(results[0])[0] == 1
    ready, reason = service.state()
    assert (ready, reason.startswith("the log cannot be synced")) == (False, True)
    assert not desk.world.clock.failures


def test_what_the_next_start_reads_less_by_is_written_every_few_seconds_and_no_more_often() -> None:
    desk = ControllerDesk()
    group, disk = desk.services[0].group, desk.hosts[0].disk
    desk.world.clock.run_for(4.0)
    wait(desk.world, group.propose(event(1)))
    path = "/controller/dledger-n0/checkpoint"
    before = disk.read_bytes(path)
    for number in range(2, 6):
        wait(desk.world, group.propose(event(number)))
    assert disk.read_bytes(path) == before
    desk.world.clock.run_for(3.1)
    wait(desk.world, group.propose(event(6)))
    assert disk.read_bytes(path) != before


@pytest.mark.parametrize("operation", ["names", "open"])
def test_a_stop_while_files_cannot_be_opened_ends_and_leaves_no_timer(operation: str) -> None:
    desk = ControllerDesk()
    disk = desk.hosts[0].disk
    disk.fault = fails("names", EMFILE)
    results = proposed(desk, 1)
    desk.world.clock.run_for(0.1)
    if operation == "open":
        desk.services[0].group._ledger.close()
        disk.fault = fails("open", EMFILE)
        desk.world.clock.run_for(0.5)
    stop(desk)
    assert remark(results[0]) == (1, "this controller stops")
    assert desk.hosts[0].clock.getDelayedCalls() == []
    assert desk.services[0].group.fault is None


def test_a_stop_waits_for_what_is_being_written() -> None:
    """Whoever closes the files sooner, and gives the lock back, has two write them."""
    desk = ControllerDesk()
    host = desk.hosts[0]
    host.worker.delay = (1.0, 1.0)
    proposed(desk, 1)
    assert host.worker.outstanding == 1
    stop(desk)
    assert host.worker.outstanding == 0
    host.worker.delay = host.worker.usual_delay
    desk.services[0] = desk.make(0)
    wait(desk.world, desk.services[0].start())
    desk.leader()
    assert known(desk) == ["b1"]
    stop(desk)
    stop(desk)


def test_a_controller_that_has_written_nothing_stops_at_once() -> None:
    desk = ControllerDesk()
    desk.crash(0)
    desk.hosts[0].restart()
    service = desk.services[0] = desk.make(0)
    wait(desk.world, service.start())
    stop(desk)
    assert desk.hosts[0].clock.getDelayedCalls() == []
    stop_unstarted = Deferred.fromCoroutine(desk.make(0).group.stop())
    assert stop_unstarted.called


def test_who_is_stopped_hears_of_no_answer_that_comes_later() -> None:
    """A call to another member is out: what comes back changes nothing any more."""
    desk = ControllerDesk(3)
    leader = desk.leader()
    service, group = desk.services[leader], desk.services[leader].group
    for number in {0, 1, 2} - {leader}:
        desk.crash(number)
    results = proposed(desk, 1, leader)
    stopped = group.stop()
    wait(desk.world, Deferred.fromCoroutine(stopped))
    assert len(results) == 1
    desk.world.clock.run_for(10.0)
    assert (len(results), known(desk, leader)) == (1, [])
    assert not group.leads
    assert not desk.world.clock.failures
    answer = desk.tool.ask(desk.addresses[leader], DLedgerRequestCode.METADATA, None, b"{}")
    assert answer.code != 0
    assert not service.state()[0]


def test_a_vote_leaves_when_it_is_on_the_disk_and_not_before() -> None:
    """Who forgets one with the power votes twice: two controllers would lead in one term."""
    desk = ControllerDesk(3)
    desk.world.clock.run_for(2.0)
    first = desk.leader()
    others = sorted({0, 1, 2} - {first})
    for number in others:
        desk.hosts[number].worker.delay = (0.01, 0.02)
    desk.crash(first)

    def elected() -> list[int]:
        return [n for n in others if desk.services[n].group.leader_id == f"n{n}"]

    assert desk.world.clock.run_while(lambda: not elected(), 30.0)
    term = desk.services[elected()[0]].group.term
    for number in others:
        path = f"/controller/dledger-n{number}/currterm"
        state = decode_term(desk.hosts[number].disk.read_bytes(path))
        assert (state.term, state.voted_for) == (term, f"n{elected()[0]}")


def test_who_cannot_keep_its_vote_takes_no_part() -> None:
    desk = ControllerDesk(3)
    first = desk.leader()
    others = sorted({0, 1, 2} - {first})
    for number in others:
        desk.hosts[number].disk.is_full = True
    desk.crash(first)
    groups = [desk.services[number].group for number in others]
    until(desk.world, lambda: any(group.fault for group in groups), 30.0)
    desk.world.clock.run_for(20.0)
    assert not any(group.leads for group in groups)
    ill = next(group for group in groups if group.fault)
    assert "term and vote cannot be kept" in (ill.fault or "")
    assert ill.leader_id is None
    for number in others:
        desk.hosts[number].disk.is_full = False
        if desk.services[number].group.fault:
            stop(desk, number)
            assert desk.hosts[number].clock.getDelayedCalls() == []
            desk.crash(number, power=False)
            desk.restart(number)
    assert desk.leader() in others


def test_who_cannot_write_the_first_entry_of_its_term_leads_once_it_can() -> None:
    """Before that it does not know what others have committed: it answers for nothing."""
    desk = ControllerDesk()
    desk.crash(0)
    desk.hosts[0].restart()
    service = desk.services[0] = desk.make(0)
    wait(desk.world, service.start())
    desk.hosts[0].disk.fault = fails("pwrite", ENOSPC, "/data/")
    until(desk.world, lambda: service.group.leader_id == "n0", 20.0)
    desk.world.clock.run_for(3.0)
    assert (service.group.leads, service.group.is_ready) == (False, False)
    assert service.state() == (False, "no controller leads")
    desk.hosts[0].disk.fault = healthy
    until(desk.world, lambda: service.group.is_ready, 1.1)
    assert service.group.fault is None
    wait(desk.world, service.group.propose(event(1)))


def test_a_stop_while_the_first_entry_cannot_be_written_leaves_no_timer() -> None:
    desk = ControllerDesk()
    desk.crash(0)
    desk.hosts[0].restart()
    service = desk.services[0] = desk.make(0)
    wait(desk.world, service.start())
    desk.hosts[0].disk.fault = fails("pwrite", ENOSPC, "/data/")
    until(desk.world, lambda: service.group.leader_id == "n0", 20.0)
    stop(desk)
    assert desk.hosts[0].clock.getDelayedCalls() == []


def test_what_cannot_be_written_is_refused_and_the_next_one_is_taken() -> None:
    desk = ControllerDesk()
    desk.hosts[0].disk.fault = fails("pwrite", ENOSPC, "/data/")
    (result,) = proposed(desk, 1)
    code, text = remark(result)
    assert (code, "the controller cannot write its log" in text) == (1, True)
    assert desk.services[0].group.is_ready
    desk.hosts[0].disk.fault = healthy
    wait(desk.world, desk.services[0].group.propose(event(2)))
    assert known(desk) == ["b2"]
    too_long: list[Any] = []
    desk.services[0].group.propose(bytes(1 << 20)).addErrback(too_long.append)
    assert remark(too_long[0])[0] == 1
    desk.crash(0)
    desk.restart(0)
    desk.leader()
    assert known(desk) == ["b2"]


def test_a_log_that_cannot_be_read_at_the_start_is_said_and_nobody_leads_by_it() -> None:
    desk = ControllerDesk()
    wait(desk.world, desk.services[0].group.propose(event(1)))
    desk.world.clock.run_for(4.0)
    wait(desk.world, desk.services[0].group.propose(event(2)))
    stop(desk)
    service = desk.services[0] = desk.make(0)
    load = service.group._ledger.load

    def loaded() -> None:
        load()
        desk.hosts[0].disk.fault = fails("pread", EIO)

    service.group._ledger.load = loaded  # type: ignore[method-assign]
    wait(desk.world, service.start())
    desk.world.clock.run_for(20.0)
    ready, reason = service.state()
    assert (ready, reason.startswith("the log cannot be read")) == (False, True)
    assert not service.group.leads


def test_a_member_that_answers_nonsense_for_a_while_is_followed_by_again() -> None:
    """Its answers count as none: it is asked again."""
    desk = ControllerDesk(3)
    leader = desk.leader()
    odd, down = sorted({0, 1, 2} - {leader})
    desk.crash(odd)
    desk.hosts[odd].restart()
    asked: list[int] = []
    dispatcher = RequestDispatcher()

    def nonsense(_: Any, request: RemotingCommand) -> RemotingCommand:
        asked.append(request.code)
        return request.response(body=b"{" if len(asked) % 2 else None)

    dispatcher.default = nonsense
    server = RemotingServer(desk.hosts[odd].seams, NettyServerConfig(), dispatcher)
    wait(desk.world, server.listen(PORT, ""))
    wait(desk.world, desk.services[leader].group.propose(event(1)))
    until(
        desk.world,
        lambda: DLedgerRequestCode.PUSH in asked and DLedgerRequestCode.HEART_BEAT in asked,
        10.0,
    )
    desk.crash(odd)
    desk.restart(odd)
    desk.crash(down)
    wait(desk.world, desk.services[leader].group.propose(event(2)), 10.0)
    assert desk.services[leader].group.leads


def by_name() -> ControllerDesk:
    """Three whose peers are names."""
    desk = ControllerDesk(3)
    desk.addresses = [f"{host.name}:{PORT}" for host in desk.hosts]
    for number in range(3):
        desk.crash(number)
    for number in range(3):
        desk.restart(number)
    return desk


def test_members_that_are_given_by_name_know_each_other_from_the_start(logged: list[Any]) -> None:
    desk = by_name()
    logged.clear()
    desk.leader()
    assert not [item for item in logged if "refused" in str(item.get("log_format"))]


def test_a_member_that_has_moved_is_looked_up_when_it_asks_and_may_lead() -> None:
    """It alone has what was agreed on last; the other one knows where it was."""
    desk = by_name()
    leader = desk.leader()
    moved, other = sorted({0, 1, 2} - {leader})
    desk.crash(moved)
    desk.hosts[moved].ip = "10.0.0.77"
    desk.restart(moved)
    desk.world.clock.run_for(3.0)
    leader = desk.leader()
    for name in {0, 1, 2} - {other}:
        desk.world.network.partition(desk.hosts[other].name, desk.hosts[name].name)
    wait(desk.world, desk.services[leader].group.propose(event(1)))
    desk.crash(leader)
    desk.world.network.heal()
    assert desk.leader(20.0) == moved
    assert known(desk, moved) == ["b1"]


def test_an_answer_is_not_taken_from_tables_that_miss_what_may_be_agreed_on() -> None:
    """The id may have been given: nobody may be told that it was not."""
    desk = ControllerDesk(3, controller_open_to_all=True)
    leader = desk.leader()
    for number in {0, 1, 2} - {leader}:
        desk.crash(number)
    names = {"clusterName": "c", "brokerName": "b"}
    asked = {**names, "appliedBrokerId": "1", "registerCheckCode": "h:1;1"}
    known_as = {**names, "brokerId": "1", "brokerAddress": "h:1"}
    assert desk.tool.ask(desk.addresses[leader], 1013, asked).code == 1
    assert desk.services[leader].group.leads
    assert desk.tool.ask(desk.addresses[leader], 1003, known_as).code == 2007
