"""Attempts: chooses queue and broker of an attempt, writes its frame, and notes its result.

Spec: remoting.md, section 11.1 (sendKernelImpl).
"""

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, RemotingTimeout
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.hooks import SendContext, SendHook
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.errors import NoMaster, NoRoute
from rmq_ha.client.rules.faults import LatencyFaults
from rmq_ha.client.rules.messages import SendResult
from rmq_ha.client.rules.send_frames import Destination, send_command
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.retrying import is_retriable
from rmq_ha.client.send.send import PublishTopic, Send, choose_by

_MASTER = 0


class Attempts:
    """
    The part of a producer that makes single attempts at brokers.

    :ivar faults: the latency table; used when `send_latency_fault_enable` is on.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        config: ProducerConfig,
        group: str,
        hooks: Sequence[SendHook],
        look_again: Callable[[PublishTopic, float], object] = lambda topic, now: None,
    ) -> None:
        """
        :param group: the producer group, with its namespace.
        :param look_again: called with a topic whose brokers did not answer, and with the clock's
            time in seconds.
        """
        self.faults = LatencyFaults(instance.host.random.randrange(1 << 16))
        self._instance = instance
        self._vip = instance.vip if instance.settings.vip_channel_enabled else None
        self._config = config
        self._group = group
        self._hooks = tuple(hooks)
        self._look_again = look_again
        self._clock = instance.host.clock
        self._now_ms = instance.host.now_ms
        self._signs = instance.settings.credentials is not None
        self._answered: dict[str, float] = {}

    def go(self, send: Send, now: float) -> None:
        """
        Attempt a send to a queue of its topic, whose route is known.

        The `callback` of the send gets the answer, whatever its code. Its `errback` gets a
        `RemotingError`, an `MQClientError` or an exception of a selector or hook.
        """
        if send.asks and send.aimed is None:
            self.ask_first(send, now)
            return
        send.started = now
        send.tries += 1
        try:
            queue = send.queue = self._choose(send)
            broker_name = queue.broker_name
            send.brokers += (broker_name,)
            address = send.address = self._address(broker_name)
            if self._hooks:
                self._call_hooks_before(send)
            left_ms = (send.until - now) * 1000
            to = self._destination(send, broker_name)
            channel = None if self._signs else self._instance.open_channel(address)
            if channel is not None:
                self._write(channel, to, queue.queue_id, send, left_ms)
                return
            command = send_command(to, queue.queue_id, send.outgoing, self._now_ms())
            waiting = self._instance.invoke(address, command, left_ms)
        except Exception as error:
            send.errback(error)
            return
        send.call, send.current, send.is_handed = None, waiting, True
        waiting.addCallbacks(send.callback, lambda failure: send.errback(failure.value))

    def ask_first(self, send: Send, now: float) -> None:
        """Ask the broker of a send's next queue what it can do, and then attempt the send."""
        raise NotImplementedError

    def has_left(self, send: Send) -> bool:
        """Whether the broker of the current attempt may have got it and may still answer."""
        return send.call is not None or (
            send.is_handed and self._instance.open_channel(send.address) is not None
        )

    def go_oneway(self, send: Send) -> "Deferred[None]":
        """
        Attempt a one-way send, which gets no answer.

        :returns: fires when the connection has the send; fails with the errors of `go`.
        """
        send.tries += 1
        try:
            queue = send.queue = self._choose(send)
            send.brokers += (queue.broker_name,)
            send.address = self._address(queue.broker_name)
            if self._hooks:
                self._call_hooks_before(send)
            return self._hand_over_when_read(send, queue)
        except Exception as error:
            return fail(error)

    def _hand_over_when_read(self, send: Send, queue: MessageQueue) -> "Deferred[None]":
        """
        Hand a one-way send over once the connection is not full: sends to a broker that does not
        read would fill the memory.
        """
        channel = self._instance.open_channel(send.address)
        if channel is None or not channel.is_full:
            return self._hand_over(send, queue)
        ready = send.current = channel.writable()
        ready.addTimeout(max(0.0, send.until - self._clock.seconds()), self._clock)
        return ready.addCallback(lambda _: self._hand_over_when_read(send, queue))

    def _hand_over(self, send: Send, queue: MessageQueue) -> "Deferred[None]":
        """Write a one-way send to its connection now, if one is open."""
        to, address = self._destination(send, queue.broker_name), send.address
        channel = None if self._signs else self._instance.open_channel(address)
        if channel is None:
            command = send_command(to, queue.queue_id, send.outgoing, self._now_ms())
            return self._instance.oneway(address, command)
        channel.write(to.frame(queue.queue_id, send.outgoing, self._now_ms(), 0, oneway=True))
        return succeed(None)

    def succeeded(self, send: Send, result: SendResult) -> None:
        """Note that an attempt has ended: a broker has stored the message, perhaps not safely."""
        now = self._clock.seconds()
        self._answered[send.address] = now
        if self._config.send_latency_fault_enable:
            self._note(send, now, isolated=False)
        if self._hooks:
            self._call_hooks_after(send, result, None)

    def failed(self, send: Send, error: BaseException) -> None:
        """Note that an attempt got no answer, or one with an error code."""
        now = self._clock.seconds()
        if self._config.send_latency_fault_enable and send.brokers:
            self._note(send, now, isolated=True)
        if is_retriable(error):
            self._look_again(send.topic, now)
        # If a broker has answered no send since then, its connection may be dead without a sign.
        heard = self._answered.get(send.address, -1.0)
        if isinstance(error, RemotingTimeout) and heard < send.started:
            self._instance.close(send.address)
        if self._hooks:
            self._call_hooks_after(send, None, error)

    def _choose(self, send: Send) -> MessageQueue:
        if send.aimed is not None:
            queue, send.aimed = send.aimed, None
            return queue
        if send.fixed_queue is not None:
            return send.fixed_queue
        info = send.topic.info
        if info is None or not info.queues:
            raise NoRoute(send.topic.name, "no broker of it takes messages", retriable=True)
        if send.selector is not None:
            return choose_by(send.selector, info.queues, send, self._config)
        choice = send.topic.choice
        if self._config.send_latency_fault_enable:
            return choice.next_available(info, self.faults, self._clock.seconds() * 1000)
        return choice.next(info, send.brokers[-1] if send.brokers else None)

    def _address(self, broker_name: str) -> str:
        address = self._instance.routes.brokers.get(broker_name, {}).get(_MASTER)
        if not address:
            raise NoMaster(
                f"the broker {broker_name} has no master at the moment, as far as the name"
                " servers know"
            )
        return address if self._vip is None else self._vip(address)

    def _destination(self, send: Send, broker_name: str) -> Destination:
        key = send.code, broker_name
        destinations = send.topic.destinations
        destination = destinations.get(key)
        if destination is None:
            destination = destinations[key] = Destination(
                send.code,
                self._group,
                send.topic.name,
                broker_name,
                self._config.create_topic_key,
                self._config.default_topic_queue_nums,
                self._instance.settings.unit_mode,
            )
        return destination

    def _write(
        self, channel: Channel, to: Destination, queue_id: int, send: Send, left_ms: float
    ) -> None:
        """
        Send on an open connection as `Channel.invoke` does, but encode the frame in one step. The
        connection calls `send.callback` or `send.errback`.

        :param left_ms: how long to wait for the answer, in ms.
        """
        calls = channel.pending
        opaque = calls.note(send, send.until, left_ms)
        try:
            frame = to.frame(queue_id, send.outgoing, self._now_ms(), opaque)
        except ProtocolViolation:
            calls.forget(opaque)
            raise
        send.call = calls, opaque
        channel.write(frame)

    def _note(self, send: Send, now: float, *, isolated: bool) -> None:
        latency_ms = (now - send.started) * 1000
        self.faults.update(send.brokers[-1], latency_ms, now * 1000, isolated=isolated)

    def _call_hooks_before(self, send: Send) -> None:
        queue = send.queue
        assert queue is not None
        send.context = SendContext(
            self._group,
            send.messages,
            queue,
            send.address,
            self._instance.client_id,
            self._now_ms(),
        )
        for hook in self._hooks:
            hook.before_send(send.context)

    def _call_hooks_after(
        self, send: Send, result: SendResult | None, error: BaseException | None
    ) -> None:
        context = send.context
        if context is None:
            return
        send.context = None
        context.result, context.error = result, error
        context.elapsed_ms = (self._clock.seconds() - send.started) * 1000
        for hook in self._hooks:
            try:
                hook.after_send(context)
            except Exception:
                self.log.failure("a hook after a send to {topic}", topic=context.queue.topic)
