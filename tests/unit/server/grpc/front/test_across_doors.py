"""Messages that a client of remoting sends and one of gRPC receives, and the other way round.

Spec: grpc.md, sections 4.2, 6.5 and 14.5.
"""

import zlib
from hashlib import md5

import pytest

from rmq_ha.base.model.flags import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
)
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import MessageType, TransactionResolution
from tests.unit.server.grpc.front.door_kit import code_of
from tests.unit.server.grpc.front.test_consumers import PoppingDoor

LONG = b"a long body " * 1000
PREPARED = 4


@pytest.fixture
def door() -> PoppingDoor:
    made = PoppingDoor()
    made.start()
    for topic in ("Normal", "Delay", "Txn"):
        made.receive(topic)  # the group begins here
    made.run(6)
    return made


def remoting_send(
    door: PoppingDoor,
    topic: str,
    body: bytes,
    sys_flag: int = 0,
    *,
    batch: bool = False,
    **named: str,
) -> dict[str, str]:
    """Send by SEND_MESSAGE_V2 to queue 1; return the fields of the answer."""
    text = encode_properties(named)
    request = send_request("PG", topic, 1, body, text, door.host.now_ms())
    request.ext = {**(request.ext or {}), "f": str(sys_flag), "m": str(batch).lower()}
    answer = door.call(request)
    assert answer.code == 0, answer
    door.run(0.1)
    return answer.ext or {}


@pytest.mark.parametrize("kind", [0, COMPRESSION_ZLIB])
def test_grpc_receives_what_remoting_sent_compressed(door: PoppingDoor, kind: int) -> None:
    named = {"UNIQ_KEY": "7F0001", "TAGS": "t", "KEYS": "k1 k2", "colour": "red"}
    remoting_send(door, "Normal", zlib.compress(LONG), COMPRESSED | kind, **named)
    (got,) = door.got()
    system = got.system_properties
    assert (got.body, system.body_encoding) == (LONG, 1)
    assert system.body_digest.checksum == md5(LONG).hexdigest().upper()
    assert (system.message_id, system.tag, list(system.keys)) == ("7F0001", "t", ["k1", "k2"])
    assert dict(got.user_properties) == {"colour": "red"}
    assert (system.queue_id, system.message_type) == (1, MessageType.NORMAL)
    assert code_of(door.ack(system.receipt_handle)) == "OK"


def test_a_body_that_this_broker_cannot_unpack_goes_out_as_it_is(door: PoppingDoor) -> None:
    remoting_send(door, "Normal", b"packed by LZ4", COMPRESSED | COMPRESSION_LZ4)
    (got,) = door.got()
    assert (got.body, got.system_properties.body_encoding) == (b"packed by LZ4", 2)


def test_grpc_receives_each_message_of_a_batch(door: PoppingDoor) -> None:
    members = [(0, b"%d" % n, encode_properties({"UNIQ_KEY": f"id{n}"})) for n in range(3)]
    remoting_send(door, "Normal", encode_batch(members), batch=True)
    found = [(item.body, item.system_properties.message_id) for item in door.got()]
    assert found == [(b"0", "id0"), (b"1", "id1"), (b"2", "id2")]


@pytest.mark.parametrize(
    ("decision", "wanted"), [(TRANSACTION_COMMIT, [b"paid"]), (TRANSACTION_ROLLBACK, [])]
)
def test_grpc_receives_what_remoting_committed(
    door: PoppingDoor, decision: int, wanted: list[bytes]
) -> None:
    half = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "half"}
    ext = remoting_send(door, "Txn", b"paid", PREPARED, **half)
    place = {
        "producerGroup": "PG",
        "tranStateTableOffset": ext["queueOffset"],
        "commitLogOffset": str(int(ext["msgId"][-16:], 16)),
        "commitOrRollback": str(decision),
    }
    door.call(RemotingCommand(RequestCode.END_TRANSACTION, place))
    door.run(0.1)
    call = door.receive("Txn")
    assert [item.message.body for item in call.sent if item.HasField("message")] == wanted


@pytest.mark.parametrize("delay", ["TIMER_DELAY_SEC", "DELAY"])
def test_grpc_receives_what_remoting_delayed(door: PoppingDoor, delay: str) -> None:
    value = "5" if delay == "TIMER_DELAY_SEC" else "2"  # level 2 is 5 s
    remoting_send(door, "Delay", b"later", UNIQ_KEY="late", **{delay: value})
    call = door.receive("Delay", left=20, wait=15)
    door.run(4)
    assert call.sent == []
    door.run(3)
    (got,) = [item.message for item in call.sent if item.HasField("message")]
    assert (got.body, got.system_properties.message_id) == (b"later", "late")


def pulled(door: PoppingDoor, topic: str) -> list[Record]:
    """Pull all queues of a topic by PULL_MESSAGE."""
    door.run(0.1)
    answers = [door.call(pull_request("pullers", topic, queue_id, 0)) for queue_id in range(4)]
    return [record for answer in answers for record in decode_records(answer.body or b"")]


def test_remoting_receives_what_grpc_sent(door: PoppingDoor) -> None:
    message = door.message_for(body=LONG, tag="t", keys=["k1", "k2"], user={"colour": "red"})
    assert code_of(door.send_all(message)) == "OK"
    (record,) = pulled(door, "Normal")
    assert record.body == LONG
    assert record.sys_flag & COMPRESSED == 0
    found = {name: record.properties.get(name) for name in ("TAGS", "KEYS", "colour", "UNIQ_KEY")}
    unique_id = message.system_properties.message_id
    assert found == {"TAGS": "t", "KEYS": "k1 k2", "colour": "red", "UNIQ_KEY": unique_id}


@pytest.mark.parametrize("commits", [True, False])
def test_remoting_receives_what_grpc_committed(door: PoppingDoor, commits: bool) -> None:
    message = door.message_for("Txn", b"paid", message_type=MessageType.TRANSACTION)
    entry = door.send_all(message).entries[0]
    request = messages.EndTransactionRequest(
        transaction_id=entry.transaction_id,
        resolution=TransactionResolution.COMMIT if commits else TransactionResolution.ROLLBACK,
    )
    request.topic.name = "Txn"
    assert code_of(door.unary("EndTransaction", request)) == "OK"
    assert [record.body for record in pulled(door, "Txn")] == [b"paid"] * commits


def test_remoting_receives_what_grpc_delayed(door: PoppingDoor) -> None:
    message = door.message_for("Delay", b"later", delivery_timestamp=door.stamp(5), message_type=3)
    assert code_of(door.send_all(message)) == "OK"
    assert pulled(door, "Delay") == []
    door.run(6)
    assert [record.body for record in pulled(door, "Delay")] == [b"later"]
