"""DLedger groups."""

from __future__ import annotations

import shutil
import time

from tests.interop.groups import TOPIC, Group
from tests.interop.pairs import log_end
from tests.museum.exhibit import Fact, Room
from tests.museum.sides import Sending, Side, codes, cpu_seconds, readable

room = Room("DLedger groups")


def followers(group: Group) -> tuple[str, list[str]]:
    """The leader's name, and the others'."""
    leader = group.wait_leader().name
    return leader, [name for name in group.members if name != leader]


def stored(group: Group, leader: str, count: int) -> int:
    """Send to the leader; how many were acknowledged."""
    return codes(group.members[leader].server, TOPIC, count)[0]


@room.exhibit("A45: RMQ#4415, dledger#123")
def idle_leader_burns_processors(side: Side) -> Fact:
    """The leader of an idle group takes two processors."""
    group = side.group()
    leader, _ = followers(group)
    time.sleep(2)
    used = cpu_seconds(group.members[leader].server, 5)
    return Fact(used > 2.5, f"{used:.2f} s of processor time in 5 idle seconds")


@room.exhibit("A47: RMQ#2178")
def member_that_is_behind_leads(side: Side) -> Fact:
    """A member that was away becomes leader, and cuts entries that the others have acknowledged."""
    group = side.group()
    leader, (behind, _) = followers(group)
    group.kill(behind)
    accepted = stored(group, leader, 50)
    group.kill(leader)
    group.restart(behind)
    after = group.wait_leader(leader)
    found = len(readable(after.server, TOPIC))
    told = "the member that was away" if after.name == behind else "the other one"
    return Fact(found < accepted, f"{told} leads, {found} of {accepted} SEND_OK readable")


@room.exhibit("A49: dledger#331, dledger#87, dledger#61, dledger#325, dledger#316, RMQ#1778")
def wiped_follower_never_recovers(side: Side) -> Fact:
    """A follower that lost its data, but not its vote, never gets the data again."""
    group = side.group()
    leader, (wiped, _) = followers(group)
    stored(group, leader, 50)
    group.kill(wiped)
    ledger = group.members[wiped].server.store / f"dledger-{wiped}"
    for path in ledger.iterdir():
        if path.name != "currterm" and path.is_dir():
            shutil.rmtree(path)
    shutil.rmtree(group.members[wiped].server.store / "consumequeue", ignore_errors=True)
    group.restart(wiped)
    began = time.monotonic()
    addresses = [group.members[name].server.address for name in (leader, wiped)]
    while len({log_end(address) for address in addresses}) > 1 and time.monotonic() < began + 30:
        time.sleep(0.2)
    ends = [log_end(address) for address in addresses]
    seconds = time.monotonic() - began
    return Fact(
        ends[0] != ends[1], f"leader ends at {ends[0]}, it at {ends[1]} after {seconds:.1f} s"
    )


@room.exhibit("found while specifying 4.9.7")
def no_quorum_and_no_answer(side: Side) -> Fact:
    """The quorum is lost while a put waits for it: the put is never answered."""
    group = side.group()
    leader, others = followers(group)
    for name in others:
        group.pause(name)
    try:
        pending = Sending(group.members[leader].server, TOPIC, 1)
        answer = dict(pending.codes())
    finally:
        for name in others:
            group.resume(name)
    told = f"{answer} after {pending.seconds():.1f} s" if answer else "no answer in 20 s"
    return Fact(not answer, f"codes {told}" if answer else told)
