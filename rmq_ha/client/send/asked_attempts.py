"""AskedAttempts: attempts for sends that need an ability which not every broker has. The broker is
asked about it before the message goes there.

Spec: remoting.md, section 11.1; timer.md, section 2.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.send.abilities import Abilities
from rmq_ha.client.send.comparing import ComparingBrokers
from rmq_ha.client.send.send import Send
from rmq_ha.client.send.send_attempts import Attempts
from rmq_ha.client.send.timer_brokers import TimerBrokers


class AskedAttempts(Attempts):
    """
    Sends messages of idempotent producers only to brokers that compare ids, and messages with a
    timer only to brokers that have timers.

    A message is written to the connection that the broker's answer came by, so no other process can
    get it.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._abilities: list[Abilities] = [TimerBrokers(self._now_ms)]
        if self._config.idempotent:
            self._abilities.append(ComparingBrokers(self._instance.client_id))
        self._asking: dict[tuple[Abilities, str], list[Deferred[None]]] = {}

    def ask_first(self, send: Send, now: float) -> None:
        send.started = now
        try:
            queue = send.queue = self._choose(send)
            send.address = address = self._address(queue.broker_name)
        except Exception as error:
            self._in_vain(send, error)
            return
        is_open = self._instance.open_channel(address) is not None
        unknown = [
            ability
            for ability in self._abilities_for(send)
            if not is_open or ability.must_ask(send, address)
        ]
        send.call, send.is_handed = None, False
        self._ask_all(None, unknown, send, queue)

    def failed(self, send: Send, error: BaseException) -> None:
        """
        Note a failure as `Attempts.failed` does. A send that a broker may have stored then keeps
        its queue, so that its repetition is recognized.
        """
        super().failed(send, error)
        for ability in self._abilities_for(send):
            ability.failed(send)

    def _abilities_for(self, send: Send) -> list[Abilities]:
        return [ability for ability in self._abilities if ability.concerns(send)]

    def _ask_all(self, _: None, unknown: list[Abilities], send: Send, queue: MessageQueue) -> None:
        """Ask about one ability after the other, and then send."""
        if not unknown:
            self._go(send, queue)
            return
        asked = send.current = self._ask(unknown[0], send, send.address)
        asked.addCallbacks(self._ask_all, self._not_asked, (unknown[1:], send, queue), {}, (send,))

    def _ask(self, ability: Abilities, send: Send, address: str) -> "Deferred[None]":
        """Ask a broker about an ability; sends to one broker share one question."""
        later: Deferred[None] = Deferred()
        left_s = max(0.0, send.until - self._clock.seconds())
        later.addTimeout(left_s, self._clock, lambda _, __: _late(address))
        waiting = self._asking.setdefault((ability, address), [])
        waiting.append(later)
        if len(waiting) == 1:
            limit_ms = self._config.send_msg_timeout_ms
            asked = self._instance.invoke(address, ability.question(send), limit_ms)
            asked.addCallback(ability.heard, address).addBoth(self._tell, ability, address)
        return later

    def _tell(self, heard: "Failure | None", ability: Abilities, address: str) -> None:
        for later in self._asking.pop((ability, address)):
            if not later.called:
                later.callback(heard)

    def _go(self, send: Send, queue: MessageQueue) -> None:
        address = send.address
        try:
            for ability in self._abilities_for(send):
                ability.check(send, address)
            if (
                self._address(queue.broker_name) != address
                or self._instance.open_channel(address) is None
            ):
                raise RemotingConnectError(f"lost the connection to {address} before the send")
        except Exception as error:
            self._in_vain(send, error)
            return
        send.is_out = self._config.idempotent
        send.aimed = queue
        self.go(send, self._clock.seconds())

    def _not_asked(self, failure: Failure, send: Send) -> None:
        self._in_vain(send, failure.value)

    def _in_vain(self, send: Send, error: Any) -> None:
        """
        End an attempt before the broker got the message. It counts as an attempt, as attempts would
        never end otherwise.
        """
        send.tries += 1
        if send.queue is not None:
            send.brokers += (send.queue.broker_name,)
        send.errback(error)


def _late(address: str) -> Failure:
    error = RemotingTimeout(f"{address} did not say in time what it can do")
    return Failure(error)  # type: ignore[no-untyped-call]
