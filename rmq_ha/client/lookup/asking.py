"""Asking: a sequence of requests to brokers and name servers, without I/O.

An `Asking` is a generator: it yields an `Ask`, is sent the answer, and returns its result. Its
driver has the connections: `rmq_ha.client.connection.asks` in a reactor, `rmq_ha.client.blocking`
without one.
If a server does not answer, the driver throws `RemotingError` into the Asking, which may catch it.
"""

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoNameServer

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


class Ask(NamedTuple):
    """
    One request.

    :ivar address: `host:port` of a server; empty for any name server that answers.
    :ivar timeout_ms: how long to wait for the answer, in ms; 0 for the client's setting.
    """

    command: RemotingCommand
    address: str = ""
    timeout_ms: int = 0


Asking = Generator[Ask, RemotingCommand, T]


async def drive(asking: Generator[S, R, T], answer: Callable[[S], Awaitable[R]]) -> T:
    """
    Run an Asking to its end; return its result, or raise its error.

    :param asking: an `Asking`, or another generator that yields steps and is sent their answers.
    :param answer: returns the answer to one step; a `RemotingError` or `MQClientError` that it
        raises is thrown into the generator.
    """
    step: Callable[[Any], S] = asking.send
    value: Any = None
    while True:
        try:
            ask = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            step, value = asking.send, await answer(ask)
        except (RemotingError, MQClientError) as error:
            step, value = asking.throw, error


def drive_at_once(asking: Generator[S, R, T], answer: Callable[[S], R]) -> T:
    """Run an Asking as `drive` does; `answer` returns the answers themselves, not awaitables."""

    async def answered(ask: S) -> R:
        return answer(ask)

    try:
        drive(asking, answered).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("nothing was waited for")


class InTurn:
    """
    Asks one name server after the other until one answers. A later request begins with the name
    server that answered last.

    :ivar addresses: the addresses of all name servers; they may change at any time.
    """

    def __init__(self, addresses: Iterable[str], start: int) -> None:
        """:param start: index of the address to begin with."""
        self.addresses: Sequence[str] = tuple(addresses)
        self._current = start

    def ask(self, command: RemotingCommand, timeout_ms: int) -> Asking[RemotingCommand]:
        """
        Return the answer of the first name server that answers.

        :param timeout_ms: how long to wait for each of them, in ms.
        :raises NoNameServer: none of them answers.
        """
        addresses = self.addresses
        problems: list[RemotingError] = []
        for _ in addresses:
            chosen = self._current
            try:
                return (yield Ask(command, addresses[chosen % len(addresses)], timeout_ms))
            except RemotingError as error:
                problems.append(error)
                if self._current == chosen:
                    self._current = chosen + 1
        raise NoNameServer(
            f"no name server answers: {'; '.join(str(item).rstrip('.') for item in problems)}."
            " Is namesrv_addr right, does one run?",
            retriable=any(error.retriable for error in problems),
        )


def expect(ask: Ask, allowed: Collection[int] = ()) -> Asking[RemotingCommand]:
    """
    Send a request, and return its answer with the code SUCCESS.

    :param allowed: other codes that are returned too.
    :raises BrokerRefused: the answer has another code.
    """
    response = yield ask
    if response.code and response.code not in allowed:
        raise BrokerRefused(response.code, response.remark, ask.address or "the name server")
    return response


def expect_any(
    command: RemotingCommand, addresses: Iterable[str], allowed: Collection[int] = ()
) -> Asking[RemotingCommand]:
    """
    Send a request as `expect` does, to the first address that answers.

    :raises RemotingError: no address answers.
    :raises MQClientError: `addresses` is empty.
    """
    last: RemotingError | None = None
    for address in addresses:
        try:
            return (yield from expect(Ask(command, address), allowed))
        except RemotingError as error:
            last = error
    if last is None:
        raise MQClientError("no address of the broker is known: does it run, and is it registered?")
    raise last


def number(response: RemotingCommand, field: str, address: str = "the broker") -> int:
    """
    Return a number in an answer's header.

    :raises BrokerRefused: the header lacks the field, or it is no number.
    """
    try:
        return int((response.ext or {})[field])
    except (KeyError, ValueError):
        raise BrokerRefused(response.code, f"the answer has no {field}", address) from None
