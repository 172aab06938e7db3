"""One row for each configuration key: its declaration has every fact about it.

`--check`, the answers to requests that change settings, and docs/reference/settings.md read the
row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Any, NamedTuple, get_args

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
EMBEDDED_NAMESRV = "a name server in the broker"
"""Value of `Key.needs` for a key that only the name server within a broker reads."""


class FirstReader(Enum):
    """The first version of RocketMQ that reads a key."""

    RMQ_3 = "RocketMQ 3"
    RMQ_4 = "RocketMQ 4.9"
    RMQ_5 = "RocketMQ 5"
    OURS = "rmq-ha"


class Local(Enum):
    """
    The kinds of keys that no request may change, because another machine could take the server over
    with them.
    """

    FILES = "says where files are read and written"
    LISTENS = "says where this server listens"
    SENDS = "says where clients, slaves and masters are sent"
    IDENTITY = "says who this broker is"
    CONTROLLERS = "says which controllers this one belongs to"
    GROUP = "says which DLedger group this broker belongs to"
    ACCESS = "says who may do what"
    PROGRAMS = "starts programs in some versions of RocketMQ"
    CODE = "says which code runs"
    CONNECTS = "says who may connect"
    PLUGIN = "belongs to a plugin"


class TextRule(NamedTuple):
    """
    The texts that a key takes.

    :ivar values: a description of the texts, for the documentation.
    :ivar check: raises `ValueError`, with the reason, for any other text.
    """

    values: str
    check: Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """
    All facts about one key.

    :ivar name: the key in the properties file, in RocketMQ's spelling.
    :ivar attribute: the attribute of the configuration object that holds the value.
    :ivar kind: bool, int, str, or an `Enum` whose names are the values.
    :ivar is_optional: whether an empty text means None, so that the start computes the value.
    :ivar default: RocketMQ's default; None where the start computes it.
    :ivar meaning: one line for the documentation.
    :ivar since: the first version of RocketMQ that reads the key.
    :ivar least: smallest number.
    :ivar most: largest number.
    :ivar rule: the texts that the key takes; None: any text of one line.
    :ivar is_mutable: whether a request may change the key while the server runs.
    :ivar local: why no request may change the key; None: a request may.
    :ivar is_secret: whether the value is never shown.
    :ivar is_resolved: whether the start replaces a host name by its address.
    :ivar is_dialled: whether the value holds addresses that this server connects to.
    :ivar is_same_in_set: whether the brokers of one name should have the same value, since the
        key's rule would change at a fail-over otherwise.
    :ivar needs: the boolean key without which this key has no effect, or `EMBEDDED_NAMESRV`.
    """

    name: str
    attribute: str = ""
    kind: type = str
    is_optional: bool = False
    default: Any = None
    meaning: str = ""
    since: FirstReader = FirstReader.RMQ_4
    least: int = 0
    most: int = INT_MAX
    rule: TextRule | None = None
    is_mutable: bool = False
    local: Local | None = None
    is_secret: bool = False
    is_resolved: bool = False
    is_dialled: bool = False
    is_same_in_set: bool = False
    needs: str = ""


def key(
    name: str,
    default: Any,
    meaning: str,
    *,
    since: FirstReader = FirstReader.RMQ_4,
    least: int = 0,
    most: int | None = None,
    is_long: bool = False,
    rule: TextRule | None = None,
    mutable: bool = False,
    local: Local | None = None,
    secret: bool = False,
    resolved: bool = False,
    dialled: bool = False,
    same_in_set: bool = False,
    needs: str = "",
) -> Any:
    """
    Declare one key as a field of a configuration dataclass; `Key` explains the facts.

    :param is_long: the number is a Java long; any other is a Java int.
    """
    row = Key(
        name=name,
        default=default,
        meaning=meaning,
        since=since,
        least=least,
        most=most or (LONG_MAX if is_long else INT_MAX),
        rule=rule,
        is_mutable=mutable,
        local=local,
        is_secret=secret,
        is_resolved=resolved,
        is_dialled=dialled,
        is_same_in_set=same_in_set,
        needs=needs,
    )
    return field(default=default, repr=not secret, metadata={"row": row})


own_key = partial(key, since=FirstReader.OURS)
"""Declares a key that RocketMQ does not know."""
key_of_5 = partial(key, since=FirstReader.RMQ_5)
"""Declares a key that RocketMQ 5 reads, and 4.9 does not know."""


def keys_of(target: Any) -> Mapping[str, Key]:
    """
    Return the rows of a configuration object, or of its class, by name and in the order of
    declaration.

    :param target: a dataclass whose fields `key` made, or an object with its own `rows`.
    """
    rows: Mapping[str, Key] | None = getattr(target, "rows", None)
    if rows is not None:
        return rows
    return _keys_of_class(target if isinstance(target, type) else type(target))


@cache
def _keys_of_class(config_class: Any) -> Mapping[str, Key]:
    return {row.name: row for row in map(_row, fields(config_class))}


def _row(item: Any) -> Key:
    row: Key = item.metadata["row"]
    kind, is_optional = item.type, False
    if isinstance(kind, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
        is_optional = True
    return replace(row, attribute=item.name, kind=kind, is_optional=is_optional)
