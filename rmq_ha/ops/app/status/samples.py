"""The values of one scrape, by metric; each is checked against the catalogue."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from rmq_ha.base.model.histogram import Histogram

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricDescription(NamedTuple):
    """
    One metric of the catalogue.

    :ivar name: its name in a scrape; a counter's name ends in `_total`.
    :ivar unit: unit for people: seconds, bytes, messages ...
    """

    name: str
    kind: MetricKind
    unit: str
    labels: tuple[str, ...]
    meaning: str


class Samples:
    """
    The values of one scrape.

    :param catalogue: the metrics that may be added, by name.
    :param constants: labels that have one value for the whole server.
    """

    def __init__(
        self, catalogue: Mapping[str, MetricDescription], constants: Mapping[str, str]
    ) -> None:
        self._catalogue = catalogue
        self._constants = constants
        self._families: dict[str, Family] = {}

    def add(self, name: str, value: float | None, **labels: object) -> None:
        """
        Add one value; None adds nothing.

        :param labels: the metric's labels that are not constant.
        """
        if value is None:
            return
        family = self._family(name)
        assert not isinstance(family, HistogramMetricFamily)
        family.add_metric(self._values(name, labels), float(value))

    def add_histogram(self, name: str, histogram: Histogram, **labels: object) -> None:
        """Add the buckets of a histogram."""
        family = self._family(name)
        assert isinstance(family, HistogramMetricFamily)
        buckets = [
            ("+Inf" if limit == float("inf") else str(limit), float(count))
            for limit, count in histogram.cumulative()
        ]
        family.add_metric(self._values(name, labels), buckets, histogram.total)

    def families(self) -> Iterable[Metric]:
        """Return the metrics for a registry."""
        return self._families.values()

    def _values(self, name: str, labels: Mapping[str, object]) -> list[str]:
        constants = self._constants
        return [
            str(labels[label]) if label in labels else constants[label]
            for label in self._catalogue[name].labels
        ]

    def _family(self, name: str) -> Family:
        family = self._families.get(name)
        if family is None:
            described = self._catalogue[name]
            help_text = described.meaning
            labels = described.labels
            if described.kind is MetricKind.COUNTER:
                family = CounterMetricFamily(name, help_text, labels=labels)
            elif described.kind is MetricKind.GAUGE:
                family = GaugeMetricFamily(name, help_text, labels=labels)
            else:
                family = HistogramMetricFamily(name, help_text, labels=labels)
            self._families[name] = family
        return family
