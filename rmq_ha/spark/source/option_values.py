"""Values of options: what each text may be, said when it is something else."""

import re
from collections.abc import Callable, Mapping

from rmq_ha.errors import WrongUsage
from rmq_ha.spans import span_ms

_MOST = (1 << 31) - 1
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def numbers(known: Mapping[str, str]) -> "Callable[..., int]":
    """A function of an option's name, how it is read, and what it is when it was not given."""

    def number(name: str, parse: Callable[[str, str], int], default: int) -> int:
        return parse(known[name], name) if name in known else default

    return number


def one_of(known: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of some words, the first one if it was not given; raises WrongUsage."""
    text = known.get(name, choices[0]).strip()
    for choice in choices:
        if text.lower() == choice.lower():
            return choice
    raise WrongUsage(f"{name}={text!r}: one of {', '.join(choices)}")


def flag(known: Mapping[str, str], name: str, default: bool) -> bool:
    """True or false; raises WrongUsage."""
    text = known.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise WrongUsage(f"{name}={text!r}: true or false")
    return text.strip().lower() == "true"


def natural(text: str, name: str) -> int:
    """From 0 on, as far as a Java long goes; raises WrongUsage."""
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    if not is_number or int(digits) >= 1 << 63:
        raise WrongUsage(f"{name}={text[:40]!r}: a number, 0 or more")
    return int(digits)


def positive(text: str, name: str) -> int:
    """As `natural`, from 1 on."""
    number = natural(text, name)
    if number < 1:
        raise WrongUsage(f"{name}={text!r}: a number above 0")
    return number


def small(text: str, name: str) -> int:
    """As `natural`, as far as a Java int goes."""
    number = natural(text, name)
    if number > _MOST:
        raise WrongUsage(f"{name}={text!r}: at most {_MOST}")
    return number


def small_positive(text: str, name: str) -> int:
    """As `small`, from 1 on."""
    positive(text, name)
    return small(text, name)


def byte_size(text: str, name: str) -> int:
    """Bytes, from 1 on; raises WrongUsage."""
    found = re.fullmatch(r"([0-9]{1,15})([kmg]?)b?", text.strip().lower())
    if found is None or not 0 < int(found[1]) * _UNITS[found[2]] < 1 << 62:
        raise WrongUsage(f"{name}={text!r}: bytes, like 65536, 64k, 64m or 1g")
    return int(found[1]) * _UNITS[found[2]]


def time_span(text: str, name: str) -> int:
    """A time in ms; raises WrongUsage."""
    span = span_ms(text)
    if span is None:
        raise WrongUsage(f"{name}={text!r}: a time like 500ms, 30s, 15m or 1h")
    return span
