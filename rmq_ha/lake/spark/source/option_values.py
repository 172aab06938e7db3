"""Parses the values of options; an error says what a value may be."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.spans import size_of, span_ms

T = TypeVar("T", bound=msgspec.Struct)
_INT, _LONG = (1 << 31) - 1, (1 << 63) - 1
_OF_INT = f"at most {_INT}"
Moment = Annotated[int, msgspec.Meta(ge=0, le=_LONG, description="a number, 0 or more")]
Count = Annotated[int, msgspec.Meta(ge=1, le=_LONG, description="a number above 0")]
Small = Annotated[int, msgspec.Meta(ge=0, le=_INT, description=f"a number, 0 or more, {_OF_INT}")]
SmallCount = Annotated[int, msgspec.Meta(ge=1, le=_INT, description=f"a number above 0, {_OF_INT}")]


class Bytes(int):
    """A size in bytes, at least 1."""

    meaning = "bytes, like 65536, 64k, 64m or 1g"

    @classmethod
    def parse(cls, text: str) -> "Bytes | None":
        """Parse the text of an option; None if it is not valid."""
        size = size_of(text) or 0
        return cls(size) if 0 < size < 1 << 62 else None


class DurationMs(int):
    """A duration in ms, at least 0."""

    meaning = "a time like 500ms, 30s, 15m or 1h"

    @classmethod
    def parse(cls, text: str) -> "DurationMs | None":
        """Parse the text of an option; None if it is not valid."""
        span = span_ms(text)
        return None if span is None else cls(span)


def read(kind: type[T], known: Mapping[str, str]) -> T:
    """
    Read the options that a struct has; options that were not given have the struct's defaults.

    :raises WrongUsage: a value does not have its type; the text says what it should be.
    """
    given = {name: known[name].strip() for name in names_of(kind) if name in known}
    try:
        return msgspec.convert(given, kind, strict=False, dec_hook=_parse_value)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].rstrip("`")
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    (meaning,) = _meanings(get_type_hints(kind, include_extras=True)[fields[name]])
    raise WrongUsage(f"{name}={given[name][:40]!r}: {meaning}")


def names_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the options of a struct, as users spell them."""
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def own_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the options of a struct without those of the struct that it extends."""
    return names_of(kind)[len(names_of(kind.__mro__[1])) :]


def one_of(known: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """
    Return the value of an option with a fixed choice; the first one if it was not given.

    :raises WrongUsage: the value is none of the choices.
    """
    text = known.get(name, choices[0]).strip()
    for choice in choices:
        if text.lower() == choice.lower():
            return choice
    raise WrongUsage(f"{name}={text!r}: one of {', '.join(choices)}")


def _parse_value(kind: type, text: str) -> Any:
    """Parse a value of `Bytes` or `DurationMs`; raise ValueError if it is not valid."""
    made = kind.parse(text)  # type: ignore[attr-defined]
    if made is None:
        raise ValueError(text)
    return made


def _meanings(hint: Any) -> Iterator[str]:
    """Yield the texts that describe a type in an error."""
    for part in (hint, *get_args(hint)):
        if part is bool:
            yield "true or false"
        elif hasattr(part, "meaning"):
            yield part.meaning
        else:
            yield from (meta.description for meta in getattr(part, "__metadata__", ()))
