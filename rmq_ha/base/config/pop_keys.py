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
        "serve consumers that pop single messages (requests 200050 to 200055 and 200151); false: "
        "answer them with code 3, as RocketMQ 4.9. RocketMQ 5 always serves them",
        same_in_set=True,
    )
    pop_failover_grace: int = own_key(
        "popFailoverGrace",
        3000,
        "ms that leases last longer after a start or a change of the master, since consumers could "
        "not acknowledge meanwhile",
        mutable=True,
        needs=_POP,
    )
    enable_pop_message_threshold: bool = key_of_5(
        _THRESHOLD,
        True,
        "limit the messages of one queue that are out with a group. RocketMQ 5: false",
        mutable=True,
        needs=_POP,
    )
    pop_inflight_message_threshold: int = key_of_5(
        "popInflightMessageThreshold",
        10000,
        "messages of one queue that may be out with a group; beyond it pops are answered with "
        "code 209",
        least=1,
        mutable=True,
        needs=_THRESHOLD,
    )
    pop_max_inflight: int = own_key(
        "popMaxInflight",
        2_000_000,
        "messages of all groups together that may be out, each of which takes 16 to 40 bytes of "
        "memory; beyond it pops are answered with code 209",
        least=1,
        mutable=True,
        needs=_POP,
    )
    pop_broker_dlq: bool = own_key(
        "popBrokerDlq",
        True,
        "move a message into the dead-letter topic of its group when it was handed out "
        "retryMaxTimes times without an acknowledgement; false: retry for ever, as RocketMQ 5",
        mutable=True,
        same_in_set=True,
        needs=_POP,
    )
    enable_retry_topic_v2: bool = key_of_5(
        "enableRetryTopicV2",
        False,
        "name new retry topics of pops with a plus sign between group and topic; true needs "
        "clients of RocketMQ 5.2 or later",
        mutable=True,
        same_in_set=True,
        needs=_POP,
    )
    pop_max_invisible_time: int = own_key(
        "popMaxInvisibleTime",
        43_200_000,
        "longest ms for which a pop or a change makes messages invisible; more is refused with "
        "code 29. RocketMQ 5 takes any time, and fails for ever beyond timerMaxDelaySec",
        least=1,
        mutable=True,
        needs=_POP,
    )
    pop_stale_ack: str = own_key(
        "popStaleAck",
        "refuse",
        "answer to an acknowledgement or change of a message that is not out with its consumer any "
        "more: refuse says so by code 208, success is RocketMQ's code 0",
        rule=one_of("refuse", "success"),
        mutable=True,
        needs=_POP,
    )
    pop_polling_size: int = key_of_5(
        "popPollingSize",
        1024,
        "pops that may wait under one topic, group and queue id; further ones are answered with "
        "code 209",
        least=1,
        mutable=True,
        needs=_POP,
    )
    max_pop_polling_size: int = key_of_5(
        "maxPopPollingSize",
        100_000,
        "pops that may wait at this broker; further ones are answered with code 209",
        least=1,
        mutable=True,
        needs=_POP,
    )
    pop_from_retry_probability: int = key_of_5(
        "popFromRetryProbability",
        20,
        "percentage of pops that look for retries first; all others look for them last",
        most=100,
        mutable=True,
        needs=_POP,
    )
    retrieve_message_from_pop_retry_topic_v1: bool = key_of_5(
        "retrieveMessageFromPopRetryTopicV1",
        True,
        "look into retry topics of the old name too, at every second pop, while "
        "enableRetryTopicV2 is true",
        mutable=True,
        needs="enableRetryTopicV2",
    )
    server_load_balancer_enable: bool = key_of_5(
        "serverLoadBalancerEnable",
        True,
        "share queues out among clients that ask for their queues (request 400); false: each "
        "client gets all of them",
        mutable=True,
        needs=_POP,
    )
    default_message_request_mode: str = key_of_5(
        "defaultMessageRequestMode",
        "PULL",
        "how clients that ask for their queues get messages, where mqadmin setConsumeMode set "
        "nothing",
        rule=one_of("PULL", "POP"),
        mutable=True,
        needs=_POP,
    )
    default_pop_share_queue_num: int = key_of_5(
        "defaultPopShareQueueNum",
        -1,
        "neighbours' queues that each client pops beside its own, where mqadmin setConsumeMode "
        "set nothing; 0 or less: all queues",
        least=-1,
        mutable=True,
        needs=_POP,
    )
