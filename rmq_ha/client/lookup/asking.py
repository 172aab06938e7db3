"""Asking: what is asked of whom, step by step, apart from how it gets there.

An `Asking` is a generator: it yields an `Ask`, is sent the answer, and returns its result. Whoever
drives it has connections: `rmq_ha.client.connection.asks` in a reactor, `rmq_ha.client.blocking`
without one.
A driver throws `RemotingError` into it when nobody answers, which an Asking may catch and go on.
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

    :ivar address: `host:port`; empty: any name server that answers.
    :ivar timeout_ms: 0: the client's own.
    """

    command: RemotingCommand
    address: str = ""
    timeout_ms: int = 0


Asking = Generator[Ask, RemotingCommand, T]


async def drive(asking: Generator[S, R, T], answer: Callable[[S], Awaitable[R]]) -> T:
    """
    Ask it all, and return what it returns; raises what it raises.

    :param asking: an `Asking`, or another generator whose steps somebody answers.
    :param answer: gets one answer; what it raises is thrown into the asking, if it is ours.
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
    """As `drive`, where each answer is there when `answer` returns."""

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
    Name servers, of which one is asked as long as it answers, and then the next.

    :ivar addresses: of all; they may change at any time.
    """

    def __init__(self, addresses: Iterable[str], start: int) -> None:
        """:param start: which one to begin with."""
        self.addresses: Sequence[str] = tuple(addresses)
        self._current = start

    def ask(self, command: RemotingCommand, timeout_ms: int) -> Asking[RemotingCommand]:
        """
        The answer of the first that gives one.

        :param timeout_ms: for each of them.
        :raises NoNameServer: none does.
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
            f"no name server answers: {'; '.join(map(str, problems))}."
            " Is namesrv_addr right, does one run?",
            retriable=any(error.retriable for error in problems),
        )


def expect(ask: Ask, allowed: Collection[int] = ()) -> Asking[RemotingCommand]:
    """
    The answer, which has to be success.

    :param allowed: other codes that the caller knows what to do about.
    :raises BrokerRefused: another code.
    """
    response = yield ask
    if response.code and response.code not in allowed:
        raise BrokerRefused(response.code, response.remark, ask.address or "the name server")
    return response


def expect_any(
    command: RemotingCommand, addresses: Iterable[str], allowed: Collection[int] = ()
) -> Asking[RemotingCommand]:
    """
    As `expect`, of the first address that answers at all.

    :raises RemotingError: none does.
    :raises MQClientError: there is no address.
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
    A number of an answer's header.

    :raises BrokerRefused: it is not there.
    """
    try:
        return int((response.ext or {})[field])
    except (KeyError, ValueError):
        raise BrokerRefused(response.code, f"the answer has no {field}", address) from None
