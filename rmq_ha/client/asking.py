"""Asking: what is asked of whom, step by step, apart from how it gets there.

An `Asking` is a generator: it yields an `Ask`, is sent the answer, and returns its result. Whoever
drives it has connections: `rmq_ha.client.asks` in a reactor, `rmq_ha.client.blocking` without one.
A driver throws `RemotingError` into it when nobody answers, which an Asking may catch and go on.
"""

from collections.abc import Collection, Generator, Iterable
from typing import NamedTuple, TypeVar

from rmq_ha.client.errors import BrokerRefused, MQClientError
from rmq_ha.errors import RemotingError
from rmq_ha.wire.command import RemotingCommand

T = TypeVar("T")


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
