"""SendAsking: a producer's sends as an `Asking`, without a reactor.

Spec: remoting.md, chapter 4 and section 11.1.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from rmq_ha.base.errors import RemotingError, RemotingTimeout
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.process import Process
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.lookup.asking import Ask, Asking
from rmq_ha.client.rules.errors import MQClientError, NoRoute
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus
from rmq_ha.client.rules.namespaces import unwrap, wrap
from rmq_ha.client.rules.queue_choice import Selector
from rmq_ha.client.rules.resting import Pauses
from rmq_ha.client.rules.routes import borrowed_route, publish_info, why_not_published
from rmq_ha.client.rules.send_frames import Destination, send_command
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig, client_id
from rmq_ha.client.send.abilities import Abilities
from rmq_ha.client.send.comparing import ComparingBrokers
from rmq_ha.client.send.retrying import (
    Next,
    after_answer,
    after_failure,
    after_no_route,
    final_error,
)
from rmq_ha.client.send.send import (
    PublishTopic,
    Send,
    check_oneway,
    check_topic,
    choose_by,
    result_of,
)
from rmq_ha.client.send.send_maker import SendMaker
from rmq_ha.client.send.timer_brokers import TimerBrokers

_MOST_TOPICS = 10_000


class ThreadTimes(NamedTuple):
    """
    The clocks of a thread, and its way to wait.

    :ivar seconds: returns the time of the clock for deadlines, in seconds.
    :ivar sleep: waits for a number of seconds.
    :ivar now_ms: returns the current time, in ms since the epoch.
    """

    seconds: Callable[[], float]
    sleep: Callable[[float], object]
    now_ms: Callable[[], int]


class SendAsking:
    """
    Gives messages their ids, chooses queues, and repeats failed attempts.

    :param route: asks for the route of a topic (with namespace), and may cache it.
    :param stale: called with a topic (with namespace) whose brokers did not answer.
    """

    def __init__(
        self,
        settings: ClientConfig,
        config: ProducerConfig,
        process: Process,
        route: Callable[[str], Asking[TopicRoute]],
        stale: Callable[[str], object],
        times: ThreadTimes,
        random: Random,
    ) -> None:
        self.config = config
        self._settings = settings
        self._route = route
        self._stale = stale
        self._seconds, self._sleep, self._now_ms = times
        self._pauses = Pauses(random, config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._has_met_brokers = False
        self._random = random
        self._maker = SendMaker(
            settings, config, process, random, self._topic, times.seconds, times.now_ms
        )
        self._topics: dict[str, PublishTopic] = {}
        self._abilities: list[Abilities] = [TimerBrokers(times.now_ms)]
        if config.idempotent:
            self._abilities.append(ComparingBrokers(client_id(settings, process, times.now_ms())))

    def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> Asking[SendResult]:
        """
        Send one message, with the retries of `ProducerConfig`.

        :raises IllegalMessage: the message breaks a rule of RocketMQ.
        :raises MQClientError: no broker has confirmed the message; the error says what to do.
        """
        return (yield from self.deliver(self._maker.of_message(message, queue, selector, arg)))

    def oneway(
        self, message: Message, queue: MessageQueue | None = None
    ) -> Asking[tuple[str, Any]]:
        """Return address and request of a send that gets no answer; raises as `send` does."""
        send = self._maker.of_message(message, queue)
        check_oneway(send)
        masters = yield from self._find(send)
        address = self._aim(send, masters)
        return address, self._request(send)

    def in_parts(
        self, messages: Sequence[Message], queue: MessageQueue | None = None
    ) -> Generator[Send, SendResult, list[SendResult]]:
        """Yield the sends of a batch (`SendMaker.in_parts`); give each of them to `deliver`."""
        return self._maker.in_parts(messages, queue)

    def _topic(self, topic: str) -> PublishTopic:
        known = self._topics.get(topic)
        if known is None:
            namespace = self._settings.namespace
            full = wrap(namespace, topic)
            check_topic(full)
            if len(self._topics) >= _MOST_TOPICS:
                self._topics.clear()
            known = self._topics[topic] = PublishTopic(
                full, unwrap(namespace, full), self._random.randrange(1 << 30)
            )
        return known

    def deliver(self, send: Send) -> Asking[SendResult]:
        """
        Send in rounds of attempts, with longer and longer pauses between them.

        :raises MQClientError: as raised by `send`.
        """
        rounds = 0
        while True:
            outcome = yield from self._round(send)
            if outcome is not None:
                return outcome
            left_s = max(0.0, send.deadline - self._seconds())
            self._stale(send.topic.name)
            self._sleep(min(self._pauses.seconds(rounds), left_s))
            rounds += 1

    def _round(self, send: Send) -> Asking[SendResult | None]:
        """
        Make the attempts of one round: find the route, then try brokers without a pause, until one
        has stored the message safely, an error is final, or the round's time is over.

        :returns: the result; None if another round is to follow after a pause.
        :raises MQClientError: the send has failed for good.
        :raises RemotingError: no route could be fetched, and no further round may follow.
        """
        try:
            masters = yield from self._find(send)
        except (RemotingError, MQClientError) as error:
            now, has_met = self._seconds(), self._has_met_brokers
            if after_no_route(send, error, now, self.config, has_met=has_met) is Next.REST:
                return None
            raise
        self._has_met_brokers = True
        # The round's time begins after the route was found: finding it may have taken all of a
        # round.
        send.begin(self._seconds())
        # `outcome` is what the last attempt brought; before the first, what the last round brought.
        outcome: SendResult | Exception = send.error or RemotingTimeout("the time is over")
        step = Next.ATTEMPT
        while step is Next.ATTEMPT:
            # One attempt at the broker of the next queue; `step` says whether another one follows.
            left_ms = int((send.until - self._seconds()) * 1000)
            if left_ms <= 0:
                break
            try:
                send.address = self._aim(send, masters)
                if send.asks:
                    left_ms = yield from self._when_sure(send, left_ms)
                response = yield Ask(self._request(send), send.address, left_ms)
                outcome = result_of(send, response)
                if outcome.send_status is SendStatus.SEND_OK:
                    return outcome
                step = after_answer(send, outcome, self._seconds(), self.config)
            except (RemotingError, MQClientError) as error:
                if send.asks:
                    for ability in self._abilities_for(send):
                        ability.failed(send)
                outcome = error
                step = after_failure(send, outcome, self._seconds(), self.config)
        if not isinstance(outcome, Exception):
            return outcome  # stored, though not safely yet, and no other broker is to be tried
        # The last attempt failed. An earlier attempt may have stored the message, though not safely
        # yet. That says more than a later error.
        if send.stored is not None:
            return send.stored
        if step is Next.ATTEMPT:  # but the round has no time for it
            step = after_failure(send, outcome, send.until, self.config)
        if step is Next.REST:
            return None
        raise final_error(send, outcome, self._seconds())

    def _abilities_for(self, send: Send) -> list[Abilities]:
        return [ability for ability in self._abilities if ability.concerns(send)]

    def _when_sure(self, send: Send, left_ms: int) -> Asking[int]:
        """
        Make sure that the broker of the send's address can do what the send needs. Ask the broker
        if that is not known.

        :param left_ms: how much of the round's time is left, in ms.
        :returns: how much of that time is left afterwards, in ms; at least 1.
        :raises DuplicatesPossible: the broker does not compare ids, or not for long enough.
        :raises NoTimers: the broker cannot deliver the message when it is due.
        """
        began, address = self._seconds(), send.address
        for ability in self._abilities_for(send):
            if ability.must_ask(send, address):
                ability.heard((yield Ask(ability.question(send), address, left_ms)), address)
            ability.check(send, address)
        send.is_out = self.config.idempotent
        return max(1, left_ms - int((self._seconds() - began) * 1000))

    def _find(self, send: Send) -> Asking[dict[str, str]]:
        """
        Find the route of a send's topic or else of its template topic; return the addresses of the
        masters by broker name.
        """
        topic = send.topic
        try:
            route = yield from self._route(topic.name)
        except NoRoute:
            try:
                template = yield from self._route(self.config.create_topic_key)
            except NoRoute:
                raise NoRoute(
                    topic.name,
                    "no broker has it, and none makes topics by itself: create it",
                    retriable=topic.was_there,
                ) from None
            route = borrowed_route(template, self.config.default_topic_queue_nums)
        topic.info = publish_info(topic.shown, route)
        if not topic.info.queues:
            raise NoRoute(topic.name, why_not_published(topic.name, route), retriable=True)
        topic.was_there = True
        return {
            item.broker_name: item.addresses[MASTER_ID]
            for item in route.brokers
            if MASTER_ID in item.addresses
        }

    def _aim(self, send: Send, masters: Mapping[str, str]) -> str:
        """
        Choose the queue of the next attempt, and return the address of the queue's master.

        :param masters: addresses of masters by broker name.
        :raises NoRoute: the queue's broker has no master.
        :raises IllegalMessage: the selector did not return one of the queues.
        """
        info = send.topic.info
        assert info is not None
        if send.fixed_queue is not None:
            queue = send.fixed_queue
        elif send.selector is not None:
            queue = choose_by(send.selector, info.queues, send, self.config)
        else:
            queue = send.topic.choice.next(info, send.brokers[-1] if send.brokers else None)
        send.queue = queue
        send.tries += 1
        send.brokers += (queue.broker_name,)
        address = masters.get(queue.broker_name)
        if address is None:
            reason = f"the broker {queue.broker_name} has no master"
            raise NoRoute(send.topic.name, reason, retriable=True)
        return address

    def _request(self, send: Send) -> Any:
        queue = send.queue
        assert queue is not None
        to = Destination(
            send.code,
            wrap(self._settings.namespace, self.config.producer_group),
            send.topic.name,
            queue.broker_name,
            self.config.create_topic_key,
            self.config.default_topic_queue_nums,
            self._settings.unit_mode,
        )
        return send_command(to, queue.queue_id, send.outgoing, self._now_ms())
