"""Collects the samples that a part of a server adds to a scrape."""

from collections import defaultdict
from collections.abc import Callable

from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.samples import Samples


def scraped(tell: Callable[[Samples], object]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return labels and values of the samples of a part, by the name of the metric."""
    samples = Samples(CATALOGUE, defaultdict(str))
    tell(samples)
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in samples.families()
    }
