"""SEND_REPLY_MESSAGE (324, 325): brings a reply to the client that sent the request message.

Spec: remoting.md, section 4.8.
"""

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.flags import TRANSACTION_MASK
from rmq_ha.base.model.message import BrokerMessage, PutMessageResult
from rmq_ha.base.model.properties import (
    TIMER_SRC,
    WAIT,
    decode_properties,
    encode_properties,
    waits,
)
from rmq_ha.base.model.unserved_properties import asks_for_timer
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.send_header import SendHeader, decode_send_header
from rmq_ha.server.broker.client_calls import ClientCalls
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.processors.send_answers import SendAnswers
from rmq_ha.server.broker.processors.send_checks import SendChecks
from rmq_ha.server.broker.processors.send_hooks import SendPlugins
from rmq_ha.server.broker.tables.clients import ProducerManager

PUSH_TIMEOUT_MS = 10_000
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"

_DELIVERED = {"msgId": "0", "queueOffset": "0"}
"""Fields of the answer to a reply that is not stored: a client requires numbers in them."""


class ReplyMessageProcessor:
    """
    Pushes replies to their requesters, and stores them if storeReplyMessageEnable is set.

    :param plugins: the plugins that see each message.
    :param now_ms: ms since the epoch.
    """

    log = Logger()

    def __init__(
        self,
        *,
        configuration: BrokerConfiguration,
        plugins: SendPlugins,
        producers: ProducerManager,
        checks: SendChecks,
        answers: SendAnswers,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config = configuration.broker
        self._ours = configuration.ours
        self._front: Any = plugins.front
        self._producers = producers
        self._checks = checks
        self._answers = answers
        self._hooks = plugins.hooks
        self._store_host = configuration.store_host
        self._now_ms = now_ms
        self._calls = ClientCalls(config.reply_thread_pool_queue_capacity, "replies")

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.send_reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.send_reply,
        }

    def send_reply(
        self, channel: Channel, request: RemotingCommand
    ) -> "RemotingCommand | Deferred[RemotingCommand | None]":
        """
        Answer SEND_REPLY_MESSAGE (324) when the requester has the reply and the store has decided.

        Success means that the requester has it. The ids are those of the stored copy, if there is
        one.
        """
        try:
            header = decode_send_header(request)
            asked_queue_id = header.queue_id
            self._checks.check(header, self._now_ms())
            body = request.body or b""
            context = self._hooks.before_send(channel, header, body)
            properties = decode_properties(header.properties)
            self._check_timer(properties)
            push = self._push(channel, header, asked_queue_id, properties, body)
        except RequestRejected as rejected:
            return request.response(rejected.code, rejected.remark, self._answers.trace_ext)
        put: Deferred[Any] = succeed(None)
        if self._config.store_reply_message_enable:
            put = self._front.put_message(self._message(channel, header, properties, body))
        return push.addCallback(
            lambda fault: put.addCallback(self._answer, fault, request, header, context)
        )

    def _check_timer(self, properties: dict[str, str]) -> None:
        """
        Check that a reply asks for no timer, as a requester waits for it.

        :raises RequestRejected: it asks for one.
        """
        if self._ours.timer_wheel_enable and asks_for_timer(properties):
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                "a reply asks for a timer, and replies are brought at once: leave the timer out",
            )

    def _push(
        self,
        channel: Channel,
        header: SendHeader,
        asked_queue_id: int,
        properties: dict[str, str],
        body: bytes,
    ) -> "Deferred[str | None]":
        """
        Push a reply to the requester.

        :returns: fires with None when the requester has it, else with the reason for people.
        :raises RequestRejected: too many replies wait.
        """
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return succeed(f"reply message properties[{REPLY_TO_CLIENT}] is null")
        target = self._producers.find_channel(client_id)
        if target is None:
            return succeed(f"push reply message fail, channel of <{client_id}> not found.")
        now = str(self._now_ms())
        command = RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            {
                "producerGroup": header.producer_group,
                "topic": header.topic,
                "defaultTopic": header.default_topic,
                "defaultTopicQueueNums": str(header.default_topic_queue_nums),
                # The replier's own queue id: the checks above may have put another one into the
                # header.
                "queueId": str(asked_queue_id),
                "sysFlag": str(header.sys_flag),
                "bornTimestamp": str(header.born_timestamp),
                "flag": str(header.flag),
                "properties": encode_properties({**properties, PUSH_REPLY_TIME: now}),
                "reconsumeTimes": str(header.reconsume_times),
                "unitMode": "true" if header.unit_mode else "false",
                "bornHost": channel.remote_text,
                "storeHost": str(self._store_host),
                "storeTimestamp": now,
            },
            body,
        )
        answer: Deferred[Any] = self._calls.invoke(cast(Channel, target), command, PUSH_TIMEOUT_MS)
        return answer.addCallbacks(
            self._pushed, self._not_pushed, callbackArgs=(client_id,), errbackArgs=(client_id,)
        )

    def _pushed(self, answer: RemotingCommand, client_id: str) -> str | None:
        if answer.code == ResponseCode.SUCCESS:
            return None
        self.log.warn("{client} refuses a reply: {why}", client=client_id, why=answer.reason)
        return f"push reply message to {client_id} fail: it answered code {answer.code}"

    def _not_pushed(self, failure: Failure, client_id: str) -> str:
        self.log.warn(
            "a reply does not reach {client}: {why}",
            client=client_id,
            why=failure.getErrorMessage(),
        )
        return f"push reply message to {client_id} fail: {failure.getErrorMessage()}"

    def _message(
        self, channel: Channel, header: SendHeader, properties: dict[str, str], body: bytes
    ) -> BrokerMessage:
        """
        Return the copy of a reply that is stored, with the properties that the responder gave it
        and no others.

        It keeps the flag that says whether its body is compressed; Java loses that flag. It does
        not keep TIMER_SRC, which would settle a timer message.
        """
        stored = header.properties
        if properties.pop(TIMER_SRC, None) is not None:
            stored = encode_properties(properties)
        return BrokerMessage(
            header.topic,
            header.queue_id,
            body,
            channel.remote,
            self._store_host,
            header.born_timestamp,
            header.flag,
            header.sys_flag & ~TRANSACTION_MASK,
            header.reconsume_times,
            0,
            properties,
            stored,
            waits(properties.get(WAIT)),
        )

    def _answer(
        self,
        stored: PutMessageResult | None,
        fault: str | None,
        request: RemotingCommand,
        header: SendHeader,
        context: dict[str, Any],
    ) -> RemotingCommand:
        ext = self._answers.trace_ext
        if fault is None:
            ext |= {**_DELIVERED, "queueId": str(header.queue_id)}
        if stored is not None:
            if (append := stored.stored) is not None:
                ext["msgId"] = append.msg_id
                ext["queueId"] = str(header.queue_id)
                ext["queueOffset"] = str(append.queue_offset)
            else:
                self.log.warn("a reply is not stored: {why}", why=stored.status.name)
        code = ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR
        response = request.response(code, fault, ext)
        self._hooks.after_send(context, code, ext)
        return response
