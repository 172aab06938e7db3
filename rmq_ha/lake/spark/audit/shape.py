"""Makes rows of findings from rows of other frames."""

from collections.abc import Callable, Sequence
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


def findings(
    frame: DataFrame, code: Code | Column, detail: Column | str, **given: Any
) -> DataFrame:
    """
    Return a finding for each row, with place, id and time of the row's columns, if it has them.

    :param detail: a column, or a text for `sentence`; so are the values of `given`.
    """
    name = F.lit(str(code)) if isinstance(code, Code) else code
    own = {to: F.col(by) for to, by in _TAKEN.items() if by in frame.columns}
    if "broker" in own:
        own["broker"] = F.nullif(own["broker"], F.lit(""))
    times = [F.col(name) for name in ("atMs", "storedMs") if name in frame.columns]
    if times:
        own["observedAt"] = F.timestamp_millis(F.coalesce(*times))
    severity = meaning(SEVERITIES, name)
    told = {to: _sentence_if_text(value) for to, value in {**given, "detail": detail}.items()}
    return findings_of(frame, **own | told, severity=severity, code=name)


def telling(
    code: Code, detail: str, expected: str, actual: str, *, of_group: bool = False
) -> Callable[[DataFrame], DataFrame]:
    """Return a function that makes a finding of each row; the texts are those for `sentence`."""

    def tell(rows: DataFrame) -> DataFrame:
        group = F.col("group") if of_group else None
        return findings(rows, code, detail, group=group, expected=expected, actual=actual)

    return tell


def _sentence_if_text(value: Any) -> Any:
    return sentence(value) if isinstance(value, str) else value


def fault(code: Code, applies: Column, detail: Column | str, **given: Column | str) -> Column:
    """
    Return one of several faults that a row may have; null if it does not apply.

    :param given: `at` (queue offset), `expected`, `actual`; texts are those for `sentence`.
    """
    values = {"detail": detail, "at": None, "expected": None, "actual": None, **given}
    columns = {name: F.lit(_sentence_if_text(value)) for name, value in values.items()}
    kinds = {name: "long" if name == "at" else "string" for name in columns}
    parts = (columns[name].cast(kind).alias(name) for name, kind in kinds.items())
    return F.when(applies, F.struct(F.lit(str(code)).alias("code"), *parts))


def all_faults(frame: DataFrame, faults: Sequence[Column]) -> DataFrame:
    """Return findings of rows that may have several faults (`fault`), in one pass."""
    exploded = frame.withColumn("fault", F.explode(F.array_compact(F.array(*faults))))
    return findings(
        exploded,
        F.col("fault.code"),
        F.col("fault.detail"),
        queueOffset=F.col("fault.at"),
        expected=F.col("fault.expected"),
        actual=F.col("fault.actual"),
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
    return parts[0] if len(parts) == 1 else F.concat(*parts)


def earlier(*by: str, order: str) -> WindowSpec:
    """Return a window of the rows of the same group with a lower whole number `order`."""
    window = Window.partitionBy(*by).orderBy(order)
    return window.rangeBetween(Window.unboundedPreceding, -1)


def gathered(frame: DataFrame, count: int) -> DataFrame:
    """Put few rows into one part, so that no query of them needs a shuffle."""
    return frame.coalesce(1) if count <= _FEW else frame
