"""The tree of a selector.

Java's classes matter, because they decide what may stand where: a constant, a property, a condition
(which is true, false or unknown), or a sign in front of any of them.
"""

from dataclasses import dataclass

from rmq_ha.base.filter.values import Long

Value = str | int | Long | float | bool | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal of the selector; TRUE, FALSE and NULL are conditions, too."""

    value: Value
    depth: int = 1

    @property
    def is_condition(self) -> bool:
        """Whether the literal is TRUE, FALSE or NULL."""
        return self.value is None or self.value is True or self.value is False

    @property
    def is_number(self) -> bool:
        """Whether the literal may stand beside `<`, `<=`, `>` or `>=`."""
        return not self.is_condition and not isinstance(self.value, str)


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message: a text; unknown where the message does not have it."""

    name: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Negate:
    """A minus sign; its value is unknown unless the operand is a number."""

    operand: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Cast:
    """A property as a condition: a text is never true."""

    operand: Property
    depth: int = 2


@dataclass(frozen=True, slots=True)
class Negation:
    """`NOT` before a condition; the negation of unknown is unknown."""

    operand: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class IsNull:
    """`IS NULL`: true where the operand is unknown, else false; it is never unknown itself."""

    operand: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Equal:
    """A comparison by `=`."""

    left: "Node"
    right: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Order:
    """
    A comparison of numbers.

    :ivar sign: `<`, `<=`, `>` or `>=`.
    """

    sign: str
    left: "Node"
    right: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether a property has one of several texts: `IN`; or none of them: `NOT IN`."""

    operand: Property
    values: frozenset[str]
    is_not: bool
    depth: int = 2


@dataclass(frozen=True, slots=True)
class Logic:
    """A chain of conditions, joined by AND, or all of them by OR."""

    is_or: bool
    operands: tuple["Node", ...]
    depth: int


Node = Constant | Property | Negate | Cast | Negation | IsNull | Equal | Order | Membership | Logic


def is_condition(node: Node) -> bool:
    """Whether the value of a node is true, false or unknown for every message."""
    if isinstance(node, Constant):
        return node.is_condition
    return not isinstance(node, Property | Negate)
