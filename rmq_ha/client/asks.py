"""Drives an `Asking` in a reactor, over the connections of a client."""

from collections.abc import Callable
from typing import TypeVar

from rmq_ha.client.asking import Ask, Asking
from rmq_ha.client.errors import MQClientError
from rmq_ha.client.instance import ClientInstance
from rmq_ha.errors import RemotingError
from rmq_ha.wire.command import RemotingCommand

T = TypeVar("T")


class Asker:
    """
    Has the answers.

    :param instance: a started client, whose name servers are asked.
    """

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance

    async def run(self, asking: Asking[T], each: Callable[[], object] | None = None) -> T:
        """
        Ask it all, and return what it returns; raises what it raises.

        :param each: called after each answer.
        """
        step = asking.send
        value: RemotingCommand | None = None
        error: Exception | None = None
        while True:
            try:
                ask = step(value) if error is None else asking.throw(error)  # type: ignore[arg-type]
            except StopIteration as end:
                result: T = end.value
                return result
            value, error = None, None
            try:
                value = await self._ask(ask)
            except (RemotingError, MQClientError) as failure:
                error = failure
            if each is not None:
                each()

    async def _ask(self, ask: Ask) -> RemotingCommand:
        timeout_ms = ask.timeout_ms or self.instance.settings.mq_client_api_timeout
        if ask.address:
            return await self.instance.invoke(ask.address, ask.command, timeout_ms)
        return await self.instance.name_servers.ask(ask.command, timeout_ms)
