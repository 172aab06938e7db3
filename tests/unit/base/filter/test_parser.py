"""Selectors become trees, or are refused with position and reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
)
from rmq_ha.base.filter.parser import MAX_DEPTH, MAX_LENGTH, MAX_TERMS, parse
from rmq_ha.base.filter.selector import Selector
from rmq_ha.base.filter.values import Long

A, B = Property("a"), Property("b")


def one(value: object) -> Constant:
    return Constant(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", Equal(A, one(1), 2)),
        ("a <> 'x'", Negation(Equal(A, one("x"), 2), 3)),
        ("a", Cast(A)),
        ("a AND b OR a", Logic(True, (Logic(False, (Cast(A), Cast(B)), 3), Cast(A)), 4)),
        ("a OR b OR a", Logic(True, (Cast(A), Cast(B), Cast(A)), 3)),
        ("NOT a = 1", Equal(Negation(Cast(A), 3), one(1), 4)),
        ("a IS NULL", IsNull(A, 2)),
        ("a IS NOT NULL", Negation(IsNull(A, 2), 3)),
        ("a > -1", Order(">", A, Negate(one(1), 2), 3)),
        ("a > +1", Order(">", A, one(1), 2)),
        (
            "a BETWEEN 1 AND 5",
            Logic(False, (Order(">=", A, one(1), 2), Order("<=", A, one(5), 2)), 3),
        ),
        (
            "a NOT BETWEEN 5 AND 1",
            Logic(True, (Order("<", A, one(5), 2), Order(">", A, one(1), 2)), 3),
        ),
        ("(a) IN ('x', 'it''s')", Membership(A, frozenset({"x", "it's"}), False)),
        ("a not in ('x')", Membership(A, frozenset({"x"}), True)),
        ("a = 3000000000", Equal(A, one(Long(3000000000)), 2)),
        ("a = 2147483647", Equal(A, one(2147483647), 2)),
        ("a = 9223372036854775807", Equal(A, one(Long(2**63 - 1)), 2)),
        ("a = 1 trailing words", Equal(A, one(1), 2)),
        ("a = 012", Equal(A, one(0), 2)),
        ("a = 1 )", Equal(A, one(1), 2)),
        ("NULL", one(None)),
    ],
)
def test_a_selector_becomes_a_tree(text: str, tree: Node) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("", "expected a condition, got the end", 1),
        ("a =", "expected a condition", 4),
        ("a = 1 OR", "expected a condition", 9),
        ("a = NULL", "use IS NULL", 3),
        ("NULL = a", "use IS NULL", 6),
        ("TRUE = 1", "equal no other constant", 6),
        ("a > 'x'", "have an order", 3),
        ("a > TRUE", "have an order", 3),
        ("a > b > 1", "have an order", 7),
        ("a BETWEEN 5 AND 1", "holds nothing", 3),
        ("a BETWEEN 'x' AND 'y'", "have an order", 3),
        ("a NOT b", "expected BETWEEN or IN after NOT, got 'b'", 7),
        ("a IS b", "expected NULL, got 'b'", 6),
        ("a IN ()", "expected a string, got ')'", 7),
        ("a IN (1)", "expected a string, got '1'", 7),
        ("'a' IN ('a')", "only a property", 5),
        ("5", "a value", 1),
        ("-a", "a value", 1),
        ("a = 0.0", "from 4.9E-324", 5),
        ("a = 1e400", "from 4.9E-324", 5),
        ("a = 9223372036854775808", "at most", 5),
        ("(a = 1", "expected ), got the end", 7),
        ("a = 1 ;", "unexpected character ';'", 7),
        ("a = 'b", "no closing quote", 5),
        ("a" * 2 + " = " + "x" * 60 + " AND " + "1", "a value", 1),
    ],
)
def test_a_fault_is_told_with_its_position(text: str, reason: str, position: int) -> None:
    with pytest.raises(InvalidSelector) as caught:
        parse(text)
    assert reason in str(caught.value)
    assert caught.value.position == position


def test_depth_is_bounded() -> None:
    for text in (
        "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH,
        "NOT " * (MAX_DEPTH - 2) + "a",
        "a" + " IS NULL" * (MAX_DEPTH - 1),
        " AND ".join(["(a)"] * (MAX_DEPTH + 1)),  # side by side
    ):
        assert Selector(text).matches({"a": "x"}) in (True, False)
    for text in (
        "(" * 30000 + "a",
        "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
        "NOT " * 10000 + "a",
        "-" * 10000 + "1 = 1",
        "a" + " IS NULL" * 8000,
        "a" + " = a" * 8000,
    ):
        with pytest.raises(InvalidSelector, match="nested deeper than 100"):
            parse(text)


def test_length_is_bounded_and_lists_may_be_that_long() -> None:
    names = "a IN (" + ",".join(f"'{number}'" for number in range(8000)) + ")"
    assert len(names) < MAX_LENGTH
    assert Selector(names).matches({"a": "7999"})
    assert not Selector(names).matches({"a": "8000"})
    with pytest.raises(InvalidSelector, match="65537 characters"):
        parse("a = 1 " + " " * (MAX_LENGTH - 5))


def test_what_every_message_costs_is_bounded() -> None:
    half = MAX_TERMS // 2
    chain = " OR ".join(["a=1"] * half)
    assert Selector(chain).matches({"a": "1"})
    assert not Selector(chain).matches({"a": "2"})
    with pytest.raises(InvalidSelector, match="more than 2000 names and values: use IN"):
        parse(chain + " OR a=1")


_TEXT = (
    "a b $c 1 0 5L 1.5 .5 1e3 'x' '' 'it''s' ( ) , = <> < <= > >= + - AND OR NOT IN IS NULL "
    "BETWEEN TRUE FALSE ; ' -- /* */ 0.0 é"
)
_WORDS = st.sampled_from(_TEXT.split())


@given(st.one_of(st.text(max_size=60), st.lists(_WORDS, max_size=25).map(" ".join)))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    selector, position = None, 0
    try:
        selector = Selector(text)
    except InvalidSelector as error:
        position = error.position
    assert 0 <= position <= len(text) + 1
    for properties in ({}, {"a": "1"}, {"a": "x", "b": "1.5", "$c": "true"}):
        assert selector is None or selector.matches(properties) in (True, False)


_NAMES = st.sampled_from(["a", "b", "_x", "$y", "Order9"])
_NUMBERS = st.one_of(
    st.integers(0, 2**31 - 1).map(Constant),
    st.integers(2**31, 2**63 - 1).map(lambda value: Constant(Long(value))),
    st.floats(1e-300, 1e300).map(Constant),
)
_VALUES = st.one_of(_NUMBERS, st.text(max_size=5).map(Constant), _NAMES.map(Property))
_TESTS: st.SearchStrategy[Node] = st.one_of(
    st.tuples(_NAMES, _VALUES).map(lambda pair: Equal(Property(pair[0]), pair[1], 2)),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), _NAMES, _NUMBERS).map(
        lambda item: Order(item[0], Property(item[1]), item[2], 2)
    ),
    st.tuples(_NAMES, st.frozensets(st.text(max_size=3), min_size=1), st.booleans()).map(
        lambda item: Membership(Property(item[0]), item[1], item[2])
    ),
    _NAMES.map(lambda name: IsNull(Property(name), 2)),
    st.sampled_from([True, False, None]).map(Constant),
)


def _logic(operands: list[Node], is_or: bool) -> Node:
    return Logic(is_or, tuple(operands), 1 + max(operand.depth for operand in operands))


_TREES = st.recursive(
    _TESTS,
    lambda inner: st.one_of(
        st.builds(_logic, st.lists(inner, min_size=2, max_size=4), st.booleans()),
        inner.map(lambda node: Negation(node, node.depth + 1)),
    ),
    max_leaves=12,
)


def written(node: Node) -> str:
    """A tree as text, with all its brackets."""
    match node:
        case Constant(value=str(text)):
            return "'" + text.replace("'", "''") + "'"
        case Constant(value=None):
            return "NULL"
        case Constant(value=value):
            return str(value).upper()
        case Property(name=name):
            return name
        case Equal(left=left, right=right):
            return f"{written(left)} = {written(right)}"
        case Order(sign=sign, left=left, right=right):
            return f"{written(left)} {sign} {written(right)}"
        case Membership(operand=operand, values=values, is_not=is_not):
            texts = ", ".join(written(Constant(value)) for value in values)
            return f"{operand.name} {'NOT ' if is_not else ''}IN ({texts})"
        case IsNull(operand=operand):
            return f"{written(operand)} IS NULL"
        case Negation(operand=operand):
            return f"NOT ({written(operand)})"
        case Logic(is_or=is_or, operands=operands):
            return (" OR " if is_or else " AND ").join(f"({written(item)})" for item in operands)
    raise AssertionError(node)


@given(_TREES)
def test_a_tree_survives_being_written_and_read(tree: Node) -> None:
    assert parse(written(tree)) == tree
