"""A former master passes requests of its clients on to the new master, for a while."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import LockBatch, LockedQueues, MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.unit.server.broker.test_pair_handover import RunningPair, Story
from tests.unit.server.broker.test_succession import TOPIC

COUNT = 600
AROUND_THE_CONFIRMATION_S = 0.0088
REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


class OldClient:
    """A client that goes on asking the former master `a`, since nobody told it of another one."""

    def __init__(self, pair: RunningPair, name: str = "old") -> None:
        self.pair = pair
        self.host = pair.world.add(name)
        self.remoting = RemotingClient(self.host.seams, NettyClientConfig())
        self.clock = self.host.seams.clock
        self.answers: list[tuple[int, int]] = []
        self.errors: list[int] = []
        self._count = 0

    def ask(self, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        request = RemotingCommand(code, ext, body)
        later = self.remoting.invoke(self.pair.address("a"), request, 5000)
        answer = self.pair.wait(later)
        assert isinstance(answer, RemotingCommand)
        return answer

    def stream(self, seconds: float, pause_s: float = 0.001) -> None:
        """Send numbered messages, without waiting for answers."""
        for turn in range(int(seconds / pause_s)):
            self.clock.callLater(turn * pause_s, self.send)

    def send(self) -> None:
        number, self._count = self._count, self._count + 1
        body = str(number).encode()
        request = send_request("p", TOPIC, 0, body, "", self.pair.now_ms())
        self.remoting.invoke(self.pair.address("a"), request, 5000).addCallbacks(
            lambda answer: self.answers.append((number, answer.code)),
            lambda _: self.errors.append(number),
        )


def stored(pair: RunningPair, name: str) -> list[Any]:
    """The records of queue 0 at a broker."""
    records: list[Any] = []
    while True:
        request = pull_request("c", TOPIC, 0, len(records), hold_ms=0)
        answer = pair.ask(name, request)
        if answer.code != 0:
            return records
        records += decode_records(answer.body or b"")


def test_no_send_fails_and_all_stay_in_order_while_roles_go_to_and_fro() -> None:
    """One connection to `a` has many sends under way all the time."""
    pair = RunningPair(forward_s=60)
    client = OldClient(pair)
    client.stream(COUNT / 500, 1 / 500)
    for old, new in [("a", "b"), ("b", "a"), ("a", "b")]:
        pair.run(0.2)
        answer = pair.hand_over(old, new)
        assert answer.code == 0, answer.remark
    pair.run(3)
    assert not client.errors
    assert {code for _, code in client.answers} == {0}
    assert len(client.answers) == COUNT
    records = stored(pair, "b")
    assert [int(record.body) for record in records] == list(range(COUNT))
    hosts = {record.born_host.ip for record in records}
    assert len(hosts) == 1, "the client's own address, also of forwarded messages"
    assert pair.brokers["a"].forwarding.forwarded > COUNT / 5


def test_without_the_key_the_former_master_refuses_as_before() -> None:
    """And it does so again when the time is over."""
    for forward_s in (0, 2):
        pair = RunningPair(forward_s=forward_s)
        client = OldClient(pair)
        client.stream(0.4)
        pair.run(0.2)
        assert pair.hand_over("a", "b").code == 0
        pair.run(2.1)
        codes = {code for _, code in client.answers}
        assert codes == ({0} if forward_s else {0, REFUSED})
        assert pair.send("a").code == REFUSED
        assert len(pair.brokers["a"].forwarding) == 0
        dispatcher = pair.brokers["a"].dispatcher
        assert getattr(dispatcher.handle_run, "__name__", "") == "send_run", "the fast way is back"


def heartbeat(client_id: str = "c1") -> bytes:
    return fastjson.encode(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": "TPG"}],
            "consumerDataSet": [
                {
                    "groupName": "g",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "tagsSet": []}],
                }
            ],
        }
    )


def test_the_new_master_knows_the_clients_and_their_offsets_and_locks() -> None:
    """A client that comes itself is counted once."""
    pair = RunningPair(forward_s=60)
    client = OldClient(pair)
    assert client.ask(RequestCode.HEART_BEAT, {}, heartbeat()).code == 0
    assert pair.hand_over("a", "b").code == 0
    new = pair.brokers["b"]
    pair.run(0.1)
    for broker in pair.brokers.values():
        assert broker.consumers.client_ids("g") == ["c1"]
        assert [info.client_id for info in broker.producers.clients("TPG")] == ["c1"]
    place = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
    assert pair.send("a").code == 0
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "1"})
    assert new.consumer_offsets.query("g", TOPIC, 0) == 1
    queue = MessageQueue(TOPIC, "pair", 0)
    lock = LockBatch("g", "c1", [queue]).encode()
    answer = client.ask(RequestCode.LOCK_BATCH_MQ, {}, lock)
    assert LockedQueues.decode(answer.body or b"").queues == [queue]

    request = RemotingCommand(RequestCode.HEART_BEAT, {}, heartbeat())
    pair.wait(client.remoting.invoke(pair.address("b"), request, 5000))
    client.ask(RequestCode.HEART_BEAT, {}, heartbeat())
    pair.run(0.1)
    assert new.consumers.client_ids("g") == ["c1"]
    (member,) = new.producers.clients("TPG")
    assert not member.channel.is_relayed
    client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "g"})
    pair.run(0.1)
    assert pair.brokers["a"].consumers.client_ids("g") == []


def test_the_new_master_asks_a_producer_by_way_of_the_former_one() -> None:
    """A half message that was sent before the hand-over is settled after it."""
    pair = RunningPair(forward_s=60)
    for broker in pair.brokers.values():
        broker.configuration.broker.transaction_check_interval = 2000
        broker.configuration.broker.transaction_time_out = 1000
    client = OldClient(pair)
    asked: list[RemotingCommand] = []

    def check(channel: Channel, request: RemotingCommand) -> None:
        asked.append(request)
        ext = request.ext or {}
        end = {
            "producerGroup": "TPG",
            "tranStateTableOffset": ext["tranStateTableOffset"],
            "commitLogOffset": ext["commitLogOffset"],
            "commitOrRollback": "8",
            "fromTransactionCheck": "true",
            "msgId": "K",
        }
        channel.send(RemotingCommand(RequestCode.END_TRANSACTION, end, flag=FLAG_ONEWAY))

    client.remoting.routes[RequestCode.CHECK_TRANSACTION_STATE] = check
    properties = "TRAN_MSG\x01true\x02PGROUP\x01TPG\x02UNIQ_KEY\x01K"
    half = send_request("TPG", TOPIC, 0, b"half", properties, pair.now_ms())
    assert pair.wait(client.remoting.invoke(pair.address("a"), half, 5000)).code == 0
    assert pair.hand_over("a", "b").code == 0
    client.ask(RequestCode.HEART_BEAT, {}, heartbeat())
    pair.run(70)
    assert len(asked) == 1
    assert [record.body for record in stored(pair, "b")] == [b"half"]


def test_a_forwarded_request_never_goes_on_to_a_third_broker() -> None:
    """A broker that does not lead takes no client of another one, and a relayed one is refused."""
    pair = RunningPair(forward_s=60)
    stranger = RemotingClient(pair.world.add("stranger").seams, NettyClientConfig())

    def ask(name: str, request: RemotingCommand) -> RemotingCommand:
        answer = pair.wait(stranger.invoke(pair.address(name), request, 5000))
        assert isinstance(answer, RemotingCommand)
        return answer

    told = RemotingCommand(RequestCode.RELAY_CLIENT, {"client": "10.9.9.9:77"})
    assert ask("b", told).code == REFUSED
    assert ask("a", told).code == 0
    nonsense = RemotingCommand(RequestCode.RELAY_CLIENT, {"client": "nobody"})
    assert ask("a", nonsense).code == ResponseCode.INVALID_PARAMETER
    send = send_request("p", TOPIC, 0, b"1", "", pair.now_ms())
    assert ask("a", send).code == 0
    (record,) = stored(pair, "a")
    assert str(record.born_host) == "10.9.9.9:77"
    assert pair.hand_over("a", "b").code == 0
    assert ask("a", send).code == REFUSED
    assert pair.send("a").code == 0, "a client of its own goes on"


def test_a_new_master_that_does_not_take_it_is_not_waited_for() -> None:
    """Such as a broker of Java, or one with accounts that does not know this broker's."""
    pair = RunningPair(forward_s=60)
    del pair.brokers["b"].dispatcher.routes[RequestCode.RELAY_CLIENT]
    assert pair.hand_over("a", "b").code == 0
    began_s = pair.clock.seconds()
    assert pair.send("a").code == REFUSED
    assert pair.clock.seconds() - began_s < 0.1


def test_a_new_master_that_dies_costs_what_a_lost_connection_costs() -> None:
    """No send is acknowledged that it did not store; then sends are refused, and clients retry."""
    pair = RunningPair(role=BrokerRole.ASYNC_MASTER, forward_s=60)
    client = OldClient(pair)
    assert pair.hand_over("a", "b").code == 0
    client.stream(1)
    pair.run(0.5)
    pair.crash("b")
    pair.run(0.01)
    lost = len(client.errors)
    assert lost, "those under way"
    pair.run(7)
    with pytest.raises(RemotingError):
        pair.send("b")
    assert {code for _, code in client.answers[-20:]} == {REFUSED}
    acknowledged = [number for number, code in client.answers if code == 0]
    kept = {int(record.body) for record in stored(pair, "a")}
    assert len(set(acknowledged) - kept) <= 20, "an asynchronous slave may lack the last ones"


@pytest.mark.parametrize("fault", ["cut", "a", "b"])
def test_a_fault_at_any_moment_costs_no_acknowledged_message(fault: str) -> None:
    """As without forwarding; requests that wait for the outcome are answered only once."""
    story = Story(fault, AROUND_THE_CONFIRMATION_S, forward_s=60)
    pair = story.pair
    taken = [name for name in "ab" if pair.send(name).code == 0]
    assert taken
    assert story.acknowledged
    assert pair.count(taken[0]) >= story.acknowledged


def test_a_consumer_that_read_on_at_the_former_master_is_not_sent_back() -> None:
    """The new master took it for one that had read other messages at the same offsets."""
    pair = RunningPair(forward_s=60)
    assert pair.send("a").code == 0
    place = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
    commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "1"})
    assert pair.ask("a", commit).code == 0
    assert pair.hand_over("a", "b").code == 0
    for _ in range(3):
        assert pair.send("a").code == 0
    pair.run(0.1)
    read = pair.ask("a", pull_request("g", TOPIC, 0, 1, hold_ms=0))
    assert read.code == 0
    assert (read.ext or {})["nextBeginOffset"] == "4"
    there = pair.ask("b", pull_request("g", TOPIC, 0, 4, hold_ms=0))
    assert there.code == ResponseCode.PULL_NOT_FOUND, there.ext
    assert (there.ext or {})["nextBeginOffset"] == "4"


def test_a_former_master_that_stops_first_passes_on_the_answers_that_are_under_way() -> None:
    """Else the client repeats sends that the new master has stored."""
    pair = RunningPair(forward_s=60)
    client = OldClient(pair)
    client.stream(1.5)
    pair.run(0.2)
    assert pair.hand_over("a", "b").code == 0
    pair.run(0.3)
    pair.wait(pair.brokers["a"].stop())
    pair.run(3)
    answered = {number for number, code in client.answers if code == 0}
    numbers = [int(record.body) for record in stored(pair, "b")]
    assert client.errors, "it sends on after the stop"
    assert set(numbers) == answered
    assert len(numbers) == len(set(numbers))
