"""
A mypy plugin: no text shows a Python value as only a programmer writes it.

mypy knows the type of each value in an f-string, in `str(...)`, in `click.echo(...)` and in a log
event. The plugin reports a value whose text would be `{'a': 1}`, `[1, 2]`, `Kind.FULL`, `Row(id=1)`
or `<rmq_ha.x.Y object at 0x7f>`. Join the items (`printable.words_of`), name the fields, or give
the class a `__str__`. None is not reported, because most values that may be None are not where
they are shown; `tests/kits/shown_texts.py` looks for it while tests run.

`pyproject.toml` names this file, so each run of mypy asks it, and `tests/unit/test_text_types.py`
shows what it finds. `__repr__` and the kit for tests (`rmq_ha/testing`) may show Python values.
"""

import re
from collections.abc import Callable

from mypy.checker import TypeChecker
from mypy.errorcodes import ErrorCode
from mypy.nodes import ARG_POS, CallExpr, Expression, MemberExpr, StrExpr, TypeInfo
from mypy.plugin import FunctionContext, MethodContext, Plugin
from mypy.types import (
    CallableType,
    Instance,
    LiteralType,
    Overloaded,
    TupleType,
    Type,
    TypeType,
    UnionType,
    get_proper_type,
)

PYTHON_TEXT = ErrorCode("python-text", "A text shows a Python value, not words", "General")

_LOGGER = "twisted.logger._logger.Logger."
_LEVELS = ("debug", "info", "warn", "error", "critical", "failure")
_ECHO = ("builtins.print", "click.utils.echo", "click.termui.secho")
_FIELD = re.compile(r"(?<!\{)\{(\w+)(!\w)?[:}]")
_CONTAINERS = frozenset(
    [
        *(f"builtins.{name}" for name in ("dict", "list", "tuple", "set", "frozenset")),
        *(
            f"typing.{name}"
            for name in ("Mapping", "Sequence", "AbstractSet", "Iterable", "Collection")
        ),
        *(f"collections.{name}" for name in ("deque", "OrderedDict", "defaultdict", "Counter")),
    ]
)
_PLAIN = ("builtins.str", "builtins.int", "builtins.bytes", "builtins.BaseException")
_TEXT_OF_MEMBER = ("enum.IntEnum", "enum.IntFlag", "enum.StrEnum")


def fault(kind: Type, by_repr: bool) -> str | None:
    """
    Return what the text of a value of this type would look like, if only a programmer can read it.

    :param by_repr: the text is that of `repr`, not that of `str`.
    """
    kind = get_proper_type(kind)
    if isinstance(kind, UnionType):
        faults = (fault(item, by_repr) for item in kind.items)
        return next((found for found in faults if found), None)
    if isinstance(kind, LiteralType):
        return fault(kind.fallback, by_repr)
    if isinstance(kind, CallableType | Overloaded | TypeType):
        return "a function or a class"
    if isinstance(kind, TupleType):
        return _fault_of_class(kind.partial_fallback.type, by_repr)
    return _fault_of_class(kind.type, by_repr) if isinstance(kind, Instance) else None


def _fault_of_class(info: TypeInfo, by_repr: bool) -> str | None:
    """
    Return the fault of the first class in the method resolution order that writes a text, as Python
    does.
    """
    writers = ("__repr__",) if by_repr else ("__str__", "__format__", "__repr__")
    for base in info.mro:
        if base.fullname in _CONTAINERS:
            return f"the items of a {base.name} in brackets"
        if base.fullname in _TEXT_OF_MEMBER and not by_repr:
            return None
        if base.fullname == "enum.Enum":
            return f"{info.name}.MEMBER"
        if base.fullname in _PLAIN and not info.is_enum:
            return None
        if base.fullname != "builtins.object" and any(writer in base.names for writer in writers):
            return None
    is_ours = info.fullname.startswith("rmq_ha.")
    return f"{info.name}(...) or <{info.name} object at 0x...>" if is_ours else None


class TextPlugin(Plugin):
    """Looks at the calls that make a text."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Look at `str(value)`, `print(value)` and `click.echo(value)`."""
        return _plain_call if fullname in ("builtins.str", *_ECHO) else None

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Look at f-strings, which mypy checks as calls of `str.format`, and at log events."""
        if fullname == "builtins.str.format":
            return _format
        if fullname.startswith(_LOGGER) and fullname.removeprefix(_LOGGER) in _LEVELS:
            return _log_event
        return None


def _plain_call(context: FunctionContext) -> Type:
    if context.arg_types and len(context.arg_types[0]) == 1:
        _check(context, context.arg_types[0][0], context.args[0][0], False)
    return context.default_return_type


def _format(context: MethodContext) -> Type:
    call = context.context
    pattern = ""
    if isinstance(call, CallExpr) and isinstance(call.callee, MemberExpr):
        text = call.callee.expr
        pattern = text.value if isinstance(text, StrExpr) else ""
    values = list(zip(context.arg_types[0], context.args[0], context.arg_kinds[0], strict=True))
    if pattern.endswith(":{}}"):
        # How mypy reads one field of an f-string: the second value is what follows its colon.
        values = values[:1]
    for kind, argument, how in values:
        if how == ARG_POS:
            _check(context, kind, argument, "!r" in pattern)
    return context.default_return_type


def _log_event(context: MethodContext) -> Type:
    given = [
        (name, kind, argument)
        for names, kinds, arguments in zip(
            context.arg_names, context.arg_types, context.args, strict=True
        )
        for name, kind, argument in zip(names, kinds, arguments, strict=True)
    ]
    texts = [argument.value for _, _, argument in given if isinstance(argument, StrExpr)]
    shown = {
        field: conversion == "!r" for text in texts for field, conversion in _FIELD.findall(text)
    }
    for name, kind, argument in given:
        if name in shown:
            _check(context, kind, argument, shown[name])
    return context.default_return_type


def _check(
    context: FunctionContext | MethodContext, kind: Type, at: Expression, by_repr: bool
) -> None:
    found = fault(kind, by_repr)
    api = context.api
    if found is None or not isinstance(api, TypeChecker) or _is_for_programmers(api):
        return
    # `str.format` has overloads. While mypy tries them it drops each error, and takes an error for
    # a sign that the overload does not fit. So the report goes past the watchers of that attempt.
    errors = api.errors
    watchers, errors._watchers = errors._watchers, []
    try:
        where = at if at.line > 0 else context.context
        api.fail(f"a text would show {found}; write it in words", where, code=PYTHON_TEXT)
    finally:
        errors._watchers = watchers


def _is_for_programmers(api: TypeChecker) -> bool:
    """Return whether the text belongs to a `__repr__`, or to the kit for tests."""
    function = api.scope.current_function()
    module = api.tree.fullname
    return getattr(function, "name", "") == "__repr__" or module.startswith(
        ("rmq_ha.testing", "tests.")
    )


def plugin(version: str) -> type[Plugin]:
    """Return the plugin; called by mypy."""
    return TextPlugin
