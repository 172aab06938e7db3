"""Sender: a producer's sends under way, with their places in flight, attempts and deadlines.

Spec: remoting.md, section 11.1 (sendDefaultImpl).
"""

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.base.timing.timer import rearm
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.errors import (
    MQClientError,
    SendFailed,
    SendTimeout,
    TooManyInFlight,
)
from rmq_ha.client.rules.in_flight import InFlight, SendAdmission
from rmq_ha.client.rules.messages import SendResult, SendStatus
from rmq_ha.client.rules.resting import Pauses, Resting
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.publish_topics import PublishTopics
from rmq_ha.client.send.retrying import (
    Next,
    after_answer,
    after_failure,
    after_no_route,
    final_error,
    is_retriable,
)
from rmq_ha.client.send.send import Send, result_of
from rmq_ha.client.send.send_attempts import Attempts

_GRANULARITY_S = 0.05


class Sender:
    """
    Carries sends out, from their place in flight to their end.

    A send waits for a place in flight if too many are in flight. In flight it makes up to
    `1 + retry_times_when_send_failed` attempts in a row. If they fail, it may rest, without a
    place, until an attempt of another send has found that a broker is back.

    A send that its caller cancels ends at once. If a broker may have it already, it keeps its place
    in flight until the broker answers or its time is over: the limit counts sends at brokers.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        random: Random,
        topics: PublishTopics,
        attempts: Attempts,
        config: ProducerConfig,
        on_wait: Callable[[str, Exception], object] = lambda topic, error: None,
    ) -> None:
        """
        :param on_wait: called with a topic and the reason when sends begin to wait for a broker.
        """
        self._on_wait = on_wait
        self._clock = clock
        self._topics = topics
        self._attempts = attempts
        self._config = config
        self._in_flight: InFlight[Send] = InFlight(
            config.max_in_flight, config.max_in_flight_bytes, config.max_waiting
        )
        self._resting: Resting[Send] = Resting(
            Pauses(random, config.retry_backoff_ms, config.retry_backoff_max_ms)
        )
        self._rest_timer: IDelayedCall | None = None
        self._live: dict[Send, None] = {}
        self._pumping = False
        self._timer: IDelayedCall | None = None
        self._turn: IDelayedCall | None = None
        self._drained: Deferred[None] | None = None
        self._ready: dict[Deferred[None], None] = {}

    @property
    def in_flight(self) -> int:
        """How many sends wait for their brokers' answers."""
        return self._in_flight.count

    @property
    def _is_busy(self) -> bool:
        return bool(self._live or self._in_flight.waiting or self._resting.count)

    def ready(self) -> "Deferred[None]":
        """Wait for a free place in flight; each free place wakes one waiter."""
        if self._in_flight.has_room and not self._ready:
            return succeed(None)
        later: Deferred[None] = Deferred(lambda later: self._ready.pop(later, None))
        self._ready[later] = None
        return later

    async def drain(self) -> None:
        """Wait until all sends have ended; after `stop_timeout_ms` the rest of them fail."""
        self._let_in(len(self._ready))
        if self._is_busy:
            self._drained = Deferred()
            timer = self._clock.callLater(self._config.stop_timeout_ms / 1000, self._give_up)
            await self._drained
            if timer.active():
                timer.cancel()
        for left in (self._timer, self._rest_timer, self._turn):
            if left is not None and left.active():
                left.cancel()

    def admit(self, send: Send) -> "Deferred[Any]":
        """
        Begin a send, now or when a place in flight is free.

        :returns: fires with a `SendResult`, or with None for a one-way send; fails as
            `Producer.send` does.
        """
        admission = self._in_flight.admit(send, send.size)
        if admission is SendAdmission.REFUSED:
            return fail(self._too_many())
        send.decider = self
        later: Deferred[Any] = Deferred(lambda _: self._cancelled(send))
        send.later = later
        if admission is SendAdmission.GO:
            self._launch(send, send.since)
        else:
            self._watch(send)
        return later

    def _watch(self, send: Send) -> None:
        """Let a waiting send expire at its deadline."""
        if send.deadline < inf:
            self._timer = rearm(self._clock, self._timer, send.deadline, self._expire)

    def _too_many(self) -> TooManyInFlight:
        away = f", {self._resting.count} for a broker to come back" if self._resting.count else ""
        return TooManyInFlight(
            f"{self._in_flight.count} sends are in flight and {self._in_flight.waiting} wait for a"
            f" place{away}: send more slowly, or raise max_in_flight or max_waiting"
        )

    def _launch(self, send: Send, now: float) -> None:
        self._live[send] = None
        if self._resting.rests and self._resting.holds(send, send.stands_on):
            if (
                not send.tries
                and self._in_flight.waiting + self._resting.count >= self._config.max_waiting
            ):
                self._end_send(send, self._too_many())
            else:
                self._rest(send, now)
            return
        send.begin(now)
        if send.topic.info is not None:
            self._attempt(send, now)
            return
        send.call, send.is_handed = None, False
        looked_up = send.current = self._topics.find(send.topic)
        looked_up.addTimeout(
            max(0.0, send.until - now), self._clock, lambda _, __: _no_answer(send)
        )
        looked_up.addCallbacks(self._found, self._no_route, (send,), {}, (send,))

    def _found(self, _: object, send: Send) -> None:
        now = self._clock.seconds()
        send.begin(now)
        self._attempt(send, now)

    def _attempt(self, send: Send, now: float) -> None:
        if not send.oneway:
            self._attempts.go(send, now)
            return
        handed = send.current = self._attempts.go_oneway(send)
        handed.addCallbacks(self._handed, self._not_handed, (send,), {}, (send,))

    def answered(self, send: Send, response: RemotingCommand) -> None:
        try:
            result = result_of(send, response)
        except MQClientError as error:
            self._try_further(send, error)
            return
        self._attempts.succeeded(send, result)
        if result.send_status is not SendStatus.SEND_OK and not send.is_cancelled:
            now = self._clock.seconds()
            if after_answer(send, result, now, self._config) is Next.ATTEMPT:
                self._attempt(send, now)
                return
        self._end_send(send, result)

    def failed(self, send: Send, error: BaseException) -> None:
        if isinstance(error, Exception) and not _is_unwanted(send, error):
            self._try_further(send, error)
            return
        self._attempts.failed(send, error)
        self._end_send(send, error)

    def _handed(self, _: object, send: Send) -> None:
        self._end_send(send, None)

    def _not_handed(self, failure: Failure, send: Send) -> None:
        error = failure.value
        if isinstance(error, TimeoutError):
            error = RemotingTimeout(f"{send.address} did not read for all that time")
        if isinstance(error, Exception) and not _is_unwanted(send, error):
            error = final_error(send, error, self._clock.seconds())
        self._end_send(send, error)

    def _try_further(self, send: Send, error: Exception) -> None:
        """
        After a failed attempt, try another broker, or rest and try later, or end the send with an
        error.
        """
        self._attempts.failed(send, error)
        if send.is_cancelled:
            self._end_send(send, error)
            return
        now = self._clock.seconds()
        step = after_failure(send, error, now, self._config)
        if step is Next.ATTEMPT:
            self._attempt(send, now)
        elif step is Next.REST:
            self._rest(send, now)
        else:
            self._end_send(send, final_error(send, error, now))

    def _no_route(self, failure: Failure, send: Send) -> None:
        error, now = send.given_up or failure.value, self._clock.seconds()
        assert error is not None
        has_met = self._topics.has_met_brokers
        if after_no_route(send, error, now, self._config, has_met=has_met) is Next.REST:
            self._rest(send, now)
        else:
            self._end_send(send, error)

    def _end_send(self, send: Send, outcome: SendResult | BaseException | None) -> None:
        if self._resting.rests:
            self._learn(send, outcome)
        self._leave(send)
        if self._drained is not None:
            self._check_drained()
        if send.is_cancelled:
            return
        later = send.later
        assert later is not None
        if not isinstance(outcome, BaseException):
            later.callback(outcome)
        elif send.stored is not None:
            later.callback(send.stored)
        else:
            later.errback(_failure(outcome))

    def _leave(self, send: Send) -> None:
        """Free the place in flight of a send for others."""
        self._live.pop(send, None)
        if not self._in_flight.release(send.size) and not self._ready:
            return
        if send.is_cancelled:
            self._turn = rearm(self._clock, self._turn, self._clock.seconds(), self._give_places)
        else:
            self._give_places()

    def _give_places(self) -> None:
        """
        Give free places to waiting sends, and wake callers of `ready`.

        After a cancelled send this happens a reactor turn later, as its caller may be about to
        cancel the next send too.
        """
        self._pump()
        if self._ready and self._in_flight.has_room:
            self._let_in(1 if self._in_flight.count else len(self._ready))

    # Rest

    def _rest(self, send: Send, now: float) -> None:
        """Let a send rest until its broker is back or its own turn to try has come."""
        self._watch(send)
        if self._resting.add(send, send.stands_on, now):
            self.log.warn(
                "sends to {topic} wait for a broker: {reason}",
                topic=send.topic.shown,
                reason=send.error,
            )
            if send.error is not None:
                self._on_wait(send.topic.shown, send.error)
        self._arm_rest()
        self._leave(send)

    def _arm_rest(self) -> None:
        due = self._resting.next_due()
        self._rest_timer = rearm(self._clock, self._rest_timer, due, self._try_again)

    def _try_again(self) -> None:
        """Wake one resting send for each key that is not served, if the key's pause is over."""
        now = self._clock.seconds()
        for send in self._resting.due(now):
            self._wake(send, now)
        self._arm_rest()

    def _wake(self, send: Send, now: float) -> None:
        if self._in_flight.admit(send, send.size, again=True) is SendAdmission.GO:
            self._launch(send, now)

    def _learn(self, send: Send, outcome: object) -> None:
        """
        Learn from the end of a send whether a broker is back. If the send was stored, or failed for
        a reason that will not pass, the sends that rest for its broker go on. Else the next of them
        tries after a pause.
        """
        now, key = self._clock.seconds(), send.stands_on
        if isinstance(outcome, BaseException) and (
            is_retriable(outcome) or isinstance(outcome, CancelledError)
        ):
            self._resting.ended(send, now)
            self._arm_rest()
            return
        waiting, lasted = self._resting.back(send, key, now)
        if waiting:
            self.log.info(
                "a broker of {topic} is back after {lasted:.1f} s: {count} sends go on",
                topic=send.topic.shown,
                lasted=lasted,
                count=len(waiting),
            )
        for waiter in waiting:
            self._wake(waiter, now)

    def _let_in(self, count: int) -> None:
        """Wake the first `count` callers of `ready`."""
        for later in list(self._ready)[:count]:
            if self._ready.pop(later, later) is None:
                later.callback(None)

    def _pump(self) -> None:
        """Launch waiting sends that have a place now, in a loop: many may fail at once."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while (send := self._in_flight.next()) is not None:
                self._launch(send, self._clock.seconds())
        finally:
            self._pumping = False

    def _cancelled(self, send: Send) -> None:
        """End a send that its caller has cancelled; a broker may have got it already."""
        send.is_cancelled = True
        if self._forget(send):
            self._check_drained()
        elif not send.oneway and self._attempts.has_left(send):
            self._live.pop(send, None)
            self._resting.ended(send, self._clock.seconds())
            self._arm_rest()
            self._check_drained()
        elif send.current is not None:
            send.current.cancel()

    def _break_off(self, send: Send) -> None:
        """End the current attempt of a send, or its look-up of a route."""
        if send.call is not None:
            calls, opaque = send.call
            calls.forget(opaque)
            self.failed(send, CancelledError())
        elif send.current is not None:
            send.current.cancel()

    def _forget(self, send: Send) -> bool:
        """Remove a send from those that wait or rest; return False if it did neither."""
        if self._in_flight.forget(send):
            self._resting.ended(send, self._clock.seconds())  # it may have been the one to try
        elif not self._resting.forget(send):
            return False
        self._arm_rest()
        return True

    def _expire(self) -> None:
        """Fail waiting and resting sends whose deadline is over."""
        now = self._clock.seconds()
        earliest: float | None = None
        for send in [*self._in_flight.items_waiting(), *self._resting.items()]:
            if send.deadline > now:
                if send.deadline < inf:
                    earliest = min(send.deadline, earliest or inf)
                continue
            self._withdraw(send, self._too_late(send, now))
        if earliest is not None:
            earliest = max(earliest, now + _GRANULARITY_S)
        self._timer = rearm(self._clock, None, earliest, self._expire)

    def _too_late(self, send: Send, now: float) -> Exception:
        if send.error is not None:
            send.until = now
            return final_error(send, send.error, now)
        if self._resting.holds(send, send.stands_on):
            return SendTimeout(f"no broker of {send.topic.shown} came back in time")
        waited = (now - send.since) * 1000
        return SendTimeout(
            f"no place in flight within {waited:.0f} ms: {self._in_flight.count} sends are there"
            " already"
        )

    def _withdraw(self, send: Send, error: Exception) -> None:
        if self._forget(send) and send.later is not None:
            send.later.errback(error)

    def _give_up(self) -> None:
        """Fail all remaining sends, as the time that `stop` allows is over."""
        limit_ms = self._config.stop_timeout_ms
        reason = f"the producer was stopped, and this send took more than {limit_ms} ms"
        for send in [*self._in_flight.items_waiting(), *self._resting.items()]:
            self._withdraw(send, SendFailed(reason, send.brokers))
        for send in list(self._live):
            send.given_up = SendFailed(reason, send.brokers)
            self._break_off(send)
        self._check_drained()

    def _check_drained(self) -> None:
        if self._drained is not None and not self._is_busy:
            drained, self._drained = self._drained, None
            drained.callback(None)


def _no_answer(send: Send) -> Failure:
    return _failure(SendTimeout(f"no route for {send.topic.shown} within {send.timeout_ms:.0f} ms"))


def _is_unwanted(send: Send, error: Exception) -> bool:
    """Whether a send ended because its caller cancelled it."""
    return isinstance(error, CancelledError) and send.given_up is None


def _failure(error: BaseException) -> Failure:
    return Failure(error)  # type: ignore[no-untyped-call]
