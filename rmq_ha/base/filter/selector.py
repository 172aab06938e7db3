"""Compiles a selector to a function of a message's properties.

Spec: remoting.md, section 6.2; store.md, section 8.3.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from rmq_ha.base.filter.nodes import (
    Cast,
    Constant,
    Equal,
    IsNull,
    Logic,
    Membership,
    Negate,
    Negation,
    Node,
    Order,
    Property,
)
from rmq_ha.base.filter.parser import parse
from rmq_ha.base.filter.values import Incomparable, Long, equal, order, to_integer, to_long

Properties = Mapping[str, str]
_Run = Callable[[Properties], Any]

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Selector:
    """
    A compiled expression.

    :param text: the expression, in RocketMQ's SQL92.
    :raises InvalidSelector: the text does not compile.
    """

    __slots__ = ("_run", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._run = _compile(parse(text))

    def matches(self, properties: Properties) -> bool:
        """
        Return whether the expression is true of these properties. It is not if it is false or
        unknown, or if a value cannot be compared.
        """
        try:
            return self._run(properties) is True
        except Incomparable:
            return False


def _compile(node: Node) -> _Run:
    compiled: _Run = _COMPILERS[type(node)](node)
    return compiled


def _constant(node: Constant) -> _Run:
    value = node.value
    return lambda properties: value


def _property(node: Property) -> _Run:
    name = node.name
    return lambda properties: properties.get(name)


def _negate(node: Negate) -> _Run:
    value = _number(node)
    if value is not None:
        return lambda properties: value
    operand = _compile(node.operand)
    return lambda properties: _minus(operand(properties))


def _number(node: Node) -> int | float | None:
    """Return the value of a numeric literal with all its signs; None for any other node."""
    signs = 0
    while isinstance(node, Negate):
        node, signs = node.operand, signs + 1
    if not (isinstance(node, Constant) and node.is_number):
        return None
    number: Any = node.value
    return _minus(number) if signs % 2 else number  # type: ignore[no-any-return]


def _minus(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is float:
        return -value
    return Long(-value) if kind is Long else None


def _cast(node: Cast) -> _Run:
    name = node.operand.name
    return lambda properties: False if name in properties else None


def _run_negation(node: Negation) -> _Run:
    operand = _compile(node.operand)

    def run(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return run


def _is_null(node: IsNull) -> _Run:
    operand = _compile(node.operand)
    return lambda properties: operand(properties) is None


def _equal(node: Equal) -> _Run:
    left, right = _compile(node.left), _compile(node.right)
    if isinstance(node.left, Property):
        name, value = node.left.name, _number(node.right)
        if type(value) is int or type(value) is Long:
            return _whole_comparison(name, operator.eq, value)
        if isinstance(node.right, Constant) and isinstance(node.right.value, str):
            constant = node.right.value

            def run_text(properties: Properties) -> bool | None:
                text = properties.get(name)
                return None if text is None else text == constant

            return run_text
    return lambda properties: equal(left(properties), right(properties))


def _order(node: Order) -> _Run:
    compare = _SIGNS[node.sign]
    left, right = _compile(node.left), _compile(node.right)
    value = _number(node.right)
    if isinstance(node.left, Property) and (type(value) is int or type(value) is Long):
        return _whole_comparison(node.left.name, compare, value)

    def run(properties: Properties) -> bool | None:
        left_value = left(properties)
        if left_value is None:
            return None
        right_value = right(properties)
        return None if right_value is None else compare(order(left_value, right_value), 0)

    return run


def _whole_comparison(name: str, compare: Callable[[Any, Any], bool], value: int) -> _Run:
    read = to_long if type(value) is Long else to_integer
    value = int(value)

    def run(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else compare(read(text), value)

    return run


def _run_membership(node: Membership) -> _Run:
    name, values, is_not = node.operand.name, node.values, node.is_not

    def run(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in values) is not is_not

    return run


def _logic(node: Logic) -> _Run:
    operands = [_compile(operand) for operand in node.operands]
    decisive = node.is_or

    def run(properties: Properties) -> bool | None:
        result: bool | None = not decisive
        for operand in operands:
            value: bool | None = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return run


_COMPILERS: dict[type, Callable[[Any], _Run]] = {
    Constant: _constant,
    Property: _property,
    Negate: _negate,
    Cast: _cast,
    Negation: _run_negation,
    IsNull: _is_null,
    Equal: _equal,
    Order: _order,
    Membership: _run_membership,
    Logic: _logic,
}
