"""Drives an `Asking` in a reactor, over the connections of a client."""

from collections.abc import Callable
from typing import TypeVar

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.lookup.asking import Ask, Asking, drive

T = TypeVar("T")


class Asker:
    """
    Sends the questions of an `Asking` and returns the answers to it.

    :param instance: a started client; questions without an address go to its name servers.
    """

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance

    async def run(self, asking: Asking[T], on_answer: Callable[[], object] | None = None) -> T:
        """
        Send all questions of an `Asking`; return its result, or raise its error.

        :param on_answer: called after each answer.
        """

        async def answer(ask: Ask) -> RemotingCommand:
            try:
                return await self._ask(ask)
            finally:
                if on_answer is not None:
                    on_answer()

        return await drive(asking, answer)

    async def _ask(self, ask: Ask) -> RemotingCommand:
        timeout_ms = ask.timeout_ms or self.instance.settings.mq_client_api_timeout_ms
        if ask.address:
            return await self.instance.invoke(ask.address, ask.command, timeout_ms)
        return await self.instance.name_servers.ask(ask.command, timeout_ms)
