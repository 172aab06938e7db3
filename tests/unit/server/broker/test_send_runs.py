"""Runs of sends: whatever is among them, all is stored and answered as one by one."""

from collections.abc import Iterator
from errno import ENOSPC
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport

from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.replication.classic.frames import encode_report
from rmq_ha.testing.cluster import HA_PORT
from tests.unit.server.broker.sim_broker import SimBroker

PLAIN = "UNIQ_KEY\x010A\x02WAIT\x01true"
NAMES = "abcdefghijklm"


def frames(binary: bool, *sends: dict[str, Any]) -> bytes:
    """Sends with what is unlike the ordinary one; opaques count from 0."""
    made = []
    for opaque, changes in enumerate(sends):
        fields = {
            "a": "PG", "b": "TopicA", "c": "TBW102", "d": "4", "e": "1", "f": "0",
            "g": "1700000000000", "h": "7", "i": PLAIN, "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        fields |= {name: value for name, value in changes.items() if name in NAMES}
        body = changes.get("body", b"body %d" % opaque)
        flag = FLAG_ONEWAY if changes.get("oneway") else 0
        request = RemotingCommand(310, fields, body, opaque=opaque, flag=flag, version=407)
        request.binary = binary
        made.append(encode_frame(request))
    return b"".join(made)


class Ends:
    """A broker and a connection to it."""

    def __init__(self, peer: Any = None, window_ms: int = 0, **settings: Any) -> None:
        self.broker = SimBroker()
        self.broker.configuration.ours.duplicate_window_millis = window_ms
        for name, value in settings.items():
            setattr(self.broker.configuration.store, name, value)
        self.broker.start()
        self.store = self.broker.broker.store
        self.broker.broker.topics.update(TopicConfig("TopicA", 4, 4))
        self.protocol = self.broker.broker.main_server.build_protocol()
        self.transport = StringTransport(peerAddress=peer or IPv4Address("TCP", "10.0.0.9", 77))
        self.protocol.makeConnection(self.transport)

    def answers(self, data: bytes) -> list[tuple[int, int, dict[str, str] | None]]:
        """To a chunk: opaque, code and fields, by opaque."""
        self.transport.clear()
        self.protocol.dataReceived(data)
        self.broker.world.clock.run_for(3.0)
        found = FrameReader().receive_data(self.transport.value())
        commands = [decode_frame(*frame) for frame in found]
        return sorted(
            (command.opaque, int(command.code), command.ext) for command in commands
        )  # fmt: skip

    def records(self) -> list[Any]:
        """Everything that is in the log, in order."""
        found, at = [], 0
        while at < self.store.log.max_offset:
            data = self.store.record_at(at)
            if data is None:  # the blank at the end of a file
                at += self.store.log.file_size - at % self.store.log.file_size
                continue
            record = decode_record(data)
            found.append(record._replace(store_timestamp=0))
            at += record.size
        return found

    def units(self) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
        return {key: queue.units(0, 100) for key, queue in self.store.queues.items()}


@pytest.fixture
def ends() -> Iterator[list[Ends]]:
    made: list[Ends] = []
    yield made
    for end in made:
        end.protocol.connectionLost()
        end.broker.stop()


UNLIKE: dict[str, dict[str, Any]] = {
    "like the others": {},
    "with keys and tags": {"i": f"TAGS\x01a\x02KEYS\x01k1 k2\x02{PLAIN}"},
    "does not wait": {"i": "UNIQ_KEY\x010A\x02WAIT\x01false"},
    "waits, first": {"i": "WAIT\x01true\x02UNIQ_KEY\x010A"},
    "waits, in the middle": {"i": "A\x01b\x02WAIT\x01true\x02UNIQ_KEY\x010A"},
    "waits twice": {"i": f"{PLAIN}\x02WAIT\x01true"},
    "seems to wait": {"i": "A\x01b\x02WAIT\x01trueish"},
    "waits in another way": {"i": "A\x01b\x02WAIT\x01TRUE"},
    "has a cluster": {"i": f"CLUSTER\x01other\x02{PLAIN}"},
    "no properties": {"i": ""},
    "only waits": {"i": "\x02WAIT\x01true"},
    "a separator too much": {"i": "A\x01b\x02"},
    "half a property": {"i": "A\x01b\x02lonely\x02\x01x\x02C\x01"},
    "the same name twice": {"i": "KEYS\x01a\x02KEYS\x01b\x02TAGS\x01c\x02TAGS\x01"},
    "a name within a name": {"i": "MYKEYS\x01a\x02UNDELAY\x012"},
    "delayed": {"i": f"DELAY\x012\x02{PLAIN}"},
    "delayed for no time": {"i": f"DELAY\x01x\x02{PLAIN}"},
    "half": {"i": f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02{PLAIN}"},
    "no half": {"i": f"TRAN_MSG\x01false\x02{PLAIN}"},
    "prepared by its flag": {"f": "4"},
    "rolled back by its flag": {"f": "12"},
    "flags of hosts": {"f": "48"},
    "a batch": {"m": "true", "body": encode_batch([(0, b"x", "A\x01b"), (0, b"y", "")])},
    "a topic that is made": {"b": "TopicB", "e": "0"},
    "a topic that cannot be": {"b": "a b"},
    "a queue that is not there": {"e": "9"},
    "any queue": {"e": "-3"},
    "no number": {"e": "many"},
    "a number too large": {"g": str(1 << 80)},
    "a long body": {"body": bytes(70_000)},
    "long properties": {"i": "A\x01" + "x" * 40_000},
    "long in bytes only": {"i": "A\x01" + "\u20ac" * 12_000},
    "no text": {"i": "A\x01\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace")},
    "back from a consumer": {"b": "%RETRY%group", "e": "0"},
    "one way": {"oneway": True},
    "empty": {"body": b""},
}


@pytest.mark.parametrize("unlike", UNLIKE)
def test_whatever_is_in_a_run_is_stored_and_answered_as_one_by_one(ends, unlike) -> None:
    """Binary headers go the general way, each message for itself."""
    sends = [{}, {}, UNLIKE[unlike], {}]
    ends += [Ends(max_message_size=65_536) for _ in range(2)]
    run, general = ends
    assert run.answers(frames(False, *sends)) == general.answers(frames(True, *sends))
    assert run.records() == general.records()
    assert len(run.records()) >= 3
    assert run.units() == general.units()


@pytest.mark.parametrize(
    "unlike",
    ["like the others", "with keys and tags", "a separator too much", "empty", "no properties",
     "one way"],
)  # fmt: skip
def test_what_clients_usually_send_is_appended_as_one(ends, unlike, monkeypatch) -> None:
    """By the general way it would be stored and answered just so, at several times the price."""
    run = Ends(max_message_size=65_536)
    ends.append(run)
    appended, put = [], run.store.put_drafts

    def seen(drafts: list[Any], *more: Any) -> None:
        appended.append(len(drafts))
        put(drafts, *more)

    monkeypatch.setattr(run.store, "put_drafts", seen)
    run.answers(frames(False, {}, UNLIKE[unlike], {}))
    assert appended == [3]
    assert len(run.records()) == 3


def test_what_has_many_keys_keeps_its_place_among_others(ends) -> None:
    many = {"i": "KEYS\x01" + " ".join([f"k{number}" for number in range(70)])}
    run = Ends()
    ends.append(run)
    assert [code for _, code, _ in run.answers(frames(False, {}, many, {}))] == [0, 0, 0]
    assert [record.body for record in run.records()] == [b"body 0", b"body 1", b"body 2"]


def test_a_peer_of_the_other_family(ends) -> None:
    sends = [{}, {}, {}]
    ends += [Ends(IPv6Address("TCP", "2001:db8::7", 77)) for _ in range(2)]
    run, general = ends
    assert run.answers(frames(False, *sends)) == general.answers(frames(True, *sends))
    assert run.records() == general.records()
    assert {record.born_host.port for record in run.records()} == {77}


def test_a_run_goes_on_in_the_next_file(ends) -> None:
    sends = [{"body": bytes([number]) * 9000} for number in range(9)]
    ends += [Ends(mapped_file_size_commit_log=32_768) for _ in range(2)]
    run, general = ends
    assert run.answers(frames(False, *sends)) == general.answers(frames(True, *sends))
    assert run.records() == general.records()
    assert run.store.log.min_offset == 0
    assert run.store.log.max_offset > 2 * 32_768
    assert run.units() == general.units()


def test_a_run_that_is_not_flushed_in_time_is_stored_all_the_same(ends) -> None:
    """Each is told where it is: whoever takes it for refused sends it a second time."""
    settings = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout": 500}
    ends += [Ends(**settings) for _ in range(2)]
    answers = []
    for end, binary in zip(ends, (False, True), strict=True):
        end.broker.host.worker.delay = (1.0, 1.0)
        answers.append(end.answers(frames(binary, {}, {}, {})))
    run, general = answers
    assert [code for _, code, _ in run] == [10] * 3
    assert [ext["queueOffset"] for _, _, ext in run] == ["0", "1", "2"]
    assert run == general


def test_a_disk_that_gets_full_in_a_run(ends) -> None:
    """What is in the log is answered so, what is not is refused, and later ones are numbered on."""
    run = Ends(mapped_file_size_commit_log=32_768)
    ends.append(run)
    disk = run.broker.host.seams.disk
    sends = [{"body": bytes([number]) * 9000} for number in range(6)]
    run.answers(frames(False, {}))
    writes = []

    usual = disk.fault

    def fault(operation: str, path: str) -> int | None:
        if operation == "pwrite" and "/commitlog/" in path:
            writes.append(path)
            return ENOSPC if len(writes) > 1 else None
        return None

    disk.fault = fault
    codes = [code for _, code, _ in run.answers(frames(False, *sends))]
    disk.fault = usual
    assert codes[0] == 0
    assert codes == [0] * codes.count(0) + [14] * (6 - codes.count(0))
    assert 1 < codes.count(0) < 6
    assert len(run.records()) == 1 + codes.count(0)
    assert run.store.max_offset_in_queue("TopicA", 1) == 1 + codes.count(0)


def test_each_send_is_counted_once_by_the_way_it_took(ends) -> None:
    """Whoever sends what the maker leaves out can see it, and why."""
    end = Ends(mapped_file_size_commit_log=32_768)
    ends.append(end)
    end.answers(frames(False, {}, {"i": "DELAY\x011"}, {"e": "99"}, {}))
    end.answers(frames(False, *[{"body": bytes(9000)}] * 4))
    end.answers(frames(True, {}))
    ways = end.broker.broker.stats.ways.counts()
    assert ways == {"run": 2, "limits": 4, "policy": 0, "queue": 1, "repeated": 0, "unusual": 2}


def test_a_slave_that_has_a_part_of_a_run_in_time() -> None:
    """
    Each message is answered by what the slave has of it. With the kernel no message of such a run
    was answered: its rows have no slices.
    """
    ends = Ends(broker_role=BrokerRole.SYNC_MASTER, slave_timeout=1000)
    clock = ends.broker.world.clock
    slave = ends.broker.world.add("slave")
    heard: list[bytes] = []

    class Slave(Protocol):
        def dataReceived(self, data: bytes) -> None:
            heard.append(data)

    made = slave.seams.network.client(ends.broker.host.ip, HA_PORT).connect(
        Factory.forProtocol(Slave)
    )
    slave_end = ends.broker.wait(made)
    begin = ends.store.log.max_offset
    slave_end.transport.write(encode_report(begin))
    clock.run_for(0.5)
    ends.protocol.dataReceived(frames(False, *[{} for _ in range(8)]))
    clock.run_for(0.5)
    fifth = ends.records()[4]
    slave_end.transport.write(encode_report(begin + 5 * fifth.size))
    clock.run_for(3.0)
    found = FrameReader().receive_data(ends.transport.value())
    codes = [int(decode_frame(*frame).code) for frame in found]
    assert codes == [0] * 5 + [12] * 3
    assert heard
    slave_end.transport.loseConnection()
    ends.protocol.connectionLost()
    ends.broker.stop()
