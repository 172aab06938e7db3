"""PULL_MESSAGE (11).

Spec: remoting.md, chapter 6; store.md, section 8.4.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.logger import Logger

from rmq_ha.acl.refusals import RefusalLog
from rmq_ha.broker.hold import HeldPull, PullRequestHoldService
from rmq_ha.broker.processors import fields
from rmq_ha.broker.processors.fields import Handler
from rmq_ha.broker.processors.pull_filters import PullFilters
from rmq_ha.broker.processors.pull_response import found_frame
from rmq_ha.broker.stats import BrokerStats
from rmq_ha.broker.tables.client_offsets import ClientOffsets
from rmq_ha.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.broker.tables.topics import TopicConfigManager
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.errors import ProtocolViolation, RequestRejected
from rmq_ha.interfaces import IConsumeMessageHook, IMessageFilter, IMessageStore
from rmq_ha.model.flags import PERM_READ, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.model.message import Address, GetMessageResult, Message
from rmq_ha.model.properties import DELAY, KEYS, TAGS, encode_properties
from rmq_ha.model.status import BrokerRole, GetMessageStatus
from rmq_ha.model.topic_config import SubscriptionGroupConfig
from rmq_ha.model.topics import OFFSET_MOVED_EVENT
from rmq_ha.remoting.channel import Channel
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import RemotingCommand

MAX_MSG_NUMS = 4096
"""More than a response ever holds; only bounds how much of a queue one request may scan."""

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
_EMPTY_QUEUE = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)


@dataclass(slots=True)
class _Pull:
    """A request that passed the checks."""

    group: SubscriptionGroupConfig
    topic: str
    queue_id: int
    queue_offset: int
    max_nums: int
    sys_flag: int
    message_filter: IMessageFilter | None
    expression_size: int


class PullMessageProcessor:
    """
    Answers pulls, holds those that found nothing, commits the offsets that came along.

    :param store_host: our own address, for OFFSET_MOVED_EVENT messages.
    :param hooks: those that provide `IConsumeMessageHook` run before every response that carries
        messages.
    """

    log = Logger()

    def __init__(
        self,
        *,
        store: IMessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumer_offsets: ConsumerOffsetManager,
        client_offsets: ClientOffsets,
        filters: PullFilters,
        hold: PullRequestHoldService,
        stats: BrokerStats,
        configuration: BrokerConfiguration,
        store_host: Address,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        hooks: Sequence[Any] = (),
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumer_offsets = consumer_offsets
        self._client_offsets = client_offsets
        self._filters = filters
        self._hold = hold
        self._stats = stats
        self._broker = configuration.broker
        self._store_config = configuration.store
        self._store_host = store_host
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._moved = RefusalLog(configuration.ours.offset_moved_event_interval / 1000)
        self._hooks = [hook for hook in hooks if IConsumeMessageHook.providedBy(hook)]

    def routes(self) -> dict[int, Handler]:
        """Request code to handler; for the main port only."""
        return {RequestCode.PULL_MESSAGE: self.pull_message}

    def pull_message(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """
        Answer a pull, or hold it.

        Spec: remoting.md, sections 6.2 to 6.6.
        """
        header = fields.header(request)
        try:
            pull = self._checked(channel, header)
            commit_offset = suspend_ms = 0
            if pull.sys_flag & PULL_COMMIT_OFFSET:
                commit_offset = fields.int64(header, "commitOffset")
            if pull.sys_flag & PULL_SUSPEND:
                suspend_ms = fields.int64(header, "suspendTimeoutMillis")
        except RequestRejected as error:
            return request.response(error.code, error.remark, {})
        try:
            return self._run(channel, request, pull, suspend_ms)
        finally:
            if pull.sys_flag & PULL_COMMIT_OFFSET and not self._is_slave:
                self._client_offsets.commit(
                    pull.group.group_name, pull.topic, pull.queue_id, commit_offset
                )

    @property
    def _is_slave(self) -> bool:
        return self._store_config.broker_role is BrokerRole.SLAVE

    def _checked(self, channel: Channel, header: Mapping[str, str]) -> _Pull:
        """Spec: remoting.md, section 6.2, in its order."""
        group_name, topic = fields.text(header, "consumerGroup"), fields.text(header, "topic")
        if not self._broker.broker_permission & PERM_READ:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.broker_ip1}] pulling message is forbidden",
            )
        group = self._groups.find(group_name)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist; create it with "
                "mqadmin updateSubGroup",
            )
        if not group.consume_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}"
            )
        queue_id = self._checked_queue(channel, topic, fields.int32(header, "queueId"))
        sys_flag = fields.int32(header, "sysFlag")
        if sys_flag & PULL_SUBSCRIPTION:
            message_filter = self._filters.of_request(topic, header)
            expression_size = len(header.get("subscription", ""))
        else:
            expression_size = 0
            message_filter = self._filters.of_group(group, topic, header)
        return _Pull(
            group,
            topic,
            queue_id,
            fields.int64(header, "queueOffset"),
            min(fields.int32(header, "maxMsgNums"), MAX_MSG_NUMS),
            sys_flag,
            message_filter,
            expression_size,
        )

    def _checked_queue(self, channel: Channel, topic: str, queue_id: int) -> int:
        config = self._topics.get(topic)
        if config is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        if not config.perm & PERM_READ:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden"
            )
        if not 0 <= queue_id < config.read_queue_nums:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[{channel.remote_text}]",
            )
        return queue_id

    def _run(
        self, channel: Channel, request: RemotingCommand, pull: _Pull, suspend_ms: int | None
    ) -> RemotingCommand | None:
        """
        Look into the store and answer.

        :param suspend_ms: None: this pull was held already.
        """
        began_ms = self._stats.steady_ms()
        result: GetMessageResult | None = self._store.get_message(
            pull.group.group_name,
            pull.topic,
            pull.queue_id,
            pull.queue_offset,
            pull.max_nums,
            pull.message_filter,
        )
        if result is None:
            return request.response(
                ResponseCode.SYSTEM_ERROR, "the store cannot be read: it is stopping or failed"
            )
        suggest = self._suggest(pull.group, result)
        if result.status is GetMessageStatus.FOUND:
            return self._found(channel, request, pull, result, suggest, began_ms)
        code = _CODES[result.status]
        if result.status in _EMPTY_QUEUE and pull.queue_offset == 0:
            code = ResponseCode.PULL_NOT_FOUND
        if code is ResponseCode.PULL_OFFSET_MOVED:
            if self._is_slave and not self._store_config.offset_check_in_slave:
                code, suggest = ResponseCode.PULL_RETRY_IMMEDIATELY, pull.group.broker_id
            elif not self._is_slave:
                self._offset_moved(pull, result.next_begin_offset)
        elif (
            code is ResponseCode.PULL_NOT_FOUND
            and pull.sys_flag & PULL_SUSPEND
            and suspend_ms is not None
            and self._held(channel, request, pull, suspend_ms)
        ):
            return None
        return request.response(code, result.status.name, _offsets(result, suggest))

    def _found(
        self,
        channel: Channel,
        request: RemotingCommand,
        pull: _Pull,
        result: GetMessageResult,
        suggest: int,
        began_ms: int,
    ) -> RemotingCommand | None:
        records = result.messages
        size = sum(map(len, records))
        group = pull.group.group_name
        if self._hooks:
            context = {
                "topic": pull.topic,
                "queue_id": pull.queue_id,
                "consumer_group": group,
                "client_host": channel.remote_text,
                "count": len(records),
                "size": size,
            }
            for hook in self._hooks:
                hook.before_consume(context)
        self._stats.read(pull.topic, pull.queue_id, group, records, size, began_ms)
        if request.binary or request.is_oneway:
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

    def _suggest(self, group: SubscriptionGroupConfig, result: GetMessageResult) -> int:
        """Spec: remoting.md, section 6.4."""
        if not self._broker.slave_read_enable:
            return 0
        if result.suggest_pulling_from_slave:
            return group.which_broker_when_consume_slowly
        return group.broker_id

    def _held(
        self, channel: Channel, request: RemotingCommand, pull: _Pull, suspend_ms: int
    ) -> bool:
        if not self._broker.long_polling_enable:
            suspend_ms = self._broker.short_polling_time_mills
        # What the answer needs; fields and body would stay in memory for as long as it waits.
        request = replace(request, ext=None, body=None, remark=None)
        return self._hold.hold(
            HeldPull(
                channel,
                pull.topic,
                pull.queue_id,
                pull.queue_offset,
                suspend_ms,
                pull.message_filter,
                lambda held: self._resume(channel, request, pull),
                pull.expression_size,
            )
        )

    def _resume(self, channel: Channel, request: RemotingCommand, pull: _Pull) -> None:
        """
        Run a held pull again and send its answer; never raises.

        Many may be held for one client, and a message for each may come in one moment: while it
        does not read, it is told to come back, so that the messages do not wait in memory.
        """
        try:
            if channel.is_full:
                response: RemotingCommand | None = _come_back(request, pull)
            else:
                response = self._run(channel, request, pull, None)
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
            except ProtocolViolation as violation:  # its messages do not fit a frame
                self.log.error(
                    "no answer to {peer}: {error}", peer=channel.remote_text, error=violation
                )

    def _offset_moved(self, pull: _Pull, new_offset: int) -> None:
        """
        Leave a trace of a reset for operators: one message in OFFSET_MOVED_EVENT.

        A group that asks again and again leaves one in `offsetMovedEventInterval`: each of them
        costs the log more than the pull cost who sent it.
        """
        of = f"{pull.group.group_name} {pull.topic} {pull.queue_id}"
        told = self._moved.refused(of, self._steady_ms() / 1000)
        if told is None:
            return
        self.log.warn(
            "group {group} asked for offset {queue_offset} of {topic} queue {queue_id}: "
            "sent to {new_offset} ({silent} such pulls before it are not logged)",
            silent=told.silent,
            group=pull.group.group_name,
            topic=pull.topic,
            queue_id=pull.queue_id,
            queue_offset=pull.queue_offset,
            new_offset=new_offset,
        )
        group = pull.group.group_name
        properties = {KEYS: group, DELAY: "0", TAGS: group}
        event = {
            "consumerGroup": group,
            "messageQueue": {
                "brokerName": self._broker.broker_name,
                "queueId": pull.queue_id,
                "topic": pull.topic,
            },
            "offsetNew": new_offset,
            "offsetRequest": pull.queue_offset,
        }
        self._store.put_message(
            Message(
                topic=OFFSET_MOVED_EVENT,
                queue_id=0,
                body=json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode(),
                born_host=self._store_host,
                store_host=self._store_host,
                born_timestamp=self._now_ms(),
                properties=properties,
                properties_string=encode_properties(properties),
                wait_store_ok=False,
            )
        )


def _come_back(request: RemotingCommand, pull: _Pull) -> RemotingCommand:
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
