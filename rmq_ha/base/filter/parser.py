"""
Makes the tree of a selector from its text, by this grammar:

::

    selector    = conjunction (OR conjunction)*
    conjunction = equality (AND equality)*
    equality    = comparison (("=" | "<>") comparison | IS [NOT] NULL)*
    comparison  = unary (("<" | "<=" | ">" | ">=") unary
                  | [NOT] BETWEEN unary AND unary
                  | [NOT] IN "(" string ("," string)* ")")*
    unary       = ("+" | "-" | NOT)* primary
    primary     = literal | name | "(" selector ")"

NOT binds tightest: `NOT a = 1` compares `NOT a` with 1. The text after a whole selector is ignored,
except that its first word must be a valid token.

Spec: remoting.md, section 6.2.
"""

import re
from typing import NamedTuple

from rmq_ha.base.errors import InvalidSelector
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
    is_condition,
)
from rmq_ha.base.filter.values import Long, order

KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})

NAME = "a name"
STRING = "a string"
WHOLE = "a whole number"
DECIMAL = "a decimal number"
END = "the end"

# RocketMQ 4.9.7 was asked which words it reads; `tests/interop/test_filters.py` compares.
# A line comment needs its line end. A whole number has no leading zero: `012` is 0 and 12.
_BLANK = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\r|\n)|/\*[^*]*\*+(?:[^*/][^*]*\*+)*/)+")
_TOKEN = re.compile(
    r"(?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<whole>[1-9][0-9]*[lL]?|0)"
    r"|(?P<string>'[^']*(?:''[^']*)*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|>=|<=|[=<>(),+-])"
)
_KINDS = {"decimal": DECIMAL, "whole": WHOLE, "string": STRING, "name": NAME}


class Token(NamedTuple):
    """
    One token of a selector.

    :ivar kind: NAME, STRING, WHOLE, DECIMAL, END, a keyword in capitals, or the sign itself.
    :ivar text: the word as it is written.
    :ivar position: position of its first character, from 1.
    """

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        if self.kind is END:
            return END
        return repr(self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "...")


_SHOWN = 40


def next_token(text: str, start: int) -> tuple[Token, int]:
    """
    Return the first word at or after `start`, and where it ends.

    :raises InvalidSelector: no word starts there.
    """
    blank = _BLANK.match(text, start)
    if blank is not None:
        start = blank.end()
    if start >= len(text):
        return Token(END, "", start + 1), start
    match = _TOKEN.match(text, start)
    if match is None:
        if text[start] == "'":
            raise InvalidSelector("the string has no closing quote", start + 1)
        raise InvalidSelector(f"unexpected character {text[start]!r}", start + 1)
    word = match.group()
    kind = _KINDS.get(match.lastgroup or "", word)
    if kind is NAME and word.upper() in KEYWORDS:
        kind = word.upper()
    return Token(kind, word, start + 1), match.end()


MAX_LENGTH = 65536
"""
Most characters of an expression. A request can carry far more, and compiling that would slow down
every pull.
"""
MAX_TERMS = 2000
"""
Most names and values of an expression, which are evaluated for each message. The texts of an IN
count as one lookup.
"""
MAX_DEPTH = 100
"""
Most levels of brackets in each other, and of the tree. Chains of AND and OR are flat, however long.
"""

_INTEGER_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_LITERALS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_ORDERS = ("<", "<=", ">", ">=")
_PREFIXES = ("+", "-", "NOT")


def parse(text: str) -> Node:
    """
    Return the tree of a selector; its root is a condition.

    :raises InvalidSelector: the text is no selector; the message says why and where.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidSelector(f"the expression has {len(text)} characters, not up to {MAX_LENGTH}")
    return _Parser(text).run()


class _Parser:
    """
    Reads a selector one word ahead. A word is read only when it is needed, since the text after a
    selector may be anything.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._ahead: Token | None = None
        self._brackets = 0
        self._terms = 0

    def run(self) -> Node:
        return self._condition(self._selector(), 1)

    def _peek(self) -> Token:
        if self._ahead is None:
            self._ahead, self._end = next_token(self._text, self._end)
        return self._ahead

    def _take(self) -> Token:
        token = self._peek()
        self._ahead = None
        return token

    def _accept(self, kind: str) -> bool:
        if self._peek().kind != kind:
            return False
        self._ahead = None
        return True

    def _expect(self, kind: str) -> Token:
        token = self._take()
        if token.kind != kind:
            raise InvalidSelector(f"expected {kind}, got {token}", token.position)
        return token

    def _selector(self) -> Node:
        position = self._peek().position
        alternatives: list[Node] = []
        while True:
            terms = [self._equality()]
            while self._accept("AND"):
                terms.append(self._equality())
            alternatives.append(self._chain(False, terms, position))
            if not self._accept("OR"):
                return self._chain(True, alternatives, position)

    def _chain(self, is_or: bool, operands: list[Node], position: int) -> Node:
        if len(operands) == 1:
            return operands[0]
        conditions = tuple([self._condition(operand, position) for operand in operands])
        deepest = max([operand.depth for operand in conditions])
        return Logic(is_or, conditions, self._depth(deepest, position))

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            kind, _, position = self._peek()
            if kind == "=" or kind == "<>":
                self._take()
                right = self._comparison()
                _check_equal(left, right, position)
                left = Equal(left, right, self._depth(max(left.depth, right.depth), position))
                is_not = kind == "<>"
            elif kind == "IS":
                self._take()
                is_not = self._accept("NOT")
                self._expect("NULL")
                left = IsNull(left, self._depth(left.depth, position))
            else:
                return left
            if is_not:
                left = Negation(left, self._depth(left.depth, position))

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            kind, _, position = self._peek()
            if kind in _ORDERS:
                self._take()
                left = self._order(kind, left, self._unary(), position)
                continue
            is_not = kind == "NOT"
            if is_not:
                self._take()
                kind = self._peek().kind
            if kind == "BETWEEN":
                left = self._between_operator(left, is_not, position)
            elif kind == "IN":
                left = self._in_operator(left, is_not, position)
            elif is_not:
                raise InvalidSelector(
                    f"expected BETWEEN or IN after NOT, got {self._peek()}", self._peek().position
                )
            else:
                return left

    def _order(self, sign: str, left: Node, right: Node, position: int) -> Node:
        _check_order(left, position)
        _check_order(right, position)
        return Order(sign, left, right, self._depth(max(left.depth, right.depth), position))

    def _between_operator(self, operand: Node, is_not: bool, position: int) -> Node:
        self._take()
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if is_not:
            terms = [self._order("<", operand, low, position)]
            return self._chain(True, [*terms, self._order(">", operand, high, position)], position)
        terms = [self._order(">=", operand, low, position)]
        terms.append(self._order("<=", operand, high, position))
        if (
            isinstance(low, Constant)
            and isinstance(high, Constant)
            and order(high.value, low.value) < 0
        ):
            raise InvalidSelector(f"BETWEEN {low.value} AND {high.value} holds nothing", position)
        return self._chain(False, terms, position)

    def _in_operator(self, operand: Node, is_not: bool, position: int) -> Node:
        if not isinstance(operand, Property):
            raise InvalidSelector("only a property can be IN a list", position)
        self._take()
        self._expect("(")
        values = [_string(self._expect(STRING))]
        while self._accept(","):
            values.append(_string(self._expect(STRING)))
        self._expect(")")
        return Membership(operand, frozenset(values), is_not)

    def _unary(self) -> Node:
        prefixes: list[Token] = []
        while self._peek().kind in _PREFIXES:
            prefixes.append(self._take())
        node = self._primary()
        for kind, _, position in reversed(prefixes):
            if kind == "-":
                node = Negate(node, self._depth(node.depth, position))
            elif kind == "NOT":
                condition = self._condition(node, position)
                node = Negation(condition, self._depth(condition.depth, position))
        return node

    def _primary(self) -> Node:
        token = self._take()
        kind, text, position = token
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise InvalidSelector(
                f"more than {MAX_TERMS} names and values: use IN, or several subscriptions",
                position,
            )
        if kind is NAME:
            return Property(text)
        if kind is STRING:
            return Constant(_string(token))
        if kind is WHOLE:
            return Constant(_integer_literal(text, position))
        if kind is DECIMAL:
            return Constant(_decimal(text, position))
        if kind in _LITERALS:
            return Constant(_LITERALS[kind])
        if kind != "(":
            expected = "a condition" if kind is END else "a literal, a name or ("
            raise InvalidSelector(f"expected {expected}, got {token}", position)
        self._brackets = self._depth(self._brackets, position)
        node = self._selector()
        self._expect(")")
        self._brackets -= 1
        return node

    def _condition(self, node: Node, position: int) -> Node:
        if is_condition(node):
            return node
        if isinstance(node, Property):
            return Cast(node)
        raise InvalidSelector("a condition is needed, and this is a value", position)

    def _depth(self, below: int, position: int) -> int:
        if below >= MAX_DEPTH:
            raise InvalidSelector(f"nested deeper than {MAX_DEPTH}", position)
        return below + 1


def _check_order(node: Node, position: int) -> None:
    if is_condition(node) or (isinstance(node, Constant) and not node.is_number):
        raise InvalidSelector("only properties and numbers have an order", position)


def _check_equal(left: Node, right: Node, position: int) -> None:
    for node in (left, right):
        if isinstance(node, Constant) and node.value is None:
            raise InvalidSelector("nothing equals NULL: use IS NULL or IS NOT NULL", position)
    if (
        isinstance(left, Constant)
        and left.is_condition
        and isinstance(right, Constant)
        and not right.is_condition
    ):
        raise InvalidSelector("TRUE and FALSE equal no other constant", position)


def _string(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _integer_literal(text: str, position: int) -> int:
    digits = text.rstrip("lL")
    value = int(digits) if len(digits) < 20 else _LONG_MAX + 1
    if value > _LONG_MAX:
        raise InvalidSelector(f"a whole number is at most {_LONG_MAX}", position)
    return value if value <= _INTEGER_MAX else Long(value)


def _decimal(text: str, position: int) -> float:
    """
    Return the value of a decimal literal.

    Java's check takes its smallest positive double for the lowest one, so 0.0 is refused and 0 is
    not.
    """
    value = float(text)
    if value == 0.0 or value == float("inf"):
        raise InvalidSelector(
            "a decimal number is from 4.9E-324 to 1.7976931348623157E308", position
        )
    return value
