"""Makes texts fit for people: no control characters, no Python brackets."""

import re
from typing import Any

_CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # terminals act on them
    "\u2028\u2029"  # end a line for some
    "\u202a-\u202e\u2066-\u2069"  # turn the reading direction
    "\ud800-\udfff"  # no terminal and no file takes half a character
)
_UNFIT = re.compile(f"[{_CONTROLS}]")
_UNFIT_OR_BLANK = re.compile(f"[\t\n{_CONTROLS}]")


def printable(text: str) -> str:
    """Return the text with control characters as `\\x1b`; line ends and tabs stay."""
    return _UNFIT.sub(_escape, text)


def one_line(text: str) -> str:
    """Return the text with control characters, line ends and tabs as `\\x1b`."""
    return _UNFIT_OR_BLANK.sub(_escape, text)


def in_json(text: str) -> str:
    """
    Return a JSON document with its control characters escaped as JSON escapes them; its meaning
    stays.
    """
    return _UNFIT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def words_of(value: Any) -> str:
    """
    Return a value for people: lists and tables of names as words, without quotes and brackets.
    """
    if isinstance(value, dict):
        return ", ".join(f"{one_line(str(name))}={words_of(item)}" for name, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(words_of, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else one_line(str(value))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 broker`, `2 brokers`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class NamedValues(dict[str, Any]):
    """
    Values of a log line: programs find them by name, and people read ` (name=value, ...)`.

    Without values the text is empty.
    """

    def __str__(self) -> str:
        return f" ({words_of(dict(self))})" if self else ""

    __repr__ = __str__


def is_one_line(text: str) -> bool:
    """Return whether a text has nothing that `one_line` would change."""
    return _UNFIT_OR_BLANK.search(text) is None


def _escape(match: "re.Match[str]") -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
