"""Sends under way: places in flight, attempts, deadlines.

Spec: remoting.md, section 11.1 (sendDefaultImpl).
"""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from rmq_ha.client.errors import MQClientError, SendFailed, SendTimeout, TooManyInFlight
from rmq_ha.client.in_flight import Admission, InFlight
from rmq_ha.client.messages import SendStatus
from rmq_ha.client.publish_topics import PublishTopics
from rmq_ha.client.send_attempts import Attempts
from rmq_ha.client.sends import Send, final_error, may_retry, result_of
from rmq_ha.client.settings import ProducerConfig
from rmq_ha.errors import RemotingTimeout
from rmq_ha.host.timer import rearm
from rmq_ha.wire.command import RemotingCommand

_GRANULARITY_S = 0.01


class Sender:
    """What a producer does with a send, from its place in flight to its end."""

    def __init__(
        self,
        clock: IReactorTime,
        topics: PublishTopics,
        attempts: Attempts,
        config: ProducerConfig,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._attempts = attempts
        self._config = config
        self._in_flight: InFlight[Send] = InFlight(
            config.max_in_flight, config.max_in_flight_bytes, config.max_waiting
        )
        self._live: set[Send] = set()
        self._pumping = False
        self._timer: IDelayedCall | None = None
        self._drained: Deferred[None] | None = None

    @property
    def in_flight(self) -> int:
        """How many sends wait for their brokers."""
        return self._in_flight.count

    async def drain(self) -> None:
        """Wait until all sends are over; after `stop_timeout` they fail."""
        if self._live or self._in_flight.waiting:
            self._drained = Deferred()
            timer = self._clock.callLater(self._config.stop_timeout / 1000, self._give_up)
            await self._drained
            if timer.active():
                timer.cancel()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def admit(self, send: Send) -> "Deferred[Any]":
        """
        Begin, now or when there is a place.

        :returns: fires with a `SendResult`, with None for a one-way send; fails as
            `Producer.send` says.
        """
        admission = self._in_flight.admit(send, send.size)
        if admission is Admission.GO:
            return self._launch(send)
        if admission is Admission.REFUSED:
            return fail(
                TooManyInFlight(
                    f"{self._in_flight.count} sends are in flight and {self._in_flight.waiting}"
                    " wait for a place: send more slowly, or raise max_in_flight or max_waiting"
                )
            )
        later: Deferred[Any] = Deferred(lambda _: self._cancelled(send))
        send.later = later
        self._timer = rearm(self._clock, self._timer, send.deadline, self._expire)
        return later

    def _launch(self, send: Send) -> "Deferred[Any]":
        self._live.add(send)
        if send.topic.info is not None:
            return self._attempt(send)
        left = max(0.0, send.deadline - self._clock.seconds())
        found = send.current = self._topics.find(send.topic)
        found.addTimeout(left, self._clock, lambda _, __: _raise_timeout(send))
        found.addCallback(lambda _: self._attempt(send))
        return found.addErrback(self._no_route, send)

    def _attempt(self, send: Send) -> "Deferred[Any]":
        if send.oneway:
            handed = self._attempts.go_oneway(send).addErrback(self._not_handed, send)
            return handed.addBoth(self._over, send)
        waiting = self._attempts.go(send)
        return waiting.addCallbacks(self._answered, self._failed, (send,), {}, (send,))

    def _answered(self, response: RemotingCommand, send: Send) -> Any:
        try:
            result = result_of(send, response)
        except MQClientError as error:
            return self._again(send, error)
        self._attempts.succeeded(send, result)
        if (
            result.send_status is not SendStatus.SEND_OK
            and self._config.retry_another_broker_when_not_store_ok
            and self._has_another(send)
        ):
            again = self._attempt(send)
            return again.addErrback(lambda _: result)
        return self._over(result, send)

    def _failed(self, failure: Failure, send: Send) -> Any:
        error = failure.value
        if not isinstance(error, Exception):
            return self._over(failure, send)
        if isinstance(error, CancelledError) and send.given_up is None:
            self._attempts.failed(send, error)
            return self._over(failure, send)
        return self._again(send, error)

    def _not_handed(self, failure: Failure, send: Send) -> Failure:
        error = failure.value
        if isinstance(error, TimeoutError):
            error = RemotingTimeout(f"{send.address} did not read for all that time")
        elif not isinstance(error, Exception) or isinstance(error, CancelledError):
            return failure if send.given_up is None else _failure(send.given_up)
        return _failure(final_error(send, error, self._clock.seconds()))

    def _again(self, send: Send, error: Exception) -> Any:
        """Try another broker, or say why not."""
        self._attempts.failed(send, error)
        if may_retry(error) and self._has_another(send):
            return self._attempt(send)
        return self._over(_failure(final_error(send, error, self._clock.seconds())), send)

    def _has_another(self, send: Send) -> bool:
        return (
            not send.is_fixed
            and send.given_up is None
            and send.tries <= self._config.retry_times_when_send_failed
            and self._clock.seconds() < send.deadline
        )

    def _no_route(self, failure: Failure, send: Send) -> Failure:
        if send not in self._live:
            return failure  # an attempt failed, and has told so
        if send.given_up is not None:
            failure = _failure(send.given_up)
        over = self._over(failure, send)
        assert isinstance(over, Failure)
        return over

    def _over(self, result: Any, send: Send) -> Any:
        self._live.discard(send)
        self._in_flight.release(send.size)
        if self._in_flight.waiting:
            self._pump()
        if self._drained is not None:
            self._check_drained()
        return result

    def _pump(self) -> None:
        """Launch those who have a place now; no recursion, however many fail at once."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while (send := self._in_flight.next()) is not None:
                later = send.later
                assert later is not None
                self._launch(send).chainDeferred(later)
        finally:
            self._pumping = False

    def _cancelled(self, send: Send) -> None:
        """Its caller does not want it any more."""
        if not self._in_flight.forget(send) and send.current is not None:
            send.current.cancel()

    def _expire(self) -> None:
        """Sends that waited for a place until their time was over."""
        now = self._clock.seconds()
        earliest: float | None = None
        for send in self._in_flight.items_waiting():
            if send.deadline > now:
                earliest = send.deadline if earliest is None else min(earliest, send.deadline)
                continue
            self._withdraw(
                send,
                SendTimeout(
                    f"no place in flight within {send.timeout_ms:.0f} ms: {self._in_flight.count}"
                    " sends are there already"
                ),
            )
        if earliest is not None:
            earliest = max(earliest, now + _GRANULARITY_S)
        self._timer = rearm(self._clock, None, earliest, self._expire)

    def _withdraw(self, send: Send, error: Exception) -> None:
        if self._in_flight.forget(send) and send.later is not None:
            send.later.errback(error)

    def _give_up(self) -> None:
        """The time that `stop` allows is over."""
        reason = (
            f"the producer was stopped, and this send took more than {self._config.stop_timeout} ms"
        )
        for send in self._in_flight.items_waiting():
            self._withdraw(send, SendFailed(reason))
        for send in list(self._live):
            send.give_up(SendFailed(reason, send.brokers))
        self._check_drained()

    def _check_drained(self) -> None:
        if self._drained is not None and not (self._live or self._in_flight.waiting):
            drained, self._drained = self._drained, None
            drained.callback(None)


def _raise_timeout(send: Send) -> Failure:
    return _failure(SendTimeout(f"no route for {send.topic.shown} within {send.timeout_ms:.0f} ms"))


def _failure(error: Exception) -> Failure:
    return Failure(error)  # type: ignore[no-untyped-call]
