"""Answers PULL_MESSAGE (11): messages of a queue, at once or when one arrives.

Spec: remoting.md, chapter 6; store.md, section 8.4.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from msgspec import structs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.acl.refusals import RefusalLog
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.interfaces import IConsumeMessageHook, IMessageFilter, IMessageStore
from rmq_ha.base.model.flags import PERM_READ, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.base.model.message import BrokerMessage, GetMessageResult
from rmq_ha.base.model.properties import DELAY, KEYS, TAGS, encode_properties
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import OFFSET_MOVED_EVENT, SYSTEM_PREFIX, is_of_rocketmq_5
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.seams import Times
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.server.broker.hold import HeldPull, PullRequestHoldService
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.processors.pull_filters import PullFilters
from rmq_ha.server.broker.processors.pull_header import PullHeader, pull_header
from rmq_ha.server.broker.processors.pull_response import found_frame
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.store.journal import Role

MAX_MSG_NUMS = 4096
"""More messages than a response ever holds; it only limits how much of a queue one request may
scan."""

UNSURE_MS = 1000
"""How long a pull waits at a broker that lacks its offset and is not sure to lead, ms."""

_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
}
_PREFIX = len(SYSTEM_PREFIX)
_EMPTY_QUEUE = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)


class QueueDelivery(Protocol):
    """The queue whose messages are sent, and the group that gets them."""

    @property
    def group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...


class ConsumeHooks:
    """
    Shows messages to the hooks before they are sent, and counts them.

    :param hooks: of any kind; those that provide `IConsumeMessageHook` are called.
    """

    def __init__(self, stats: BrokerStats, hooks: Sequence[Any] = ()) -> None:
        self._stats = stats
        self._hooks = [hook for hook in hooks if IConsumeMessageHook.providedBy(hook)]

    def deliver(
        self, pull: QueueDelivery, client_host: str, records: list[bytes], size: int, began: float
    ) -> None:
        """
        Take note of the messages that one response carries.

        :param size: bytes of all messages.
        :param began: time in seconds when the pull was begun.
        """
        if self._hooks:
            context = {
                "topic": pull.topic,
                "queue_id": pull.queue_id,
                "consumer_group": pull.group,
                "client_host": client_host,
                "count": len(records),
                "size": size,
            }
            for hook in self._hooks:
                hook.before_consume(context)
        self._stats.read(pull.topic, pull.queue_id, pull.group, records, size, began)


class PullMessageProcessor:
    """
    Answers pulls, holds those that found nothing, and commits the offsets that they carry.

    :param role: decides whether this broker may correct a consumer's offset: only a master may,
        while no other broker can lead.
    :param deliveries: called for every response that carries messages.
    """

    log = Logger()

    def __init__(
        self,
        *,
        store: IMessageStore,
        tables: BrokerTables,
        hold: PullRequestHoldService,
        deliveries: ConsumeHooks,
        configuration: BrokerConfiguration,
        role: Role,
        times: Times,
    ) -> None:
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._client_offsets = tables.client_offsets
        self._filters = PullFilters(configuration.broker, tables.consumers, tables.consumer_filters)
        self._hold = hold
        self._deliveries = deliveries
        self._broker = configuration.broker
        self._store_config = configuration.store
        self._role = role
        self._store_host = configuration.store_host
        self._now_ms = times.now_ms
        self._seconds = times.clock.seconds
        self._moved = RefusalLog(configuration.ours.offset_moved_event_interval / 1000)

    def routes(self) -> dict[int, Handler]:
        """Return handlers by request code, for the main port only."""
        return {RequestCode.PULL_MESSAGE: self.pull_message}

    def pull_message(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """
        Answer a pull, or hold it.

        Spec: remoting.md, sections 6.2 to 6.6.
        """
        try:
            pull = pull_header(request.ext or {})
            group = self._group_for(channel, pull)
            message_filter = (
                self._filters.of_request(pull)
                if pull.sys_flag & PULL_SUBSCRIPTION
                else self._filters.of_group(group, pull)
            )
        except RequestRejected as error:
            return request.response(error.code, error.remark, {})
        try:
            return self._run(channel, request, pull, group, message_filter, channel.served_at)
        finally:
            if pull.sys_flag & PULL_COMMIT_OFFSET and self._role.corrects_offsets:
                self._client_offsets.commit(
                    pull.group, pull.topic, pull.queue_id, pull.commit_offset
                )

    @property
    def _is_slave(self) -> bool:
        return self._role.is_slave

    def _group_for(self, channel: Channel, pull: PullHeader) -> SubscriptionGroupConfig:
        """
        Return the pull's group, if it may read from this queue.

        Spec: remoting.md, section 6.2, in its order.
        """
        broker = self._broker
        if not broker.broker_permission & PERM_READ:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.broker_ip1}] pulling message is forbidden",
            )
        group = self._groups.find(pull.group)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{pull.group}] does not exist; create it with "
                "mqadmin updateSubGroup",
            )
        if not group.consume_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {pull.group}"
            )
        if pull.topic[:_PREFIX] == SYSTEM_PREFIX and is_of_rocketmq_5(pull.topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the topic[{pull.topic}] is for brokers only: pulling from it is forbidden",
            )
        topic = self._topics.get(pull.topic)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{pull.topic}] not exist, apply first please!"
            )
        if not topic.perm & PERM_READ:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"the topic[{pull.topic}] pulling message is forbidden"
            )
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[{channel.remote_text}]",
            )
        return group

    def _run(
        self,
        channel: Channel,
        request: RemotingCommand,
        pull: PullHeader,
        group: SubscriptionGroupConfig,
        message_filter: IMessageFilter | None,
        began: float,
        *,
        was_held: bool = False,
    ) -> RemotingCommand | None:
        """
        Read from the store and answer, or hold the pull.

        In order: read messages; correct the offset of a consumer that is too far ahead; choose the
        broker for the next pull; answer with messages if there are some. Otherwise correct an
        offset that the queue does not have, or hold a pull that may wait.

        :param began: time in seconds when the pull was begun.
        :param was_held: whether the pull was held before, so that it must be answered now.
        :returns: the response; None if it was written already, or the pull is held.
        """
        max_nums = pull.max_nums if pull.max_nums < MAX_MSG_NUMS else MAX_MSG_NUMS
        result: GetMessageResult | None = self._store.get_message(
            pull.group, pull.topic, pull.queue_id, pull.queue_offset, max_nums, message_filter
        )
        if result is None:
            return request.response(
                ResponseCode.SYSTEM_ERROR, "the store cannot be read: it is stopping or failed"
            )
        if result.later is not None:
            self._answer_later(channel, request, pull, group, message_filter, result.later)
            return None
        is_watched = f"{pull.topic}@{pull.group}" in self._client_offsets.not_pulled
        if is_watched or pull.queue_offset > result.max_offset:
            result = self._set_back(pull, result)
        suggest = 0
        if self._broker.slave_read_enable:  # see remoting.md, section 6.4
            suggest = (
                group.which_broker_when_consume_slowly
                if result.suggest_pulling_from_slave
                else group.broker_id
            )
        if result.status is GetMessageStatus.FOUND:
            return self._answer_found(channel, request, pull, result, suggest, began)
        code = _CODES[result.status]
        # As in RocketMQ. At offset 0 of an empty queue there is nothing to correct, so the pull
        # waits.
        if result.status in _EMPTY_QUEUE and pull.queue_offset == 0:
            code = ResponseCode.PULL_NOT_FOUND
        may_wait = pull.sys_flag & PULL_SUSPEND and not was_held
        if code is ResponseCode.PULL_OFFSET_MOVED:
            if self._role.corrects_offsets:
                self._offset_moved(pull, result.next_begin_offset)
            elif not self._store_config.offset_check_in_slave:
                # A slave sends the client to its master. A broker that may be deposed knows no
                # other, so the client waits.
                if may_wait and not self._is_slave:
                    soon = structs.replace(pull, suspend_ms=min(pull.suspend_ms, UNSURE_MS))
                    if self._held(channel, request, soon, group, message_filter):
                        return None
                code, suggest = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
                result = result._replace(next_begin_offset=pull.queue_offset)
        elif (
            code is ResponseCode.PULL_NOT_FOUND
            and may_wait
            and self._held(channel, request, pull, group, message_filter)
        ):
            return None
        return request.response(code, result.status.name, _offsets(result, suggest))

    def _answer_later(
        self,
        channel: Channel,
        request: RemotingCommand,
        pull: PullHeader,
        group: SubscriptionGroupConfig,
        message_filter: IMessageFilter | None,
        later: "Deferred[None]",
    ) -> None:
        """Run a pull again when the messages that it asks for have come from an object store."""
        again = partial(self._run, channel, request, pull, group, message_filter)

        def failed(failure: Failure) -> None:
            remark = f"an old message cannot be read: {failure.getErrorMessage()}"
            refused = request.response(ResponseCode.SYSTEM_ERROR, remark)
            self._resume(channel, request, pull, lambda began: refused)

        later.addCallbacks(lambda _: self._resume(channel, request, pull, again), failed)

    def _answer_found(
        self,
        channel: Channel,
        request: RemotingCommand,
        pull: PullHeader,
        result: GetMessageResult,
        suggest: int,
        began: float,
    ) -> RemotingCommand | None:
        records = result.messages
        size = sum(map(len, records))
        self._deliveries.deliver(pull, channel.remote_text, records, size, began)
        if request.binary or request.flag & FLAG_ONEWAY:
            return request.response(
                ResponseCode.SUCCESS, "FOUND", _offsets(result, suggest), b"".join(records)
            )
        channel.write(
            found_frame(
                request.opaque,
                suggest,
                result.next_begin_offset,
                result.max_offset,
                result.min_offset,
                records,
                size,
            )
        )
        return None

    def _held(
        self,
        channel: Channel,
        request: RemotingCommand,
        pull: PullHeader,
        group: SubscriptionGroupConfig,
        message_filter: IMessageFilter | None,
    ) -> bool:
        suspend_ms = pull.suspend_ms
        if not self._broker.long_polling_enable:
            suspend_ms = self._broker.short_polling_time_mills
        expression_size = 0
        if pull.sys_flag & PULL_SUBSCRIPTION:
            expression_size = len(pull.subscription or "")
        # Keep only what the answer needs; fields and body would stay in memory while the pull is
        # held.
        request = replace(request, ext=None, body=None, remark=None)
        pull = structs.replace(pull, subscription=None, expression_type=None)
        again = partial(self._run, channel, request, pull, group, message_filter, was_held=True)
        return self._hold.hold(
            HeldPull(
                channel,
                pull.topic,
                pull.queue_id,
                pull.queue_offset,
                suspend_ms,
                message_filter,
                lambda held: self._resume(channel, request, pull, again),
                expression_size,
            )
        )

    def _resume(
        self,
        channel: Channel,
        request: RemotingCommand,
        pull: PullHeader,
        again: Callable[[float], RemotingCommand | None],
    ) -> None:
        """
        Run a held pull again and send its answer; never raises.

        Many pulls may be held for one client, and a message for each may come at the same moment.
        While the client does not read its connection, it is told to come back, so that the messages
        do not wait in memory.
        """
        try:
            if channel.is_full:
                response: RemotingCommand | None = _come_back(request, pull)
            else:
                response = again(self._seconds())
        except RequestRejected as error:
            response = request.response(error.code, error.remark)
        except Exception as error:
            self.log.failure(
                "a held pull of {topic} queue {queue_id} failed",
                topic=pull.topic,
                queue_id=pull.queue_id,
            )
            response = request.response(
                ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
            )
        if response is not None and not request.is_oneway:
            try:
                channel.send(response)
            except ProtocolViolation as violation:  # its messages do not fit into a frame
                self.log.error(
                    "no answer to {peer}: {error}", peer=channel.remote_text, error=violation
                )

    def _set_back(self, pull: PullHeader, result: GetMessageResult) -> GetMessageResult:
        """
        Return an answer that sends the consumer back, if its offset is beyond all messages that it
        can have read at this master, see `ClientOffsets`. Else return `result`.
        """
        if not self._role.corrects_offsets:
            return result
        start = self._client_offsets.set_back(
            pull.group, pull.topic, pull.queue_id, pull.queue_offset, result.max_offset
        )
        if start is None:
            return result
        return result._replace(
            status=GetMessageStatus.OFFSET_OVERFLOW_BADLY,
            next_begin_offset=max(start, result.min_offset),
            messages=[],
        )

    def _offset_moved(self, pull: PullHeader, new_offset: int) -> None:
        """
        Log a reset for operators, and store one message in OFFSET_MOVED_EVENT.

        A group that repeats such pulls leaves one message in `offsetMovedEventInterval`, as each
        message costs the log more than the pull costs the client.
        """
        of = f"{pull.group} {pull.topic} {pull.queue_id}"
        line = self._moved.count(of, self._seconds())
        if line is None:
            return
        self.log.warn(
            "group {group} asked for offset {queue_offset} of {topic} queue {queue_id}: "
            "sent to {new_offset} ({silent} such pulls before it are not logged)",
            silent=line.silent,
            group=pull.group,
            topic=pull.topic,
            queue_id=pull.queue_id,
            queue_offset=pull.queue_offset,
            new_offset=new_offset,
        )
        properties = {KEYS: pull.group, DELAY: "0", TAGS: pull.group}
        event = {
            "consumerGroup": pull.group,
            "messageQueue": {
                "brokerName": self._broker.broker_name,
                "queueId": pull.queue_id,
                "topic": pull.topic,
            },
            "offsetNew": new_offset,
            "offsetRequest": pull.queue_offset,
        }
        self._store.put_message(
            BrokerMessage(
                topic=OFFSET_MOVED_EVENT,
                queue_id=0,
                body=json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode(),
                born_host=self._store_host,
                store_host=self._store_host,
                born_timestamp=self._now_ms(),
                properties=properties,
                properties_string=encode_properties(properties),
                wait_store_ok=False,  # no client waits for this event
            )
        )


def _come_back(request: RemotingCommand, pull: PullHeader) -> RemotingCommand:
    here = str(pull.queue_offset)
    return request.response(
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "the client reads too slowly",
        {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": here,
            "maxOffset": here,
            "minOffset": "0",
        },
    )


def _offsets(result: GetMessageResult, suggest: int) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": str(suggest),
        "nextBeginOffset": str(result.next_begin_offset),
        "maxOffset": str(result.max_offset),
        "minOffset": str(result.min_offset),
    }
