"""`secret` and `door` of `rmq_ha.server.replication`: who knows the shared secret."""

from random import Random
from typing import Any

import pytest
from twisted.internet.protocol import Protocol
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import ReplicationError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.server.replication.classic.frames import FramePieceReader, encode_frame, encode_report
from rmq_ha.server.replication.door import SecretDoor
from rmq_ha.server.replication.secret import MasterProof, SlaveProof, make_nonce
from rmq_ha.testing.host import World
from tests.unit.server.replication.ha_fakes import Station, Wire
from tests.unit.server.replication.memory_log import MemoryLog

SECRET = "correct horse battery"
DATA = bytes(444)


def nonces(seed: int = 1) -> tuple[bytes, bytes]:
    random = Random(seed)
    return make_nonce(random), make_nonce(random)


def halves(masters: bytes, slaves: bytes) -> tuple[MasterProof, SlaveProof]:
    first, second = nonces()
    return MasterProof([masters], first), SlaveProof(slaves, second)


@pytest.mark.parametrize("size", [1, 7, 44, 1000])
def test_both_prove_it_however_the_bytes_come(size: int) -> None:
    master, slave = halves(b"s" * 16, b"s" * 16)
    to_slave, to_master = master.hello, b""
    for _ in range(2):
        for at in range(0, len(to_slave), size):
            to_master += slave.receive_data(to_slave[at : at + size])
        to_slave = b""
        for at in range(0, len(to_master), size):
            to_slave += master.receive_data(to_master[at : at + size])
        to_master = b""
    assert slave.is_done


def test_nobody_is_believed_with_another_secret() -> None:
    master, slave = halves(b"s" * 16, b"t" * 16)
    proof = slave.receive_data(master.hello)
    with pytest.raises(ReplicationError, match="its haSecret differs from this broker's"):
        master.receive_data(proof)
    liar, _ = halves(b"x" * 16, b"x" * 16)
    honest = SlaveProof(b"s" * 16, nonces()[1])
    honest.receive_data(liar.hello)
    with pytest.raises(ReplicationError, match="the master's haSecret differs"):
        honest.receive_data(MasterProof([b"x" * 16], bytes(32)).hello)


def test_what_was_heard_once_opens_nothing_later() -> None:
    """Nor does a proof that is sent back to whom it comes from."""
    master, slave = halves(b"s" * 16, b"s" * 16)
    proof = slave.receive_data(master.hello)
    answer = master.receive_data(proof)
    again = MasterProof([b"s" * 16], nonces(2)[0])
    with pytest.raises(ReplicationError):
        again.receive_data(proof)
    with pytest.raises(ReplicationError):
        SlaveProof(b"s" * 16, nonces(3)[0]).receive_data(answer)
    with pytest.raises(ReplicationError):
        halves(b"s" * 16, b"s" * 16)[0].receive_data(answer)


@pytest.mark.parametrize("data", [encode_report(0), b"GET / HTTP", b"\x16\x03\x01"])
def test_who_says_something_else_is_refused_at_its_first_byte(data: bytes) -> None:
    with pytest.raises(ReplicationError, match="does not answer the challenge"):
        halves(b"s" * 16, b"s" * 16)[0].receive_data(data)


def test_a_slave_that_knows_of_no_secret_is_told_by_the_frame() -> None:
    """Java's, too: an offset that no log has."""
    with pytest.raises(ReplicationError, match="announces 32 bytes at -"):
        list(FramePieceReader().receive_data(halves(b"s" * 16, b"")[0].hello))


def station(role: BrokerRole, secret: str, *, required: bool, **store: Any) -> Station:
    """A slave's log is empty; a master has DATA."""
    log = MemoryLog(4096) if role is BrokerRole.SLAVE else MemoryLog(4096, 0, DATA)
    made = Station(role, log, **store, ours={"ha_secret": secret, "ha_secret_required": required})
    return made.start()


def master_of(secret: str = SECRET, *, required: bool = True) -> Station:
    return station(BrokerRole.SYNC_MASTER, secret, required=required)


def slave_of(secret: str = SECRET, *, required: bool = False) -> Station:
    address = "10.0.0.1:10912"
    return station(BrokerRole.SLAVE, secret, required=required, ha_master_address=address)


def state(slave: Station) -> str:
    return str(slave.service.statistics().master.state)


def join(master: Station, slave: Station, rounds: int = 6) -> tuple[Wire, Wire]:
    """Connect them, and carry what they say."""
    down, up = slave.network.attempts[-1].accept(), master.slave()
    carry(down, up, rounds)
    return down, up


def carry(down: Wire, up: Wire, rounds: int = 6) -> None:
    for _ in range(rounds):
        for one, other in ((up, down), (down, up)):
            data = one.take()
            if data and other.connected:
                other.send(data)


def test_a_slave_that_knows_it_replicates() -> None:
    master, slave = master_of(), slave_of(required=True)
    join(master, slave)
    assert bytes(slave.log.data) == DATA
    assert state(slave) == "following"
    (found,) = master.service.statistics().slaves
    assert found.acked == 444


def test_who_was_let_in_leaves_in_an_orderly_way_at_the_stop() -> None:
    """What was written to it, the tail of the log, still goes out."""
    master, slave = master_of(), slave_of(required=True)
    _, up = join(master, slave)
    master.service.stop()
    assert (up.disconnecting, up.aborted) == (True, False)


def test_a_master_that_has_begun_has_five_seconds_to_prove_itself() -> None:
    """Not what is left of the one in which it has to ask: a long turn of it costs no connection."""
    master, slave = master_of(), slave_of(required=True)
    down, up = slave.network.attempts[-1].accept(), master.slave()
    slave.clock.advance(0.9)
    down.send(up.take())
    slave.clock.advance(4.9)
    carry(down, up)
    assert state(slave) == "following"
    assert bytes(slave.log.data) == DATA


def test_who_breaks_off_its_challenge_is_not_followed() -> None:
    """Though no secret is required: it asked for one, so its half-said word is no log."""
    slave = slave_of(required=False)
    master = slave.network.attempts[-1].accept()
    master.send(master_of().slave().take()[:20])
    slave.clock.advance(4.9)
    assert not master.aborted
    slave.clock.advance(0.2)
    assert master.aborted
    assert master.take() == b""


def test_a_slave_that_does_not_gets_nothing_and_comes_again() -> None:
    master, slave = master_of(), slave_of("another secret!!")
    with capturedLogs() as events:
        down, up = join(master, slave)
    assert up.aborted
    assert any("its haSecret differs from this broker's" in formatEvent(event) for event in events)
    assert master.service.statistics().slaves == []
    assert master.service.statistics().refused == 1
    assert bytes(slave.log.data) == b""
    down.lose()
    slave.clock.advance(6)
    assert len(slave.network.attempts) == 2


def test_a_stranger_gets_no_byte_of_the_log() -> None:
    master = master_of()
    for first in (encode_report(0), encode_report(1) * 12, b""):
        stranger = master.slave()
        hello = stranger.take()
        stranger.send(first)
        master.clock.advance(5.1)
        assert (len(hello), stranger.take(), stranger.aborted) == (44, b"", True)
        stranger.send(first)  # on its way already, and counted no more
    assert master.service.statistics().refused == 3
    assert not master.clock.getDelayedCalls()


def test_a_java_master_notices_nothing() -> None:
    """It waits for a report; ours comes a second later than without a secret."""
    slave = slave_of()
    java = slave.network.attempts[-1].accept()
    slave.clock.advance(0.9)
    assert java.take() == b""
    slave.clock.advance(0.2)
    assert java.take() == encode_report(0)
    java.send(encode_frame(0, b"x" * 10))
    assert bytes(slave.log.data) == b"x" * 10


def test_a_java_slave_notices_nothing_unless_it_is_required() -> None:
    master = master_of(required=False)
    java = master.slave(0)
    assert java.take() == encode_frame(0, DATA)


def test_a_master_that_does_not_ask_is_left_where_it_has_to() -> None:
    slave = slave_of(required=True)
    java = slave.network.attempts[-1].accept()
    with capturedLogs() as events:
        slave.clock.advance(1.1)
    assert java.aborted
    assert any("does not ask for haSecret" in formatEvent(event) for event in events)
    liar = None
    slave.clock.advance(6)
    liar = slave.network.attempts[-1].accept()
    liar.send(MasterProof([b"x" * 16], bytes(32)).hello)
    liar.take()
    liar.send(MasterProof([b"x" * 16], bytes(32)).hello)
    assert liar.aborted
    assert bytes(slave.log.data) == b""


def test_a_stop_waits_for_nobody_who_has_not_answered() -> None:
    master = master_of()
    asked = [master.slave(port=port) for port in (5000, 5001)]
    stopped: list[Any] = []
    master.service.stop().addCallback(stopped.append)
    assert all(one.aborted for one in asked)
    assert stopped == [None]
    slave = slave_of()
    slave.network.attempts[-1].accept()
    slave.service.stop().addCallback(stopped.append)
    assert len(stopped) == 2
    assert not slave.clock.getDelayedCalls()


OLD, NEW = b"the old secret of it", b"the new secret of it"
STEPS = ((OLD,), (OLD, NEW), (NEW, OLD), (NEW,))


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("masters_first", [True, False])
def test_a_secret_is_changed_on_one_end_after_the_other(step: int, masters_first: bool) -> None:
    """Both lines everywhere, then the new one first, then alone: in between all connect."""
    before, after = STEPS[step], STEPS[step + 1]
    for one, other in ((before, before), (after, before), (after, after)):
        master, slave = master_of(), slave_of(required=True)
        master.service.listener.secrets.all = one if masters_first else other
        slave.service.listener.secrets.all = other if masters_first else one
        down, _ = join(master, slave)
        assert not down.aborted
        assert state(slave) == "following"
        assert bytes(slave.log.data) == DATA


def test_who_has_the_old_secret_only_stays_out_at_the_end() -> None:
    master, slave = master_of(), slave_of(required=True)
    master.service.listener.secrets.all, slave.service.listener.secrets.all = (NEW,), (OLD,)
    _, up = join(master, slave)
    assert up.aborted
    assert bytes(slave.log.data) == b""


def test_who_asks_for_more_than_a_proof_is_left() -> None:
    """It may be a master that sends its log at once."""
    master, slave = halves(b"s" * 16, b"s" * 16)
    with pytest.raises(ReplicationError, match="more than its challenge"):
        slave.receive_data(master.hello + b"x")


def test_a_door_is_forgotten_with_its_connection() -> None:
    """Whoever connects and goes, again and again, leaves nothing behind."""
    pending: dict[Any, None] = {}
    master, _ = halves(b"s" * 16, b"s" * 16)
    clock = World(1).add("master").seams.clock
    door = SecretDoor(clock, Protocol, master, lambda host, why: None, pending)
    door.makeConnection(StringTransport())
    assert list(pending) == [door]
    door.connectionLost()
    assert pending == {}
    assert not clock.getDelayedCalls()


def test_who_says_more_than_its_proof_is_refused() -> None:
    """What follows would be taken for replication before anything is proven to it."""
    master, slave = halves(b"s" * 16, b"s" * 16)
    proof = slave.receive_data(master.hello)
    with pytest.raises(ReplicationError, match="more than its proof"):
        master.receive_data(proof + b"x")
