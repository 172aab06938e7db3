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
        "take messages with a delay of any length (TIMER_DELAY_SEC, TIMER_DELAY_MS, "
        "TIMER_DELIVER_MS) and deliver them when they are due; false: refuse them with code 1. "
        "RocketMQ 5: true",
        same_in_set=True,
    )
    timer_stop_dequeue: bool = key_of_5(
        "timerStopDequeue",
        False,
        "deliver no timer messages until it is false again; sends and recalls go on",
        mutable=True,
        needs=_WHEEL,
    )
    timer_progress_interval_ms: int = own_key(
        "timerProgressIntervalMs",
        5000,
        "least ms between two records that say how far timer messages are delivered; a start reads "
        "the log from the last of them on",
        least=100,
        mutable=True,
        needs=_WHEEL,
    )
    timer_max_delay_sec: int = key_of_5(
        "timerMaxDelaySec",
        259200,
        "longest delay of a timer message, s; a longer one is refused with code 13. Beside Java "
        "replicas at most 172799, since they put messages with longer delays again",
        least=1,
        mutable=True,
        same_in_set=True,
        needs=_WHEEL,
    )
    timer_congest_num_each_slot: int = key_of_5(
        "timerCongestNumEachSlot",
        INT_MAX,
        "timer messages that may wait for the same second; above it some sends are refused with "
        "code 1, above the double all of them",
        least=1,
        mutable=True,
        needs=_WHEEL,
    )
    timer_max_waiting: int = own_key(
        "timerMaxWaiting",
        20_000_000,
        "timer messages that may wait at a time, each of which takes 12 bytes of memory; beyond "
        "it sends are refused with code 1",
        least=1,
        mutable=True,
        needs=_WHEEL,
    )
    recall_message_enable: bool = key_of_5(
        "recallMessageEnable",
        True,
        "let producers recall timer messages that wait (request 370); false: refuse with code "
        "16. RocketMQ 5: false",
        mutable=True,
        needs=_WHEEL,
    )
    allow_recall_when_broker_not_writeable: bool = key_of_5(
        "allowRecallWhenBrokerNotWriteable",
        True,
        "let producers recall messages while brokerPermission forbids sends; false: refuse with "
        "code 14",
        mutable=True,
        needs=_WHEEL,
    )
    append_topic_for_timer_delete_key: bool = key_of_5(
        "appendTopicForTimerDeleteKey",
        True,
        "write the unique key in recall records behind the topic and a plus sign, as RocketMQ "
        "5.3 reads it; false: write the bare key, as newer Java replicas read it by default",
        mutable=True,
        needs=_WHEEL,
    )
