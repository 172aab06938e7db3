"""SendBack: gives messages back to the broker, to be consumed again later (code 36).

Spec: remoting.md, sections 4.5, 4.7 and 11.5.
"""

from twisted.logger import Logger

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
    encode_properties,
)
from rmq_ha.base.model.topics import DEFAULT_TOPIC, RETRY_PREFIX
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.send_header import SendHeader, encode_send_header
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.pull_api import MAX_OFFSET, MIN_OFFSET
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.namespaces import wrap
from rmq_ha.client.rules.routes import publish_info

SEND_BACK_TIMEOUT_MS = 5000
SEND_TIMEOUT_MS = 3000
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
_FIRST_RETRY_LEVEL = 3
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)


class SendBack:
    """
    Gives messages of one group back.

    :param group: the consumer group, with its namespace.
    :param max_reconsume_times: how many times a message is tried again before it goes to the
        dead-letter queue.
    """

    log = Logger()

    def __init__(
        self, instance: ClientInstance, group: str, max_reconsume_times: int, *, unit_mode: bool
    ) -> None:
        self.max_reconsume_times = max_reconsume_times
        self._instance = instance
        self._group = group
        self._unit_mode = unit_mode

    async def give_back(
        self, message: MessageExt, delay_level: int, broker_name: str | None
    ) -> bool:
        """
        Have the broker deliver a message again later. If the broker does not take it, send a copy
        to the retry topic.

        :param delay_level: how long until then, as a delay level; 0 lets the broker decide, and a
            negative level sends the message to the dead-letter queue.
        :param broker_name: the broker of the message's queue; None for the address that stored it.
        :returns: False if neither worked; the consumer still has the message.
        """
        try:
            await self._ask(message, delay_level, broker_name)
        except RmqHaError as error:
            self.log.warn(
                "{id} is not taken back, a copy goes to the retry topic: {reason}",
                id=message.msg_id,
                reason=error,
            )
            return await self.send_copy(message)
        return True

    async def send_copy(self, message: MessageExt) -> bool:
        """Send a copy to the retry topic; return whether a broker confirms that it is stored."""
        topic = RETRY_PREFIX + self._group
        try:
            route = await self._instance.route_or_template(topic, DEFAULT_TOPIC)
            queues = publish_info(topic, route).queues
            if not queues:
                raise MQClientError(f"no broker takes messages for {topic}")
            queue = self._instance.host.random.choice(queues)
            known = self._instance.broker_address(queue.broker_name, MASTER_ID, True)
            if known is None:
                raise MQClientError(f"the broker {queue.broker_name} has no master now")
            command = self._copy(message, topic, queue.queue_id)
            response = await self._instance.invoke(known[0], command, SEND_TIMEOUT_MS)
        except RmqHaError as error:
            self.log.warn("{id} is not sent back: {reason}", id=message.msg_id, reason=error)
            return False
        if response.code not in _STORED:
            self.log.warn(
                "{id} is not sent back: code {code}, {remark}",
                id=message.msg_id,
                code=response.code,
                remark=response.reason,
            )
        return response.code in _STORED

    async def _ask(self, message: MessageExt, delay_level: int, broker_name: str | None) -> None:
        if broker_name:
            known = self._instance.broker_address(broker_name, MASTER_ID, True)
            if known is None:
                raise MQClientError(f"the broker {broker_name} has no master now")
            address = known[0]
        else:
            address = str(message.store_host)
        ext = {
            "group": self._group,
            "originTopic": wrap(self._instance.settings.namespace, message.topic),
            "offset": str(message.commit_log_offset),
            "delayLevel": str(delay_level),
            "originMsgId": message.msg_id,
            "unitMode": "true" if self._unit_mode else "false",
            "maxReconsumeTimes": str(self.max_reconsume_times),
        }
        if broker_name:
            ext["bname"] = broker_name
        command = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        await self._instance.call(address, command, SEND_BACK_TIMEOUT_MS)

    def _copy(self, message: MessageExt, topic: str, queue_id: int) -> RemotingCommand:
        times = message.reconsume_times + 1
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in (TRAN_MSG, MIN_OFFSET, MAX_OFFSET, WAIT)
        }
        properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties[RETRY_TOPIC] = wrap(self._instance.settings.namespace, message.topic)
        properties[RECONSUME_TIME] = str(times)
        properties[MAX_RECONSUME_TIMES] = str(self.max_reconsume_times)
        properties[DELAY] = str(_FIRST_RETRY_LEVEL + message.reconsume_times)
        header = SendHeader(
            producer_group=INNER_PRODUCER,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            born_timestamp=self._instance.host.now_ms(),
            flag=message.flag,
            properties=encode_properties(properties),
            reconsume_times=times,
            unit_mode=self._unit_mode,
            max_reconsume_times=self.max_reconsume_times,
        )
        return RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, encode_send_header(header), message.body or None
        )
