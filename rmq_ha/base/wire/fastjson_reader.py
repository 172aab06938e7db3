"""The tolerant reader that `fastjson.parse` uses when a document is not standard JSON.

Spec: remoting.md, section 1.9.
"""

import re
import sys
from typing import Any, NamedTuple

from rmq_ha.base.errors import ProtocolViolation

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
_LONGEST_KEY = 1 << 63
_MAX_HOPS = 16
# An escape costs an eighth of what a value costs, so many characters of shared text as much as one.
_ESCAPES_A_VALUE = 8
_TEXT_A_VALUE = 32
NO_LIMIT = sys.maxsize


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A map key that is an object: its members in alphabetical order."""

    __slots__ = ()

    @classmethod
    def from_members(cls, **members: Any) -> "ObjectKey":
        return cls(sorted(members.items()))


class Reader:
    """Reads one text once, from left to right."""

    def __init__(self, text: str, max_depth: int, most: int) -> None:
        """:param most: most values to read; eight escapes count as one value."""
        self._text = text
        self._position = 0
        self._max_depth = max_depth
        self._left = self._most = most

    def read(self) -> Any:
        """
        Return the value of the whole text.

        :raises ProtocolViolation: the text is not in the dialect, or has too many values.
        """
        value = self._value(0)
        self._skip(_GAP)
        if self._position != len(self._text):
            raise self._fault("more text after the value")
        return value

    def _fault(self, what: str) -> ProtocolViolation:
        near = self._text[self._position : self._position + 20]
        return ProtocolViolation(f"not JSON: {what} at character {self._position}: {near!r}")

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise self._fault(f"more than {self._most} values (or eight times as many escapes)")

    def _skip(self, pattern: Any) -> str:
        """
        Pass the text that `pattern` matches, which may be empty; return the character after it.
        """
        self._position = pattern(self._text, self._position).end()
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:
        if depth > self._max_depth:
            raise self._fault(f"nested deeper than {self._max_depth}")
        self._spend(1)
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
            return self._number_key(match)
        match = _NAME(self._text, self._position)
        if not match:
            raise self._fault("no key")
        self._position = match.end()
        return match.group()

    def _number_key(self, match: re.Match[str]) -> int | float:
        """
        Read a number in place of a key.

        A key of Java is a long at most. Many larger numbers share one hash, so a stranger could
        make a map slow with them.
        """
        key = self._number(match)
        if not -_LONGEST_KEY <= key < _LONGEST_KEY:
            raise self._fault("a key that is no long, before")
        return key

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
        self._spend(text.count("\\") // _ESCAPES_A_VALUE)
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


def resolve_references(root: Any, max_depth: int, most: int) -> Any:
    """
    Replace every `{"$ref": "$.a[0].b"}` by the very object that it names.

    A reference that names nothing becomes None, as in Java. Java's readers share the object, too.
    The readers here walk the result as a tree, so the size of that tree counts.

    :param most: most values of the result, where a shared value counts in each place, and twice the
        number of steps that all paths may have.
    :raises ProtocolViolation: a reference names a value that it is a part of, they nest too deep,
        the result would have too many values, or their paths have too many steps.
    """
    return _Resolver(root, max_depth, most).walk(root, 0).value


class _MeasuredValue(NamedTuple):
    """
    A value without references.

    :ivar size: how many values its tree has; a long text counts as several.
    :ivar height: how many levels its tree has below it.
    """

    value: Any
    size: int
    height: int


class _Resolver:
    """
    Replaces references. Finished values and paths are kept, so shared objects are walked once.
    """

    def __init__(self, root: Any, max_depth: int, most: int) -> None:
        self._root = root
        self._max_depth = max_depth
        self._most = most
        self._done: dict[int, _MeasuredValue] = {}
        self._begun: set[int] = set()
        self._found: dict[str, Any] = {}
        self._steps = most // 2

    def walk(self, value: Any, depth: int) -> _MeasuredValue:
        """Return the value with all references in it replaced."""
        if isinstance(value, dict):
            path = value.get("$ref")
            if isinstance(path, str):
                return self._target(path, depth)
        elif not isinstance(value, list):
            return _MeasuredValue(value, _size(value), 0)
        walked = self._done.get(id(value))
        if walked is None:
            if depth > self._max_depth:
                raise self._too_deep()
            walked = self._done[id(value)] = self._enter(value, depth)
        if depth + walked.height > self._max_depth:
            raise self._too_deep()
        return walked

    def _enter(self, value: Any, depth: int) -> _MeasuredValue:
        identity = id(value)
        if identity in self._begun:
            raise ProtocolViolation("a $ref that contains itself")
        self._begun.add(identity)
        is_object = isinstance(value, dict)
        size, height = 1, 0
        for key, item in list(value.items() if is_object else enumerate(value)):
            if isinstance(item, dict | list):
                walked = self.walk(item, depth + 1)
                value[key] = walked.value
                size += walked.size
                height = max(height, walked.height + 1)
            else:
                size += _size(item)
            if is_object:
                size += _size(key) - 1
            if size > self._most:
                raise ProtocolViolation(f"JSON that has more than {self._most} values by its $ref")
        return _MeasuredValue(value, size, height)

    def _too_deep(self) -> ProtocolViolation:
        return ProtocolViolation(f"JSON nested deeper than {self._max_depth}")

    def _target(self, path: str, depth: int) -> _MeasuredValue:
        if depth > self._max_depth:
            raise self._too_deep()
        for _ in range(_MAX_HOPS):
            if path not in self._found:
                self._found[path] = self._lookup(path)
            value = self._found[path]
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
            self._steps -= 1
            if self._steps < 0:
                raise ProtocolViolation(f"paths of $ref with more than {self._most // 2} steps")
            name, index, *quoted = match.groups()
            if index is not None:
                value = _item(value, int(index))
            else:
                value = _member(value, name or quoted[0] or quoted[1] or "")
            if value is None:
                return None
        return value


def _size(value: Any) -> int:
    """Return how many values a key, or a value that is no container, counts as."""
    if isinstance(value, str):
        return 1 + len(value) // _TEXT_A_VALUE
    return 1 + sum(_size(item) for _, item in value) if isinstance(value, ObjectKey) else 1


def _item(value: Any, index: int) -> Any:
    if isinstance(value, list):
        return value[index] if index < len(value) else None
    return value.get(index) if isinstance(value, dict) else None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
