"""TopicConfig and SubscriptionGroupConfig.

Spec: store.md, sections 12.2 and 12.3; remoting.md, section 7.7.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class TopicConfig:
    """How many queues a topic has on one broker, and who may read and write them."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TopicConfig":
        """Missing members take Java's class defaults."""
        return cls(
            topic_name=value.get("topicName", ""),
            read_queue_nums=int(value.get("readQueueNums", 16)),
            write_queue_nums=int(value.get("writeQueueNums", 16)),
            perm=int(value.get("perm", 6)),
            topic_filter_type=value.get("topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=int(value.get("topicSysFlag", 0)),
            order=bool(value.get("order", False)),
        )


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """What a consumer group may do on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.group_name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SubscriptionGroupConfig":
        """Missing members take Java's class defaults."""
        return cls(
            group_name=value.get("groupName", ""),
            consume_enable=bool(value.get("consumeEnable", True)),
            consume_from_min_enable=bool(value.get("consumeFromMinEnable", True)),
            consume_broadcast_enable=bool(value.get("consumeBroadcastEnable", True)),
            retry_queue_nums=int(value.get("retryQueueNums", 1)),
            retry_max_times=int(value.get("retryMaxTimes", 16)),
            broker_id=int(value.get("brokerId", 0)),
            which_broker_when_consume_slowly=int(value.get("whichBrokerWhenConsumeSlowly", 1)),
            notify_consumer_ids_changed_enable=bool(
                value.get("notifyConsumerIdsChangedEnable", True)
            ),
        )
