"""The functions by which POP consumption reads settings, groups and offsets of its broker."""

from collections.abc import Callable, Iterable
from typing import NamedTuple


class PopTerms(NamedTuple):
    """
    Functions of a broker. They are called each time, because the operator may change most settings
    while the broker runs.

    :ivar grace_ms: returns `popFailoverGrace`: how many ms a new master adds to each lease.
    :ivar threshold: returns how many messages of one queue may be out with one group.
    :ivar most_out: returns `popMaxInflight`: how many messages of all queues may be out.
    :ivar uses_dead_letters: returns `popBrokerDlq`: whether the broker moves a message that has
        had all its retries to the dead-letter topic.
    :ivar is_v2: returns `enableRetryTopicV2`: whether names of retry topics have a `+`.
    :ivar retries: takes the name of a group; returns its retryMaxTimes, or None if there is no such
        group.
    :ivar topics: returns the names of all topics that the broker knows.
    :ivar make_topic: takes the name of a retry or dead-letter topic; makes the topic unless it
        exists.
    :ivar offset: takes group, topic and queue id; returns the group's offset in the queue, or -1 if
        it has none.
    :ivar commit: takes group, topic, queue id and offset; sets the group's offset in the queue.
    """

    grace_ms: Callable[[], int]
    threshold: Callable[[], int]
    most_out: Callable[[], int]
    uses_dead_letters: Callable[[], bool]
    is_v2: Callable[[], bool]
    retries: Callable[[str], int | None]
    topics: Callable[[], Iterable[str]]
    make_topic: Callable[[str], object]
    offset: Callable[[str, str, int], int]
    commit: Callable[[str, str, int, int], object]
