"""PopEnds: acknowledges popped messages that are consumed, and has failed ones come again later.

Spec: pop.md, sections 2.5, 2.6, 6 and 12 (hazard 11).
"""

from collections.abc import Coroutine, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.timing.timer import wait_at_most
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.pop_api import PopApi
from rmq_ha.client.consume.send_back import SendBack
from rmq_ha.client.lookup.pops import lease_of
from rmq_ha.client.rules.errors import ReceiptExpired
from rmq_ha.client.rules.lease_queue import LeaseQueue
from rmq_ha.client.rules.messages import MessageExt

_ACK_TIMEOUT_MS = 30_000
_SECONDS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""RocketMQ's delays in s, by how often a message came again before; the last one holds on."""
_TO_DEAD_LETTERS = -1


class PopEnds:
    """Ends the leases of popped messages when the listener has answered."""

    log = Logger()

    def __init__(self, base: ConsumerBase, api: PopApi, send_back: SendBack) -> None:
        self._base = base
        self._api = api
        self._send_back = send_back
        self._pending: set[Deferred[None]] = set()

    def answered(
        self,
        popped: LeaseQueue,
        messages: Sequence[MessageExt],
        failed: Sequence[MessageExt],
        delay_level: int,
    ) -> None:
        """
        Acknowledge the messages of a call, but not those that failed.

        :param delay_level: the context's `delay_level_when_next_consume`.
        """
        popped.end(messages)
        ids = {id(message) for message in failed}
        for message in messages:
            if id(message) in ids:
                self._begin(self._try_later(message, delay_level))
            else:
                self._begin(self._ack(message))

    def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Have messages that no listener got come again at once."""
        for message in messages:
            self._begin(self._change(message, 0))

    async def finish(self, clock: IReactorTime, within_ms: int) -> None:
        """Wait for answers of brokers, at most this time, in ms."""
        if self._pending:
            waiting: list[Deferred[Any]] = []
            for pending in self._pending:
                over: Deferred[None] = Deferred()
                pending.addBoth(over.callback)
                waiting.append(over)
            await wait_at_most(clock, within_ms / 1000, DeferredList(waiting))

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        pending = Deferred.fromCoroutine(steps)
        if pending.called:
            return
        self._pending.add(pending)
        pending.addBoth(lambda _: self._pending.discard(pending))

    async def _try_later(self, message: MessageExt, delay_level: int) -> None:
        times = message.reconsume_times
        is_last = delay_level < 0 or times >= self._send_back.max_reconsume_times
        give_back = self._send_back.give_back
        if is_last and await give_back(message, _TO_DEAD_LETTERS, message.broker_name):
            await self._ack(message)
            return
        index = min(delay_level if delay_level > 0 else times, len(_SECONDS) - 1)
        await self._change(message, _SECONDS[index] * 1000)

    async def _ack(self, message: MessageExt) -> None:
        topic = self._base.wrap(message.topic)
        lease = lease_of(message, self._base.group, topic)
        assert lease is not None
        try:
            await self._api.ack(topic, lease, message.msg_id, _ACK_TIMEOUT_MS)
        except ReceiptExpired as error:
            self.log.info("{id} was consumed after its time: {why}", id=message.msg_id, why=error)
        except RmqHaError as error:
            self.log.warn("{id} is not acknowledged: {why}", id=message.msg_id, why=error)

    async def _change(self, message: MessageExt, invisible_ms: int) -> None:
        topic = self._base.wrap(message.topic)
        lease = lease_of(message, self._base.group, topic)
        assert lease is not None
        try:
            await self._api.change(topic, lease, invisible_ms, message.msg_id, _ACK_TIMEOUT_MS)
        except RmqHaError as error:
            self.log.info(
                "{id} comes again when its time is over: {why}", id=message.msg_id, why=error
            )
