"""TopicConfig and SubscriptionGroupConfig.

Spec: store.md, sections 12.2 and 12.3; remoting.md, section 7.7.
"""

import msgspec


class TopicConfig(msgspec.Struct, rename="camel"):
    """The number of queues of a topic on one broker, and whether they may be read and written."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False


class SubscriptionGroupConfig(msgspec.Struct, rename="camel"):
    """The rights and limits of a consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
