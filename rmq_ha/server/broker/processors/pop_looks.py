"""Answers requests that look without taking: PEEK, NOTIFICATION and POLLING_INFO (200052, 200054
and 200055).

Spec: pop.md, section 2.7.
"""

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.interfaces import IMessageStore
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_headers import (
    NotificationAnswer,
    NotificationHeader,
    PeekHeader,
    PollingInfoAnswer,
    PollingInfoHeader,
    PopAnswerHeader,
)
from rmq_ha.server.broker.pop_hold import HeldPoll, PopHold, Release
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.processors.pop import EARLY_MS, PopParts, refuse_unless_leading
from rmq_ha.server.broker.processors.pop_answers import REFUSED
from rmq_ha.server.broker.processors.pop_checks import MAX_POP_MESSAGES


class PopLookProcessor:
    """
    Shows messages without a lease, and says whether a pop would find some.

    :param notifications: holds the questions whether there is a message.
    """

    def __init__(self, parts: PopParts, store: IMessageStore, notifications: PopHold) -> None:
        self._parts = parts
        self._store = store
        self._notifications = notifications

    def routes(self) -> dict[int, Handler]:
        """Return handlers by request code; none while `popEnable` is false."""
        if not self._parts.pops.is_enabled:
            return {}
        return {
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def peek(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer PEEK_MESSAGE with messages that were never handed out to the group.

        Retries are shown in the form in which they are stored.
        """
        parts, checks = self._parts, self._parts.checks
        try:
            header = PeekHeader.read(request.ext)
            checks.broker_is_readable("peek message")
            topic = checks.readable_topic(header.topic, header.queue_id, channel.remote_text)
            checks.group(header.consumer_group)
        except RequestRejected as error:
            return request.response(error.code, error.remark, REFUSED)
        group, left = header.consumer_group, min(max(header.max_msg_nums, 0), MAX_POP_MESSAGES)
        parts.hurry()
        body: list[bytes] = []
        rest = 0
        for item in parts.queues.queues_of(group, topic, header.queue_id, None, is_orderly=False):
            begin = parts.pops.next_offset(group, item.topic, item.queue_id)
            result = self._store.get_message(group, item.topic, item.queue_id, begin, left, None)
            if result is None:
                continue
            if left and result.status is GetMessageStatus.FOUND:
                body += result.messages
                left -= len(result.messages)
                begin = result.next_begin_offset
            rest += max(0, result.max_offset - max(begin, result.min_offset))
        if not body:
            return request.response(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", REFUSED)
        ext = PopAnswerHeader(parts.now_ms(), rest_num=rest).ext()
        return request.response(ResponseCode.SUCCESS, "FOUND", ext, b"".join(body))

    def notification(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Answer NOTIFICATION when a pop would find a message, or when the time is over."""
        parts, checks = self._parts, self._parts.checks
        header = NotificationHeader.read(request.ext)
        refuse_unless_leading(parts.pops)
        checks.broker_is_readable("notification")
        topic = checks.readable_topic(header.topic, header.queue_id, channel.remote_text)
        checks.group(header.consumer_group)
        request.ext = request.body = None

        def has_message() -> bool:
            parts.hurry()
            queues = parts.queues.queues_of(
                header.consumer_group, topic, header.queue_id, None, is_orderly=header.order
            )
            has = parts.pops.has_something
            return any(has(header.consumer_group, item, is_orderly=header.order) for item in queues)

        def answer(*, has_msg: bool, is_full: bool = False) -> RemotingCommand:
            return request.response(ext=NotificationAnswer(has_msg, is_full).ext())

        def resume(reason: Release) -> None:
            try:
                has_msg = reason is not Release.END and has_message()
            except Exception:
                answered.errback(Failure())  # type: ignore[no-untyped-call]
                return
            if has_msg or reason is not Release.MESSAGES or not self._notifications.hold(poll):
                answered.callback(answer(has_msg=has_msg))

        if has_message():
            return answer(has_msg=True)
        now_ms = parts.now_ms()
        wait_ms = min(header.born_time or now_ms, now_ms) + header.poll_time - EARLY_MS - now_ms
        if header.poll_time <= 0 or wait_ms <= 0:
            return answer(has_msg=False)
        answered: Deferred[RemotingCommand | None] = Deferred()
        poll = HeldPoll(
            channel,
            header.consumer_group,
            header.topic,
            header.queue_id,
            MAX_POP_MESSAGES,
            parts.seconds() + wait_ms / 1000,
            resume,
        )
        if not self._notifications.hold(poll):
            return answer(has_msg=False, is_full=True)
        return answered

    def polling_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer POLLING_INFO with the number of pops that wait under exactly this queue id."""
        parts, checks = self._parts, self._parts.checks
        header = PollingInfoHeader.read(request.ext)
        checks.broker_is_readable("polling info")
        checks.readable_topic(header.topic, header.queue_id, channel.remote_text)
        checks.group(header.consumer_group)
        count = parts.hold.count(header.consumer_group, header.topic, header.queue_id)
        return request.response(ext=PollingInfoAnswer(count).ext())
