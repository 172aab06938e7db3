"""Pages for operators say what the code says: metrics and alerts."""

import re
from pathlib import Path

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.ops.app.status.broker_catalogue import OURS
from rmq_ha.ops.app.status.catalogue import CATALOGUE, FIVE, STORAGE
from rmq_ha.ops.app.status.exporter import RUNTIME_LABELS

DOCS = Path(__file__).parents[4] / "docs"
METRICS = (DOCS / "reference" / "metrics.md").read_text()
ALERTS = (DOCS / "reference" / "alerts.md").read_text().split("```yaml")[1].split("```")[0]
ROW = re.compile(r"^\| `(r\w+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
GROUPS = {"(broker)": OURS, "(node)": FIVE, "(storage)": STORAGE, "(runtime)": RUNTIME_LABELS}


def labels(text: str) -> tuple[str, ...]:
    word, _, rest = text.partition(" ")
    if word in GROUPS:
        return (*GROUPS[word], *(rest.split(", ") if rest else ()))
    return tuple(text.split(", "))


def test_the_document_and_the_catalogue_agree() -> None:
    documented = {}
    for name, kind, unit, meaning, label_text in ROW.findall(METRICS):
        assert name not in documented, f"{name} is there twice"
        documented[name] = (kind, unit, meaning, labels(label_text))
    expected = {
        name: (item.kind.value, item.unit, item.meaning, item.labels)
        for name, item in CATALOGUE.items()
    }
    assert documented == expected


def test_examples_use_metrics_that_exist() -> None:
    for name in re.findall(r"\b((?:rmqha|rocketmq)_\w+)", ALERTS):
        assert re.sub("_bucket$", "", name) in CATALOGUE, name


def test_whatever_is_refused_or_dropped_has_an_alert() -> None:
    """Who adds a limit says when somebody has to look."""
    told = set(re.findall(r"\b(rmqha_\w+)", ALERTS))
    counted = re.compile("refused|dropped|turned_away|oversized|violations|held_back|failures")
    without = {name for name in CATALOGUE if name.startswith("rmqha_") and counted.search(name)}
    assert without - told == {"rmqha_slave_sync_failures_total"}  # SlaveTablesOld says it


def test_settings_that_are_named_exist_with_these_defaults() -> None:
    defaults = RmqHaConfig()
    text = (DOCS / "operations.md").read_text()
    assert f"metricsAddress={defaults.metrics_address} " in text
    assert f"metricsSeriesLimit={defaults.metrics_series_limit} " in text
    assert defaults.metrics_port == 0
