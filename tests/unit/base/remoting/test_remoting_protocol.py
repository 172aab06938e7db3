"""The two ends of a connection. Spec: remoting.md, sections 1.2, 1.6 and 1.11."""

import struct
import weakref
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.errors import (
    ProtocolViolation,
    RemotingConnectError,
    RemotingTimeout,
    RequestRejected,
)
from rmq_ha.base.model.security import Security
from rmq_ha.base.remoting.dispatcher import OTHER_CODES, RequestDispatcher
from rmq_ha.base.remoting.protocol import RemotingProtocol, ServerProtocol
from rmq_ha.base.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmq_ha.base.wire.frame import JSON, FrameReader, decode_frame, encode_frame


class CountingTransport(StringTransport):
    """Counts writes."""

    def __init__(self, **options):
        super().__init__(**options)
        self.writes = 0

    def write(self, data):
        self.writes += 1
        super().write(data)

    def commands(self):
        found = [decode_frame(*frame) for frame in FrameReader().receive_data(self.value())]
        self.clear()
        return found


class Refusing:
    def validate(self, request, remote_address):
        raise RequestRejected(1, f"{remote_address} may not")


class KeyedRun(list):
    """Frames whose headers begin alike."""

    end = 0

    @property
    def size(self):
        return sum(8 + len(header) + len(body) for _, header, body in self)

    def part(self, first, end):
        return KeyedRun(self[first:end])

    def frames(self):
        return list(self)


def cut(key, data, at, max_header):
    run = KeyedRun()
    while data.startswith(key, at + 8):
        length, header_size = struct.unpack_from(">II", data, at)
        body_at, end = at + 8 + header_size, at + 4 + length
        if end > len(data):
            break
        run.append((JSON, data[at + 8 : body_at], data[body_at:end]))
        at = end
    run.end = at
    return run or None


class ConnectionCase(SynchronousTestCase):
    accepts = True

    def setUp(self):
        self.clock = Clock()
        self.dispatcher = RequestDispatcher()
        self.dispatcher.routes[1] = lambda channel, request: request.response(ext={"x": "y"})
        self.connect()

    def connect(self):
        self.protocol = RemotingProtocol(self.clock, self.dispatcher, 120.0, accepts=self.accepts)
        self.transport = CountingTransport()
        self.protocol.makeConnection(self.transport)
        self.channel = self.protocol.channel

    def runs_go_to(self, handler, key=b'{"code":310,'):
        """Runs of requests whose headers begin with the key go to the handler."""
        self.lose()
        self.dispatcher.cut, self.dispatcher.handle_run = partial(cut, key), handler
        self.connect()

    def receive(self, *commands):
        self.protocol.dataReceived(b"".join(map(encode_frame, commands)))

    def answer(self, command):
        """What the peer gets for one command."""
        self.receive(command)
        (response,) = self.transport.commands()
        return response

    def lose(self):
        self.protocol.connectionLost(Failure(ConnectionDone()))


class RequestTests(ConnectionCase):
    def test_response_has_opaque_and_flag_of_the_request(self):
        response = self.answer(RemotingCommand(1, opaque=77))
        self.assertEqual((response.code, response.opaque, response.flag), (0, 77, FLAG_RESPONSE))
        self.assertEqual(response.ext, {"x": "y"})

    def test_what_is_sent_is_counted(self):
        """For the quota of bytes."""
        self.receive(RemotingCommand(1))
        self.assertEqual(self.channel.written, len(self.transport.value()))

    def test_binary_request_gets_a_binary_response(self):
        self.assertTrue(self.answer(RemotingCommand(1, binary=True)).binary)

    def test_an_answer_that_was_made_elsewhere_becomes_one_to_this_request(self):
        self.dispatcher.routes[2] = lambda channel, request: RemotingCommand(0, opaque=5)
        response = self.answer(RemotingCommand(2, opaque=77, binary=True))
        self.assertEqual((response.opaque, response.is_response), (77, True))
        self.assertTrue(response.binary)

    def test_negative_answers_are_counted_by_code(self):
        self.dispatcher.routes[2] = lambda channel, request: request.response(17)
        self.dispatcher.routes[3] = lambda channel, request: request.response(9999)
        self.receive(*[RemotingCommand(code) for code in (1, 2, 3, 2, 999)])
        self.assertEqual(self.dispatcher.negative, {17: 2, OTHER_CODES: 1, 3: 1})

    def test_responses_of_one_chunk_leave_as_one_write(self):
        self.receive(*[RemotingCommand(1, opaque=opaque) for opaque in range(64)])
        self.assertEqual(self.transport.writes, 1)
        self.assertEqual([item.opaque for item in self.transport.commands()], list(range(64)))

    def test_unknown_code_is_answered_with_code_3(self):
        response = self.answer(RemotingCommand(999, opaque=9))
        self.assertEqual((response.code, response.remark), (3, " request type 999 not supported"))

    def test_a_name_server_does_not_answer_unknown_codes(self):
        self.dispatcher.answers_unknown = False
        self.receive(RemotingCommand(999))
        self.assertEqual(self.transport.value(), b"")

    def test_default_handler_takes_all_other_codes(self):
        self.dispatcher.default = lambda channel, request: request.response(5)
        self.assertEqual(self.answer(RemotingCommand(999)).code, 5)

    def test_deferred_is_answered_when_it_fires_and_out_of_order(self):
        waiting = {}
        self.dispatcher.routes[2] = lambda _, request: waiting.setdefault(
            request.opaque, Deferred()
        )
        requests = [RemotingCommand(2, opaque=1), RemotingCommand(2, opaque=2)]
        self.receive(*requests)
        self.assertEqual(self.transport.value(), b"")
        waiting[2].callback(requests[1].response())
        waiting[1].callback(None)
        self.assertEqual([item.opaque for item in self.transport.commands()], [2])

    def test_one_way_requests_get_no_response_whatever_happens(self):
        def fails(channel, request):
            raise ValueError("no")

        self.dispatcher.routes[2] = fails
        self.receive(*[RemotingCommand(code, flag=FLAG_ONEWAY) for code in (1, 2, 999)])
        self.assertEqual(self.transport.value(), b"")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_rejection_is_its_code_and_remark(self):
        def rejects(channel, request):
            raise RequestRejected(17, "no such topic")

        self.dispatcher.routes[2] = rejects
        response = self.answer(RemotingCommand(2))
        self.assertEqual((response.code, response.remark), (17, "no such topic"))

    def test_failure_of_a_deferred_is_code_1_with_type_and_message(self):
        waiting: Deferred[None] = Deferred()
        self.dispatcher.routes[2] = lambda channel, request: waiting
        self.receive(RemotingCommand(2))
        waiting.errback(KeyError("x"))
        (response,) = self.transport.commands()
        self.assertEqual((response.code, response.remark), (1, "KeyError: 'x'"))
        self.flushLoggedErrors(KeyError)

    def test_a_response_too_large_for_a_frame_is_code_1(self):
        def large(channel, request):
            return request.response(body=bytes(2**24))

        self.dispatcher.routes[2] = large
        self.dispatcher.routes[3] = lambda *asked: succeed(large(*asked))
        for code in (2, 3):
            response = self.answer(RemotingCommand(code))
            self.assertEqual(response.code, 1)
            self.assertIn("cannot be sent", response.remark)

    def test_a_body_that_cannot_be_read_is_no_failure_of_ours(self):
        """A line, and no traceback: peers send them as often as they like."""

        def reads(channel, request):
            raise ProtocolViolation("no body")

        self.dispatcher.routes[2] = reads
        response = self.answer(RemotingCommand(2))
        self.assertEqual((response.code, response.remark), (1, "ProtocolViolation: no body"))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_a_failure_too_large_to_be_told_leaves_the_connection_open(self):
        def fails(channel, request):
            raise RequestRejected(1, "x" * 2**24)

        self.dispatcher.routes[2] = fails
        self.receive(RemotingCommand(2))
        self.assertEqual(self.answer(RemotingCommand(1, opaque=3)).opaque, 3)

    def test_validators_see_the_requests_of_runs_first(self):
        self.dispatcher = RequestDispatcher([Refusing()])
        self.runs_go_to(lambda *_: self.fail("not asked"), b'{"code":1,')
        response = self.answer(RemotingCommand(1))
        self.assertEqual((response.code, response.remark), (1, "192.168.1.1:54321 may not"))


class RunTests(ConnectionCase):
    def setUp(self):
        super().setUp()
        self.runs = []
        self.runs_go_to(self.handle)

    def handle(self, channel, run, valid):
        self.runs.append([body for _, _, body in run.frames()])
        channel.write(encode_frame(RemotingCommand(0, opaque=len(run), flag=1)))

    def test_a_run_goes_to_its_handler_in_one_call(self):
        send = [RemotingCommand(310, body=b"%d" % number) for number in range(5)]
        self.receive(*send[:3], RemotingCommand(1, opaque=50), *send[3:])
        self.assertEqual(self.runs, [[b"0", b"1", b"2"], [b"3", b"4"]])
        self.assertEqual([item.opaque for item in self.transport.commands()], [3, 50, 2])
        self.assertEqual(self.transport.writes, 1)

    def test_binary_requests_go_the_general_way(self):
        self.dispatcher.routes[310] = lambda channel, request: request.response()
        self.receive(RemotingCommand(310, binary=True))
        self.assertEqual(self.runs, [])

    def test_code_3100_is_not_code_310(self):
        self.assertEqual(self.answer(RemotingCommand(3100)).code, 3)

    def test_if_the_handler_raises_each_request_gets_code_1(self):
        def fails(*_):
            raise RuntimeError("store")

        self.runs_go_to(fails)
        flags = 0, FLAG_ONEWAY, 0
        self.receive(
            *[RemotingCommand(310, opaque=number, flag=flag) for number, flag in enumerate(flags)]
        )
        answers = [(item.code, item.opaque) for item in self.transport.commands()]
        self.assertEqual(answers, [(1, 0), (1, 2)])
        self.flushLoggedErrors(RuntimeError)

    def test_a_header_that_the_handler_cannot_read_closes_the_connection(self):
        def fails(*_):
            raise ProtocolViolation("no header")

        self.runs_go_to(fails)
        self.receive(RemotingCommand(310, opaque=1), RemotingCommand(1, opaque=2))
        self.assertEqual(self.transport.commands(), [])
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(self.dispatcher.violations, 1)


class RefusingSome:
    """Passes what its list does not name; sees code and body of each request."""

    def __init__(self, refused):
        self.refused = refused
        self.seen = []

    def validate(self, request, remote_address):
        self.seen.append((request.code, request.body))
        if request.body in self.refused:
            raise RequestRejected(16, "no permission")


class Grant:
    """What a validator lets a request do, and whose it is."""

    account = ""

    def __init__(self, body):
        self.body = body


class ValidatedRunTests(ConnectionCase):
    """Each request has one answer, in their order, whatever becomes of those around it."""

    def setUp(self):
        super().setUp()
        self.validator = RefusingSome([b"bad"])
        self.dispatcher = RequestDispatcher([self.validator])
        self.dispatcher.routes[310] = self.handle_one
        self.runs, self.alone, self.secured, self.given = [], [], [], []
        self.runs_go_to(self.handle)

    def handle(self, channel, run, valid):
        assert [request.body or b"" for request in valid] == [body for *_, body in run.frames()]
        self.runs.append([body for _, _, body in run.frames()])
        for _, header, body in run.frames():
            request = decode_frame(JSON, header, body)
            channel.send(RemotingCommand(0, opaque=request.opaque, flag=FLAG_RESPONSE))

    def handle_one(self, channel, request):
        self.alone.append(request.body)
        return request.response()

    def send(self, *bodies):
        """Requests of the key; what is given as a tuple has such a header beside its body."""
        frames = []
        for opaque, item in enumerate(bodies):
            header, body = item if isinstance(item, tuple) else (None, item)
            plain = encode_frame(RemotingCommand(310, opaque=opaque, body=body))
            if header is not None:
                head = b'{"code":310,"opaque":%d,%s}' % (opaque, header)
                plain = struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body
            frames.append(plain)
        self.protocol.dataReceived(b"".join(frames))
        return [(item.opaque, item.code) for item in self.transport.commands()]

    def test_those_that_pass_go_on_as_one_run(self):
        self.assertEqual(self.send(b"0", b"1", b"", b"3"), [(n, 0) for n in range(4)])
        self.assertEqual(self.runs, [[b"0", b"1", b"", b"3"]])
        self.assertEqual(self.validator.seen, [(310, b"0"), (310, b"1"), (310, None), (310, b"3")])

    def test_every_validator_is_asked(self):
        self.dispatcher = RequestDispatcher([self.validator, RefusingSome([b"worse"])])
        self.runs_go_to(self.handle)
        self.assertEqual(sorted(self.send(b"bad", b"worse", b"2")), [(0, 16), (1, 16), (2, 0)])

    def test_one_that_is_refused_takes_no_other_with_it(self):
        self.assertEqual(sorted(self.send(b"0", b"bad", b"2")), [(0, 0), (1, 16), (2, 0)])
        self.assertEqual(self.runs, [[b"0"], [b"2"]])

    def test_a_header_that_nobody_writes_like_that_goes_alone_and_all_keep_their_order(self):
        loose = b'"extFields":{"a":1}', b"loose"
        self.assertEqual(self.send(b"0", loose, b"2", b"3"), [(n, 0) for n in range(4)])
        self.assertEqual((self.runs, self.alone), ([[b"0"], [b"2", b"3"]], [b"loose"]))
        self.assertEqual([body for _, body in self.validator.seen], [b"0", b"loose", b"2", b"3"])

    def test_those_before_a_header_that_cannot_be_read_are_served(self):
        wrong = b'"version":99999999999', b"wrong"
        self.assertEqual(self.send(b"0", b"1", wrong, b"3"), [(0, 0), (1, 0)])
        self.assertEqual(self.runs, [[b"0", b"1"]])
        self.assertTrue(self.transport.disconnecting or self.transport.disconnected)
        self.assertEqual(self.dispatcher.violations, 1)

    def test_what_the_handler_of_runs_gives_back_is_served_as_it_was_checked(self):
        """A signature passes once only, and each request has the grant of its own."""
        self.validator.validate = self.grant
        self.channel.security = Security(is_tls=True, names=("a.example",))
        self.runs_go_to(self.give_back)
        self.dispatcher.routes[310] = self.handle_granted
        loose = b'"extFields":{"a":1}', b"loose"
        self.assertEqual(self.send(b"0", b"1", loose, b"3"), [(n, 0) for n in range(4)])
        self.assertEqual(self.validator.seen, [b"0", b"1", b"loose", b"3"])
        self.assertEqual([grant.body for grant in self.alone], [b"0", b"1", b"loose", b"3"])
        self.assertEqual(self.secured, [self.channel.security] * 4)

    def test_what_the_handler_of_runs_has_served_is_kept_by_nobody(self):
        """Bodies of 16 MiB would stay until the next run of some connection."""
        self.validator.validate = self.grant
        self.send(b"0", b"1")
        self.assertEqual(self.runs, [[b"0", b"1"]])
        self.assertEqual([grant() for grant in self.given], [None] * 2)

    def grant(self, request, remote_address):
        self.validator.seen.append(request.body)
        self.secured.append(request.security)
        request.grant = Grant(request.body)
        self.given.append(weakref.ref(request.grant))

    def give_back(self, channel, run, valid):
        for request in valid:
            self.dispatcher.go_general_way(channel, request)

    def handle_granted(self, channel, request):
        self.alone.append(request.grant)
        return request.response()


class LongRequestTests(ConnectionCase):
    """One that takes several turns: what comes behind it stays behind it."""

    def setUp(self):
        super().setUp()
        self.works = []
        self.dispatcher.routes[2] = self.begin

    def begin(self, channel, request):
        work: Deferred[RemotingCommand] = Deferred()
        channel.hold(len(request.body), work)
        self.works.append(work)
        return work.addCallback(lambda code: request.response(code))

    def opaques(self):
        return [item.opaque for item in self.transport.commands()]

    def test_those_behind_it_wait_unread_until_it_is_done(self):
        self.receive(RemotingCommand(1, opaque=1), RemotingCommand(2, opaque=2, body=b"long"))
        self.assertEqual(self.channel.held, 4)
        self.assertEqual(self.transport.producerState, "paused")
        self.receive(RemotingCommand(1, opaque=3))
        self.assertEqual(self.opaques(), [1])
        self.works[0].callback(5)
        self.assertEqual(self.channel.held, 0)
        self.assertEqual([item.code for item in self.transport.commands()], [5])
        self.assertEqual(self.transport.producerState, "paused")
        self.clock.advance(0)
        self.assertEqual(self.opaques(), [3])
        self.assertEqual(self.transport.producerState, "producing")

    def test_all_of_a_run_are_waited_for(self):
        self.runs_go_to(
            lambda channel, run, _: [
                self.begin(channel, RemotingCommand(310, body=body)) for _, _, body in run.frames()
            ]
        )
        run = [RemotingCommand(310, body=body) for body in (b"12", b"345")]
        self.receive(*run, RemotingCommand(1, opaque=9))
        self.assertEqual(self.channel.held, 5)
        self.works[0].callback(0)
        self.clock.advance(0)
        self.assertEqual(self.channel.held, 3)
        self.assertEqual(self.opaques(), [])
        self.works[1].callback(0)
        self.clock.advance(0)
        self.assertEqual(self.opaques(), [9])

    def test_one_that_is_done_at_once_puts_off_nobody(self):
        self.dispatcher.routes[2] = lambda channel, request: channel.hold(1, succeed(None))
        timers = len(self.clock.getDelayedCalls())
        self.receive(RemotingCommand(2), RemotingCommand(1, opaque=9))
        self.assertEqual(self.opaques(), [9])
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        self.assertEqual(self.transport.producerState, "producing")

    def test_a_run_that_ends_in_garbage_closes_the_connection(self):
        def garbles(channel, run, valid):
            channel.hold(1, Deferred())
            raise ProtocolViolation("no header")

        self.runs_go_to(garbles)
        self.receive(RemotingCommand(310))
        self.assertTrue(self.transport.disconnecting)

    def test_when_the_peer_is_gone_nobody_works_for_it(self):
        cancelled = []
        self.runs_go_to(
            lambda channel, run, _: [
                channel.hold(len(body), Deferred(cancelled.append)) for _, _, body in run.frames()
            ]
        )
        self.receive(*[RemotingCommand(310, body=b"x") for _ in range(3)])
        for work in self.channel._held:
            work.addErrback(lambda failure: failure.trap(CancelledError) and None)
        self.lose()
        self.assertEqual(len(cancelled), 3)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class CallTests(ConnectionCase):
    accepts = False

    def test_response_fires_the_call_with_its_opaque(self):
        one = self.channel.invoke(RemotingCommand(10), 3000)
        two = self.channel.invoke(RemotingCommand(10), 3000)
        first, second = self.transport.commands()
        self.receive(second.response(5))
        self.assertEqual(self.successResultOf(two).code, 5)
        self.assertNoResult(one)
        self.receive(first.response(6))
        self.assertEqual(self.successResultOf(one).code, 6)

    def test_responses_that_nobody_waits_for_are_ignored_and_told(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        call = self.channel.invoke(RemotingCommand(10), 3000)
        (request,) = self.transport.commands()
        self.receive(request.response())
        self.successResultOf(call)
        self.assertEqual(events, [])
        self.receive(RemotingCommand(0, opaque=123, flag=FLAG_RESPONSE))
        self.assertTrue(self.channel.is_open)
        (event,) = events
        self.assertEqual(
            formatEvent(event), "192.168.1.1:54321 answers 123, which nobody waits for"
        )

    def test_timeouts_by_their_own_deadlines(self):
        slow = self.channel.invoke(RemotingCommand(10), 3000)
        fast = self.channel.invoke(RemotingCommand(10), 500)
        self.clock.advance(0.5)
        self.failureResultOf(fast, RemotingTimeout)
        self.assertNoResult(slow)
        self.clock.advance(2.5)
        error = self.failureResultOf(slow, RemotingTimeout).value
        self.assertIn("192.168.1.1:54321 within 3000 ms", str(error))

    def test_late_response_is_ignored(self):
        call = self.channel.invoke(RemotingCommand(10), 10)
        (request,) = self.transport.commands()
        self.clock.advance(1)
        self.failureResultOf(call, RemotingTimeout)
        self.receive(request.response())

    def test_one_timer_for_many_calls(self):
        before = len(self.clock.getDelayedCalls())
        calls = [self.channel.invoke(RemotingCommand(10), 3000) for _ in range(100)]
        self.assertEqual(len(self.clock.getDelayedCalls()), before + 1)
        for request in self.transport.commands():
            self.receive(request.response())
        for call in calls:
            self.successResultOf(call)

    def test_loss_fails_all_calls_and_later_ones(self):
        calls = [self.channel.invoke(RemotingCommand(10), 3000) for _ in range(3)]
        told = []
        self.channel.on_close(told.append)
        self.lose()
        for call in calls:
            self.failureResultOf(call, RemotingConnectError)
        self.failureResultOf(self.channel.invoke(RemotingCommand(1), 1), RemotingConnectError)
        self.assertEqual(told, [self.channel])
        self.channel.on_close(told.append)
        self.assertEqual(len(told), 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_cancelled_call_is_forgotten(self):
        call = self.channel.invoke(RemotingCommand(10), 3000)
        call.cancel()
        self.assertEqual(len(self.channel.pending), 0)
        self.failureResultOf(call)

    def test_a_request_that_fits_no_frame_fails_at_once(self):
        call = self.channel.invoke(RemotingCommand(1, body=bytes(2**24)), 3000)
        self.failureResultOf(call, ProtocolViolation)
        self.assertEqual(len(self.channel.pending), 0)

    def test_a_caller_goes_on_reading_when_its_peer_does_not(self):
        """Two that both waited for the other to read would wait for ever."""
        self.transport.producer.pauseProducing()
        self.assertTrue(self.channel.is_full)
        self.assertEqual(self.transport.producerState, "producing")
        self.assertEqual(self.answer(RemotingCommand(1, opaque=4)).opaque, 4)

    def test_pushes_of_the_peer_are_requests(self):
        self.assertEqual(self.answer(RemotingCommand(1, opaque=4)).opaque, 4)


class ConnectionTests(ConnectionCase):
    def test_malformed_input_closes_after_the_good_requests_are_answered(self):
        self.protocol.dataReceived(
            encode_frame(RemotingCommand(1, opaque=1)) + struct.pack(">i", -1)
        )
        self.assertEqual(len(self.transport.commands()), 1)
        self.assertTrue(self.transport.disconnecting)

    def test_unreadable_header_closes(self):
        self.protocol.dataReceived(struct.pack(">ii", 8, 4) + b"null")
        self.assertTrue(self.transport.disconnecting)

    def test_idle_connection_is_closed_after_120_seconds_without_read_and_write(self):
        self.clock.advance(100)
        self.receive(RemotingCommand(1, flag=FLAG_ONEWAY))
        self.clock.advance(100)
        self.channel.write(b"")
        self.clock.advance(119)
        self.assertFalse(self.transport.disconnected)
        self.clock.advance(1)
        self.assertTrue(self.transport.disconnected)

    def test_a_second_is_an_idle_time_too(self):
        self.protocol = RemotingProtocol(self.clock, self.dispatcher, 1.0, accepts=True)
        self.transport = CountingTransport()
        self.protocol.makeConnection(self.transport)
        self.clock.advance(0.9)
        self.assertFalse(self.transport.disconnected)
        self.clock.advance(0.1)
        self.assertTrue(self.transport.disconnected)

    def test_without_limits_of_frames_nobody_looks_for_them(self):
        (timer,) = self.clock.getDelayedCalls()
        self.assertEqual(timer.getTime(), 120.0)

    def test_what_an_honest_peer_sent_during_a_long_turn_counts(self):
        """The turn ends after the time: its timer comes before the bytes are read."""
        for _ in range(2):
            self.clock.callLater(120, self.receive, RemotingCommand(1, flag=FLAG_ONEWAY))
            self.clock.advance(300)
            self.assertFalse(self.transport.disconnected)
        self.clock.advance(119)
        self.assertFalse(self.transport.disconnected)
        self.clock.advance(1)
        self.assertTrue(self.transport.disconnected)

    def test_what_was_answered_is_sent_before_the_connection_is_closed(self):
        def last(channel, request):
            channel.send(request.response())
            channel.close()

        sent = []
        self.transport.loseConnection = lambda: sent.extend(self.transport.commands())
        self.dispatcher.routes[2] = last
        self.receive(RemotingCommand(2, opaque=7))
        self.assertEqual([item.opaque for item in sent], [7])

    def test_a_slow_reader_is_not_read_from_until_it_has_read(self):
        def slow(channel, request):
            self.transport.producer.pauseProducing()
            return request.response()

        self.dispatcher.routes[2] = slow
        self.receive(*[RemotingCommand(2, opaque=number) for number in range(3)])
        self.assertEqual(self.transport.producerState, "paused")
        self.assertTrue(self.transport.streaming)
        self.assertEqual([item.opaque for item in self.transport.commands()], [0])
        self.transport.producer.resumeProducing()
        self.assertEqual([item.opaque for item in self.transport.commands()], [1])
        self.assertEqual(self.transport.producerState, "paused")
        self.transport.producer.resumeProducing()
        self.transport.producer.resumeProducing()
        self.assertEqual([item.opaque for item in self.transport.commands()], [2])
        self.assertEqual(self.transport.producerState, "producing")

    def test_a_peer_that_reads_while_it_is_answered_gets_all_answers_in_order(self):
        def slow(channel, request):
            self.transport.producer.pauseProducing()
            self.transport.producer.resumeProducing()
            return request.response()

        self.dispatcher.routes[2] = slow
        self.receive(*[RemotingCommand(code, opaque=code) for code in (1, 2, 1)])
        self.assertEqual([item.opaque for item in self.transport.commands()], [1, 2, 1])

    def test_answers_that_a_slow_peer_does_not_read_do_not_pile_up(self):
        """However many requests it has sent in one chunk."""
        self.transport.write = self.write_and_be_full
        self.dispatcher.routes[2] = lambda _, request: request.response(body=bytes(1 << 16))
        self.receive(*[RemotingCommand(2, opaque=number) for number in range(64)])
        self.assertLess(len(self.transport.value()), 1 << 19)
        got = self.transport.commands()
        while len(got) < 64:
            self.transport.producer.resumeProducing()
            self.assertLess(len(self.transport.value()), 1 << 19)
            got += self.transport.commands()
        self.assertEqual([item.opaque for item in got], list(range(64)))

    def write_and_be_full(self, data):
        CountingTransport.write(self.transport, data)
        self.transport.producer.pauseProducing()

    def test_what_a_slow_reader_is_sent_later_counts_as_io(self):
        self.transport.producer.pauseProducing()
        self.receive(RemotingCommand(1))
        self.clock.advance(100)
        self.transport.producer.resumeProducing()
        self.assertEqual(len(self.transport.commands()), 1)
        self.clock.advance(100)
        self.assertFalse(self.transport.disconnected)

    def test_whoever_pushes_sees_that_the_peer_does_not_read(self):
        self.successResultOf(self.channel.writable())
        for ends in (self.transport.producer.resumeProducing, self.lose):
            self.transport.producer.pauseProducing()
            self.assertTrue(self.channel.is_full)
            later = [self.channel.writable() for _ in range(2)]
            for waiting in later:
                self.assertNoResult(waiting)
            ends()
            self.assertFalse(self.channel.is_full)
            for waiting in (*later, self.channel.writable()):
                self.successResultOf(waiting)

    def test_a_server_is_an_accepting_end(self):
        protocol = ServerProtocol(self.clock, self.dispatcher, 120.0, {})
        transport = CountingTransport()
        protocol.makeConnection(transport)
        transport.producer.pauseProducing()
        self.assertEqual(transport.producerState, "paused")

    def test_an_aborted_channel_takes_nothing(self):
        self.channel.abort()
        self.failureResultOf(self.channel.invoke(RemotingCommand(1), 1), RemotingConnectError)
        self.channel.write(b"x")
        self.assertEqual(self.transport.value(), b"")

    def test_a_peer_without_an_address_is_served(self):
        """As one at the other end of a Unix socket."""
        self.transport = CountingTransport(peerAddress=UNIXAddress("/run/broker"))
        self.protocol = RemotingProtocol(self.clock, self.dispatcher, 120.0, accepts=True)
        self.protocol.makeConnection(self.transport)
        self.assertEqual(self.protocol.channel.remote_text, "0.0.0.0:0")
        self.assertEqual(self.answer(RemotingCommand(1)).code, 0)

    def test_close_gives_up_being_producer_or_the_transport_would_stay_open(self):
        self.assertEqual(repr(self.channel), "<Channel 192.168.1.1:54321>")
        self.channel.close()
        self.channel.close()
        self.assertEqual(repr(self.channel), "<Channel 192.168.1.1:54321 closed>")
        self.assertIsNone(self.transport.producer)
        self.assertTrue(self.transport.disconnecting)

    def test_a_failing_watcher_does_not_hide_the_loss_from_others(self):
        def fails(channel):
            raise ValueError("watcher")

        told = []
        self.channel.on_close(fails)
        self.channel.on_close(told.append)
        self.lose()
        self.assertEqual(told, [self.channel])
        self.flushLoggedErrors(ValueError)


@given(st.binary(max_size=200) | st.lists(st.binary(max_size=30), max_size=4).map(b"".join))
def test_any_bytes_end_in_answers_or_a_closed_connection(data):
    dispatcher = RequestDispatcher()
    protocol = RemotingProtocol(Clock(), dispatcher, 120.0, accepts=True)
    protocol.makeConnection(StringTransport())
    header = struct.pack(">iI", len(data) + 4, len(data))
    protocol.dataReceived(header + data)
    protocol.dataReceived(data)
