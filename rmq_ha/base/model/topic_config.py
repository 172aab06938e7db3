"""TopicConfig and SubscriptionGroupConfig.

Spec: store.md, sections 12.2 and 12.3; remoting.md, section 7.7.
"""

from typing import Any, ClassVar

import msgspec

_NO_NAME = " "


class TopicConfig(msgspec.Struct, rename="camel"):
    """
    The number of queues of a topic on one broker, and whether they may be read and written.

    :ivar attributes: what tools of RocketMQ 5 said about the topic, such as `message.type`.
    :ivar foreign: members of the JSON object that this class does not declare. They are kept.
    """

    UNWRITTEN_ZEROS: ClassVar[tuple[str, ...]] = ("attributes",)

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    foreign: dict[str, Any] = msgspec.field(name=_NO_NAME, default_factory=dict)


class SubscriptionGroupConfig(msgspec.Struct, rename="camel"):
    """
    The rights and limits of a consumer group on one broker.

    :ivar consume_message_orderly: whether POP hands out the messages of a queue one after another.
    :ivar attributes: what tools of RocketMQ 5 said about the group.
    :ivar foreign: members of the JSON object that this class does not declare, such as
        `groupRetryPolicy`. They are kept.
    """

    UNWRITTEN_ZEROS: ClassVar[tuple[str, ...]] = ("attributes", "consume_message_orderly")

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    foreign: dict[str, Any] = msgspec.field(name=_NO_NAME, default_factory=dict)
