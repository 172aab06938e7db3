"""ComparedAttempts: attempts of a producer with `ProducerConfig.idempotent`.

Spec: remoting.md, section 11.1.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.send.comparing import ComparingBrokers
from rmq_ha.client.send.send import Send
from rmq_ha.client.send.send_attempts import Attempts


class ComparedAttempts(Attempts):
    """
    Sends only to brokers that compare ids, and repeats a send only at the broker name that it was
    sent to before.

    A message is written to the connection that the broker's answer came by, so no other process can
    get it.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._brokers = ComparingBrokers(self._instance.client_id)
        self._asking: dict[str, list[Deferred[None]]] = {}

    def go(self, send: Send, now: float) -> None:
        """Attempt a send as `Attempts.go` does, once the broker has said that it compares ids."""
        send.started = now
        try:
            queue = send.queue = super()._choose(send)
            send.address = address = self._address(queue.broker_name)
        except Exception as error:
            self._in_vain(send, error)
            return
        is_open = self._instance.open_channel(address) is not None
        if is_open and not self._brokers.must_ask(send, address):
            self._go(None, send, queue)
            return
        asked = send.current = self._ask(send, address)
        send.call, send.is_handed = None, False
        asked.addCallbacks(self._go, self._not_asked, (send, queue), {}, (send,))

    def failed(self, send: Send, error: BaseException) -> None:
        """Note a failure as `Attempts.failed` does; the send keeps a queue that may have it."""
        super().failed(send, error)
        self._brokers.failed(send)

    def _choose(self, send: Send) -> MessageQueue:
        """
        Return the queue that was chosen before its broker was asked. A one-way send asks no broker,
        so its queue is chosen here.
        """
        return super()._choose(send) if send.oneway or send.queue is None else send.queue

    def _ask(self, send: Send, address: str) -> "Deferred[None]":
        """Ask a broker whether it compares ids; sends to one broker share one question."""
        later: Deferred[None] = Deferred()
        left_s = max(0.0, send.until - self._clock.seconds())
        later.addTimeout(left_s, self._clock, lambda _, __: _late(address))
        waiting = self._asking.setdefault(address, [])
        waiting.append(later)
        if len(waiting) == 1:
            limit_ms = self._config.send_msg_timeout_ms
            asked = self._instance.invoke(address, self._brokers.question(), limit_ms)
            asked.addCallback(self._brokers.heard, address).addBoth(self._tell, address)
        return later

    def _tell(self, heard: "Failure | None", address: str) -> None:
        for later in self._asking.pop(address):
            if not later.called:
                later.callback(heard)

    def _go(self, _: None, send: Send, queue: MessageQueue) -> None:
        address = send.address
        try:
            self._brokers.check(send, address)
            if (
                self._address(queue.broker_name) != address
                or self._instance.open_channel(address) is None
            ):
                raise RemotingConnectError(f"lost the connection to {address} before the send")
        except Exception as error:
            self._in_vain(send, error)
            return
        send.is_out = True
        super().go(send, self._clock.seconds())

    def _not_asked(self, failure: Failure, send: Send) -> None:
        self._in_vain(send, failure.value)

    def _in_vain(self, send: Send, error: Any) -> None:
        """End an attempt before the broker got the message; else attempts would never end."""
        send.tries += 1
        if send.queue is not None:
            send.brokers += (send.queue.broker_name,)
        send.errback(error)


def _late(address: str) -> Failure:
    error = RemotingTimeout(f"{address} did not say in time whether it compares ids")
    return Failure(error)  # type: ignore[no-untyped-call]
