"""Reads, writes and changes files in Java's `.properties` format.

A file is ISO-8859-1 (`decode`). Other characters stand there as `\\uXXXX`, one for each half of a
surrogate pair.

Spec: store.md, section 13.1.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rmq_ha.base.errors import ConfigurationError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPECIAL = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_NATURAL_LINE = re.compile(r"\r\n|\r|\n")


class PropertyLine(NamedTuple):
    """
    One setting of a file.

    :ivar value: the value as it stands in the file, with blanks at its end.
    :ivar line: number of the first line of the setting, from 1.
    :ivar lines: how many lines of the file the setting takes.
    """

    key: str
    value: str
    line: int
    lines: int


def decode(data: bytes) -> str:
    """
    Return the text of a properties file, without the mark that editors of Windows put before it.
    """
    return data.removeprefix(BOM_UTF8).decode("iso-8859-1")


def parse(text: str, name: str = "") -> list[PropertyLine]:
    """
    Return all settings of a file, in its order; a key may come more than once.

    :param name: name of the file, for the error.
    :raises ConfigurationError: a `\\u` without four hexadecimal digits, or half of a surrogate
        pair.
    """
    properties = []
    for line, lines, logical in _logical_lines(text):
        key, value = _split(logical)
        try:
            properties.append(PropertyLine(_unescape(key), _unescape(value), line, lines))
        except ValueError as error:
            raise ConfigurationError(f"{name or 'properties'}:{line}: {error}") from None
    return properties


def format_property(key: str, value: str) -> str:
    """Return one line, without its end, that `parse` reads back as this key and value."""
    return f"{_escape(key, blanks=True)}={_escape(value, blanks=False)}"


def format_properties(properties: Iterable[tuple[str, str]]) -> str:
    """Return the text of a file with these settings."""
    return "".join(f"{format_property(key, value)}\n" for key, value in properties)


def with_changes(text: str, changes: Mapping[str, str]) -> str:
    """
    Return the text of a file with other values; comments and order stay, new keys come last.

    If a key stands there twice, its last line counts, so that one is replaced and the others go.

    :raises ConfigurationError: `text` is not a properties file.
    """
    if not changes:
        return text
    lines = _NATURAL_LINE.split(text)
    if lines[-1] == "":
        lines.pop()
    last = {item.key: item for item in parse(text)}
    for item in reversed(parse(text)):
        if item.key in changes:
            start = item.line - 1
            is_last = item == last[item.key]
            new = [format_property(item.key, changes[item.key])] if is_last else []
            lines[start : start + item.lines] = new
    if lines and _continues(lines[-1]):
        lines[-1] = lines[-1][:-1]  # a backslash at the end of a file means nothing
    lines += [format_property(key, changes[key]) for key in changes if key not in last]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterable[tuple[int, int, str]]:
    """
    Yield first line number, number of lines, and joined text of each setting, without comments and
    empty lines.
    """
    natural = _NATURAL_LINE.split(text)
    position = 0
    while position < len(natural):
        first = position
        logical = natural[position].lstrip(_BLANK)
        position += 1
        if not logical or logical[0] in "#!":
            continue
        parts = []
        while _continues(logical):
            parts.append(logical[:-1])
            if position == len(natural):
                logical = ""
                break
            logical = natural[position].lstrip(_BLANK)
            position += 1
        parts.append(logical)
        joined = "".join(parts)
        if joined:
            yield first + 1, position - first, joined


def _continues(line: str) -> bool:
    """
    Return whether the next line belongs to this one, which then ends with an odd number of
    backslashes.
    """
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(logical: str) -> tuple[str, str]:
    """Return key and value, still escaped, of `key=value`, `key:value` or `key value`."""
    end = 0
    while end < len(logical) and logical[end] not in "=: \t\f":
        end += 2 if logical[end] == "\\" else 1
    key, rest = logical[:end], logical[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(text: str) -> str:
    """
    Return a text without escapes.

    :raises ValueError: a malformed `\\uXXXX`.
    """
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if not _HEX4.fullmatch(digits):
                raise ValueError(f"\\u{digits} is not \\u and four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return _join_surrogates("".join(out))


def _join_surrogates(text: str) -> str:
    """
    Join the halves of surrogate pairs.

    :raises ValueError: half of a pair stands alone.
    """
    try:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise ValueError("half of a \\uD800 to \\uDFFF pair") from None


def _escape(text: str, *, blanks: bool) -> str:
    """
    Return a text with escapes.

    :param blanks: escape every blank and not only the first.
    """
    out = []
    for index, char in enumerate(text):
        if char in _SPECIAL:
            out.append(_SPECIAL[char])
        elif char in "=:#!" or (char == " " and (blanks or index == 0)):
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be")
            out += [f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)]
    return "".join(out)
