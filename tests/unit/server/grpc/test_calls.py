"""Calls over one connection, with h2 as the client."""

import gzip

import pytest
from twisted.python.failure import Failure

from rmq_ha.server.grpc.face import CallEnd
from rmq_ha.server.grpc.limits import FULL_BYTES, CallLimits
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.status import GrpcRefusal, GrpcStatus
from tests.kits.grpc_client import Answer, GrpcClient, framed
from tests.unit.server.grpc.pairs import Pair, answer_to, request_of


def ids_of(answer):
    (payload,) = answer.messages
    return [entry.message_id for entry in messages.SendMessageResponse.FromString(payload).entries]


def test_a_request_is_answered():
    pair = Pair()
    stream = pair.sends("A", "B")
    answer = pair.client.answers[stream]
    assert ids_of(answer) == ["A", "B"]
    assert answer.headers[":status"] == "200"
    assert answer.headers["content-type"] == "application/grpc"
    assert answer.headers["grpc-accept-encoding"] == "gzip"
    assert (answer.status, answer.has_ended, answer.reset) == (0, True, None)
    assert pair.front.ends == [CallEnd.ANSWERED]
    assert pair.server.is_idle
    assert pair.counters.ended == {0: 1}


@pytest.mark.parametrize("table", [0, 100, 4096, 65536])
def test_a_client_may_allow_any_table_of_headers(table):
    """The answer's headers need none, and say so."""
    pair = Pair(GrpcClient(table=table))
    for name in ("A", "B"):
        assert ids_of(pair.client.answers[pair.sends(name)]) == [name]


def test_metadata_come_as_they_were_sent():
    pair = Pair()
    metadata = [
        ("x-mq-client-id", "c@1"),
        ("x-mq-date-time", "20261128T165029Z"),
        ("k", "1"),
        ("k", "2"),
    ]
    pair.client.call("SendMessage", request_of("A"), metadata)
    pair.pump()
    (call,) = pair.front.calls
    assert call.metadata["x-mq-client-id"] == "c@1"
    assert call.metadata["x-mq-date-time"] == "20261128T165029Z"
    assert call.metadata["k"] == "1,2"
    assert not [name for name in call.metadata if name.startswith(":")]
    assert call.method == "SendMessage"
    assert call.deadline is None


@pytest.mark.parametrize("is_later", [False, True])
def test_an_answer_that_is_no_message_ends_its_call_alone(is_later, caught):
    pair = Pair()
    pair.front.waits = is_later
    if not is_later:
        method = pair.server._methods["SendMessage"]
        pair.server._methods["SendMessage"] = method._replace(serve=lambda *_: None)
    stream = pair.sends("A")
    if is_later:
        pair.front.answers[0].callback(None)
        pair.pump()
    assert pair.client.answers[stream].status == 2
    assert len(caught) == 1


def test_an_answer_may_come_later():
    pair = Pair()
    pair.front.waits = True
    stream = pair.sends("A")
    assert not pair.client.answers[stream].has_ended
    woken = []
    pair.server.on_output = lambda: woken.append(True)
    pair.front.answers[0].callback(answer_to(pair.front.sent[0]))
    assert woken
    pair.pump()
    assert ids_of(pair.client.answers[stream]) == ["A"]


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        (GrpcRefusal(GrpcStatus.UNAUTHENTICATED, "who? 100% né"), 16, "who? 100%25 n%C3%A9"),
        (ValueError("secret"), 2, "the server could not answer; its log has the reason"),
    ],
)
@pytest.mark.parametrize("is_later", [False, True])
def test_a_front_that_fails(fault, status, text, is_later, caught):
    pair = Pair()
    pair.front.waits = is_later
    pair.front.fault = None if is_later else fault
    stream = pair.sends("A")
    if is_later:
        pair.front.answers[0].errback(Failure(fault))
        pair.pump()
    answer = pair.client.answers[stream]
    assert (answer.status, answer.text) == (status, text)
    assert answer.headers[":status"] == "200"
    assert len(caught) == (status == 2)


@pytest.mark.parametrize(
    ("service", "method"),
    [(None, "PullMessage"), ("apache.rocketmq.v3.Other", "SendMessage"), (None, "")],
)
def test_an_unknown_method(service, method):
    pair = Pair()
    client = pair.client
    stream = client.begin(method, **({"service": service} if service else {}))
    client.send(stream, framed(b""), ends=True)
    pair.pump()
    assert client.answers[stream].status == 12
    assert ids_of(client.answers[pair.sends("A")]) == ["A"]


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [(":method", "GET", "405"), ("content-type", "application/json", "415")],
)
def test_other_requests_of_http(header, value, status):
    pair = Pair()
    client = pair.client
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/",
        ":authority": "a",
        "content-type": "application/grpc",
        header: value,
    }
    stream = client.h2.get_next_available_stream_id()
    client.answers[stream] = answer = Answer()
    client.h2.send_headers(stream, list(headers.items()), end_stream=True)
    pair.pump()
    assert answer.headers[":status"] == status
    assert answer.has_ended


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("10S", 10),
        ("10100m", 10.1),
        ("9998613u", 9.998613),
        ("8760H", 31536000),
        ("2M", 120),
        ("5000000n", 0.005),
    ],
)
def test_a_deadline_ends_a_call(timeout, seconds):
    pair = Pair()
    pair.front.waits = True
    stream = pair.client.call("SendMessage", request_of("A"), [("grpc-timeout", timeout)])
    pair.pump()
    (call,) = pair.front.calls
    assert call.deadline == pytest.approx(1000 + seconds)
    assert pair.server.next_deadline == call.deadline
    pair.server.advance(call.deadline - 0.001)
    assert call.is_open
    pair.server.advance(call.deadline)
    assert not call.is_open
    assert pair.server.next_deadline is None
    pair.pump()
    assert pair.client.answers[stream].status == 4
    assert pair.front.ends == [CallEnd.DEADLINE]
    pair.front.answers[0].callback(answer_to(pair.front.sent[0]))  # too late, and harmless
    pair.pump()
    assert pair.client.answers[stream].messages == []


@pytest.mark.parametrize("timeout", ["", "S", "10", "10s", "-1S", "123456789S", "1.5S", "٣S"])
def test_a_timeout_that_is_none(timeout):
    pair = Pair()
    stream = pair.client.call("SendMessage", request_of("A"), [("grpc-timeout", timeout)])
    pair.pump()
    assert pair.client.answers[stream].status == 13
    assert not pair.front.sent


def test_deadlines_of_calls_that_ended_are_forgotten():
    """A client may give a year to each of a million calls."""
    pair = Pair()
    for number in range(300):
        pair.client.call("SendMessage", request_of(str(number)), [("grpc-timeout", "8760H")])
        pair.pump()
    assert len(pair.server._deadlines) < 150


def test_a_cancelled_poll_is_told_at_once():
    pair = Pair()
    client = pair.client
    stream = client.call("ReceiveMessage", messages.ReceiveMessageRequest())
    pair.pump()
    (poll,) = pair.front.polls
    client.h2.reset_stream(stream, 8)
    pair.pump()
    assert pair.front.ends == [CallEnd.CANCELLED]
    assert not poll.is_open
    poll.send(messages.ReceiveMessageResponse())
    poll.finish()
    assert pair.server.is_idle
    assert not pair.server.engine.has_output
    later = []
    poll.on_end(later.append)
    assert later == [CallEnd.CANCELLED]


def test_a_lost_connection_ends_all_calls():
    pair = Pair()
    pair.client.call("ReceiveMessage", messages.ReceiveMessageRequest())
    pair.client.begin("Telemetry")
    pair.pump()
    gone = []
    pair.server.on_close(lambda: gone.append(1))
    pair.server.close()
    pair.server.close()
    pair.server.on_close(lambda: gone.append(2))
    assert pair.front.ends == [CallEnd.LOST, CallEnd.LOST]
    assert gone == [1, 2]
    assert pair.server.calls == []


def test_a_stream_of_answers():
    pair = Pair()
    stream = pair.client.call("ReceiveMessage", messages.ReceiveMessageRequest())
    pair.pump()
    (poll,) = pair.front.polls
    for body in (b"1", b"2", b""):
        answer = messages.ReceiveMessageResponse()
        answer.message.body = body
        poll.send(answer)
    poll.finish()
    pair.pump()
    answer = pair.client.answers[stream]
    bodies = [
        messages.ReceiveMessageResponse.FromString(item).message.body for item in answer.messages
    ]
    assert (bodies, answer.status) == ([b"1", b"2", b""], 0)


def test_messages_both_ways_until_the_client_ends():
    pair = Pair()
    client = pair.client
    stream = client.begin("Telemetry")
    for nonce in ("a", "b"):
        command = messages.TelemetryCommand()
        command.verify_message_result.nonce = nonce
        client.send(stream, framed(command.SerializeToString()))
        pair.pump()
    assert not client.answers[stream].has_ended
    client.h2.end_stream(stream)
    pair.pump()
    answer = client.answers[stream]
    assert [
        messages.TelemetryCommand.FromString(item).verify_message_result.nonce
        for item in answer.messages
    ] == ["a", "b"]
    assert answer.status == 0


@pytest.mark.parametrize("encoding", ["gzip", "identity", "snappy"])
def test_a_packed_request(encoding):
    pair = Pair()
    client = pair.client
    stream = client.begin("SendMessage", [("grpc-encoding", encoding)])
    client.send(stream, framed(request_of("A").SerializeToString(), packed=True), ends=True)
    pair.pump()
    status = {"gzip": 0, "identity": 13, "snappy": 12}[encoding]
    assert client.answers[stream].status == status
    assert len(pair.front.sent) == (status == 0)


def test_a_small_packed_request_may_not_become_huge():
    pair = Pair(limits=CallLimits(1 << 20, 1 << 24))
    client = pair.client
    stream = client.begin("SendMessage", [("grpc-encoding", "gzip")])
    client.send(stream, framed(bytes(1 << 24), packed=True), ends=True)
    pair.pump()
    assert client.answers[stream].status == 8


@pytest.mark.parametrize(
    "payload", [gzip.compress(b"x" * 100)[:-20], b"not gzip", b""], ids=["cut", "other", "empty"]
)
def test_a_packed_request_that_cannot_be_unpacked(payload):
    pair = Pair()
    client = pair.client
    stream = client.begin("SendMessage", [("grpc-encoding", "gzip")])
    client.send(stream, b"\1" + len(payload).to_bytes(4, "big") + payload, ends=True)
    pair.pump()
    assert client.answers[stream].status == 13


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        (b"", True),
        (b"\0\0\0\0\5abc", True),
        (b"\0\0\0", True),
        (framed(b"") * 2, False),
        (framed(b"\xff\xff"), True),
        (b"\7\0\0\0\1x", False),
    ],
    ids=["nothing", "cut", "cut head", "two", "no message", "flag"],
)
def test_a_request_that_is_none(data, ends):
    pair = Pair()
    client = pair.client
    stream = client.begin("SendMessage")
    client.send(stream, data, ends=ends)
    if ends and not data:
        client.h2.end_stream(stream)
    pair.pump()
    assert client.answers[stream].status == 13
    assert pair.front.sent == []
    assert pair.server.is_idle
    assert (pair.server.unfinished, pair.server.missing) == (0, 0)


def test_a_message_over_the_limit_is_refused_before_it_is_buffered():
    pair = Pair()
    client = pair.client
    stream = client.begin("SendMessage")
    client.send(stream, (LIMIT + 1).to_bytes(5, "big") + bytes(1000))
    pair.pump()
    answer = client.answers[stream]
    assert answer.status == 8
    assert "grpcMaxInboundMessageSize" in answer.text
    assert pair.server.unfinished == 0
    assert ids_of(client.answers[pair.sends("A")]) == ["A"]


LIMIT = 1 << 22


@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1, 1 << 20, LIMIT - 100])
def test_a_large_message_gets_the_window_that_it_needs(size):
    pair = Pair()
    stream = pair.sends("A", body=bytes(size))
    assert ids_of(pair.client.answers[stream]) == ["A"]
    assert len(pair.front.sent[0].messages[0].body) == size
    assert pair.server._room == 0


def test_large_messages_of_many_calls_come_some_at_a_time():
    """A hundred calls may begin 4 MiB each; only some of them are read to their end at once."""
    pair = Pair()
    request = framed(request_of("A", body=bytes(LIMIT - 100)).SerializeToString())
    client = pair.client
    streams = [client.begin("SendMessage") for _ in range(12)]
    most = 0
    for stream in streams:
        client.send(stream, request, ends=True)
    receive = pair.server.receive

    def watch(data, now):
        nonlocal most
        receive(data, now)
        most = max(most, pair.server.unfinished)

    pair.server.receive = watch
    pair.cut = lambda data: [data[at : at + 65536] for at in range(0, len(data), 65536)]
    pair.pump()
    assert len(pair.front.sent) == 12
    assert most <= (1 << 24) + 12 * (1 << 18) + (1 << 18) * 5
    assert (pair.server.unfinished, pair.server.missing, pair.server._room) == (0, 0, 0)


def test_whole_requests_that_do_not_end_are_counted():
    pair = Pair()
    client = pair.client
    for _ in range(5):
        stream = client.begin("SendMessage")
        client.send(stream, framed(request_of("A", body=bytes(1000)).SerializeToString()))
    pair.pump()
    assert pair.server.unfinished > 5000
    client.h2.reset_stream(stream, 8)
    pair.pump()
    assert 4000 < pair.server.unfinished < 5000


def test_two_large_messages_of_one_stream():
    pair = Pair()
    client = pair.client
    stream = client.begin("Telemetry")
    command = messages.TelemetryCommand()
    command.thread_stack_trace.thread_stack_trace = "x" * (1 << 20)
    client.send(stream, framed(command.SerializeToString()) * 3)
    pair.pump()
    assert len(pair.front.telemetry[0].taken) == 3
    assert len(client.answers[stream].messages) == 3


def test_a_slow_reader_is_full_and_holds_back_no_other_stream():
    pair = Pair(GrpcClient(window=1000))
    client = pair.client
    client.reads = False
    stream = client.call("ReceiveMessage", messages.ReceiveMessageRequest())
    pair.pump()
    (poll,) = pair.front.polls
    answer = messages.ReceiveMessageResponse()
    answer.message.body = bytes(FULL_BYTES + 70000)
    poll.send(answer)
    pair.pump()
    assert pair.server.is_full
    assert len(client.answers[stream].data) == 1000
    waiting = pair.server.writable()
    assert not waiting.called
    assert ids_of(client.answers[pair.sends("A")]) == ["A"]
    client.reads = True
    client.h2.increment_flow_control_window(1 << 23)
    client.h2.increment_flow_control_window(1 << 23, stream)
    pair.pump()
    assert waiting.called
    assert not pair.server.is_full
    poll.finish()
    pair.pump()
    assert client.answers[stream].status == 0


def test_who_waits_for_a_slow_reader_hears_that_it_is_gone():
    pair = Pair(GrpcClient(window=0))
    pair.client.call("ReceiveMessage", messages.ReceiveMessageRequest())
    pair.pump()
    answer = messages.ReceiveMessageResponse()
    answer.message.body = bytes(FULL_BYTES + 1)
    pair.front.polls[0].send(answer)
    waiting = pair.server.writable()
    pair.server.close()
    assert waiting.called
    assert not pair.server.is_open
    assert pair.server.writable().called


def test_more_than_may_wait_ends_the_connection():
    pair = Pair(GrpcClient(window=0), CallLimits(1 << 20, 100_000))
    pair.client.call("ReceiveMessage", messages.ReceiveMessageRequest())
    pair.pump()
    answer = messages.ReceiveMessageResponse()
    answer.message.body = bytes(60_000)
    poll = pair.front.polls[0]
    poll.send(answer)
    assert not pair.server.engine.fault
    poll.send(answer)
    assert pair.server.engine.fault_budget == "queued bytes"
    pair.client.receive(pair.server.take_output(1 << 16))
    assert pair.client.goaway.error_code == 11


def test_headers_over_the_limit():
    pair = Pair()
    stream = pair.client.call("SendMessage", request_of("A"), [("x", "y" * 9000)])
    pair.pump()
    assert pair.client.answers[stream].status == 8
    assert ids_of(pair.client.answers[pair.sends("A")]) == ["A"]


def test_a_server_that_leaves_answers_what_is_open():
    pair = Pair()
    pair.front.waits = True
    stream = pair.sends("A")
    pair.server.engine.leave()
    back = pair.server.take_output(1000)
    frames = list(frames_of(back))
    assert [kind for kind, _ in frames] == [7]
    assert frames[0][1][:8] == stream.to_bytes(4, "big") + bytes(4)
    late = pair.client.call("SendMessage", request_of("B"))
    data = pair.client.take()
    pair.server.receive(data, pair.now)
    assert late > stream
    assert len(pair.front.sent) == 1
    assert not pair.server.is_idle
    pair.front.answers[0].callback(answer_to(pair.front.sent[0]))
    pair.client.receive(pair.server.take_output(1000))
    assert ids_of(pair.client.answers[stream]) == ["A"]
    assert pair.server.is_idle


def frames_of(data):
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3], "big")
        yield data[at + 3], data[at + 9 : at + 9 + size]
        at += 9 + size
