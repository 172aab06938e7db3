"""
What a selector says, as a tree.

Java's classes matter, because they decide what may stand where: a constant, a property, a condition
(which is true, false or unknown), or a sign in front of any of them.
"""

from dataclasses import dataclass

from rmq_ha.base.filter.values import Long

Value = str | int | Long | float | bool | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; TRUE, FALSE and NULL are conditions, too."""

    value: Value
    depth: int = 1

    @property
    def is_condition(self) -> bool:
        """TRUE, FALSE or NULL."""
        return self.value is None or self.value is True or self.value is False

    @property
    def is_number(self) -> bool:
        """May stand beside `<` and its like."""
        return not self.is_condition and not isinstance(self.value, str)


@dataclass(frozen=True, slots=True)
class Property:
    """The message's property of that name: a text, or unknown."""

    name: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Negate:
    """`-` before something; unknown unless that is a number."""

    operand: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Cast:
    """A property as a condition: a text is never true."""

    operand: Property
    depth: int = 2


@dataclass(frozen=True, slots=True)
class Negation:
    """The opposite; unknown stays unknown."""

    operand: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class IsNull:
    """Never unknown itself."""

    operand: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Equal:
    """`=`."""

    left: "Node"
    right: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Order:
    """
    `<`, `<=`, `>` or `>=`.

    :ivar sign: which of them.
    """

    sign: str
    left: "Node"
    right: "Node"
    depth: int


@dataclass(frozen=True, slots=True)
class Membership:
    """`IN`, or `NOT IN`."""

    operand: Property
    values: frozenset[str]
    is_not: bool
    depth: int = 2


@dataclass(frozen=True, slots=True)
class Logic:
    """A chain of ANDs, or of ORs; all of them are conditions."""

    is_or: bool
    operands: tuple["Node", ...]
    depth: int


Node = Constant | Property | Negate | Cast | Negation | IsNull | Equal | Order | Membership | Logic


def is_condition(node: Node) -> bool:
    """It is true, false or unknown, whatever the message."""
    if isinstance(node, Constant):
        return node.is_condition
    return not isinstance(node, Property | Negate)
