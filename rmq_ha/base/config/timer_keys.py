"""The keys of timer messages: delays of any length, and their recall.

Spec: timer.md, sections 11 and 15.
"""

from dataclasses import dataclass

from rmq_ha.base.config.every_server import EveryServerConfig
from rmq_ha.base.config.fields import INT_MAX, key_of_5, own_key

_WHEEL = "timerWheelEnable"


@dataclass(slots=True, kw_only=True)
class TimerConfig(EveryServerConfig):
    """The settings of timer messages, with the names that RocketMQ 5 uses where it has them."""

    timer_wheel_enable: bool = key_of_5(
        _WHEEL,
        False,
        "true: take messages with a delay of any length (TIMER_DELAY_SEC, TIMER_DELAY_MS, "
        "TIMER_DELIVER_MS) and deliver each when it is due. false: refuse such messages with code "
        "1. RocketMQ 5's default is true.",
        same_in_set=True,
    )
    timer_stop_dequeue: bool = key_of_5(
        "timerStopDequeue",
        False,
        "true: deliver no timer messages until the key is false again, for example to relieve a "
        "busy broker. Sends and recalls go on.",
        mutable=True,
        needs=_WHEEL,
    )
    timer_progress_interval_ms: int = own_key(
        "timerProgressIntervalMs",
        5000,
        "The least time, ms, between two records in the log that say how far timer messages are "
        "delivered. A start reads the log from the last such record on, so a smaller value makes "
        "the start quicker and the log longer.",
        least=100,
        mutable=True,
        needs=_WHEEL,
    )
    timer_max_delay_sec: int = key_of_5(
        "timerMaxDelaySec",
        259200,
        "The longest delay of a timer message, s (three days). A longer delay is refused with "
        "code 13. Set at most 172799 if a broker of RocketMQ is in the set, since it stores "
        "messages with longer delays a second time.",
        least=1,
        mutable=True,
        same_in_set=True,
        needs=_WHEEL,
    )
    timer_congest_num_each_slot: int = key_of_5(
        "timerCongestNumEachSlot",
        INT_MAX,
        "How many timer messages may wait for the same second. Above this number some sends are "
        "refused with code 1, and above twice the number all of them.",
        least=1,
        mutable=True,
        needs=_WHEEL,
    )
    timer_max_waiting: int = own_key(
        "timerMaxWaiting",
        20_000_000,
        "How many timer messages may wait at the same time. Each takes 12 bytes of memory, so the "
        "default allows 240 MB. Further sends are refused with code 1.",
        least=1,
        mutable=True,
        needs=_WHEEL,
    )
    recall_message_enable: bool = key_of_5(
        "recallMessageEnable",
        True,
        "true: producers may recall a timer message that still waits (request 370). false, as "
        "RocketMQ 5 by default: recalls are refused with code 16.",
        mutable=True,
        needs=_WHEEL,
    )
    allow_recall_when_broker_not_writeable: bool = key_of_5(
        "allowRecallWhenBrokerNotWriteable",
        True,
        "true: producers may recall timer messages while brokerPermission forbids sends. false: "
        "such recalls are refused with code 14.",
        mutable=True,
        needs=_WHEEL,
    )
    append_topic_for_timer_delete_key: bool = key_of_5(
        "appendTopicForTimerDeleteKey",
        True,
        "How a recall names the message in the log. true: topic, plus sign and unique key, which "
        "RocketMQ 5.3 reads. false: the unique key alone, which newer brokers of RocketMQ read by "
        "default. It matters only if a broker of RocketMQ is in the set.",
        mutable=True,
        needs=_WHEEL,
    )
