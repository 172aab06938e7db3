"""The keys of POP consumption: single messages with a lease, in place of whole queues.

Spec: pop.md, sections 10 and 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key_of_5, own_key
from rmq_ha.base.config.text_rules import one_of
from rmq_ha.base.config.timer_keys import TimerConfig

_POP = "popEnable"
_THRESHOLD = "enablePopMessageThreshold"


@dataclass(slots=True, kw_only=True)
class PopConfig(TimerConfig):
    """The settings of POP consumption, with the names that RocketMQ 5 uses where it has them."""

    pop_enable: bool = own_key(
        _POP,
        False,
        "true: serve consumers that pop single messages (requests 200050 to 200055 and 200151). "
        "false, as RocketMQ 4.9: answer these requests with code 3. RocketMQ 5 always serves "
        "them.",
        same_in_set=True,
    )
    pop_failover_grace: int = own_key(
        "popFailoverGrace",
        3000,
        "By how many ms leases last longer after a start or a change of the master, since "
        "consumers could not acknowledge messages in that time.",
        mutable=True,
        needs=_POP,
    )
    enable_pop_message_threshold: bool = key_of_5(
        _THRESHOLD,
        True,
        "true: limit how many messages of one queue are out with a group at a time "
        "(popInflightMessageThreshold). false, as RocketMQ 5 by default: no limit.",
        mutable=True,
        needs=_POP,
    )
    pop_inflight_message_threshold: int = key_of_5(
        "popInflightMessageThreshold",
        10000,
        "How many messages of one queue may be out with a group at a time. Further pops are "
        "answered with code 209.",
        least=1,
        mutable=True,
        needs=_THRESHOLD,
    )
    pop_max_inflight: int = own_key(
        "popMaxInflight",
        2_000_000,
        "How many messages of all groups together may be out at a time. Each takes 16 to 40 "
        "bytes of memory. Further pops are answered with code 209.",
        least=1,
        mutable=True,
        needs=_POP,
    )
    pop_broker_dlq: bool = own_key(
        "popBrokerDlq",
        True,
        "true: move a message that nobody acknowledges into the dead-letter topic of its group "
        "after retryMaxTimes retries, which follow the first delivery. In a group that pops in "
        "order it "
        "comes again for ever. false, as RocketMQ 5: it comes again for ever in every group.",
        mutable=True,
        same_in_set=True,
        needs=_POP,
    )
    enable_retry_topic_v2: bool = key_of_5(
        "enableRetryTopicV2",
        False,
        "true: name new retry topics of pops with a plus sign between group and topic, which "
        "only clients of RocketMQ 5.2 or later know. false: name them as older versions do.",
        mutable=True,
        same_in_set=True,
        needs=_POP,
    )
    pop_max_invisible_time: int = own_key(
        "popMaxInvisibleTime",
        43_200_000,
        "The longest time, ms, for which a pop or a change may make messages invisible. A "
        "longer time is refused with code 29. RocketMQ 5 takes any time, and fails for ever "
        "beyond timerMaxDelaySec.",
        least=1,
        mutable=True,
        needs=_POP,
    )
    pop_stale_ack: str = own_key(
        "popStaleAck",
        "refuse",
        "The answer to an acknowledgement or a change of a message that is no longer out with "
        "its consumer. refuse: code 208. success, as RocketMQ: code 0.",
        rule=one_of("refuse", "success"),
        mutable=True,
        needs=_POP,
    )
    pop_polling_size: int = key_of_5(
        "popPollingSize",
        1024,
        "How many pops may wait for messages of one topic, group and queue id. Further ones are "
        "answered with code 209.",
        least=1,
        mutable=True,
        needs=_POP,
    )
    max_pop_polling_size: int = key_of_5(
        "maxPopPollingSize",
        100_000,
        "How many pops may wait at this broker. Further ones are answered with code 209.",
        least=1,
        mutable=True,
        needs=_POP,
    )
    pop_from_retry_probability: int = key_of_5(
        "popFromRetryProbability",
        20,
        "How many percent of pops look for retries before new messages. All other pops look for "
        "retries last.",
        most=100,
        mutable=True,
        needs=_POP,
    )
    retrieve_message_from_pop_retry_topic_v1: bool = key_of_5(
        "retrieveMessageFromPopRetryTopicV1",
        True,
        "With enableRetryTopicV2=true: every second pop also looks into retry topics that have "
        "the old name. Set false when these topics are empty.",
        mutable=True,
        needs="enableRetryTopicV2",
    )
    server_load_balancer_enable: bool = key_of_5(
        "serverLoadBalancerEnable",
        True,
        "true: the broker shares queues out among clients that ask for their queues (request "
        "400). false: each such client gets all queues.",
        mutable=True,
        needs=_POP,
    )
    default_message_request_mode: str = key_of_5(
        "defaultMessageRequestMode",
        "PULL",
        "How clients that ask for their queues get messages, unless mqadmin setConsumeMode says "
        "it for their group and topic.",
        rule=one_of("PULL", "POP"),
        mutable=True,
        needs=_POP,
    )
    default_pop_share_queue_num: int = key_of_5(
        "defaultPopShareQueueNum",
        -1,
        "How many queues of other clients each client pops besides its own, unless mqadmin "
        "setConsumeMode says it. 0 or less: all queues.",
        least=-1,
        mutable=True,
        needs=_POP,
    )
