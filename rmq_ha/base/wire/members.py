"""Values whose class declares their members of a body: `msgspec.Struct`, with Java's names.

fastjson differs from msgspec in these points, which stand here and in `fastjson`, once for all
bodies: a number stands for a string and a string for a number, null stands for an absent member, an
absent member has Java's initial value, an absent value is not written, and members are written in
alphabetical order.

Spec: remoting.md, section 1.9.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
FOREIGN = "foreign"
"""
The attribute of a class that keeps the members which it does not declare, as TopicConfig does.
"""
_INITIAL = {inspect.StrType: "", inspect.IntType: 0, inspect.BoolType: False}


class JsonMember(NamedTuple):
    """
    One member that a class declares.

    :ivar name: the member's name in the document.
    :ivar attribute: the attribute of the value.
    :ivar has_zero: whether 0 is written. A class names the members whose 0 is left out in
        `UNWRITTEN_ZEROS`.
    """

    name: str
    attribute: str
    has_zero: bool


@cache
def members_of(kind: type[msgspec.Struct]) -> tuple[JsonMember, ...]:
    """Return the members of a class, in the order in which they are written."""
    zeros = getattr(kind, "UNWRITTEN_ZEROS", ())
    return tuple(
        sorted(
            JsonMember(item.encode_name, item.name, item.name not in zeros)
            for item in msgspec.structs.fields(kind)
            if item.name != FOREIGN
        )
    )


def to_members(value: msgspec.Struct) -> dict[str, Any]:
    """Return the written members of a value, by name and in alphabetical order."""
    members = {
        name: item
        for name, attribute, has_zero in members_of(type(value))
        if (item := getattr(value, attribute)) is not None and (item or has_zero)
    }
    foreign = getattr(value, FOREIGN, None)
    return dict(sorted((foreign | members).items())) if foreign else members


def from_members(kind: type[T], members: Any) -> T:
    """
    Make a value of a declared class from a parsed document.

    :param kind: the declared class.
    :raises msgspec.ValidationError: a member has another form; the error says which one.
    """
    try:
        value = msgspec.convert(members, kind, strict=False)
    except msgspec.ValidationError:
        declared: Any = kind
        value = msgspec.convert(_repairer(declared).repair(members), kind, strict=False)
    if hasattr(kind, FOREIGN):
        keep_foreign(value, members)
    return value


def keep_foreign(value: Any, members: Any) -> None:
    """
    Keep the members of a document that the class of its value does not declare.

    Tables of RocketMQ 5 have members that this version does not use. A table that is read and
    written again must still have them.

    :param value: a value with the attribute `foreign`.
    :raises msgspec.ValidationError: a member cannot be written as standard JSON.
    """
    if type(members) is not dict:
        return
    declared = _names_of(type(value))
    foreign = {
        name: item
        for name, item in members.items()
        if item is not None and type(name) is str and name not in declared
    }
    if foreign:
        try:
            kept = msgspec.json.decode(msgspec.json.encode(foreign))
        except (TypeError, ValueError, OverflowError) as error:
            raise msgspec.ValidationError(f"a member cannot be kept: {error}") from None
        setattr(value, FOREIGN, kept)


def _names_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(item.encode_name for item in msgspec.structs.fields(kind))


class _Repair(NamedTuple):
    """
    How fastjson reads a value of one kind.

    :ivar plain: the type of values that need no repair.
    :ivar repair: makes a value of this kind from any other value; returns a value that stands for
        nothing of this kind as it is.
    """

    plain: type | None
    repair: Callable[[Any], Any]

    def repair_all(self, values: Any) -> list[Any]:
        """Repair several values, such as the items of a list; return them in the same order."""
        plain, repair = self
        return [item if type(item) is plain else repair(item) for item in values]


@cache
def _repairer(kind: Any) -> _Repair:
    return _repair_of(inspect.type_info(kind))


def _repair_of(kind: inspect.Type) -> _Repair:
    match kind:
        case inspect.UnionType():
            return _repair_of(kind.types[0])
        case inspect.StrType():
            return _Repair(str, _text)
        case inspect.IntType():
            return _Repair(int, _number)
        case inspect.SetType(inspect.IntType()) | inspect.ListType():
            items = _repair_of(kind.item_type)
            return _Repair(
                None, lambda value: items.repair_all(value) if type(value) is list else value
            )
        case inspect.DictType():
            keys, values = _repair_of(kind.key_type), _repair_of(kind.value_type)
            return _Repair(
                None,
                lambda value: (
                    dict(
                        zip(keys.repair_all(value), values.repair_all(value.values()), strict=True)
                    )
                    if type(value) is dict
                    else value
                ),
            )
        case inspect.StructType():
            return _Repair(None, _Object(kind.fields).repair)
    return _Repair(None, lambda value: value)


class _Object:
    """How fastjson reads an object of one class."""

    def __init__(self, fields: tuple[inspect.Field, ...]) -> None:
        self._fields = [(field.encode_name, *_repair_of(field.type)) for field in fields]
        self._initial = {
            field.encode_name: _INITIAL.get(type(field.type)) for field in fields if field.required
        }
        self._nullable = {
            field.encode_name for field in fields if isinstance(field.type, inspect.UnionType)
        }

    def repair(self, value: Any) -> Any:
        """Return the declared members of an object; null stays only where the class allows it."""
        if type(value) is not dict:
            return value
        members = dict(self._initial)
        for name, plain, repair in self._fields:
            item = value.get(name)
            if item is not None:
                members[name] = item if type(item) is plain else repair(item)
            elif name in self._nullable and name in value:
                members[name] = None
        return members


def _text(value: Any) -> Any:
    if value is None:
        return ""
    return str(value) if isinstance(value, int | float) else value


def _number(value: Any) -> Any:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return value
