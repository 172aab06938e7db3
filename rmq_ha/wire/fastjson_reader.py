"""The tolerant reader behind `fastjson.parse`.

Spec: remoting.md, section 1.9.
"""

import re
from typing import Any

from rmq_ha.errors import ProtocolViolation

_BLANK = re.compile(r"[\s\ufeff]*").match
_GAP = re.compile(r"[\s,]*").match
_COLON = re.compile(r"\s*:").match
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"|\'([^\'\\]*(?:\\.[^\'\\]*)*)\'', re.DOTALL).match
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?").match
_NAME = re.compile(r"[A-Za-z_$][\w$]*").match
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]|\[(?:\"([^\"]*)\"|'([^']*)')\]").match
_SIMPLE = {
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "f": "\f",
    "F": "\f",
    "r": "\r",
    "v": "\v",
    **{digit: chr(int(digit)) for digit in "01234567"},
}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
_MAX_DIGITS = 40
_MAX_HOPS = 16


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A map key that is an object: its members in alphabetical order."""

    __slots__ = ()

    @classmethod
    def of(cls, **members: Any) -> "ObjectKey":
        """From members."""
        return cls(sorted(members.items()))


class Reader:
    """One text, read once, from left to right."""

    def __init__(self, text: str, max_depth: int) -> None:
        self._text = text
        self._position = 0
        self._max_depth = max_depth

    def read(self) -> Any:
        """
        The value of the whole text.

        :raises ProtocolViolation: it is not in the dialect.
        """
        value = self._value(0)
        self._skip(_GAP)
        if self._position != len(self._text):
            raise self._fault("more text after the value")
        return value

    def _fault(self, what: str) -> ProtocolViolation:
        near = self._text[self._position : self._position + 20]
        return ProtocolViolation(f"not JSON: {what} at character {self._position}: {near!r}")

    def _skip(self, pattern: Any) -> str:
        """Pass what `pattern` (which fits the empty string) matches; the character after it."""
        self._position = pattern(self._text, self._position).end()
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:
        if depth > self._max_depth:
            raise self._fault(f"nested deeper than {self._max_depth}")
        first = self._skip(_BLANK)
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first in ('"', "'"):
            return self._string()
        match = _NUMBER(self._text, self._position)
        if match:
            return self._number(match)
        match = _NAME(self._text, self._position)
        if match and match.group() in _WORDS:
            self._position = match.end()
            return _WORDS[match.group()]
        raise self._fault("no value")

    def _object(self, depth: int) -> dict[Any, Any]:
        self._position += 1
        members: dict[Any, Any] = {}
        while (first := self._skip(_GAP)) != "}":
            key = self._key(first, depth)
            match = _COLON(self._text, self._position)
            if not match:
                raise self._fault("no colon after a key")
            self._position = match.end()
            members[key] = self._value(depth + 1)
            if self._skip(_BLANK) not in (",", "}"):
                raise self._fault("an object that does not end")
        self._position += 1
        return members

    def _key(self, first: str, depth: int) -> Any:
        if first in ('"', "'"):
            return self._string()
        if first == "{":
            if depth >= self._max_depth:
                raise self._fault(f"nested deeper than {self._max_depth}")
            return self._object_key(self._object(depth + 1))
        match = _NUMBER(self._text, self._position)
        if match:
            return self._number(match)
        match = _NAME(self._text, self._position)
        if not match:
            raise self._fault("no key")
        self._position = match.end()
        return match.group()

    def _object_key(self, members: dict[Any, Any]) -> ObjectKey:
        for name, value in members.items():
            if not isinstance(name, str) or isinstance(value, dict | list):
                raise self._fault("a key that is more than a flat object, before")
        return ObjectKey(sorted(members.items()))

    def _array(self, depth: int) -> list[Any]:
        self._position += 1
        items: list[Any] = []
        while self._skip(_GAP) != "]":
            items.append(self._value(depth + 1))
            if self._skip(_BLANK) not in (",", "]"):
                raise self._fault("an array that does not end")
        self._position += 1
        return items

    def _string(self) -> str:
        match = _STRING(self._text, self._position)
        if not match:
            raise self._fault("a string that does not end")
        self._position = match.end()
        text: str = match.group(match.lastindex or 1)
        if "\\" not in text:
            return text
        text = _ESCAPE.sub(_unescape, text)
        # Java's strings are UTF-16: halves of a pair join, a lone half becomes "?" once encoded.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _number(self, match: re.Match[str]) -> int | float:
        text = match.group()
        if len(text) > _MAX_DIGITS:
            raise self._fault("a number with too many digits")
        self._position = match.end()
        return int(text) if match.group(1) is match.group(2) is None else float(text)


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _SIMPLE.get(code, code)


def resolve_references(root: Any, max_depth: int) -> Any:
    """
    Replace every `{"$ref": "$.a[0].b"}` by the very object that it names.

    One that names nothing becomes None, as in Java.

    :raises ProtocolViolation: one names a value that it is itself part of, or they nest too deep.
    """
    return _Resolver(root, max_depth).walk(root, 0)


class _Resolver:
    """Keeps what is done, so that shared objects are walked once."""

    def __init__(self, root: Any, max_depth: int) -> None:
        self._root = root
        self._max_depth = max_depth
        self._done: set[int] = set()
        self._open: set[int] = set()

    def walk(self, value: Any, depth: int) -> Any:
        """The value with all references in it replaced."""
        if depth > self._max_depth:
            raise ProtocolViolation(f"JSON nested deeper than {self._max_depth}")
        if isinstance(value, dict):
            path = value.get("$ref")
            if isinstance(path, str):
                return self._target(path, depth)
            items: Any = value.items()
        elif isinstance(value, list):
            items = enumerate(value)
        else:
            return value
        identity = id(value)
        if identity in self._done:
            return value
        if identity in self._open:
            raise ProtocolViolation("a $ref that contains itself")
        self._open.add(identity)
        for key, item in list(items):
            if isinstance(item, dict | list):
                value[key] = self.walk(item, depth + 1)
        self._open.discard(identity)
        self._done.add(identity)
        return value

    def _target(self, path: str, depth: int) -> Any:
        for _ in range(_MAX_HOPS):
            value = self._lookup(path)
            if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
                break
            path = value["$ref"]
        else:
            raise ProtocolViolation("a chain of $ref that does not end")
        return self.walk(value, depth + 1)

    def _lookup(self, path: str) -> Any:
        if not path.startswith("$"):
            return None
        value = self._root
        position = 1
        while position < len(path):
            match = _STEP(path, position)
            if not match:
                return None
            position = match.end()
            name, index, *quoted = match.groups()
            if index is not None:
                value = _item(value, int(index))
            else:
                value = _member(value, name or quoted[0] or quoted[1] or "")
            if value is None:
                return None
        return value


def _item(value: Any, index: int) -> Any:
    if isinstance(value, list):
        return value[index] if index < len(value) else None
    return value.get(index) if isinstance(value, dict) else None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
