"""h2 as the client, with any pieces, windows and resets: every answer is whole and in order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.server.grpc.wire import messages
from tests.kits.grpc_client import GrpcClient
from tests.unit.server.grpc.pairs import Pair, answer_to, request_of

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 40000)),
        st.tuples(st.just("poll"), st.integers(0, 3)),
        st.tuples(st.just("answer"), st.integers(0, 100000)),
        st.tuples(st.just("reset"), st.integers(0, 9)),
        st.tuples(st.just("settings"), st.integers(0, 100000)),
        st.tuples(st.just("ping"), st.just(0)),
        st.tuples(st.just("reads"), st.integers(0, 1)),
    ),
    max_size=20,
)


class Story:
    """A client that does drawn steps; what it must have in the end."""

    def __init__(self, window: int, pieces: list[int]) -> None:
        self.pair = Pair(GrpcClient(window=window))
        self.pieces = pieces
        self.pair.cut = self.cut
        self.wanted: dict[int, list[bytes]] = {}
        self.gone: set[int] = set()
        self.unread: dict[int, int] = {}

    def cut(self, data: bytes) -> list[bytes]:
        parts, at = [], 0
        while at < len(data):
            size = self.pieces[len(parts) % len(self.pieces)]
            parts.append(data[at : at + size])
            at += size
        return parts

    def send(self, size: int) -> None:
        request = request_of("A", "B", body=bytes(size))
        stream = self.pair.client.call("SendMessage", request)
        self.wanted[stream] = [answer_to(request).SerializeToString()]

    def poll(self, _: int) -> None:
        stream = self.pair.client.call("ReceiveMessage", messages.ReceiveMessageRequest())
        self.wanted[stream] = []

    def answer(self, size: int) -> None:
        answer = messages.ReceiveMessageResponse()
        answer.message.body = bytes([size % 256]) * size
        for poll in self.pair.front.polls:
            if poll.is_open:
                self.wanted[poll.stream].append(answer.SerializeToString())
                poll.send(answer)

    def reset(self, number: int) -> None:
        streams = [
            stream
            for stream, answer in self.pair.client.answers.items()
            if not answer.has_ended and stream not in self.gone
        ]
        if streams:
            stream = streams[number % len(streams)]
            self.gone.add(stream)
            self.pair.client.waiting = [
                item for item in self.pair.client.waiting if item[0] != stream
            ]
            self.pair.client.h2.reset_stream(stream, 8)

    def settings(self, window: int) -> None:
        self.pair.client.h2.update_settings({4: window})

    def ping(self, _: int) -> None:
        self.pair.client.h2.ping(b"12345678")

    def reads(self, does: int) -> None:
        self.pair.client.reads = bool(does)

    def end(self) -> None:
        """Give all windows, and let the front end every poll."""
        client = self.pair.client
        client.reads = True
        client.h2.update_settings({4: 1 << 24})
        client.h2.increment_flow_control_window(1 << 24)
        self.pair.pump()
        for poll in self.pair.front.polls:
            poll.finish()
        self.pair.pump()


@settings(max_examples=80, deadline=None)
@given(
    steps=STEPS,
    window=st.integers(0, 70000),
    pieces=st.lists(st.integers(1, 20000), min_size=1, max_size=4),
)
def test_every_answer_is_whole(steps, window, pieces):
    story = Story(window, pieces)
    for name, number in steps:
        getattr(story, name)(number)
        if number % 3:
            story.pair.pump()
    story.end()
    server = story.pair.server
    assert not server.engine.fault
    for stream, wanted in story.wanted.items():
        answer = story.pair.client.answers[stream]
        if stream in story.gone:
            continue
        assert answer.messages == wanted
        assert (answer.status, answer.has_ended) == (0, True)
    assert server.is_idle
    assert (server.queued, server.unfinished, server.missing) == (0, 0, 0)
