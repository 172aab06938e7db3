"""Settings of consumers; names and defaults are those of the Java client, in snake_case.

Spec: remoting.md, sections 11.3 to 11.5.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.client.rules.old_spellings import NewName, with_old_spellings
from rmq_ha.client.rules.process_queue import FlowLimits
from rmq_ha.client.rules.settings import check_ranges

DEFAULT_MAX_RECONSUME_TIMES = 16
_HALF_AN_HOUR_MS = 1_800_000
_MINUTE_MS = 60_000
_CONSUME_TIMEOUT_MS = 15 * _MINUTE_MS


class MessageModel(Enum):
    """Whether the members of a group share the messages of a topic, or each gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a group begins in a queue of which it has no offset."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Beginning(NamedTuple):
    """
    `consume_from_where` with the time that belongs to it.

    :ivar timestamp: `yyyyMMddHHmmss`, local time; half an hour before the start when empty.
    """

    where: ConsumeFromWhere
    timestamp: str = ""

    def time_ms(self, now_ms: int) -> int:
        """
        Return the time of the timestamp, in ms since the epoch.

        :raises ConfigurationError: the timestamp does not have its form.
        """
        if not self.timestamp:
            return now_ms - _HALF_AN_HOUR_MS
        try:
            moment = datetime.strptime(self.timestamp, "%Y%m%d%H%M%S")
        except ValueError:
            raise ConfigurationError(
                f"consume_timestamp is {self.timestamp!r}, not a local time like 20260131235959"
            ) from None
        return int(moment.timestamp() * 1000)


@with_old_spellings(rebalance_interval="rebalance_interval_ms")
@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """
    Settings of all kinds of consumer.

    :ivar consume_timestamp: see `Beginning`.
    :ivar unit_mode: whether the group, and so its retry topic, is in unit mode.
    :ivar connect_broker_by_user: always pull from the broker with `default_broker_id`.
    :ivar rebalance_interval_ms: time between two rebalances, in ms.
    :ivar local_offset_store_dir: directory of the offset files, for BROADCASTING; if empty,
        `.rocketmq_offsets` in the home directory.
    :ivar pull_threshold_for_queue: how many messages of one queue are cached at most.
    :ivar pull_threshold_size_for_queue: how many MiB of bodies of one queue are cached at most.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp: str = ""
    unit_mode: bool = False
    connect_broker_by_user: bool = False
    default_broker_id: int = MASTER_ID
    rebalance_interval_ms: int = 20_000
    local_offset_store_dir: str = ""
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100

    @property
    def is_clustering(self) -> bool:
        """Whether members share the queues, so that brokers keep the offsets."""
        return self.message_model is MessageModel.CLUSTERING

    @property
    def beginning(self) -> Beginning:
        """Where to begin in a queue of which the group has no offset."""
        return Beginning(self.consume_from_where, self.consume_timestamp)


@with_old_spellings(
    pull_interval="pull_interval_ms",
    suspend_current_queue_time_millis="suspend_current_queue_time_ms",
    consume_timeout=NewName("consume_timeout_ms", "minutes", _MINUTE_MS),
    await_termination_millis_when_shutdown="await_termination_when_shutdown_ms",
)
@dataclass(frozen=True, kw_only=True)
class PushConsumerConfig(ConsumerConfig):
    """
    Settings of a push consumer.

    :ivar consume_concurrency: how many calls of the listener run at a time (consumeThreadMax).
    :ivar consume_message_batch_max_size: most messages that one call of the listener gets.
    :ivar consume_concurrently_max_span: most offsets between the first and the last cached message
        of a queue; ignored by orderly consumers.
    :ivar pull_threshold_for_topic: most cached messages of a topic, divided by the number of its
        queues that this member has; replaces `pull_threshold_for_queue` unless it is -1.
    :ivar pull_threshold_size_for_topic: most cached MiB of a topic, divided in the same way;
        replaces `pull_threshold_size_for_queue` unless it is -1.
    :ivar pull_interval_ms: time from a pull that brought messages to the queue's next pull, in ms.
    :ivar post_subscription_when_pull: send tag expressions with each pull.
    :ivar max_reconsume_times: how many times a message is tried again; -1 means 16, and without end
        for orderly consumers.
    :ivar suspend_current_queue_time_ms: how long a queue rests when its listener asks for a rest,
        in ms.
    :ivar consume_timeout_ms: after this time with the listener, in ms, a message is given back and
        the call is cancelled.
    :ivar await_termination_when_shutdown_ms: how long `stop()` waits for running calls, in ms.
    :ivar client_rebalance: whether the members share out the queues. If False, brokers do, and say
        of each topic whether it is pulled or popped (`mqadmin setConsumeMode`).
    :ivar pop_invisible_time_ms: how long a popped message is only this member's, in ms; longer than
        the listener takes for it and those before it.
    :ivar pop_batch_nums: most messages of one pop.
    :ivar pop_threshold_for_queue: with more popped messages of one queue that are not answered, or
        of one broker, the member pops no more there.
    """

    consume_concurrency: int = 20
    consume_message_batch_max_size: int = 1
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    pull_interval_ms: int = 0
    pull_batch_size: int = 32
    post_subscription_when_pull: bool = False
    max_reconsume_times: int = -1
    suspend_current_queue_time_ms: int = 1000
    consume_timeout_ms: int = _CONSUME_TIMEOUT_MS
    await_termination_when_shutdown_ms: int = 10_000
    client_rebalance: bool = True
    pop_invisible_time_ms: int = 60_000
    pop_batch_nums: int = 32
    pop_threshold_for_queue: int = 96

    def limits(self, queues_of_topic: int, *, orderly: bool) -> FlowLimits:
        """
        Return how much of one queue may be cached.

        :param queues_of_topic: how many queues of the topic this member has.
        """
        messages, mib = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue
        share = max(1, queues_of_topic)
        if self.pull_threshold_for_topic != -1:
            messages = max(1, self.pull_threshold_for_topic // share)
        if self.pull_threshold_size_for_topic != -1:
            mib = max(1, self.pull_threshold_size_for_topic // share)
        return FlowLimits(messages, mib << 20, 0 if orderly else self.consume_concurrently_max_span)

    def checked(self) -> "PushConsumerConfig":
        """
        Return these settings after a check of their ranges, which are Java's.

        :raises ConfigurationError: a setting is out of its range.
        """
        ranges = {
            "consume_concurrency": (1, 1000),
            "consume_message_batch_max_size": (1, 1024),
            "consume_concurrently_max_span": (1, 65535),
            "pull_threshold_for_queue": (1, 65535),
            "pull_threshold_size_for_queue": (1, 1024),
            "pull_interval_ms": (0, 65535),
            "pull_batch_size": (1, 1024),
            "consume_timeout_ms": (1, _MINUTE_MS << 31),
            "pop_invisible_time_ms": (5000, 5 * _MINUTE_MS),
            "pop_batch_nums": (1, 32),
            "pop_threshold_for_queue": (1, 65535),
        }
        check_ranges(self, ranges)
        if not (self.client_rebalance or self.is_clustering):
            raise ConfigurationError(
                "client_rebalance=False: brokers share out the queues of CLUSTERING groups only"
            )
        self.beginning.time_ms(0)
        return self


@with_old_spellings(
    broker_suspend_max_time_millis="broker_suspend_max_time_ms",
    consumer_timeout_millis_when_suspend="consumer_timeout_when_suspend_ms",
    consumer_pull_timeout_millis="consumer_pull_timeout_ms",
)
@dataclass(frozen=True, kw_only=True)
class PullConsumerConfig(ConsumerConfig):
    """
    Settings of a pull consumer.

    :ivar broker_suspend_max_time_ms: how long a broker may hold a pull that finds no message, in
        ms.
    :ivar consumer_timeout_when_suspend_ms: how long to wait for the answer to a pull that a broker
        may hold, in ms.
    :ivar consumer_pull_timeout_ms: how long to wait for the answer to any other pull, in ms.
    :ivar max_reconsume_times: how many times a message that is sent back is tried again.
    """

    broker_suspend_max_time_ms: int = 20_000
    consumer_timeout_when_suspend_ms: int = 30_000
    consumer_pull_timeout_ms: int = 10_000
    max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES

    def checked(self) -> "PullConsumerConfig":
        """
        Return these settings after a check of the timeouts.

        :raises ConfigurationError: the timeout is shorter than the time that a broker may hold.
        """
        if self.consumer_timeout_when_suspend_ms < self.broker_suspend_max_time_ms:
            raise ConfigurationError(
                "consumer_timeout_when_suspend_ms must not be less than broker_suspend_max_time_ms"
            )
        return self


@with_old_spellings(
    auto_commit_interval_millis="auto_commit_interval_ms",
    poll_timeout_millis="poll_timeout_ms",
)
@dataclass(frozen=True, kw_only=True)
class LitePullConsumerConfig(PullConsumerConfig):
    """
    Settings of a lite pull consumer.

    :ivar auto_commit: whether a `poll` commits the messages that earlier polls returned.
    :ivar auto_commit_interval_ms: time between two such commits, in ms; at least 1000.
    :ivar poll_timeout_ms: how long `poll` waits for messages unless its caller says, in ms.
    :ivar pull_threshold_for_all: most messages of all queues together that wait for `poll`.
    """

    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    pull_batch_size: int = 10
    pull_threshold_for_all: int = 10_000
    consume_max_span: int = 2000
    poll_timeout_ms: int = 5_000

    def limits(self) -> FlowLimits:
        """Return how much of one queue may be cached."""
        return FlowLimits(
            self.pull_threshold_for_queue,
            self.pull_threshold_size_for_queue << 20,
            self.consume_max_span,
        )

    def checked(self) -> "LitePullConsumerConfig":
        """
        Return these settings after a check of their ranges.

        :raises ConfigurationError: a setting is out of its range.
        """
        super().checked()
        ranges = {
            "auto_commit_interval_ms": (1000, 1 << 31),
            "pull_batch_size": (1, 1024),
            "pull_threshold_for_all": (1, 1 << 31),
            "consume_max_span": (1, 65535),
            "pull_threshold_for_queue": (1, 65535),
            "pull_threshold_size_for_queue": (1, 1024),
        }
        check_ranges(self, ranges)
        self.beginning.time_ms(0)
        return self


@dataclass(frozen=True, kw_only=True)
class SimpleConsumerConfig:
    """
    Settings of a simple consumer; `await_duration` has the name of RocketMQ 5's SDKs.

    :ivar await_duration: how long `receive` waits for a first message.
    :ivar order: whether the messages of a queue come in their order: those behind a message that is
        not acknowledged wait for it.
    :ivar consume_from_where: where a group begins that has no offset; by time is not possible.
    :ivar ack_timeout_ms: how long to repeat an acknowledgement or a change that no master answers,
        in ms. A fail-over should be over by then.
    """

    await_duration: timedelta = timedelta(seconds=20)
    order: bool = False
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    ack_timeout_ms: int = 30_000

    def checked(self) -> "SimpleConsumerConfig":
        """
        Return these settings after a check.

        :raises ConfigurationError: a setting is out of its range.
        """
        milliseconds(self.await_duration, "await_duration")
        check_ranges(self, {"ack_timeout_ms": (1, 1 << 31)})
        if self.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise ConfigurationError(
                "consume_from_where: brokers begin pops at the first or at the last message only;"
                " for a time set the group's offsets by rmqha-admin before"
            )
        return self


def milliseconds(duration: timedelta, name: str) -> int:
    """
    Return a duration in ms.

    :param name: the setting or parameter, for the error.
    :raises ConfigurationError: it is no timedelta, or negative.
    """
    if not isinstance(duration, timedelta):
        raise ConfigurationError(
            f"{name} is {duration}: give a timedelta, for example timedelta(seconds=30)"
        )
    if duration < timedelta(0):
        raise ConfigurationError(f"{name} is {duration}: it must not be negative")
    return duration // timedelta(milliseconds=1)
