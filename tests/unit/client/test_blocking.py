"""The client without a reactor, over connections that answer as they are told."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.process import Process
from rmq_ha.base.remoting.signing import SIGNATURE, SIGNED_TIME, Credentials
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client import blocking
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.errors import (
    BrokerRefused,
    DuplicatesPossible,
    MQClientError,
    NoNameServer,
    SendFailed,
)
from rmq_ha.client.rules.messages import Message, MessageExt, PullResult, PullStatus
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig

MASTER = "m:1"
QUEUE = MessageQueue("T", "a", 0)
ROUTE = TopicRoute([QueueRoute("a", 2, 2, 6)], [BrokerRoute("C", "a", {0: MASTER})])
HERE = Address(b"\x7f\0\0\1", 1)
Answer = Callable[[RemotingCommand], RemotingCommand]


class Calls:
    """
    In the place of `BlockingCalls`.

    :ivar answers: by code; what is not there is success.
    :ivar down: addresses that refuse.
    :ivar asked: address, code and header of each request.
    """

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _: RemotingCommand(0, {}, ROUTE.encode())
        }
        self.down: set[str] = set()
        self.asked: list[tuple[str, int, dict[str, str]]] = []
        self.timeouts: list[float] = []
        self.closed = 0

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        self.oneway(address, command)
        self.timeouts.append(timeout_ms)
        answer = self.answers.get(command.code)
        return RemotingCommand(0, {}) if answer is None else answer(command)

    def oneway(self, address: str, command: RemotingCommand) -> None:
        self.asked.append((address, command.code, dict(command.ext or {})))
        if address in self.down:
            raise RemotingConnectError(f"{address}: refused")
        self.language = command.language

    def close(self) -> None:
        self.closed += 1

    def of(self, code: int) -> list[tuple[str, dict[str, str]]]:
        return [(address, ext) for address, asked, ext in self.asked if asked == code]


def made(servers: str = "ns:1", **settings: Any) -> tuple[BlockingClient, Calls]:
    config = ClientConfig(namesrv_addr=servers, process=Process(1, "127.0.0.1"), **settings)
    client, calls = BlockingClient(config), Calls()
    client._calls = calls  # type: ignore[assignment]
    return client, calls


def number(field: str, value: int) -> Answer:
    return lambda _: RemotingCommand(0, {field: str(value)})


def message(offset: int) -> MessageExt:
    return MessageExt("T", b"", {}, "b", 0, offset, "", "", 0, 0, HERE, 0, HERE, 0)


def record(offset: int) -> Record:
    return Record(*(101, 1, 0, 0, offset, 0, 0, 5, HERE, 6, HERE, 0, 0, b"x", "N%T", ""))


def test_a_send_goes_to_the_master_and_a_one_way_send_asks_nothing_back() -> None:
    client, calls = made()
    stored = {"msgId": "M", "queueId": "1", "queueOffset": "5"}
    calls.answers[RequestCode.SEND_MESSAGE_V2] = lambda _: RemotingCommand(0, stored)
    result = client.send(Message("T", b"x"), queue=msgspec.structs.replace(QUEUE, queue_id=1))
    assert (result.queue_offset, result.message_queue.queue_id) == (5, 1)
    client.send_oneway(Message("T", b"x"), queue=QUEUE)
    assert client.send(Message("T", b"x"), selector=lambda queues, _, arg: queues[arg], arg=1)
    sent = [(address, ext["e"]) for address, ext in calls.of(RequestCode.SEND_MESSAGE_V2)]
    assert sent == [(MASTER, "1"), (MASTER, "0"), (MASTER, "1")]
    assert calls.language == "PYTHON"


def test_offsets_are_asked_for_and_kept_at_the_broker_of_the_queue() -> None:
    client, calls = made()
    for code, field, ask in (
        (RequestCode.GET_MAX_OFFSET, "offset", client.max_offset),
        (RequestCode.GET_MIN_OFFSET, "offset", client.min_offset),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp", client.earliest_msg_store_time),
    ):
        calls.answers[code] = number(field, 10 + code)
        assert ask(QUEUE) == 10 + code
    calls.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = number("offset", 3)
    assert client.search_offset(QUEUE, 77) == 3
    (found,) = calls.of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert found == (MASTER, {"topic": "T", "queueId": "0", "timestamp": "77"})
    client.commit("g", QUEUE, 9)
    (kept,) = calls.of(RequestCode.UPDATE_CONSUMER_OFFSET)
    expected = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "9"}
    assert kept == (MASTER, expected)


def test_a_group_that_has_never_been_there_has_no_offset_and_one_at_the_beginning_has_0() -> None:
    client, calls = made()
    code = RequestCode.QUERY_CONSUMER_OFFSET
    calls.answers[code] = number("offset", 0)
    assert client.committed("g", QUEUE) == 0
    not_found = RemotingCommand(ResponseCode.QUERY_NOT_FOUND, {})
    calls.answers[code] = lambda _: not_found
    assert client.committed("g", QUEUE) is None


def test_names_are_asked_for_with_their_namespace_and_shown_without() -> None:
    client, calls = made(namespace="N")
    calls.answers[RequestCode.GET_MAX_OFFSET] = number("offset", 4)
    assert client.max_offset(QUEUE) == 4
    client.commit("g", QUEUE, 1)
    assert calls.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)[0][1]["topic"] == "N%T"
    ((_, ext),) = calls.of(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert (ext["topic"], ext["consumerGroup"]) == ("N%T", "N%g")
    shown = message(0)
    shown.topic = "N%T"
    assert client._without_namespace(shown).topic == "T"
    assert [queue.topic for queue in client.queues("T")] == ["T", "T"]
    assert client.publish_queues("T") == [MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)]


def test_a_range_is_read_to_its_end_whatever_a_pull_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulls come back with less than was wanted, with more, and with nothing that matches."""
    client, _ = made()
    pulls: list[tuple[int, int]] = []
    found = {0: ([0, 1, 3], 4), 4: ([], 90), 90: ([90, 209, 210, 211], 212)}

    def pull(queue: Any, start: int, count: int, selector: Any, *, group: str) -> PullResult:
        pulls.append((start, count))
        offsets, following = found[start]
        status = PullStatus.FOUND if offsets else PullStatus.NO_MATCHED_MSG
        return PullResult(status, following, 0, 300, [message(n) for n in offsets], 0)

    monkeypatch.setattr(client, "pull", pull)
    read = [item.queue_offset for item in client.messages(QUEUE, 0, 210)]
    assert read == [0, 1, 3, 90, 209]
    assert pulls == [(0, 100), (4, 100), (90, 100)]
    assert list(client.messages(QUEUE, 5, 5)) == []
    found[150] = ([150], 160)
    assert [item.queue_offset for item in client.messages(QUEUE, 150, 160)] == [150]
    assert pulls[-1] == (150, 10)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (PullResult(PullStatus.OFFSET_ILLEGAL, 50, 50, 90, [], 0), "begins at 50"),
        (PullResult(PullStatus.OFFSET_ILLEGAL, 8, 0, 8, [], 0), "ends at 8"),
        (PullResult(PullStatus.NO_NEW_MSG, 10, 0, 10, [], 0), "ends at 10"),
    ],
)
def test_a_range_that_is_not_all_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, result: PullResult, problem: str
) -> None:
    """A reader that goes on would believe that it has read everything."""
    client, _ = made()
    monkeypatch.setattr(client, "pull", lambda *_, **__: result)
    with pytest.raises(MQClientError, match=problem):
        list(client.messages(QUEUE, 10, 20))


def test_a_pull_says_in_whose_name_and_how_long_it_may_wait() -> None:
    client, calls = made(namespace="N")
    offsets = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5"}
    empty = RemotingCommand(ResponseCode.PULL_NOT_FOUND, offsets)
    calls.answers[RequestCode.PULL_MESSAGE] = lambda _: empty
    result = client.pull(QUEUE, 5, 7, "tag", hold_ms=20, group="g")
    assert (result.pull_status, result.next_begin_offset) == (PullStatus.NO_NEW_MSG, 5)
    ((address, ext),) = calls.of(RequestCode.PULL_MESSAGE)
    assert address == MASTER
    wanted = ("consumerGroup", "topic", "queueOffset", "maxMsgNums", "suspendTimeoutMillis")
    assert [ext[key] for key in wanted] == ["N%g", "N%T", "5", "7", "20"]
    assert ext["subscription"] == "tag"


def test_what_was_pulled_has_the_name_that_was_asked_for() -> None:
    client, calls = made(namespace="N")
    offsets = {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2"}
    body = b"".join(encode_record(record(offset)) for offset in range(2))
    calls.answers[RequestCode.PULL_MESSAGE] = lambda _: RemotingCommand(0, offsets, body)
    found = client.pull(QUEUE, 0).msg_found_list
    assert [(item.topic, item.queue_offset) for item in found] == [("T", 0), ("T", 1)]


def test_what_is_no_id_is_asked_of_nobody_and_a_key_of_all_brokers() -> None:
    client, calls = made()
    with pytest.raises(MQClientError, match="no offsetMsgId"):
        client.view_message("nonsense")
    assert calls.asked == []
    nothing = RemotingCommand(ResponseCode.QUERY_NOT_FOUND, {})
    calls.answers[RequestCode.QUERY_MESSAGE] = lambda _: nothing
    assert client.query_message("T", "k", 8, 1, 2) == []
    assert client.query_message_by_unique_key("T", "id") is None
    (by_key, by_id) = [ext for _, ext in calls.of(RequestCode.QUERY_MESSAGE)]
    assert (by_key["maxNum"], by_key["beginTimestamp"], by_key["endTimestamp"]) == ("8", "1", "2")
    assert "_UNIQUE_KEY_QUERY" not in by_key
    assert (by_id["key"], by_id["_UNIQUE_KEY_QUERY"]) == ("id", "true")


def test_every_name_server_is_tried_and_the_one_that_answered_stays() -> None:
    client, calls = made("n1:1;n2:1")
    for alive, down in (("n1:1", "n2:1"), ("n2:1", "n1:1")):
        calls.down = {down}
        client.call("", RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert calls.asked[-1][0] == alive
    client, calls = made("n1:1;n2:1;n3:1")
    calls.down = {"n1:1", "n3:1"}
    for _ in range(2):
        client.call("", RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
    asked = [address for address, *_ in calls.asked]
    assert asked[-2:] == ["n2:1", "n2:1"]
    assert len(asked) == len(set(asked)) + 1
    calls.down.add("n2:1")
    calls.asked.clear()
    with pytest.raises(NoNameServer, match="n1:1: refused") as raised:
        client.call("", RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert all(f"{server}: refused" in str(raised.value) for server in ("n2:1", "n3:1"))
    assert sorted(address for address, *_ in calls.asked) == ["n1:1", "n2:1", "n3:1"]


def test_a_broker_is_asked_within_the_client_s_own_time_or_the_call_s() -> None:
    client, calls = made(mq_client_api_timeout_ms=1234)
    command = RemotingCommand(RequestCode.GET_MAX_OFFSET)
    client.call(MASTER, command)
    assert calls.language == "PYTHON"
    client.call(MASTER, command, 55)
    client.call("", command)
    assert calls.timeouts == [1234, 55, 1234]
    calls.answers[RequestCode.GET_MAX_OFFSET] = lambda _: RemotingCommand(1, {}, remark="no")
    with pytest.raises(BrokerRefused):
        client.call(MASTER, command)


def test_a_route_is_kept_for_its_time_and_longer_while_no_name_server_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(blocking, "seconds", lambda: now[0])
    client, calls = made(poll_name_server_interval_ms=30_000)

    def asked() -> int:
        client.route("T")
        return len(calls.of(RequestCode.GET_ROUTEINFO_BY_TOPIC))

    assert [asked(), asked()] == [1, 1]
    now[0] += 29.9
    assert asked() == 1
    now[0] += 0.2
    assert asked() == 2
    calls.down = {"ns:1"}
    now[0] += 30.1
    assert asked() == 3
    assert asked() == 3
    assert client.route("T") == ROUTE
    with pytest.raises(NoNameServer):
        client.route("other")


def test_a_route_that_led_to_nobody_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is not over; but its master is gone, and the name server knows the next one."""
    now = [100.0]

    def sleep(pause: float) -> None:
        now[0] += pause

    monkeypatch.setattr(blocking, "seconds", lambda: now[0])
    monkeypatch.setattr(blocking, "sleep", sleep)
    client, calls = made(poll_name_server_interval_ms=30_000_000)
    moved = TopicRoute([QueueRoute("a", 2, 2, 6)], [BrokerRoute("C", "a", {0: "n:1"})])
    routes = [ROUTE, moved]
    calls.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _: RemotingCommand(
        0, {}, routes.pop(0).encode() if len(routes) > 1 else moved.encode()
    )
    calls.down = {MASTER}
    stored = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "5"}
    calls.answers[RequestCode.SEND_MESSAGE_V2] = lambda _: RemotingCommand(0, stored)
    with suppress(SendFailed, RemotingConnectError):
        client.send(Message("T", b"x"))
    assert client.send(Message("T", b"x")).queue_offset == 5
    assert client.route("T") == moved


def test_a_forked_process_has_names_and_routes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with one generator of ids would name different messages alike."""
    client, _ = made()
    mine = client._sender()
    assert client._sender() is mine
    monkeypatch.setattr(blocking, "process_id", lambda: -1)
    theirs = client._sender()
    assert theirs is not mine
    assert client._sender() is theirs


def test_what_arrives_by_pickle_has_the_same_settings() -> None:
    producer = ProducerConfig(producer_group="p")
    config = ClientConfig(namesrv_addr="ns:1")
    kind, arguments = BlockingClient(config, producer).__reduce__()[:2]
    again = kind(*arguments)
    assert (again.settings, again.producer) == (config, producer)
    assert BlockingClient("ns:1").settings.namesrv_addr == "ns:1"


def test_the_name_servers_may_stand_in_the_environment() -> None:
    process = Process(1, "127.0.0.1", environ={"NAMESRV_ADDR": "env:1"})
    client = BlockingClient(ClientConfig(process=process))
    calls = Calls()
    client._calls = calls  # type: ignore[assignment]
    client.call("", RemotingCommand(1))
    assert [address for address, *_ in calls.asked] == ["env:1"]


def test_credentials_sign_and_without_them_nothing_is_added() -> None:
    command = RemotingCommand(1, {"a": "b"})
    assert BlockingClient("ns:1")._calls._sign is None
    config = ClientConfig(namesrv_addr="ns:1", credentials=Credentials("user", "password"))
    sign = BlockingClient(config)._calls._sign
    assert sign is not None
    signed = sign(command, "a:1").ext or {}
    assert {SIGNATURE, SIGNED_TIME} <= signed.keys()
    sign = BlockingClient(replace(config, sign_time=False))._calls._sign
    assert sign is not None
    assert SIGNED_TIME not in (sign(command, "a:1").ext or {})


def test_a_forked_process_signs_in_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker would take its requests for the parent's, come again."""
    config = ClientConfig(namesrv_addr="ns:1", credentials=Credentials("user", "password"))
    client = BlockingClient(config)

    def session() -> str:
        ext = client._sign(RemotingCommand(1), "a:1").ext or {}
        return ext[SIGNED_TIME].split(".")[1]

    mine = session()
    assert session() == mine
    monkeypatch.setattr(blocking, "process_id", lambda: -1)
    assert session() != mine


def test_the_end_of_a_with_closes() -> None:
    client, calls = made()
    with client as entered:
        assert entered is client
        assert calls.closed == 0
    assert calls.closed == 1


class Twins(Calls):
    """Two brokers that compare ids, as long as `window` says so."""

    def __init__(self) -> None:
        super().__init__()
        masters = [BrokerRoute("C", "a", {0: "a:1"}), BrokerRoute("C", "b", {0: "b:1"})]
        queues = [QueueRoute("a", 1, 1, 6), QueueRoute("b", 1, 1, 6)]
        route = TopicRoute(queues, masters).encode()
        self.window = "600000"
        self.outcomes: list[Any] = []
        self.answers = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _: RemotingCommand(0, {}, route),
            RequestCode.HEART_BEAT: lambda _: self.beaten(),
            RequestCode.SEND_MESSAGE_V2: lambda _: self.sent(),
        }

    def beaten(self) -> RemotingCommand:
        ext = {"duplicateWindowMillis": self.window} if self.window else None
        return RemotingCommand(0, ext)

    def sent(self) -> RemotingCommand:
        outcome = self.outcomes.pop(0) if self.outcomes else {}
        if isinstance(outcome, Exception):
            raise outcome
        return RemotingCommand(0, {"msgId": "M", "queueId": "0", "queueOffset": "5"} | outcome)


def twins() -> tuple[BlockingClient, Twins]:
    producer = ProducerConfig(idempotent=True, retry_backoff_ms=1)
    config = ClientConfig(namesrv_addr="ns:1", process=Process(1, "127.0.0.1"))
    client, calls = BlockingClient(config, producer), Twins()
    client._calls = calls  # type: ignore[assignment]
    return client, calls


def test_an_idempotent_send_is_repeated_at_its_broker_and_nowhere_else() -> None:
    client, calls = twins()
    calls.outcomes = [RemotingTimeout("no answer")] * 3 + [{"duplicate": "true"}]
    result = client.send(Message("T", b"x"))
    assert result.duplicate
    sends = calls.of(RequestCode.SEND_MESSAGE_V2)
    assert len(sends) == 4
    assert len({address for address, _ in sends}) == len({ext["i"] for _, ext in sends}) == 1
    asked = [address for address, _ in calls.of(RequestCode.HEART_BEAT)]
    assert asked == [address for address, _ in sends], "before each repetition"
    client.send(Message("T", b"y"))
    client.send(Message("T", b"z"))
    assert len(calls.of(RequestCode.HEART_BEAT)) == 5, "the other broker, once"


def test_an_idempotent_send_asks_nothing_of_who_compares_no_ids() -> None:
    client, calls = twins()
    calls.window = ""
    with pytest.raises(DuplicatesPossible, match="was not sent"):
        client.send(Message("T", b"x"))
    assert calls.of(RequestCode.SEND_MESSAGE_V2) == []
    calls.window = "600000"
    calls.outcomes = [RemotingTimeout("no answer")]
    calls.answers[RequestCode.HEART_BEAT] = lambda _: _once(calls)
    with pytest.raises(SendFailed, match="may be stored, and is not repeated"):
        client.send(Message("T", b"y"))
    assert len(calls.of(RequestCode.SEND_MESSAGE_V2)) == 1


def _once(calls: Twins) -> RemotingCommand:
    """It stops comparing after the first question."""
    answer, calls.window = calls.beaten(), ""
    return answer


def test_an_idempotent_send_passes_a_broker_that_is_not_there() -> None:
    client, calls = twins()
    calls.down = {"a:1"}
    results = [client.send(Message("T", b"x")) for _ in range(3)]
    assert {result.message_queue.broker_name for result in results} == {"b"}
