"""One-line faults by rule: where a module could be wrong, and its code with that fault.

Only the bodies of functions are touched. What a module or a class says once, at import, is data,
and what goes into a log is not judged by a test: neither is planted.

A fault is named by its function, its rule and the operator that the rule changes:
`RealFile.pread: edge <`. Where a function has several of these operators, the name says which one,
and of how many: `edge < 2/3`. So a name outlives a reformat of the file and other names of local
variables. It fits nothing once the function has one such operator more.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from types import CodeType
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "rmq_ha"

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOG_CALLS = {"debug", "info", "warn", "error", "critical", "failure"}
_NOT_VISITED = {"annotation", "returns", "decorator_list", "type_params"}
_SIGNALS = {"kill", "killpg", "setrlimit"}
_GREATEST = 64

_EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_EQUALS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_SYMBOLS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Pow: "**",
    ast.MatMult: "@",
}
_SWAPS = {"min": "max", "max": "min", "any": "all", "all": "any", "popleft": "pop"}


class Fault(NamedTuple):
    """
    One place and what it becomes.

    :ivar module: below `rmq_ha`, as in `server/store/log/flush.py`.
    :ivar function: qualified name, as code objects have it.
    :ivar operator: the operator, constant or called name that the rule changes, or empty.
    :ivar which: `2/3`: the second of three such operators of the function; empty: the only one.
    """

    module: str
    line: int
    function: str
    rule: str
    operator: str
    change: str
    parent: ast.AST
    field: str
    index: int | None
    replacement: ast.AST
    which: str = ""

    @property
    def name(self) -> str:
        """What the lists call it."""
        return f"{self.module} {self.function}: " + " ".join(
            filter(None, (self.rule, self.operator, self.which))
        )


class Module:
    """A file of the package, parsed once, and the faults that the rules find in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.relative_to(PACKAGE).as_posix()
        self._tree = ast.parse(path.read_text(encoding="utf-8"))
        found = list(_Finder(self.name).find(self._tree))
        total = Counter(fault.name for fault in found)
        so_far = Counter[str]()
        self.faults: list[Fault] = []
        for fault in found:
            so_far[fault.name] += 1
            if total[fault.name] > 1:
                which = f"{so_far[fault.name]}/{total[fault.name]}"
                fault = fault._replace(which=which)
            self.faults.append(fault)

    @property
    def dotted(self) -> str:
        """As it is imported."""
        return ".".join(self.path.relative_to(PACKAGE.parent).with_suffix("").parts)

    def compile(self, fault: Fault) -> CodeType:
        """The module with this fault."""
        slot = getattr(fault.parent, fault.field)
        replacement = fault.replacement
        if fault.index is None:
            setattr(fault.parent, fault.field, replacement)
        else:
            original, slot[fault.index] = slot[fault.index], replacement
        try:
            ast.fix_missing_locations(self._tree)
            return compile(self._tree, str(self.path), "exec")
        finally:
            if fault.index is None:
                setattr(fault.parent, fault.field, slot)
            else:
                slot[fault.index] = original


def modules(
    prefixes: list[str], is_wanted: Callable[[str], object] = lambda _: True
) -> Iterator[Module]:
    """All files of the package whose name begins with one of these, of those that are wanted."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if any(name.startswith(prefix) for prefix in prefixes) and is_wanted(name):
            yield Module(path)


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def _is_log_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _LOG_CALLS
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


class _Finder:
    """Walks a tree; yields what each rule makes of each place."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._scope: list[str] = []
        self._depth = 0
        self._locals: list[set[str]] = []

    def find(self, tree: ast.AST) -> Iterator[Fault]:
        for field, value in ast.iter_fields(tree):
            if field in _NOT_VISITED:
                continue
            children = value if isinstance(value, list) else [value]
            for index, child in enumerate(children):
                if isinstance(child, ast.arguments) or _is_log_call(child):
                    continue
                if isinstance(child, ast.AST):
                    place = index if isinstance(value, list) else None
                    yield from self._at(tree, field, place, child)

    def _at(self, parent: ast.AST, field: str, index: int | None, node: ast.AST) -> Iterator[Fault]:
        if isinstance(node, ast.Expr) and (_is_log_call(node.value) or _is_text(node.value)):
            return
        place = (parent, field, index)
        if self._depth:
            for rule, replacement, change in _replacements(parent, field, node, self._is_init):
                yield self._fault(rule, replacement, change, node, place)
        if isinstance(node, ast.Raise):
            return  # the text of an error is not judged
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _SIGNALS:
            return  # a wrong process must not get it
        is_function = isinstance(node, _FUNCTIONS)
        if is_function or isinstance(node, ast.ClassDef):
            self._scope += [node.name, "<locals>"] if is_function else [node.name]
            self._depth += is_function
            if is_function:
                self._locals.append(_locals_of(node))
            if is_function and _says_nothing(node):
                empty = copy(node)
                empty.body = [ast.Return(), *node.body]
                yield self._fault("empty", empty, f"def {node.name} => return", node, place)
            yield from self.find(node)
            self._depth -= is_function
            if is_function:
                self._locals.pop()
            del self._scope[-2 if is_function else -1 :]
        else:
            yield from self.find(node)

    @property
    def _is_init(self) -> bool:
        return self._scope[-2:-1] == ["__init__"]

    def _fault(self, rule, replacement, change, node, place) -> Fault:
        line = getattr(node, "lineno", getattr(place[0], "lineno", 0))
        function = ".".join(self._scope).removesuffix(".<locals>")
        operator = _operator(rule, node, replacement, set().union(*self._locals))
        instead = ast.copy_location(replacement, node)
        return Fault(self._module, line, function, rule, operator, change, *place, instead)


def _locals_of(function: ast.AST) -> set[str]:
    """Names that the function gives to its parameters and variables."""
    return {
        part.arg if isinstance(part, ast.arg) else part.id
        for part in ast.walk(function)
        if isinstance(part, ast.arg)
        or (isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load))
    }


def _operator(rule: str, node: ast.AST, after: ast.AST, locals_: set[str]) -> str:
    """What the rule changes there, in a word that names no local variable."""
    if rule in ("edge", "equal"):
        pairs = zip(node.ops, after.ops, strict=True)
        return _SYMBOLS[next(type(op) for op, other in pairs if op is not other)]
    if rule in ("andor", "sign"):
        return _SYMBOLS[type(node.op)]
    if rule in ("one", "bool"):
        return repr(node.value)
    if rule == "slice":
        return "lower" if after.lower is not node.lower else "upper"
    if rule == "guard":
        return type(node.body[0]).__name__.lower()
    if rule == "handler" and isinstance(node.type, ast.Name | ast.Attribute):
        return _called(node.type, locals_)
    if rule in ("drop", "await", "swap"):
        return _step(node, locals_)
    return ""


def _step(node: ast.AST, locals_: set[str]) -> str:
    """The word for a statement or call: the name that it calls, or the attribute that it sets."""
    if isinstance(node, ast.Expr | ast.Await):
        return _step(node.value, locals_)
    if isinstance(node, ast.Call):
        return _called(node.func, locals_)
    if isinstance(node, ast.Raise) and node.exc is not None:
        return f"raise {_step(node.exc, locals_)}".rstrip()
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        sign = f"{_SYMBOLS[type(node.op)]}=" if isinstance(node, ast.AugAssign) else "="
        return f"{_called(target, locals_)} {sign}".lstrip()
    name = type(node).__name__.lower()
    return {"delete": "del"}.get(name, name) if isinstance(node, ast.stmt) else ""


def _called(node: ast.AST, locals_: set[str]) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return f"{_called(node.value, locals_)}[]"
    return node.id if isinstance(node, ast.Name) and node.id not in locals_ else ""


_Found = Iterator[tuple[str, ast.AST, str]]


def _replacements(parent: ast.AST, field: str, node: ast.AST, is_init: bool) -> _Found:
    """Rule, what stands there instead, and the change in a line."""
    if isinstance(node, ast.stmt):
        yield from _statements(parent, node, is_init)
    if isinstance(node, ast.ExceptHandler) and not isinstance(node.body[-1], ast.Raise):
        again = ast.ExceptHandler(node.type, node.name, [ast.Raise(), *node.body])
        kind = _text(node.type) if node.type else "all"
        yield "handler", again, f"except {kind} => raise"
    if isinstance(node, ast.expr):
        yield from _expressions(parent, field, node, is_init)


def _statements(parent: ast.AST, node: ast.stmt, is_init: bool) -> _Found:
    if _is_dropped(parent, node, is_init):
        yield "drop", _never(node), f"{_text(node)} => pass"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Await):
        yield "await", ast.Expr(node.value.value), f"{_text(node)} => not awaited"
    if isinstance(node, ast.If) and _is_guard(node):
        yield "guard", _never(node), f"if {_text(node.test)}: {_text(node.body[-1])} => pass"
    if isinstance(node, ast.For) and not isinstance(node.body[-1], ast.Return | ast.Break):
        once = ast.For(node.target, node.iter, [*node.body, ast.Break()], [])
        yield "once", once, f"for {_text(node.target)} in {_text(node.iter)} => once"


def _never(node: ast.stmt) -> ast.stmt:
    """In its place, but never done: the function keeps its names, and so can have this code."""
    return ast.If(ast.Constant(False), [node], [])


def _is_dropped(parent: ast.AST, node: ast.stmt, is_init: bool) -> bool:
    """Without it something would be left out, and not only a name be unknown."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    if isinstance(node, ast.Raise | ast.Break | ast.Continue):
        return not _is_guard(parent)
    if isinstance(node, ast.AugAssign | ast.Delete):
        return True
    return not is_init and _is_attribute_set(node)


def _is_attribute_set(node: ast.AST) -> bool:
    """Something outside the function's own names changes."""
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Attribute) and node.value is not None
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    )


def _is_guard(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and len(node.body) == 1
        and isinstance(node.body[0], ast.Return | ast.Raise | ast.Continue | ast.Break)
    )


def _says_nothing(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A function of several steps that returns no value."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    says = (ast.Yield, ast.YieldFrom, *_FUNCTIONS)
    inside = [part for step in body for part in ast.walk(step)]
    return (
        len(body) > 1
        and node.name != "__init__"
        and not any(isinstance(part, says) for part in inside)
        and not any(isinstance(part, ast.Return) and part.value is not None for part in inside)
    )


def _expressions(parent: ast.AST, field: str, node: ast.expr, is_init: bool) -> _Found:
    before = _text(node)
    is_equality = isinstance(node, ast.Compare) and type(node.ops[-1]) in _EQUALS
    is_test = field == "test" or (isinstance(parent, ast.comprehension) and field == "ifs")
    if is_test and not is_equality:
        yield "negate", _negated(node), f"{before} => {_text(_negated(node))}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negate", node.operand, f"{before} => {_text(node.operand)}"
    for rule, after in _operators(node):
        yield rule, after, f"{before} => {_text(after)}"
    is_dropped = not is_init and _is_attribute_set(parent) and _is_bool(node)
    if isinstance(node, ast.Constant) and not is_dropped:
        yield from _constants(parent, field, node)
    if isinstance(node, ast.Slice):
        for side in ("lower", "upper"):
            edge = getattr(node, side)
            if edge is not None and not isinstance(edge, ast.Constant | ast.UnaryOp):
                more = ast.BinOp(edge, ast.Add(), ast.Constant(1))
                sides = {"lower": node.lower, "upper": node.upper, "step": node.step, side: more}
                after = ast.Slice(**sides)
                whole = _text(parent.value) if isinstance(parent, ast.Subscript) else ""
                yield "slice", after, f"{whole}[{before}] => {whole}[{_text(after)}]"


def _negated(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return ast.UnaryOp(ast.Not(), node)


def _operators(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for rule, others in (("edge", _EDGES), ("equal", _EQUALS)):
                other = others.get(type(operator))
                if other is not None:
                    ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                    yield rule, ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield "andor", ast.BoolOp(other(), node.values)
    elif isinstance(node, ast.BinOp):
        sign = _SIGNS.get(type(node.op))
        if sign and not _is_text(node.left) and not _is_text(node.right):
            yield "sign", ast.BinOp(node.left, sign(), node.right)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in _SWAPS:
            other = ast.Name(_SWAPS[node.func.id], ast.Load())
            yield "swap", ast.Call(other, node.args, node.keywords)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _SWAPS:
            other = ast.Attribute(node.func.value, _SWAPS[node.func.attr], ast.Load())
            yield "swap", ast.Call(other, node.args, node.keywords)


def _is_bool(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _constants(parent: ast.AST, field: str, node: ast.Constant) -> _Found:
    value = node.value
    if isinstance(parent, ast.keyword):
        if parent.arg == "strict":
            return
        where = f" ({parent.arg}=)"
    elif isinstance(parent, ast.Expr | ast.Return | ast.Assign):
        where = ""
    elif isinstance(parent, ast.FormattedValue | ast.JoinedStr):
        return
    else:
        where = f" ({_text(parent)})"
    if isinstance(value, bool):
        yield "bool", ast.Constant(not value), f"{value} => {not value}{where}"
    elif isinstance(value, int) and value <= _GREATEST:
        if isinstance(parent, ast.Subscript) and field == "slice" and value == 0:
            yield "end", ast.Constant(-1), f"{_text(parent)} => {_text(parent.value)}[-1]"
        else:
            yield "one", ast.Constant(value + 1), f"{value} => {value + 1}{where}"
