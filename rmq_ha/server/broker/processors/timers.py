"""RECALL_MESSAGE (370), and what a slave asks about its master's timers (60, 61).

Spec: timer.md, sections 6.2, 9 and 13.5.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RequestRejected, StoreError
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.flags import PERM_WRITE
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.recall_handle import RECALL_HANDLE, TIMED_TRANSACTIONS, RecallHandle
from rmq_ha.base.wire.timer_bodies import DUE_WITHIN
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.timer_recalls import RecallEnd, RecallOutcome, TimerRecalls
from rmq_ha.server.door import Settlement
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.timer.reports import BOUNDS_S
from rmq_ha.server.store.timer.request import recall_record
from rmq_ha.server.store.timer.timers import TimerMessage

_UNAVAILABLE = "recall failed, broker service not available"
_LONGEST = 19


class TimerProcessor:
    """
    Answers the requests about timer messages: recalls, the progress of delivery (for Java slaves),
    and counts by topic.

    :param now_ms: ms since the epoch.
    :param epoch: returns the epoch of the master; 0 where no controller elects it.
    """

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        recalls: TimerRecalls,
        now_ms: Callable[[], int],
        epoch: Callable[[], int],
    ) -> None:
        self._configuration = configuration
        self._broker = configuration.broker
        self._ours = configuration.ours
        self._store = store
        self._timers = store.timers
        self._topics = topics
        self._recalls = recalls
        self._now_ms = now_ms
        self._epoch = epoch
        self._counter = 0

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.GET_TIMER_CHECK_POINT: self.check_point,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    # ------------------------------------------------------------ 370

    def recall(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer RECALL_MESSAGE (370) when the recall is stored, or was refused."""
        header = fields.header(request)
        ext = {"MSG_REGION": self._broker.region_id}
        if self._timers.is_enabled:
            ext[TIMED_TRANSACTIONS] = "true"
        try:
            handle = self._checked_handle(header.get("topic"), header.get(RECALL_HANDLE) or "")
        except RequestRejected as rejected:
            return request.response(rejected.code, rejected.remark, ext)
        ended = self._recall(channel.remote, handle, header.get("producerGroup") or "")

        def answer(end: Settlement) -> RemotingCommand:
            if end.remark is not None:
                return request.response(end.code, end.remark, ext)
            return request.response(ext={"msgId": handle.unique_key, **ext})

        return ended.addCallback(answer)

    def take_back(
        self, born: Address, topic: str, handle: str, group: str
    ) -> "tuple[str, Deferred[Settlement]]":
        """
        Recall a message, for a client of remoting or of the gRPC door.

        :param born: the client's address.
        :param group: the client's producer group.
        :param handle: the recall handle, from the answer to the message's send.
        :returns: the message's unique key; and a Deferred that fires when the recall is stored or
            refused.
        :raises RequestRejected: the recall is refused at once.
        """
        checked = self._checked_handle(topic, handle)
        return checked.unique_key, self._recall(born, checked, group)

    def _recall(self, born: Address, handle: RecallHandle, group: str) -> "Deferred[Settlement]":
        make = partial(self._record, born, handle, group)
        ended = Deferred.fromCoroutine(self._recalls.by_handle(handle, make))
        ended.addErrback(self._failed)
        return ended.addCallback(self._settlement, handle)

    def _checked_handle(self, topic: str | None, text: str) -> RecallHandle:
        """
        Check a recall in RocketMQ's order, and return its handle.

        :param topic: None if the request does not name it.
        :raises RequestRejected: with the code and the remark of the first check that fails.
        """
        if not self._timers.is_enabled:
            # As RocketMQ 4.9, because clients learn by it which brokers have timers.
            raise RequestRejected(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {RequestCode.RECALL_MESSAGE} not supported: timerWheelEnable is "
                "false",
            )
        if topic is None:
            raise fields.missing_field("topic")
        if not self._ours.recall_message_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
            )
        if self._store.is_slave:
            raise RequestRejected(ResponseCode.SLAVE_NOT_AVAILABLE, _UNAVAILABLE)
        is_closed = not self._broker.broker_permission & PERM_WRITE
        if (
            self._now_ms() < self._broker.start_accept_send_request_time_stamp
            or (is_closed and not self._ours.allow_recall_when_broker_not_writeable)
            or not self._timers.is_ready
        ):
            raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if self._topics.get(topic) is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist"
            )
        handle = RecallHandle.parse(text)
        if handle is None:
            raise _illegal("recall handle is invalid")
        if handle.topic != topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != self._broker.broker_name:
            raise _illegal(_UNAVAILABLE)
        if _number(handle.time) is None:
            raise _illegal("recall failed, timestamp invalid")
        return handle

    @staticmethod
    def _failed(failure: Failure) -> RecallEnd:
        failure.trap(StoreError)  # type: ignore[no-untyped-call]
        return RecallEnd(RecallOutcome.NOT_STORED)

    def _record(
        self, born: Address, handle: RecallHandle, group: str, waiting: TimerMessage
    ) -> BrokerMessage:
        return recall_record(
            handle.topic,
            handle.unique_key,
            waiting.out_ms,
            now_ms=self._now_ms(),
            born=born,
            store=self._configuration.store_host,
            group=group,
            source=waiting.source.text,
            with_topic=self._ours.append_topic_for_timer_delete_key,
        )

    def _settlement(self, end: RecallEnd, handle: RecallHandle) -> Settlement:
        if end.outcome is RecallOutcome.RECALLED:
            return Settlement(ResponseCode.SUCCESS)
        if end.outcome is RecallOutcome.NOT_STORED:
            return Settlement(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        if end.outcome is RecallOutcome.NOT_NOW:
            return Settlement(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        now_ms, time = self._now_ms(), _number(handle.time) or 0
        # Only a message that waits beyond its time can be recalled then, so this comes last.
        if not now_ms < time < now_ms + self._ours.timer_max_delay_sec * 1000:
            remark = "recall failed, timestamp invalid"
        else:
            remark = "recall failed, the message is not waiting"
        return Settlement(ResponseCode.ILLEGAL_OPERATION, remark)

    # ------------------------------------------------------------ 60, 61

    def check_point(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_TIMER_CHECK_POINT (60) with the progress of the delivery, up to which a Java
        slave enqueues timer messages.
        """
        if not self._timers.is_enabled:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.response(body=self._timers.checkpoint_bytes(self._epoch()))

    def metrics(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer GET_TIMER_METRICS (61) with the number of waiting messages by topic; if the request
        has the field `DUE_WITHIN`, by the time until they are due instead.
        """
        if not self._timers.is_enabled:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        if DUE_WITHIN in (request.ext or {}):
            return self._timers.due_within().addCallback(self._answer_bounds, request)
        return self._timers.waiting_by_topic().addCallback(self._answer_counts, request)

    @staticmethod
    def _answer_bounds(counts: Sequence[int], request: RemotingCommand) -> RemotingCommand:
        by_bound = dict(zip(map(str, BOUNDS_S), counts, strict=True))
        return request.response(body=fastjson.encode({DUE_WITHIN: by_bound}))

    def _answer_counts(
        self, counts: Mapping[str, int], request: RemotingCommand
    ) -> RemotingCommand:
        now_ms = self._now_ms()
        self._counter += 1
        body = {
            "dataVersion": DataVersion(now_ms, self._counter),
            "timingCount": {
                topic: {"count": count, "timeStamp": now_ms} for topic, count in counts.items()
            },
        }
        return request.response(body=fastjson.encode(body))


def _illegal(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.ILLEGAL_OPERATION, remark)


def _number(text: str) -> int | None:
    """Return a time in ms; None if it is no number."""
    is_number = text.isascii() and text.isdigit() and len(text) < _LONGEST
    return int(text) if is_number else None
