"""Compares two values of a selector as Java's classes do.

A value is a `str` (every property is one), an `int` (Integer), a `Long`, a `float` (Double), a
`bool` or None. A text beside a number is read as that class of number: `'3000000000'` is no
Integer.

Spec: remoting.md, section 6.2.
"""

import re
from collections.abc import Callable
from struct import Struct
from typing import Any

_INTEGER_BITS = 31
_LONG_BITS = 63
_SHORT = 10
_LONG_DIGITS = 19
_BMP = "\uffff"
_JAVA_BLANKS = "".join(map(chr, range(33)))

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)
_BITS = Struct(">d")
_SIGNED = Struct(">q")


class Incomparable(Exception):
    """Two values that cannot be compared: the selector matches no message with them."""


class Long(int):
    """A whole number of 64 bits; a plain `int` has 32."""

    __slots__ = ()


def to_integer(text: str) -> int:
    """
    Read a text as Integer.valueOf does: a sign and decimal digits of any script.

    :raises Incomparable: the text is no number, or the number is too large.
    """
    if len(text) < _SHORT and text.isascii() and text.isdigit():
        return int(text)
    return _integer(text, _INTEGER_BITS)


def to_long(text: str) -> int:
    """
    Read a text as Long.valueOf does.

    :raises Incomparable: the text is no number, or the number is too large.
    """
    if len(text) < _SHORT and text.isascii() and text.isdigit():
        return int(text)
    return _integer(text, _LONG_BITS)


def to_double(text: str) -> float:
    """
    Read a text as Double.valueOf does: blanks around it, a type letter, hexadecimal, NaN and
    Infinity are fine.

    :raises Incomparable: the text is no number.
    """
    text = text.strip(_JAVA_BLANKS)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(text):
        # The exponent is decimal, so a letter at the end is the type.
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    raise Incomparable


def order(left: Any, right: Any) -> int:
    """
    Compare two values for `<` and its like; return a negative number, 0 or a positive number.

    :param left: not None; neither is `right`.
    :raises Incomparable: a text is no number.
    """
    if type(left) is str and type(right) is str:
        return compare_doubles(to_double(left), to_double(right))
    return _compare(left, right)


def equal(left: Any, right: Any) -> bool | None:
    """
    Return whether both values are the same. None: the left one is unknown, and the right one is
    known.

    :raises Incomparable: a text is no number of the other value's class, or a truth value stands
        left of a text.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return _compare(left, right) == 0


def compare_doubles(left: float, right: float) -> int:
    """
    Compare as Double.compareTo does: -0.0 is below 0.0; NaN equals itself and is above all others.
    """
    if left < right:
        return -1
    if left > right:
        return 1
    if left != left or right != right:
        return (left != left) - (right != right)
    return _sign(_bits(left), _bits(right))


def _integer(text: str, bits: int) -> int:
    if not _WHOLE.fullmatch(text) or max(text) > _BMP:
        raise Incomparable
    if not text.isascii():
        text = "".join([c if c in "+-" else str(int(c)) for c in text])
    is_negative = text[0] == "-"
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > _LONG_DIGITS:
        raise Incomparable
    value = -int(digits or "0") if is_negative else int(digits or "0")
    if not -(1 << bits) <= value < 1 << bits:
        raise Incomparable
    return value


_READERS: dict[type, Callable[[str], Any]] = {
    int: to_integer,
    Long: to_long,
    float: to_double,
    bool: lambda text: text.lower() == "true",
}


def _compare(left: Any, right: Any) -> int:
    kind, other = type(left), type(right)
    if kind is not other:
        if kind is str:
            left = _READERS[other](left)
            kind = other
        elif kind is bool:
            if other is str:
                raise Incomparable
            return -1
        elif other is str:
            right = _READERS[kind](right)
        elif other is bool:
            return -1
        elif other is float:
            kind = other
    if kind is float:
        return compare_doubles(float(left), float(right))
    return _sign(left, right)


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _bits(value: float) -> int:
    bits: int = _SIGNED.unpack(_BITS.pack(value))[0]
    return bits
