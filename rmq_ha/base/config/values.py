"""Makes the value of a setting from its text, and the text from the value."""

import re
from enum import Enum
from typing import Any

from rmq_ha.base.config.fields import Key
from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.model.printable import is_one_line

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_BOOLEANS = {"true": True, "false": False}


def parse_value(row: Key, text: str) -> Any:
    """
    Return the typed value of a setting; blanks around the text do not count.

    :raises ValueError: the key does not take this text; the message tells an operator why.
    """
    text = text.strip()
    if row.is_optional and not text:
        return None
    if row.kind is bool:
        return _parse_bool(text)
    if row.kind is int:
        return _parse_int(row, text)
    if issubclass(row.kind, Enum):
        if text not in row.kind.__members__:
            raise ValueError(f"must be one of {', '.join(row.kind.__members__)}")
        return row.kind[text]
    if not is_one_line(text):
        raise ValueError("must not contain line breaks or other control characters")
    if row.rule is not None:
        row.rule.check(text)
    return text


def format_value(value: Any) -> str:
    """Return the text of a value in a properties file; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Enum) else str(value)


def check_tls(name: str, text: str) -> None:
    """
    Check the value of a `tls.` setting.

    :raises ValueError: the key does not take this text.
    """
    row = TLS_KEYS[name]
    if row.kind is bool:
        _parse_bool(text)
    elif row.rule is not None:
        row.rule.check(text)


def _parse_bool(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


def _parse_int(row: Key, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a whole number")
    value = int(text)
    if not row.least <= value <= row.most:
        raise ValueError(f"must be from {row.least} to {row.most}")
    return value
