"""With accounts in force, no message is taken for the repetition of another account's."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport

from rmq_ha.base.model.properties import SENT_BY, decode_properties
from rmq_ha.base.remoting.signing import sign
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.client.lookup.requests import send_request
from tests.unit.server.broker.guarded import ADMIN, WEAK, Guarded
from tests.unit.server.broker.test_duplicates import broker as without_accounts
from tests.unit.server.broker.test_duplicates import known, records

EVIL, VICTIM = WEAK, ADMIN
BATCH = {"a": "P", "b": "Open", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
         "j": "0", "m": "true"}  # fmt: skip


@pytest.fixture
def broker() -> Guarded:
    made = Guarded()
    made.configuration.store.mapped_file_size_commit_log = 1 << 20
    made.configuration.ours.duplicate_window_millis = 60_000
    return made.start()


def one(body: bytes, properties: str, delay: int = 0) -> RemotingCommand:
    text = properties + (f"\x02DELAY\x01{delay}" if delay else "")
    return send_request("P", "Open", 0, body, text, 1)


def batch(body: bytes, properties: str) -> RemotingCommand:
    members = [(0, body, properties), (0, body, properties.replace("A", "B"))]
    return RemotingCommand(320, {**BATCH, "i": ""}, encode_batch(members))


def bodies(of: Guarded) -> list[bytes]:
    return [
        record.body for record in records(of) if b"one" in record.body or b"EVIL" in record.body
    ]


SENDS: dict[str, Any] = {
    "alone": one,
    "delayed": lambda body, properties: one(body, properties, 3),
    "in a batch": batch,
}


@pytest.mark.parametrize("forged", [False, True])
@pytest.mark.parametrize("way", SENDS)
def test_who_guesses_the_next_id_has_no_message_dropped(
    broker: Guarded, way: str, forged: bool
) -> None:
    """The victim's message was answered SEND_OK with duplicate=true, and was nowhere."""
    send = SENDS[way]
    properties = "UNIQ_KEY\x01A"
    if forged:  # he writes himself whose message it is
        broker.by(VICTIM, send(b"zero one", "UNIQ_KEY\x01Z"))
        theirs = decode_properties(records(broker)[-1].properties_string)[SENT_BY]
        properties += f"\x02{SENT_BY}\x01{theirs}"
    count = 2 if way == "in a batch" else 1
    assert not known(broker.by(EVIL, send(b"EVIL", properties)))
    first = broker.by(VICTIM, send(b"victim one", "UNIQ_KEY\x01A"))
    assert (first.code, known(first)) == (0, False)
    assert bodies(broker)[-2 * count :] == [b"EVIL"] * count + [b"victim one"] * count
    again = broker.by(VICTIM, send(b"victim one", "UNIQ_KEY\x01A"))
    assert (again.code, known(again)) == (0, True)
    assert known(broker.by(EVIL, send(b"EVIL", properties)))
    assert len(bodies(broker)) == 2 * count + forged * count


def test_a_run_of_several_accounts_on_one_connection(broker: Guarded) -> None:
    """Each of its messages is its account's own."""
    sends = [
        sign(one(b"%d one" % number, "UNIQ_KEY\x01A"), account)
        for number, account in enumerate((EVIL, VICTIM, VICTIM, EVIL))
    ]
    protocol = broker.broker.main_server.build_protocol()
    protocol.makeConnection(StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.9", 77)))
    protocol.dataReceived(b"".join(map(encode_frame, sends)))
    broker.world.clock.run_for(5)
    assert bodies(broker) == [b"0 one", b"1 one"]


def test_a_record_names_its_account_by_a_digest_and_only_where_there_is_one(
    broker: Guarded,
) -> None:
    """Consumers see the property."""
    text = records(broker)[-1].properties_string
    assert SENT_BY in text
    assert "owner" not in text
    free = without_accounts()
    free.call(free.message(UNIQ_KEY="A"))
    assert SENT_BY not in records(free)[-1].properties_string
