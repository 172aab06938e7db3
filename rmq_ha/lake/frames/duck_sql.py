"""Translates expressions and windows to DuckDB's SQL, with the meaning that they have in Spark."""

from collections.abc import Callable, Sequence
from typing import Any

from rmq_ha.lake.frames.columns import Column, Window, WindowSpec

_TYPES = {
    "string": "VARCHAR", "int": "INTEGER", "long": "BIGINT", "bigint": "BIGINT",
    "double": "DOUBLE", "boolean": "BOOLEAN", "binary": "BLOB", "timestamp": "TIMESTAMP",
}  # fmt: skip
_OPERATORS = {
    "__and__": "AND", "__or__": "OR", "__add__": "+", "__sub__": "-", "__mul__": "*",
    "__truediv__": "/", "__mod__": "%", "__lt__": "<", "__le__": "<=", "__gt__": ">",
    "__ge__": ">=", "__eq__": "=", "__ne__": "<>", "eqNullSafe": "IS NOT DISTINCT FROM",
    "bitwiseAND": "&",
}  # fmt: skip
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Times of the years 1 to 9999. Other times are null, because SQL cannot hold all of them."""

# Arguments of these functions are columns, by name or as expressions.
_FUNCTIONS = {
    "coalesce": "coalesce({all})",
    "greatest": "greatest({all})",
    "least": "least({all})",
    "array": "list_value({all})",
    "array_compact": "list_filter({0}, lambda element: element IS NOT NULL)",
    "explode": "unnest({0})",
    "inline": "unnest({0}, max_depth := 2)",
    "count": "count({0})",
    "countDistinct": "count(DISTINCT {all})",
    "max": "max({0})",
    "min": "min({0})",
    "min_by": "arg_min_null({0}, {1})",
    "max_by": "arg_max_null({0}, {1})",
    "sum": "sum({0})",
    "first": "first({0})",
    "last": "last({0})",
    "lag": "lag({0})",
    "lead": "lead({0})",
    "row_number": "row_number()",
    "dense_rank": "dense_rank()",
    "nullif": "nullif({all})",
    "floor": "CAST(floor({0}) AS BIGINT)",
    "replace": "replace({all})",
    "trim": "trim({0})",
    "crc32": "rmqha_crc32({0})",
    "percentile": "rmqha_percentile(list({0}), list({2}), CAST({1} AS DOUBLE))",
    "unix_millis": "epoch_ms({0})",
    "timestamp_millis": f"CASE WHEN {{0}} BETWEEN {_FIRST_MS} AND {_LAST_MS}"
    " THEN make_timestamp(CAST({0} AS BIGINT) * 1000) END",
    "element_at": "list_extract(map_extract({0}, {1}), 1)",
    "try_element_at": "list_extract(map_extract({0}, {1}), 1)",
    "concat": "({strings})",
}
_WHOLE = ("sum",)
"""Functions of whole numbers whose result has a wider type in DuckDB than in Spark."""


def name(text: str) -> str:
    """Return a column's name, or the path `struct.member`, as SQL."""
    return ".".join(f'"{part}"' for part in text.split("."))


def constant(value: Any) -> str:
    """Return a value of Python as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return f"({value})" if value < 0 else repr(value)
    return "'" + str(value).replace("'", "''") + "'"


def column(value: "str | Column") -> str:
    """Return the SQL of a column that is given by its name, or as an expression."""
    return expression(value) if isinstance(value, Column) else "*" if value == "*" else name(value)


def value_of(value: Any) -> str:
    """Return the SQL of an expression or a constant."""
    return expression(value) if isinstance(value, Column) else constant(value)


def name_of(value: "str | Column") -> str:
    """
    Return the name of a column of a result.

    :raises NotImplementedError: the expression has no name, and Spark and DuckDB would give it
        different ones.
    """
    if isinstance(value, str):
        return value.rpartition(".")[2]
    if value.name == "alias":
        return str(value.given[0])
    if value.owner is None and value.name == "col":
        return str(value.given[0]).rpartition(".")[2]
    if value.owner is not None and value.name in ("cast", "try_cast"):
        return name_of(value.owner)
    raise NotImplementedError(f"{value.name} needs an alias")


def named(value: "str | Column") -> str:
    """Return the SQL of a column in a SELECT, with the column's name."""
    if isinstance(value, Column) and value.owner is None and value.name == "inline":
        return expression(value)
    return f"{column(value)} AS {name(name_of(value))}"


def order(value: "str | Column") -> str:
    """Return the SQL of one column in ORDER BY; nulls stand where Spark puts them."""
    if isinstance(value, Column) and value.owner is None and value.name in ("desc", "asc"):
        is_down = value.name == "desc"
        return f"{column(value.given[0])} {'DESC NULLS LAST' if is_down else 'ASC NULLS FIRST'}"
    return f"{column(value)} ASC NULLS FIRST"


def expression(value: Column) -> str:
    """
    Return the SQL of an expression.

    :raises NotImplementedError: the expression has a function that this module does not translate.
    """
    if value.owner is None:
        return _narrow(value, _function(value))
    own = _METHODS.get(value.name)
    if own is not None:
        return own(value.owner, value.given)
    operator = _OPERATORS.get(value.name)
    if operator is None:
        raise NotImplementedError(f"the method {value.name} of a column")
    return f"({expression(value.owner)} {operator} {value_of(value.given[0])})"


def _function(value: Column) -> str:
    given = value.given
    special = _SPECIAL.get(value.name)
    if special is not None:
        return special(given)
    template = _FUNCTIONS.get(value.name)
    if template is None:
        raise NotImplementedError(f"the function {value.name}")
    parts = [column(part) if isinstance(part, str | Column) else constant(part) for part in given]
    strings = " || ".join(f"CAST({part} AS VARCHAR)" for part in parts)
    return template.format(*parts, all=", ".join(parts), strings=strings)


def _narrow(value: Column, sql: str) -> str:
    """Return the SQL with a cast to BIGINT, where DuckDB's result has a wider type than Spark's."""
    return f"CAST({sql} AS BIGINT)" if value.name in _WHOLE else sql


def _case(given: Sequence[Any]) -> str:
    """Return the SQL of `when(condition, value)`."""
    return f"CASE WHEN {value_of(given[0])} THEN {value_of(given[1])} END"


def _case_again(owner: Column, given: Sequence[Any]) -> str:
    """Return the SQL of a further `.when(condition, value)`."""
    further = f" WHEN {value_of(given[0])} THEN {value_of(given[1])} END"
    return expression(owner).removesuffix(" END") + further


def _struct(given: Sequence[Any]) -> str:
    return f"struct_pack({', '.join(f'{name(name_of(part))} := {column(part)}' for part in given)})"


def _map(given: Sequence[Any]) -> str:
    keys, values = (", ".join(map(column, given[at::2])) for at in (0, 1))
    return f"MAP([{keys}], [{values}])"


def _concat_ws(given: Sequence[Any]) -> str:
    parts = ", ".join(f"CAST({column(part)} AS VARCHAR)" for part in given[1:])
    return f"concat_ws({constant(given[0])}, {parts})"


def _arrays_zip(given: Sequence[str]) -> str:
    """Return the SQL of structs of the first elements of all arrays, of the second ones, ..."""
    members = ", ".join(f"{name(part)} := {name(part)}[element]" for part in given)
    places = f"range(1, len({name(given[0])}) + 1)"
    return f"list_transform({places}, lambda element: struct_pack({members}))"


def _function_over(owner: Column, given: Sequence[Any]) -> str:
    sql = _function(owner)
    if owner.name in ("first", "last"):
        ignores = " IGNORE NULLS" if owner.named.get("ignorenulls") else ""
        sql = f"{owner.name}_value({column(owner.given[0])}{ignores})"
    return _narrow(owner, f"{sql} OVER ({_window(given[0])})")


def _window(window: WindowSpec) -> str:
    """Return the SQL between the parentheses of OVER."""
    words = {"rowsBetween": "ROWS", "rangeBetween": "RANGE"}
    parts = []
    for method, given in window.calls:
        if method == "partitionBy":
            parts.append(f"PARTITION BY {', '.join(map(name, given))}" if given else "")
        elif method == "orderBy":
            parts.append(f"ORDER BY {', '.join(map(order, given))}")
        else:
            parts.append(f"{words[method]} BETWEEN {_edge(given[0])} AND {_edge(given[1])}")
    return " ".join(parts)


def _edge(at: int) -> str:
    """Return the SQL of one end of a window: so many rows before (negative) or after the row."""
    if at == 0:
        return "CURRENT ROW"
    side = "PRECEDING" if at < 0 else "FOLLOWING"
    is_open = at in (Window.unboundedPreceding, Window.unboundedFollowing)
    return f"{'UNBOUNDED' if is_open else abs(at)} {side}"


def _cast(how: str) -> Callable[[Column, Sequence[Any]], str]:
    """Return the translation of a cast; `TRY_CAST` makes null of a value that does not fit."""
    return lambda owner, given: f"{how}({expression(owner)} AS {_TYPES[given[0]]})"


def _isin(owner: Column, given: Sequence[Any]) -> str:
    values = ", ".join(map(value_of, given))
    return f"({expression(owner)} IN ({values}))" if given else "FALSE"


_SPECIAL: dict[str, Callable[[Sequence[Any]], str]] = {
    "col": lambda given: column(given[0]),
    "lit": lambda given: constant(given[0]),
    "when": _case,
    "struct": _struct,
    "create_map": _map,
    "concat_ws": _concat_ws,
    "arrays_zip": _arrays_zip,
    "regexp_extract": lambda given: (
        f"regexp_extract({column(given[0])}, {constant(given[1])}, {given[2]})"
    ),
}
_METHODS: dict[str, Callable[[Column, Sequence[Any]], str]] = {
    "alias": lambda owner, given: expression(owner),
    "cast": _cast("CAST"),
    "try_cast": _cast("TRY_CAST"),
    "isNull": lambda owner, given: f"({expression(owner)} IS NULL)",
    "isNotNull": lambda owner, given: f"({expression(owner)} IS NOT NULL)",
    "isin": _isin,
    "between": lambda owner, given: (
        f"({expression(owner)} BETWEEN {value_of(given[0])} AND {value_of(given[1])})"
    ),
    "startswith": lambda owner, given: f"starts_with({expression(owner)}, {value_of(given[0])})",
    "__invert__": lambda owner, given: f"(NOT {expression(owner)})",
    "__getitem__": lambda owner, given: (
        f"list_extract(map_extract({expression(owner)}, {value_of(given[0])}), 1)"
    ),
    "when": _case_again,
    "otherwise": lambda owner, given: (
        f"{expression(owner).removesuffix(' END')} ELSE {value_of(given[0])} END"
    ),
    "over": _function_over,
}
