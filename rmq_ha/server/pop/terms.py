"""What POP consumption asks the broker around it."""

from collections.abc import Callable
from typing import NamedTuple


class PopTerms(NamedTuple):
    """
    Answers of a broker; the operator may change most of them while it runs.

    :ivar grace_ms: returns `popFailoverGrace`.
    :ivar threshold: returns how many messages of a queue may be out with a group.
    :ivar most_out: returns `popMaxInflight`.
    :ivar uses_dead_letters: returns `popBrokerDlq`.
    :ivar is_v2: returns `enableRetryTopicV2`.
    :ivar retries: returns retryMaxTimes of a group; None if there is no such group.
    :ivar make_topic: makes a retry or dead-letter topic unless it exists.
    :ivar offset: returns the offset of a group in a queue, by group, topic and queue id; -1 if it
        has none.
    :ivar commit: sets the offset of a group in a queue, by the same and the offset.
    """

    grace_ms: Callable[[], int]
    threshold: Callable[[], int]
    most_out: Callable[[], int]
    uses_dead_letters: Callable[[], bool]
    is_v2: Callable[[], bool]
    retries: Callable[[str], int | None]
    make_topic: Callable[[str], object]
    offset: Callable[[str, str, int], int]
    commit: Callable[[str, str, int, int], object]
