"""Acknowledgements that mean less than they say."""

from __future__ import annotations

import time

from tests.interop.rig import Server
from tests.interop.wire_producer import WireProducer
from tests.museum.exhibit import Fact, Room
from tests.museum.raw_peers import RawSlave
from tests.museum.sides import (
    FLUSH_SLAVE_TIMEOUT,
    SEND_OK,
    SLAVE_NOT_AVAILABLE,
    Sending,
    Side,
    codes,
    create,
    end_of,
    paused,
    readable,
    send,
)

room = Room("Acknowledgements that mean less than they say")
CLIENT_TIMEOUT = 3.0
"""Seconds after which RocketMQ's clients give a send up."""


def in_sync(slave: RawSlave, master: Server) -> None:
    """Make a socket the slave of a master that has a message already."""
    slave.follow(end_of(master))
    deadline = time.monotonic() + 10
    while codes(master, "T", 1)[SEND_OK] == 0:
        assert time.monotonic() < deadline, "no SEND_OK with a raw slave"


@room.exhibit("A1: RMQ#3015, RMQ#1155, RMQ#3349", quick_java=True)
def junk_on_the_ha_port(side: Side) -> Fact:
    """Any eight bytes on the HA port count as a slave with everything: SEND_OK, no replica."""
    master = side.broker(slaveTimeout=500)
    create(master, "T")
    with RawSlave(master) as stranger:
        stranger.send(b"GET / HT")
        time.sleep(0.5)
        found = codes(master, "T", 10)
    return Fact(found[SEND_OK] > 0, f"{found[SEND_OK]} of 10 SEND_OK")


@room.exhibit("A1: RMQ#3015, RMQ#3016")
def acknowledges_what_it_was_never_sent(side: Side) -> Fact:
    """A slave may acknowledge more than it was sent: SEND_OK for messages that it does not have."""
    master = side.broker(slaveTimeout=2000)
    send(master, "T", 40, body=bytes(900_000))
    with RawSlave(master, buffer=4096) as slave:
        slave.report(1 << 20)
        time.sleep(1)
        pending = Sending(master, "T", 1)
        time.sleep(0.5)
        slave.report(end_of(master))
        ok = pending.codes()[SEND_OK]
        return Fact(ok > 0, f"{ok} of 1 SEND_OK, with at most a few of 36 MB sent")


@room.exhibit("N1, A1: RMQ#3015")
def a_strangers_first_report(side: Side) -> Fact:
    """A stranger who names the end of the log acknowledges the puts that wait for a slave."""
    master = side.broker(slaveTimeout=2000)
    create(master, "T")
    send(master, "T", 1)
    with RawSlave(master) as slave:
        in_sync(slave, master)
        slave.fall_silent()
        pending = Sending(master, "T", 5)
        time.sleep(0.5)
        with RawSlave(master) as stranger:
            stranger.report(end_of(master))
            ok = pending.codes()[SEND_OK]
    return Fact(ok > 0, f"{ok} of 5 SEND_OK that the silent slave does not have")


@room.exhibit("A2: RMQ#2528", kept="SLAVE_NOT_AVAILABLE says so, the message is stored")
def sync_master_without_slave(side: Side) -> Fact:
    """A SYNC_MASTER without a slave goes on storing messages."""
    master = side.broker()
    create(master, "T")
    found = codes(master, "T", 10)
    stored = len(readable(master, "T"))
    return Fact(stored > 0, f"{stored} of 10 stored, {found[SLAVE_NOT_AVAILABLE]} with code 11")


@room.exhibit("A3: RMQ#2830", kept="a pull serves what the log has")
def read_before_it_is_replicated(side: Side) -> Fact:
    """Consumers get messages that are on the master only, and that a crash can lose."""
    master = side.broker(slaveTimeout=2000)
    create(master, "T")
    send(master, "T", 1)
    with RawSlave(master) as slave:
        in_sync(slave, master)
        slave.fall_silent()
        before = len(readable(master, "T"))
        pending = Sending(master, "T", 5)
        time.sleep(1)
        early = len(readable(master, "T")) - before
        code = FLUSH_SLAVE_TIMEOUT
        late = pending.codes()[code]
    return Fact(early > 0, f"{early} of 5 read before they were answered; {late} of 5 code {code}")


@room.exhibit("A4: RMQ#1244, RMQ#1535")
def large_messages_in_sync_mode(side: Side) -> Fact:
    """Messages above 160 KB get FLUSH_SLAVE_TIMEOUT although they did replicate."""
    pair = side.pair(mappedFileSizeCommitLog=16 << 20)
    create(pair.master, "T")
    found = codes(pair.master, "T", 6, body=bytes(4 * 1024 * 1024))
    late = 6 - found[SEND_OK]
    return Fact(late > 0, f"{found[SEND_OK]} of 6 of 4 MiB SEND_OK")


@room.exhibit("A5: RMQ#5657", kept="slaveTimeout is 3 s, as clients' time-out; set it lower")
def client_gives_up_first(side: Side) -> Fact:
    """The broker waits for its slave as long as clients wait for the broker: no code arrives."""
    master = side.broker()
    create(master, "T")
    send(master, "T", 1)
    with RawSlave(master) as slave:
        in_sync(slave, master)
        slave.fall_silent()
        seconds = Sending(master, "T", 1).seconds()
    return Fact(seconds >= CLIENT_TIMEOUT, f"code 12 after {seconds:.2f} s, clients wait 3 s")


@room.exhibit("RMQ#1244")
def deadlines_one_after_the_other(side: Side) -> Fact:
    """Deadlines of puts are checked in turn: an answer without replica is a second late."""
    master = side.broker(slaveTimeout=1000)
    create(master, "T")
    send(master, "T", 1)
    with RawSlave(master) as slave:
        in_sync(slave, master)
        slave.fall_silent()
        waits = []
        for pause in (0.0, 0.3, 0.6):
            time.sleep(pause)
            waits.append(Sending(master, "T", 1))
        worst = max(wait.seconds() for wait in waits)
    return Fact(worst > 1.4, f"answered after up to {worst:.2f} s with slaveTimeout=1000")


@room.exhibit("A6: RMQ#3484")
def slow_slave(side: Side) -> Fact:
    """A slave that hangs costs each send its full time-out, for as long as it hangs."""
    pair = side.pair(slaveTimeout=500, haHousekeepingInterval=2000)
    create(pair.master, "T")
    began = time.monotonic()
    timed_out = 0
    with paused(pair.slave):
        while time.monotonic() < began + 15:
            if codes(pair.master, "T", 1)[SLAVE_NOT_AVAILABLE]:
                break
            timed_out += 1
        seconds = time.monotonic() - began
    seen = f"{timed_out} sends with code 12, then 11 after {seconds:.1f} s; 2 s were allowed"
    return Fact(seconds >= 15, seen)


@room.exhibit("A7: RMQ#1390")
def transaction_with_a_dead_slave(side: Side) -> Fact:
    """While the slave is dead, consumers do not get messages of committed transactions."""
    pair = side.pair()
    create(pair.master, "T")
    pair.slave.kill()
    side.until(lambda: codes(pair.master, "warm", 1)[SLAVE_NOT_AVAILABLE], 10, "code 11")
    with WireProducer(pair.master, "tx") as producer:
        places = producer.leave_open("T", *(f"{number:032d}" for number in range(5)))
        for place in places:
            producer.commit(place)
        deadline = time.monotonic() + 5
        while len(readable(pair.master, "T")) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
    count = len(readable(pair.master, "T"))
    return Fact(count != 5, f"{count} of 5 committed are readable")


@room.exhibit("A9: RMQ#3461", kept="one slave's word is enough, as in 4.9")
def one_of_two_slaves_is_enough(side: Side) -> Fact:
    """With two slaves a SYNC_MASTER waits for one of them: two copies, not three."""
    master = side.broker(slaveTimeout=500)
    create(master, "T")
    send(master, "T", 1)
    with RawSlave(master) as good, RawSlave(master) as silent:
        in_sync(good, master)
        silent.report(end_of(master))
        silent.read(0.2)
        found = codes(master, "T", 10)
    return Fact(found[SEND_OK] > 0, f"{found[SEND_OK]} of 10 SEND_OK, one of two slaves is silent")


@room.exhibit("WAIT=false", kept="the producer asked for it: setWaitStoreMsgOK(false)")
def send_ok_without_waiting(side: Side) -> Fact:
    """A message with WAIT=false is answered SEND_OK at once, also if the slave does not have it."""
    master = side.broker(slaveTimeout=500)
    create(master, "T")
    found = codes(master, "T", 10, properties="WAIT\x01false")
    return Fact(found[SEND_OK] > 0, f"{found[SEND_OK]} of 10 SEND_OK without any slave")


@room.exhibit("found while specifying 4.9.7")
def larger_than_a_file_of_the_log(side: Side) -> Fact:
    """A message larger than a commit-log file is answered as stored, and is lost."""
    master = side.broker()
    create(master, "T")
    (answer,) = send(master, "T", 1, body=bytes(2 << 20))
    stored = answer.code in (SEND_OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT)
    found = len(readable(master, "T"))
    return Fact(stored and not found, f"code {answer.code}, {found} readable")
