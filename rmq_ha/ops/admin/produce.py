"""`rmqha-admin produce`: send messages."""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import click
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineReceiver

from rmq_ha.client.rules.messages import Message, SendResult
from rmq_ha.client.rules.queue_choice import select_by_hash
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.message_text import result_line, result_values
from rmq_ha.ops.admin.options import common_options, read_properties, refuse_given
from rmq_ha.ops.admin.session import FAILED, Session, run

_LONGEST = 4 << 20
_MOST_WAITING = 1024


class StdinLines(LineReceiver):
    """
    Reads stdin a little ahead of its user.

    :ivar too_long: whether a line of more than 4 MiB ended the reading.
    """

    delimiter = b"\n"
    MAX_LENGTH = _LONGEST

    def __init__(self, reactor: Any) -> None:
        self.too_long = False
        self._lines: deque[bytes] = deque()
        self._ended = False
        self._paused = False
        self._waiting: Deferred[None] | None = None
        StandardIO(self, reactor=reactor)  # type: ignore[no-untyped-call]

    async def batch(self, most: int) -> list[bytes]:
        """
        Return at most `most` lines that are not empty, as soon as there is one; no line at the end.
        """
        while not self._lines and not self._ended:
            self._waiting = Deferred()
            await self._waiting
        lines = list(islice(self._lines, most))
        for _ in lines:
            self._lines.popleft()
        if self._paused and not self._ended:  # fewer wait now than those that made it pause
            self._paused = False
            self.resumeProducing()  # type: ignore[no-untyped-call]
        return lines

    def end(self) -> None:
        self._ended = True
        self._wake()

    def lineReceived(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if line:
            self._lines.append(line)
            if len(self._lines) >= _MOST_WAITING and not self._paused:
                self._paused = True
                self.pauseProducing()  # type: ignore[no-untyped-call]
            self._wake()

    def lineLengthExceeded(self, line: bytes) -> None:
        self.too_long = True
        self.end()

    def connectionLost(self, reason: Any = None) -> None:
        """Take a last line that lacks its line end; see `LineReceiver`."""
        rest = self.clearLineBuffer()  # type: ignore[no-untyped-call]
        if rest and not self.too_long:
            self.lineReceived(rest)
        self.end()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)


@click.command()
@click.argument("topic")
@click.argument("words", nargs=-1, metavar="[BODY]")
@click.option("--file", "file", type=click.File("rb"), help="Send the content of this file.")
@click.option("--tags", default="", help="The tag of the messages.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    help="A key by which the message can be found later; repeatable.",
)
@click.option(
    "--property", "-p", "properties", multiple=True, callback=read_properties, metavar="NAME=VALUE"
)
@click.option(
    "--delay-level",
    type=click.IntRange(0, 18),
    default=0,
    help="Deliver the messages later. By default 1 means 1s, and 18 means 2h.",
)
@click.option("--shard", help="Messages with the same text go to the same queue.")
@click.option(
    "--count", type=click.IntRange(min=1), default=1, help="Send the body this number of times."
)
@click.option("--group", "-g", default="RMQHA_ADMIN", show_default=True, help="The producer group.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 86_400),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to keep trying while a broker is away. 0: make one round of attempts.",
)
@click.option("--in-flight", type=click.IntRange(1, 4096), default=64, show_default=True)
@click.option("--quiet", "-q", is_flag=True, help="Print only the totals.")
@common_options
def produce(topic: str, words: tuple[str, ...], file: Any, **given: Any) -> None:
    """
    Send BODY to TOPIC; without BODY and --file each line of stdin is a message.

    Exit code 1: some were not sent.
    """
    if len(words) > 1:
        raise click.UsageError(f'the body is one word: put it into quotes, "{" ".join(words)}"')
    body = words[0] if words else None
    if body is not None and file is not None:
        raise click.UsageError("give either BODY or --file")
    if body is None and file is None:
        refuse_given(("count",), "each line of stdin is sent once. Give BODY or --file, too")
    data = file.read() if file is not None else None
    if body is not None:
        data = body.encode("utf-8", "surrogateescape")

    def make(content: bytes) -> Message:
        return Message(
            topic,
            content,
            given["tags"],
            given["keys"],
            properties=given["properties"],
            delay_time_level=given["delay_level"],
        )

    async def work(session: Session) -> int:
        config = ProducerConfig(
            producer_group=given["group"],
            send_msg_timeout_ms=session.options.timeout_ms,
            delivery_timeout_ms=int(given["wait"] * 1000),
        )
        producer = Producer(await session.client(), config)
        producer.on_wait = lambda topic, error: session.output.warn(
            f"no broker takes messages of {topic} now: {error}. produce tries again and again, for "
            f"{given['wait']:g} s for each message (--wait)"
        )
        await producer.start()
        sends = CountingSender(session, producer, given["shard"], quiet=given["quiet"])
        try:
            if data is not None:
                await sends.repeated(lambda: make(data), given["count"], given["in_flight"])
            else:
                await sends.lines(make, given["in_flight"])
        finally:
            await producer.stop()
        if given["quiet"]:
            text = f"{sends.sent} sent, {sends.failed} failed"
            session.output.line(text, {"sent": sends.sent, "failed": sends.failed})
        return FAILED if sends.failed else 0

    run(work)


class CountingSender:
    """
    Sends messages, shows the result of each send, and counts them.

    :ivar sent: how many were stored, whatever the send status says.
    """

    def __init__(
        self, session: Session, producer: Producer, shard: str | None, *, quiet: bool
    ) -> None:
        self.sent = 0
        self.failed = 0
        self._session = session
        self._output = session.output
        self._producer = producer
        self._quiet = quiet
        self._how: dict[str, Any] = {}
        self._under_way: list[Deferred[SendResult]] = []
        session.interrupted.addCallback(self._end_soon)
        if shard is not None:
            self._how = {"selector": select_by_hash, "arg": shard}

    def _end_soon(self, _: None) -> None:
        seconds = self._session.options.timeout_ms / 1000
        call_later: Callable[..., object] = self._session.host.clock.callLater
        call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        """
        Cancel the sends that still wait when the user interrupts: a broker that answers would have
        answered by now.
        """
        for later in self._under_way:
            later.cancel()

    async def repeated(self, make: Callable[[], Message], count: int, in_flight: int) -> None:
        """Send a message `count` times, at most `in_flight` at the same time."""
        with self._session.output.progress("sending", count) as steps:
            for start in range(0, count, in_flight):
                if self._session.interrupted.called:
                    return
                batch = [make() for _ in range(min(in_flight, count - start))]
                await self._all(batch)
                steps.advance(len(batch))

    async def lines(self, make: Callable[[bytes], Message], in_flight: int) -> None:
        """Send the lines of stdin as they come."""
        stdin = StdinLines(self._session.host.clock)
        self._session.interrupted.addCallback(lambda _: stdin.end())
        with self._session.output.progress("sending", None) as steps:
            while batch := await stdin.batch(in_flight):
                await self._all([make(line) for line in batch])
                steps.advance(len(batch))
        if stdin.too_long:
            self.failed += 1
            self._session.output.error("a line of stdin has more than 4 MiB: nothing behind it")

    async def _all(self, messages: list[Message]) -> None:
        later: list[Deferred[SendResult]] = [
            self._producer.send(message, **self._how) for message in messages
        ]
        self._under_way = later
        outcomes: list[tuple[bool, Any]] = await DeferredList(later, consumeErrors=True)
        for is_sent, result in outcomes:
            if not is_sent:
                self.failed += 1
                if result.check(CancelledError):
                    continue  # the user interrupted this send, and knows
                if self.failed == 1 or not self._quiet:
                    self._output.error(self._session.with_hint(result.getErrorMessage()))
                continue
            self.sent += 1
            if not self._quiet:
                self._output.line(result_line(result), result_values(result))
