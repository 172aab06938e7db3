"""How far a stream is behind, out of Spark's own progress reports."""

import json
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from rmq_ha.lake.spark.lag import LagListener, unread_messages


def progress(end: Any, latest: Any, name: str | None = "orders") -> Any:
    source = SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest))
    return SimpleNamespace(progress=SimpleNamespace(id="1-2", name=name, sources=[source]))


def test_each_queue_has_its_number_while_the_query_runs() -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry)

    def shown(queue: str) -> float | None:
        labels = {"query": "orders", "topic": "t", "broker": "b", "queue": queue}
        return registry.get_sample_value("rmqha_spark_behind_messages", labels)

    at, end = {"t": {"b": {"0": 4, "1": 9}}}, {"t": {"b": {"0": 10, "1": 9, "2": 7}}}
    listener.onQueryProgress(progress(at, end))
    # The third queue is new: the next batch says where it begins.
    assert [shown("0"), shown("1"), shown("2")] == [6, 0, None]
    listener.onQueryProgress(progress(end, end))
    assert shown("0") == 0
    listener.onQueryTerminated(SimpleNamespace(id="1-2"))
    assert shown("0") is None


def test_other_sources_are_passed_over() -> None:
    assert unread_messages('{"t":{"0":4}}', '{"t":{"0":9}}') == {}  # Kafka's
    assert unread_messages("17", "20") == {}  # a rate
    assert unread_messages(None, None) == {}
    listener = LagListener(CollectorRegistry())
    listener.onQueryProgress(progress(3, 4, None))
    listener.onQueryTerminated(SimpleNamespace(id="other"))
