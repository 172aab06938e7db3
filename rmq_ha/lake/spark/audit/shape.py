"""Makes rows of findings from rows of other frames."""

from collections.abc import Sequence
from typing import Any

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column, Window, WindowSpec
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.spark.audit.rules import SEVERITIES, Code
from rmq_ha.lake.spark.findings import findings_of, meaning

_FEW = 100_000
QUEUE = ("brokerName", "topic", "queueId")
_TAKEN = {
    "broker": "brokerName",
    "topic": "topic",
    "queueId": "queueId",
    "physicalOffset": "commitLogOffset",
    "queueOffset": "queueOffset",
    "msgId": "id",
}


def findings(frame: DataFrame, code: Code | Column, detail: Column, **given: Any) -> DataFrame:
    """
    Return a finding for each row, with place, id and time of the row's columns, if it has them.
    """
    name = F.lit(str(code)) if isinstance(code, Code) else code
    own = {to: F.col(by) for to, by in _TAKEN.items() if by in frame.columns}
    if "broker" in own:
        own["broker"] = F.nullif(own["broker"], F.lit(""))
    times = [F.col(name) for name in ("atMs", "storedMs") if name in frame.columns]
    if times:
        own["observedAt"] = F.timestamp_millis(F.coalesce(*times))
    severity = meaning(SEVERITIES, name)
    return findings_of(frame, **own | given, severity=severity, code=name, detail=detail)


def fault(code: Code, applies: Column, detail: Column, **given: Column) -> Column:
    """
    Return one of several faults that a row may have; null if it does not apply.

    :param given: `at` (queue offset), `expected`, `actual`.
    """
    values = {"at": F.lit(None), "expected": F.lit(None), "actual": F.lit(None), **given}
    return F.when(
        applies,
        F.struct(
            F.lit(str(code)).alias("code"),
            detail.alias("detail"),
            values["at"].cast("long").alias("at"),
            values["expected"].cast("string").alias("expected"),
            values["actual"].cast("string").alias("actual"),
        ),
    )


def all_faults(frame: DataFrame, faults: Sequence[Column], **given: Column) -> DataFrame:
    """Return findings of rows that may have several faults (`fault`), in one pass."""
    exploded = frame.withColumn("fault", F.explode(F.array_compact(F.array(*faults))))
    return findings(
        exploded,
        F.col("fault.code"),
        F.col("fault.detail"),
        queueOffset=F.col("fault.at"),
        expected=F.col("fault.expected"),
        actual=F.col("fault.actual"),
        **given,
    )


def sentence(text: str, **values: Column | str) -> Column:
    """
    Return a text in which `{name}` is replaced by the value of the column `name`.

    :param values: other columns, or names of columns, for some of the names.
    """
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


def earlier(*by: str, order: str) -> WindowSpec:
    """Return a window of the rows of the same group with a lower whole number `order`."""
    window = Window.partitionBy(*by).orderBy(order)
    return window.rangeBetween(Window.unboundedPreceding, -1)


def frozen(frame: DataFrame) -> DataFrame:
    """Write the present rows to disk, so that every later query sees the same ones."""
    return frame.freeze()


def gathered(frame: DataFrame, count: int) -> DataFrame:
    """Put few rows into one part, so that no query of them needs a shuffle."""
    return frame.coalesce(1) if count <= _FEW else frame


def persist_on_disk(frame: DataFrame) -> DataFrame:
    """Compute the frame once, and keep it on disk."""
    return frame.keep()
