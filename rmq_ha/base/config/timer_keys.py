"""The keys of timer messages: delays of any length, and their recall.

Spec: timer.md, sections 11 and 15.
"""

from dataclasses import dataclass

from rmq_ha.base.config.every_server import EveryServerConfig
from rmq_ha.base.config.fields import key_of_5, own_key


@dataclass(slots=True, kw_only=True)
class TimerConfig(EveryServerConfig):
    """The settings of timer messages, with the names that RocketMQ 5 uses where it has them."""

    timer_wheel_enable: bool = key_of_5(
        "timerWheelEnable",
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
    )
    timer_progress_interval_ms: int = own_key(
        "timerProgressIntervalMs",
        5000,
        "least ms between two records that say how far timer messages are delivered; a start reads "
        "the log from the last of them on",
        least=100,
        mutable=True,
    )
