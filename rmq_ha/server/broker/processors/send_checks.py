"""Checks for every send whether this broker and this topic accept it.

Spec: remoting.md, sections 4.3 and 4.4.
"""

from random import Random

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.flags import PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUB
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import RETRY_PREFIX, is_for_brokers, topic_fault
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.send_header import SendHeader
from rmq_ha.server.broker.processors.unserved_requests import UnservedProperties
from rmq_ha.server.broker.tables.topics import TopicConfigManager


class SendChecks:
    """
    Makes the checks 1 to 6 of section 4.3, in order.

    :param unserved: refuses properties that this broker does not support.
    :param random: picks a queue if the producer names none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        unserved: UnservedProperties,
        random: Random,
    ) -> None:
        self._config = config
        self._unserved = unserved
        self._topics = topics
        self._random = random

    def check(self, header: SendHeader, now_ms: int) -> TopicConfig:
        """
        Check a send, and return its topic, which is created if the settings allow that. If the
        header names no queue, a queue is written into it.

        :param now_ms: ms since the epoch.
        :raises RequestRejected: with the code of the first check that fails.
        """
        config = self._config
        starts = config.start_accept_send_request_time_stamp
        if now_ms < starts:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {starts} (startAcceptSendRequestTimeStamp)",
            )
        if not config.broker_permission & PERM_WRITE and self._topics.is_order(header.topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending message is forbidden",
            )
        self._check_name(header.topic)
        self._unserved.check(header.properties)
        topic = self._topics.get(header.topic) or self._create(header)
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if header.queue_id >= queues:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, topic {header.topic} has {queues}",
            )
        if header.queue_id < 0:
            header.queue_id = self._random.randrange(max(1, topic.write_queue_nums))
        return topic

    @staticmethod
    def _check_name(topic: str) -> None:
        fault = topic_fault(topic)
        if fault is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        if is_for_brokers(topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"sending message to topic[{topic}] is forbidden"
            )

    def _create(self, header: SendHeader) -> TopicConfig:
        unit_flag = 0
        if header.unit_mode:
            unit_flag = TOPIC_UNIT_SUB if header.topic.startswith(RETRY_PREFIX) else TOPIC_UNIT
        topic = self._topics.create_in_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, unit_flag
        )
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist: create it with mqadmin updateTopic"
                " (autoCreateTopicEnable is off or its default topic is unknown here)",
            )
        return topic
