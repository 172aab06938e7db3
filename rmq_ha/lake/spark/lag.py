"""Metrics for Prometheus of how far streams are behind their queues."""

import json
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Gauge
from pyspark.sql.streaming.listener import StreamingQueryListener

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.spark.source.streaming_offsets import Offsets, from_json


class LagListener(StreamingQueryListener):
    """
    Watches the queries of a session: `spark.streams.addListener(LagListener())`.

    Spark has no metrics of Python sources, and shows all of them under the name of one Java class.
    In these metrics a query has its own name (`queryName`, else its id), and a queue its name in
    RocketMQ. Queries of other sources are ignored.

    :param registry: registry of the metric `rmqha_spark_behind_messages`, by query, topic, broker
        and queue.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._gauge = Gauge(
            "rmqha_spark_behind_messages",
            "Messages that a streaming query has not read yet",
            ("query", "topic", "broker", "queue"),
            registry=registry,
        )
        self._shown: dict[str, set[tuple[str, ...]]] = {}

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        """Set the metrics by a query's report of its progress."""
        progress = event.progress
        name = progress.name or str(progress.id)
        shown = self._shown.setdefault(str(progress.id), set())
        for source in progress.sources:
            for queue, count in unread_messages(source.endOffset, source.latestOffset).items():
                labels = (name, queue.topic, queue.broker, str(queue.queue_id))
                shown.add(labels)
                self._gauge.labels(*labels).set(count)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        """Remove the metrics of a query that has ended."""
        for labels in self._shown.pop(str(event.id), ()):
            self._gauge.remove(*labels)


def unread_messages(end: str | None, latest: str | None) -> Offsets:
    """
    Return how many messages a query has not read yet, by queue; for other sources none.

    :param end: offsets where the source's last batch ended, from a progress report.
    :param latest: offsets where its queues ended at that time.
    """
    try:
        read, ends = from_json(json.loads(end or "{}")), from_json(json.loads(latest or "{}"))
    except (CannotDecide, ValueError):
        return {}
    return {queue: max(0, last - read[queue]) for queue, last in ends.items() if queue in read}
