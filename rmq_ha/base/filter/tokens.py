"""The words of a selector.

Spec: remoting.md, section 6.2. The rules were found by asking RocketMQ 4.9.7;
`tests/interop/test_filters.py` compares.
"""

import re
from typing import NamedTuple

from rmq_ha.base.errors import InvalidSelector

KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})

NAME = "a name"
STRING = "a string"
WHOLE = "a whole number"
DECIMAL = "a decimal number"
END = "the end"

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
    One word.

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
