"""DataFrames that write down what they are asked for: what a plan says, without a session."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as T


@pytest.fixture
def columns_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over Spark Connect, where a column is an expression of Python."""
    pytest.importorskip("grpc", reason="pip install 'rmq-ha[connect]'")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setattr(DataFrame, "unionByName", lambda one, other: one.unionByName(other))


class Plan:
    """
    What was asked of a DataFrame, or of a reader: its text has the steps, one after the other.

    :param rows: what it gives in the end, whatever the steps.
    :ivar collected: what was asked for in the end, of it and of all that was made of it.
    """

    def __init__(
        self, text: str, rows: Sequence[Any] = (), collected: list[str] | None = None
    ) -> None:
        self._text, self._rows = text, rows
        self.collected = [] if collected is None else collected

    def __str__(self) -> str:
        return self._text

    def collect(self) -> list[Any]:
        self.collected.append(self._text)
        return list(self._rows)

    def __getattr__(self, step: str) -> Callable[..., Plan]:
        if step.startswith("_"):
            raise AttributeError(step)

        def taken(*given: Any, **named: Any) -> Plan:
            shown = [_shown(each) for each in given]
            shown += [f"{name}={named[name]}" for name in sorted(named)]
            text = f"{self._text}.{step}({', '.join(shown)})"
            return Plan(text, self._rows, self.collected)

        return taken


class Session:
    """A session that only reads, and that only in words."""

    def __init__(self, rows: Sequence[Any] = ()) -> None:
        self.read = Plan("read", rows)

    def createDataFrame(self, rows: Sequence[Any], schema: Any) -> Plan:
        return Plan("made", rows)


def _shown(value: Any) -> str:
    if isinstance(value, T.StructType):
        return " ".join(value.names)
    return re.sub("^Column<'(.*)'>$", r"\1", str(value))
