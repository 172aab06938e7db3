"""SEND_MESSAGE in all its forms: single, V2, batch, half, delayed.

The ordinary sends of the Java and Go clients come in runs (`send_runs`). A message with anything
unusual goes to `send`, which handles every kind.

Spec: remoting.md, chapter 4; store.md, sections 2.7 and 2.8.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.flags import (
    MULTI_TAGS,
    TRANSACTION_MASK,
)
from rmq_ha.base.model.message import BrokerMessage, MessageBatch, PutMessageResult
from rmq_ha.base.model.properties import (
    CLUSTER,
    REAL_QID,
    REAL_TOPIC,
    SENT_BY,
    TRAN_MSG,
    WAIT,
    WRITTEN_BY_POPS,
    decode_properties,
    encode_properties,
    waits,
)
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
)
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import RunHandler
from rmq_ha.base.seams import Times
from rmq_ha.base.timing.slices import Lane
from rmq_ha.base.wire.batch import BatchMember
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.send_header import (
    SendHeader,
    decode_send_header,
)
from rmq_ha.server.broker.duplicates import (
    DuplicateWindow,
    Put,
    duplicate_key_of,
    sender_of,
    uniq_key_in,
)
from rmq_ha.server.broker.overload import SendOverload
from rmq_ha.server.broker.processors.batches import BatchReader, hold
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.processors.many_keys import ManyKeys, has_many_keys
from rmq_ha.server.broker.processors.send_answers import SendAnswers
from rmq_ha.server.broker.processors.send_checks import SendChecks
from rmq_ha.server.broker.processors.send_hooks import SendPlugins
from rmq_ha.server.broker.processors.send_runs import GeneralWay, SendRuns
from rmq_ha.server.broker.processors.send_ticket import SendTickets
from rmq_ha.server.broker.processors.timer_sends import TimerSends
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.broker.tables.topics import MULTI_TAG_FILTER
from rmq_ha.server.door import MessageSender, SendOutcome
from rmq_ha.server.store.delay.redirect import stored_place
from rmq_ha.server.store.message_store import KEYS_AT_ONCE, DefaultMessageStore

VERSION_MAX_RECONSUME = 121  # V3_4_9: since then the sender's maxReconsumeTimes counts


class SendRules(NamedTuple):
    """The rules for a single message, for the members of a batch, and for timers of both."""

    checks: SendChecks
    batches: BatchReader
    timers: TimerSends


class StoringSend(NamedTuple):
    """
    A send that is being stored.

    :ivar body: the body of the message or of the batch.
    :ivar place: topic and queue id where it is stored.
    :ivar context: the values that `SendHooks.before_send` returned.
    :ivar began_ms: when its handling began, in ms of the steady clock.
    :ivar record: for a timer message, the record that waits; else None.
    """

    header: SendHeader
    body: bytes
    place: tuple[str, int]
    context: dict[str, Any]
    began_ms: int
    record: BrokerMessage | None = None


class SendMessageProcessor:
    """
    Accepts messages from producers.

    :param rules: the rules that a message must keep.
    :param plugins: the plugins that see each message.
    """

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        tables: BrokerTables,
        stats: BrokerStats,
        times: Times,
        rules: SendRules,
        plugins: SendPlugins,
    ) -> None:
        self._configuration = configuration
        self._broker = configuration.broker
        self._store = store
        self._front: Any = plugins.front
        self._topics = tables.topics
        self._groups = tables.groups
        self._stats = stats
        self._now_ms = times.now_ms
        self._hooks = plugins.hooks
        self._store_host = configuration.store_host
        self._answers = SendAnswers(configuration, store)
        self._overload = SendOverload(self._broker, store)
        self._tickets = SendTickets(configuration, store, tables.topics)
        self._lane = Lane(times.clock)
        self._many_keys = ManyKeys(store.dispatcher)
        self._checks, self._batches, self._timers = rules
        self._window: DuplicateWindow | None = None
        if window_ms := configuration.ours.duplicate_window_millis:
            self._window = DuplicateWindow(store, window_ms, *times)

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def run_handler(self, general: GeneralWay) -> RunHandler | None:
        """
        Return the handler of runs of sends; None if hooks or plugins see each message.

        :param general: handles one request the general way.
        """
        if self._hooks or self._front is not self._store:
            return None
        runs = SendRuns(
            self._configuration,
            self._store,
            self._stats,
            self._overload,
            self._tickets,
            general,
            self._window,
        )
        return runs.send_run

    # ------------------------------------------------------------ one by one

    def send(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | Deferred[RemotingCommand | None]:
        """Answer a send when the store has decided."""
        try:
            header = decode_send_header(request)
            stored: Deferred[Any] = self.store_send(
                channel, header, request.body or b"", request.version
            )
        except RequestRejected as rejected:
            return self._answer_rejected(rejected, request)
        return stored.addCallback(_answer_stored, request).addErrback(self._not_stored, request)

    def store_send(
        self, sender: MessageSender, header: SendHeader, body: bytes, version: int
    ) -> "Deferred[SendOutcome]":
        """
        Check a message or a batch in RocketMQ's order, and store it, for a client of remoting or of
        the gRPC door.

        :param version: version of the client. Old clients do not say how often a message may come
            again.
        :returns: fires when the store has decided. Fails with `CancelledError` if the connection
            was closed meanwhile, and with `RequestRejected`.
        :raises RequestRejected: the send is refused.
        """
        began_ms = self._stats.steady_ms()
        self._stats.ways.general += 1
        self._overload.check(sender)
        topic = self._checks.check(header, self._now_ms())
        if header.batch:
            return self._store_batch(sender, header, topic, body, began_ms)
        message = self._message(sender, header, topic, body, version)
        record = self._timers.decide(message)
        place = stored_place(record, len(self._store.delay_levels))
        context = self._hooks.before_send(sender, header, body)
        put: Put = partial(self._front.put_message, record)
        sent = StoringSend(header, body, place, context, began_ms)
        if self._timers.recalls(message.properties):
            recalled: Deferred[Any] = self._timers.recall(record)
            return recalled.addCallback(self._outcome, sent)
        if record is not message:
            sent = sent._replace(record=record)
        if self._window is not None:
            known_by = duplicate_key_of(message, place[0])
            if known_by is not None:
                also_in = self._timers.other_topic(message, record)
                put = partial(self._window.put, known_by, message.wait_store_ok, put, also_in)
        if has_many_keys(message.properties_string):
            later: Deferred[Any] = self._many_keys.put(put)
            later.addCallback(self._outcome, sent)
            sender.hold(len(body), later)
            return later
        stored: Deferred[Any] = put()
        return stored.addCallback(self._outcome, sent)

    def _answer_rejected(
        self, rejected: RequestRejected, request: RemotingCommand
    ) -> RemotingCommand:
        return request.response(rejected.code, rejected.remark, self._answers.trace_ext)

    def _store_batch(
        self,
        sender: MessageSender,
        header: SendHeader,
        topic: TopicConfig,
        body: bytes,
        began_ms: int,
    ) -> "Deferred[Any]":
        """
        Read and store a batch: a small one at once, a large one over several turns.

        The steps are: read the members (`take`), change those with timers and show the batch to the
        hooks (`put`), compare ids with stored messages (`put_batch`), and store the batch
        (`put_new`). Plugins around the store get the whole batch at once. Later requests of the
        connection wait until the batch is in the log, or until the plugins have stored it.
        """
        properties = decode_properties(header.properties)
        for name in WRITTEN_BY_POPS:
            properties.pop(name, None)
        self._add_own(properties, sender)
        batch = self._batch(sender, header, topic, properties)
        # Timers may turn the members into other records, so these are laid out when all are read.
        may_be_timed = self._timers.may_be_in(header.properties, body)
        is_laid_out = self._front is self._store and not may_be_timed
        layout = self._store.lay_out(batch) if is_laid_out else None
        add = batch.members.extend if layout is None else layout.add
        window, ids = self._window, list[str]()
        words = 0

        def take(members: list[BatchMember]) -> None:
            nonlocal words
            words += sum(text.count(" ") for _, _, text in members)
            if window is not None:
                ids.extend([uniq_key_in(text) for _, _, text in members])
            add(members)

        steps = self._batches.steps(body, encode_properties(properties), take)

        def put(_: object, release: Callable[[object], object]) -> Deferred[Any]:
            nonlocal batch
            if may_be_timed:
                batch = self._timers.batch(batch)
            context = self._hooks.before_send(sender, header, body)
            sent = StoringSend(header, body, (batch.topic, batch.queue_id), context, began_ms)
            stored: Deferred[Any] = (
                self._many_keys.put(put_batch) if words > KEYS_AT_ONCE else put_batch()
            )
            # The batch is in the log by now, so later requests of the connection keep their order
            # after it.
            if layout is not None and words <= KEYS_AT_ONCE:
                release(None)
            return stored.addCallback(self._outcome, sent)

        def put_new() -> Deferred[PutMessageResult]:
            return self._store.put_layout(layout) if layout else self._front.put_batch(batch)

        def put_batch() -> Deferred[PutMessageResult]:
            if window is None:
                return put_new()
            wait = batch.wait_store_ok
            sent_by = properties.get(SENT_BY, "")
            return window.put_batch(batch.topic, ids, sent_by, wait, sender.host, put_new)

        # `steps` reads a small batch without a yield. So this loop runs at most once, for a large
        # batch, and the lane runs the steps after the first.
        for _ in steps:
            later: Deferred[Any] = self._lane.run(sender.host, steps)
            release = hold(sender, len(body), later)
            later.addCallback(lambda _: self._checks.check(header, self._now_ms()))
            later.addCallback(put, release)
            return later.addBoth(release)
        later = put(None, lambda _: None)
        if words > KEYS_AT_ONCE:
            sender.hold(len(body), later)
        return later

    def _not_stored(self, failure: Failure, request: RemotingCommand) -> Any:
        """
        Answer a send that took several turns and failed. If its connection was closed meanwhile,
        there is no answer.
        """
        if isinstance(failure.value, CancelledError):
            return None
        if isinstance(failure.value, RequestRejected):
            return self._answer_rejected(failure.value, request)
        return failure

    def _outcome(
        self, result: PutMessageResult, sent: StoringSend
    ) -> "SendOutcome | Deferred[SendOutcome]":
        status, append = result.status, result.stored
        header, body, place, context, began_ms, record = sent
        if append is None:
            outcome = self._answers.not_stored(status, header, body)
        else:
            queue_id, is_known = result.first_queue_id, result.first_queue_id is not None
            if queue_id is None:
                self._stats.put_took(self._stats.steady_ms() - began_ms, append.message_count)
                self._stats.put(*place, append.message_count, append.size)
                queue_id = header.queue_id
            outcome = self._answers.stored(status, append, queue_id, is_known=is_known)
            if record is not None:
                more = self._timers.answer_fields(record, append, is_known=is_known)
                outcome.fields.update(more)
        self._hooks.after_send(context, outcome.code, outcome.fields)
        topic = place[0] if self._topics.is_ready(header.topic) else header.topic
        return self._topics.when_ready(topic, outcome)

    # ------------------------------------------------------------ messages

    def _add_own(self, properties: dict[str, str], sender: MessageSender) -> None:
        """
        Add the properties that the broker writes into all messages: CLUSTER as RocketMQ does and,
        if repeated sends are recognized, SENT_BY with the sender's account.
        """
        properties[CLUSTER] = self._broker.broker_cluster_name
        if self._window is None:
            return
        properties.pop(SENT_BY, None)
        sent_by = sender_of(sender.account)
        if sent_by:
            properties[SENT_BY] = sent_by

    def _message(
        self,
        sender: MessageSender,
        header: SendHeader,
        topic: TopicConfig,
        body: bytes,
        version: int,
    ) -> BrokerMessage:
        """
        Return the message that a single send asks to store: with the topic that it goes to, and
        without properties that clients may not set.

        :raises RequestRejected: it goes to the retry topic of a group that does not exist, or the
            broker rejects transactions.
        """
        target, queue_id, reconsume = header.topic, header.queue_id, header.reconsume_times
        if target.startswith(RETRY_PREFIX):
            target, queue_id = self._retry_target(header, version)
        properties = decode_properties(header.properties)
        wait = properties.pop(WAIT, None)
        self._timers.clean(properties, is_dead=target != header.topic)
        # A client that forwards a popped message sends the receipt along. The consumer of the copy
        # would acknowledge by it.
        for name in WRITTEN_BY_POPS:
            properties.pop(name, None)
        self._add_own(properties, sender)
        stored = encode_properties(properties)
        if wait is not None:
            properties[WAIT] = wait
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG_FILTER:
            sys_flag |= MULTI_TAGS
        if properties.get(TRAN_MSG, "").lower() == "true":
            if self._broker.reject_transaction_message:
                raise RequestRejected(
                    ResponseCode.NO_PERMISSION,
                    "the broker rejects transaction messages (rejectTransactionMessage=true)",
                )
            # Consumers must not see a half message before its END, so it is stored under another
            # topic. As in RocketMQ, its stored text keeps WAIT, which other messages lose.
            properties[REAL_TOPIC], properties[REAL_QID] = target, str(queue_id)
            target, queue_id = HALF_TOPIC, 0
            sys_flag &= ~TRANSACTION_MASK
            stored = encode_properties(properties)
        return BrokerMessage(
            target,
            queue_id,
            body,
            sender.remote,
            self._store_host,
            header.born_timestamp,
            header.flag,
            sys_flag,
            reconsume,
            0,
            properties,
            stored,
            waits(wait),
        )

    def _retry_target(self, header: SendHeader, version: int) -> tuple[str, int]:
        """
        Return topic and queue id for a message that a client sends to a retry topic itself: the
        retry topic or, after the last attempt, the dead-letter queue.
        """
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._groups.find(group)
        if config is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}: create it with mqadmin updateSubGroup",
            )
        limit = config.retry_max_times
        if version >= VERSION_MAX_RECONSUME and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        if header.reconsume_times < limit:
            return header.topic, header.queue_id
        dead = DLQ_PREFIX + group
        self._topics.check_creation()
        self._topics.create_in_send_back(dead)
        return dead, 0

    def _batch(
        self, sender: MessageSender, header: SendHeader, topic: TopicConfig, common: dict[str, str]
    ) -> MessageBatch:
        """
        Return a batch that has no members yet, with the values that its members will share.

        :param common: the properties that the members share.
        """
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG_FILTER:
            sys_flag |= MULTI_TAGS
        return MessageBatch(
            header.topic,
            header.queue_id,
            sender.remote,
            self._store_host,
            [],
            header.born_timestamp,
            sys_flag,
            header.reconsume_times,
            waits(common.get(WAIT)),
        )


def _answer_stored(outcome: SendOutcome, request: RemotingCommand) -> RemotingCommand:
    return request.response(outcome.code, outcome.remark, outcome.fields)
