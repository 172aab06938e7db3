"""What lives through a change of leaders in a mixed DLedger group, besides the messages."""

from __future__ import annotations

from rmq_ha.base.model.flags import TRANSACTION_COMMIT
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.interop.groups import OK, TOPIC, Group
from tests.interop.rig import Rig
from tests.interop.wire import Wire

CONSUMERS = "offsets-group"


def send(wire: Wire, body: bytes, properties: str = "") -> RemotingCommand:
    (answer,) = wire.exchange([send_request("producers", TOPIC, 0, body, properties, 1)])
    assert answer.code == 0, answer
    return answer


def half(wire: Wire, key: str) -> dict[str, str]:
    """A half message; what ends it."""
    answer = send(wire, key.encode(), f"TRAN_MSG\x01true\x02PGROUP\x01tp\x02UNIQ_KEY\x01{key}")
    assert answer.ext is not None
    return {
        "producerGroup": "tp",
        "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": str(int(answer.ext["msgId"][-16:], 16)),
        "commitOrRollback": str(TRANSACTION_COMMIT),
        "msgId": key,
        "transactionId": key,
    }


def bodies(address: str) -> list[bytes]:
    with Wire(address) as wire:
        return [bytes(record.body or b"") for record in wire.pull_all(TOPIC, 0)]


def test_ours_takes_over_from_java_all_that_is_not_a_message(rig: Rig) -> None:
    """
    Delayed and half messages, offsets, the name server's view; a Java consumer reads on.

    Spec: dledger.md, chapter 16.
    """
    group = Group(rig, (True, False, False))
    group.wait_leader()
    if group.wait_leader().name != "n0":
        rig.until(lambda: group.transfer("n0") == OK, 30, "a transfer to Java", *group.servers)
    java = group.wait_leader()
    assert java.name == "n0"
    with Wire(java.server.address) as wire:
        for number in range(20):
            send(wire, b"plain-%d" % number)
        wire.create_group(CONSUMERS)
        wire.commit(CONSUMERS, TOPIC, 0, 7)
    ours = [group.members[name].server for name in ("n1", "n2")]

    def is_copied() -> bool:
        for server in ours:
            with Wire(server.address) as wire:
                query = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": "0"}
                (answer,) = wire.exchange([RemotingCommand(14, query)])
                if answer.code != 0 or (answer.ext or {}).get("offset") != "7":
                    return False
        return True

    rig.until(is_copied, 45, "the consumer's offset copied by our followers", *ours)
    with Wire(java.server.address) as wire:
        for number in range(10):
            send(wire, b"late-%d" % number, "DELAY\x013")  # 10 s: due after the leader's death
        place = half(wire, "paid")
    group.kill("n0")
    leader = group.wait_leader("n0")
    with Wire(leader.server.address) as wire:
        (answer,) = wire.exchange([RemotingCommand(37, place)])
        assert answer.code == 0, answer
        send(wire, b"new")
    wanted = [b"late-%d" % number for number in range(10)]

    def is_delivered() -> bool:
        return sorted(body for body in bodies(leader.server.address) if body in wanted) == wanted

    rig.until(is_delivered, 30, "each delayed message once", leader.server)
    found = bodies(leader.server.address)
    assert found.count(b"paid") == 1
    listed = rig.mqadmin("clusterList", "-n", group.namesrv)
    rows = [line.split() for line in listed.splitlines() if "broker-d" in line]
    assert {row[2]: row[3] for row in rows}["0"] == leader.server.address
    arguments = ("--namesrv", group.namesrv, "--topic", TOPIC, "--group", CONSUMERS)
    lines = rig.peer("consume", *arguments, "--count", len(found) - 7)
    assert lines
    group.restart("n0")
    end = group.wait_same()
    group.assert_same_files(end)
