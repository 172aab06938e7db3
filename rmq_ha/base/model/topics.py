"""Names of topics and groups that RocketMQ itself uses, and the rules for names.

Spec: remoting.md, sections 4.3, 4.4 and 7.7; store.md, section 12.2.
"""

import re

from rmq_ha.base.model.printable import is_one_line

DEFAULT_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""The delays of the levels of SCHEDULE_TOPIC, unless `messageDelayLevel` sets others."""
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic in which timer messages wait, and in which their recalls are stored."""
TIMER_PROGRESS_TOPIC = "rmq_sys_rmqha_timer"
"""A topic of rmq-ha: its records say up to which due time the timer messages are delivered."""
POP_TOPIC = "rmq_sys_POP_LOG"
"""A topic of rmq-ha: its records say which messages are out with POP consumers."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
SYSTEM_PREFIX = "rmq_sys_"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
"""
The prefix of light queues. They have no messages of their own; they point at those of other queues.
"""
REPLY_SUFFIX = "_REPLY_TOPIC"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
MAX_TOPIC_LENGTH = 127
MAX_GROUP_LENGTH = 255

SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TIMER_TOPIC,
        TIMER_PROGRESS_TOPIC,
        POP_TOPIC,
    }
)
NOT_FOR_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TIMER_TOPIC,
        TIMER_PROGRESS_TOPIC,
        POP_TOPIC,
    }
)
BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)

TRACE_DATA_PREFIX = "rmq_sys_TRACE_DATA_"
"""The prefix of topics into which clients of a cloud write traces."""

HOLD_OTHERS = NOT_FOR_CLIENTS - {SELF_TEST_TOPIC}
"""
Topics in which brokers keep messages of other topics, such as half messages and delayed ones, or
notes of their own, such as those on transactions, timers and pops.
"""
HOLD_TIMES = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
"""Topics whose queue units hold times in place of tags' hashes."""
_FOR_ALL = frozenset({BENCHMARK_TOPIC, SELF_TEST_TOPIC})

_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")


def is_system(topic: str) -> bool:
    """
    Return whether a topic is RocketMQ's own, under any name of the cluster. Topics in which users'
    programs put messages are not.
    """
    if topic in SYSTEM_TOPICS:
        return topic not in _FOR_ALL
    return topic.lower().startswith(SYSTEM_PREFIX)


def is_of_rocketmq_5(topic: str) -> bool:
    """
    Return whether brokers of RocketMQ 5 keep pending work in this topic.

    `TIMER_TOPIC` is such a topic. If it gets a record that no broker wrote, all timers of a Java
    replica stop for good.
    """
    return topic.startswith(SYSTEM_PREFIX) and not topic.startswith(TRACE_DATA_PREFIX)


def is_for_brokers(topic: str) -> bool:
    """Return whether producers may not send to a topic."""
    return topic in NOT_FOR_CLIENTS or is_of_rocketmq_5(topic)


def topic_fault(topic: str) -> str | None:
    """Return what is wrong with a topic's name; None if nothing is."""
    if not topic.strip():
        return "the topic is blank"
    if _ILLEGAL.search(topic):
        return f"the topic {topic!r} contains characters outside %|a-zA-Z0-9_-"
    if len(topic) > MAX_TOPIC_LENGTH:
        return f"the topic is longer than {MAX_TOPIC_LENGTH} characters"
    return None


def group_name_fault(group: str) -> str | None:
    """
    Return why no client may give a group this name; None if clients may.

    Brokers of 4.9 take any name, and some clients other than Java's use more than `group_fault`
    allows.
    """
    if not group.strip():
        return "the group is blank"
    if "@" in group or not is_one_line(group):
        return f"the group {group[:MAX_GROUP_LENGTH]!r} contains an @ or a control character"
    if len(group) > MAX_GROUP_LENGTH:
        return f"the group is longer than {MAX_GROUP_LENGTH} characters"
    return None


def group_fault(group: str) -> str | None:
    """
    Return what is wrong with a group's name by the Java client's own rule; None if nothing is.
    """
    if not group.strip():
        return "the group is blank"
    if _ILLEGAL.search(group):
        return f"the group {group!r} contains characters outside %|a-zA-Z0-9_-"
    if len(group) > MAX_GROUP_LENGTH:
        return f"the group is longer than {MAX_GROUP_LENGTH} characters"
    return None
