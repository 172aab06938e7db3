"""Rows of findings out of rows of anything."""

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rmq_ha.spark.audit.rules import SEVERITIES, Code
from rmq_ha.spark.findings import FINDINGS

QUEUE = ("brokerName", "topic", "queueId")
_TAKEN = {
    "broker": "brokerName",
    "topic": "topic",
    "queueId": "queueId",
    "physicalOffset": "commitLogOffset",
    "queueOffset": "queueOffset",
    "msgId": "id",
}


def findings(frame: DataFrame, code: Code, detail: Column, **given: Any) -> DataFrame:
    """
    A finding for each row; place and id come from the row's own columns, if it has them.

    :param code: of all rows, unless `given` has an `other` of the same severity for some.
    :param detail: the sentence.
    :param given: further columns of a finding.
    """
    columns: list[Column] = []
    for field in FINDINGS.fields:
        if field.name == "severity":
            value = F.lit(str(SEVERITIES[code]))
        elif field.name == "code":
            value = F.coalesce(given.get("other", F.lit(None)), F.lit(str(code)))
        elif field.name == "detail":
            value = detail
        elif field.name in given:
            value = given[field.name]
        elif _TAKEN.get(field.name) in frame.columns:
            value = F.col(_TAKEN[field.name])
        else:
            value = F.lit(None)
        if field.name == "broker":
            value = F.nullif(value, F.lit(""))
        columns.append(value.cast(field.dataType).alias(field.name))
    return frame.select(*columns)


def sentence(text: str, **values: Column | str) -> Column:
    """`{name}` in the text becomes the column `name`, or what is given for it."""
    parts: list[Column] = []
    rest = text
    while rest:
        before, opened, tail = rest.partition("{")
        if before:
            parts.append(F.lit(before))
        if not opened:
            break
        name, _, rest = tail.partition("}")
        value = values.get(name, name)
        column = F.col(value) if isinstance(value, str) else value
        parts.append(F.coalesce(column.cast("string"), F.lit("?")))
    return F.concat(*parts)


def observed(ms: Column) -> Column:
    """`observedAt` of ms since the epoch."""
    return F.timestamp_millis(ms)


def kept(frame: DataFrame) -> DataFrame:
    """
    The same, computed once and kept on disk.

    What an earlier job of this session kept of an equal plan may be of a store as it was then.
    """
    return frame.unpersist().persist(StorageLevel.DISK_ONLY)
