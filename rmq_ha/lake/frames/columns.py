"""Expressions over columns and windows, which engines translate."""

import sys
from collections.abc import Callable
from typing import Any


def _method(name: str) -> Callable[..., "Expression"]:
    """Return a method of `Expression` that returns an expression of its call."""

    def call(self: "Expression", *given: Any) -> "Expression":
        return Expression(name, given, self)

    return call


class Expression:
    """
    A call of a function or method on columns, which an engine computes later.

    :ivar name: name of a function of `pyspark.sql.functions`, or of a method of its `Column`.
    :ivar given: the arguments; some of them are expressions.
    :ivar owner: the expression whose method this is; None: this is a function.
    """

    def __init__(
        self,
        name: str,
        given: tuple[Any, ...] = (),
        owner: "Expression | None" = None,
        **named: Any,
    ) -> None:
        self.name = name
        self.given = given
        self.owner = owner
        self.named = named

    alias, cast, try_cast = _method("alias"), _method("cast"), _method("try_cast")
    isNull, isNotNull, isin = _method("isNull"), _method("isNotNull"), _method("isin")
    between, startswith = _method("between"), _method("startswith")
    eqNullSafe, bitwiseAND = _method("eqNullSafe"), _method("bitwiseAND")
    when, otherwise, over = _method("when"), _method("otherwise"), _method("over")
    __getitem__, __invert__ = _method("__getitem__"), _method("__invert__")
    __and__, __or__ = _method("__and__"), _method("__or__")
    __add__, __sub__, __mul__ = _method("__add__"), _method("__sub__"), _method("__mul__")
    __truediv__, __mod__ = _method("__truediv__"), _method("__mod__")
    __lt__, __le__, __gt__, __ge__ = map(_method, ("__lt__", "__le__", "__gt__", "__ge__"))
    __eq__ = _method("__eq__")  # type: ignore[assignment]
    __ne__ = _method("__ne__")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value: combine expressions with &, | and ~")


class WindowSpec:
    """The rows of a window function: `calls` are methods that made it, with arguments."""

    def __init__(self, *calls: tuple[str, tuple[Any, ...]]) -> None:
        self.calls = calls

    def partitionBy(self, *by: str) -> "WindowSpec":
        return WindowSpec(*self.calls, ("partitionBy", by))

    def orderBy(self, *by: "str | Expression") -> "WindowSpec":
        return WindowSpec(*self.calls, ("orderBy", by))

    def rowsBetween(self, start: int, end: int) -> "WindowSpec":
        return WindowSpec(*self.calls, ("rowsBetween", (start, end)))

    def rangeBetween(self, start: int, end: int) -> "WindowSpec":
        return WindowSpec(*self.calls, ("rangeBetween", (start, end)))


class WindowMaker:
    """Makes windows as `pyspark.sql.Window` does: `Window.partitionBy("topic")`."""

    unboundedPreceding = -sys.maxsize
    unboundedFollowing = sys.maxsize
    currentRow = 0

    @staticmethod
    def partitionBy(*by: str) -> WindowSpec:
        return WindowSpec().partitionBy(*by)

    @staticmethod
    def orderBy(*by: str | Expression) -> WindowSpec:
        return WindowSpec().orderBy(*by)


Column = Expression
Window = WindowMaker
"""`Expression` and `WindowMaker` under the names that `pyspark.sql` gives them."""
