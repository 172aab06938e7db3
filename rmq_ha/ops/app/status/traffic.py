"""Metrics of messages put and read, by topic and group, with a limited number of series."""

from collections import Counter
from collections.abc import Mapping
from heapq import nlargest
from typing import Any

from rmq_ha.base.model.topics import DLQ_PREFIX, RETRY_PREFIX
from rmq_ha.base.wire.versions import version_name
from rmq_ha.ops.app.status.lags import GroupLags, lag_of
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.server.broker.stat_items import StatsItem
from rmq_ha.server.pop.face import GroupOut
from rmq_ha.server.pop.tallies import GroupTopic, PopTally

MOST_CLIENT_KINDS = 50
OTHERS = "(other)"
_MODELS = {"BROADCASTING": "0", "CLUSTERING": "1"}
_MODES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull"}


class Traffic:
    """
    The part of a broker's metrics whose number of series depends on its users.

    Topics and groups with the most messages since the start come first.

    :param broker: a `Broker`.
    :param limit: how many topics, and how many pairs of topic and group.
    """

    def __init__(self, broker: Any, limit: int) -> None:
        self._broker = broker
        self._limit = limit
        self._lags = GroupLags(limit, lambda key: lag_of(broker, key))

    def collect(self, samples: Samples) -> None:
        self._collect_topics(samples)
        self._collect_groups(samples)
        self._collect_lags(samples)
        self._collect_clients(samples)
        if self._broker.pops.is_enabled:
            self._collect_pops(samples)

    def _busiest(self, table: str) -> list[tuple[Any, StatsItem]]:
        items = self._broker.stats.tables[table].items()
        return nlargest(self._limit, items, key=lambda item: item[1].messages)

    def _rate(self, name: str, key: str) -> float | None:
        growths = self._broker.stats.growths(name, key)
        return None if growths is None else growths[0].per_second

    def _collect_topics(self, samples: Samples) -> None:
        configured = self._broker.topics.table
        busiest = self._busiest("topics")
        for topic, item in busiest:
            samples.add("rocketmq_messages_in_total", item.messages, topic=topic)
            samples.add("rocketmq_throughput_in_total", item.size, topic=topic)
            samples.add("rocketmq_producer_tps", self._rate("TOPIC_PUT_NUMS", topic), topic=topic)
            rate = self._rate("TOPIC_PUT_SIZE", topic)
            samples.add("rocketmq_producer_message_size", rate, topic=topic)
        chosen = dict.fromkeys(topic for topic, _ in busiest if topic in configured)
        for topic in configured:
            if len(chosen) >= self._limit:
                break
            chosen[topic] = None
        for topic in chosen:
            self._collect_offset(samples, topic, configured[topic])
        samples.add("rmqha_series_left_out", len(configured) - len(chosen), of="topics")

    def _collect_offset(self, samples: Samples, topic: str, config: Any) -> None:
        queues = range(max(config.read_queue_nums, config.write_queue_nums))
        end_of = self._broker.store.max_offset_in_queue
        total = sum([end_of(topic, queue_id) for queue_id in queues])
        if topic.startswith(RETRY_PREFIX):
            samples.add("rocketmq_topic_retry_offset", total, topic=topic)
        elif topic.startswith(DLQ_PREFIX):
            group = topic.removeprefix(DLQ_PREFIX)
            samples.add("rocketmq_topic_dlq_offset", total, group=group)
        else:
            samples.add("rocketmq_producer_offset", total, topic=topic)

    def _collect_groups(self, samples: Samples) -> None:
        for (topic, group), item in self._busiest("groups"):
            five = {"topic": topic, "consumer_group": group}
            samples.add("rocketmq_messages_out_total", item.messages, **five)
            samples.add("rocketmq_throughput_out_total", item.size, **five)
            key, labels = f"{topic}@{group}", {"topic": topic, "group": group}
            samples.add("rocketmq_consumer_tps", self._rate("GROUP_GET_NUMS", key), **labels)
            size = self._rate("GROUP_GET_SIZE", key)
            samples.add("rocketmq_consumer_message_size", size, **labels)
        for (topic, group), _ in self._busiest("backs"):
            rate = self._rate("SNDBCK_PUT_NUMS", f"{topic}@{group}")
            samples.add("rocketmq_send_back_nums", rate, topic=topic, group=group)

    def _collect_lags(self, samples: Samples) -> None:
        table = self._broker.consumer_offsets.table
        lags = self._lags.measure(table)
        for messages, key in lags:
            topic, _, group = key.partition("@")
            samples.add(
                "rocketmq_consumer_lag_messages", messages, topic=topic, consumer_group=group
            )
            live = self._broker.consumers.group(group)
            is_retry = topic.startswith(RETRY_PREFIX)
            samples.add(
                "rocketmq_group_retrydiff" if is_retry else "rocketmq_group_diff",
                messages,
                group=group,
                topic=topic,
                countOfOnlineConsumers=0 if live is None else len(live.members),
                msgModel=_MODELS.get("" if live is None else live.message_model, "1"),
            )
        samples.add("rmqha_series_left_out", max(0, len(table) - len(lags)), of="groups")

    def _collect_pops(self, samples: Samples) -> None:
        """Add the groups with most messages out, and those whose messages came again most often."""
        pops, now_ms = self._broker.pops, self._broker.host.now_ms()
        out, tallies = pops.out_by_group(), pops.tallies()
        pairs = {*out, *tallies}
        chosen = nlargest(self._limit, pairs, key=lambda pair: _weight(out, tallies, pair))
        for pair in sorted(chosen):
            labels = {"consumer_group": pair[0], "topic": pair[1]}
            now, tally = out.get(pair), tallies.get(pair, PopTally())
            oldest_s = 0.0 if now is None else max(0, now_ms - now.first_pop_ms) / 1000
            samples.add("rmqha_pop_group_messages_out", 0 if now is None else now.out, **labels)
            samples.add("rmqha_pop_group_oldest_seconds", oldest_s, **labels)
            samples.add("rmqha_pop_group_redeliveries_total", tally.again, **labels)
            samples.add("rmqha_pop_group_retries_total", tally.retried, **labels)
            samples.add("rmqha_pop_group_dead_letters_total", tally.dead, **labels)
        samples.add("rmqha_series_left_out", len(pairs) - len(chosen), of="pops")

    def _collect_clients(self, samples: Samples) -> None:
        producers, consumers = self._broker.producers, self._broker.consumers
        kinds: Counter[tuple[str, ...]] = Counter()
        for group in producers.groups():
            kinds.update([_kind(client) for client in producers.clients(group)])
        for (language, version), count in _most_frequent(kinds, 2):
            samples.add("rocketmq_producer_connections", count, language=language, version=version)
        kinds.clear()
        for group in consumers.groups():
            info = consumers.group(group)
            mode = _MODES.get(info.consume_type, OTHERS)
            kinds.update([(*_kind(client), mode) for client in info.members.values()])
        at_door = self._broker.door_consumers
        for group in at_door.groups():
            kinds.update([(*_kind(client), "pop") for client in at_door.members(group)])
        for (language, version, mode), count in _most_frequent(kinds, 3):
            samples.add(
                "rocketmq_consumer_connections",
                count,
                language=language,
                version=version,
                consume_mode=mode,
            )


def _weight(
    out: Mapping[GroupTopic, GroupOut], tallies: Mapping[GroupTopic, PopTally], pair: GroupTopic
) -> tuple[int, int]:
    return out.get(pair, GroupOut(0, 0)).out, sum(tallies.get(pair, PopTally()))


def _kind(client: Any) -> tuple[str, str]:
    """
    Return language and version of a client. A client may claim any language and, by gRPC, any
    version; both are cut to 20 characters.
    """
    version = client.sdk[:20] or version_name(client.version)
    return str(client.language)[:20].lower(), version.lower()


def _most_frequent(
    kinds: "Counter[tuple[str, ...]]", width: int
) -> list[tuple[tuple[str, ...], int]]:
    """Return the most frequent kinds, and one entry for all others."""
    frequent = kinds.most_common(MOST_CLIENT_KINDS)
    rest = kinds.total() - sum([count for _, count in frequent])
    return [*frequent, ((OTHERS,) * width, rest)] if rest else frequent
