"""The keys of POP consumption: single messages with a lease, in place of whole queues.

Spec: pop.md, sections 10 and 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key_of_5, own_key
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
