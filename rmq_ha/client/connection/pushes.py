"""Pushes: handles requests of brokers to a client, and passes each to the group that it names.

Spec: remoting.md, sections 2.4, 4.8, 7.6 and 7.10.
"""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from rmq_ha.base.errors import RequestRejected, RmqHaError
from rmq_ha.base.model.flags import COMPRESSED
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import PGROUP, UNIQ_KEY, decode_properties
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import Handler
from rmq_ha.base.wire.bodies import decode_queue_table
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.offset_bodies import ConsumerStatusBody
from rmq_ha.client.connection.parts import CheckHeader, ConsumerPart, ProducerPart
from rmq_ha.client.rules.compression import inflate
from rmq_ha.client.rules.messages import MessageExt, decode_messages

CORRELATION_ID = "CORRELATION_ID"
ARRIVE_TIME = "ARRIVE_TIME"
_NOWHERE = Address(b"\0\0\0\0", 0)


class Pushes:
    """Handlers for the requests of brokers."""

    log = Logger()

    def __init__(
        self,
        producers: Mapping[str, ProducerPart],
        consumers: Mapping[str, ConsumerPart],
        now_ms: Callable[[], int],
        sign: Callable[[RemotingCommand], RemotingCommand],
        about_client: Callable[[], Mapping[str, str]],
    ) -> None:
        """
        :param sign: signs the requests that answer a broker's question.
        :param about_client: returns the client's own properties for running infos.
        """
        self._producers = producers
        self._consumers = consumers
        self._now_ms = now_ms
        self._sign = sign
        self._about_client = about_client

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._group_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._consume_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply,
        }

    def _check_transaction(self, channel: Channel, request: RemotingCommand) -> None:
        ext = request.ext or {}
        message = _one_message(request)
        group = message.properties.get(PGROUP, "")
        part = self._producers.get(group)
        if part is None:
            self.log.warn(
                "{peer} asks about a transaction of the group {group}, which is not here",
                peer=channel.remote_text,
                group=group,
            )
            return
        header = CheckHeader(
            _number(ext, "tranStateTableOffset"),
            _number(ext, "commitLogOffset"),
            ext.get("msgId") or message.msg_id,
            ext.get("transactionId") or message.properties.get(UNIQ_KEY, ""),
            ext.get("offsetMsgId") or message.offset_msg_id,
            channel.remote_text,
        )
        part.check_transaction(message, header, lambda command: channel.send(self._sign(command)))

    def _group_changed(self, channel: Channel, request: RemotingCommand) -> None:
        group = (request.ext or {}).get("consumerGroup", "")
        part = self._consumers.get(group)
        if part is not None:
            part.on_group_changed()

    def _reset_offsets(self, channel: Channel, request: RemotingCommand) -> None:
        ext = request.ext or {}
        part = self._consumers.get(ext.get("group", ""))
        if part is not None and request.body:
            table = decode_queue_table(request.body)
            offsets = {queue: int(offset) for queue, offset in table.items()}
            part.reset_offsets(ext.get("topic", ""), offsets)

    def _consume_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext or {}
        part = self._consumers.get(ext.get("group", ""))
        status = {} if part is None else part.consume_status(ext.get("topic", ""))
        return request.response(body=ConsumerStatusBody({}, status).encode())

    def _running_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext or {}
        part = self._consumer(ext)
        want_stack = ext.get("jstackEnable", "").lower() == "true"
        info = dict(part.running_info(want_stack))
        info["properties"] = {**self._about_client(), **info.get("properties", {})}
        return request.response(body=encode(info))

    def _consume_directly(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand]":
        ext = request.ext or {}
        part = self._consumer(ext)
        message = _one_message(request, ext.get("brokerName", ""))
        consumed: Deferred[Any] = maybeDeferred(part.consume_directly, message)
        return consumed.addCallback(lambda result: request.response(body=encode(dict(result))))

    def _consumer(self, ext: Mapping[str, str]) -> ConsumerPart:
        group = ext.get("consumerGroup", "")
        part = self._consumers.get(group)
        if part is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        return part

    def _reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        message = _reply_message(request, self._now_ms())
        correlation_id = message.properties.get(CORRELATION_ID, "")
        for part in list(self._producers.values()):
            if part.reply(message, correlation_id):
                return request.response()
        self.log.debug("a reply to {id} came, which nobody waits for any more", id=correlation_id)
        return request.response()


def _one_message(request: RemotingCommand, broker_name: str = "") -> MessageExt:
    try:
        (message,) = decode_messages(request.body or b"", broker_name)
    except (RmqHaError, ValueError):
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, "the request's body is not one message"
        ) from None
    return message


def _reply_message(request: RemotingCommand, now_ms: int) -> MessageExt:
    """Make a message of a pushed reply, which has header fields and a body instead of a record."""
    ext = request.ext or {}
    properties = decode_properties(ext.get("properties", ""))
    properties[ARRIVE_TIME] = str(now_ms)
    sys_flag = _number(ext, "sysFlag")
    body = request.body or b""
    if sys_flag & COMPRESSED:
        body = inflate(body, sys_flag)
        sys_flag &= ~COMPRESSED
    return MessageExt(
        topic=ext.get("topic", ""),
        body=body,
        properties=properties,
        broker_name="",
        queue_id=_number(ext, "queueId"),
        queue_offset=0,
        msg_id=properties.get(UNIQ_KEY, ""),
        offset_msg_id="",
        commit_log_offset=0,
        born_timestamp=_number(ext, "bornTimestamp"),
        born_host=_address(ext.get("bornHost", "")),
        store_timestamp=_number(ext, "storeTimestamp"),
        store_host=_address(ext.get("storeHost", "")),
        store_size=0,
        sys_flag=sys_flag,
        flag=_number(ext, "flag"),
        reconsume_times=_number(ext, "reconsumeTimes"),
    )


def _number(ext: Mapping[str, str], name: str) -> int:
    text = ext.get(name, "")
    try:
        return int(text) if text else 0
    except ValueError:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"the field {name} is no number: {text!r}"
        ) from None


def _address(text: str) -> Address:
    try:
        return Address.parse(*parse_host_port(text.lstrip("/")))
    except ValueError:
        return _NOWHERE
